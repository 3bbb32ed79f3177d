//! Stock caches that do not state what they did: absent, and not a bypass.

use std::{fs, net::Ipv4Addr};

use serde_json::Value;
use stockade_audit::{PRESETS, PresetServer};
use stockade_services::NginxServer;

use crate::support::Sandbox;

/// An origin with one page that is fresh for a minute.
fn origin() -> NginxServer {
    let origin = NginxServer::with(&["expires 60s"]).expect("nginx runs");
    fs::write(origin.documents().join("a"), "well").expect("there is room");
    origin
}

/// A stock cache in front of the origin: nginx without `add_header`, or Varnish, which adds `Age` and `X-Varnish`.
fn cache(name: &str, origin: &NginxServer) -> PresetServer {
    let origin = (Ipv4Addr::LOCALHOST, origin.port()).into();
    PRESETS.named(name).expect("a preset").start(origin).expect("it runs")
}

/// Three seconds of one page: the run in the record, the arm in the report, and the text.
fn run(sandbox: &Sandbox, port: u16) -> (Value, Value, String) {
    let file = sandbox.file(
        "silent.toml",
        &format!(
            "title = \"Silent\"\n[target]\nurl = \"http://127.0.0.1:{port}\"\n\
             [load]\nrate = \"50/s\"\nduration = \"3s\"\npath = \"/a\"\n\
             [[arm]]\nname = \"stock\"\n"
        ),
    );
    let output = sandbox.stockade(&["run", &file, "--out", "record", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let text = sandbox.stockade(&["report", "record", "--format", "md"]).stdout;
    let _ = fs::remove_dir_all(sandbox.path().join("record"));
    (record["runs"][0].clone(), report["arms"]["stock"].clone(), text)
}

#[test]
fn outcomes_that_a_cache_does_not_state_are_absent() {
    let origin = origin();
    let sandbox = Sandbox::new();
    let nginx = cache("nginx", &origin);
    let (silent, arm, text) = run(&sandbox, nginx.port());
    assert_eq!(
        (&silent["outcomes"]["unreported"], &silent["outcomes"]["bypass"]),
        (&150.into(), &0.into()),
        "{silent}"
    );
    assert_eq!(
        (&arm["requests"], arm.get("outcomes"), arm.get("hit_ratio")),
        (&150.into(), None, None),
        "{arm}"
    );
    assert!(text.contains("unreported") && text.contains("add_header X-Cache-Status"), "{text}");
    // Varnish states a hit by its `Age`, from a second on.
    let varnish = cache("varnish", &origin);
    let (silent, arm, text) = run(&sandbox, varnish.port());
    let count = |outcome: &str| silent["outcomes"][outcome].as_u64().unwrap_or(0);
    assert!(count("unreported") > 0 && count("hit") > 0, "{silent}");
    assert_eq!((count("unreported") + count("hit"), count("bypass")), (150, 0), "{silent}");
    assert_eq!((arm.get("outcomes"), arm.get("hit_ratio")), (None, None), "{arm}");
    assert!(text.contains("resp.http.X-Cache"), "{text}");
}
