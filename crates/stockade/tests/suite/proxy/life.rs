//! The proxy's start, reloads and shutdown.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::Signal;

use super::{Response, Setup, config_without_log, stats, until};
use crate::{
    running::{PATIENCE, Running, get},
    support::Sandbox,
};

#[test]
fn origin_is_the_only_required_setting() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], super::RECIPE);
    let url = format!("http://{}", origin.listens("http"));
    let proxy = Running::start(&sandbox, &["proxy", "--origin", &url, "--listen", "0"], "");
    let address = proxy.listens("http");
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");

    let (first, second) = (Response::of(&get(address, "/news")), Response::of(&get(address, "/news")));
    first.assert(200, "all is well", "miss");
    assert_eq!(first.cache(), "stockade; fwd=uri-miss; stored; detail=miss");
    second.assert(200, "all is well", "hit");
    assert!(second.cache().starts_with("stockade; hit; ttl=3"), "{second:?}");
    assert!(second.header("via").is_some_and(|via| via.contains("stockade")), "{second:?}");

    // The access log goes to standard output, after the line with the URL.
    for outcome in ["miss", "hit"] {
        let line: serde_json::Value = serde_json::from_str(&proxy.stdout_line()).expect("JSON");
        assert_eq!(
            (&line["cache"], &line["url"], &line["status"]),
            (&outcome.into(), &"/news".into(), &200.into())
        );
    }
    let output = proxy.stopped_by(Signal::INT);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{}", output.stderr);
    assert!(output.stderr.ends_with(" aborted\n"), "{}", output.stderr);
}

#[test]
fn private_responses_are_not_shared() {
    let setup = Setup::start(&[]);
    for _ in 0..2 {
        setup.get("/own").assert(200, "for you", "miss");
    }
    assert_eq!(setup.stats()["origins"][0]["requests"], 2);
}

#[test]
fn reload_of_an_invalid_file_changes_nothing_and_of_a_valid_one_keeps_entries() {
    let setup = Setup::start(&[]);
    setup.get("/news").assert(200, "all is well", "miss");
    let url = setup.origin_url();

    config_without_log(&setup.sandbox, &url, "lisen = 5");
    setup.proxy.signal(Signal::HUP);
    let line = setup.proxy.stderr_line();
    assert!(line.starts_with("reload failed, the configuration stays in force: "), "{line}");
    for word in ["stockade.toml:2:1", "unknown key `lisen`", "did you mean `listen`?"] {
        assert!(line.contains(word), "`{word}` is not in {line}");
    }
    setup.get("/news").assert(200, "all is well", "hit");

    config_without_log(&setup.sandbox, &url, "hosts = [\"origin\"]\nthreads = 7");
    setup.proxy.signal(Signal::HUP);
    let lines = [setup.proxy.stderr_line(), setup.proxy.stderr_line()];
    assert_eq!(lines, ["threads: needs a restart\n", "hosts: is in force\n"]);
    setup.get("/news").assert(200, "all is well", "hit");
    let other =
        super::send_request(setup.address, "GET /news HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n");
    assert_eq!((other.status, other.body.as_str()), (421, "this host is not served here\n"));

    // The restart is still needed.
    setup.proxy.signal(Signal::HUP);
    assert_eq!(setup.proxy.stderr_line(), "threads: needs a restart\n");
    config_without_log(&setup.sandbox, &url, "hosts = [\"origin\"]");
    setup.proxy.signal(Signal::HUP);
    assert_eq!(setup.proxy.stderr_line(), "reloaded: no setting has changed\n");

    // A new URL of the origin keeps the entries, even if it refuses connections.
    config_without_log(&setup.sandbox, "http://127.0.0.1:1", "hosts = [\"origin\"]");
    setup.proxy.signal(Signal::HUP);
    assert_eq!(setup.proxy.stderr_line(), "origin.app: is in force\n");
    setup.get("/news").assert(200, "all is well", "hit");
    let another = setup.get("/news?another");
    assert_eq!((another.status, another.outcome()), (502, "error"), "{another:?}");
}

#[test]
fn sigterm_completes_requests_in_flight() {
    let Setup { proxy, address, admin, origin: _origin, sandbox: _sandbox } = Setup::start(&[]);
    let mut slow = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n").unwrap();
    until(|| stats(admin)["requests_in_flight"] == 1);
    assert_eq!(super::admin_request(admin, "GET", "/readyz", "").status, 200);

    proxy.signal(Signal::TERM);
    assert_eq!(proxy.stderr_line(), "stopping: no new connections are accepted\n");
    // Each thread closes its listener by itself.
    until(|| TcpStream::connect_timeout(&address, PATIENCE).is_err());
    let ready = super::admin_request(admin, "GET", "/readyz", "");
    assert_eq!((ready.status, ready.body.as_str()), (503, "draining\n"));

    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    Response::of(&answer).assert(200, "at last", "miss");
    let output = proxy.ended();
    let last = "1 requests in progress were completed, 0 aborted\n";
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", last));
}

#[test]
fn proxy_that_is_not_ready_accepts_connections_until_its_delay_ends() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], super::RECIPE);
    let url = format!("http://{}", origin.listens("http"));
    for (delay, signals) in [("3600s", 2), ("1ms", 1)] {
        let timeouts = format!("timeouts = {{ shutdown_delay = \"{delay}\" }}");
        let config = config_without_log(&sandbox, &url, &timeouts);
        let (proxy, address, admin) = super::start_proxy(&sandbox, &config, &[]);
        proxy.signal(Signal::TERM);
        let notice =
            format!("not ready: new connections are accepted for {delay}, or until a second signal\n");
        assert_eq!(proxy.stderr_line(), notice);
        if signals == 2 {
            assert_eq!(super::admin_request(admin, "GET", "/readyz", "").status, 503);
            let request = "GET /news HTTP/1.1\r\nHost: origin\r\n\r\n";
            let response = super::send_request(address, request);
            assert_eq!(
                (response.status, response.header("connection")),
                (200, Some("close")),
                "{response:?}"
            );
            proxy.signal(Signal::TERM);
        }
        assert_eq!(proxy.stderr_line(), "stopping: no new connections are accepted\n");
        assert_eq!(proxy.ended().code, 0);
    }
}

#[test]
fn requests_slower_than_the_drain_timeout_are_aborted() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], super::RECIPE);
    let config = config_without_log(
        &sandbox,
        &format!("http://{}", origin.listens("http")),
        "timeouts = { drain = \"50ms\" }",
    );
    let (proxy, address, admin) = super::start_proxy(&sandbox, &config, &[]);
    let mut slow = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: origin\r\n\r\n").unwrap();
    until(|| stats(admin)["requests_in_flight"] == 1);
    let output = proxy.stopped_by(Signal::TERM);
    assert_eq!(output.code, 0);
    assert!(
        output.stderr.ends_with("0 requests in progress were completed, 1 aborted\n"),
        "{}",
        output.stderr
    );
    let mut answer = Vec::new();
    // The connection is reset or closed without a response.
    let _ = slow.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
}
