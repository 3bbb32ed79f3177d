//! `stockade run` and `stockade report` as a user runs them.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use crate::support::{ProgramOutput, Sandbox};
use serde_json::Value;

/// In virtual time: quick and deterministic.
const EXPERIMENT: &str = r#"
title = "A small stampede"
context = "Two arms, two loads."
repeat = 2
scaled = ["load.burst"]
[target]
kind = "engine"
[origin]
source = "simulated:9"
latency = "5ms"
[load]
burst = [10, 100]
docs = "fixed:3"
[[arm]]
name = "none"
cache.strategy = "none"
[[arm]]
name = "stampede"
cache.strategy = "stampede"
[[hypothesis]]
text = "stampede saves loads"
expect = ["stampede.source_loads < none.source_loads", "100/stampede.source_loads == 3"]
[[hypothesis]]
text = "and nobody waits longer for it"
expect = ["stampede.response.max <= none.response.max", "success == 1.0"]
[reference]
source = "nowhere"
"10/none.finished" = "9ms"
"#;

fn with_hypothesis(expect: &str) -> String {
    let head = EXPERIMENT.split("[[hypothesis]]").next().expect("the file has a head");
    format!("{head}[[hypothesis]]\ntext = \"claimed\"\nexpect = [\"{expect}\"]\n")
}

#[test]
fn run_prints_comparison_and_verdicts_and_writes_a_record() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    let output = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(output.stderr, "\nsupported; record, report.md and report.html in record\n");
    insta::assert_snapshot!(output.stdout, @"
    A small stampede
    2 repeats, arms interleaved, times are medians; virtual time (computed; the source answers any number at once)

    10: 10 workers, 3 documents
     arm       DB operations  store messages  failed  finished  published  p50  p99  max
     none                 10              10       0       5ms        9ms  5ms  5ms  5ms
     stampede              3               3       0       5ms             5ms  5ms  5ms

    100: 100 workers, 3 documents
     arm       DB operations  store messages  failed  finished  p50  p99  max
     none                100             100       0       5ms  5ms  5ms  5ms
     stampede              3               3       0       5ms  5ms  5ms  5ms

    published: nowhere

    ✓ supported    stampede saves loads
    ✓ supported    and nobody waits longer for it
    ");

    // Every report is a fold over the record.
    let report = |format: &str| sandbox.stockade(&["report", "record", "--format", format]).stdout;
    assert_eq!(report("text"), output.stdout);
    let on_disk = |name: &str| fs::read_to_string(sandbox.path().join("record").join(name)).unwrap();
    assert_eq!(report("md"), on_disk("report.md"));
    assert_eq!(report("html"), on_disk("report.html"));
    insta::assert_snapshot!(report("kazoo").lines().take(11).collect::<Vec<_>>().join("\n"), @"
    using 3 document IDs
    starting none...
      finished in 5ms
      min/mean/max: 5 < 5 < 5 (50)
      percentiles: 5(50) 5(75) 5(90) 5(95) 5(99)
      calls: fetch_doc: 10 store_local: 10
    starting stampede...
      finished in 5ms
      min/mean/max: 5 < 5 < 5 (50)
      percentiles: 5(50) 5(75) 5(90) 5(95) 5(99)
      calls: fetch_doc: 3 store_local: 3
    ");

    let html = on_disk("report.html");
    let plots = html.matches("<figure data-plot").count();
    assert_eq!(plots, 5, "a sweep, a plot for each of two tests, and one for each of two arms");
    // But for the address of the plotting library in its notice.
    for outside in ["http://", "https://", "src=", "<link", "@import", "url("] {
        let found = html.replace("https://github.com/leeoniya/uPlot", "").matches(outside).count();
        assert_eq!(found, 0, "`{outside}`: the page stands alone");
    }
}

#[test]
fn json_report_has_the_documented_keys() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    let output = sandbox.stockade(&["run", &file, "--out", "record", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&report["experiment"], &report["verdict"]),
        (&"A small stampede".into(), &"supported".into())
    );
    assert_eq!(report["record"], "record");
    let arms: Vec<_> = report["arms"].as_object().unwrap().keys().collect();
    assert_eq!(arms, ["10/none", "10/stampede", "100/none", "100/stampede"]);
    let arm = &report["arms"]["100/stampede"];
    assert_eq!((&arm["requests"], &arm["failed"], &arm["success"]), (&200.into(), &0.into(), &1.0.into()));
    assert_eq!((&arm["source_loads"], &arm["amplification"]), (&6.into(), &1.0.into()));
    assert_eq!((&arm["stores"]["sync"], &arm["stores"]["async"]), (&6.into(), &0.into()));
    assert_eq!(
        (&arm["outcomes"]["coalesced"], &arm["waiters"], &arm["hit_ratio"]),
        (&194.into(), &194.into(), &0.0.into())
    );
    for name in ["min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms", "mean_ms"] {
        assert!((arm["response"][name].as_f64().unwrap() - 5.0).abs() < 0.01, "{name}: {}", arm["response"]);
    }
    let hypothesis = &report["hypotheses"][0];
    assert_eq!(
        (&hypothesis["text"], &hypothesis["verdict"]),
        (&"stampede saves loads".into(), &"supported".into())
    );
    let expected = &hypothesis["expect"][1];
    assert_eq!(
        (&expected["expr"], &expected["verdict"]),
        (&"100/stampede.source_loads == 3".into(), &"supported".into())
    );
    assert_eq!((&expected["left"], &expected["right"]), (&3.0.into(), &3.0.into()));
}

