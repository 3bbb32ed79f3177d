//! Runs that go on until their claims are decided, and runs that end when a claim cannot hold any more.

use std::fs;

use serde_json::Value;

use crate::support::{ProgramOutput, Sandbox};

/// Bursts in real time: `slow` waits 20 times as long for its source as the others.
const BURSTS: &str = r#"
title = "Bursts"
[target]
kind = "engine"
[origin]
source = "sqlite:"
latency = "20ms"
[load]
burst = 10
docs = "fixed:3"
[[arm]]
name = "a"
[[arm]]
name = "b"
[[arm]]
name = "slow"
origin.latency = "400ms"
"#;

/// A load of 20 s in virtual time that loads 50 keys once a second.
const OPEN: &str = r#"
title = "An open load"
[target]
kind = "engine"
[origin]
source = "simulated:50"
latency = "5ms"
[cache]
strategy = "simple"
ttl = "1s"
[load]
rate = "500/s"
duration = "20s"
[[arm]]
name = "a"
[[arm]]
name = "b"
"#;

fn claim(text: &str, more: &str) -> String {
    format!("[[hypothesis]]\ntext = \"claimed\"\nexpect = [\"{text}\"]\n{more}\n")
}

/// Runs an experiment into `record`.
fn run(sandbox: &Sandbox, experiment: &str, flags: &[&str]) -> (ProgramOutput, Value) {
    let file = sandbox.file("experiment.toml", experiment);
    let output = sandbox.stockade(&[&["run", &file, "--out", "record"], flags].concat());
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    (output, serde_json::from_str(&record).expect("JSON"))
}

fn looks(record: &Value) -> Vec<u64> {
    let looks = record["looks"].as_array().into_iter().flatten();
    looks.map(|look| look["repeats"].as_u64().expect("a number")).collect()
}

