//! A latency range is uniform with both ends included, as in OriginSimulator.

use std::{path::Path, time::Duration};

use stockade_model::seed::Seed;
use stockade_origin::recipe::parse;

#[test]
fn latency_range_is_uniform() {
    let text =
        r#"{"random_content": "428kb", "stages": [{"at": 0, "latency": "1000ms..1500ms", "status": 200}]}"#;
    let recipes = parse(text, "recipe", Path::new("")).unwrap();
    let stage = recipes[0].stages.last_started_at(Duration::ZERO).unwrap();
    let mut bins = [0_u32; 50];
    for n in 0..100_000 {
        let latency = stage.draw(&mut Seed(7).child("/*").nth(n)).latency;
        assert!((Duration::from_secs(1)..=Duration::from_millis(1_500)).contains(&latency), "{latency:?}");
        let bin = usize::try_from((latency.as_millis() - 1_000) / 10).unwrap();
        bins[bin.min(49)] += 1;
    }
    let chi_squared: f64 = bins.iter().map(|n| (f64::from(*n) - 2_000.0).powi(2) / 2_000.0).sum();
    // Chi-squared, 49 degrees of freedom: 85.4 is exceeded by chance once in a thousand seeds.
    assert!(chi_squared < 85.4, "{chi_squared}: {bins:?}");
}
