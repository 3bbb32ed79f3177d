//! Drain and drop of a frontend.

use std::{io::Read, net::TcpStream, thread, time::Duration};

use stockade_proxy::frontend::{DrainSummary, Frontend, FrontendSettings};

use crate::frontend::support::{
    SHORT, TestHandler, connect, read_response, read_to_close, send, start, wait_for_counts,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_HELD: &[u8] = b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_NEVER: &[u8] = b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn drain_closes_idle_and_finishes_busy_connections() {
    let (frontend, handler) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    let (mut idle, mut silent, mut busy) = (connect(address), connect(address), connect(address));
    send(&mut idle, GET);
    assert_eq!(read_response(&mut idle).1, "hello");
    send(&mut busy, GET_HELD);
    wait_for_counts(&frontend, |counts| (counts.requests, counts.in_flight, counts.open) == (2, 1, 3));
    let drained = thread::spawn(|| frontend.drain());
    assert_eq!(read_to_close(&mut idle), "");
    assert_eq!(read_to_close(&mut silent), "");
    // The listener is closed.
    assert!(TcpStream::connect(address).is_err());
    handler.release(1);
    let (head, body) = read_response(&mut busy);
    assert!(head.contains("connection: close") && body == "held", "{head}");
    assert_eq!(read_to_close(&mut busy), "");
    assert_eq!(drained.join().expect("the thread does not panic"), DrainSummary { finished: 1, aborted: 0 });
}

#[test]
fn drain_aborts_requests_after_its_timeout() {
    let (frontend, _) = start(FrontendSettings { drain_timeout: SHORT, ..FrontendSettings::default() });
    let mut busy = connect(frontend.addresses()[0]);
    send(&mut busy, GET_NEVER);
    wait_for_counts(&frontend, |counts| counts.in_flight == 1);
    assert_eq!(frontend.drain(), DrainSummary { finished: 0, aborted: 1 });
    assert_eq!(read_to_close(&mut busy), "");
}

/// The kernel has completed these connections; the frontend has not accepted them.
#[test]
fn drain_serves_queued_connections() {
    let (frontend, handler) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut tcp = connect(address);
            send(&mut tcp, GET);
            tcp
        })
        .collect();
    let summary = frontend.drain();
    assert_eq!(summary.aborted, 0);
    for tcp in &mut clients {
        assert_eq!(read_response(tcp).1, "hello");
    }
    assert_eq!(handler.requests().len(), 50);
}

#[test]
fn drop_aborts_requests_at_once() {
    let (frontend, _) =
        start(FrontendSettings { drain_timeout: Duration::from_hours(1), ..FrontendSettings::default() });
    let mut busy = connect(frontend.addresses()[0]);
    send(&mut busy, GET_NEVER);
    wait_for_counts(&frontend, |counts| counts.in_flight == 1);
    drop(frontend);
    assert_eq!(read_to_close(&mut busy), "");
}

#[test]
fn a_port_is_exclusive_until_the_frontend_stops() {
    let threads = 3.try_into().expect("three is not zero");
    let (frontend, _) = start(FrontendSettings { threads, ..FrontendSettings::default() });
    let address = frontend.addresses()[0];
    let second = FrontendSettings { listen: vec![address], ..FrontendSettings::default() };
    let error = Frontend::start(second.clone(), &TestHandler::new()).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|text| text.ends_with("another program listens there")), "{error:?}");
    assert_eq!(frontend.drain(), DrainSummary { finished: 0, aborted: 0 });
    let (frontend, _) = start(second);
    let mut tcp = connect(address);
    send(&mut tcp, GET);
    assert_eq!(read_response(&mut tcp).1, "hello");
    drop(frontend);
    assert_eq!(tcp.read(&mut [0]).ok(), Some(0));
}
