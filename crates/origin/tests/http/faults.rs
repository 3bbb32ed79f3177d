//! What goes wrong, as a client sees it.

use std::{
    io::{ErrorKind, Read},
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{PATIENCE, add, ask, connect, get, page, receive, send, serving, with_admin};

fn faulty(fault: &str) -> String {
    format!(
        r#"[{{"route": "/bad", "random_content": "100kb", "stages": [{{"at": 0, "fault": "{fault}"}}]}},
                {{"route": "/fine", "body": "fine", "stages": [{{"at": 0}}]}}]"#
    )
}

/// Everything that comes until the connection ends, and how it ends.
fn all(address: SocketAddr, path: &str) -> (Vec<u8>, Option<ErrorKind>) {
    let mut tcp = connect(address).unwrap();
    send(&mut tcp, "GET", path, "", "");
    let mut bytes = Vec::new();
    let end = tcp.read_to_end(&mut bytes).err().map(|error| error.kind());
    (bytes, end)
}

fn counted(address: SocketAddr) -> Value {
    serde_json::from_str::<Value>(&page(address, "current_count")).unwrap()["routes"]["/bad"].clone()
}

#[test]
fn a_reset_comes_in_the_middle_of_the_body() {
    let origin = serving(&faulty("reset"));
    let (bytes, end) = all(origin.address, "/bad");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 102400"), "{head}");
    assert_eq!(body.len(), 51_200);
    assert_eq!(counted(origin.address), json!({"reset": 1}));
    assert_eq!(get(origin.address, "/fine").text(), "fine");
}

#[test]
fn a_body_that_is_cut_ends_as_if_that_were_all() {
    let origin = serving(&faulty("cut"));
    let (bytes, end) = all(origin.address, "/bad");
    assert_eq!(end, None);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("content-length: 102400\r\n"));
    assert_eq!(text.split_once("\r\n\r\n").unwrap().1.len(), 51_200);
}

#[test]
fn a_malformed_head_is_none() {
    let origin = serving(&faulty("malformed"));
    let error = ask(origin.address, "GET", "/bad", "", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn a_silent_one_takes_the_request_and_says_nothing() {
    let origin = serving(&faulty("silent"));
    let mut tcp = connect(origin.address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    send(&mut tcp, "GET", "/bad", "", "");
    until_inside(origin.address, 1);
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(counted(origin.address), json!({"silent": 1}));
    // Who gives up is noticed.
    drop(tcp);
    until_inside(origin.address, 0);
}

fn until_inside(address: SocketAddr, wanted: u64) {
    let began = Instant::now();
    while serde_json::from_str::<Value>(&page(address, "current_count")).unwrap()["concurrent_requests"]["now"]
        != wanted
    {
        assert!(began.elapsed() < PATIENCE);
    }
}

#[test]
fn a_route_that_refuses_among_others_resets_its_connections() {
    let origin = serving(&faulty("refuse"));
    let (bytes, end) = all(origin.address, "/bad");
    assert_eq!((bytes.len(), end), (0, Some(ErrorKind::ConnectionReset)));
    assert_eq!(get(origin.address, "/fine").text(), "fine");
    assert_eq!(counted(origin.address), json!({"refuse": 1}));
}

#[test]
fn nobody_listens_while_every_route_refuses() {
    let (origin, admin) = with_admin(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let mut open = connect(origin.address).unwrap();
    send(&mut open, "GET", "/", "", "");
    assert_eq!(receive(&open, "GET").unwrap().text(), "b");
    let until = |wanted: bool| {
        let began = Instant::now();
        loop {
            match connect(origin.address) {
                Ok(_) if wanted => break,
                Err(error) if !wanted => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                    break;
                }
                _ => assert!(began.elapsed() < PATIENCE),
            }
        }
    };
    add(admin, r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}]}"#);
    until(false);
    let taken = std::net::TcpListener::bind(origin.address).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse, "the port is kept meanwhile");
    // A connection that was open is reset when it asks.
    send(&mut open, "GET", "/", "", "");
    assert_eq!(receive(&open, "GET").unwrap_err().kind(), ErrorKind::ConnectionReset);
    add(admin, r#"{"body": "back", "stages": [{"at": 0}]}"#);
    until(true);
    assert_eq!(get(origin.address, "/").text(), "back");
    // It comes back by itself, too, when a stage ends.
    add(admin, r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}, {"at": "2s"}]}"#);
    until(false);
    until(true);
}

#[test]
fn what_would_never_listen_again_needs_an_admin_of_its_own() {
    let origin = serving(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let reply =
        add(origin.address, r#"{"body": "b", "stages": [{"at": 0}, {"at": "1h", "fault": "refuse"}]}"#);
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("start the origin with --admin ADDR"), "{}", reply.text());
    // With another route that goes on it is none.
    let other = r#"{"route": "/x", "body": "b", "stages": [{"at": 0, "fault": "refuse"}]}"#;
    assert_eq!(add(origin.address, other).status, 201);
}

#[test]
fn some_requests_fail_and_the_others_do_not() {
    let recipe =
        r#"{"body": "b", "stages": [{"at": 0, "status": {"200": 0.5, "503": 0.5}, "fault": {"cut": 0.25}}]}"#;
    let fates = |origin: &stockade_origin::Origin| -> Vec<u16> {
        let fate = |_| ask(origin.address, "GET", "/", "", "").map_or(0, |reply| reply.status);
        (0..200).map(fate).collect()
    };
    let (one, other) = (serving(recipe), serving(recipe));
    let seen = fates(&one);
    assert_eq!(seen, fates(&other), "the same seed");
    let count = |of| seen.iter().filter(|seen| **seen == of).count();
    // Of 200: a quarter cut, half of the rest each; five standard deviations.
    assert!(
        (20..81).contains(&count(0)) && (42..109).contains(&count(200)) && (42..109).contains(&count(503))
    );
    page(one.address, "restart");
    assert_eq!(seen, fates(&one), "a restart begins chance anew");
}

#[test]
fn a_byte_rate_stretches_the_body() {
    let origin = serving(r#"{"random_content": "100kb", "stages": [{"at": 0, "byte_rate": "500kb/s"}]}"#);
    let began = Instant::now();
    let reply = get(origin.address, "/");
    let took = began.elapsed();
    assert_eq!((reply.body.len(), reply.header("content-length")), (102_400, "102400"));
    assert!(took >= Duration::from_millis(199) && took < Duration::from_secs(5), "{took:?}");
}
