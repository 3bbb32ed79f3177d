//! Reports on standard output and in files.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FORMATS, Origin, assert_done, json, load, measure, written};

/// Slow enough that no thread of the load is busy.
const SLOW: &str = r#"{"body": "all is well", "stages": [{"at": 0, "latency": "40ms"}]}"#;

#[track_caller]
fn has_keys(object: &Value, keys: &str) {
    for key in keys.split(' ') {
        assert!(object.get(key).is_some(), "no `{key}` in {object}");
    }
}

#[test]
fn valid_run_exits_with_0_and_prints_only_its_report() {
    let origin = Origin::new(SLOW);
    for format in FORMATS {
        let output = load(&origin.sandbox, &[&origin.url("/"), "-c", "1", "-n", "2", "--format", format]);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{format}: {}", output.stdout);
        assert!(output.stdout.ends_with('\n'), "{format}: {}", output.stdout);
    }
    assert_eq!(origin.count()["total_requests"], 2 * FORMATS.len());
}

#[test]
fn json_has_the_keys_of_vegeta_and_of_stockade() {
    let origin = Origin::new(SLOW);
    let report =
        origin.measure("/news", &["-c", "2", "-n", "10", "--threads", "1", "--buckets", "[30ms,10s]"]);
    has_keys(
        &report,
        "latencies buckets bytes_in bytes_out earliest latest end duration wait requests rate throughput success \
         status_codes errors stockade",
    );
    has_keys(&report["latencies"], "total mean 50th 90th 95th 99th max min");
    assert_eq!(
        (&report["requests"], &report["success"], &report["errors"]),
        (&10.into(), &1.into(), &Value::Array(vec![]))
    );
    assert_eq!(report["status_codes"], serde_json::json!({"200": 10}));
    assert_eq!(report["bytes_in"], serde_json::json!({"total": 110, "mean": 11}));
    assert_eq!(report["buckets"], serde_json::json!({"0": 0, "30000000": 10, "10000000000": 0}));
    let [least, most] = ["min", "max"].map(|key| report["latencies"][key].as_u64().expect("nanoseconds"));
    assert!((40_000_000..=most).contains(&least), "{report}");

    let ours = &report["stockade"];
    has_keys(
        ours,
        "schema id schedule requests failed achieved_rate_per_s achieved_rate_per_s_each concurrency success response \
         service send_lag status_codes failures retries resent bytes_in wire_bytes_in cpu dropped in_flight_at_end \
         in_flight_max connections generator",
    );
    assert_eq!(
        (&ours["schema"], &ours["schedule"]),
        (&"stockade.load/1".into(), &"2 connections until 10 requests".into())
    );
    for key in ["failed", "dropped", "retries"] {
        assert_eq!(ours[key], 0, "{key}");
    }
    assert_eq!((&ours["connections"], &ours["in_flight_max"]), (&2.into(), &2.into()));
    for times in ["response", "service", "send_lag"] {
        has_keys(&ours[times], "min_ms p50_ms p90_ms p95_ms p99_ms p999_ms max_ms mean_ms");
    }
    let [response, service, lag] =
        ["response", "service", "send_lag"].map(|times| ours[times]["mean_ms"].as_f64().unwrap());
    assert!(service >= 40.0 && (response - service - lag).abs() < 0.01 * response, "{ours}");
    // Five rounds of two requests, each of 40 ms or more.
    let rate = ours["achieved_rate_per_s"].as_f64().unwrap();
    assert!((1.0..=50.0).contains(&rate), "{ours}");
    let concurrency = ours["concurrency"].as_f64().unwrap();
    assert!((1.0..=2.01).contains(&concurrency), "{ours}");
    has_keys(&ours["generator"], "cpu valid reasons");
    let cpu = ours["cpu"]["load"]["mean"].as_f64().unwrap();
    assert!((0.0..1.0).contains(&cpu), "{ours}");
}

#[test]
fn inapplicable_keys_are_absent_and_failures_are_counted() {
    let recipe = r#"[{"body": "b", "stages": [{"at": 0, "status": 503}]},
        {"route": "/cut", "body": "a body", "stages": [{"at": 0, "fault": "cut"}]}]"#;
    let origin = Origin::new(recipe);
    let report = origin.measure("/", &["-c", "1", "-n", "3"]);
    assert_eq!((&report["success"], &report["stockade"]["failed"]), (&0.into(), &3.into()));
    assert_eq!(report["errors"], serde_json::json!(["503 Service Unavailable"]));
    for absent in ["hit_ratio", "outcomes", "warmup"] {
        assert!(report["stockade"].get(absent).is_none(), "{absent}: {report}");
    }
    let report = origin.measure("/cut", &["-c", "1", "-n", "3"]);
    assert_eq!(report["stockade"]["failures"], serde_json::json!({"truncated": 3}));
    assert_eq!((&report["status_codes"]["0"], &report["stockade"]["failed"]), (&3.into(), &3.into()));
    for absent in ["response", "service"] {
        assert!(report["stockade"].get(absent).is_none(), "{absent}: {report}");
    }
}

