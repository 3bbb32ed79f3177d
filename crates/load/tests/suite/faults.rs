//! Faulty servers: each fault has its own failure class.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt::set_socket_linger};
use stockade_load::{
    ClientOptions, Trust,
    generator::{CancellationToken, LoadProgress, LoadStart, LoadTest, Observer},
    plan::Plan,
    sample::{FailureClass, Sample},
    summary::Summary,
};

use super::stub::{HANG, closed, load, ok, responding, run, server};

/// Reads what the client sends first.
fn read_some(connection: &mut TcpStream) {
    let _ = connection.read(&mut [0; 4_096]);
}

/// Reads until the client closes the connection.
fn read_to_end(mut connection: TcpStream) {
    while connection.read(&mut [0; 4_096]).is_ok_and(|read| read > 0) {}
}

/// Sends ten requests; all fail with `class`.
fn assert_all_fail(address: SocketAddr, class: FailureClass, plan: Plan, options: ClientOptions) -> Summary {
    let load = LoadTest { options, ..load(&format!("http://{address}/"), plan) };
    let summary = run(&load);
    assert_eq!(summary.measured.failures_of(class), 10, "{class:?}: {:?}", summary.measured.failures);
    assert_eq!((summary.measured.requests(), summary.measured.failed()), (10, 10));
    assert_eq!(summary.measured.without_response(), 10);
    assert_eq!(summary.measured.times.response.count(), 0, "failures have no response time");
    assert_eq!(summary.measured.errors.len(), 1, "{:?}", summary.measured.errors);
    summary
}

/// On two connections.
fn assert_fails(address: SocketAddr, class: FailureClass) -> Summary {
    assert_all_fail(address, class, closed(2, 10), options())
}

/// On ten connections at once, after a timeout that is long enough to connect.
fn assert_times_out(address: SocketAddr) {
    let timeout = Duration::from_secs(1);
    let options = ClientOptions { timeout, ..options() };
    let start = Instant::now();
    assert_all_fail(address, FailureClass::Timeout, closed(10, 10), options);
    assert!((timeout..HANG).contains(&start.elapsed()), "{:?}", start.elapsed());
}

fn options() -> ClientOptions {
    ClientOptions { timeout: HANG, ..ClientOptions::default() }
}

#[test]
fn silent_server_times_out() {
    assert_times_out(server(read_to_end));
}

#[test]
fn stalled_and_endless_responses_time_out() {
    for start in ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it", "HTTP/1.1 20"] {
        let stalls = server(move |mut connection| {
            read_some(&mut connection);
            let _ = connection.write_all(start.as_bytes());
            read_to_end(connection);
        });
        assert_times_out(stalls);
    }
    let endless = server(|mut connection| {
        read_some(&mut connection);
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while connection.write_all(b".").is_ok() {}
    });
    assert_times_out(endless);
}

#[test]
fn reset_closed_and_truncated_have_their_own_class() {
    let resets = server(|mut connection| {
        read_some(&mut connection);
        set_socket_linger(&connection, Some(Duration::ZERO)).expect("a socket");
    });
    assert_fails(resets, FailureClass::Reset);
    let closes = server(|mut connection| read_some(&mut connection));
    assert_fails(closes, FailureClass::Closed);
    let truncates = server(|mut connection| {
        read_some(&mut connection);
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it");
    });
    let summary = assert_fails(truncates, FailureClass::Truncated);
    assert_eq!(summary.measured.errors, ["response cut short: 90 bytes short of its Content-Length"]);
}

#[test]
fn garbage_is_malformed() {
    for garbage in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\0\0\0\x15\x03", b"HTTP/1.1 abc\r\n\r\n"] {
        let sends_garbage = server(move |mut connection| {
            read_some(&mut connection);
            let _ = connection.write_all(garbage);
            read_to_end(connection);
        });
        assert_fails(sends_garbage, FailureClass::Malformed);
    }
}

