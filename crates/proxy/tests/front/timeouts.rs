//! Each bound on time, as short as a test can have it: the front closes the connection, the client waits for that.

use std::{io::Write, net::TcpStream};

use stockade_proxy::front::{Cut, Front, Settings};

use crate::support::{SOON, connect, one, rest, start, status, until};

/// A front on which one bound is met soon.
fn soon(change: impl FnOnce(&mut Settings)) -> (Front, TcpStream) {
    let mut settings = Settings::default();
    change(&mut settings);
    let (front, _) = start(settings);
    let tcp = connect(front.addresses()[0]);
    (front, tcp)
}

fn assert_cut(front: &Front, cut: Cut) {
    until(front, |counts| counts.cut_for(cut) == 1 && counts.open == 0 && counts.in_flight == 0);
    let cuts: Vec<_> = Cut::ALL.iter().filter(|cut| front.counts().cut_for(**cut) > 0).collect();
    assert_eq!(cuts, [&cut]);
}

#[test]
fn who_says_nothing_at_all() {
    let (front, mut tcp) = soon(|settings| settings.head_timeout = SOON);
    assert_eq!(rest(&mut tcp), "");
    assert_cut(&front, Cut::Head);
}

#[test]
fn who_does_not_say_enough() {
    let (front, mut tcp) = soon(|settings| settings.head_timeout = SOON);
    tcp.write_all(b"GET / HTTP/1.1\r\nHo").expect("it is listened to");
    assert_eq!(status(&rest(&mut tcp)), "408");
    assert_cut(&front, Cut::Head);
}

#[test]
fn who_says_it_slowly() {
    let (front, mut tcp) = soon(|settings| settings.head_timeout = SOON);
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ").expect("it is listened to");
    // As fast as it can, which is not fast enough: the head has no end.
    tcp.set_nodelay(true).expect("an option");
    while tcp.write_all(b"x").is_ok() && front.counts().cut_for(Cut::Head) == 0 {
        std::thread::yield_now();
    }
    assert_cut(&front, Cut::Head);
}

#[test]
fn whose_second_head_does_not_end() {
    let (front, mut tcp) = soon(|settings| settings.head_timeout = SOON);
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET").expect("it is listened to");
    assert_eq!(one(&mut tcp).1, "hello");
    assert_eq!(status(&rest(&mut tcp)), "408");
    assert_cut(&front, Cut::Head);
}

#[test]
fn who_asks_nothing_more() {
    let (front, mut tcp) = soon(|settings| settings.keep_alive = SOON);
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    assert_eq!(one(&mut tcp).1, "hello");
    assert_eq!(rest(&mut tcp), "");
    assert_cut(&front, Cut::Idle);
}

#[test]
fn whose_body_stops() {
    let (front, mut tcp) = soon(|settings| settings.body_idle_timeout = SOON);
    tcp.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").expect("it is listened to");
    assert_eq!(status(&rest(&mut tcp)), "408");
    assert_cut(&front, Cut::Body);
}

#[test]
fn whose_body_has_no_end() {
    let (front, mut tcp) = soon(|settings| settings.body_timeout = SOON);
    tcp.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .expect("it is listened to");
    tcp.set_nodelay(true).expect("an option");
    while tcp.write_all(b"1\r\nx\r\n").is_ok() && front.counts().cut_for(Cut::Body) == 0 {
        std::thread::yield_now();
    }
    assert_cut(&front, Cut::Body);
}

#[test]
fn who_does_not_read() {
    let (front, mut tcp) = soon(|settings| settings.write_stall_timeout = SOON);
    tcp.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    assert_cut(&front, Cut::Stall);
}

#[test]
fn who_reads_is_not_cut() {
    let (front, mut tcp) = soon(|settings| settings.write_stall_timeout = SOON);
    tcp.write_all(b"GET /large-40000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it is listened to");
    assert!(rest(&mut tcp).len() > 40_000_000);
    until(&front, |counts| counts.open == 0);
    assert_eq!(front.counts().cut_for(Cut::Stall), 0);
}

#[test]
fn whose_answer_takes_too_long() {
    let (front, mut tcp) = soon(|settings| settings.total_timeout = Some(SOON));
    tcp.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    assert_eq!(rest(&mut tcp), "");
    assert_cut(&front, Cut::Total);
}

/// A handler has as long as it takes, whatever is short for clients.
#[test]
fn who_waits_for_the_handler_is_not_cut() {
    let settings =
        Settings { keep_alive: SOON, head_timeout: SOON, write_stall_timeout: SOON, ..Settings::default() };
    let (front, guide) = start(settings);
    let mut tcp = connect(front.addresses()[0]);
    tcp.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    let mut other = connect(front.addresses()[0]);
    // It was cut after the first had waited as long.
    assert_eq!(rest(&mut other), "");
    guide.gate.add_permits(1);
    assert_eq!(one(&mut tcp).1, "held");
}
