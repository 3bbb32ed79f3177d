//! `[load]` of an experiment sends what the flags of `stockade load` send: methods, headers, bodies, hosts, HTTP/2.

use std::fs;

use serde_json::Value;
use stockade_services::{ProgramServer, free_port};

use crate::{
    load::stub::{Stub, ok},
    support::Sandbox,
};

/// Runs an experiment on the target at `url` with these keys of `[load]`, and returns the figures of its arm.
#[track_caller]
fn run(sandbox: &Sandbox, url: &str, load: &str) -> Value {
    let text =
        format!("title = \"Settings\"\n[target]\nurl = \"{url}\"\n[load]\n{load}\n[[arm]]\nname = \"arm\"\n");
    let file = sandbox.file("settings.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--format", "json", "--out", "record"]);
    let _ = fs::remove_dir_all(sandbox.path().join("record"));
    assert!([0, 98].contains(&output.code), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    report["arms"]["arm"].clone()
}

#[test]
fn method_headers_and_body_reach_the_server() {
    let stub = Stub::new(|_| ok("well"));
    let sandbox = Sandbox::new();
    sandbox.file("body.json", "{\"title\": \"news\"}");
    let load = "connections = 1\nduration = \"1s\"\npath = \"/news\"\nbody = \"body.json\"\n\
                headers = [\"Host: a.example\", \"Content-Type: application/json\", \"Cookie: id=1\"]";
    let arm = run(&sandbox, &stub.url(""), load);
    assert!(arm["requests"].as_u64() > Some(0) && arm["failed"] == 0, "{arm}");
    let requests = stub.all();
    let sent = requests.last().expect("requests");
    assert!(sent.head.starts_with("POST /news HTTP/1.1\r\n"), "{}", sent.head);
    for header in ["host: a.example\r\n", "content-type: application/json\r\n", "cookie: id=1\r\n"] {
        assert!(sent.head.to_lowercase().contains(header), "{header}{}", sent.head);
    }
    assert_eq!(sent.body, "{\"title\": \"news\"}");
}

#[test]
fn unknown_and_wrong_keys_name_the_place_and_the_remedy() {
    let sandbox = Sandbox::new();
    for (load, words) in [
        ("conections = 1", &["unknown key `conections`", "connections"][..]),
        ("header = [\"A: b\"]", &["unknown key `header`", "headers"]),
        ("connections = 1\nduration = \"1s\"\npath = \"/\"\nmethod = \"get\"", &["write GET"]),
        (
            "connections = 1\nduration = \"1s\"\npath = \"/\"\nhttp2 = true\nno_keepalive = true",
            &["exclude each other"],
        ),
        (
            "connections = 1\nduration = \"1s\"\nurls = { file = \"urls.txt\" }\nmethod = \"POST\"",
            &["`method` and `body` are for a `path`"],
        ),
        (
            "connections = 1\nduration = \"1s\"\nurls = { file = \"urls.txt\" }\ntargets = { file = \"t.txt\" }",
            &["one of `path`, `urls` and `targets`"],
        ),
    ] {
        let text = format!(
            "title = \"t\"\n[target]\nurl = \"http://127.0.0.1:1\"\n[load]\n{load}\n[[arm]]\nname = \"a\"\n"
        );
        let file = sandbox.file("wrong.toml", &text);
        sandbox.stockade(&["run", &file]).assert_refused(2, words);
    }
}

/// Stock nginx with a page for each of two names and none for other names, and its ports for HTTP/1.1 and for HTTP/2 without TLS.
fn nginx() -> (ProgramServer, u16, u16) {
    let (mut at, http2) = (0, free_port().expect("a port"));
    let server = ProgramServer::start("nginx", |folder, port| {
        at = port;
        let path = folder.display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name}; "))
            .concat();
        let listen = format!("listen 127.0.0.1:{port}; listen 127.0.0.1:{http2} http2;");
        let named = [("a.example", 200), ("b.example", 203)].map(|(name, status)| {
            format!("server {{ {listen} server_name {name}; add_header Cache-Control max-age=60; return {status} \"{name}\\n\"; }}\n")
        });
        let text = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {paths}\n\
             server {{ listen 127.0.0.1:{port} default_server; listen 127.0.0.1:{http2} http2 default_server; return 421; }}\n{}}}\n",
            named.concat()
        );
        fs::write(folder.join("nginx.conf"), text)?;
        Ok(words(&format!("/usr/sbin/nginx -p {path} -c {path}/nginx.conf -e stderr")))
    });
    (server.expect("nginx runs"), at, http2)
}

/// Varnish as it is in front of this server, and its port.
fn varnish(nginx: u16) -> (ProgramServer, u16) {
    let mut at = 0;
    let server = ProgramServer::start("varnish", |folder, port| {
        at = port;
        let path = folder.display();
        Ok(words(&format!(
            "/usr/sbin/varnishd -F -j none -a 127.0.0.1:{port} -b 127.0.0.1:{nginx} -n {path}/varnish -s malloc,16m"
        )))
    });
    (server.expect("Varnish runs"), at)
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

#[test]
fn hosts_reach_name_based_servers_of_nginx_and_varnish() {
    let (_nginx, nginx, http2_port) = nginx();
    let (_varnish, varnish) = varnish(nginx);
    let sandbox = Sandbox::new();
    sandbox.file("urls.txt", "http://a.example/\nhttp://b.example/\n");
    sandbox.file("targets.txt", "GET http://a.example/\n\nGET http://b.example/\n");
    let log = |host: &str, second: u32| {
        format!(
            "127.0.0.1 - - [28/Nov/2026:10:00:{second:02} +0000] \"GET http://{host}/ HTTP/1.1\" 200 10 \"-\" \"-\"\n"
        )
    };
    let lines: String = (0..20).map(|n| log(["a.example", "b.example"][n as usize % 2], n / 10)).collect();
    sandbox.file("access.log", &lines);
    for port in [nginx, varnish] {
        let url = format!("http://127.0.0.1:{port}");
        let pace = "connections = 1\nduration = \"1s\"\n";
        let unknown = run(&sandbox, &url, &format!("{pace}path = \"/\""));
        assert_eq!(unknown["failed"], unknown["requests"], "without a name there is no page: {unknown}");
        let named = run(&sandbox, &url, &format!("{pace}path = \"/\"\nheaders = [\"Host: b.example\"]"));
        assert_eq!(named["status_codes"]["203"], named["requests"], "{named}");
        for load in [
            format!("{pace}urls = {{ file = \"urls.txt\", hosts = true }}"),
            format!("{pace}targets = {{ file = \"targets.txt\", hosts = true }}"),
            "duration = \"1s\"\nreplay = { log = \"access.log\", hosts = true }".to_owned(),
        ] {
            let both = run(&sandbox, &url, &load);
            let count = |status: &str| both["status_codes"][status].as_u64().unwrap_or_default();
            assert_eq!(both["failed"], 0, "{load}: {both}");
            assert!(count("200") > 0 && count("203") > 0, "{load}: {both}");
        }
    }
    let http2 =
        "connections = 1\nduration = \"1s\"\npath = \"/\"\nhttp2 = true\nheaders = [\"Host: a.example\"]";
    let arm = run(&sandbox, &format!("http://127.0.0.1:{http2_port}"), http2);
    assert!(arm["failed"] == 0 && arm["status_codes"]["200"].as_u64() > Some(0), "{arm}");
}
