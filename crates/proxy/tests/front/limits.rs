//! How many may come.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use stockade_proxy::front::{Cut, Front, Settings};

use crate::support::{SOON, connect, one, rest, start, status, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn ask(front: &Front) -> TcpStream {
    let mut tcp = connect(front.addresses()[0]);
    tcp.write_all(GET).expect("it is listened to");
    assert_eq!(one(&mut tcp).1, "hello");
    tcp
}

#[test]
fn the_longest_idle_leaves_for_the_sake_of_others() {
    let (front, _) = start(Settings { connections_max: 3, ..Settings::default() });
    let (mut first, mut second, mut third) = (ask(&front), ask(&front), ask(&front));
    // The first is not the longest idle any more.
    first.write_all(GET).expect("it is listened to");
    assert_eq!(one(&mut first).1, "hello");
    let mut fourth = ask(&front);
    assert_eq!(second.read(&mut [0]).ok(), Some(0));
    for tcp in [&mut first, &mut third, &mut fourth] {
        tcp.write_all(GET).expect("it is listened to");
        assert_eq!(one(tcp).1, "hello");
    }
    let counts = front.counts();
    assert_eq!((counts.evicted, counts.refused, counts.open), (1, 0, 3));
}

#[test]
fn where_all_are_busy_new_ones_are_told() {
    let (front, guide) = start(Settings { connections_max: 2, ..Settings::default() });
    let mut busy: Vec<_> = (0..2).map(|_| connect(front.addresses()[0])).collect();
    for tcp in &mut busy {
        tcp.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    }
    until(&front, |counts| counts.in_flight == 2);
    let mut refused = connect(front.addresses()[0]);
    refused.write_all(GET).expect("it is listened to");
    let answer = rest(&mut refused);
    assert!(status(&answer) == "503" && answer.contains("retry-after: 1"), "{answer}");
    assert_eq!((front.counts().refused, front.counts().evicted), (1, 0));
    guide.gate.add_permits(2);
    for tcp in &mut busy {
        assert_eq!(one(tcp).1, "held");
    }
    ask(&front);
    until(&front, |counts| counts.open <= 2);
}

/// Over several threads, too: idle connections of other threads leave.
#[test]
fn there_are_never_more_than_that() {
    let threads = 2.try_into().expect("some");
    let (front, _) = start(Settings { connections_max: 4, threads, ..Settings::default() });
    let clients: Vec<_> = (0..40).map(|_| ask(&front)).collect();
    until(&front, |counts| counts.open <= 4);
    assert_eq!((front.counts().refused, front.counts().evicted), (0, 36));
    drop(clients);
    until(&front, |counts| counts.open == 0);
}

#[test]
fn a_thousand_that_never_finish_a_head_harm_nobody() {
    let (front, guide) =
        start(Settings { connections_max: 1_001, head_timeout: SOON * 20, ..Settings::default() });
    let slow = |_| {
        let mut tcp = connect(front.addresses()[0]);
        tcp.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\nX: ").expect("it is listened to");
        tcp
    };
    let slow: Vec<_> = (0..1_000).map(slow).collect();
    until(&front, |counts| counts.open == 1_000);
    let mut busy = ask(&front);
    busy.write_all(GET).expect("it is listened to");
    assert_eq!(one(&mut busy).1, "hello");
    busy.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    until(&front, |counts| counts.in_flight == 1);
    // They are not idle: one more is refused, until they have been cut.
    assert_eq!(status(&rest(&mut connect(front.addresses()[0]))), "503");
    until(&front, |counts| counts.cut_for(Cut::Head) == 1_000);
    for mut tcp in slow {
        assert_eq!(status(&rest(&mut tcp)), "408");
    }
    guide.gate.add_permits(1);
    assert_eq!(one(&mut busy).1, "held");
    assert!(guide.seen().iter().all(|line| !line.contains("slow")));
}

/// Who has connected and says nothing is idle.
#[test]
fn a_thousand_that_say_nothing_give_way() {
    let (front, _) = start(Settings { connections_max: 100, ..Settings::default() });
    let silent: Vec<_> = (0..1_000).map(|_| connect(front.addresses()[0])).collect();
    until(&front, |counts| counts.connections == 1_000 && counts.open <= 100);
    ask(&front);
    assert_eq!((front.counts().refused, front.counts().evicted), (0, 901));
    drop(silent);
}
