//! `stockade stampede` as a user runs it: real documents in SQLite, live time.

use std::path::Path;

use crate::support::Sandbox;
use serde_json::Value;

/// The published wait timeout of `stampede`.
const WAIT_TIMEOUT_MS: f64 = 1_500.0;

/// Checks the published table. Workers fail only if the machine is so slow that a load exceeds the wait timeout.
pub fn assert_table(runs: &[Value]) {
    for run in runs {
        let number = |value: &Value| value.as_u64().expect("a number");
        let (n, d) = (number(&run["workers"]), number(&run["distinct_keys"]));
        let calls = &run["calls"];
        let calls = ["fetch_doc", "store_local", "store_local_async"].map(|call| number(&calls[call]));
        let expected = match run["strategy"].as_str().expect("a name") {
            "none" => [n, n, 0],
            "async" => [n, 0, n],
            "stampede" => [d, d, 0],
            "stampede_async" => [n, 0, d],
            other => panic!("{other}"),
        };
        assert_eq!(calls, expected, "{run}");
        let is_slow = run["finished_ms"].as_f64().expect("a time") >= WAIT_TIMEOUT_MS;
        let failed_max = if is_slow && run["strategy"] == "stampede" { n - d } else { 0 };
        assert!(number(&run["failed"]) <= failed_max, "{run}");
        let waiters = if run["strategy"] == "stampede" { n - d } else { 0 };
        assert_eq!(number(&run["waiters"]), waiters, "{run}");
    }
}

#[test]
fn published_table_is_exact_with_the_barrier() {
    let sandbox = Sandbox::new();
    for docs in ["fixed:3", "scaled"] {
        let runs = sandbox.stampede(&["--docs", docs]);
        assert_eq!(runs.len(), 16);
        assert_table(&runs);
        let documents: Vec<_> =
            runs.iter().step_by(4).map(|run| run["documents"].as_u64().unwrap()).collect();
        assert_eq!(documents, if docs == "scaled" { [1, 1, 3, 30] } else { [3, 3, 3, 3] });
    }
}

#[test]
fn published_table_is_exact_on_real_documents() {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/system_schemas.jsonl");
    let sandbox = Sandbox::new();
    let (file, counts) = if real.exists() {
        (real.display().to_string(), [1, 1, 3, 26])
    } else {
        // Without that file: documents that differ from the generated ones.
        let lines: Vec<String> = (0..777).map(|i| format!("{{\"_id\":\"doc {i}\",\"x\":[{i}]}}")).collect();
        (sandbox.file("docs.jsonl", &lines.join("\n")), [1, 1, 3, 26])
    };
    let runs = sandbox.stampede(&["--docs-from", &file]);
    assert_table(&runs);
    let documents: Vec<_> = runs.iter().step_by(4).map(|run| run["documents"].as_u64().unwrap()).collect();
    assert_eq!(documents, counts);

    let database = format!("sqlite:{}", sandbox.path().join("kept.sqlite").display());
    assert_table(&sandbox.stampede(&["100", "--docs-from", &file, "--source", &database]));
    assert_table(&sandbox.stampede(&["100", "--source", &database, "--docs", "fixed:777"]));
}

#[test]
fn slow_mailbox_fails_workers_of_none_only() {
    let sandbox = Sandbox::new();
    let runs =
        sandbox.stampede(&["1000", "--writer", "mailbox", "--store-cost", "2ms", "--call-timeout", "300ms"]);
    let failed: Vec<_> = runs.iter().map(|run| run["failed"].as_u64().unwrap()).collect();
    assert!(failed[0] >= 800, "2 ms x 1,000 take 2 s, and 300 ms are enough for 150: {failed:?}");
    assert_eq!(failed[1..], [0, 0, 0]);
    assert_eq!(runs[0]["calls"]["store_local"], 1000, "every message was taken, and executed");
}

#[test]
fn stores_dropped_by_a_full_mailbox_are_reported() {
    let sandbox = Sandbox::new();
    let arguments = ["100000", "--strategy", "async", "--source", "simulated:", "--writer", "mailbox"];
    let output = sandbox.stockade(&[&["stampede"], &arguments[..], &["--store-cost", "1ms"]].concat());
    assert_eq!(output.stderr, "async, 100000 workers: 34464 stores dropped: the mailbox was full\n");
}

#[test]
fn failed_waiters_count_as_waiters() {
    let sandbox = Sandbox::new();
    let slow = ["--store-cost", "2s", "--call-timeout", "300ms", "--source", "simulated:"];
    let runs =
        sandbox.stampede(&[&["1000", "--strategy", "stampede", "--writer", "mailbox"], &slow[..]].concat());
    assert_eq!((&runs[0]["failed"], &runs[0]["waiters"]), (&1000.into(), &997.into()));
}

