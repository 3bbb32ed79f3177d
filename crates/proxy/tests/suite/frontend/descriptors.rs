//! File descriptors run out, in a separate process with a low limit.

use std::{fs::File, io::Write, net::TcpStream, time::Instant};

use stockade_proxy::frontend::FrontendSettings;
use stockade_services::in_own_process;

use crate::frontend::support::{
    HANG_GUARD, connect, exchange, read_response, read_to_close, start, status, wait_for_counts,
};

/// The minimum number of accepted connections.
const ACCEPTED_MIN: usize = 20;

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
        wait_for_counts(&frontend, |counts| counts.in_flight >= accepted);
    }
    assert_pause_between_accepts(|| frontend.counts().accept_failures);
    let mut spare = Some(spare);
    if frontend.counts().open == busy.len() as u64 {
        // Every connection was accepted. One more has to wait for a descriptor.
        wait_for_counts(&frontend, |counts| counts.in_flight == busy.len() as u64);
        drop(spare.take());
        busy.push(retry(open_busy));
    }
    let accepted = frontend.counts().open;
    assert!(accepted < busy.len() as u64, "{accepted} of {} were accepted", busy.len());
    // All are answered in the end: queued ones when others have closed. Only connections that had sent nothing when they
    // were accepted may have been evicted.
    handler.release(busy.len());
    let all = busy.len() as u64;
    let answered =
        busy.into_iter().filter_map(|mut tcp| has_response(&tcp).then(|| read_response(&mut tcp).1));
    let answered = answered.inspect(|body| assert_eq!(body, "held")).count() as u64;
    assert!(answered >= accepted.min(ACCEPTED_MIN as u64));
    wait_for_counts(&frontend, |counts| {
        counts.in_flight == 0 && counts.open == 0 && answered + counts.evicted >= all
    });

    // Idle connections are evicted in favour of queued ones, until the last is answered.
    drop(spare);
    let (requests, evicted) = (frontend.counts().requests, frontend.counts().evicted);
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
        wait_for_counts(&frontend, |counts| counts.requests >= answered);
    }
    wait_for_counts(&frontend, |counts| counts.evicted > evicted || counts.open == idle.len() as u64);
    if frontend.counts().evicted == evicted {
        drop(spare);
        idle.push(retry(open_idle));
    }
    assert_eq!(read_response(idle.last_mut().expect("one was opened")).1, "hello");
    wait_for_counts(&frontend, |counts| counts.evicted > evicted);
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
