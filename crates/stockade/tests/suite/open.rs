//! Open loads of `stockade run`, in virtual time.

use std::fs;

use crate::support::Sandbox;
use serde_json::Value;

/// Ten seconds at 100/s on one key with a TTL of one second.
const EXPERIMENT: &str = r#"
title = "A key that expires"
[target]
kind = "engine"
[origin]
source = "simulated:9"
latency = "100ms"
[cache]
ttl = "1s"
[load]
rate = "100/s"
duration = "10s"
keys = 1
warm = true
[[arm]]
name = "none"
cache.strategy = "none"
[[arm]]
name = "stampede"
cache.strategy = "stampede"
[[hypothesis]]
text = "coalescing saves loads"
expect = ["stampede.source_loads(1s..10s) < none.source_loads(1s..10s)", "stampede.amplification == 1"]
"#;

impl Sandbox {
    /// The arms in the JSON report of a run, and its text report.
    fn arms(&self, name: &str, text: &str) -> (Value, String) {
        let file = self.file(&format!("{name}.toml"), text);
        let output = self.stockade(&["run", &file, "--format", "json", "--out", name]);
        assert!([0, 98, 99].contains(&output.code), "{}", output.stderr);
        let report: Value = serde_json::from_str(&output.stdout).expect("one JSON object");
        let text_report = self.stockade(&["report", name, "--format", "text"]).stdout;
        (report["arms"].clone(), text_report)
    }
}

fn load(lines: &str) -> String {
    EXPERIMENT.replace("[[arm]]\nname = \"none\"", &format!("{lines}\n[[arm]]\nname = \"none\""))
}

fn origin(lines: &str) -> String {
    EXPERIMENT.replace("[cache]", &format!("{lines}\n[cache]"))
}

#[test]
fn every_counter_of_the_cache_is_a_metric() {
    let expect = r#"expect = [
        "stampede.cache.loads == stampede.source_loads", "cache.loads_answered == cache.loads", "cache.stores > 0",
        "cache.loads_failed == 0", "none.cache.waiters < stampede.cache.waiters",
    ]"#;
    let (start, _) = EXPERIMENT.split_once("expect").expect("a hypothesis");
    let sandbox = Sandbox::new();
    let file = sandbox.file("counters.toml", &[start, expect].concat());
    let output = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let counters = &record["runs"][0]["counters"];
    assert!(counters["loads"].as_f64().is_some_and(|loads| loads > 0.0), "{counters}");
    assert!(counters.get("loads_failed").is_none(), "a counter of 0 is left out: {counters}");
}

#[test]
fn every_report_is_a_fold_over_the_record() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("expiry.toml", EXPERIMENT);
    let output = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    insta::assert_snapshot!(output.stdout, @"
    A key that expires
    one repeat; virtual time (computed)

    10s at 100/s, 1 key, 1,000 requests
     arm       failed  coalesced  hit ratio  source loads  loads/episode  answered p99  answered max
     none           0          0     92.00%            80          10.00         100ms         100ms
     stampede       0         81     91.00%             9           1.00          90ms         100ms

    ✓ supported    coalescing saves loads
    ✓ supported    nothing was served beyond its limit
    ");
    let report = |format: &str| sandbox.stockade(&["report", "record", "--format", format]).stdout;
    let on_disk = |name: &str| fs::read_to_string(sandbox.path().join("record").join(name)).unwrap();
    assert_eq!(report("text"), output.stdout);
    // Only the report on disk has files next to it.
    let (pictures, markdown): (Vec<_>, Vec<_>) = on_disk("report.md")
        .split_inclusive("\n\n")
        .map(str::to_owned)
        .partition(|paragraph| paragraph.starts_with("!["));
    assert_eq!(report("md"), markdown.concat());
    insta::assert_snapshot!(markdown.concat().split("| arm").next().unwrap(), @"
    # A key that expires

    **supported** (one repeat; virtual time (computed))

    All 2 hypotheses are supported.

    ## Hypotheses

    - **supported**: coalescing saves loads
      - `stampede.source_loads(1s..10s) < none.source_loads(1s..10s)`: held in 1 of 1, closest in repeat 1 (9 against 80)
      - `stampede.amplification == 1`: held in 1 of 1 (1 against 1)
    - **supported**: nothing was served beyond its limit
      - `audit.too_old + audit.after_purge == 0`: held in 2 of 2 (0 against 0)

    ## Results

    ### 10s at 100/s, 1 key, 1,000 requests
    ");
    let link = |title: &str, name: &str| format!("![{title}](plots/1-{name}.svg)\n\n");
    let links = [link("Requests and source loads", "requests"), link("Response time, p99", "response")];
    assert_eq!(pictures, links, "p99, although p50 is 0 in each second");
    for name in ["requests", "response"] {
        assert!(on_disk(&format!("plots/1-{name}.svg")).starts_with("<svg "), "{name}");
    }
    assert_eq!(report("html"), on_disk("report.html"));
    assert_eq!(report("kazoo"), "", "its layout is that of bursts");
    let plots = on_disk("report.html").matches("<figure data-plot").count();
    assert_eq!(plots, 6, "requests, outcomes, times, heat map, age and percentiles; nothing failed");
    assert_eq!(on_disk("intervals.jsonl").lines().count(), 20, "a line a second and arm");
}

#[test]
fn idle_seconds_have_no_lines() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT
        .replace("\"100/s\"", "\"1/h\"")
        .replace("\"10s\"", "\"1d\"")
        .replace("ttl = \"1s\"", "ttl = \"3h\"");
    sandbox.arms("idle", &text);
    let on_disk = |name: &str| fs::read_to_string(sandbox.path().join("idle").join(name)).unwrap();
    let seconds = on_disk("intervals.jsonl").lines().count();
    assert_eq!(seconds, 2 * 24, "one for each request");
    let html = on_disk("report.html");
    assert!(html.contains(", 48 seconds at a time") && html.len() < 300_000, "{} bytes", html.len());
    assert_eq!(html, sandbox.stockade(&["report", "idle", "--format", "html"]).stdout);
}

