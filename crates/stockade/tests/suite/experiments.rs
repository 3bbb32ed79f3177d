//! The experiments that come with the project: those that are computed are as they say, those that are measured run, and
//! give their verdicts.

use std::fs;

use serde_json::Value;

use crate::support::Sandbox;

fn path(name: &str) -> String {
    format!("{}/../../experiments/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs one of them and gives what it left; every hypothesis has to be supported.
fn supported(sandbox: &Sandbox, name: &str, scale: &str, seed: &str, out: &str) -> Vec<u8> {
    let file = path(name);
    let said = sandbox.stockade(&["run", &file, "--scale", scale, "--seed", seed, "--out", out]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    fs::read(sandbox.path().join(out).join("intervals.jsonl")).unwrap()
}

#[test]
fn an_expiry_costs_what_its_experiment_says() {
    let sandbox = Sandbox::new();
    let first = supported(&sandbox, "expiry.toml", "0.2", "1", "a");
    assert_eq!(first, supported(&sandbox, "expiry.toml", "0.2", "1", "b"));
}

#[test]
fn an_outage_costs_what_its_experiment_says() {
    let sandbox = Sandbox::new();
    let first = supported(&sandbox, "outage.toml", "1", "1", "a");
    assert_eq!(first, supported(&sandbox, "outage.toml", "1", "1", "b"));
    assert_ne!(first, supported(&sandbox, "outage.toml", "1", "2", "c"));
}

/// Runs a published experiment, a small part of it, and gives its report. Times are not what is looked at: other tests run
/// beside it.
fn judged(name: &str, scale: &str, more: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let file = path(name);
    let arguments = ["run", &file, "--scale", scale, "--out", "record", "--format", "json"];
    let said = sandbox.stockade(&[&arguments, more].concat());
    assert!([0, 98, 99].contains(&said.code), "{}{}", said.stdout, said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let hypotheses = report["hypotheses"].as_array().expect("hypotheses");
    assert!(!hypotheses.is_empty() && hypotheses.iter().all(|one| one["verdict"].is_string()), "{report}");
    for format in ["md", "html", "vegeta", "siege"] {
        let told = sandbox.stockade(&["report", "record", "--format", format]);
        assert_eq!((told.code, told.stderr.as_str()), (0, ""), "{format}");
        // A generator may have been late; what a probe finds wrong is wrong.
        assert!(!told.stdout.contains("invalid: the probe"), "{}", told.stdout);
    }
    report
}

/// The verdict on what an expression claims.
#[track_caller]
fn verdict<'a>(report: &'a Value, expr: &str) -> &'a str {
    let all = report["hypotheses"].as_array().into_iter().flatten();
    let mut expectations = all.flat_map(|hypothesis| hypothesis["expect"].as_array().into_iter().flatten());
    let found = expectations.find(|one| one["expr"] == expr).unwrap_or_else(|| panic!("{expr}: {report}"));
    found["verdict"].as_str().expect("a verdict")
}

#[test]
fn the_cache_limit_can_be_repeated() {
    let report = judged("cache_limit.toml", "0.025", &[]);
    for expr in ["limited.proxy.entries.max <= 36000", "limited.success == 1.0"] {
        // The number in the claim is not scaled, and the limit is.
        assert_eq!(verdict(&report, expr), "supported");
    }
    let arms = report["arms"].as_object().expect("arms");
    assert_eq!(arms.len(), 9);
    assert!(
        arms["1k/limited"]["cache"]["entries_max"].as_u64().is_some_and(|entries| entries <= 900),
        "{report}"
    );
}

#[test]
fn the_fallback_can_be_repeated() {
    let report = judged("fallback.toml", "0.01", &[]);
    assert_eq!(verdict(&report, "success == 1.0"), "supported");
}

#[test]
fn the_repeater_can_be_repeated() {
    let report = judged("repeater.toml", "0.01", &[]);
    assert_eq!(verdict(&report, "success == 1.0"), "supported");
}

#[test]
fn the_app_can_be_repeated() {
    let report = judged("xfetch_app.toml", "0.005", &["--repeat", "1"]);
    let arms = report["arms"].as_object().expect("arms");
    assert_eq!(arms.len(), 70);
    // On a slow machine a thousand users wait longer for Redis and a database than the app does. It says so to each.
    let count = |arm: &Value, status: &str| arm["status_codes"][status].as_u64().unwrap_or_default();
    for (name, arm) in arms {
        let answered = count(arm, "200") + count(arm, "502") + count(arm, "504");
        assert_eq!(Some(answered), arm["requests"].as_u64(), "{name}: {arm}");
    }
    let is_all_success = arms.values().all(|arm| arm["success"] == 1.0);
    let expected = if is_all_success { "supported" } else { "refuted" };
    assert_eq!(verdict(&report, "success == 1.0"), expected);
}