#[test]
fn endless_head_is_not_stored() {
    // 100 MiB, as one header and as many headers.
    for line in ["x", "A: b\r\n"] {
        let endless = server(move |mut connection| {
            read_some(&mut connection);
            let chunk = line.repeat((64 << 10) / line.len());
            let mut left = (100 << 20) / chunk.len();
            if connection.write_all(b"HTTP/1.1 200 OK\r\nA: ").is_err() {
                return;
            }
            while left > 0 && connection.write_all(chunk.as_bytes()).is_ok() {
                left -= 1;
            }
        });
        assert_fails(endless, FailureClass::HeadTooLarge);
    }
}

#[test]
fn closed_port_is_refused_and_unknown_host_has_no_address() {
    // A bound socket that does not listen: no other process can take the port.
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address: SocketAddr = getsockname(&bound).unwrap().try_into().unwrap();
    let summary = assert_fails(address, FailureClass::Refused);
    assert_eq!(summary.measured.errors, [format!("connection refused: {address}")]);
    let summary = run(&load("http://no-such-host.invalid/", closed(2, 10)));
    assert_eq!(summary.measured.failures_of(FailureClass::Dns), 10, "{:?}", summary.measured.errors);
}

#[test]
fn plain_response_to_tls_fails_as_tls() {
    let plain = server(|mut connection| {
        read_some(&mut connection);
        let _ = connection.write_all(&ok("not encrypted"));
        read_to_end(connection);
    });
    let options = ClientOptions { trust: Trust::Insecure, ..options() };
    let summary = run(&LoadTest { options, ..load(&format!("https://{plain}/"), closed(2, 10)) });
    assert_eq!(summary.measured.failures_of(FailureClass::Tls), 10, "{:?}", summary.measured.errors);
}

#[test]
fn missing_unix_socket_is_unreachable() {
    let options = ClientOptions { unix_socket: Some("/nonexistent/socket".into()), ..options() };
    let summary = run(&LoadTest { options, ..load("http://localhost/", closed(2, 10)) });
    assert_eq!(summary.measured.failures_of(FailureClass::Unreachable), 10, "{:?}", summary.measured.errors);
}

#[test]
fn requests_in_flight_at_the_end_of_the_drain_are_cut_off() {
    let load = LoadTest {
        drain: Duration::from_millis(100),
        ..load(&format!("http://{}/", server(read_to_end)), closed(3, 3))
    };
    let load = LoadTest { plan: super::pacing::constant("300/s", Duration::from_millis(10)), ..load };
    let start = Instant::now();
    let summary = run(&load);
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    assert_eq!(summary.measured.failures_of(FailureClass::CutOff), 3, "{:?}", summary.measured.failures);
    assert_eq!((summary.in_flight_at_end, summary.measured.requests()), (3, 3));
}

/// Cancels the load at its first sample.
struct CancelAtFirstSample(CancellationToken);

impl Observer for CancelAtFirstSample {
    fn on_start(&mut self, _: LoadStart) {}
    fn on_second(&mut self, _: &LoadProgress<'_>) {}
    fn on_sample(&mut self, _: &Sample) -> std::io::Result<()> {
        self.0.cancel();
        Ok(())
    }
}

#[test]
fn cancelled_load_returns_what_was_measured() {
    let address = responding(|_| ok("hello"));
    let load =
        LoadTest { observes_samples: true, ..load(&format!("http://{address}/"), closed(4, 1_000_000_000)) };
    let cancel = CancellationToken::new();
    let run = load.run(&mut CancelAtFirstSample(cancel.clone()), &cancel).unwrap();
    assert!(run.end.was_cancelled);
    assert!(run.summary.measured.successes > 0);
}

#[test]
fn sample_that_cannot_be_written_ends_the_load() {
    struct Full;
    impl Observer for Full {
        fn on_start(&mut self, _: LoadStart) {}
        fn on_second(&mut self, _: &LoadProgress<'_>) {}
        fn on_sample(&mut self, _: &Sample) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
    }
    let address = responding(|_| ok("hello"));
    let load =
        LoadTest { observes_samples: true, ..load(&format!("http://{address}/"), closed(4, 1_000_000_000)) };
    let error = load.run(&mut Full, &CancellationToken::new()).unwrap_err();
    assert!(error.to_string().starts_with("cannot write samples: "), "{error}");
}