#[test]
fn json_report_has_the_documented_keys() {
    let sandbox = Sandbox::new();
    let (arms, _) = sandbox.arms("record", EXPERIMENT);
    let arm = &arms["none"];
    assert_eq!((&arm["requests"], &arm["failed"], &arm["success"]), (&1000.into(), &0.into(), &1.0.into()));
    assert_eq!(arm["achieved_rate_per_s"], 100.0);
    for count in ["retries", "dropped"] {
        assert_eq!(arm[count], 0, "{count}");
    }
    assert_eq!((&arm["audit"]["too_old"], &arm["audit"]["after_purge"]), (&0.into(), &0.into()));
    let loads = arm["source_loads"].as_u64().unwrap();
    assert_eq!((loads, &arm["loads_per_request"], &arm["amplification"]), (80, &0.08.into(), &10.0.into()));
    assert_eq!(arm["source_concurrent_max"], 10, "100/s that take 100 ms each");
    assert_eq!(arm["in_flight_max"], 10);
    assert_eq!((&arm["response"]["min_ms"], &arm["response"]["max_ms"]), (&0.0.into(), &100.0.into()));
    let seconds = fs::read_to_string(sandbox.path().join("record/intervals.jsonl")).unwrap();
    let seconds = seconds.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_arm: Vec<Value> = seconds.filter(|second| second["arm"] == "none").collect();
    assert_eq!(of_arm.iter().map(|second| second["source_loads"].as_u64().unwrap()).sum::<u64>(), loads);
    assert_eq!(
        (&of_arm[3]["second"], &of_arm[3]["dropped"], &of_arm[3]["retries"]),
        (&3.into(), &0.into(), &0.into())
    );
}

#[test]
fn without_coalescing_an_expiry_costs_a_load_per_request_until_the_store() {
    let sandbox = Sandbox::new();
    for (rate, latency_ms) in [(100.0, 105.0), (425.0, 100.0), (50.0, 410.0)] {
        let text = EXPERIMENT
            .replace("100/s", &format!("{rate}/s"))
            .replace("\"100ms\"", &format!("\"{latency_ms}ms\""))
            .replace("\"10s\"", "\"60s\"");
        let (arms, _) = sandbox.arms(&format!("{rate}"), &text);
        let amplification = arms["none"]["amplification"].as_f64().unwrap();
        let expected = 1.0 + rate * latency_ms / 1e3;
        assert!((amplification / expected - 1.0).abs() < 0.05, "{amplification}, not {expected}");
        assert_eq!(arms["stampede"]["amplification"], 1.0);
    }
}

