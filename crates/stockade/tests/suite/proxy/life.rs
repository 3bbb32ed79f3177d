//! From its first line to its last: it serves, is told something else, and ends.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::Signal;

use super::{Got, Proxied, silent, stats, until};
use crate::{
    running::{PATIENCE, Running, get},
    support::Sandbox,
};

#[test]
fn an_origin_is_all_that_it_needs() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], super::RECIPE);
    let url = format!("http://{}", origin.listens("http"));
    let proxy = Running::start(&sandbox, &["proxy", "--origin", &url, "--listen", "0"], "");
    let address = proxy.listens("http");
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");

    let (first, second) = (Got::of(&get(address, "/news")), Got::of(&get(address, "/news")));
    first.assert(200, "all is well", "miss");
    assert_eq!(first.cache(), "stockade; fwd=uri-miss; stored; detail=miss");
    second.assert(200, "all is well", "hit");
    assert!(second.cache().starts_with("stockade; hit; ttl=3"), "{second:?}");
    assert!(second.header("via").is_some_and(|via| via.contains("stockade")), "{second:?}");

    // What it says of each request goes to standard output, behind its URL.
    for outcome in ["miss", "hit"] {
        let line: serde_json::Value = serde_json::from_str(&proxy.prints()).expect("JSON");
        assert_eq!(
            (&line["cache"], &line["url"], &line["status"]),
            (&outcome.into(), &"/news".into(), &200.into())
        );
    }
    let said = proxy.stopped_by(Signal::INT);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{}", said.stderr);
    assert!(said.stderr.ends_with(" aborted\n"), "{}", said.stderr);
}

#[test]
fn what_is_for_one_is_not_for_the_next() {
    let proxied = Proxied::start(&[]);
    for _ in 0..2 {
        proxied.get("/own").assert(200, "for you", "miss");
    }
    assert_eq!(proxied.stats()["origins"][0]["requests"], 2);
}

#[test]
fn a_file_that_makes_no_sense_changes_nothing_and_one_that_does_loses_no_entry() {
    let proxied = Proxied::start(&[]);
    proxied.get("/news").assert(200, "all is well", "miss");
    let url = proxied.origin_url();

    silent(&proxied.sandbox, &url, "lisen = 5");
    proxied.proxy.signal(Signal::HUP);
    let line = proxied.proxy.says();
    assert!(line.starts_with("reload failed, the configuration stays in force: "), "{line}");
    for word in ["stockade.toml:2:1", "unknown key `lisen`", "did you mean `listen`?"] {
        assert!(line.contains(word), "`{word}` is not in {line}");
    }
    proxied.get("/news").assert(200, "all is well", "hit");

    silent(&proxied.sandbox, &url, "hosts = [\"origin\"]\nthreads = 7");
    proxied.proxy.signal(Signal::HUP);
    let lines = [proxied.proxy.says(), proxied.proxy.says()];
    assert_eq!(lines, ["threads: needs a restart\n", "hosts: is in force\n"]);
    proxied.get("/news").assert(200, "all is well", "hit");
    let other =
        super::talk(proxied.address, "GET /news HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n");
    assert_eq!((other.status, other.body.as_str()), (421, "this host is not served here\n"));

    // It still does.
    proxied.proxy.signal(Signal::HUP);
    assert_eq!(proxied.proxy.says(), "threads: needs a restart\n");
    silent(&proxied.sandbox, &url, "hosts = [\"origin\"]");
    proxied.proxy.signal(Signal::HUP);
    assert_eq!(proxied.proxy.says(), "reloaded: no setting has changed\n");

    // An origin that cannot be asked is no reason to forget what it has said.
    silent(&proxied.sandbox, "http://127.0.0.1:1", "hosts = [\"origin\"]");
    proxied.proxy.signal(Signal::HUP);
    assert_eq!(proxied.proxy.says(), "origin.app: is in force\n");
    proxied.get("/news").assert(200, "all is well", "hit");
    let another = proxied.get("/news?another");
    assert_eq!((another.status, another.outcome()), (502, "error"), "{another:?}");
}

#[test]
fn it_ends_when_who_is_there_has_been_answered() {
    let Proxied { proxy, address, admin, origin: _origin, sandbox: _sandbox } = Proxied::start(&[]);
    let mut slow = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n").unwrap();
    until(|| stats(admin)["requests_in_flight"] == 1);
    assert_eq!(super::of_admin(admin, "GET", "/readyz", "").status, 200);

    proxy.signal(Signal::TERM);
    assert_eq!(proxy.says(), "stopping: no new connections are accepted\n");
    // Each thread closes its door as it hears of it.
    until(|| TcpStream::connect_timeout(&address, PATIENCE).is_err());
    let ready = super::of_admin(admin, "GET", "/readyz", "");
    assert_eq!((ready.status, ready.body.as_str()), (503, "draining\n"));

    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    Got::of(&answer).assert(200, "at last", "miss");
    let said = proxy.ended();
    let last = "1 requests were completed, 0 aborted\n";
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", last));
}

#[test]
fn who_is_too_slow_for_the_end_is_cut() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], super::RECIPE);
    let config =
        silent(&sandbox, &format!("http://{}", origin.listens("http")), "timeouts = { drain = \"50ms\" }");
    let (proxy, address, admin) = super::started(&sandbox, &config, &[]);
    let mut slow = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: origin\r\n\r\n").unwrap();
    until(|| stats(admin)["requests_in_flight"] == 1);
    let said = proxy.stopped_by(Signal::TERM);
    assert_eq!(said.code, 0);
    assert!(said.stderr.ends_with("0 requests were completed, 1 aborted\n"), "{}", said.stderr);
    let mut answer = Vec::new();
    // Reset or closed: nothing has been answered.
    let _ = slow.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
}
