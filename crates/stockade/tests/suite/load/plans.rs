//! The times of the requests: rates, users, bursts, schedules, warm-ups, and the end of a load.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    Origin, assert_done, json, load, measure,
    stub::{Stub, ok},
    written,
};
use crate::{running::Running, support::Sandbox};

const SLOW: &str = r#"{"body": "b", "stages": [{"at": 0, "latency": "20ms"}]}"#;

/// The number of requests, and the schedule that the report names.
fn requests_and_schedule(report: &Value) -> (u64, &str) {
    let ours = &report["stockade"];
    (ours["requests"].as_u64().expect("a count"), ours["schedule"].as_str().expect("a text"))
}

#[test]
fn load_without_a_plan_is_a_closed_loop_of_10_connections_for_10_s() {
    let stub = Stub::new(|_| ok("well"));
    let (sandbox, url) = (Sandbox::new(), stub.url("/"));
    let running = Running::start(&sandbox, &["load", &url], "");
    let said = "without --rate or --connections, a closed loop: 10 connections";
    assert_eq!(running.stderr_line(), format!("{said} for 10s\n"));
    stub.next();
    running.stopped_by(Signal::INT);
    for (options, ends) in [
        (&["-n", "20"][..], "until 20 requests"),
        (&["-d", "50ms"], "for 50ms"),
        (&["-n", "20", "--think", "1ms"], "until 20 requests, each thinking 1ms"),
    ] {
        let output = load(&sandbox, &[&[url.as_str()], options].concat());
        assert_eq!((output.code, output.stderr), (0, format!("{said} {ends}\n")), "{}", output.stdout);
        assert!(output.stdout.starts_with(&format!("asked       10 connections {ends}\n")));
    }
}

#[test]
fn load_ends_after_its_duration_or_requests() {
    let origin = Origin::new(SLOW);
    for (options, requests, schedule) in [
        (&["--rate", "100/s", "--duration", "200ms"][..], 20, "200ms at 100/s"),
        (&["--rate", "100/s", "-n", "7"], 7, "70ms at 100/s, 7 requests at most"),
        (&["--rate", "100/s", "-n", "7", "-d", "1h"], 7, "1h at 100/s, 7 requests at most"),
        (&["--rate", "100/s", "-n", "700", "-d", "50ms"], 5, "50ms at 100/s, 700 requests at most"),
        (&["-c", "3", "-n", "9"], 9, "3 connections until 9 requests"),
        (&["-c", "3", "-n", "9", "-d", "1h"], 9, "3 connections for 1h or 9 requests"),
        (&["--burst", "12"], 12, "12 at once"),
    ] {
        let report = origin.measure("/", options);
        assert_eq!(requests_and_schedule(&report), (requests, schedule), "{options:?}");
        assert_eq!(report["status_codes"], json!({"200": requests}), "{options:?}");
    }
    let report = origin.measure("/", &["-c", "2", "-d", "100ms"]);
    let (requests, schedule) = requests_and_schedule(&report);
    assert!((2..=12).contains(&requests) && schedule == "2 connections for 100ms", "{report}");
    let report =
        origin.measure("/", &["--rate", "200/s", "--arrivals", "poisson", "-d", "200ms", "--seed", "7"]);
    let (requests, schedule) = requests_and_schedule(&report);
    assert!((10..90).contains(&requests) && schedule == "200ms at 200/s (poisson)", "{report}");
    let again =
        origin.measure("/", &["--rate", "200/s", "--arrivals", "poisson", "-d", "200ms", "--seed", "7"]);
    assert_eq!(requests_and_schedule(&again).0, requests);
    let report = origin.measure("/", &["--rate", "200/s", "--arrivals", "poisson", "-n", "30"]);
    assert_eq!(requests_and_schedule(&report).0, 30, "{report}");
}

#[test]
fn users_think_between_a_response_and_the_next_request() {
    let origin = Origin::new(SLOW);
    let report = origin.measure("/", &["-c", "2", "-n", "6", "--think", "50ms"]);
    assert_eq!(requests_and_schedule(&report).1, "2 connections until 6 requests, each thinking 50ms");
    // Each user sends three requests, each after 50 ms of think time and answered in 20 ms. The last is due after 190 ms.
    let (attack, most) = (&report["duration"], report["latencies"]["max"].as_u64().unwrap());
    assert!(attack.as_u64().unwrap() >= 140_000_000 && most < 5_000_000_000, "{report}");
}

