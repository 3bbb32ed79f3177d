//! HTTP/2, frame by frame.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use stockade_http::frontend::{CloseReason, DrainSummary, Frontend, FrontendSettings};

use crate::frontend::support::{LONGER, SHORT, connect, send, start, wait_for_stats};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const WINDOW_UPDATE: u8 = 8;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    flags: u8,
    stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of `RST_STREAM` or GOAWAY.
    fn error_code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn is_last(&self) -> bool {
        self.flags & 1 != 0
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short enough for one byte").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length =
            u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("short enough for one byte");
        [&[length], text.as_bytes()].concat()
    };
    [vec![0], text(name), text(value)].concat()
}

/// A request without a body, in literal fields (RFC 7541, 6.2.2).
fn request(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(HEADERS, 5, stream, &fields)
}

pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    request(stream, &[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")])
}

pub(crate) fn open(frontend: &Frontend, settings: &[u8]) -> TcpStream {
    let mut tcp = connect(frontend.addresses()[0]);
    send(&mut tcp, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    send(&mut tcp, &frame(SETTINGS, 0, 0, settings));
    tcp
}

/// The next DATA, HEADERS, `RST_STREAM` or GOAWAY frame; `None` at the end.
pub(crate) fn next_frame(tcp: &mut TcpStream) -> Option<Frame> {
    loop {
        let mut head = [0; 9];
        tcp.read_exact(&mut head).ok()?;
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        tcp.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let frame = Frame { kind: head[3], flags: head[4], stream, payload };
        match frame.kind {
            PING if !frame.is_last() => tcp.write_all(&self::frame(PING, 1, 0, &frame.payload)).ok()?,
            DATA | HEADERS | RST_STREAM | GOAWAY => return Some(frame),
            _ => {}
        }
    }
}

/// The status of a response, indexed or literal.
fn status(frame: &Frame) -> u16 {
    assert_eq!(frame.kind, HEADERS, "{frame:?}");
    match frame.payload[0] {
        0x88 => 200,
        0x8c => 400,
        // An indexed name, and digits that are Huffman-coded or plain.
        _ => decode_number(&frame.payload[1..]),
    }
}

fn decode_number(value: &[u8]) -> u16 {
    let (is_huffman, length) = (value[0] & 128 != 0, usize::from(value[0] & 127));
    let bytes = &value[1..=length];
    if !is_huffman {
        return std::str::from_utf8(bytes).expect("digits").parse().expect("a number");
    }
    // Codes of the digits 0 to 2 have five bits, those of 3 to 9 six.
    let (bits, mut at, mut number) =
        (u64::from_be_bytes(std::array::from_fn(|n| *bytes.get(n).unwrap_or(&255))), 0, 0);
    for _ in 0..3 {
        let five = u16::try_from(bits << at >> 59).expect("five bits");
        let six = u16::try_from(bits << at >> 58).expect("six bits");
        let (digit, width) = if five < 3 { (five, 5) } else { (six - 0x19 + 3, 6) };
        (number, at) = (number * 10 + digit, at + width);
    }
    number
}

#[test]
fn head_with_content_is_rejected() {
    let (frontend, handler) = start(FrontendSettings::default());
    let fields = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    let content = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (flags, data, expected) in [(4, Some(&content[..]), 400), (4, Some(b""), 400), (5, None, 200)] {
        let mut tcp = open(&frontend, &[]);
        send(&mut tcp, &frame(HEADERS, flags, 1, &fields));
        if let Some(data) = data {
            send(&mut tcp, &frame(DATA, 1, 1, data));
        }
        let response = next_frame(&mut tcp).expect("a response");
        assert_eq!(status(&response), expected, "{data:?}");
    }
    assert_eq!(handler.requests(), ["HEAD http://a/ 0"]);
}

#[test]
fn http2_is_spoken_with_prior_knowledge() {
    let (frontend, handler) = start(FrontendSettings::default());
    let mut tcp = open(&frontend, &[]);
    send(&mut tcp, &[get(1, "/one"), get(3, "/large-10")].concat());
    let mut bodies = Vec::new();
    while bodies.len() < 2 {
        let frame = next_frame(&mut tcp).expect("a response");
        match frame.kind {
            HEADERS => assert_eq!(status(&frame), 200),
            _ => bodies.push((frame.stream, frame.payload)),
        }
    }
    bodies.sort();
    assert_eq!(bodies, [(1, b"hello".to_vec()), (3, b"xxxxxxxxxx".to_vec())]);
    assert_eq!(handler.requests(), ["GET http://a/one 0", "GET http://a/large-10 0"]);
    // A request body in two frames.
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let fields: Vec<u8> = post.iter().flat_map(|(name, value)| field(name, value)).collect();
    send(
        &mut tcp,
        &[frame(HEADERS, 4, 5, &fields), frame(DATA, 0, 5, b"ab"), frame(DATA, 1, 5, b"cd")].concat(),
    );
    assert_eq!(status(&next_frame(&mut tcp).expect("a response")), 200);
    assert_eq!(next_frame(&mut tcp).expect("a body").payload, b"abcd");
    // The preface in pieces.
    let mut tcp = connect(frontend.addresses()[0]);
    tcp.set_nodelay(true).expect("a socket option");
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        send(&mut tcp, &[*byte]);
    }
    send(&mut tcp, &[frame(SETTINGS, 0, 0, &[]), get(1, "/")].concat());
    assert_eq!(status(&next_frame(&mut tcp).expect("a response")), 200);
}

#[test]
fn malformed_requests_are_rejected() {
    let (frontend, handler) = start(FrontendSettings { headers_max: 20, ..FrontendSettings::default() });
    let mut tcp = open(&frontend, &[]);
    let with = |more: &[(&'static str, &'static str)]| {
        [&[(":method", "GET"), (":scheme", "http"), (":path", "/bad")], more].concat()
    };
    let rejected = [
        (400, with(&[])),
        (400, with(&[(":authority", "u@a")])),
        (400, with(&[(":authority", "a"), ("host", "b")])),
        (400, with(&[("host", "a"), ("host", "a")])),
        (400, with(&[("host", "a b")])),
        (405, vec![(":method", "TRACE"), (":scheme", "http"), (":path", "/"), (":authority", "a")]),
        (501, vec![(":method", "CONNECT"), (":authority", "a:1")]),
        (431, with(&[("x", "y"); 30])),
    ];
    let mut stream = 1;
    for (expected, fields) in rejected {
        send(&mut tcp, &request(stream, &fields));
        let frame = next_frame(&mut tcp).expect("a response");
        assert_eq!((frame.stream, status(&frame)), (stream, expected), "{fields:?}");
        assert!(next_frame(&mut tcp).expect("the reason").is_last());
        stream += 2;
    }
    // Fields that only HTTP/1 allows are a stream error without a response.
    let reset = [
        with(&[(":authority", "a"), ("transfer-encoding", "chunked")]),
        with(&[(":authority", "a"), ("connection", "close")]),
        with(&[(":authority", "a"), ("content-length", "1")]),
        with(&[(":authority", "a"), ("Upper", "case")]),
        with(&[(":authority", "a"), ("x", "a\r\nb: c")]),
    ];
    for fields in reset {
        let mut tcp = open(&frontend, &[]);
        send(&mut tcp, &request(1, &fields));
        let frame = next_frame(&mut tcp);
        assert!(
            frame.as_ref().is_none_or(|frame| [RST_STREAM, GOAWAY].contains(&frame.kind)),
            "{fields:?}: {frame:?}"
        );
    }
    assert_eq!(handler.requests(), Vec::<String>::new());
}

#[test]
fn response_to_head_has_no_body() {
    let (frontend, _) = start(FrontendSettings::default());
    let mut tcp = open(&frontend, &[]);
    let head = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    send(&mut tcp, &request(1, &head));
    let frame = next_frame(&mut tcp).expect("a response");
    assert!(status(&frame) == 200 && frame.is_last(), "{frame:?}");
}

/// CVE-2023-44487: each request is cancelled at once.
#[test]
fn rapid_resets_end_the_connection() {
    let (frontend, handler) = start(FrontendSettings::default());
    let mut tcp = open(&frontend, &[]);
    let reset = |n: u32| [get(2 * n + 1, "/never"), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])].concat();
    let flood: Vec<u8> = (0..50_000).flat_map(reset).collect();
    // The connection may close before all is written.
    let _ = tcp.write_all(&flood);
    let mut error = None;
    while let Some(frame) = next_frame(&mut tcp) {
        if frame.kind == GOAWAY {
            error = Some(frame.error_code());
        }
    }
    assert!(error.is_none_or(|error| error == ENHANCE_YOUR_CALM), "{error:?}");
    wait_for_stats(&frontend, |stats| stats.connections == 0 && stats.requests_in_flight == 0);
    let handled = handler.requests().len();
    assert!(handled < 200, "{handled} of 50,000 reached the handler");
}

