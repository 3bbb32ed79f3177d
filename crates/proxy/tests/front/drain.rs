//! The end of a front.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use stockade_proxy::front::{Drained, Settings};

use crate::support::{SOON, connect, one, rest, start, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HELD: &[u8] = b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn the_idle_are_closed_and_the_busy_answered() {
    let (front, guide) = start(Settings::default());
    let address = front.addresses()[0];
    let (mut idle, mut silent, mut busy) = (connect(address), connect(address), connect(address));
    idle.write_all(GET).expect("it is listened to");
    assert_eq!(one(&mut idle).1, "hello");
    busy.write_all(HELD).expect("it is listened to");
    until(&front, |counts| counts.in_flight == 1 && counts.open == 3);
    let drained = thread::spawn(|| front.drain());
    assert_eq!(rest(&mut idle), "");
    assert_eq!(rest(&mut silent), "");
    // Nobody listens any more.
    assert!(TcpStream::connect(address).is_err());
    guide.gate.add_permits(1);
    let (head, body) = one(&mut busy);
    assert!(head.contains("connection: close") && body == "held", "{head}");
    assert_eq!(rest(&mut busy), "");
    assert_eq!(drained.join().expect("it does not fail"), Drained { finished: 1, cut: 0 });
}

#[test]
fn who_takes_too_long_is_cut() {
    let (front, _) = start(Settings { drain: SOON, ..Settings::default() });
    let mut busy = connect(front.addresses()[0]);
    busy.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    until(&front, |counts| counts.in_flight == 1);
    assert_eq!(front.drain(), Drained { finished: 0, cut: 1 });
    assert_eq!(rest(&mut busy), "");
}

/// Connections that the kernel has taken in and the front has not are answered, too.
#[test]
fn who_waits_at_the_door_is_answered() {
    let (front, guide) = start(Settings::default());
    let address = front.addresses()[0];
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut tcp = connect(address);
            tcp.write_all(GET).expect("it is listened to");
            tcp
        })
        .collect();
    let drained = front.drain();
    assert_eq!(drained.cut, 0);
    for tcp in &mut clients {
        assert_eq!(one(tcp).1, "hello");
    }
    assert_eq!(guide.seen().len(), 50);
}

#[test]
fn dropped_it_ends_at_once() {
    let (front, _) = start(Settings { drain: Duration::from_hours(1), ..Settings::default() });
    let mut busy = connect(front.addresses()[0]);
    busy.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    until(&front, |counts| counts.in_flight == 1);
    drop(front);
    assert_eq!(rest(&mut busy), "");
}

#[test]
fn its_port_is_free_afterwards_and_nobody_elses_before() {
    let (front, _) = start(Settings { threads: 3.try_into().expect("some"), ..Settings::default() });
    let address = front.addresses()[0];
    let second = Settings { listen: vec![address], ..Settings::default() };
    let refused = stockade_proxy::front::Front::start(second.clone(), &crate::support::Guide::new());
    let refused = refused.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|it| it.ends_with("somebody else does")), "{refused:?}");
    assert_eq!(front.drain(), Drained { finished: 0, cut: 0 });
    let (front, _) = start(second);
    let mut tcp = connect(address);
    tcp.write_all(GET).expect("it is listened to");
    assert_eq!(one(&mut tcp).1, "hello");
    drop(front);
    assert_eq!(tcp.read(&mut [0]).ok(), Some(0));
}
