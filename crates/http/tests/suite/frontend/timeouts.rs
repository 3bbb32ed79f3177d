//! Each timeout, short in its test: the frontend closes the connection, and the client waits for that.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use stockade_http::frontend::{CloseReason, Frontend, FrontendSettings};

use crate::frontend::support::{
    SHORT, connect, read_response, read_to_close, send, start, status, wait_for_stats,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A frontend with changed settings, and a connection on which `first` was written before the frontend served it.
fn start_and_send(change: impl FnOnce(&mut FrontendSettings), first: &[u8]) -> (Frontend, TcpStream) {
    let mut settings = FrontendSettings::default();
    change(&mut settings);
    let (frontend, handler) = start(settings);
    let tcp = handler.hold_accepts(|| {
        let mut tcp = connect(frontend.addresses()[0]);
        send(&mut tcp, first);
        tcp
    });
    (frontend, tcp)
}

fn assert_closed(frontend: &Frontend, expected: CloseReason) {
    wait_for_stats(frontend, |stats| {
        stats.closed_for(expected) == 1 && stats.connections == 0 && stats.requests_in_flight == 0
    });
    let stats = frontend.stats();
    let reasons: Vec<_> = CloseReason::ALL.iter().filter(|reason| stats.closed_for(**reason) > 0).collect();
    assert_eq!(reasons, [&expected]);
}

#[test]
fn silent_client_is_closed() {
    let (frontend, mut tcp) = start_and_send(|settings| settings.head_timeout = SHORT, b"");
    assert_eq!(read_to_close(&mut tcp), "");
    assert_closed(&frontend, CloseReason::Head);
}

#[test]
fn incomplete_head_gets_408() {
    let (frontend, mut tcp) =
        start_and_send(|settings| settings.head_timeout = SHORT, b"GET / HTTP/1.1\r\nHo");
    assert_eq!(status(&read_to_close(&mut tcp)), "408");
    assert_closed(&frontend, CloseReason::Head);
}

#[test]
fn endless_head_is_closed() {
    let (frontend, mut tcp) =
        start_and_send(|settings| settings.head_timeout = SHORT, b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
    tcp.set_nodelay(true).expect("a socket option");
    // Fewer bytes than the limit of a head, however late the timeout is.
    let mut bytes = std::iter::repeat_n(b'x', 8_000);
    while frontend.stats().closed_for(CloseReason::Head) == 0 {
        if bytes.next().is_some_and(|byte| tcp.write_all(&[byte]).is_err()) {
            break;
        }
        thread::yield_now();
    }
    assert_closed(&frontend, CloseReason::Head);
}

#[test]
fn incomplete_second_head_gets_408() {
    let (frontend, mut tcp) =
        start_and_send(|settings| settings.head_timeout = SHORT, &[GET, b"GET"].concat());
    assert_eq!(read_response(&mut tcp).1, "hello");
    assert_eq!(status(&read_to_close(&mut tcp)), "408");
    assert_closed(&frontend, CloseReason::Head);
}

#[test]
fn idle_connection_is_closed() {
    let (frontend, mut tcp) = start_and_send(|settings| settings.keep_alive_timeout = SHORT, GET);
    assert_eq!(read_response(&mut tcp).1, "hello");
    assert_eq!(read_to_close(&mut tcp), "");
    assert_closed(&frontend, CloseReason::Idle);
}

#[test]
fn stalled_body_gets_408() {
    let (frontend, mut tcp) = start_and_send(
        |settings| settings.body_idle_timeout = SHORT,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
    );
    assert_eq!(status(&read_to_close(&mut tcp)), "408");
    assert_closed(&frontend, CloseReason::Body);
}

#[test]
fn endless_body_is_closed() {
    let (frontend, mut tcp) = start_and_send(
        |settings| settings.body_timeout = SHORT,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    tcp.set_nodelay(true).expect("a socket option");
    while tcp.write_all(b"1\r\nx\r\n").is_ok() && frontend.stats().closed_for(CloseReason::Body) == 0 {
        thread::yield_now();
    }
    assert_closed(&frontend, CloseReason::Body);
}

#[test]
fn client_that_does_not_read_is_closed() {
    let (frontend, _tcp) = start_and_send(
        |settings| settings.write_stall_timeout = SHORT,
        b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_closed(&frontend, CloseReason::Stall);
}

/// The client reads for longer than the timeout, with pauses that are far shorter.
#[test]
fn client_that_reads_slowly_is_served() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(20);
    const READS: u32 = 150;
    assert!(PAUSE * READS > TIMEOUT);
    let (frontend, mut tcp) = start_and_send(
        |settings| settings.write_stall_timeout = TIMEOUT,
        b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let mut part = vec![0; 512 << 10];
    for _ in 0..READS {
        tcp.read_exact(&mut part).expect("the connection is open");
        thread::park_timeout(PAUSE);
    }
    drop(tcp);
    wait_for_stats(&frontend, |stats| stats.connections == 0);
    assert_eq!(frontend.stats().closed_for(CloseReason::Stall), 0);
}

#[test]
fn slow_response_is_closed() {
    let (frontend, mut tcp) = start_and_send(
        |settings| settings.total_timeout = Some(SHORT),
        b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(read_to_close(&mut tcp), "");
    assert_closed(&frontend, CloseReason::Total);
}

#[test]
fn client_timeouts_do_not_bound_the_handler() {
    let settings = FrontendSettings {
        keep_alive_timeout: SHORT,
        head_timeout: SHORT,
        write_stall_timeout: SHORT,
        ..FrontendSettings::default()
    };
    let (frontend, handler) = start(settings);
    let mut tcp = handler.hold_accepts(|| {
        let mut tcp = connect(frontend.addresses()[0]);
        send(&mut tcp, b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        tcp
    });
    // When the frontend closes this silent connection, the first one has waited for at least as long.
    assert_eq!(read_to_close(&mut connect(frontend.addresses()[0])), "");
    handler.release(1);
    assert_eq!(read_response(&mut tcp).1, "held");
}
