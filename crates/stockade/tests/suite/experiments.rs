//! The experiments of the project: virtual ones support their hypotheses, measured ones run and have verdicts.

use std::fs;

use serde_json::Value;

use crate::{running::Running, support::Sandbox};

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

/// Also those that a run judges of the whole only: a fifth has episodes enough.
#[test]
fn hypotheses_of_expiry_are_supported() {
    let sandbox = Sandbox::new();
    let first = run_supported(&sandbox, "expiry.toml", "0.2", "1", "a");
    assert_eq!(first, run_supported(&sandbox, "expiry.toml", "0.2", "1", "b"));
    let text =
        fs::read_to_string(path("expiry.toml")).expect("an experiment").replace("any_scale = true\n", "");
    let file = sandbox.file("all.toml", &text.replace("[[hypothesis]]", "[[hypothesis]]\nany_scale = true"));
    let all = sandbox.stockade(&["run", &file, "--scale", "0.2", "--out", "all"]);
    assert!(all.code == 0 && !all.stdout.contains("not judged"), "{}{}", all.stdout, all.stderr);
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
        assert_eq!(printed.stdout.contains("everything purged"), format != "json", "{format}");
    }
}

/// Runs a small part of a published experiment and returns its report. Its times are not checked: other tests run at the
/// same time.
fn run_scaled(name: &str, scale: &str, more: &[&str]) -> Value {
    run_scaled_file(&Sandbox::new(), &path(name), scale, more)
}

fn run_scaled_file(sandbox: &Sandbox, file: &str, scale: &str, more: &[&str]) -> Value {
    let arguments = ["run", file, "--scale", scale, "--out", "record", "--format", "json"];
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

/// A published experiment whose load a crowded machine cannot serve.
struct DemandingExperiment {
    name: &'static str,
    scale: &'static str,
    /// Its largest responses, and their number in a second.
    body: &'static str,
    rate: f64,
    /// Its file with this share of its rates.
    at_share: fn(&str, f64) -> String,
}

/// Of the requests that an origin alone answers in a second, the experiment sends this share at most: a proxy that stores each
/// response takes its part, and other tests may start meanwhile.
const CAPACITY_SHARE: f64 = 0.4;
/// Below this rate, in requests a second, the load is too small to say anything.
const RATE_MIN: f64 = 10.0;

impl DemandingExperiment {
    /// Its report, at the published rate or at one that this machine can serve. Where requests fail although they were sent in time,
    /// the report is that of a second run at a quarter of the rate: a machine that other programs crowd for a while has room for that
    /// one, and a proxy that fails requests does it again. `None`: the machine is too slow to tell, which standard error says.
    fn run(&self) -> Option<Value> {
        let rate = self.servable()?;
        let report = self.run_at(rate);
        if !has_failed_in_time(&report) {
            return Some(report);
        }
        Some(self.run_at((rate / 4.0).min(self.servable()?)))
    }

    fn run_at(&self, rate: f64) -> Value {
        let sandbox = Sandbox::new();
        let published = fs::read_to_string(path(self.name)).expect("an experiment");
        let text = (self.at_share)(&published, rate / self.rate);
        let is_scaled = (self.at_share)(&published, 0.5) != published;
        assert!(is_scaled, "{}: its rates have another form", self.name);
        let data = format!("{}/../../../shared/data/", env!("CARGO_MANIFEST_DIR"));
        let file = sandbox.file(self.name, &text.replace("../../shared/data/", &data));
        eprintln!("{} at {rate:.1} requests a second", self.name);
        run_scaled_file(&sandbox, &file, self.scale, &[])
    }

    /// The rate at which this machine can run it at this moment.
    fn servable(&self) -> Option<f64> {
        let sandbox = Sandbox::new();
        let recipe = format!(
            r#"{{"random_content": "{}", "headers": {{"content-encoding": "gzip"}}, "stages": [{{"at": 0}}]}}"#,
            self.body
        );
        let origin = Running::origin(&sandbox, &["-", "--listen", "0"], &recipe);
        let url = format!("http://{}/", origin.listens("http"));
        let load = sandbox.stockade(&["load", &url, "-c", "4", "-d", "2s", "--format", "json"]);
        let summary: Value = serde_json::from_str(&load.stdout).expect("JSON");
        let served = summary["throughput"].as_f64().expect("a rate");
        let rate = (served * CAPACITY_SHARE).min(self.rate);
        if rate < RATE_MIN {
            let Self { name, body, .. } = self;
            eprintln!(
                "cannot tell: an origin alone serves {served:.1} responses of {body} a second, too few for {name}"
            );
            return None;
        }
        Some(rate)
    }
}

/// True if requests failed that were sent in time.
fn has_failed_in_time(report: &Value) -> bool {
    let is_late = expectations(report).any(|one| one["verdict"] == "invalid");
    let is_success = |one: &Value| one["expr"].as_str().is_some_and(|expr| expr.contains("success"));
    !is_late && expectations(report).any(|one| is_success(one) && one["verdict"] == "refuted")
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
    let experiment = DemandingExperiment {
        name: "cache_limit.toml",
        scale: "0.025",
        body: "300kb",
        rate: 425.0,
        at_share: |text, share| text.replace("\"425/s\"", &format!("\"{:.0}/s\"", (425.0 * share).max(1.0))),
    };
    let Some(report) = experiment.run() else { return };
    assert_eq!(verdict(&report, "limited.proxy.entries.max <= 36000 * scale + 0.5"), "supported");
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
    let experiment = DemandingExperiment {
        name: "repeater.toml",
        scale: "0.01",
        body: "100kb",
        rate: 500.0,
        at_share: |text, share| {
            text.replace("\"500/s\"", &format!("\"{:.0}/s\"", (500.0 * share).max(1.0)))
                .replace("speed = 30_000", &format!("speed = {:.0}", (30_000.0 * share).max(1.0)))
        },
    };
    let Some(report) = experiment.run() else { return };
    assert_success(&report, "success == 1.0", |_| true);
}

#[test]
fn xfetch_app_runs_over_redis_postgres_and_mongodb() {
    let report = run_scaled("xfetch_app.toml", "0.005", &["--repeat", "1"]);
    assert_eq!(report["arms"].as_object().expect("arms").len(), 70);
    assert_success_is_judged(&report, "success == 1.0", |_| true);
}

/// Each server is started and stopped twice, and once before the load; its failures count once. Traffic Server's helper waits stopped,
/// masters sleep, and all of that is not a disturbance.
#[test]
fn your_cache_runs_on_varnish_nginx_haproxy_and_trafficserver() {
    let sandbox = Sandbox::new();
    let report = run_scaled_file(&sandbox, &path("your_cache.toml"), "0.1", &[]);
    let seconds = fs::read_to_string(sandbox.path().join("record/intervals.jsonl")).expect("seconds");
    assert!(!seconds.contains("\"stopped\""), "{report}");
    let verdicts: Vec<_> =
        expectations(&report).map(|one| one["verdict"].as_str().expect("a verdict")).collect();
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == "not_judged").count(), 6, "{report}");
    assert_eq!(report["verdict"], "supported", "{report}");
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
