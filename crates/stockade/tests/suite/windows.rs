//! Windows that cover a load without a gap sum to the run.

use std::fmt::Write as _;

use serde_json::Value;
use stockade_model::seed::Seed;

use crate::support::Sandbox;

/// `METRIC(0s..as) + METRIC(as..bs) + ... == METRIC` for each metric.
fn claims(test: &str, seconds: u64, metrics: &[&str], seed: Seed) -> String {
    let mut bounds = vec![0, seconds];
    bounds.extend((0..2).map(|n| 1 + seed.nth_number(n) % seconds.max(2)).filter(|at| *at < seconds));
    bounds.sort_unstable();
    bounds.dedup();
    let mut text = String::new();
    for metric in metrics {
        let windows: Vec<_> =
            bounds.windows(2).map(|w| format!("{test}/{metric}({}s..{}s)", w[0], w[1])).collect();
        let _ = writeln!(text, "    \"{} == {test}/{metric}\",", windows.join(" + "));
    }
    text
}

const METRICS: [&str; 11] = [
    "requests",
    "failed",
    "outcomes.hit",
    "outcomes.stale",
    "outcomes.miss",
    "outcomes.coalesced",
    "outcomes.fallback",
    "outcomes.bypass",
    "outcomes.unreported",
    "source_loads",
    "retries",
];

trait Numbers {
    fn nth_number(&self, n: u64) -> u64;
}

impl Numbers for Seed {
    fn nth_number(&self, n: u64) -> u64 {
        self.child(&format!("number {n}")).0 >> 16
    }
}

/// A load of one or two phases with a random rate and duration, and the seconds that it lasts, rounded up.
fn load(seed: Seed, millis_max: u64, rate_max: u64) -> (String, u64) {
    let part = |n: u64| (50 + seed.nth_number(n) % millis_max, 20 + seed.nth_number(n + 1) % rate_max);
    let ((first, rate), (second, later_rate)) = (part(10), part(20));
    if seed.nth_number(30).is_multiple_of(2) {
        // Whole seconds end at the same moment as a second of the record.
        let millis =
            if seed.nth_number(31).is_multiple_of(2) { first.div_ceil(1_000) * 1_000 } else { first };
        return (
            format!("load = {{ rate = \"{rate}/s\", duration = \"{millis}ms\" }}"),
            millis.div_ceil(1_000),
        );
    }
    let steps = format!(
        "load.steps = [{{ rate = \"{rate}/s\", for = \"{first}ms\" }}, {{ rate = \"{later_rate}/s\", for = \"{second}ms\" }}]"
    );
    (steps, (first + second).div_ceil(1_000))
}

fn experiment(head: &str, arms: &str, tests: u64, millis_max: u64, rate_max: u64) -> String {
    let (mut text, mut expect) = (head.to_owned(), String::new());
    for n in 1..=tests {
        let seed = Seed(n).child(head);
        let (load, seconds) = load(seed, millis_max, rate_max);
        let _ = writeln!(text, "[[test]]\nname = \"t{n}\"\n{load}");
        expect += &claims(&format!("t{n}"), seconds, &METRICS, seed);
    }
    format!("{text}{arms}[[hypothesis]]\ntext = \"windows sum to the run\"\nexpect = [\n{expect}]\n")
}

fn assert_all_hold(text: &str) {
    let sandbox = Sandbox::new();
    let file = sandbox.file("windows.toml", text);
    let output = sandbox.stockade(&["run", &file, "--format", "json", "--out", "record"]);
    let report: Value = serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", output.stdout, output.stderr));
    for claim in report["hypotheses"][0]["expect"].as_array().expect("claims") {
        assert_eq!(claim["verdict"], "supported", "{claim}");
    }
    let requests: u64 =
        report["arms"].as_object().expect("arms").values().filter_map(|arm| arm["requests"].as_u64()).sum();
    assert!(requests > 100, "{requests} requests");
}

#[test]
fn windows_sum_to_the_run_over_http() {
    let head = r#"
title = "Windows over HTTP"
[target]
kind = "proxy"
[origin]
recipe = [{ route = "/*", body = "hello", headers = { cache-control = "public, max-age=1" }, stages = [
    { at = 0, latency = "20ms" }, { at = "900ms", status = 503 }, { at = "1300ms", status = 200, latency = "150ms" } ] }]
[cache]
ttl = "400ms"
[load]
path = "/{key}"
keys = "uniform:20"
"#;
    let arms = "[[arm]]\nname = \"none\"\ncache.strategy = \"simple\"\n[[arm]]\nname = \"swr\"\ncache.strategy = \"swr\"\n\
                cache.swr = \"200ms\"\n";
    assert_all_hold(&experiment(head, arms, 5, 1_800, 200));
}

#[test]
fn windows_sum_to_the_run_in_the_engine() {
    let head = r#"
title = "Windows in the engine"
[target]
kind = "engine"
[origin]
source = "simulated:50"
latency = "100ms"
stage = [{ at = "30ms", errors = 0.3, latency = "700ms" }]
[cache]
ttl = "2s"
[load]
timeout = "1s"
retries = { most = 2 }
keys = 50
"#;
    let arms = "[[arm]]\nname = \"simple\"\ncache.strategy = \"simple\"\n[[arm]]\nname = \"breaker\"\ncache.strategy = \"breaker\"\n";
    assert_all_hold(&experiment(head, arms, 30, 12_000, 300));
}
