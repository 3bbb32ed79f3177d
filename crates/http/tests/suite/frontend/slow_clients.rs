//! Clients that read slowly or not at all: a response is in flight until its last byte is written.

use std::{io::Read, net::TcpStream, thread};

use stockade_http::frontend::{CloseReason, DrainSummary, Frontend, FrontendSettings, SentBody};

use crate::frontend::{
    http2::{self, DATA, HEADERS, RST_STREAM, WINDOW_UPDATE, next_frame},
    support::{
        LONGER, SHORT, TestHandler, connect, read_response, read_to_close, send, start, wait_for_stats,
    },
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// More than the sockets of both ends hold.
const LARGE_BYTES: u32 = 12 << 20;

fn bytes(length: usize) -> u32 {
    u32::try_from(length).expect("no response is longer")
}

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
fn initial_window(bytes: u32) -> Vec<u8> {
    [&[0, 4][..], &bytes.to_be_bytes()].concat()
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    http2::frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A client that has requested a response of one large frame, and has not read it.
enum SlowClient {
    Http1(TcpStream),
    Http2(TcpStream),
}

impl SlowClient {
    fn request_both(frontend: &Frontend) -> [Self; 2] {
        [Self::request_http1(frontend), Self::request_http2(frontend)]
    }

    fn request_http1(frontend: &Frontend) -> Self {
        let mut tcp = connect(frontend.addresses()[0]);
        send(&mut tcp, format!("GET /large-{LARGE_BYTES} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        Self::Http1(tcp)
    }

    fn request_http2(frontend: &Frontend) -> Self {
        let mut tcp = http2::open(frontend, &initial_window(LARGE_BYTES));
        send(&mut tcp, &window_update(0, LARGE_BYTES));
        send(&mut tcp, &http2::get(1, &format!("/large-{LARGE_BYTES}")));
        Self::Http2(tcp)
    }

    /// Reads the response, and returns how many bytes of the body arrived.
    fn read(self) -> u32 {
        match self {
            Self::Http1(mut tcp) => bytes(read_response(&mut tcp).1.len()),
            Self::Http2(mut tcp) => {
                let mut received = 0;
                while let Some(frame) = next_frame(&mut tcp) {
                    received += if frame.kind == DATA { frame.payload.len() } else { 0 };
                    if frame.kind == DATA && frame.is_last() {
                        break;
                    }
                }
                bytes(received)
            }
        }
    }
}

/// Waits until a connection without requests has been closed as idle.
fn let_idle_timeout_pass(frontend: &Frontend) {
    let mut idle = connect(frontend.addresses()[0]);
    send(&mut idle, GET);
    assert_eq!(read_response(&mut idle).1, "hello");
    assert_eq!(read_to_close(&mut idle), "");
}

fn start_serving(settings: FrontendSettings) -> (Frontend, TestHandler, [SlowClient; 2]) {
    let (frontend, handler) = start(settings);
    let clients = SlowClient::request_both(&frontend);
    wait_for_stats(&frontend, |stats| stats.requests_received == 2);
    (frontend, handler, clients)
}

#[test]
fn response_that_waits_for_its_client_is_not_idle() {
    let (frontend, handler, clients) =
        start_serving(FrontendSettings { keep_alive_timeout: SHORT, ..FrontendSettings::default() });
    let_idle_timeout_pass(&frontend);
    let_idle_timeout_pass(&frontend);
    assert_eq!(clients.map(SlowClient::read), [LARGE_BYTES; 2]);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0);
    let whole = SentBody { bytes: u64::from(LARGE_BYTES), is_complete: true };
    assert_eq!(handler.sent().into_iter().filter(|sent| *sent == whole).count(), 2);
}

#[test]
fn response_that_waits_for_its_client_is_not_evicted() {
    let (frontend, _, clients) =
        start_serving(FrontendSettings { connections_max: 3, ..FrontendSettings::default() });
    let mut idle = connect(frontend.addresses()[0]);
    send(&mut idle, GET);
    assert_eq!(read_response(&mut idle).1, "hello");
    for _ in 0..5 {
        let mut newer = connect(frontend.addresses()[0]);
        send(&mut newer, GET);
        assert_eq!(read_response(&mut newer).1, "hello");
        assert_eq!(read_to_close(&mut idle), "");
        idle = newer;
    }
    assert_eq!(clients.map(SlowClient::read), [LARGE_BYTES; 2]);
}

#[test]
fn drain_waits_for_responses_that_wait_for_their_clients() {
    let (frontend, _, clients) = start_serving(FrontendSettings::default());
    let drained = thread::spawn(|| frontend.drain());
    // Longer than a drain gives connections whose responses are written.
    let (other, _) =
        start(FrontendSettings { keep_alive_timeout: 2 * LONGER, ..FrontendSettings::default() });
    let_idle_timeout_pass(&other);
    assert_eq!(clients.map(SlowClient::read), [LARGE_BYTES; 2]);
    assert_eq!(drained.join().expect("the thread does not panic"), DrainSummary { finished: 2, aborted: 0 });
}

#[test]
fn response_that_is_cut_is_not_complete() {
    let (frontend, handler) = start(FrontendSettings::default());
    for client in SlowClient::request_both(&frontend) {
        let (SlowClient::Http1(mut tcp) | SlowClient::Http2(mut tcp)) = client;
        tcp.read_exact(&mut vec![0; 100_000]).expect("the response begins");
    }
    wait_for_stats(&frontend, |stats| stats.requests_received == 2 && stats.requests_in_flight == 0);
    for SentBody { bytes, is_complete } in handler.sent() {
        assert!(!is_complete && bytes < u64::from(LARGE_BYTES), "{bytes} bytes, complete: {is_complete}");
    }
    assert_eq!(handler.sent().len(), 2);
}

/// h2 holds the only frame of the response, and hyper's task has ended.
#[test]
fn last_frame_that_a_client_does_not_take_ends_the_connection() {
    for window in [0, 1] {
        let (frontend, handler) =
            start(FrontendSettings { write_stall_timeout: SHORT, ..FrontendSettings::default() });
        let mut tcp = http2::open(&frontend, &initial_window(window));
        send(&mut tcp, &http2::get(1, "/large-50000"));
        let is_ended = loop {
            match next_frame(&mut tcp) {
                None => break true,
                Some(frame) if frame.kind == RST_STREAM => break true,
                Some(frame) if frame.kind == DATA && frame.is_last() => break false,
                Some(_) => {}
            }
        };
        assert!(is_ended, "the whole response fits into a window of {window}");
        wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0);
        assert_eq!(frontend.stats().closed_for(CloseReason::Stall), 1);
        let sent = handler.sent();
        assert_eq!(sent, [SentBody { bytes: u64::from(window), is_complete: false }]);
    }
}

/// Its window grows by a byte at a time: far less than 64 KiB within the timeout.
#[test]
fn client_that_takes_single_bytes_is_ended() {
    let (frontend, _) =
        start(FrontendSettings { write_stall_timeout: LONGER, ..FrontendSettings::default() });
    let mut tcp = http2::open(&frontend, &initial_window(1));
    send(&mut tcp, &http2::get(1, "/endless"));
    let mut taken = 0;
    loop {
        match next_frame(&mut tcp) {
            Some(frame) if frame.kind == DATA => {
                taken += frame.payload.len();
                send(&mut tcp, &window_update(1, 1));
                thread::park_timeout(SHORT / 10);
            }
            Some(frame) if frame.kind == HEADERS => {}
            _ => break,
        }
    }
    assert!(taken < 64 << 10, "{taken} bytes are taken");
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0);
    assert_eq!(frontend.stats().closed_for(CloseReason::Stall), 1);
}