#[test]
fn same_seed_gives_the_same_bytes() {
    let sandbox = Sandbox::new();
    let lively = load("arrivals = \"poisson\"\npopularity = { zipf = 0.99 }\ntimeout = \"150ms\"")
        .replace("keys = 1", "keys = 9")
        .replace("\"100ms\"", "\"50ms..200ms\"\nstage = [{ at = \"3s\", errors = 0.5 }]");
    let file = sandbox.file("lively.toml", &lively);
    let run = |out: &str, seed: &str| {
        sandbox.stockade(&["run", &file, "--out", out, "--seed", seed]);
        fs::read(sandbox.path().join(out).join("intervals.jsonl")).unwrap()
    };
    let first = run("a", "7");
    assert_eq!(first, run("b", "7"));
    assert_ne!(first, run("c", "8"));
    // All arms receive requests for the same keys at the same times.
    let requests = |text: &[u8]| -> Vec<u64> {
        let lines = std::str::from_utf8(text).unwrap().lines();
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let outcomes = |line: &Value| {
            line["outcomes"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>()
        };
        let of = |arm: &str| lines.iter().filter(|line| line["arm"] == arm).map(outcomes).sum();
        vec![of("none"), of("stampede")]
    };
    let sums = requests(&first);
    assert!(sums[0] == sums[1] && sums[0] != 1_000, "{sums:?}");
}

#[test]
fn outage_shows_in_its_seconds_and_scales_with_the_load() {
    let sandbox = Sandbox::new();
    let text = origin("stage = [{ at = \"4s\", state = \"refusing\" }, { at = \"8s\", state = \"up\" }]");
    let head = text.split("[[hypothesis]]").next().unwrap();
    let text = format!(
        "{head}[[hypothesis]]\ntext = \"an outage\"\nexpect = [\"failed(0s..4s) == 0\", \"failed(6s..8s) == 200\", \
         \"failed(9s..10s) == 0\", \"failed(4s..8s) == failed\", \"age.max(4s..8s) > 900ms\", \
         \"response.p99(0s..4s) > 50ms\"]\n"
    );
    let file = sandbox.file("outage.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--out", "whole"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("failed: the origin: connection refused"), "{}", output.stdout);
    assert_eq!(sandbox.stockade(&["report", "whole", "--format", "text"]).stdout, output.stdout);

    // Twice as long: (6s..8s) are 4 s then, of 100 requests each.
    let twice = sandbox.file("twice.toml", &text.replace("== 200", "== 400"));
    let output = sandbox.stockade(&["run", &twice, "--scale", "2", "--out", "twice"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("20s at 100/s, 1 key"), "{}", output.stdout);
}

#[test]
fn retries_timeouts_and_drops_of_clients_are_counted() {
    let sandbox = Sandbox::new();
    let cold = |text: String| {
        text.replace("warm = true", "warm = false")
            .replace("\"10s\"", "\"1s\"")
            .replace("(1s..10s)", "(0s..1s)")
    };

    let refused = cold(origin("stage = [{ at = \"0s\", state = \"refusing\" }]"));
    let (arms, text_report) = sandbox.arms(
        "retried",
        &refused.replace("keys = 1", "keys = 1\nretries = { most = 2, backoff = \"100ms\" }"),
    );
    assert_eq!((&arms["none"]["failed"], &arms["none"]["retries"]), (&100.into(), &200.into()));
    assert_eq!(arms["none"]["source_loads"], 300);
    assert!(text_report.contains("none: 100 failed: the origin: connection refused"), "{text_report}");

    let slow = cold(EXPERIMENT.replace("\"100ms\"", "\"2s\""));
    let (arms, text_report) =
        sandbox.arms("hasty", &slow.replace("keys = 1", "keys = 1\ntimeout = \"300ms\""));
    assert_eq!((&arms["stampede"]["failed"], &arms["stampede"]["source_loads"]), (&100.into(), &1.into()));
    assert!(text_report.contains("stampede: 100 failed: the client gave up after 300ms"), "{text_report}");

    let (arms, text_report) =
        sandbox.arms("crowded", &slow.replace("keys = 1", "keys = 1\nmax_in_flight = 30"));
    assert_eq!((&arms["none"]["requests"], &arms["none"]["dropped"]), (&30.into(), &70.into()));
    assert!(text_report.contains("none: 70 requests not sent: too many were under way"), "{text_report}");

    let mute = cold(origin("stage = [{ at = \"0s\", state = \"silent\" }]"));
    let (arms, text_report) = sandbox.arms("mute", &mute.replace("keys = 1", "keys = 1\ndrain = \"500ms\""));
    assert_eq!((&arms["none"]["requests"], &arms["none"]["failed"]), (&100.into(), &100.into()));
    assert!(text_report.contains("none: 100 failed: still under way at the end"), "{text_report}");
}

#[test]
fn full_source_queue_refuses_loads() {
    let sandbox = Sandbox::new();
    let text = origin("capacity = { workers = 2, queue = 3 }").replace("warm = true", "warm = false");
    let (arms, text_report) = sandbox.arms("bounded", &text);
    assert_eq!(arms["none"]["source_concurrent_max"], 5);
    assert!(arms["none"]["failed"].as_u64().unwrap() > 0, "{text_report}");
    assert!(text_report.contains("failed: the origin: its queue is full"), "{text_report}");
    assert_eq!(
        (&arms["stampede"]["failed"], &arms["stampede"]["source_concurrent_max"]),
        (&0.into(), &1.into())
    );
}

#[test]
fn node_test_loads_more_with_its_unit_bug() {
    let sandbox = Sandbox::new();
    let arms = "[[arm]]\nname = \"bug\"\ncache = { strategy = \"xfetch_unit_bug\" }\n\
                [[arm]]\nname = \"fixed\"\ncache = { strategy = \"xfetch_unit_fixed\" }\n";
    let head = EXPERIMENT.split("[[arm]]").next().unwrap().replace("ttl = \"1s\"", "ttl = \"5s\"");
    let (arms, _) = sandbox.arms("node", &format!("{head}{arms}"));
    let hit_ratio = |arm: &str| arms[arm]["hit_ratio"].as_f64().unwrap();
    // A 100 ms loader: with a ttl of 5 s or less, exp(-5 / 100) and more of the reads refresh.
    assert!(hit_ratio("bug") < 0.1 && hit_ratio("fixed") > 0.9, "{arms}");
    assert_eq!(arms["bug"]["stores"]["sync"], arms["bug"]["source_loads"]);
}

/// The Node test deletes a written key, but a load in flight stores the old value afterwards.
#[test]
fn audit_finds_values_served_after_their_invalidation() {
    let sandbox = Sandbox::new();
    let text = load("writes = { every = \"70ms\", invalidate = \"hard\" }");
    let text = text.replace("cache.strategy = \"none\"", "cache.strategy = \"xfetch_unit_fixed\"");
    let file = sandbox.file("written.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--out", "written"]);
    assert_eq!(output.code, 99, "{}{}", output.stdout, output.stderr);
    let audit =
        output.stdout.lines().skip_while(|line| !line.contains("nothing was served beyond its limit"));
    let audit: Vec<_> = audit.take(2).collect();
    assert!(audit[0].starts_with("✗ refuted"), "{audit:?}");
    assert!(audit[1].contains("held in 1 of 2, first failed in none"), "{audit:?}");
}

#[test]
fn simulated_source_runs_in_real_time() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT
        .replace("\"engine\"", "\"engine\"\nclock = \"live\"")
        .replace("\"10s\"", "\"2s\"")
        .replace("(1s..10s)", "(1s..2s)");
    let (arms, text_report) = sandbox.arms("live", &text);
    assert!(!text_report.contains("virtual time"), "{text_report}");
    assert_eq!((&arms["stampede"]["requests"], &arms["stampede"]["failed"]), (&200.into(), &0.into()));
    assert!(text_report.contains("supported    nothing was served beyond its limit"), "{text_report}");
}

