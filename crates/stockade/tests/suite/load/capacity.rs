//! The search for the highest rate at which bounds hold.

use rustix::process::Signal;
use serde_json::Value;

use super::{
    Origin, json, load,
    stub::{Stub, answer, ok},
};
use crate::{running::Running, support::Sandbox};

/// Twenty workers take 100 ms per request: at most 200 requests per second succeed, the others get 503.
const BOUNDED: &str = r#"{"body": "b", "capacity": {"workers": 20, "queue": 0},
    "stages": [{"at": 0, "latency": "100ms"}]}"#;

#[test]
fn search_finds_the_capacity() {
    let origin = Origin::new(BOUNDED);
    let search = ["--capacity", "success >= 0.9 and p99 < 10s", "--from", "40/s", "--repeats", "1"];
    let short = ["--precision", "0.9", "-d", "400ms", "--format", "json"];
    let output = load(&origin.sandbox, &[&[origin.url("/").as_str()], &search[..], &short].concat());
    let found = json(&output);
    assert_eq!(
        (&found["schema"], &found["bounds"]),
        (&"stockade.capacity/1".into(), &"success >= 0.9 and p99 < 10s".into())
    );
    assert!((output.code == 0) == (found["valid"] == Value::Bool(true)), "{output:?}");
    let rate = |name: &str| found[name].as_f64().unwrap_or_else(|| panic!("{name}: {found}"));
    let (held, broke) = (rate("held_rate_per_s"), rate("broke_rate_per_s"));
    assert!((80.0..=240.0).contains(&held) && (120.0..=320.0).contains(&broke) && held < broke, "{found}");
    assert_eq!(found["end"], "between");
    let trials = found["trials"].as_array().unwrap();
    assert_eq!(
        (&trials[0]["rate_per_s"], &trials[0]["held"], &trials[0]["trial"]),
        (&40.0.into(), &true.into(), &1.into())
    );
    // One line per trial on standard error.
    assert_eq!(output.stderr.lines().count(), trials.len(), "{}", output.stderr);
    assert!(output.stderr.starts_with("        40/s  trial 1  p99 "), "{}", output.stderr);
}

#[test]
fn search_reports_its_lowest_and_highest_rate() {
    let origin = Origin::new(r#"{"body": "b", "stages": [{"at": 0, "latency": "30ms"}]}"#);
    let url = origin.url("/");
    let search = |bounds: &str, more: &[&str]| {
        let always = ["--from", "20/s", "--repeats", "1", "-d", "100ms"];
        load(&origin.sandbox, &[&[url.as_str(), "--capacity", bounds], &always[..], more].concat())
    };
    let output = search("p50 < 10ms", &[]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (98, "p50 < 10ms: does not hold at 20/s, the lowest rate of the search\n")
    );
    assert!(output.stderr.contains("p50 < 10ms: it was "), "{output:?}");
    let output = search("failed == 0", &["--to", "40/s"]);
    if output.code == 0 {
        assert_eq!(output.stdout, "failed == 0: holds at 40/s, the highest rate of the search\n");
    }
    assert_eq!(output.stderr.lines().count(), 2, "{output:?}");
}

#[test]
fn error_status_counts_as_failed_as_in_a_run() {
    let (sandbox, stub) = (Sandbox::new(), Stub::new(|_| answer("503 Service Unavailable", "", "no")));
    let url = stub.url("/");
    let search =
        ["load", &url, "--capacity", "failed == 0", "--from", "20/s", "--repeats", "1", "-d", "100ms"];
    let output = sandbox.stockade(&search);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (98, "failed == 0: does not hold at 20/s, the lowest rate of the search\n"),
        "{output:?}"
    );
    assert!(output.stderr.contains("failed == 0: it was 2"), "{output:?}");
}

#[test]
fn stopped_search_is_invalid() {
    let (sandbox, stub) = (Sandbox::new(), Stub::new(|_| ok("well")));
    let url = stub.url("/");
    let running =
        Running::start(&sandbox, &["load", &url, "--capacity", "p99 < 1m", "--from", "1/s", "-d", "1h"], "");
    stub.next();
    let output = running.stopped_by(Signal::INT);
    let expected = "p99 < 1m: no rate has been tried\nINVALID: interrupted before the search ended\n";
    assert_eq!((output.code, output.stdout.as_str()), (98, expected), "{}", output.stderr);
}