#[test]
fn burst_sends_all_requests_at_once() {
    let origin = Origin::new(&SLOW.replace("20ms", "100ms"));
    let report = origin.measure("/", &["--burst", "30", "--threads", "1"]);
    assert_eq!(report["duration"], 0, "all are due at one moment");
    assert_eq!(
        (&report["stockade"]["connections"], &report["stockade"]["in_flight_max"]),
        (&30.into(), &30.into())
    );
    assert!(
        report["stockade"].get("achieved_rate_per_s").is_none_or(|rate| rate.as_f64().unwrap() > 30.0),
        "{report}"
    );
    assert_eq!(origin.count()["concurrent_requests"]["max"], 30);

    // Two at a time are in flight: the others wait, and their response times include the wait. That is not a figure of the server.
    let url = origin.url("/");
    let plan = ["--burst", "6", "--max-in-flight", "2", "--threads", "1", "--format", "json"];
    let output = load(&origin.sandbox, &[&[url.as_str()], &plan[..]].concat());
    let reason = "the limit of 2 requests in flight was reached: 4 were due and waited; 6 suffice (rate times timeout)";
    assert!(output.code == 98 && output.stderr.contains(reason), "{output:?}");
    let report = json(&output);
    assert_eq!(report["stockade"]["requests"], 6);
    assert!(report["latencies"]["max"].as_u64().unwrap() >= 300_000_000, "{report}");
    let service = report["stockade"]["service"]["p50_ms"].as_f64().unwrap();
    assert!(service < 300.0, "{report}");
}

const SCHEDULE: &str = r#"
[[phase]]                              # 10 requests
rate = "100/s"
for = "100ms"

[[phase]]                              # 10
ramp = { from = "0/s", to = "200/s" }
for = "100ms"

[[phase]]
pause = "50ms"

[[phase]]                              # 5
burst = 5

[[phase]]                              # 6
connections = 2
requests = 6
think = "1ms"

[[phase]]                              # 10
sine = { mean = "100/s", amplitude = "50/s", period = "100ms" }
for = "100ms"
"#;

#[test]
fn schedule_runs_its_phases_in_order() {
    let origin = Origin::new(SLOW);
    origin.sandbox.file("plan.toml", SCHEDULE);
    let report = origin.measure("/", &["--schedule", "plan.toml", "--out", "all.json"]);
    let (requests, schedule) = requests_and_schedule(&report);
    assert_eq!((requests, &report["status_codes"]["200"]), (41, &41.into()), "{schedule}");
    for part in [
        "100ms at 100/s, ",
        "5 at once; 2 connections until 6 requests, each thinking 1ms; 100ms around 100/s (+-50/s",
    ] {
        assert!(schedule.contains(part), "{schedule}");
    }
    assert_eq!(written(&origin.sandbox, "all.json").len(), 41);

    let report = origin.measure("/", &["--schedule", "plan.toml", "-n", "22"]);
    assert_eq!(report["requests"], 22, "{}", report["stockade"]["schedule"]);
}

#[test]
fn schedule_errors_name_the_place_and_the_remedy() {
    let origin = Origin::new(SLOW);
    for (from, to, place, message) in [
        ("rate = ", "rat = ", "plan.toml:3:1", "did you mean `rate`?"),
        ("\"100/s\"\nfor", "100\nfor", "plan.toml:3:8", "write `100/s` or `100/m`"),
        ("pause = \"50ms\"", "pause = 50", "plan.toml:11:9", "write `50ms` or `50s`"),
        ("burst = 5", "burst = 5\nfor = \"1s\"", "plan.toml:15:7", "remove it"),
        ("requests = 6\n", "", "plan.toml:16:1", "has no end"),
    ] {
        let text = SCHEDULE.replacen(from, to, 1);
        origin.sandbox.file("plan.toml", &text);
        let output = load(&origin.sandbox, &[&origin.url("/"), "--schedule", "plan.toml"]);
        output.assert_refused(2, &[place, message]);
    }
    let output = load(&origin.sandbox, &[&origin.url("/"), "--schedule", "absent.toml"]);
    output.assert_refused(2, &["cannot read absent.toml: No such file"]);
    assert_eq!(origin.count()["total_requests"], 0);
}

