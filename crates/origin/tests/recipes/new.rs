//! What recipes can say that those of `OriginSimulator` cannot.

use std::{path::Path, time::Duration};

use proptest::prelude::*;
use stockade_model::{capacity::Capacity, seed::Seed};
use stockade_origin::{
    recipe::{Content, Part, read},
    stages::{Fault, Plan, Stage},
};

use crate::{one, try_read};

fn stage(text: &str) -> Stage {
    let recipe = one(&format!(r#"{{"body": "a", "stages": [{{"at": 0, {text}}}]}}"#));
    recipe.stages.last().unwrap().clone()
}

/// How many of 100,000 requests are answered so.
fn share(stage: &Stage, is: impl Fn(&Plan) -> bool) -> f64 {
    let count = (0..100_000).filter(|n| is(&stage.plan(&mut Seed(7).nth(*n)))).count();
    count as f64 / 100_000.0
}

#[test]
fn what_is_left_out_has_a_default() {
    let recipe = one(r#"{"body": "a"}"#);
    assert_eq!(recipe.route, "/*");
    assert_eq!(recipe.content, Content::Template(vec![Part::Text("a".to_owned())]));
    assert!(recipe.headers.is_empty() && recipe.stages.last().is_none());
    assert_eq!((recipe.capacity, recipe.version_every), (None, None));
    assert!(!recipe.etag && !recipe.last_modified);

    let all_null = r#"{"body": "a", "origin": null, "random_content": null, "headers": null, "stages": null,
        "route": null, "capacity": null, "etag": null, "last_modified": null, "version_every": null}"#;
    let written = one(all_null).written;
    assert_eq!(written["headers"], serde_json::json!({}));
    assert_eq!(written["stages"], serde_json::json!([]));
    assert_eq!(written["route"], "/*");
    let without_written = |text| {
        let mut recipe = one(text);
        recipe.written = serde_json::Value::Null;
        recipe
    };
    assert_eq!(without_written(all_null), without_written(r#"{"body": "a"}"#));

    let plan = one(r#"{"body": "a", "stages": [{"at": 0}]}"#).stages.last().unwrap().certain().unwrap();
    assert_eq!(
        (plan.status.as_u16(), plan.latency, plan.fault, plan.byte_rate),
        (200, Duration::ZERO, None, None)
    );
    assert_eq!(try_read("[]").unwrap(), []);
}

#[test]
fn capacity_versions_and_rates_are_read() {
    let recipe =
        one(r#"{"body": "<<version>>: <<1kb>>", "capacity": {"workers": 8, "queue": 0}, "etag": true,
            "last_modified": true, "version_every": "1.5s",
            "headers": {"Content-Length": "7", "transfer-encoding": "chunked", "X-Name": "né"},
            "stages": [{"at": 0, "byte_rate": "64kb/s"}]}"#);
    let parts = vec![Part::Version, Part::Text(": ".to_owned()), Part::Random(1_024)];
    assert_eq!(recipe.content, Content::Template(parts));
    assert_eq!(recipe.capacity, Some(Capacity { workers: 8, queue: 0 }));
    assert!(recipe.etag && recipe.last_modified);
    assert_eq!(recipe.version_every, Some(Duration::from_millis(1_500)));
    let headers: Vec<_> =
        recipe.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(headers, [("x-name", "né".as_bytes())]);
    assert_eq!(recipe.stages.last().unwrap().byte_rate, Some(65_536));
}

#[test]
fn odds_are_what_they_say() {
    let chancy = stage(r#""status": {"503": 0.1, "200": 0.9}, "fault": {"silent": 0.05, "reset": 0.2}"#);
    for (expected, found) in [
        (0.1, share(&chancy, |plan| plan.status == 503)),
        (0.9, share(&chancy, |plan| plan.status == 200)),
        (0.05, share(&chancy, |plan| plan.fault == Some(Fault::Silent))),
        (0.2, share(&chancy, |plan| plan.fault == Some(Fault::Reset))),
        (0.75, share(&chancy, |plan| plan.fault.is_none())),
    ] {
        // Five standard deviations of 100,000 draws are less.
        assert!((expected - found).abs() < 0.008, "{expected}: {found}");
    }
    // The order of keys means nothing, so it changes nobody's fate.
    let same = stage(r#""status": {"200": 0.9, "503": 0.1}, "fault": {"reset": 0.2, "silent": 0.05}"#);
    assert_eq!(chancy, same);
}

#[test]
fn what_is_certain_is_known_to_be() {
    for text in [r#""fault": "refuse""#, r#""fault": {"refuse": 1}"#, r#""fault": {"refuse": 1.0}"#] {
        assert!(stage(text).refuses(), "{text}");
    }
    assert_eq!(stage(r#""fault": {}"#), stage(r#""status": 200"#));
    assert_eq!(stage(r#""status": {"503": 1}"#), stage(r#""status": 503"#));
    let never_none = stage(r#""fault": {"reset": 0.1, "silent": 0.2, "cut": 0.7}"#);
    assert!(share(&never_none, |plan| plan.fault.is_none()) < 1e-9);
}

#[test]
fn latencies_of_a_file_are_named_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("seen.txt"), "7ms\n").unwrap();
    let text = r#"{"body": "a", "stages": [{"at": 0, "latency": "empirical(seen.txt)"}]}"#;
    let recipes = read(text, "recipe.json", folder.path()).unwrap();
    let plan = recipes[0].stages.last().unwrap().plan(&mut Seed(1).nth(0));
    assert_eq!(plan.latency, Duration::from_millis(7));
    let error = read(text, "the recipe", Path::new("nowhere")).unwrap_err().in_one_line();
    assert_eq!(
        error,
        "the recipe:1:47: nowhere/seen.txt: cannot read it: No such file or directory (os error 2): name a file \
         with a duration a line, from the folder of the recipe on"
    );
}

proptest! {
    #[test]
    fn stages_may_be_written_in_any_order(
        stages in Just((0..12_u16).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let text = |stages: &[u16]| {
            let stages: Vec<_> = stages
                .iter()
                .map(|n| format!(r#"{{"at": "{}ms", "status": {}, "latency": "{n}s"}}"#, 500 * n, 200 + n))
                .collect();
            format!(r#"{{"body": "a", "stages": [{}]}}"#, stages.join(", "))
        };
        let sorted: Vec<_> = (0..12).collect();
        prop_assert_eq!(one(&text(&stages)).stages, one(&text(&sorted)).stages);
    }
}

#[test]
fn a_text_of_a_single_recipe_may_go_on_on_the_next_line() {
    let broken = one("{\"bo\ndy\": \"<<ver\r\nsion>>,\n a\\nb\",\n \"stages\": [{\"at\": \"4\ns\"}]}\n");
    let joined = one(r#"{"body": "<<version>>, a\nb", "stages": [{"at": "4s"}]}"#);
    assert_eq!(broken, joined);
}
