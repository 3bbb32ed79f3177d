//! Rejected requests: those of `corpus.txt`, and generated ones that are too long for it.

use std::{fmt::Write as _, io::Write};

use stockade_http::frontend::FrontendSettings;

use crate::frontend::support::{connect, exchange, read_to_close, send, start, status};

const CORPUS: &str = include_str!("corpus.txt");

struct Case {
    status: &'static str,
    name: &'static str,
    bytes: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let blocks = CORPUS.split("\n== ").skip(1);
    let parse = |block: &'static str| {
        let (title, text) = block.split_once('\n').expect("a case has a title");
        let (status, name) = title.split_once(": ").expect("a title has a status and a name");
        Case { status, name, bytes: unescape(&text.replace('\n', "")) }
    };
    blocks.map(parse).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut chars) = (Vec::new(), text.chars());
    while let Some(char) = chars.next() {
        let byte = match (char, if char == '\\' { chars.next() } else { None }) {
            ('\\', Some('r')) => b'\r',
            ('\\', Some('n')) => b'\n',
            ('\\', Some('t')) => b'\t',
            ('\\', Some('0')) => 0,
            ('\\', Some('\\')) => b'\\',
            ('\\', Some('x')) => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).expect("two hexadecimal digits")
            }
            (char, None) => u8::try_from(char).expect("one byte"),
            escape => panic!("{escape:?}"),
        };
        bytes.push(byte);
    }
    bytes
}

#[test]
fn ambiguous_requests_are_rejected() {
    let (frontend, handler) = start(FrontendSettings::default());
    let (cases, mut failures) = (cases(), String::new());
    assert!(cases.len() > 80, "{}", cases.len());
    for Case { status: expected, name, bytes } in &cases {
        let response = exchange(frontend.addresses()[0], bytes);
        let responses = response.matches("HTTP/1.").count();
        let status = if response.is_empty() { "000" } else { status(&response) };
        if status != *expected || responses > 1 || response.contains("smuggled") {
            writeln!(failures, "{name}: expected {expected}, got {response:?}").expect("writes to memory");
        }
        if status != "000" && !response.contains("connection: close") {
            writeln!(failures, "{name}: the response lacks connection: close").expect("writes to memory");
        }
    }
    assert_eq!(failures, "");
    let requests = handler.requests();
    assert!(requests.iter().all(|line| !line.contains("smuggled")), "{requests:?}");
    // Only a malformed body reaches the handler: as an error.
    assert!(requests.iter().all(|line| line.ends_with("malformed or incomplete")), "{requests:?}");
    assert_eq!(frontend.stats().requests_malformed + requests.len() as u64, cases.len() as u64);
}

/// One byte at a time: the result does not depend on the boundaries of reads.
#[test]
fn ambiguous_requests_are_rejected_in_pieces() {
    let (frontend, handler) = start(FrontendSettings::default());
    for Case { status: expected, name, bytes } in cases() {
        let mut tcp = connect(frontend.addresses()[0]);
        tcp.set_nodelay(true).expect("a socket option");
        for byte in bytes {
            if tcp.write_all(&[byte]).is_err() {
                break;
            }
        }
        let mut response = Vec::new();
        // Bytes that the client writes after the rejection may cost it the response.
        let _ = std::io::Read::read_to_end(&mut tcp, &mut response);
        let response = String::from_utf8(response).expect("the response is text");
        assert!(response.is_empty() || status(&response) == expected, "{name}: {expected}, {response:?}");
        assert!(response.matches("HTTP/1.").count() <= 1, "{name}: {response:?}");
    }
    let requests = handler.requests();
    assert!(requests.iter().all(|line| !line.contains("smuggled")), "{requests:?}");
}

#[test]
fn huge_heads_are_rejected() {
    let settings =
        FrontendSettings { head_bytes_max: 10_000, headers_max: 20, ..FrontendSettings::default() };
    let (frontend, handler) = start(settings);
    let address = frontend.addresses()[0];
    let status_of = |bytes: String| status(&exchange(address, bytes.as_bytes())).to_owned();
    let value = "x".repeat(20_000);
    assert_eq!(status_of(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n")), "431");
    assert_eq!(status_of(format!("GET /{value} HTTP/1.1\r\nHost: a\r\n\r\n")), "431");
    assert_eq!(status_of(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(30))), "431");
    assert_eq!(status_of(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(300))), "431");
    assert_eq!(status_of("\r\n".repeat(20_000)), "431");
    drop(frontend);
    let (frontend, _) = start(FrontendSettings { head_bytes_max: 200_000, ..FrontendSettings::default() });
    let long = "x".repeat(70_000);
    let request = format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(status(&exchange(frontend.addresses()[0], request.as_bytes())), "414");
    assert_eq!(handler.requests(), Vec::<String>::new());
}

#[test]
fn oversized_body_is_an_error_for_the_handler() {
    let (frontend, handler) = start(FrontendSettings { body_bytes_max: 10, ..FrontendSettings::default() });
    let address = frontend.addresses()[0];
    let sized = "POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
    let response = exchange(address, sized.as_bytes());
    assert_eq!(status(&response), "413", "before any of the body has arrived: {response}");
    let chunked =
        "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\nabcde\r\n";
    assert_eq!(status(&exchange(address, chunked.as_bytes())), "413");
    let fits = "POST /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789";
    assert!(exchange(address, fits.as_bytes()).ends_with("\r\n\r\n0123456789"));
    let too_large = "the request body is too large";
    assert_eq!(
        handler.requests(),
        [format!("POST /s {too_large}"), format!("POST /c {too_large}"), "POST /f 10".to_owned()]
    );
}

/// The frontend reads what the client still sends before it closes the connection.
#[test]
fn rejected_client_reads_its_response() {
    let (frontend, _) = start(FrontendSettings::default());
    let mut tcp = connect(frontend.addresses()[0]);
    send(&mut tcp, b"POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: 500000\r\n\r\n");
    send(&mut tcp, &vec![b'x'; 500_000]);
    assert_eq!(status(&read_to_close(&mut tcp)), "400");
}