#[test]
fn exit_code_follows_the_verdict() {
    let sandbox = Sandbox::new();
    for (name, expect, code) in [
        ("supported", "stampede.source_loads == 3", 0),
        ("refuted", "none.source_loads == 3", 99),
        ("inconclusive", "source_loads / stores.async == 1", 98),
    ] {
        let file = sandbox.file(&format!("{name}.toml"), &with_hypothesis(expect));
        let output = sandbox.stockade(&["run", &file, "--out", name]);
        assert_eq!(output.code, code, "{name}: {}", output.stderr);
        assert!(output.stdout.contains(&format!("{name:12} claimed")), "{}", output.stdout);
        assert_eq!(sandbox.stockade(&["report", name]).code, 0, "a report of a refuted run is not a failure");
    }
}

#[test]
fn same_seed_gives_the_same_bytes_in_virtual_time() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", &EXPERIMENT.replace("\"5ms\"", "\"1ms..9ms\""));
    let run = |out: &str, seed: &str| {
        sandbox.stockade(&["run", &file, "--out", out, "--seed", seed, "--repeat", "3"]);
        fs::read(sandbox.path().join(out).join("intervals.jsonl")).unwrap()
    };
    let first = run("a", "7");
    assert!(!first.is_empty());
    assert_eq!(first, run("b", "7"));
    assert_ne!(first, run("c", "8"));
}

#[test]
fn scale_applies_to_the_listed_settings() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    let output = sandbox.stockade(&["run", &file, "--scale", "0.5", "--format", "json", "--out", "record"]);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["arms"]["100/none"]["requests"], 100, "two repeats of half of 100");
}

#[test]
fn figures_of_any_sign_and_size_are_printed() {
    let sandbox = Sandbox::new();
    for (expr, shown) in [
        ("stampede.finished - 9ms > 0ms", "-4ms against 0"),
        ("finished <= 0 * 1e30 * 1s", "5ms against 0"),
        ("finished >= 1e21 * 1s", "5ms against 1e24ms"),
    ] {
        let file = sandbox.file("odd.toml", &with_hypothesis(expr));
        let output = sandbox.stockade(&["run", &file, "--repeat", "1"]);
        assert_eq!(output.code, 99, "{}", output.stderr);
        assert!(output.stdout.contains(shown), "{expr}: {}", output.stdout);
    }
}

