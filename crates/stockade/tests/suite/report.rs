//! `stockade report` without the directory of one record: it takes the latest.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

use crate::support::Sandbox;

const EXPERIMENT: &str = r#"
title = "A stampede"
[target]
kind = "engine"
[origin]
source = "simulated:9"
[load]
burst = 10
docs = "fixed:3"
[cache]
strategy = "stampede"
"#;

/// Records with the given directories and starts. The title of each is its directory.
fn records(records: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    assert_eq!(sandbox.stockade(&["run", &file, "--out", "first"]).code, 0);
    let first = sandbox.path().join("first");
    let text = fs::read_to_string(first.join("record.json")).unwrap();
    for (directory, started_at) in records {
        let path = sandbox.path().join(directory);
        fs::create_dir_all(&path).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        record["started_at"] = (*started_at).into();
        record["experiment"] = (*directory).into();
        fs::write(path.join("record.json"), record.to_string()).unwrap();
        fs::copy(first.join("intervals.jsonl"), path.join("intervals.jsonl")).unwrap();
    }
    fs::remove_dir_all(first).unwrap();
    sandbox
}

#[track_caller]
fn assert_reported(sandbox: &Sandbox, arguments: &[&str], directory: &str) {
    let output = sandbox.stockade(&[&["report"], arguments].concat());
    assert_eq!((output.code, output.stderr), (0, format!("the latest record: {directory}\n")));
    let title = output.stdout.lines().next().unwrap_or_default();
    assert_eq!(title, format!("# {directory}"));
}

#[test]
fn latest_record_of_a_directory_is_reported() {
    let sandbox = records(&[
        ("runs/stampede/2026-01-02T10-00-00Z", "2026-01-02T10:00:00Z"),
        ("runs/outage/2026-01-01T10-00-00Z", "2026-01-01T10:00:00Z"),
        ("runs/outage/named", "2026-01-01T09:00:00Z"),
        ("runs/mine", "2025-12-31T10:00:00Z"),
    ]);
    let latest = "runs/stampede/2026-01-02T10-00-00Z";
    assert_reported(&sandbox, &[], latest);
    assert_reported(&sandbox, &["runs"], latest);
    assert_reported(&sandbox, &["runs/stampede", "--format", "md"], latest);
    // By the start in the record, not by name.
    assert_reported(&sandbox, &["runs/outage"], "runs/outage/2026-01-01T10-00-00Z");

    let named = sandbox.stockade(&["report", "runs/mine"]);
    assert_eq!((named.code, named.stderr.as_str()), (0, ""));
    assert!(named.stdout.starts_with("# runs/mine\n"), "{}", named.stdout);
}

#[test]
fn higher_number_is_later_within_a_second() {
    let second = "2026-01-01T10:00:00Z";
    let sandbox = records(&[
        ("runs/a/2026-01-01T10-00-00Z-10", second),
        ("runs/a/2026-01-01T10-00-00Z-9", second),
        ("runs/a/2026-01-01T10-00-00Z", second),
    ]);
    assert_reported(&sandbox, &[], "runs/a/2026-01-01T10-00-00Z-10");
    fs::remove_dir_all(sandbox.path().join("runs/a/2026-01-01T10-00-00Z-10")).unwrap();
    assert_reported(&sandbox, &[], "runs/a/2026-01-01T10-00-00Z-9");
}

#[test]
fn loops_and_unreadable_files_are_passed_over() {
    let latest = "runs/a/2026-01-01T10-00-00Z";
    let sandbox = records(&[
        (latest, "2026-01-01T10:00:00Z"),
        ("runs/a/b/too-deep", "2026-06-01T10:00:00Z"),
        ("runs/a/undated", "tomorrow"),
        ("runs/a/locked", "2026-05-01T10:00:00Z"),
    ]);
    let runs = sandbox.path().join("runs");
    symlink(&runs, runs.join("up")).unwrap();
    symlink("itself", runs.join("itself")).unwrap();
    symlink("..", runs.join("a/around")).unwrap();
    for (name, text) in [("broken", "{"), ("list", "[]"), ("empty", "")] {
        fs::create_dir(runs.join(name)).unwrap();
        fs::write(runs.join(name).join("record.json"), text).unwrap();
    }
    fs::create_dir_all(runs.join("directory/record.json")).unwrap();
    // Its reader would wait for a writer.
    fs::create_dir(runs.join("pipe")).unwrap();
    assert!(Command::new("mkfifo").arg(runs.join("pipe/record.json")).status().unwrap().success());
    fs::write(runs.join("file"), "").unwrap();
    // Root reads it whatever its mode is.
    let locked = runs.join("a/locked/record.json");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&locked).is_ok() {
        fs::remove_file(&locked).unwrap();
    }
    assert_reported(&sandbox, &[], latest);
}

#[test]
fn directory_without_records_is_refused() {
    let sandbox = records(&[("deep/1/2/3", "2026-01-01T10:00:00Z")]);
    let remedy = "name the directory of one run, such as runs/stampede/2026-01-31T10-00-00Z";
    sandbox.stockade(&["report"]).assert_refused(1, &["runs: no record.json in it", remedy]);
    sandbox
        .stockade(&["report", "small.toml"])
        .assert_refused(1, &["small.toml/record.json: Not a dir", remedy]);
    let nothing = "deep: no record.json in it, or in the two levels of directories below it";
    sandbox.stockade(&["report", "deep"]).assert_refused(1, &[nothing, remedy]);
}
