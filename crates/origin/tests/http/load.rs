//! Many at once: a finite capacity, latencies, connections.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{ask, connect, get, page, receive, send, serving};

#[test]
fn one_more_than_workers_and_queue_is_turned_away() {
    let origin = serving(
        r#"[{"route": "/few", "body": "b", "capacity": {"workers": 2, "queue": 1}, "stages": [{"at": 0, "latency": "1h"}]},
            {"route": "/other", "body": "b", "stages": [{"at": 0}]}]"#,
    );
    let at = origin.address;
    let mut inside: Vec<_> = (0..3).map(|_| connect(at).unwrap()).collect();
    for (n, tcp) in inside.iter_mut().enumerate() {
        send(tcp, "GET", "/few", "", "");
        // Each is inside before the next one comes.
        let count = || {
            serde_json::from_str::<Value>(&page(at, "current_count")).unwrap()["concurrent_requests"]["now"]
                .clone()
        };
        while count() != n + 1 {}
    }
    let reply = get(at, "/few");
    assert_eq!((reply.status, reply.text()), (503, "Error 503"));
    assert_eq!(get(at, "/other").status, 200);
    let count: Value = serde_json::from_str(&page(at, "current_count")).unwrap();
    assert_eq!(count["routes"]["/few"], serde_json::json!({"503": 1, "rejected": 1}));
    assert_eq!(count["concurrent_requests"]["max"], 4);
}

#[test]
fn a_stampede_slows_a_finite_origin() {
    let origin = serving(
        r#"{"body": "b", "capacity": {"workers": 2, "queue": 100}, "stages": [{"at": 0, "latency": "20ms"}]}"#,
    );
    let began = Instant::now();
    let mut clients: Vec<_> = (0..20).map(|_| connect(origin.address).unwrap()).collect();
    for tcp in &mut clients {
        send(tcp, "GET", "/", "", "");
    }
    for tcp in &clients {
        assert_eq!(receive(tcp, "GET").unwrap().status, 200);
    }
    // Ten turns of 20 ms.
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}

#[test]
fn requests_in_a_row_are_answered_in_that_row() {
    let origin = serving(
        r#"[{"route": "/slow", "body": "slow", "stages": [{"at": 0, "latency": "30ms"}]},
            {"route": "/large", "random_content": "300kb", "stages": [{"at": 0}]},
            {"route": "/fast", "body": "fast", "stages": [{"at": 0}]}]"#,
    );
    let mut tcp = connect(origin.address).unwrap();
    for (path, length) in [("/large", 307_200), ("/slow", 4), ("/fast", 4), ("/large", 307_200)] {
        send(&mut tcp, "GET", path, "", "");
        assert_eq!(receive(&tcp, "GET").unwrap().body.len(), length);
    }
}

#[test]
fn large_bodies_are_the_same_bytes_whatever_way_they_leave() {
    let origin = serving(r#"{"random_content": "428kb", "stages": [{"at": 0}]}"#);
    let whole = get(origin.address, "/").body;
    assert_eq!(whole, get(origin.address, "/").body);
    for (from, to) in [(0, 99), (100, 60_000), (1, 438_271), (300_000, 438_271)] {
        let reply = ask(origin.address, "GET", "/", &format!("Range: bytes={from}-{to}\r\n"), "").unwrap();
        assert_eq!(reply.body, whole[from..=to], "{from} to {to}");
    }
    // A client that reads slowly: the socket takes it in many parts.
    let mut slow = connect(origin.address).unwrap();
    send(&mut slow, "GET", "/", "", "");
    send(&mut slow, "GET", "/", "Range: bytes=7-400000\r\n", "");
    std::thread::yield_now();
    let mut bytes = Vec::new();
    let mut part = [0; 1_000];
    while bytes.len() < 438_272 + 399_994 {
        let some = std::io::Read::read(&mut slow, &mut part).unwrap();
        assert_ne!(some, 0);
        bytes.extend_from_slice(&part[..some]);
    }
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(bytes[at..at + whole.len()], whole[..]);
}