/// Each request is cancelled after it has reached the handler.
#[test]
fn slow_resets_end_the_connection() {
    let (frontend, _) = start(FrontendSettings::default());
    let mut tcp = open(&frontend, &[]);
    for n in 0..101 {
        send(&mut tcp, &get(2 * n + 1, "/never"));
        wait_for_stats(&frontend, |stats| stats.requests_received == u64::from(n) + 1);
        send(&mut tcp, &frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8]));
        wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0);
    }
    wait_for_stats(&frontend, |stats| stats.connections == 0 && stats.closed_for(CloseReason::Resets) == 1);
}

/// The client leaves one response unread, and reads others.
#[test]
fn unread_response_is_reset() {
    let (frontend, _) = start(FrontendSettings { write_stall_timeout: SHORT, ..FrontendSettings::default() });
    // A window of 0: no byte of a body may be sent.
    let mut tcp = open(&frontend, &[0, 4, 0, 0, 0, 0]);
    send(&mut tcp, &get(1, "/endless"));
    assert_eq!(status(&next_frame(&mut tcp).expect("a response")), 200);
    let frame = next_frame(&mut tcp).expect("a reset");
    assert_eq!((frame.kind, frame.stream), (RST_STREAM, 1));
    let stats = frontend.stats();
    assert_eq!((stats.closed_for(CloseReason::Stall), stats.connections), (1, 1));
    let head = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    send(&mut tcp, &request(3, &head));
    assert_eq!(status(&next_frame(&mut tcp).expect("a response")), 200);
}

