//! The experiments of the project: virtual ones support their hypotheses, measured ones run and have verdicts.

use std::fs;

use serde_json::Value;

use crate::support::Sandbox;

fn path(name: &str) -> String {
    format!("{}/../../experiments/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs an experiment whose hypotheses must all be supported, and returns its intervals.
fn run_supported(sandbox: &Sandbox, name: &str, scale: &str, seed: &str, out: &str) -> Vec<u8> {
    let file = path(name);
    let output = sandbox.stockade(&["run", &file, "--scale", scale, "--seed", seed, "--out", out]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    fs::read(sandbox.path().join(out).join("intervals.jsonl")).unwrap()
}

#[test]
fn hypotheses_of_expiry_are_supported() {
    let sandbox = Sandbox::new();
    let first = run_supported(&sandbox, "expiry.toml", "0.2", "1", "a");
    assert_eq!(first, run_supported(&sandbox, "expiry.toml", "0.2", "1", "b"));
}

#[test]
fn hypotheses_of_outage_are_supported() {
    let sandbox = Sandbox::new();
    let first = run_supported(&sandbox, "outage.toml", "1", "1", "a");
    assert_eq!(first, run_supported(&sandbox, "outage.toml", "1", "1", "b"));
    assert_ne!(first, run_supported(&sandbox, "outage.toml", "1", "2", "c"));
}

#[test]
fn hypotheses_of_fleet_are_supported() {
    let sandbox = Sandbox::new();
    let seconds = run_supported(&sandbox, "fleet.toml", "1", "1", "a");
    // 14 measurements of 600 seconds, each with requests.
    assert!(seconds.split(|byte| *byte == b'\n').count() >= 14 * 600);
    for format in ["md", "html", "json"] {
        let printed = sandbox.stockade(&["report", "a", "--format", format]);
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""), "{format}");
        assert_eq!(printed.stdout.contains("everything purged"), format == "html", "{format}");
    }
}

/// Runs a small part of a published experiment and returns its report. Its times are not checked: other tests run at the
/// same time.
fn run_scaled(name: &str, scale: &str, more: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let file = path(name);
    let arguments = ["run", &file, "--scale", scale, "--out", "record", "--format", "json"];
    let output = sandbox.stockade(&[&arguments, more].concat());
    assert!([0, 98, 99].contains(&output.code), "{}{}", output.stdout, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let hypotheses = report["hypotheses"].as_array().expect("hypotheses");
    assert!(!hypotheses.is_empty() && hypotheses.iter().all(|one| one["verdict"].is_string()), "{report}");
    for format in ["md", "html", "vegeta", "siege"] {
        let printed = sandbox.stockade(&["report", "record", "--format", format]);
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""), "{format}");
        // A late generator may make a run invalid; a failed probe must not.
        assert!(!printed.stdout.contains("invalid: the probe"), "{}", printed.stdout);
    }
    report
}

fn expectations(report: &Value) -> impl Iterator<Item = &Value> {
    let all = report["hypotheses"].as_array().into_iter().flatten();
    all.flat_map(|hypothesis| hypothesis["expect"].as_array().into_iter().flatten())
}

/// The verdict on an expression.
#[track_caller]
fn verdict<'a>(report: &'a Value, expr: &str) -> &'a str {
    let found =
        expectations(report).find(|one| one["expr"] == expr).unwrap_or_else(|| panic!("{expr}: {report}"));
    found["verdict"].as_str().expect("a verdict")
}

/// Asserts the verdict on the success of every arm that `is_meant` selects, as `expr` has it, and returns true if all succeeded. A
/// slow machine answers too late: then the proxy or the app sends 502, 503 or 504, or the load generator gives up (0). No other
/// answer is allowed.
#[track_caller]
fn assert_success_is_judged(report: &Value, expr: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    let arms = report["arms"].as_object().expect("arms");
    let meant: Vec<_> = arms.iter().filter(|(name, _)| is_meant(name)).collect();
    assert!(!meant.is_empty(), "{report}");
    for (name, arm) in &meant {
        let count = |status: &str| arm["status_codes"][status].as_u64().unwrap_or_default();
        let known: u64 = ["200", "502", "503", "504", "0"].into_iter().map(count).sum();
        assert!(Some(known) == arm["requests"].as_u64() && count("200") > 0, "{name}: {arm}");
    }
    let is_all_success = meant.iter().all(|(_, arm)| arm["success"] == 1.0);
    assert_eq!(verdict(report, expr), if is_all_success { "supported" } else { "refuted" });
    is_all_success
}

/// Asserts that every request of an open load succeeded, unless the generator was late: a machine that cannot send on time
/// cannot answer in time.
#[track_caller]
fn assert_success(report: &Value, expr: &str, is_meant: impl Fn(&str) -> bool) {
    let is_all_success = assert_success_is_judged(report, expr, is_meant);
    assert!(is_all_success || expectations(report).any(|one| one["verdict"] == "invalid"), "{report}");
}

#[test]
fn cache_limit_runs() {
    let report = run_scaled("cache_limit.toml", "0.025", &[]);
    // `--scale` changes the limit and not the number in the expression.
    assert_eq!(verdict(&report, "limited.proxy.entries.max <= 36000"), "supported");
    assert_success(&report, "limited.success == 1.0", |arm| arm.ends_with("limited"));
    let arms = report["arms"].as_object().expect("arms");
    assert_eq!(arms.len(), 9);
    assert!(
        arms["1k/limited"]["cache"]["entries_max"].as_u64().is_some_and(|entries| entries <= 900),
        "{report}"
    );
}

#[test]
fn fallback_runs() {
    let report = run_scaled("fallback.toml", "0.01", &[]);
    assert_success(&report, "success == 1.0", |_| true);
}

#[test]
fn repeater_runs() {
    let report = run_scaled("repeater.toml", "0.01", &[]);
    assert_success(&report, "success == 1.0", |_| true);
}

#[test]
fn xfetch_app_runs_over_redis_postgres_and_mongodb() {
    let report = run_scaled("xfetch_app.toml", "0.005", &["--repeat", "1"]);
    assert_eq!(report["arms"].as_object().expect("arms").len(), 70);
    assert_success_is_judged(&report, "success == 1.0", |_| true);
}

/// Each server is started and stopped twice, and once before the load; its failures count once.
#[test]
fn your_cache_runs_on_varnish_nginx_haproxy_and_trafficserver() {
    let report = run_scaled("your_cache.toml", "0.1", &[]);
    let arms = report["arms"].as_object().expect("arms");
    assert_eq!(arms.len(), 10);
    for (name, arm) in arms {
        let requests = arm["requests"].as_u64().expect("a count");
        let answers: u64 =
            arm["status_codes"].as_object().expect("statuses").values().filter_map(Value::as_u64).sum();
        assert_eq!(requests, answers, "{name}: {arm}");
        assert!(arm["offload"].as_f64().is_some_and(|offload| offload > 0.3), "{name}: {arm}");
        assert!(arm["rss_mib"]["proxy"]["max"].as_f64().is_some_and(|mib| mib > 5.0), "{name}: {arm}");
        // Traffic Server does not say which answers are from its store.
        assert_eq!(arm["hit_ratio"].is_number(), !name.ends_with("trafficserver"), "{name}: {arm}");
    }
    assert_eq!(
        arms["outage/nginx"]["requests"], arms["outage/haproxy"]["requests"],
        "all arms have the same load"
    );
}