#[test]
fn warmup_requests_are_counted_apart() {
    let origin = Origin::new(SLOW);
    let rate = ["--rate", "100/s", "-d", "100ms", "--warmup", "200ms", "--out", "all.csv"];
    let report = origin.measure("/", &rate);
    assert_eq!((&report["requests"], &report["stockade"]["warmup"]["requests"]), (&10.into(), &20.into()));
    assert_eq!(report["stockade"]["schedule"], "100ms at 100/s, after 200ms at 100/s to warm up");
    assert_eq!(written(&origin.sandbox, "all.csv").len(), 10);
    assert_eq!(origin.count()["total_requests"], 30);

    let report = origin.measure("/", &["-c", "2", "-n", "10", "--warmup", "50ms"]);
    let before = report["stockade"]["warmup"]["requests"].as_u64().unwrap();
    assert!(before >= 2 && report["requests"] == 10, "{report}");
    assert_eq!(origin.count()["total_requests"], 30 + 10 + before);
}

#[test]
fn stopped_load_reports_its_measurements() {
    for (format, signal) in [("json", Signal::INT), ("text", Signal::TERM)] {
        let (sandbox, stub) = (Sandbox::new(), Stub::new(|_| ok("well")));
        let url = stub.url("/");
        let endless = ["load", &url, "-c", "1", "-d", "1h", "--format", format, "--out", "all.json"];
        let running = Running::start(&sandbox, &endless, "");
        // Four requests have been answered when the fifth arrives.
        (0..5).for_each(|_| drop(stub.next()));
        let output = running.stopped_by(signal);
        assert_eq!(output.code, 98, "{output:?}");
        assert!(output.stderr.starts_with("stopping; finished measurements are kept"), "{output:?}");
        let samples = written(&sandbox, "all.json").len();
        assert!(samples >= 4, "{samples}");
        if format == "json" {
            assert_eq!(json(&output)["requests"], samples);
        } else {
            assert!(output.stdout.starts_with("asked       1 connection for 1h\n"), "{output:?}");
        }
    }
}

#[test]
fn invalid_run_prints_the_reason_and_exits_with_98() {
    // One request is in flight at a time, and it gets no response before the load ends.
    let stub = Stub::new(|_| Vec::new());
    let sandbox = Sandbox::new();
    let never = ["--rate", "100/s", "-n", "10", "--max-in-flight", "1", "--timeout", "1h", "--drain", "50ms"];
    let output = load(&sandbox, &[&[stub.url("/").as_str(), "--format", "json"], &never[..]].concat());
    assert_eq!(output.code, 98, "{output:?}");
    assert!(output.stderr.contains("INVALID: the limit of 1 requests in flight was reached: 0 were due and waited, and 9 were never sent"), "{output:?}");
    let ours = &json(&output)["stockade"];
    assert_eq!(
        (&ours["dropped"], &ours["failures"], &ours["generator"]["valid"]),
        (&9.into(), &json!({"cut_off": 1}), &false.into())
    );
    assert!(!ours["generator"]["reasons"].as_array().unwrap().is_empty(), "{ours}");
    let output = load(&sandbox, &[&[stub.url("/").as_str()], &never[..]].concat());
    assert_eq!(output.code, 98);
    assert!(output.stdout.contains("\nINVALID: ") && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn slow_response_delays_no_other_request() {
    // Every tenth request takes 150 ms.
    let recipe = r#"[{"route": "/0", "body": "b", "stages": [{"at": 0, "latency": "150ms"}]},
        {"body": "b", "stages": [{"at": 0}]}]"#;
    let origin = Origin::new(recipe);
    let report = measure(
        &origin.sandbox,
        &[&origin.url("/{key}"), "--keys", "scan:10", "--rate", "100/s", "-n", "20"],
    );
    let ours = &report["stockade"];
    let [half, most] = ["p50_ms", "max_ms"].map(|key| ours["response"][key].as_f64().unwrap());
    assert!(half < 75.0 && most >= 150.0, "{ours}");
    assert_eq!(report["duration"], 190_000_000, "they were due 10 ms apart");
    assert_done(&load(&origin.sandbox, &[&origin.url("/1"), "--rate", "50/s", "-n", "2"]));
}