#[test]
fn selected_test_alone_is_measured_and_judged() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    let output = sandbox.stockade(&["run", &file, "--test", "10", "--out", "record"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let how = output.stdout.lines().nth(1).unwrap();
    assert!(how.ends_with("; not measured: 100"), "{how}");
    assert!(!output.stdout.contains("100 workers"), "{}", output.stdout);
    let claimed = "stampede saves loads (left out: 100)";
    assert!(output.stdout.contains(claimed), "{}", output.stdout);
    let named_twice = with_hypothesis(r#"100/success == 1.0", "100/requests == 100", "success == 1.0"#);
    let named_twice = sandbox.file("twice.toml", &named_twice);
    let output = sandbox.stockade(&["run", &named_twice, "--test", "10"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("claimed (left out: 100)"), "{}", output.stdout);

    let both = sandbox.stockade(&["run", &file, "--test", "10", "--test", "100", "--out", "both"]);
    let all = sandbox.stockade(&["run", &file, "--out", "all"]);
    assert_eq!((both.code, both.stdout), (all.code, all.stdout));

    sandbox
        .stockade(&["run", &file, "--test", "1000"])
        .assert_refused(2, &["there is no test `1000`: did you mean `100`?"]);
    let unnamed =
        sandbox.file("unnamed.toml", &with_hypothesis("success == 1.0").replace("[10, 100]", "100"));
    sandbox.stockade(&["run", &unnamed, "--test", "a"]).assert_refused(2, &["leave --test out"]);
    let requiring =
        EXPERIMENT.replace("burst = [10, 100]\n", "").split("[[hypothesis]]").next().unwrap().to_owned()
            + "[[test]]\nname = \"here\"\nload.burst = 10\n"
            + "[[test]]\nname = \"there\"\nrequires = \"absent.log\"\nload.burst = 10\n";
    let requiring = sandbox.file("requiring.toml", &requiring);
    sandbox
        .stockade(&["run", &requiring, "--test", "there"])
        .assert_refused(2, &["the test `there` is left out: the file that it requires is not there"]);
}

#[test]
fn run_without_hypotheses_has_no_verdict() {
    let sandbox = Sandbox::new();
    let head = EXPERIMENT.split("[[hypothesis]]").next().unwrap();
    let file = sandbox.file("unclaimed.toml", head);
    let output = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(
        (output.code, output.stderr.lines().last()),
        (0, Some("measured, nothing claimed; record, report.md and report.html in record"))
    );
}

#[test]
fn many_repeats_take_no_more_memory() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    let peak_kib = |repeats: &str| {
        let mut child = sandbox
            .command()
            .args(["run", &file, "--repeat", repeats])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The process has printed its report and not exited: its standard output is not read yet.
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait().unwrap().is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
            peak = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(peak);
            std::thread::yield_now();
        }
        peak
    };
    let (few, many): (u64, u64) = (peak_kib("5"), peak_kib("400"));
    assert!(few > 0 && many < few + 20 * 1024, "{few} KiB with 5 repeats, {many} KiB with 400");
}

#[test]
fn interrupt_keeps_the_measurements() {
    let sandbox = Sandbox::new();
    // Live and long: each burst waits 100 ms for its source, a thousand times.
    let live = EXPERIMENT.replace("simulated:9", "sqlite:").replace("\"5ms\"", "\"100ms\"");
    let file = sandbox.file("live.toml", &live);
    let mut child = sandbox
        .command()
        .args(["run", &file, "--out", "record", "--repeat", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let intervals = sandbox.path().join("record").join("intervals.jsonl");
    wait_until(Duration::from_mins(1), || fs::metadata(&intervals).is_ok_and(|file| file.len() > 0));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert_eq!(first, "stopping; finished measurements are kept (again to stop at once)\n");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let output = ProgramOutput::of(child.wait_with_output().unwrap());
    assert_eq!(output.code, 98);
    assert!(output.stdout.contains(" of 4000 measurements made"), "{}", output.stdout);
    assert!(rest.contains("\ninterrupted; record"), "{rest}");
    let report = sandbox.stockade(&["report", "record", "--format", "json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!((&report["interrupted"], &report["verdict"]), (&true.into(), &"inconclusive".into()));
    assert!(!report["arms"].as_object().unwrap().is_empty());
}

/// Waits for another process, in real time.
fn wait_until(deadline: Duration, condition: impl Fn() -> bool) {
    let (sender, receiver) = mpsc::channel::<()>();
    let step = Duration::from_millis(5);
    for _ in 0..deadline.as_millis() / step.as_millis() {
        if condition() {
            return;
        }
        let _ = receiver.recv_timeout(step);
    }
    drop(sender);
    panic!("not within {deadline:?}");
}

#[test]
fn input_errors_name_the_place_and_the_remedy() {
    let sandbox = Sandbox::new();
    for (name, text, words) in [
        (
            "misspelt",
            EXPERIMENT.replace("latency", "latncy"),
            &["unknown key `latncy`", "misspelt.toml:10:1", "did you mean `latency`?"][..],
        ),
        ("broken", EXPERIMENT.replace("[load]", "[load"), &["broken.toml:11:"]),
        (
            "unitless",
            EXPERIMENT.replace("\"5ms\"", "5"),
            &["`5` has no unit: write `5ms` or `5s`", "unitless.toml:10:11"],
        ),
        (
            "metric",
            with_hypothesis("none.source_laods == 3"),
            &["unknown metric `source_laods`: did you mean `source_loads`?", "metric.toml:22:"],
        ),
        (
            "strategy",
            EXPERIMENT.replace("\"stampede\"\n[[hyp", "\"stampeed\"\n[[hyp"),
            &["unknown strategy `stampeed`: did you mean `stampede`?", "strategy.toml:19:18"],
        ),
        (
            "workers",
            EXPERIMENT.replace("[10, 100]", "0"),
            &["a burst has one worker at least", "workers.toml:12:9"],
        ),
        (
            "docs",
            EXPERIMENT.replace("fixed:3", "fixed:10"),
            &["fixed:10 asks for 10 documents, and the source has 9"],
        ),
        (
            "clocks",
            EXPERIMENT.replace("cache.strategy = \"none\"", "origin.source = \"sqlite:\""),
            &["virtual and real time cannot be compared"],
        ),
    ] {
        let file = sandbox.file(&format!("{name}.toml"), &text);
        sandbox.stockade(&["run", &file, "--out", name]).assert_refused(2, words);
    }
    let file = sandbox.file("good.toml", EXPERIMENT);
    sandbox.stockade(&["run", "absent.toml"]).assert_refused(2, &["cannot read absent.toml"]);
    sandbox
        .stockade(&["run", &file, "--scale", "0"])
        .assert_refused(2, &["--scale", "write a number above 0"]);
    sandbox.stockade(&["run", &file, "--repeat", "0"]).assert_refused(2, &["--repeat", "1..=1000"]);
    let unscaled = sandbox.file("unscaled.toml", &EXPERIMENT.replace("scaled = [\"load.burst\"]", ""));
    sandbox.stockade(&["run", &unscaled, "--scale", "0.5"]).assert_refused(2, &["lists nothing to scale"]);
    assert_eq!(sandbox.stockade(&["run", &file, "--out", "taken"]).code, 0);
    sandbox.stockade(&["run", &file, "--out", "taken"]).assert_refused(2, &["there is a record already"]);
    let blocked = ["cannot make the directory good.toml/x for the record", "name another with --out"];
    sandbox.stockade(&["run", &file, "--out", "good.toml/x"]).assert_refused(1, &blocked);
    sandbox
        .stockade(&["report", "nowhere"])
        .assert_refused(1, &["nowhere: no record.json in it", "name the directory of one run"]);
    sandbox.stockade(&["report", "taken", "--format", "pdf"]).assert_refused(2, &["pdf", "md, html, json"]);
    fs::write(sandbox.path().join("taken/record.json"), "{\"schema\":\"stockade.record/9\"}").unwrap();
    sandbox.stockade(&["report", "taken"]).assert_refused(1, &["stockade.record/9", "stockade.record/1"]);
}
