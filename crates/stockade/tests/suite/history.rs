//! `history`: figures over the records of a directory.

use std::fs;

use serde_json::{Value, json};

use crate::support::Sandbox;

/// Records of a source in virtual time, by its latency in milliseconds.
fn measure(sandbox: &Sandbox, latencies_ms: &[u32]) {
    for (index, latency) in latencies_ms.iter().enumerate() {
        let text = format!(
            "title = \"A source\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:50\"\nlatency = \"{latency}ms\"\n[cache]\n\
             strategy = \"none\"\n[load]\nrate = \"20/s\"\nduration = \"2s\"\n"
        );
        let file = sandbox.file("source.toml", &text);
        let record = format!("runs/source/{index}");
        let run = sandbox.stockade(&["run", &file, "--out", &record]);
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    }
}

/// As [`measure`], one record a day, with a commit each.
fn measure_days(sandbox: &Sandbox, latencies_ms: &[u32]) {
    measure(sandbox, latencies_ms);
    for index in 0..latencies_ms.len() {
        change(sandbox, &format!("runs/source/{index}"), |record| {
            record["started_at"] = json!(format!("2026-01-{:02}T10:00:00Z", index + 1));
            record["commit"] = json!(format!("c{index}"));
        });
    }
}

fn change(sandbox: &Sandbox, record: &str, change: impl Fn(&mut Value)) {
    let path = sandbox.path().join(record).join("record.json");
    let mut value = serde_json::from_str(&fs::read_to_string(&path).expect("a record")).expect("JSON");
    change(&mut value);
    fs::write(&path, value.to_string()).expect("written");
}

fn changes(sandbox: &Sandbox, arguments: &[&str]) -> Vec<(String, String)> {
    let metric = ["history", "--metric", "response.p99", "--format", "json"];
    let output = sandbox.stockade(&[&metric, arguments].concat());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{}", output.stdout);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let changes = report["series"][0]["changes"].as_array().expect("changes");
    changes.iter().map(|change| (text(&change["commit"]), text(&change["verdict"]))).collect()
}

#[test]
fn change_is_named_with_its_commit() {
    let sandbox = Sandbox::new();
    measure_days(&sandbox, &[20, 20, 21, 40, 40, 41, 20, 20, 21]);
    let named = |commit: &str, verdict: &str| (commit.to_owned(), verdict.to_owned());
    assert_eq!(changes(&sandbox, &[]), [named("c3", "worse"), named("c6", "better")]);
    assert_eq!(changes(&sandbox, &["--min-effect", "300%"]), []);
    let text = sandbox.stockade(&["history"]).stdout;
    assert!(text.starts_with("9 records, 2026-01-01T10:00:00Z to 2026-01-09T10:00:00Z\n"), "{text}");
    assert!(text.contains("2026-01-04T10:00:00Z also changed the experiment file"), "{text}");
    let csv = sandbox.stockade(&["history", "--metric", "finished", "--format", "csv"]).stdout;
    assert_eq!(csv.lines().count(), 10, "{csv}");
}

#[test]
fn index_follows_the_records() {
    let sandbox = Sandbox::new();
    measure_days(&sandbox, &[20, 20, 20, 40, 40, 40]);
    let index = sandbox.path().join("runs/history.jsonl");
    let of_records = changes(&sandbox, &[]);
    let kept = fs::read_to_string(&index).expect("an index");
    assert_eq!(changes(&sandbox, &[]), of_records);
    // A cut line, another program, no file, and a request.
    for text in [&kept[..kept.len() - 100], "{}", ""] {
        fs::write(&index, text).expect("written");
        assert_eq!(changes(&sandbox, &[]), of_records);
        assert_eq!(fs::read_to_string(&index).expect("an index"), kept);
    }
    assert_eq!(changes(&sandbox, &["--rebuild"]), of_records);
    // A changed record, and one that is gone.
    change(&sandbox, "runs/source/3", |record| record["commit"] = json!("other"));
    assert_eq!(changes(&sandbox, &[])[0].0, "other");
    fs::remove_dir_all(sandbox.path().join("runs/source/5")).expect("removed");
    assert_eq!(changes(&sandbox, &[]), []);
    assert_eq!(
        fs::read_dir(sandbox.path().join("runs")).expect("a directory").count(),
        2,
        "no file is left over"
    );
}

#[test]
fn records_that_cannot_be_read_are_named_and_left_out() {
    let sandbox = Sandbox::new();
    measure_days(&sandbox, &[20, 20]);
    change(&sandbox, "runs/source/1", |record| record["schema"] = json!("another/1"));
    let output = sandbox.stockade(&["history"]);
    assert_eq!(output.code, 0);
    assert!(output.stdout.starts_with("1 record, "), "{}", output.stdout);
    let message = "left out: runs/source/1/record.json: not a Stockade record: its schema is `another/1`";
    assert!(output.stderr.starts_with(message), "{}", output.stderr);
    change(&sandbox, "runs/source/1", |record| {
        record["schema"] = json!("stockade.record/1");
        record["interrupted"] = json!(true);
    });
    let output = sandbox.stockade(&["history", "--metric", "failed", "--format", "csv"]);
    assert_eq!(output.stderr, "left out: records in progress, or stopped before their end: 1\n");
    assert_eq!(output.stdout.lines().count(), 2, "{}", output.stdout);
    let of_one = sandbox.stockade(&["history", "runs/source/0", "--metric", "failed"]);
    assert_eq!((of_one.code, of_one.stderr.as_str()), (0, ""), "{}", of_one.stdout);
    assert!(!sandbox.path().join("runs/source/0/history.jsonl").exists(), "a record has no index");
}

#[test]
fn bad_arguments_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.stockade(&["history"]).assert_refused(1, &["runs", "run an experiment first"]);
    measure_days(&sandbox, &[20]);
    sandbox
        .stockade(&["history", "--metric", "respones.p99"])
        .assert_refused(2, &["did you mean `response.p99`?"]);
    sandbox
        .stockade(&["history", "--metric", "proxy.rss.max"])
        .assert_refused(2, &["no record has a figure of proxy.rss.max"]);
    sandbox.stockade(&["history", "--min-effect", "5"]).assert_refused(2, &["write a share in percent"]);
}

#[test]
fn record_has_the_commit_of_its_experiment_file() {
    let sandbox = Sandbox::new();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false"];
        let done = sandbox.command_of("git").args(identity).args(arguments).output().expect("git runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text").trim().to_owned()
    };
    let commit = |name: &str| {
        measure(&sandbox, &[20]);
        let text = fs::read_to_string(sandbox.path().join("runs/source/0/record.json")).expect("a record");
        fs::rename(sandbox.path().join("runs"), sandbox.path().join(name)).expect("moved");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        record["commit"].as_str().map(str::to_owned)
    };
    git(&["init", "--quiet"]);
    sandbox.file("source.toml", "");
    git(&["add", "source.toml"]);
    git(&["commit", "--quiet", "--message", "m"]);
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    assert_eq!(commit("dirty"), Some(format!("{head}-dirty")));
    git(&["commit", "--all", "--quiet", "--message", "m"]);
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    assert_eq!(commit("clean"), Some(head));
    let compared = sandbox.stockade(&["compare", "dirty/source/0", "clean/source/0"]).stdout;
    assert!(compared.contains("\n  commit: "), "{compared}");
}