#[test]
fn slow_response_is_reset() {
    let (frontend, _) =
        start(FrontendSettings { total_timeout: Some(LONGER), ..FrontendSettings::default() });
    let mut tcp = open(&frontend, &[]);
    send(&mut tcp, &[get(1, "/never"), get(3, "/")].concat());
    let frames: Vec<_> = (0..3).map(|_| next_frame(&mut tcp).expect("a response")).collect();
    let reset = frames.iter().find(|frame| frame.kind == RST_STREAM).expect("one stream is reset");
    assert_eq!(reset.stream, 1);
    assert_eq!(frontend.stats().closed_for(CloseReason::Total), 1);
}

#[test]
fn idle_connections_get_goaway() {
    let settings =
        FrontendSettings { keep_alive_timeout: SHORT, head_timeout: SHORT, ..FrontendSettings::default() };
    let (frontend, handler) = start(settings);
    let mut tcp = handler.hold_accepts(|| open(&frontend, &[]));
    assert_eq!(next_frame(&mut tcp).expect("a GOAWAY").kind, GOAWAY);
    wait_for_stats(&frontend, |stats| stats.connections == 0 && stats.closed_for(CloseReason::Head) == 1);
    let mut tcp = handler.hold_accepts(|| {
        let mut tcp = open(&frontend, &[]);
        send(&mut tcp, &get(1, "/"));
        tcp
    });
    assert_eq!(status(&next_frame(&mut tcp).expect("a response")), 200);
    assert_eq!(next_frame(&mut tcp).expect("a body").payload, b"hello");
    assert_eq!(next_frame(&mut tcp).expect("a GOAWAY").kind, GOAWAY);
    wait_for_stats(&frontend, |stats| stats.connections == 0 && stats.closed_for(CloseReason::Idle) == 1);
}