#[test]
fn formats_of_other_tools_have_their_layout() {
    let origin = Origin::new(SLOW);
    let url = origin.url("/");
    let report = |format: &str, more: &[&str]| {
        let output =
            load(&origin.sandbox, &[&[&url, "-c", "2", "-n", "4", "--format", format], more].concat());
        assert_done(&output);
        output.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };

    let vegeta = report("vegeta", &[]);
    assert!(vegeta[0].starts_with("Requests      [total, rate, throughput]         4, "), "{vegeta:?}");
    let latencies = vegeta[2].strip_prefix("Latencies     [min, mean, 50, 90, 95, 99, max]  ").unwrap();
    assert_eq!(latencies.split(", ").count(), 7, "{vegeta:?}");
    assert_eq!(
        vegeta[3..],
        [
            "Bytes In      [total, mean]                     44, 11.00",
            "Bytes Out     [total, mean]                     0, 0.00",
            "Success       [ratio]                           100.00%",
            "Status Codes  [code:count]                      200:4  ",
            "Error Set:",
        ]
    );
    assert_eq!(
        report("vegeta-hist", &["--buckets", "[0,30ms,1h]"]),
        [
            "Bucket             #  %        Histogram",
            "[0s,      30ms]    0  0.00%    ",
            &format!("[30ms,    1h0m0s]  4  100.00%  {}", "#".repeat(75)),
            "[1h0m0s,  +Inf]    0  0.00%    ",
        ]
    );

    let hdrplot = report("hdrplot", &[]);
    assert_eq!(
        (hdrplot[0].as_str(), hdrplot.len()),
        ("Value(ms)  Percentile  TotalCount  1/(1-Percentile)", 95)
    );
    assert!(hdrplot[94].ends_with("  1.000000    4           10000000.000000"), "{hdrplot:?}");

    let hgrm = report("hgrm", &[]);
    assert_eq!(hgrm[..2], ["       Value     Percentile TotalCount 1/(1-Percentile)", ""]);
    let footer: Vec<_> = hgrm[hgrm.len() - 3..].iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(footer, ["#[Mean", "#[Max", "#[Buckets"]);
    assert!(hgrm.iter().any(|line| line.contains("Total count    =            4]")), "{hgrm:?}");

    let hlog = report("hlog", &[]);
    assert_eq!(hlog[0], "#[Histogram log format version 1.3]");
    assert!(hlog[1].starts_with("#[StartTime: ") && hlog[2].starts_with("\"StartTimestamp\","), "{hlog:?}");
    let interval: Vec<_> = hlog[3].split(',').collect();
    assert!(interval[..2] == ["0.000", "1.000"] && interval[3].starts_with("HISTFAAAA"), "{hlog:?}");
    assert!(interval[2].parse::<f64>().unwrap() >= 40.0, "{hlog:?}");

    let siege = report("siege", &[]);
    assert_eq!(
        siege[..3],
        [
            "Lifting the server siege...",
            "Transactions:\t\t           4 hits",
            "Availability:\t\t      100.00 %"
        ]
    );
    assert_eq!(siege.len(), 14);
    let siege_json: Value = serde_json::from_str(&report("siege-json", &[]).join("\n")).unwrap();
    assert_eq!((&siege_json["transactions"], &siege_json["failed_transactions"]), (&4.into(), &0.into()));

    let text = report("text", &[]);
    assert_eq!(text[0], "asked       2 connections until 4 requests");
    assert!(text.iter().any(|line| line == "answers     200: 4"), "{text:?}");
}

#[test]
fn out_file_has_a_line_per_sample() {
    let origin = Origin::new(SLOW);
    let (sandbox, url) = (&origin.sandbox, origin.url("/a?b=c"));
    sandbox.file("all.csv", "what was there before");
    let report = measure(sandbox, &[&url, "-c", "4", "-n", "12", "--out", "all.json"]);
    let lines: Vec<Value> =
        written(sandbox, "all.json").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: BTreeSet<_> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!((lines.len(), numbers), (12, (0..12).collect()));
    for line in &lines {
        has_keys(line, "attack seq code timestamp latency bytes_out bytes_in error body method url headers");
        assert_eq!((&line["attack"], &line["code"]), (&report["stockade"]["id"], &200.into()));
        assert_eq!((&line["bytes_in"], &line["url"]), (&11.into(), &url.as_str().into()), "{line}");
    }
    let latencies: u64 = lines.iter().map(|line| line["latency"].as_u64().unwrap()).sum();
    assert_eq!(latencies, report["latencies"]["total"]);

    let output =
        load(sandbox, &[&origin.url("/"), "-c", "4", "-n", "12", "--format", "csv", "--out", "all.csv"]);
    assert_done(&output);
    let lines = written(sandbox, "all.csv");
    assert_eq!(
        lines.iter().map(String::as_str).collect::<Vec<_>>(),
        output.stdout.lines().collect::<Vec<_>>()
    );
    for line in &lines {
        let columns: Vec<_> = line.split(',').collect();
        assert_eq!((lines.len(), columns.len(), columns[1], columns[4]), (12, 12, "200", "11"), "{line}");
    }
}

#[test]
fn run_without_responses_is_reported_in_every_format() {
    let origin = Origin::new(SLOW);
    for format in FORMATS {
        // Nothing listens on port 1.
        let output =
            load(&origin.sandbox, &["http://127.0.0.1:1/", "-c", "1", "-n", "2", "--format", format]);
        assert!([1, 98].contains(&output.code) && !output.stdout.is_empty(), "{format}: {output:?}");
        if format == "json" {
            assert_eq!(json(&output)["stockade"]["failures"], serde_json::json!({"refused": 2}));
        }
    }
}
