//! `compare`: two records of one experiment.

use serde_json::Value;

use crate::support::{ProgramOutput, Sandbox};

/// A record of a source with this latency, in virtual time.
fn measure(sandbox: &Sandbox, record: &str, latency: &str, duration: &str) {
    let text = format!(
        "title = \"A source\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:50\"\nlatency = \"{latency}\"\n[cache]\n\
         strategy = \"stampede\"\nttl = \"1s\"\n[load]\nrate = \"100/s\"\nduration = \"{duration}\"\n"
    );
    let file = sandbox.file("source.toml", &text);
    let run = sandbox.stockade(&["run", &file, "--out", record]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

/// The verdict on the whole, and on a metric.
fn verdicts(output: &ProgramOutput, metric: &str) -> (String, String) {
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let metrics = report["metrics"].as_array().expect("metrics");
    let of_metric = metrics.iter().find(|of| of["metric"] == metric).expect("the metric");
    let text = |verdict: &Value| verdict.as_str().expect("a verdict").to_owned();
    (text(&report["verdict"]), text(&of_metric["verdict"]))
}

#[test]
fn slower_source_is_worse_and_a_faster_one_better() {
    let sandbox = Sandbox::new();
    measure(&sandbox, "runs/a/1", "20ms", "10s");
    measure(&sandbox, "runs/b/1", "40ms", "10s");
    let compare = |arguments: &[&str]| sandbox.stockade(&[&["compare"], arguments].concat());
    let worse = compare(&["runs/a/1", "runs/b", "--format", "json"]);
    assert_eq!(worse.code, 99, "{}{}", worse.stdout, worse.stderr);
    assert_eq!(worse.stderr, "the latest record of runs/b: runs/b/1\n");
    let words = |whole: &str, metric: &str| (whole.to_owned(), metric.to_owned());
    assert_eq!(verdicts(&worse, "response.p99"), words("worse", "worse"));
    assert_eq!(verdicts(&worse, "failed"), words("worse", "same"));
    let text = compare(&["runs/a/1", "runs/b/1"]).stdout;
    assert!(text.contains("\n  - latency = \"20ms\"\n  + latency = \"40ms\"\n"), "{text}");
    assert!(text.contains("response.p99") && text.contains("+100 %"), "{text}");
    let better = compare(&["runs/b/1", "runs/a/1", "--format", "json"]);
    assert_eq!(better.code, 0, "{}", better.stdout);
    assert_eq!(verdicts(&better, "response.p99"), words("better", "better"));
    let same = compare(&["runs/a/1", "runs/a/1", "--format", "md"]);
    assert_eq!(same.code, 0);
    assert!(same.stdout.starts_with("**A source**: 0 worse, 0 better, "), "{}", same.stdout);
    let allowed = compare(&["runs/a/1", "runs/b/1", "--min-effect", "200%"]);
    assert_eq!(allowed.code, 0, "{}", allowed.stdout);
}

#[test]
fn unlike_records_and_bad_arguments_are_refused() {
    let sandbox = Sandbox::new();
    measure(&sandbox, "a", "20ms", "10s");
    measure(&sandbox, "b", "20ms", "20s");
    let words = ["these records cannot be compared: the load is 10s at 100/s before, and 20s at 100/s after"];
    sandbox.stockade(&["compare", "a", "b"]).assert_refused(2, &words);
    sandbox.stockade(&["compare", "a", "gone"]).assert_refused(1, &["gone", "run an experiment first"]);
    sandbox
        .stockade(&["compare", "a", "a", "--min-effect", "5"])
        .assert_refused(2, &["write a share in percent"]);
}