/// The requests of the second would take minutes; the drain ends after 1 s.
#[test]
fn unreachable_rate_does_not_lengthen_the_load() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT
        .replace("\"engine\"", "\"engine\"\nclock = \"live\"")
        .replace("\"100/s\"", "\"20_000_000/s\"")
        .replace("\"10s\"", "\"1s\"\ndrain = \"1s\"")
        .replace("(1s..10s)", "(0s..1s)");
    let (arms, text_report) = sandbox.arms("crazy", &text);
    for arm in ["none", "stampede"] {
        let count = |name: &str| arms[arm][name].as_u64().unwrap();
        assert_eq!(count("requests") + count("dropped"), 20_000_000, "{text_report}");
        assert!(arms[arm]["finished_ms"].as_f64().unwrap() < 4_000.0, "{text_report}");
    }
    assert!(text_report.contains("requests not sent"), "{text_report}");
}

/// Clients give up after 1 ms, and each leaves its load behind.
#[test]
fn abandoned_loads_are_bounded_and_not_awaited() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT
        .replace("\"engine\"", "\"engine\"\nclock = \"live\"")
        .replace("latency = \"100ms\"", "latency = \"1h\"")
        .replace("warm = true", "timeout = \"1ms\"\nmax_in_flight = 30\ndrain = \"100ms\"")
        .replace("\"10s\"", "\"1s\"")
        .replace("(1s..10s)", "(0s..1s)");
    let (arms, text_report) = sandbox.arms("abandoned", &text);
    assert_eq!(
        (&arms["none"]["source_loads"], &arms["none"]["dropped"]),
        (&30.into(), &70.into()),
        "{text_report}"
    );
    assert_eq!((&arms["stampede"]["source_loads"], &arms["stampede"]["failed"]), (&1.into(), &100.into()));
}

