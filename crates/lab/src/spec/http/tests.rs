//! Targets over HTTP.

use std::{path::Path, time::Duration};

use crate::{
    http::{AccountingWindow, ProxyTarget, UrlTarget},
    services::RunService,
    spec::{
        Experiment,
        tests::{assert_refused, target},
    },
};

/// Settings are passed on as written; invalid ones are refused with their place.
#[test]
fn settings_of_a_proxy_are_passed_on_and_validated() {
    const PROXY: &str = r#"
title = "t"
scaled = ["load.duration", "cache.limit.entries"]
[target]
kind = "proxy"
[origin]
recipe = "recipes/a.json"
[cache]
strategy = "breaker"
ttl = "5s"
limit = { entries = 1_000, policy = "lrw" }
[proxy]
threads = 2
bounds = { connections = 50 }
[load]
rate = "10/s"
duration = "100s"
path = "/a"
[[arm]]
name = "a"
[[arm]]
name = "b"
cache.limit.reclaim = 0.5
"#;
    let proxy = |experiment: &Experiment, at: usize| target::<ProxyTarget>(&experiment.cells[at]).clone();
    let mut experiment = Experiment::parse("folder/test.toml", PROXY).unwrap();
    assert_eq!(experiment.folder(), Path::new("folder"));
    let (a, b) = (proxy(&experiment, 0), proxy(&experiment, 1));
    assert_eq!(
        (a.load.traffic.request.cache_bust, a.load.traffic.duration()),
        (false, Duration::from_secs(100))
    );
    assert_eq!(a.settings["bounds"]["connections"], 50);
    let limit = &b.settings["cache"]["limit"];
    assert_eq!(
        (&limit["entries"], &limit["policy"], &limit["reclaim"]),
        (&1_000.into(), &"lrw".into(), &0.5.into())
    );
    experiment.scale(0.1).unwrap();
    let scaled = proxy(&experiment, 0);
    assert_eq!(
        (scaled.load.traffic.duration(), &scaled.settings["cache"]["limit"]["entries"]),
        (Duration::from_secs(10), &100.into())
    );
    assert!((scaled.load.origin.expect("one").factor - 0.1).abs() < 1e-9);

    for (from, to, message) in [
        ("\"breaker\"", "\"braker\"", "did you mean `breaker`?"),
        ("path = \"/a\"", "", "the load has no requests"),
        ("path = \"/a\"", "path = \"/a\"\nkeys = \"zipf:5\"", "the path has no place for a key"),
        ("path = \"/a\"", "path = \"/{key}\"", "the path has a place for a key: write keys"),
        ("path = \"/a\"", "path = \"/a\"\nurls = { file = \"u\" }", "one of `path`, `urls` and `targets`"),
        ("rate = \"10/s\"", "rate = \"10/s\"\nconnections = 5", "`connections` have their own pace"),
        ("rate = \"10/s\"", "connections = [5, 5]", "the list has a value twice"),
        ("rate = \"10/s\"", "replay = { log = \"l\" }", "a log has requests of its own"),
        ("rate = \"10/s\"", "replay = { log = \"l\", share = 2 }", "`share` is more than 0 and at most 1"),
        ("kind = \"proxy\"", "kind = \"proxy\"\npid = 5", "which has no URL and no process yet"),
        (
            "[cache]",
            "[preflight]\nprobes = [{ path = \"a\", status = 200 }]\n[cache]",
            "a probe's path begins with `/`",
        ),
        ("path = \"/a\"", "path = \"a\"", "a path begins with `/`"),
        ("rate = \"10/s\"", "popularity = 5", "unknown key `popularity`"),
        ("recipe = ", "source = ", "[origin] has no `source` where a proxy is the target"),
        ("recipe = \"recipes/a.json\"", "", "there is no origin's recipe"),
        ("duration = \"100s\"", "duration = \"100d\"", "longer than 30 days"),
    ] {
        let error = Experiment::parse("test.toml", &PROXY.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn swept_connections_make_a_test_each() {
    const APP: &str = r#"
title = "t"
[services]
redis = {}
postgres = {}
[target]
kind = "app"
[origin]
source = "postgres:?table=people"
[cache]
ttl = "5s"
shared = "redis:?timeout=50ms"
[load]
connections = [1, 10]
duration = "10s"
urls = { file = "urls.txt", random = true }
[[test]]
name = "sql"
[[arm]]
name = "bug"
cache.strategy = "xfetch_unit_bug"
[[arm]]
name = "ours"
cache = { strategy = "xfetch", memory = false }
"#;
    let experiment = Experiment::parse("t.toml", APP).unwrap();
    assert_eq!(experiment.tests, ["sql/1", "sql/10"]);
    assert_eq!((experiment.cells.len(), experiment.services.len()), (4, 2));
    let other = APP.replace("postgres = {}", "postgres = {}\nmongodb = {}");
    let other = other + "[[test]]\nname = \"documents\"\norigin.source = \"mongodb:\"";
    let other = Experiment::parse("t.toml", &other).unwrap().only(&["documents".to_owned()]).unwrap();
    assert_eq!(other.services.into_keys().collect::<Vec<_>>(), [RunService::Redis, RunService::MongoDb]);
    for (from, to, message) in [
        ("?table=people", "?tabel=people", "did you mean `table`?"),
        ("\"5s\"", "\"1ms\"", "Redis' TTL is read in whole seconds"),
        ("?timeout=50ms", "?timeout=50", "has no unit"),
        ("source = ", "recipe = ", "unknown key `recipe`"),
        ("postgres = {}", "", "`postgres:` is started for the run, with nothing in it"),
        ("redis = {}", "rediss = {}", "unknown value `rediss`"),
        ("[origin]\nsource = \"postgres:?table=people\"", "", "origin"),
    ] {
        let error = Experiment::parse("t.toml", &APP.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains(message), "{message}: {error}");
    }
}

#[test]
fn running_target_is_used_at_its_url() {
    let read = |target: &str, more: &str| {
        let load = "[load]\nrate = \"1/s\"\nduration = \"1s\"\npath = \"/\"";
        Experiment::parse("t.toml", &format!("title = \"t\"\n[target]\n{target}\n{load}\n{more}"))
    };
    let there = read(
        "url = \"http://127.0.0.1:8080/\"\npid = 5",
        "[origin]\nrecipe = \"r.json\"\nlisten = \"127.0.0.1:9000\"",
    );
    let there = there.unwrap();
    let target = target::<UrlTarget>(&there.cells[0]);
    assert_eq!((target.url.as_str(), target.pid), ("http://127.0.0.1:8080", Some(5)));
    assert_eq!(target.load.origin.as_ref().unwrap().listen, Some(([127, 0, 0, 1], 9_000).into()));
    for (target, more, message) in [
        ("url = \"127.0.0.1\"", "", "has no scheme"),
        ("kind = \"url\"", "", "there is no url in [target]"),
        ("url = \"http://a\"", "[cache]\nstrategy = \"swr\"", "has a cache of its own: leave [cache] out"),
        ("url = \"http://a\"", "[origin]\nlisten = \"127.0.0.1:9000\"", "an origin serves a `recipe`"),
        ("url = \"http://a\"", "[origin]\nrecipe = \"r\"\nlisten = \"9000\"", "an address and a port"),
    ] {
        let error = read(target, more).unwrap_err();
        assert!(error.to_string().contains(message), "{message}: {error}");
    }
}

/// Claims about a test that is left out are removed, too.
#[test]
fn test_without_its_required_file_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml").display().to_string();
    let text = r#"
title = "t"
[target]
kind = "engine"
[load]
burst = 1
[[test]]
name = "a"
[[test]]
name = "b"
requires = "access.log"
[[hypothesis]]
text = "of both"
expect = ["a/failed == 0", "b/failed == 0"]
[[hypothesis]]
text = "of one"
expect = ["b/failed == 0"]
"#;
    let left = |experiment: &Experiment| {
        let claims = experiment.claims.iter().map(|claim| claim.expect.len()).collect::<Vec<_>>();
        (experiment.cells.len(), claims)
    };
    assert_eq!(left(&Experiment::parse(&file, text).unwrap()), (1, vec![1]));
    std::fs::write(folder.path().join("access.log"), "").unwrap();
    assert_eq!(left(&Experiment::parse(&file, text).unwrap()), (2, vec![2, 1]));
}

const ACCOUNTED: &str = r#"
title = "t"
[target]
url = "http://127.0.0.1:80"
pid = 7
[load]
rate = "10/s"
duration = "100s"
path = "/a"
[sample]
accounting = { for = "1m" }
"#;

#[test]
fn accounting_is_scaled_with_the_load() {
    let window = |experiment: &Experiment| target::<UrlTarget>(&experiment.cells[0]).load.accounting;
    let mut experiment = Experiment::parse("t.toml", &ACCOUNTED.replace("for", "at = \"20s\", for")).unwrap();
    let seconds = |at, length| {
        Some(AccountingWindow { at: Duration::from_secs(at), length: Duration::from_secs(length) })
    };
    assert_eq!(window(&experiment), seconds(20, 60));
    experiment.scale(0.1).unwrap();
    assert_eq!(window(&experiment), seconds(2, 6));
    let mut unscaled = Experiment::parse("t.toml", &format!("scaled = []{ACCOUNTED}")).unwrap();
    unscaled.scale(0.1).unwrap();
    assert_eq!(window(&unscaled), seconds(0, 60));
}

#[test]
fn accounting_needs_processes_and_time() {
    let replaced = |from: &str, to: &str| {
        assert!(ACCOUNTED.contains(from), "{from}");
        ACCOUNTED.replacen(from, to, 1)
    };
    assert_refused(&[
        (
            replaced("pid = 7", ""),
            "the processes of this target are not known: write its `pid` or its `command` into [target]",
            "{ for = \"1m\" }",
            "",
        ),
        (
            replaced("\"1m\"", "\"2m\""),
            "the load is over after 100s: write an earlier `at` or a shorter `for`",
            "{ for = \"2m\" }",
            "",
        ),
        (
            replaced("{ ", "{ at = \"50s\", "),
            "the load is over after 100s: write an earlier `at` or a shorter `for`",
            "{ at = \"50s\", for = \"1m\" }",
            "",
        ),
        (
            replaced("\"1m\"", "\"900ms\""),
            "processor time is counted in ticks of 10 ms: account for a second or more",
            "{ for = \"900ms\" }",
            "",
        ),
        (
            "title = \"t\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:5\"\n[load]\nburst = 5\n\
             [sample]\naccounting = { for = \"1m\" }\n"
                .to_owned(),
            "[sample] is for loads over HTTP, whose parts are processes: leave it out, or write kind = \"proxy\" into [target]",
            "sample",
            "",
        ),
    ]);
}
