//! `[[event]]`: purges, writes, restarts and frozen processes during a load on stock nginx and on the proxy.

use serde_json::Value;
use stockade_services::free_port;

use crate::support::{Sandbox, nginx};

/// The first run of the record.
fn first_run(sandbox: &Sandbox) -> Value {
    let record = std::fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    serde_json::from_str::<Value>(&record).expect("JSON")["runs"][0].take()
}

/// The events of a run that did not fail.
fn done(run: &Value) -> Vec<&str> {
    let events = run["events"].as_array().expect("events");
    assert!(events.iter().all(|event| event.get("failed").is_none()), "{events:?}");
    events.iter().map(|event| event["event"].as_str().expect("words")).collect()
}

const ORIGIN: &str = "recipe = [{ route = \"/*\", body = \"a page\", stages = [{ at = 0, latency = \"5ms\" }],\n\
                      headers = { cache-control = \"max-age=60\" } }]\n";

#[test]
fn nginx_keeps_a_page_that_was_written_and_survives_a_restart() {
    let sandbox = Sandbox::new();
    let [port, origin] = [(); 2].map(|()| free_port().expect("a port"));
    let text = format!(
        "title = \"Events\"\n[target]\nkind = \"url\"\n[origin]\nlisten = \"127.0.0.1:{origin}\"\n{ORIGIN}\
         [load]\nrate = \"100/s\"\nduration = \"6s\"\npath = \"/page\"\n{}\
         [[event]]\nat = \"3500ms\"\nkill = \"cache\"\nfor = \"500ms\"\n\
         [[event]]\nat = \"1s\"\nwrite = \"POST /page\"\n\
         [[event]]\nat = \"2s\"\nfreeze = \"cache\"\nfor = \"600ms\"\n\
         [[event]]\nat = \"2900ms\"\nexec = 'echo $STOCKADE_PID > \"$STOCKADE_FOLDER/seen\"; kill -s 0 $STOCKADE_PID'\n\
         [[event]]\nat = \"3s\"\nreload = \"cache\"\n\
         [[event]]\nat = \"5s\"\nrestart = \"cache\"\n\
         [[event]]\nat = \"5500ms\"\nfreeze = \"origin\"\nfor = \"100ms\"\n\
         [[hypothesis]]\ntext = \"what the events do\"\nexpect = [\n\
         \"audit.after_purge > 0\", \"success(3s..5s) < 0.9\", \"success(0s..1s) == 1\",\n]\n",
        nginx(&sandbox, "nginx", [port, origin], "proxy_cache_lock on;"),
    );
    let file = sandbox.file("events.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--format", "json", "--out", "record"]);
    // 98: on a busy machine the generator may be late.
    assert!([0, 98].contains(&output.code), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    let run = first_run(&sandbox);
    let events = [
        "write POST /page",
        "freeze cache for 600ms",
        "exec echo $STOCKADE_PID > \"$STOCKADE_FOLDER/seen\"; kill -s 0 $STOCKADE_PID",
        "reload cache",
        "kill cache for 500ms",
        "restart cache",
        "freeze origin for 100ms",
    ];
    assert_eq!(done(&run), events);
    let took = |index: usize| run["events"][index]["took_ms"].as_f64().expect("a time");
    assert!(took(1) >= 600.0 && took(4) >= 500.0 && took(6) >= 100.0, "{run}");
    // The longest wait is the one that the event caused, and nothing else is said to have disturbed the run.
    assert!(run["open"]["response"]["max_ms"].as_f64().expect("a time") >= 500.0, "{run}");
    assert!(
        run["http"].get("disturbed").is_none_or(|text| !text.to_string().contains("was stopped")),
        "{run}"
    );
    for (format, part) in [
        ("text", "nginx: restart cache at 5"),
        ("md", "nginx: freeze cache for 600ms at 2"),
        ("html", "\"event\":\"kill cache for 500ms\""),
    ] {
        let shown = sandbox.stockade(&["report", "record", "--format", format]).stdout;
        assert!(shown.contains(part), "{format}: {shown}");
    }
}

#[test]
fn proxy_forgets_a_purged_page_and_starts_again_cold() {
    let sandbox = Sandbox::new();
    let text = format!(
        "title = \"Events\"\n[target]\nkind = \"proxy\"\n[origin]\n{ORIGIN}\
         [proxy]\nadmin = {{ purge_from = [\"127.0.0.1\"] }}\n\
         [load]\nrate = \"100/s\"\nduration = \"4s\"\npath = \"/page\"\n\
         [[arm]]\nname = \"proxy\"\ncache.strategy = \"stampede\"\n\
         [[event]]\nat = \"1s\"\npurge = \"PURGE /page\"\n\
         [[event]]\nat = \"2s\"\npurge = \"PURGE /*\"\n\
         [[event]]\nat = \"3s\"\nrestart = \"cache\"\n\
         [[hypothesis]]\ntext = \"each event costs one load\"\nexpect = [\n\
         \"audit.after_purge == 0\", \"source_loads == 4\", \"success(0s..3s) == 1\",\n]\n",
    );
    let file = sandbox.file("events.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--format", "json", "--out", "record"]);
    assert!([0, 98].contains(&output.code), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    assert_eq!(done(&first_run(&sandbox)), ["purge PURGE /page", "purge PURGE /*", "restart cache"]);
}