#[test]
fn without_the_barrier_workers_hit_stored_values() {
    let sandbox = Sandbox::new();
    let fetched = |run: &Value| run["calls"]["fetch_doc"].as_u64().unwrap();
    let runs = sandbox.stampede(&["10000", "--no-barrier", "--docs", "fixed:3"]);
    assert_eq!(fetched(&runs[2]), 3);
    assert!(runs.iter().all(|run| run["failed"] == 0));
    // A crowded core may start 10,000 workers before the first store, but not 100,000.
    let runs = sandbox.stampede(&["100000", "--strategy", "none", "--no-barrier", "--docs", "fixed:3"]);
    assert!(fetched(&runs[0]) < 100_000, "as published, where 10,000 workers made 62 to 590");
}

#[test]
fn json_report_has_the_documented_keys() {
    let sandbox = Sandbox::new();
    let runs = sandbox.stampede(&["10", "--strategy", "stampede,none", "--source", "simulated:"]);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        keys(&runs[0]),
        "calls distinct_keys documents failed finished_ms max_ms mean_ms min_ms percentiles \
         start_skew_ms strategy sum_ms waiters workers"
    );
    assert_eq!(keys(&runs[0]["calls"]), "fetch_doc store_local store_local_async");
    assert_eq!(keys(&runs[0]["percentiles"]), "50 75 90 95 99");
    assert_eq!(
        (runs[0]["strategy"].as_str(), runs[1]["strategy"].as_str()),
        (Some("stampede"), Some("none"))
    );
}

