//! Servers that misbehave: each fault is a class of its own, nothing hangs, nothing panics.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_socket_linger;
use stockade_load::{
    Options, Trust,
    drive::{Begins, Load, Observer, Progress, Stop},
    sample::{Class, Sample},
    summary::Summary,
};

use super::stub::{answering, closed, load, ok, run, server};

/// Reads until the client has nothing more to say for now.
fn hear(connection: &mut TcpStream) {
    let _ = connection.read(&mut [0; 4_096]);
}

/// Waits until the client has gone.
fn hold(mut connection: TcpStream) {
    while connection.read(&mut [0; 4_096]).is_ok_and(|read| read > 0) {}
}

/// Ten requests by two users, each of which fails in this way.
fn fails(address: SocketAddr, class: Class, options: Options) -> Summary {
    let load = Load { options, ..load(&format!("http://{address}/"), closed(2, 10)) };
    let summary = run(&load);
    assert_eq!(summary.measured.of(class), 10, "{class:?}: {:?}", summary.measured.failures);
    assert_eq!((summary.measured.requests(), summary.measured.failed()), (10, 10));
    assert_eq!(summary.measured.times.response.count(), 0, "no answer has no response time");
    assert_eq!(summary.measured.errors.len(), 1, "{:?}", summary.measured.errors);
    summary
}

fn patient() -> Options {
    Options { timeout: Duration::from_secs(20), ..Options::default() }
}

fn impatient() -> Options {
    Options { timeout: Duration::from_millis(50), ..Options::default() }
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let began = Instant::now();
    fails(server(hold), Class::Timeout, impatient());
    // Five requests of each of two users, one after the other.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(250), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_server_that_stops_within_a_body_or_drips_it_is_given_up_in_time() {
    for first in ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it", "HTTP/1.1 20"] {
        let stops = server(move |mut connection| {
            hear(&mut connection);
            let _ = connection.write_all(first.as_bytes());
            hold(connection);
        });
        fails(stops, Class::Timeout, impatient());
    }
    let drips = server(|mut connection| {
        hear(&mut connection);
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while connection.write_all(b".").is_ok() {}
    });
    fails(drips, Class::Timeout, impatient());
}

#[test]
fn connections_that_break_are_told_apart() {
    let resets = server(|mut connection| {
        hear(&mut connection);
        set_socket_linger(&connection, Some(Duration::ZERO)).expect("a socket");
    });
    fails(resets, Class::Reset, patient());
    let closes = server(|mut connection| hear(&mut connection));
    fails(closes, Class::Closed, patient());
    let truncates = server(|mut connection| {
        hear(&mut connection);
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it");
    });
    let summary = fails(truncates, Class::Truncated, patient());
    assert_eq!(summary.measured.errors, ["answer cut short: 90 bytes short of its Content-Length"]);
}

#[test]
fn what_is_no_http_is_told_as_such() {
    for garbage in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\0\0\0\x15\x03", b"HTTP/1.1 abc\r\n\r\n"] {
        let babbles = server(move |mut connection| {
            hear(&mut connection);
            let _ = connection.write_all(garbage);
            hold(connection);
        });
        fails(babbles, Class::Malformed, patient());
    }
}

#[test]
fn a_head_without_end_is_not_kept() {
    // 100 MiB, as one header and as many.
    for line in ["x", "A: b\r\n"] {
        let talks = server(move |mut connection| {
            hear(&mut connection);
            let piece = line.repeat((64 << 10) / line.len());
            let mut left = (100 << 20) / piece.len();
            if connection.write_all(b"HTTP/1.1 200 OK\r\nA: ").is_err() {
                return;
            }
            while left > 0 && connection.write_all(piece.as_bytes()).is_ok() {
                left -= 1;
            }
        });
        fails(talks, Class::HeadTooLarge, patient());
    }
}

#[test]
fn nobody_there_is_refused_and_no_name_is_no_address() {
    // Bound and let go: nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let summary = fails(nobody, Class::Refused, patient());
    assert_eq!(summary.measured.errors, [format!("connection refused: {nobody}")]);
    let summary = run(&load("http://no-such-host.invalid/", closed(2, 10)));
    assert_eq!(summary.measured.of(Class::Dns), 10, "{:?}", summary.measured.errors);
}

#[test]
fn encryption_that_fails_is_told_as_such() {
    let plain = server(|mut connection| {
        hear(&mut connection);
        let _ = connection.write_all(&ok("not encrypted"));
        hold(connection);
    });
    let options = Options { trust: Trust::Everybody, ..patient() };
    let summary = run(&Load { options, ..load(&format!("https://{plain}/"), closed(2, 10)) });
    assert_eq!(summary.measured.of(Class::Tls), 10, "{:?}", summary.measured.errors);
}

#[test]
fn a_path_that_is_no_socket_cannot_be_connected_to() {
    let options = Options { unix: Some("/nonexistent/socket".into()), ..patient() };
    let summary = run(&Load { options, ..load("http://localhost/", closed(2, 10)) });
    assert_eq!(summary.measured.of(Class::Unreachable), 10, "{:?}", summary.measured.errors);
}

#[test]
fn what_was_under_way_at_the_end_of_the_drain_is_cut_off() {
    let load = Load {
        drain: Duration::from_millis(100),
        ..load(&format!("http://{}/", server(hold)), closed(3, 3))
    };
    let load = Load { plan: super::pacing::evenly("300/s", Duration::from_millis(10)), ..load };
    let began = Instant::now();
    let summary = run(&load);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(summary.measured.of(Class::CutOff), 3, "{:?}", summary.measured.failures);
    assert_eq!((summary.in_flight_at_end, summary.measured.requests()), (3, 3));
}

/// Stops the load at its first sample.
struct Impatient(Stop);

impl Observer for Impatient {
    fn begins(&mut self, _: Begins) {}
    fn second(&mut self, _: &Progress<'_>) {}
    fn sample(&mut self, _: &Sample) -> std::io::Result<()> {
        self.0.request();
        Ok(())
    }
}

#[test]
fn who_stops_a_load_gets_what_was_measured() {
    let address = answering(|_| ok("hello"));
    let load = Load { tells_samples: true, ..load(&format!("http://{address}/"), closed(4, 1_000_000_000)) };
    let stop = Stop::default();
    let ran = load.run(&mut Impatient(stop.clone()), &stop).unwrap();
    assert!(ran.was_stopped);
    assert!(ran.summary.measured.successes > 0);
}

#[test]
fn samples_that_cannot_be_written_end_it() {
    struct Full;
    impl Observer for Full {
        fn begins(&mut self, _: Begins) {}
        fn second(&mut self, _: &Progress<'_>) {}
        fn sample(&mut self, _: &Sample) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
    }
    let address = answering(|_| ok("hello"));
    let load = Load { tells_samples: true, ..load(&format!("http://{address}/"), closed(4, 1_000_000_000)) };
    let error = load.run(&mut Full, &Stop::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot write samples: "), "{error}");
}