#[test]
fn drain_finishes_streams_after_goaway() {
    let (frontend, handler) = start(FrontendSettings::default());
    let (mut busy, mut idle) = (open(&frontend, &[]), open(&frontend, &[]));
    send(&mut idle, &get(1, "/"));
    assert_eq!(status(&next_frame(&mut idle).expect("a response")), 200);
    send(&mut busy, &get(1, "/held"));
    wait_for_stats(&frontend, |stats| stats.requests_received == 2 && stats.requests_in_flight == 1);
    let drained = thread::spawn(|| frontend.drain());
    assert_eq!(next_frame(&mut idle).expect("a body").payload, b"hello");
    while let Some(frame) = next_frame(&mut idle) {
        assert_eq!((frame.kind, frame.error_code()), (GOAWAY, 0));
    }
    assert_eq!(next_frame(&mut busy).expect("a GOAWAY").kind, GOAWAY);
    handler.release(1);
    let mut body = Vec::new();
    while let Some(frame) = next_frame(&mut busy) {
        if frame.kind == DATA {
            body.extend(frame.payload);
        }
    }
    assert_eq!(body, b"held");
    assert_eq!(drained.join().expect("the thread does not panic"), DrainSummary { finished: 1, aborted: 0 });
}

/// A client that goes on after the GOAWAY has its connection cut.
#[test]
fn client_that_goes_on_after_refusals_is_cut() {
    let (frontend, handler) = start(FrontendSettings { connections_max: 8, ..FrontendSettings::default() });
    let mut tcp = open(&frontend, &[]);
    for stream in (1..200).step_by(2) {
        send(&mut tcp, &get(stream, "/held"));
    }
    wait_for_stats(&frontend, |stats| stats.connections == 0);
    assert!(handler.requests().len() < 10, "{:?}", frontend.stats());
}

/// 64 KiB for each of eight connections; one client may have an eighth of that: three requests of more than 16 KiB.
#[test]
fn waiting_requests_of_one_client_take_a_bounded_share_of_memory() {
    let (frontend, handler) = start(FrontendSettings { connections_max: 8, ..FrontendSettings::default() });
    let mut clients = [open(&frontend, &[]), open(&frontend, &[])];
    for stream in [1, 3, 5] {
        send(&mut clients[0], &get(stream, "/held"));
    }
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 3);
    // On another connection of the same client, which ends: refused streams take memory, too.
    send(&mut clients[1], &get(1, "/refused"));
    let mut frames = [0; 2].map(|_| next_frame(&mut clients[1]).expect("a frame"));
    frames.sort_by_key(|frame| frame.kind);
    assert_eq!(frames.map(|frame| (frame.kind, frame.stream)), [(HEADERS, 1), (GOAWAY, 0)]);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 3);
    let stats = frontend.stats();
    assert_eq!((stats.requests_beyond_memory, stats.requests_malformed), (1, 0));
    handler.release(3);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0);
    let mut next = open(&frontend, &[]);
    send(&mut next, &get(1, "/accepted"));
    wait_for_stats(&frontend, |stats| (stats.requests_received, stats.requests_in_flight) == (5, 0));
    let requests = handler.requests();
    assert!(!requests.iter().any(|request| request.contains("/refused")), "{requests:?}");
    assert!(requests.last().is_some_and(|request| request.contains("/accepted")), "{requests:?}");
}
