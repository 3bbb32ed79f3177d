//! HTTP/1.1 and HTTP/1.0 as clients speak them.

use std::io::Write;

use stockade_proxy::front::Settings;

use crate::support::{connect, one, rest, start, status, talk, until};

#[test]
fn answers_and_stays() {
    let (front, guide) = start(Settings::default());
    let mut tcp = connect(front.addresses()[0]);
    for n in 0..3 {
        write!(tcp, "GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
        let (head, body) = one(&mut tcp);
        assert_eq!((status(&head), body.as_str()), ("200", "hello"));
        assert!(!head.contains("connection:") && head.contains("date: "), "{head}");
    }
    assert_eq!(guide.seen(), ["GET /0 0", "GET /1 0", "GET /2 0"]);
    let counts = front.counts();
    assert_eq!((counts.connections, counts.open, counts.requests), (1, 1, 3));
    drop(tcp);
    until(&front, |counts| counts.open == 0 && counts.in_flight == 0);
}

#[test]
fn answers_what_was_asked_at_once_in_order() {
    let (front, guide) = start(Settings::default());
    let one = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let two =
        "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\ndef\r\n0\r\nT: x\r\n\r\n";
    let last = "GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answers = talk(front.addresses()[0], format!("{one}{two}\r\n{last}GET /d HTTP/1.1\r\n").as_bytes());
    assert_eq!(guide.seen(), ["POST /a 3", "POST /b 3", "GET /c 0"]);
    let bodies: Vec<_> = answers.split("\r\n\r\n").skip(1).map(|it| it.split("HTTP").next()).collect();
    assert_eq!(bodies, [Some("abc"), Some("def"), Some("hello")]);
}

#[test]
fn speaks_http_1_0() {
    let (front, _) = start(Settings::default());
    let address = front.addresses()[0];
    // It closes, and nothing is chunked.
    let answer = talk(address, b"GET /unsized HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("\r\n\r\nunsized"), "{answer}");
    assert!(!answer.contains("chunked"), "{answer}");
    // Unless it is asked to stay.
    let mut tcp = connect(address);
    for _ in 0..2 {
        tcp.write_all(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").expect("it is listened to");
        assert!(one(&mut tcp).0.contains("connection: keep-alive"));
    }
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it is listened to");
    assert!(rest(&mut tcp).ends_with("hello"));
    // HTTP/1.1 is chunked where nobody knows the length.
    let answer = talk(address, b"GET /unsized HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(
        answer.contains("transfer-encoding: chunked") && answer.contains("7\r\nunsized\r\n0\r\n"),
        "{answer}"
    );
}

#[test]
fn says_to_go_on_only_when_the_body_is_wanted() {
    let (front, _) = start(Settings::default());
    let mut tcp = connect(front.addresses()[0]);
    let head = "HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    write!(tcp, "POST / {head}").expect("it is listened to");
    assert!(one(&mut tcp).0.starts_with("HTTP/1.1 100"));
    tcp.write_all(b"ok").expect("it is listened to");
    assert_eq!(one(&mut tcp).1, "ok");
    write!(tcp, "POST /deaf {head}").expect("it is listened to");
    assert!(rest(&mut tcp).starts_with("HTTP/1.1 200"));
}

#[test]
fn an_answer_to_head_has_no_body() {
    let (front, _) = start(Settings::default());
    let answer = talk(front.addresses()[0], b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("content-length: 5\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn large_answers_arrive_whole() {
    let (front, _) = start(Settings::default());
    let asked = b"GET /large-5000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = talk(front.addresses()[0], asked);
    assert_eq!(answer.split_once("\r\n\r\n").map(|(_, body)| body.len()), Some(5_000_000));
}

#[test]
fn a_handler_that_fails_harms_nobody_else() {
    let (front, _) = start(Settings::default());
    let address = front.addresses()[0];
    assert_eq!(talk(address, b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    assert!(
        talk(address, b"GET /switch HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 502")
    );
    let answer = talk(address, b"GET /peer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.ends_with(&format!("\r\n\r\n{address} false")), "{answer}");
    until(&front, |counts| counts.open == 0 && counts.in_flight == 0);
}

#[test]
fn a_client_that_hangs_up_is_given_up() {
    let (front, guide) = start(Settings::default());
    let mut tcp = connect(front.addresses()[0]);
    tcp.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    until(&front, |counts| counts.in_flight == 1);
    drop(tcp);
    until(&front, |counts| counts.in_flight == 0 && counts.open == 0);
    assert_eq!(guide.seen(), ["GET /never 0"]);
}
