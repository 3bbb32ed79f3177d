//! Requests that are refused: `corpus.txt`, and those that would be too long to write down.

use std::{fmt::Write as _, io::Write};

use stockade_proxy::front::Settings;

use crate::support::{connect, rest, start, status, talk};

const CORPUS: &str = include_str!("corpus.txt");

struct Case {
    status: &'static str,
    name: &'static str,
    bytes: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let blocks = CORPUS.split("\n== ").skip(1);
    let parse = |block: &'static str| {
        let (title, text) = block.split_once('\n').expect("a title");
        let (status, name) = title.split_once(": ").expect("a status and a name");
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
                u8::from_str_radix(&digits, 16).expect("two digits")
            }
            (char, None) => u8::try_from(char).expect("a byte"),
            escape => panic!("{escape:?}"),
        };
        bytes.push(byte);
    }
    bytes
}

#[test]
fn what_is_ambiguous_is_refused() {
    let (front, guide) = start(Settings::default());
    let (cases, mut wrong) = (cases(), String::new());
    assert!(cases.len() > 80, "{}", cases.len());
    for Case { status: expected, name, bytes } in &cases {
        let answer = talk(front.addresses()[0], bytes);
        let answers = answer.matches("HTTP/1.").count();
        let told = if answer.is_empty() { "000" } else { status(&answer) };
        if told != *expected || answers > 1 || answer.contains("smuggled") {
            writeln!(wrong, "{name}: expected {expected}, was told {answer:?}").expect("memory");
        }
        if told != "000" && !answer.contains("connection: close") {
            writeln!(wrong, "{name}: it was not told that the connection is closed").expect("memory");
        }
    }
    assert_eq!(wrong, "");
    let seen = guide.seen();
    assert!(seen.iter().all(|line| !line.contains("smuggled")), "{seen:?}");
    // Only bodies can turn out to be wrong when the handler has been asked already.
    assert!(seen.iter().all(|line| line.ends_with("malformed or broke off")), "{seen:?}");
    assert_eq!(front.counts().malformed + seen.len() as u64, cases.len() as u64);
}

/// The same, byte by byte: nothing depends on what arrives together.
#[test]
fn it_is_refused_in_pieces_too() {
    let (front, guide) = start(Settings::default());
    for Case { status: expected, name, bytes } in cases() {
        let mut tcp = connect(front.addresses()[0]);
        tcp.set_nodelay(true).expect("an option");
        for byte in bytes {
            if tcp.write_all(&[byte]).is_err() {
                break;
            }
        }
        let mut answer = Vec::new();
        // What it says after it was refused may cost it the answer, at worst.
        let _ = std::io::Read::read_to_end(&mut tcp, &mut answer);
        let answer = String::from_utf8(answer).expect("it is text");
        assert!(answer.is_empty() || status(&answer) == expected, "{name}: {expected}, {answer:?}");
        assert!(answer.matches("HTTP/1.").count() <= 1, "{name}: {answer:?}");
    }
    assert!(guide.seen().iter().all(|line| !line.contains("smuggled")), "{:?}", guide.seen());
}

#[test]
fn huge_heads_are_refused() {
    let settings = Settings { head_bytes_max: 10_000, headers_max: 20, ..Settings::default() };
    let (front, guide) = start(settings);
    let address = front.addresses()[0];
    let refused = |bytes: String| status(&talk(address, bytes.as_bytes())).to_owned();
    let value = "x".repeat(20_000);
    assert_eq!(refused(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n")), "431");
    assert_eq!(refused(format!("GET /{value} HTTP/1.1\r\nHost: a\r\n\r\n")), "431");
    assert_eq!(refused(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(30))), "431");
    assert_eq!(refused(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(300))), "431");
    assert_eq!(refused("\r\n".repeat(20_000)), "431");
    drop(front);
    let (front, _) = start(Settings { head_bytes_max: 200_000, ..Settings::default() });
    let long = "x".repeat(70_000);
    let answer = talk(front.addresses()[0], format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    assert_eq!(status(&answer), "414");
    assert_eq!(guide.seen(), Vec::<String>::new());
}

#[test]
fn bodies_that_are_too_large_are_refused_by_the_handler() {
    let (front, guide) = start(Settings { body_bytes_max: 10, ..Settings::default() });
    let address = front.addresses()[0];
    let sized = "POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
    let answer = talk(address, sized.as_bytes());
    assert_eq!(status(&answer), "413", "before any of it has come: {answer}");
    let chunked =
        "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\nabcde\r\n";
    assert_eq!(status(&talk(address, chunked.as_bytes())), "413");
    let fits = "POST /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789";
    assert!(talk(address, fits.as_bytes()).ends_with("\r\n\r\n0123456789"));
    let too_large = "the request's body is too large";
    assert_eq!(
        guide.seen(),
        [format!("POST /s {too_large}"), format!("POST /c {too_large}"), "POST /f 10".to_owned()]
    );
}

/// A client that is told why, though it had more to say: what it sent is read before the connection is closed.
#[test]
fn the_refused_learn_why() {
    let (front, _) = start(Settings::default());
    let mut tcp = connect(front.addresses()[0]);
    tcp.write_all(b"POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: 500000\r\n\r\n")
        .expect("it is listened to");
    tcp.write_all(&vec![b'x'; 500_000]).expect("it is listened to");
    assert_eq!(status(&rest(&mut tcp)), "400");
}
