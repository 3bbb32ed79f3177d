//! File descriptors run out, in a separate process with a low limit.

use std::{fs::File, io::Write, net::TcpStream, os::fd::AsRawFd, time::Instant};

use rustix::{
    net::{AddressFamily, SocketType},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use stockade_http::frontend::FrontendSettings;
use stockade_services::in_own_process;

use crate::frontend::support::{
    HANG_GUARD, connect, exchange, read_response, read_to_close, start, status, wait_for_stats,
};

/// The minimum number of accepted connections.
const ACCEPTED_MIN: usize = 20;

#[test]
fn new_client_is_answered_when_the_limit_falls() {
    in_own_process(
        "frontend::descriptors::new_client_is_answered_when_the_limit_falls",
        "ulimit -n 1000",
        run_with_a_limit_that_falls,
    );
}

fn run_with_a_limit_that_falls() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let threads = std::num::NonZeroUsize::MIN;
    let (frontend, handler) = start(FrontendSettings { threads, ..FrontendSettings::default() });
    let address = frontend.addresses()[0];
    let mut held = connect(address);
    held.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel buffers the request");
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1);
    // Sockets of clients, which connect when no descriptor is left.
    let mut sockets: Vec<_> = (0..43)
        .map(|_| rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor"))
        .collect();
    let mut open = || {
        let socket = sockets.pop().expect("enough of them");
        rustix::net::connect(&socket, &address).expect("the frontend listens");
        let mut tcp = TcpStream::from(socket);
        tcp.set_read_timeout(Some(HANG_GUARD)).expect("a socket option");
        tcp.write_all(GET).expect("the kernel buffers the request");
        tcp
    };
    let unlimited = getrlimit(Resource::Nofile);
    let set_limit = |current: u64| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..unlimited }).expect("a lower limit");
    };
    let lowest = File::open("/dev/null").expect("a free descriptor").as_raw_fd();
    set_limit(u64::try_from(lowest).expect("a number"));
    assert!(File::open("/dev/null").is_err(), "no descriptor is left");
    // Some of them never read, and stay.
    let mut refused: Vec<_> = (0..40).map(|_| open()).collect();
    for tcp in &mut refused {
        let (head, body) = read_response(tcp);
        assert_eq!((status(&head), body.as_str()), ("503", "too many connections\n"));
        assert!(head.contains("retry-after: 1"), "{head}");
    }
    // An idle connection closes for a new one.
    handler.release(1);
    assert_eq!(read_response(&mut held).1, "held");
    assert_eq!(read_response(&mut open()).1, "hello");
    assert_eq!(read_to_close(&mut held), "");
    // Below the descriptors that are kept none is of use: accepts are tried again.
    set_limit(3);
    let mut queued = open();
    assert_pause_between_accepts(|| frontend.stats().accept_failures);
    setrlimit(Resource::Nofile, unlimited).expect("the limit may rise");
    // The limit may rise between a failed accept and the one with a kept descriptor, which is refused.
    let answer = read_response(&mut queued).1;
    assert!(["hello", "too many connections\n"].contains(&answer.as_str()), "{answer}");
    assert_eq!(read_response(&mut open()).1, "hello");
}

#[test]
fn accepting_resumes_when_descriptors_are_free() {
    in_own_process(
        "frontend::descriptors::accepting_resumes_when_descriptors_are_free",
        "ulimit -n 80",
        run_with_80_descriptors,
    );
}

fn run_with_80_descriptors() {
    let (frontend, handler) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    // Busy connections, which cannot be evicted, until both sides have used all descriptors of this process.
    let open_busy = || {
        let mut tcp = TcpStream::connect(address).ok()?;
        tcp.set_read_timeout(Some(HANG_GUARD)).expect("a socket option");
        tcp.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel buffers the request");
        Some(tcp)
    };
    let spare = File::open("/dev/null").expect("a free descriptor");
    let mut busy = Vec::new();
    while let Some(tcp) = open_busy() {
        busy.push(tcp);
        // Some are accepted before the clients have all the descriptors.
        let accepted = busy.len().min(ACCEPTED_MIN) as u64;
        wait_for_stats(&frontend, |stats| stats.requests_in_flight >= accepted);
    }
    // A new client takes the last one, and is answered at once.
    drop(spare);
    let mut refused = retry(open_busy);
    let (head, body) = read_response(&mut refused);
    assert_eq!((status(&head), body.as_str()), ("503", "too many connections\n"));
    drop(refused);
    // The others are answered, too: held ones when they are released.
    handler.release(busy.len());
    let all = busy.len();
    let answered = busy.into_iter().filter_map(|mut tcp| has_response(&tcp).then(|| read_response(&mut tcp)));
    let (held, refused): (Vec<_>, Vec<_>) = answered.partition(|(_, body)| body == "held");
    assert!(held.len() >= ACCEPTED_MIN, "{} of {all}", held.len());
    assert!(refused.iter().all(|(head, _)| status(head) == "503"));
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0 && stats.connections == 0);

    // Idle connections are evicted in favour of queued ones, until the last is answered.
    let (requests, evicted) = (frontend.stats().requests_received, frontend.stats().closed_evicted);
    let mut idle = Vec::new();
    let open_idle = || {
        let mut tcp = TcpStream::connect(address).ok()?;
        tcp.set_read_timeout(Some(HANG_GUARD)).expect("a socket option");
        tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel buffers the request");
        Some(tcp)
    };
    let spare = File::open("/dev/null").expect("a free descriptor");
    while let Some(tcp) = open_idle() {
        idle.push(tcp);
        let answered = requests + idle.len().min(ACCEPTED_MIN) as u64;
        wait_for_stats(&frontend, |stats| stats.requests_received >= answered);
    }
    wait_for_stats(&frontend, |stats| {
        stats.closed_evicted > evicted || stats.connections == idle.len() as u64
    });
    if frontend.stats().closed_evicted == evicted {
        drop(spare);
        idle.push(retry(open_idle));
    }
    assert_eq!(read_response(idle.last_mut().expect("one was opened")).1, "hello");
    wait_for_stats(&frontend, |stats| stats.closed_evicted > evicted);
    drop(idle);
    let response = exchange(address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&response), "200");
    let mut again = connect(address);
    again.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("the kernel buffers the request");
    assert_eq!(status(&read_to_close(&mut again)), "200");
}

/// A failed accept is followed by a pause of 10 ms: this bounds their number.
fn assert_pause_between_accepts(failures: impl Fn() -> u64) {
    #[expect(clippy::disallowed_methods, reason = "the pause is real time")]
    let start = Instant::now();
    let before = failures();
    while failures() < before + 5 {
        assert!(start.elapsed() < HANG_GUARD, "accepts are not tried again");
        std::thread::yield_now();
    }
    let tried = u128::from(failures() - before);
    let tried_max = start.elapsed().as_millis() / 10 + 1;
    assert!(tried <= tried_max, "{tried} in {:?}: accepts are tried without a pause", start.elapsed());
}

/// The accept loop takes the last descriptor for a moment each time it tries.
fn retry<T>(attempt: impl Fn() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "a guard against hanging takes real time")]
    let start = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(start.elapsed() < HANG_GUARD, "the descriptor is never free");
    }
}

/// True if the connection holds a response, and not its end.
fn has_response(tcp: &TcpStream) -> bool {
    tcp.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
}
