//! Stock caches that do not state what they did: absent, and not a bypass.

use std::fs;

use serde_json::Value;
use stockade_services::{NginxServer, ProgramServer};

use crate::support::Sandbox;

/// An origin with one page that is fresh for a minute.
fn origin() -> NginxServer {
    let origin = NginxServer::with(&["expires 60s"]).expect("nginx runs");
    fs::write(origin.documents().join("a"), "well").expect("there is room");
    origin
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

/// nginx with a cache and without `add_header`, and its port.
fn nginx(origin: &str) -> (ProgramServer, u16) {
    let mut at = 0;
    let server = ProgramServer::start("nginx", |folder, port| {
        at = port;
        let path = folder.display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name}; "))
            .concat();
        let text = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {paths}\n\
             proxy_cache_path {path}/cache keys_zone=pages:1m;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {origin}; proxy_cache pages; }} }} }}\n"
        );
        fs::write(folder.join("nginx.conf"), text)?;
        Ok(words(&format!("/usr/sbin/nginx -p {path} -c {path}/nginx.conf -e stderr")))
    });
    (server.expect("nginx runs"), at)
}

/// Varnish as it is, which adds `Age` and `X-Varnish`, and its port.
fn varnish(origin: &str) -> (ProgramServer, u16) {
    let mut at = 0;
    let backend = origin.strip_prefix("http://").expect("a URL").trim_end_matches('/').to_owned();
    let server = ProgramServer::start("varnish", |folder, port| {
        at = port;
        let path = folder.display();
        Ok(words(&format!(
            "/usr/sbin/varnishd -F -j none -a 127.0.0.1:{port} -b {backend} -n {path}/varnish -s malloc,16m"
        )))
    });
    (server.expect("Varnish runs"), at)
}

/// Two seconds of one page: the run in the record, the arm in the report, and the text.
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
    let (_nginx, port) = nginx(&origin.url());
    let (silent, arm, text) = run(&sandbox, port);
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
    let (_varnish, port) = varnish(&origin.url());
    let (silent, arm, text) = run(&sandbox, port);
    let count = |outcome: &str| silent["outcomes"][outcome].as_u64().unwrap_or(0);
    assert!(count("unreported") > 0 && count("hit") > 0, "{silent}");
    assert_eq!((count("unreported") + count("hit"), count("bypass")), (150, 0), "{silent}");
    assert_eq!((arm.get("outcomes"), arm.get("hit_ratio")), (None, None), "{arm}");
    assert!(text.contains("resp.http.X-Cache"), "{text}");
}