#[test]
fn text_report_has_the_published_layout_and_a_table() {
    let sandbox = Sandbox::new();
    let arguments = ["stampede", "10", "1000", "--source", "simulated:", "--source-latency", "4ms..9ms"];
    insta::assert_snapshot!(sandbox.stockade(&arguments).stdout, @"
    using 1 document IDs
    starting none...
      finished in 8ms
      min/mean/max: 4 < 5 < 8 (58)
      percentiles: 5(50) 7(75) 7(90) 8(95) 8(99)
      calls: fetch_doc: 10 store_local: 10
    starting async...
      finished in 8ms
      min/mean/max: 4 < 5 < 8 (58)
      percentiles: 5(50) 7(75) 7(90) 8(95) 8(99)
      calls: fetch_doc: 10 store_local_async: 10
    starting stampede...
      finished in 5ms
      min/mean/max: 5 < 5 < 5 (50)
      percentiles: 5(50) 5(75) 5(90) 5(95) 5(99)
      calls: fetch_doc: 1 store_local: 1
    starting stampede_async...
      finished in 8ms
      min/mean/max: 4 < 5 < 8 (58)
      percentiles: 5(50) 7(75) 7(90) 8(95) 8(99)
      calls: fetch_doc: 10 store_local_async: 1
    ok
    using 3 document IDs
    starting none...
      finished in 8ms
      min/mean/max: 4 < 6 < 8 (6002)
      percentiles: 6(50) 7(75) 8(90) 8(95) 8(99)
      calls: fetch_doc: 1000 store_local: 1000
    starting async...
      finished in 8ms
      min/mean/max: 4 < 6 < 8 (6002)
      percentiles: 6(50) 7(75) 8(90) 8(95) 8(99)
      calls: fetch_doc: 1000 store_local_async: 1000
    starting stampede...
      finished in 7ms
      min/mean/max: 6 < 6 < 7 (6683)
      percentiles: 7(50) 7(75) 7(90) 7(95) 7(99)
      calls: fetch_doc: 3 store_local: 3
    starting stampede_async...
      finished in 8ms
      min/mean/max: 4 < 6 < 8 (6002)
      percentiles: 6(50) 7(75) 8(90) 8(95) 8(99)
      calls: fetch_doc: 1000 store_local_async: 3
    ok

     workers  strategy        DB operations  store messages  crashed
          10  none                       10              10  n/a
          10  async                      10              10  n/a
          10  stampede                    1               1  n/a
          10  stampede_async             10               1  n/a
        1000  none                     1000            1000  n/a
        1000  async                    1000            1000  n/a
        1000  stampede                    3               3  n/a
        1000  stampede_async           1000               3  n/a
    ");
    let failing = ["--writer", "mailbox", "--store-cost", "2ms", "--call-timeout", "300ms"];
    let output = sandbox.stockade(&[&arguments[..], &failing, &["--strategy", "none"]].concat());
    insta::assert_snapshot!(output.stdout, @"
    using 1 document IDs
    starting none...
      finished in 24ms
      min/mean/max: 6 < 15 < 24 (150)
      percentiles: 14(50) 20(75) 22(90) 24(95) 24(99)
      calls: fetch_doc: 10 store_local: 10
    ok
    using 3 document IDs
    starting none...
      finished in 308ms
      min/mean/max: 6 < 155 < 304 (23250) (850 failed)
      percentiles: 154(50) 230(75) 274(90) 290(95) 302(99)
      calls: fetch_doc: 1000 store_local: 1000
    ok

     workers  strategy  DB operations  store messages  crashed
          10  none                 10              10        0
        1000  none               1000            1000      850
    ");
    assert_eq!(
        output.stderr,
        "none, 1000 workers: 850 failed: the writer did not store the value within 300ms\n"
    );
}

#[test]
fn same_seed_gives_the_same_bytes_in_virtual_time() {
    let sandbox = Sandbox::new();
    let run = |seed: &str| {
        let arguments =
            ["stampede", "--source", "simulated:", "--source-latency", "1ms..9ms", "--format", "json"];
        sandbox.stockade(&[&arguments[..], &["--seed", seed]].concat()).stdout
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn input_errors_name_the_place_and_the_remedy() {
    let sandbox = Sandbox::new();
    let text = sandbox.file("text.sqlite", "no database at all, but longer than sixteen bytes");
    let few = sandbox.file("few.jsonl", "{\"_id\":\"a\"}\n{\"_id\":\"b\"}\n");
    let broken = sandbox.file("broken.jsonl", "{\"_id\":\"a\"}\n{\n");
    let text_url = format!("sqlite:{text}");
    for (arguments, code, words) in [
        (
            &["--strategy", "stampeed"][..],
            2,
            &["--strategy", "unknown strategy `stampeed`: did you mean `stampede`?"][..],
        ),
        (&["0"], 2, &["WORKERS", "write how many, 1 or more"]),
        (&["ten"], 2, &["WORKERS", "write how many, 1 or more"]),
        (
            &["--docs", "fixed:0"],
            2,
            &["`fixed:0` is not a choice of documents: write `scaled`, or `fixed:K` with K of 1 or more"],
        ),
        (&["--docs", "fixed:681"], 2, &["the source has 680", "at most 680"]),
        (&["--source-latency", "5"], 2, &["--source-latency", "`5` has no unit: write `5ms` or `5s`"]),
        (
            &["--writer", "mailbox", "--store-cost", "2"],
            2,
            &["--store-cost", "`2` has no unit: write `2ms` or `2s`"],
        ),
        (&["--call-timeout", "1s"], 2, &["add --writer mailbox"]),
        (
            &["--source", "redis://localhost"],
            2,
            &["--source: unknown source `redis`: use one of: sqlite, simulated"],
        ),
        (
            &["--source", "sqlite:absent.sqlite"],
            1,
            &["no database at absent.sqlite", "--docs-from FILE.jsonl"],
        ),
        (
            &["--source", &text_url],
            1,
            &["text.sqlite cannot be used: file is not a database", "--docs-from FILE.jsonl"],
        ),
        (&["--docs-from", "absent.jsonl"], 2, &["cannot read absent.jsonl"]),
        (
            &["--docs-from", &few, "--docs", "fixed:3"],
            2,
            &["fixed:3 asks for 3 documents, and the source has 2"],
        ),
        (&["--docs-from", &broken], 2, &["broken.jsonl:2: not JSON", "one JSON object a line"]),
        (&["100000000000"], 2, &["100000000000 workers need about", "at most"]),
        (&["18014398509481984"], 2, &["18014398509481984 workers need about", "at most"]),
    ] {
        sandbox.stockade(&[&["stampede"], arguments].concat()).assert_refused(code, words);
    }
}

#[test]
fn missing_document_fails_its_worker_only() {
    // The id in this view changes with every query, so a listed document is never found.
    let sandbox = Sandbox::new();
    let path = sandbox.path().join("vanishing.sqlite");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("CREATE VIEW documents AS SELECT 'doc ' || random() AS id, '{}' AS body").unwrap();
    let source = format!("sqlite:{}", path.display());
    let output = sandbox.stockade(&["stampede", "5", "--source", &source, "--strategy", "none"]);
    assert_eq!(output.code, 0, "failed workers are data, not errors");
    assert!(output.stdout.contains("  min/mean/max: - < - < - (-) (5 failed)\n"), "{}", output.stdout);
    assert!(output.stderr.contains("none, 5 workers: 5 failed: the source has no document `doc "));
    let runs = sandbox.stampede(&["5", "--source", &source, "--strategy", "none"]);
    assert_eq!(runs[0]["failed"], 5);
    assert_eq!(runs[0].get("min_ms"), None, "absent, not 0");
}
