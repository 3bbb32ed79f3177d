//! HTTP/2, frame by frame.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use stockade_proxy::front::{Cut, Drained, Front, Settings};

use crate::support::{Guide, SOON, connect, start, until};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// What `RST_STREAM` says, or GOAWAY.
    fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    fn is_last(&self) -> bool {
        self.flags & 1 != 0
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short one").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short one");
        [&[length], text.as_bytes()].concat()
    };
    [vec![0], text(name), text(value)].concat()
}

/// A request without a body, as it is in the table of RFC 7541.
fn request(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(HEADERS, 5, stream, &fields)
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    request(stream, &[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")])
}

fn hello(front: &Front, settings: &[u8]) -> TcpStream {
    let mut tcp = connect(front.addresses()[0]);
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it is listened to");
    tcp.write_all(&frame(SETTINGS, 0, 0, settings)).expect("it is listened to");
    tcp
}

/// The next frame, but for those that say how the connection is.
fn next(tcp: &mut TcpStream) -> Option<Frame> {
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

/// The status, of those that the table has or that are written out.
fn status(frame: &Frame) -> u16 {
    assert_eq!(frame.kind, HEADERS, "{frame:?}");
    match frame.payload[0] {
        0x88 => 200,
        0x8c => 400,
        // A name of the table, digits in Huffman's code or plain.
        _ => decode(&frame.payload[1..]),
    }
}

fn decode(value: &[u8]) -> u16 {
    let (is_coded, length) = (value[0] & 128 != 0, usize::from(value[0] & 127));
    let bytes = &value[1..=length];
    if !is_coded {
        return std::str::from_utf8(bytes).expect("digits").parse().expect("a number");
    }
    // Digits 0 to 2 have five bits, 3 to 9 six.
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

fn send(tcp: &mut TcpStream, bytes: &[u8]) {
    tcp.write_all(bytes).expect("it is listened to");
}

#[test]
fn answers_those_who_know() {
    let (front, guide) = start(Settings::default());
    let mut tcp = hello(&front, &[]);
    send(&mut tcp, &[get(1, "/one"), get(3, "/large-10")].concat());
    let mut bodies = Vec::new();
    while bodies.len() < 2 {
        let frame = next(&mut tcp).expect("an answer");
        match frame.kind {
            HEADERS => assert_eq!(status(&frame), 200),
            _ => bodies.push((frame.stream, frame.payload)),
        }
    }
    bodies.sort();
    assert_eq!(bodies, [(1, b"hello".to_vec()), (3, b"xxxxxxxxxx".to_vec())]);
    assert_eq!(guide.seen(), ["GET http://a/one 0", "GET http://a/large-10 0"]);
    // A body, in two frames.
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let fields: Vec<u8> = post.iter().flat_map(|(name, value)| field(name, value)).collect();
    send(
        &mut tcp,
        &[frame(HEADERS, 4, 5, &fields), frame(DATA, 0, 5, b"ab"), frame(DATA, 1, 5, b"cd")].concat(),
    );
    assert_eq!(status(&next(&mut tcp).expect("an answer")), 200);
    assert_eq!(next(&mut tcp).expect("a body").payload, b"abcd");
    // A preface in pieces.
    let mut tcp = connect(front.addresses()[0]);
    tcp.set_nodelay(true).expect("an option");
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        send(&mut tcp, &[*byte]);
    }
    send(&mut tcp, &[frame(SETTINGS, 0, 0, &[]), get(1, "/")].concat());
    assert_eq!(status(&next(&mut tcp).expect("an answer")), 200);
}

#[test]
fn what_is_malformed_is_refused() {
    let (front, guide) = start(Settings { headers_max: 20, ..Settings::default() });
    let mut tcp = hello(&front, &[]);
    let with = |more: &[(&'static str, &'static str)]| {
        [&[(":method", "GET"), (":scheme", "http"), (":path", "/bad")], more].concat()
    };
    let told = [
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
    for (expected, fields) in told {
        send(&mut tcp, &request(stream, &fields));
        let frame = next(&mut tcp).expect("an answer");
        assert_eq!((frame.stream, status(&frame)), (stream, expected), "{fields:?}");
        assert!(next(&mut tcp).expect("why").is_last());
        stream += 2;
    }
    // What is of HTTP/1 only is an error of the stream, and nothing is answered.
    let reset = [
        with(&[(":authority", "a"), ("transfer-encoding", "chunked")]),
        with(&[(":authority", "a"), ("connection", "close")]),
        with(&[(":authority", "a"), ("content-length", "1")]),
        with(&[(":authority", "a"), ("Upper", "case")]),
        with(&[(":authority", "a"), ("x", "a\r\nb: c")]),
    ];
    for fields in reset {
        let mut tcp = hello(&front, &[]);
        send(&mut tcp, &request(1, &fields));
        let frame = next(&mut tcp);
        assert!(
            frame.as_ref().is_none_or(|it| [RST_STREAM, GOAWAY].contains(&it.kind)),
            "{fields:?}: {frame:?}"
        );
    }
    assert_eq!(guide.seen(), Vec::<String>::new());
}

#[test]
fn an_answer_to_head_has_no_body() {
    let (front, _) = start(Settings::default());
    let mut tcp = hello(&front, &[]);
    let head = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    send(&mut tcp, &request(1, &head));
    let frame = next(&mut tcp).expect("an answer");
    assert!(status(&frame) == 200 && frame.is_last(), "{frame:?}");
}

/// CVE-2023-44487: requests that are given up as soon as they are made.
#[test]
fn rapid_resets_end_the_connection() {
    let (front, guide) = start(Settings::default());
    let mut tcp = hello(&front, &[]);
    let reset = |n: u32| [get(2 * n + 1, "/never"), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])].concat();
    let flood: Vec<u8> = (0..50_000).flat_map(reset).collect();
    // It may be closed before it has said everything.
    let _ = tcp.write_all(&flood);
    let mut said = None;
    while let Some(frame) = next(&mut tcp) {
        if frame.kind == GOAWAY {
            said = Some(frame.error());
        }
    }
    assert!(said.is_none_or(|error| error == ENHANCE_YOUR_CALM), "{said:?}");
    until(&front, |counts| counts.open == 0 && counts.in_flight == 0);
    let asked = guide.seen().len();
    assert!(asked < 200, "{asked} of 50,000 have begun");
}

/// The same by somebody who waits until each has begun.
#[test]
fn patient_resets_end_the_connection_too() {
    let (front, _) = start(Settings::default());
    let mut tcp = hello(&front, &[]);
    for n in 0..101 {
        send(&mut tcp, &get(2 * n + 1, "/never"));
        until(&front, |counts| counts.requests == u64::from(n) + 1);
        send(&mut tcp, &frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8]));
        until(&front, |counts| counts.in_flight == 0);
    }
    until(&front, |counts| counts.open == 0 && counts.cut_for(Cut::Resets) == 1);
}

