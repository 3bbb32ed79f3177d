//! Published traces, and the misses that others count for them.
//!
//! Both come from the simulator of Caffeine 3.2.3 (Apache License 2.0), `web12.trace.xz` and, of `AdaptSize`, `request.trace.xz`. The
//! keys are numbered in the order of their first requests.

use std::time::Duration;

use stockade_logs::LogReader;

use crate::{
    Capacity, LatencyOption, PlanOptions, Policy, SizeOption, TtlOption,
    curve::Point,
    plan,
    read::{KeyRules, REQUESTS_MAX, read},
    testing,
};

/// A key a line.
const WEB12: &[u8] = include_bytes!("web12.txt.zst");
/// A key and its bytes a line.
const ADAPTSIZE: &[u8] = include_bytes!("adaptsize.csv.zst");

/// The points of each policy, by size.
fn points(trace: &[u8], format: &str, policies: &[&str], sizes: &[Capacity]) -> Vec<Vec<Point>> {
    let options = PlanOptions {
        memory: None,
        policies: policies.iter().map(|policy| Policy::named(policy).expect("a policy")).collect(),
        sizes: sizes.iter().copied().map(SizeOption::Fixed).collect(),
        ttls: vec![TtlOption::Never],
        latency: LatencyOption::Fixed(Duration::ZERO),
        is_exact: true,
        max_object: Some(8 << 20),
        overhead_bytes: 0,
        ..testing::options()
    };
    let format = format.parse().expect("a format");
    let reader = LogReader::from_reader("trace", trace, Some(format)).expect("readable");
    let content = read(reader, &KeyRules::default(), REQUESTS_MAX).expect("a trace");
    let plan = plan("trace".to_owned(), content, &options, &|_, _| {}).expect("a plan");
    plan.curves.into_iter().map(|curve| curve.points).collect()
}

fn rounded(figure: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let count = figure.round() as u64;
    count
}

/// libCacheSim 0.3.5 counts these misses.
#[test]
fn misses_for_web12_are_those_of_libcachesim() {
    const REQUESTS: f64 = 95_607.0;
    let expected = [
        ("fifo", [66_140, 59_633, 41_826, 33_907, 20_309]),
        ("lru", [64_838, 57_653, 38_245, 30_133, 17_705]),
        ("clock", [64_600, 57_122, 37_468, 29_486, 17_450]),
        ("sieve", [66_281, 57_122, 34_879, 27_042, 17_093]),
        ("arc", [64_339, 56_700, 35_705, 27_850, 16_810]),
        ("belady", [46_995, 39_712, 24_221, 19_090, 13_756]),
    ];
    let sizes = [68, 137, 687, 1_375, 5_502].map(Capacity::Entries);
    let curves = points(WEB12, "csv:key=0", &expected.map(|(policy, _)| policy), &sizes);
    assert_eq!(curves.len(), expected.len());
    for ((policy, expected), points) in expected.iter().zip(curves) {
        let misses: Vec<u64> = points.iter().map(|point| rounded(point.miss_ratio * REQUESTS)).collect();
        assert_eq!(misses, expected, "{policy}");
    }
}

/// libCacheSim 0.3.5 counts these misses and bytes.
#[test]
fn misses_and_bytes_of_adaptsize_are_those_of_libcachesim() {
    const REQUESTS: f64 = 66_987.0;
    const BYTES: f64 = 485_457_552.0;
    let sizes = [1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30].map(Capacity::Bytes);
    let points = points(ADAPTSIZE, "csv:key=0,size=1", &["lru"], &sizes).remove(0);
    let found: Vec<_> = points
        .iter()
        .map(|point| (rounded(point.miss_ratio * REQUESTS), rounded(point.byte_miss_ratio * BYTES)))
        .collect();
    assert_eq!(
        found,
        [
            (53_248, 369_374_960),
            (45_413, 322_654_360),
            (40_383, 296_876_370),
            (36_844, 278_935_893),
            (36_815, 278_854_232)
        ]
    );
}