#[test]
fn clear_difference_is_decided_by_the_first_repeat() {
    let sandbox = Sandbox::new();
    let experiment = format!("{BURSTS}{}", claim("a.finished < slow.finished", ""));
    let (output, record) = run(&sandbox, &experiment, &["--until-decided"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert_eq!((&record["repeats"], looks(&record).len()), (&1.into(), 0), "one look needs no list");
}

#[test]
fn equal_arms_stay_open_until_the_bound() {
    let sandbox = Sandbox::new();
    let claims = claim("a.finished < 0.2 * b.finished and b.finished < slow.finished", "")
        + &claim("a.finished < b.finished", "min_effect = \"90%\"");
    let (output, record) =
        run(&sandbox, &format!("{BURSTS}{claims}"), &["--until-decided", "--at-most", "4"]);
    assert_eq!(output.code, 99, "{}{}", output.stdout, output.stderr);
    assert_eq!((&record["repeats"], looks(&record)), (&4.into(), vec![1, 3, 4]));
    assert!(output.stdout.contains("times judged after 1, 3, 4 repeats"), "{}", output.stdout);
    let verdicts: Vec<_> = record["hypotheses"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|hypothesis| hypothesis["expect"].as_array().into_iter().flatten())
        .map(|expectation| expectation["verdict"].as_str().expect("a verdict"))
        .collect();
    assert_eq!(verdicts, ["refuted", "supported", "inconclusive"]);
}

#[test]
fn budget_ends_before_a_repeat_that_does_not_fit() {
    let sandbox = Sandbox::new();
    let claims = claim("a.finished < b.finished", "min_effect = \"90%\"");
    let flags = ["--until-decided", "--budget", "1ms", "--repeat", "2"];
    let (output, record) = run(&sandbox, &format!("{BURSTS}{claims}"), &flags);
    assert_eq!((output.code, &record["repeats"]), (98, &2.into()), "{}", output.stderr);
}

#[test]
fn counts_need_no_more_repeats_than_the_file_asks_for() {
    let sandbox = Sandbox::new();
    let experiment = format!("repeat = 2{OPEN}{}", claim("source_loads <= 1", ""));
    let (output, record) = run(&sandbox, &experiment, &["--until-decided"]);
    assert_eq!((output.code, &record["repeats"]), (99, &2.into()), "{}", output.stderr);
}

#[test]
fn bounds_of_until_decided_need_it() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("experiment.toml", BURSTS);
    for flags in [["--at-most", "3"], ["--budget", "10s"]] {
        let output = sandbox.stockade(&[&["run", &file][..], &flags].concat());
        output.assert_refused(2, &["--until-decided"]);
    }
}

#[test]
fn run_ends_as_soon_as_a_count_cannot_hold_any_more() {
    let sandbox = Sandbox::new();
    let claims = claim("a.source_loads <= 120", "abort = true") + &claim("b.failed == 0", "");
    let (output, record) = run(&sandbox, &format!("{OPEN}{claims}"), &["--repeat", "3"]);
    assert_eq!(output.code, 99, "{}{}", output.stdout, output.stderr);
    let aborted = record["aborted"].as_str().expect("a reason");
    // 50 loads a second.
    assert_eq!(aborted, "`a.source_loads <= 120` cannot hold any more after 3s of arm `a`, repeat 1");
    assert!(output.stdout.contains(aborted), "{}", output.stdout);
    assert_eq!(record["interrupted"], false);
    assert!(record["runs"].as_array().expect("runs").len() < 2);
    let report = sandbox.stockade(&["report", "record"]);
    assert!(report.code == 0 && report.stdout.contains(aborted), "{}{}", report.stdout, report.stderr);
}

#[test]
fn claim_that_holds_does_not_end_the_run() {
    let sandbox = Sandbox::new();
    let claims = claim("source_loads <= 1100", "abort = true") + &claim("success == 1", "abort = true");
    let (output, record) = run(&sandbox, &format!("{OPEN}{claims}"), &["--repeat", "2"]);
    assert_eq!((output.code, &record["aborted"]), (0, &Value::Null), "{}", output.stdout);
    assert_eq!(record["runs"].as_array().expect("runs").len(), 4);
}

#[test]
fn time_that_cannot_hold_any_more_ends_the_run_within_its_first_repeat() {
    let sandbox = Sandbox::new();
    let claims = claim("slow.finished < 5ms", "abort = true");
    let (output, record) = run(&sandbox, &format!("{BURSTS}{claims}"), &["--repeat", "20"]);
    assert_eq!((output.code, &record["repeats"]), (99, &20.into()), "{}", output.stdout);
    assert!(record["runs"].as_array().expect("runs").len() <= 3, "{}", output.stdout);
    assert!(record["aborted"].as_str().is_some_and(|reason| reason.contains("arm `slow`")));
}

/// A percentile is lost as soon as more requests are too slow than it leaves: here in the first seconds of a minute, or when half of
/// them were disturbed by other tests.
#[test]
fn percentile_that_cannot_hold_any_more_ends_a_load_over_http() {
    let sandbox = Sandbox::new();
    let experiment = r#"
title = "A slow origin"
[target]
kind = "proxy"
[origin]
recipe = [{ route = "/*", body = "x", stages = [{ at = 0, latency = "400ms" }] }]
[cache]
strategy = "none"
[load]
rate = "100/s"
duration = "1m"
path = "/news"
"#;
    let claims = claim("response.p99 < 20ms", "abort = true");
    let (output, record) = run(&sandbox, &format!("{experiment}{claims}"), &[]);
    assert_eq!(output.code, 99, "{}{}", output.stdout, output.stderr);
    let aborted = record["aborted"].as_str().expect("a reason");
    let seconds =
        aborted.split_once("any more after ").and_then(|(_, rest)| rest.split_once("s of arm `cache`"));
    let seconds: u64 = seconds.expect("a moment").0.parse().expect("seconds");
    assert!(seconds < 50, "{aborted}");
}