#[test]
fn loads_of_a_silent_source_count_as_concurrent() {
    let sandbox = Sandbox::new();
    let text =
        origin("stage = [{ at = \"0s\", state = \"silent\" }]").replace("warm = true", "drain = \"1s\"");
    let (arms, _) = sandbox.arms("silent", &text);
    assert_eq!(arms["none"]["source_concurrent_max"], 1_000);
    assert_eq!(arms["stampede"]["source_concurrent_max"], 1);
}

#[test]
fn unusable_scale_is_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("scaled.toml", EXPERIMENT);
    let scaled = |factor: &str| sandbox.stockade(&["run", &file, "--scale", factor, "--out", "scaled"]);
    scaled("10000000").assert_refused(2, &["--scale 10000000 makes the load", "1,000,000,000 requests"]);
    scaled("0.1").assert_refused(2, &["leaves less than a second of the window `(1s..10s)`"]);
}

#[test]
fn input_errors_name_the_place_and_the_remedy() {
    let sandbox = Sandbox::new();
    for (name, text, words) in [
        (
            "rate",
            EXPERIMENT.replace("\"100/s\"", "100"),
            &["`100` has no period: write `100/s` or `100/m`", "rate.toml:11:8"][..],
        ),
        (
            "both",
            load("burst = 7"),
            &["`rate` is for an open load, and this load is a burst", "both.toml:11:8", "leave out what"],
        ),
        (
            "endless",
            EXPERIMENT.replace("duration = \"10s\"\n", ""),
            &["for how long? Write a `duration`", "endless.toml:11:8"],
        ),
        (
            "stages",
            origin("stage = [{ at = \"6s\" }, { at = \"4s\" }]"),
            &["write stages in the order", "stages.toml:8:25"],
        ),
        (
            "share",
            origin("stage = [{ at = \"6s\", errors = 50 }]"),
            &["a share of fetches is from 0 to 1", "share.toml:8:"],
        ),
        (
            "window",
            EXPERIMENT.replace("(1s..10s)", "(1s..11s)"),
            &["`(1s..11s)` ends after the load, which takes 10s", "window.toml:23:"],
        ),
        (
            "metric",
            EXPERIMENT.replace(".source_loads(", ".waiters("),
            &["`waiters` has a value for a whole run only", "metric.toml:23:"],
        ),
        (
            "crowd",
            load("max_in_flight = 1_000_000_000")
                .replace("100/s", "900_000/s")
                .replace("\"10s\"", "\"1000s\""),
            &["900000000 requests under way need about", "write max_in_flight = ", "crowd.toml:15:17"],
        ),
        (
            "keys",
            EXPERIMENT.replace("keys = 1", "keys = 10"),
            &["the load is for 10 keys, and the source has 9 documents", "keys.toml:13:8"],
        ),
        (
            "node",
            EXPERIMENT.replace("\"none\"\n[[", "\"xfetch_unit_bug\"\ncache.store = \"sync\"\n[["),
            &["unknown key `store`", "node.toml:18:7"],
        ),
        (
            "clock",
            EXPERIMENT
                .replace("\"engine\"", "\"engine\"\nclock = \"virtual\"")
                .replace("simulated:9", "sqlite:"),
            &["a real source answers in real time", "clock.toml:5:9", "clock = \"live\""],
        ),
    ] {
        let file = sandbox.file(&format!("{name}.toml"), &text);
        sandbox.stockade(&["run", &file, "--out", name]).assert_refused(2, words);
    }
}
