//! Faults as clients see them.

use std::{
    io::{ErrorKind, Read},
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use stockade_origin::Origin;

use crate::http::support::{
    add_recipes, connect, current_count, get, page, receive, request, send, start, start_with_admin,
    wait_for_open_requests, wait_until,
};

fn recipes_with(fault: &str) -> String {
    format!(
        r#"[{{"route": "/bad", "random_content": "100kb", "stages": [{{"at": 0, "fault": "{fault}"}}]}},
                {{"route": "/fine", "body": "fine", "stages": [{{"at": 0}}]}}]"#
    )
}

/// All bytes until the connection ends, and the error that it ends with.
fn read_all(address: SocketAddr, path: &str) -> (Vec<u8>, Option<ErrorKind>) {
    let mut tcp = connect(address).unwrap();
    send(&mut tcp, "GET", path, "", "");
    let mut bytes = Vec::new();
    let end = tcp.read_to_end(&mut bytes).err().map(|error| error.kind());
    (bytes, end)
}

fn counters_of_bad(address: SocketAddr) -> Value {
    current_count(address)["routes"]["/bad"].clone()
}

#[test]
fn reset_comes_after_half_of_the_body() {
    let origin = start(&recipes_with("reset"));
    let (bytes, end) = read_all(origin.address, "/bad");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 102400"), "{head}");
    assert_eq!(body.len(), 51_200);
    assert_eq!(counters_of_bad(origin.address), json!({"reset": 1}));
    assert_eq!(get(origin.address, "/fine").text(), "fine");
}

#[test]
fn cut_body_ends_with_a_normal_close() {
    let origin = start(&recipes_with("cut"));
    let (bytes, end) = read_all(origin.address, "/bad");
    assert_eq!(end, None);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("content-length: 102400\r\n"));
    assert_eq!(text.split_once("\r\n\r\n").unwrap().1.len(), 51_200);
}

#[test]
fn malformed_head_is_not_http() {
    let origin = start(&recipes_with("malformed"));
    let error = request(origin.address, "GET", "/bad", "", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn silent_route_reads_the_request_and_never_answers() {
    let origin = start(&recipes_with("silent"));
    let mut tcp = connect(origin.address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    send(&mut tcp, "GET", "/bad", "", "");
    wait_for_open_requests(origin.address, 1);
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(counters_of_bad(origin.address), json!({"silent": 1}));
    // The origin notices that the client disconnects.
    drop(tcp);
    wait_for_open_requests(origin.address, 0);
}

#[test]
fn one_refusing_route_among_others_resets_its_connections() {
    let origin = start(&recipes_with("refuse"));
    let (bytes, end) = read_all(origin.address, "/bad");
    assert_eq!((bytes.len(), end), (0, Some(ErrorKind::ConnectionReset)));
    assert_eq!(get(origin.address, "/fine").text(), "fine");
    assert_eq!(counters_of_bad(origin.address), json!({"refuse": 1}));
}

#[test]
fn listener_is_closed_while_every_route_refuses() {
    let (origin, admin) = start_with_admin(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let mut open = connect(origin.address).unwrap();
    send(&mut open, "GET", "/", "", "");
    assert_eq!(receive(&open, "GET").unwrap().text(), "b");
    let wait_until_refused = || {
        wait_until(|| match connect(origin.address) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                true
            }
        });
    };
    let wait_until_accepted = || wait_until(|| connect(origin.address).is_ok());
    let refuses = r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}]}"#;
    add_recipes(admin, refuses);
    wait_until_refused();
    let error = std::net::TcpListener::bind(origin.address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "no other program gets the port");
    // An open connection is reset at its next request.
    send(&mut open, "GET", "/", "", "");
    assert_eq!(receive(&open, "GET").unwrap_err().kind(), ErrorKind::ConnectionReset);
    add_recipes(admin, r#"{"body": "back", "stages": [{"at": 0}]}"#);
    wait_until_accepted();
    assert_eq!(get(origin.address, "/").text(), "back");
    // The end of a stage opens the listener, too.
    add_recipes(admin, refuses);
    wait_until_refused();
    add_recipes(admin, r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}, {"at": "1s"}]}"#);
    wait_until_accepted();
}

#[test]
fn endless_refusal_needs_an_admin_listener() {
    let origin = start(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let reply = add_recipes(
        origin.address,
        r#"{"body": "b", "stages": [{"at": 0}, {"at": "1h", "fault": "refuse"}]}"#,
    );
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("start the origin with --admin ADDR"), "{}", reply.text());
    // A refusing route is accepted where another route serves.
    let other = r#"{"route": "/x", "body": "b", "stages": [{"at": 0, "fault": "refuse"}]}"#;
    assert_eq!(add_recipes(origin.address, other).status, 201);
}

#[test]
fn shares_of_faults_and_statuses_depend_on_the_seed_alone() {
    let recipe =
        r#"{"body": "b", "stages": [{"at": 0, "status": {"200": 0.5, "503": 0.5}, "fault": {"cut": 0.25}}]}"#;
    // A cut response counts as status 0.
    let statuses = |origin: &Origin| -> Vec<u16> {
        let status = |_| request(origin.address, "GET", "/", "", "").map_or(0, |reply| reply.status);
        (0..200).map(status).collect()
    };
    let (origin, twin) = (start(recipe), start(recipe));
    let first = statuses(&origin);
    assert_eq!(first, statuses(&twin), "the same seed");
    let count = |wanted| first.iter().filter(|status| **status == wanted).count();
    // Of 200 requests a quarter is cut, and the statuses share the rest. The bounds are five standard deviations.
    assert!(
        (20..81).contains(&count(0)) && (42..109).contains(&count(200)) && (42..109).contains(&count(503))
    );
    page(origin.address, "restart");
    assert_eq!(first, statuses(&origin), "a restart repeats the draws");
}

#[test]
fn byte_rate_delays_the_body() {
    let origin = start(r#"{"random_content": "100kb", "stages": [{"at": 0, "byte_rate": "500kb/s"}]}"#);
    let began = Instant::now();
    let reply = get(origin.address, "/");
    let elapsed = began.elapsed();
    assert_eq!((reply.body.len(), reply.header("content-length")), (102_400, "102400"));
    assert!(elapsed >= Duration::from_millis(199), "{elapsed:?}");
}
