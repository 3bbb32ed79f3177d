//! `stockade run` with the origin and the proxy as processes of their own.

use std::{fs, path::Path, process::Stdio};

use crate::{
    proxy::until,
    support::{Said, Sandbox},
};
use serde_json::Value;

const EXPERIMENT: &str = r#"
title = "New things only"
scaled = ["load.duration", "cache.limit.entries"]
[target]
kind = "proxy"
[origin]
recipe = [{ route = "/a*", random_content = "10kb", stages = [{ at = 0 }], headers = { cache-control = "public, max-age=60" } }]
[cache]
strategy = "simple"
[proxy]
threads = 1
[load]
rate = "100/s"
duration = "20s"
path = "/a"
cache_bust = true
[[arm]]
name = "limited"
cache.limit = { entries = 400, policy = "lrw", reclaim = 0.5, order = "global" }
[[arm]]
name = "roomy"
cache.limit = { bytes = "1GiB" }
[[hypothesis]]
text = "everybody is answered, and the limit holds"
expect = [
    "success == 1.0",
    "limited.proxy.entries.max <= 400",
    "limited.proxy.entries.max < roomy.proxy.entries.max",
    "proxy.rss.max(10s..20s) > 1",
    "source_loads == requests",
]
"#;

/// A tenth of it: 2 s.
fn run(sandbox: &Sandbox, text: &str, more: &[&str]) -> Said {
    let file = sandbox.file("new.toml", text);
    sandbox.stockade(&[&["run", &file, "--scale", "0.1", "--out", "record"], more].concat())
}

#[test]
fn a_run_starts_what_it_takes_and_looks_at_it() {
    let sandbox = Sandbox::new();
    let said = run(&sandbox, EXPERIMENT, &["--format", "json"]);
    // Beside other tests the generator may be late, and says so.
    assert!([0, 98].contains(&said.code), "{}{}", said.stdout, said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    let arm = &report["arms"]["limited"];
    assert_eq!((&arm["requests"], &arm["status_codes"]["200"]), (&200.into(), &200.into()), "{arm}");
    for role in ["load", "proxy", "origin"] {
        assert!(arm["rss_mib"][role]["max"].as_f64().is_some_and(|mib| mib > 1.0), "{arm}");
        assert!(arm["cpu"][role]["max"].as_f64().is_some(), "{arm}");
    }
    // What does not apply is absent.
    assert!(arm.get("audit").is_none() && arm.get("documents").is_none(), "{arm}");
    let seconds = fs::read_to_string(sandbox.path().join("record/intervals.jsonl")).expect("seconds");
    let first: Value = serde_json::from_str(seconds.lines().next().expect("one")).expect("JSON");
    assert!(first["holds"]["entries"].as_u64().is_some_and(|entries| entries > 0), "{first}");
    let told = fs::read_to_string(sandbox.path().join("record/setup/limited.1/proxy.toml")).expect("a file");
    assert!(told.contains("\"entries\" = 40,") && told.contains("\"threads\" = 1"), "{told}");
    // A record is a report, too.
    let again = sandbox.stockade(&["report", "record", "--format", "html"]);
    assert!(
        again.stdout.contains("memory of the proxy") && again.stdout.contains("entries held"),
        "{again:?}"
    );
}

#[test]
fn what_cannot_be_started_is_told_with_its_own_words() {
    let sandbox = Sandbox::new();
    for (from, to, words) in [
        ("strategy = \"simple\"", "strategy = \"simpel\"", &["did you mean `simple`?", "new.toml:"][..]),
        ("threads = 1", "thread = 1", &["the proxy did not start; it said:", "unknown key `thread`"]),
        ("random_content", "random_contents", &["the origin did not start; it said:", "random_contents"]),
        ("path = \"/a\"", "path = \"a\"", &["a path begins with `/`"]),
        ("duration = \"20s\"", "", &["for how long?"]),
        ("recipe = [", "recipes = [", &["[origin] has no `recipes`"]),
        ("[[arm]]", "[load]\n[[arm]]", &["new.toml:"]),
    ] {
        let _ = fs::remove_dir_all(sandbox.path().join("record"));
        run(&sandbox, &EXPERIMENT.replacen(from, to, 1), &[]).assert_refused(2, words);
    }
}

#[test]
fn nothing_outlives_a_run_that_is_killed() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("new.toml", EXPERIMENT);
    let mut command = sandbox.command();
    let out = sandbox.path().join("record");
    command.args(["run", &file, "--out"]).arg(&out).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().expect("the program starts");
    let setup = out.join("setup");
    until(|| families(&setup) == 2);
    running.kill().expect("it runs");
    running.wait().expect("it ends");
    until(|| families(&setup) == 0);
}

/// How many processes have been told something that is kept there.
fn families(setup: &Path) -> usize {
    let setup = setup.display().to_string();
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes
        .filter(|process| {
            let told = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&told).contains(&setup)
        })
        .count()
}
