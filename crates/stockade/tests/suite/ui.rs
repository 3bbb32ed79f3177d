//! `run --ui`: the page of a run while it goes on.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    browser::Browser,
    running::{PATIENCE, Running},
    support::Sandbox,
};

/// Two arms for two seconds each, over HTTP.
const EXPERIMENT: &str = r#"
title = "Two <arms>"
[target]
kind = "proxy"
[origin]
recipe = [{ route = "/*", random_content = "1kb", headers = { cache-control = "public, max-age=1" }, stages = [{ at = 0 }, { at = "1s", latency = "20ms" }] }]
[load]
rate = "50/s"
duration = "2s"
path = "/page"
[[arm]]
name = "none"
cache.strategy = "none"
[[arm]]
name = "stampede"
cache.strategy = "stampede"
[[hypothesis]]
text = "no request fails"
expect = ["success == 1"]
"#;

/// A run whose page has an address.
fn start(sandbox: &Sandbox, address: &str) -> (Running, SocketAddr, String) {
    let file = sandbox.file("two.toml", EXPERIMENT);
    let run = Running::start(sandbox, &["run", &file, "--out", "record", "--ui", address], "");
    let line = run.stderr_line();
    let url = line.strip_prefix("page: http://").expect("the URL of the page").trim_end();
    let (address, path) = url.split_once('/').expect("a path");
    (run, address.parse().expect("an address"), format!("/{path}"))
}

/// Sends a request, and returns the head of the response and what follows.
fn request(address: SocketAddr, host: &str, method: &str, path: &str) -> (String, BufReader<TcpStream>) {
    let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
    tcp.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    write!(tcp, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("a request is sent");
    let (mut head, mut response) = (String::new(), BufReader::new(tcp));
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(response.read_line(&mut head).expect("a head"), 0, "{head}");
    }
    (head, response)
}

fn body(address: SocketAddr, path: &str) -> String {
    let (_, mut response) = request(address, "localhost", "GET", path);
    let mut body = String::new();
    response.read_to_string(&mut body).expect("a body");
    body
}

/// The type, number and data of each event up to the first of this type.
fn events_until(response: BufReader<TcpStream>, last: &str) -> Vec<(String, u64, Value)> {
    let mut events = Vec::new();
    let mut number = 0;
    let mut kind = String::new();
    for line in response.lines() {
        let line = line.expect("a line");
        match line.split_once(": ") {
            Some(("id", id)) => number = id.parse().expect("a number"),
            Some(("event", event)) => event.clone_into(&mut kind),
            Some(("data", data)) => {
                events.push((kind.clone(), number, serde_json::from_str(data).expect("JSON")));
                if kind == last {
                    return events;
                }
            }
            _ => {}
        }
    }
    panic!("no {last}: {events:?}");
}

#[test]
fn page_follows_a_run_to_its_saved_report() {
    let sandbox = Sandbox::new();
    let (run, address, _) = start(&sandbox, "0");
    let (head, stream) = request(address, &address.to_string(), "GET", "/events?after=0");
    assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
    // A reader that reads nothing.
    let (_, _slow) = request(address, "localhost", "GET", "/events?after=0");
    let events = events_until(stream, "end");
    let numbers: Vec<u64> = events.iter().map(|(_, number, _)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let seconds: Vec<&Value> =
        events.iter().filter(|(kind, ..)| kind == "second").map(|(.., data)| data).collect();
    // The plots have one point for each second of the load; what finishes after it is in the report.
    let points: Vec<_> = seconds.iter().filter_map(|second| second["point"]["at"].as_u64()).collect();
    assert_eq!(points, [0, 1, 0, 1], "{seconds:?}");
    let text = seconds[0]["text"].as_str().expect("text");
    assert!(text.starts_with("measurement 1 of 2: ") && text.ends_with(", repeat 1, 1s of 2s"), "{text}");
    assert_eq!(seconds[0]["point"]["ys"][0][0], 50.0, "requests");

    let page = body(address, "/");
    let run = run.ended();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let saved = fs::read_to_string(sandbox.path().join("record/report.html")).expect("a report");
    assert_eq!(page, saved);
}

#[test]
fn page_is_for_this_machine_or_for_those_with_the_token() {
    let sandbox = Sandbox::new();
    let (run, address, _) = start(&sandbox, "127.0.0.1:0");
    let status = |host: &str, method: &str, path: &str| {
        let (head, _) = request(address, host, method, path);
        assert!(head.contains("content-security-policy: default-src 'none'; "), "{head}");
        head.split(' ').nth(1).expect("a status").parse::<u16>().expect("a status")
    };
    assert_eq!(status("localhost:1", "GET", "/"), 200);
    assert_eq!(status("[::1]:1", "HEAD", "/"), 200);
    assert_eq!(status("attacker.example", "GET", "/"), 403);
    assert_eq!(status("127.0.0.1.attacker.example:80", "GET", "/events"), 403);
    assert_eq!(status("127.0.0.1", "POST", "/"), 405);
    assert_eq!(status("127.0.0.1", "GET", "/record.json"), 404);
    assert_eq!(run.stopped_by(Signal::INT).code, 98);

    let sandbox = Sandbox::new();
    let (run, address, path) = start(&sandbox, "0.0.0.0:0");
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let status = |path: &str| request(address, "any.example", "GET", path).0[9..12].to_owned();
    assert!(path.starts_with("/?token=") && path.len() == 40, "{path}");
    assert_eq!(status(&path), "200");
    assert_eq!(status(&path.replace("/?", "/events?after=0&")), "200");
    assert_eq!(
        (status("/"), status("/?token="), status(&path[..39])),
        ("403".into(), "403".into(), "403".into())
    );
    assert_eq!(run.stopped_by(Signal::INT).code, 98);
}

#[test]
fn address_that_is_taken_is_an_error_before_the_run() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let sandbox = Sandbox::new();
    let file = sandbox.file("two.toml", EXPERIMENT);
    sandbox
        .stockade(&["run", &file, "--ui", &address])
        .assert_refused(1, &["cannot serve the page at", &address, "port 0"]);
}

#[test]
fn run_that_fails_ends_with_its_page() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("record")).expect("a folder");
    sandbox.file("record/record.json", "{}");
    let (run, ..) = start(&sandbox, "0");
    let run = run.ended();
    assert_eq!(run.code, 2, "{}", run.stderr);
}

#[test]
fn live_page_shows_the_saved_figures_at_the_end_in_chromium() {
    let sandbox = Sandbox::new();
    let browser = Browser::start();
    browser.go_online();
    let (run, address, path) = start(&sandbox, "0");
    browser.open_url(&format!("http://{address}{path}"));
    // Seconds of the current measurement in its first plot, while the run goes on.
    let seen = browser.run(
        "return (async () => {
            let most = 0;
            while (document.getElementById('now')) {
                const figure = document.querySelector('#now figure[data-plot]');
                if (figure?.chart) most = Math.max(most, ...figure.plot.lines.map((line) => line.ys.length));
                await new Promise((next) => setTimeout(next, 20));
            }
            return most;
        })()",
    );
    assert_eq!(seen, 2, "points of a live plot");
    let figures =
        "return [document.title, ...[...document.querySelectorAll('main h1, main h2, main .found, main td')]
        .filter((element) => !element.closest('.u-legend')).map((element) => element.innerText)]";
    let live = browser.run(figures);
    let run = run.ended();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    browser.open(&sandbox.path().join("record/report.html"));
    let saved = browser.run(figures);
    assert!(saved.as_array().expect("texts").len() > 10 && live == saved, "{live}\n{saved}");
    assert_eq!(browser.console(), [""; 0]);
}
