//! Many requests at once: capacity, latencies, pipelining.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use crate::http::support::{
    connect, current_count, get, receive, request, send, start, wait_for_open_requests,
};

#[test]
fn full_queue_rejects_requests() {
    let origin = start(
        r#"[{"route": "/few", "body": "b", "capacity": {"workers": 2, "queue": 1}, "stages": [{"at": 0, "latency": "1h"}]},
            {"route": "/other", "body": "b", "stages": [{"at": 0}]}]"#,
    );
    let address = origin.address;
    let mut clients: Vec<_> = (0..3).map(|_| connect(address).unwrap()).collect();
    for (n, tcp) in clients.iter_mut().enumerate() {
        send(tcp, "GET", "/few", "", "");
        wait_for_open_requests(address, n + 1);
    }
    let reply = get(address, "/few");
    assert_eq!((reply.status, reply.text()), (503, "Error 503"));
    assert_eq!(get(address, "/other").status, 200);
    let count = current_count(address);
    assert_eq!(count["routes"]["/few"], serde_json::json!({"503": 1, "rejected": 1}));
    assert_eq!(count["concurrent_requests"]["max"], 4);
}

#[test]
fn stampede_on_a_finite_origin_queues() {
    let origin = start(
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
    // Two workers need ten turns of 20 ms for twenty requests.
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    // All answers together fit into the client's receive window. The kernel then takes them in at once, and the reset
    // discards none, however late the client reads.
    let origin = start(
        r#"[{"route": "/slow", "body": "slow", "stages": [{"at": 0, "latency": "30ms"}]},
            {"route": "/large", "random_content": "24kb", "stages": [{"at": 0}]},
            {"route": "/bad", "random_content": "24kb", "stages": [{"at": 0, "fault": "reset"}]},
            {"route": "/fast", "body": "fast", "stages": [{"at": 0}]}]"#,
    );
    let large = get(origin.address, "/large").body;
    let mut tcp = connect(origin.address).unwrap();
    for path in ["/large", "/slow", "/fast", "/large", "/bad", "/fast"] {
        send(&mut tcp, "GET", path, "", "");
    }
    let mut bytes = Vec::new();
    // The fifth answer breaks off, so there is no sixth.
    assert!(tcp.read_to_end(&mut bytes).is_err());
    let mut rest = &bytes[..];
    for body in [&large[..], b"slow", b"fast", &large[..]] {
        let at = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert!(rest.starts_with(b"HTTP/1.1 200 OK\r\n") && rest[at..].starts_with(body));
        rest = &rest[at + body.len()..];
    }
    let at = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(rest.len() - at, 12 << 10, "half of the last body");
}

#[test]
fn large_bodies_arrive_unchanged() {
    let origin = start(r#"{"random_content": "8mb", "stages": [{"at": 0}]}"#);
    let whole = get(origin.address, "/").body;
    for (from, to) in [(0, 99), (100, 60_000), (1, (8 << 20) - 1), (300_000, 5_000_000)] {
        let reply =
            request(origin.address, "GET", "/", &format!("Range: bytes={from}-{to}\r\n"), "").unwrap();
        assert!(reply.body == whole[from..=to], "{from} to {to}");
    }
    // A client that reads slowly: a body larger than all buffers is sent in many parts.
    let mut slow = connect(origin.address).unwrap();
    send(&mut slow, "GET", "/", "", "");
    send(&mut slow, "GET", "/", "Range: bytes=7-5000000\r\n", "");
    let (mut received, mut chunk) = (Vec::new(), [0; 10_000]);
    for body in [&whole[..], &whole[7..=5_000_000]] {
        loop {
            let at = received.windows(4).take(2_000).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
            if let Some(end) = at.map(|at| at + body.len()).filter(|end| *end <= received.len()) {
                assert!(&received[end - body.len()..end] == body);
                received.drain(..end);
                break;
            }
            let bytes = slow.read(&mut chunk).unwrap();
            assert_ne!(bytes, 0);
            received.extend_from_slice(&chunk[..bytes]);
        }
    }
}

#[test]
fn abandoned_requests_are_counted() {
    let origin = start(r#"{"body": "b", "stages": [{"at": 0, "latency": "1h"}]}"#);
    let mut waiting = connect(origin.address).unwrap();
    send(&mut waiting, "GET", "/", "", "");
    let mut incomplete = connect(origin.address).unwrap();
    incomplete.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
    wait_for_open_requests(origin.address, 2);
    drop((waiting, incomplete));
    wait_for_open_requests(origin.address, 0);
    // The incomplete request counts as answered with 400 or as abandoned, whichever the origin notices first.
    let counters = &current_count(origin.address)["routes"]["/*"];
    let count = |name: &str| counters[name].as_u64().unwrap_or_default();
    assert_eq!(count("abandoned") + count("400"), 2, "{counters}");
}
