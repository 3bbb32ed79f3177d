//! Many at once: a finite capacity, latencies, connections.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{PATIENCE, ask, connect, get, page, receive, send, serving};

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
        let began = Instant::now();
        while count() != n + 1 {
            assert!(began.elapsed() < PATIENCE);
        }
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
            {"route": "/bad", "random_content": "300kb", "stages": [{"at": 0, "fault": "reset"}]},
            {"route": "/fast", "body": "fast", "stages": [{"at": 0}]}]"#,
    );
    let large = get(origin.address, "/large").body;
    let mut tcp = connect(origin.address).unwrap();
    let row = ["/large", "/slow", "/fast", "/large", "/bad", "/fast"];
    for path in row {
        send(&mut tcp, "GET", path, "", "");
    }
    let mut all = Vec::new();
    // The fifth breaks off, and there is no sixth.
    assert!(tcp.read_to_end(&mut all).is_err());
    let mut rest = &all[..];
    for body in [&large[..], b"slow", b"fast", &large[..]] {
        let at = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert!(rest.starts_with(b"HTTP/1.1 200 OK\r\n") && rest[at..].starts_with(body));
        rest = &rest[at + body.len()..];
    }
    let at = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(rest.len() - at, 150 << 10, "half of the last");
}

#[test]
fn large_bodies_are_the_same_bytes_whatever_way_they_leave() {
    let origin = serving(r#"{"random_content": "8mb", "stages": [{"at": 0}]}"#);
    let whole = get(origin.address, "/").body;
    for (from, to) in [(0, 99), (100, 60_000), (1, (8 << 20) - 1), (300_000, 5_000_000)] {
        let reply = ask(origin.address, "GET", "/", &format!("Range: bytes={from}-{to}\r\n"), "").unwrap();
        assert!(reply.body == whole[from..=to], "{from} to {to}");
    }
    // A client that takes a little at a time: more than buffers hold leaves in many parts.
    let mut slow = connect(origin.address).unwrap();
    send(&mut slow, "GET", "/", "", "");
    send(&mut slow, "GET", "/", "Range: bytes=7-5000000\r\n", "");
    let (mut all, mut part) = (Vec::new(), [0; 10_000]);
    for body in [&whole[..], &whole[7..=5_000_000]] {
        loop {
            let at = all.windows(4).take(2_000).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
            if let Some(end) = at.map(|at| at + body.len()).filter(|end| *end <= all.len()) {
                assert!(&all[end - body.len()..end] == body);
                all.drain(..end);
                break;
            }
            let some = slow.read(&mut part).unwrap();
            assert_ne!(some, 0);
            all.extend_from_slice(&part[..some]);
        }
    }
}

#[test]
fn whoever_gives_up_is_counted() {
    let origin = serving(r#"{"body": "b", "stages": [{"at": 0, "latency": "1h"}]}"#);
    let counts = || -> Value { serde_json::from_str(&page(origin.address, "current_count")).unwrap() };
    let until = |what: &dyn Fn(&Value) -> bool| {
        let began = Instant::now();
        while !what(&counts()) {
            assert!(began.elapsed() < PATIENCE, "{}", counts());
        }
    };
    let mut asked = connect(origin.address).unwrap();
    send(&mut asked, "GET", "/", "", "");
    let mut half = connect(origin.address).unwrap();
    half.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
    until(&|counts| counts["concurrent_requests"]["now"] == 2);
    drop((asked, half));
    until(&|counts| counts["concurrent_requests"]["now"] == 0);
    // The body that broke off may be told as such, to nobody, or be given up.
    let routes = &counts()["routes"]["/*"];
    let of = |name: &str| routes[name].as_u64().unwrap_or_default();
    assert_eq!(of("abandoned") + of("400"), 2, "{routes}");
}