#[test]
fn engine_loads_purged_keys_once_more() {
    let sandbox = Sandbox::new();
    let text = "title = \"Purges\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:50\"\nlatency = \"20ms\"\n\
         [cache]\nttl = \"1h\"\n[load]\nrate = \"1000/s\"\nduration = \"10s\"\n\
         [[arm]]\nname = \"hard\"\ncache.strategy = \"stampede\"\n\
         [[arm]]\nname = \"soft\"\ncache.strategy = \"stampede\"\ncache.swr = \"1m\"\n\
         event = [{ at = \"5s\", purge = \"*\", invalidate = \"soft\" }]\n\
         [[event]]\nat = \"8s\"\npurge = 1\n[[event]]\nat = \"5s\"\npurge = \"*\"\n\
         [[hypothesis]]\ntext = \"each purged key is loaded once\"\nexpect = [\n\
         \"hard.source_loads == 101\", \"soft.source_loads == 100\", \"audit.after_purge == 0\",\n\
         \"hard.outcomes.coalesced > 0\", \"soft.outcomes.stale > 0\", \"success == 1\",\n]\n";
    let file = sandbox.file("purges.toml", text);
    let output = sandbox.stockade(&["run", &file, "--format", "json", "--out", "record"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(done(&first_run(&sandbox)), ["purge *", "purge key 1"]);
    for (arm, event) in [("hard", "purge *"), ("soft", "purge *, soft")] {
        let shown = sandbox.stockade(&["report", "record"]).stdout;
        assert!(shown.contains(&format!("{arm}: {event} at 5s")), "{shown}");
    }
    for (from, to, words) in [
        (
            "purge = 1",
            "purge = 51",
            "an event purges key 51, and the load is for 50 keys: write a number up to 50",
        ),
        ("purge = 1", "purge = 0", "write \"*\" for all keys, or the number of a key, from 1"),
        ("at = \"8s\"", "at = \"10s\"", "the load is over after 10s: write an earlier `at`"),
    ] {
        let file = sandbox.file("wrong.toml", &text.replace(from, to));
        sandbox.stockade(&["run", &file]).assert_refused(2, &[words]);
    }
}

#[test]
fn refused_purge_makes_the_load_invalid() {
    let sandbox = Sandbox::new();
    let text = format!(
        "title = \"Events\"\n[target]\nkind = \"proxy\"\n[origin]\n{ORIGIN}\
         [load]\nrate = \"50/s\"\nduration = \"1s\"\npath = \"/page\"\n\
         [[arm]]\nname = \"proxy\"\ncache.strategy = \"stampede\"\n\
         [[event]]\nat = \"0s\"\npurge = \"PURGE /page\"\n\
         [[hypothesis]]\ntext = \"no request fails\"\nexpect = [\"success == 1\"]\n",
    );
    let file = sandbox.file("events.toml", &text);
    let output = sandbox.stockade(&["run", &file]);
    let said = "the event `purge PURGE /page` at ";
    assert!(output.stdout.contains(said) && output.stdout.contains("let the cache accept it"), "{output:?}");
    assert_eq!(output.code, 98, "invalid");
}

#[test]
fn event_that_cannot_be_done_is_refused_with_the_remedy() {
    let sandbox = Sandbox::new();
    for (event, words) in [
        ("at = \"9s\"\npurge = \"PURGE /\"", "the load is over after 2s: write an earlier `at`"),
        ("at = \"1s\"", "an event is one of `purge`, `write`, `exec`"),
        ("at = \"1s\"\nexec = \"true\"\npurge = \"PURGE /\"", "an event is one of"),
        ("at = \"1s\"\npurge = \"/page\"", "`purge` is a method and a path: write \"PURGE /page\""),
        ("at = \"1s\"\nwrite = \"GET /page\"", "GET changes nothing (RFC 9110, 9.2.1): write \"POST /page\""),
        ("at = \"1s\"\nfreeze = \"cache\"", "`freeze` has a duration: write for = \"3s\""),
        (
            "at = \"1s\"\nexec = \"true\"\nfor = \"1s\"",
            "only `freeze` and `kill` have a duration: leave `for` out",
        ),
        ("at = \"1s\"\nrestart = \"origin\"", "an origin keeps its stages"),
        ("at = \"1s\"\nrestart = \"cache\"", "the run does not start the cache: write the `command`"),
        ("at = \"1s\"\nreload = \"cache\"", "the processes of this target are not known"),
        ("at = \"1s\"\nfreeze = \"origin\"\nfor = \"1s\"", "the run starts no origin"),
    ] {
        let text = format!(
            "title = \"t\"\n[target]\nkind = \"url\"\nurl = \"http://127.0.0.1:9\"\n\
             [load]\nrate = \"10/s\"\nduration = \"2s\"\npath = \"/\"\n[[arm]]\nname = \"a\"\n[[event]]\n{event}\n"
        );
        let file = sandbox.file("refused.toml", &text);
        sandbox.stockade(&["run", &file]).assert_refused(2, &[words]);
    }
}