/// One that lets an answer stand, and takes others.
#[test]
fn an_answer_that_nobody_reads_is_reset() {
    let (front, _) = start(Settings { write_stall_timeout: SOON, ..Settings::default() });
    // No window: nothing of a body may be sent.
    let mut tcp = hello(&front, &[0, 4, 0, 0, 0, 0]);
    send(&mut tcp, &get(1, "/endless"));
    assert_eq!(status(&next(&mut tcp).expect("an answer")), 200);
    let frame = next(&mut tcp).expect("its end");
    assert_eq!((frame.kind, frame.stream), (RST_STREAM, 1));
    let counts = front.counts();
    assert_eq!((counts.cut_for(Cut::Stall), counts.open), (1, 1));
    let head = [(":method", "HEAD"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    send(&mut tcp, &request(3, &head));
    assert_eq!(status(&next(&mut tcp).expect("an answer")), 200);
}

#[test]
fn an_answer_that_takes_too_long_is_reset() {
    let (front, _) = start(Settings { total_timeout: Some(SOON), ..Settings::default() });
    let mut tcp = hello(&front, &[]);
    send(&mut tcp, &[get(1, "/never"), get(3, "/")].concat());
    let frames: Vec<_> = (0..3).map(|_| next(&mut tcp).expect("an answer")).collect();
    let reset = frames.iter().find(|frame| frame.kind == RST_STREAM).expect("one was reset");
    assert_eq!(reset.stream, 1);
    assert_eq!(front.counts().cut_for(Cut::Total), 1);
}

#[test]
fn the_idle_and_the_silent_are_told_to_go() {
    let settings = Settings { keep_alive: SOON, head_timeout: SOON, ..Settings::default() };
    let (front, _) = start(settings);
    let mut tcp = hello(&front, &[]);
    assert_eq!(next(&mut tcp).expect("the end").kind, GOAWAY);
    until(&front, |counts| counts.open == 0 && counts.cut_for(Cut::Head) == 1);
    let mut tcp = hello(&front, &[]);
    send(&mut tcp, &get(1, "/"));
    assert_eq!(status(&next(&mut tcp).expect("an answer")), 200);
    assert_eq!(next(&mut tcp).expect("a body").payload, b"hello");
    assert_eq!(next(&mut tcp).expect("the end").kind, GOAWAY);
    until(&front, |counts| counts.open == 0 && counts.cut_for(Cut::Idle) == 1);
}

#[test]
fn what_was_asked_is_answered_before_the_end() {
    let (front, guide): (Front, Guide) = start(Settings::default());
    let (mut busy, mut idle) = (hello(&front, &[]), hello(&front, &[]));
    send(&mut idle, &get(1, "/"));
    assert_eq!(status(&next(&mut idle).expect("an answer")), 200);
    send(&mut busy, &get(1, "/held"));
    until(&front, |counts| counts.requests == 2 && counts.in_flight == 1);
    let drained = thread::spawn(|| front.drain());
    assert_eq!(next(&mut idle).expect("a body").payload, b"hello");
    while let Some(frame) = next(&mut idle) {
        assert_eq!((frame.kind, frame.error()), (GOAWAY, 0));
    }
    assert_eq!(next(&mut busy).expect("a warning").kind, GOAWAY);
    guide.gate.add_permits(1);
    let mut body = Vec::new();
    while let Some(frame) = next(&mut busy) {
        if frame.kind == DATA {
            body.extend(frame.payload);
        }
    }
    assert_eq!(body, b"held");
    assert_eq!(drained.join().expect("it does not fail"), Drained { finished: 1, cut: 0 });
}
