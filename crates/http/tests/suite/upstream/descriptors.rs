//! File descriptors run out, in a separate process with a low limit.

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    thread,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_http::upstream::{Upstream, UpstreamError, UpstreamSettings};
use stockade_services::in_own_process;

use crate::upstream::support::*;

/// Answers requests on kept connections, as soon as it has a descriptor for them.
fn start_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        loop {
            match listener.accept() {
                Ok((tcp, _)) => drop(thread::spawn(move || answer_all(tcp))),
                Err(_) => thread::yield_now(),
            }
        }
    });
    address
}

fn answer_all(mut tcp: TcpStream) {
    let mut head = [0; 4_096];
    while tcp.read(&mut head).is_ok_and(|read| read > 0) {
        if tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
            return;
        }
    }
}

fn upstream_of(address: SocketAddr) -> Upstream {
    upstream(UpstreamSettings::new(format!("http://{address}").parse().expect("an URL")))
}

#[test]
fn idle_connection_closes_for_one_to_another_origin() {
    in_own_process(
        "upstream::descriptors::idle_connection_closes_for_one_to_another_origin",
        "ulimit -n 1000",
        || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(run_without_descriptors());
        },
    );
}

async fn run_without_descriptors() {
    let [first, second] = [start_origin(), start_origin()].map(upstream_of);
    assert_eq!(fetch(&first, "/").await.expect("an answer"), "hello");
    until(|| first.status().idle == 1).await;
    let unlimited = getrlimit(Resource::Nofile);
    let lowest = File::open("/dev/null").expect("a free descriptor").as_raw_fd();
    let current = Some(u64::try_from(lowest).expect("a number"));
    setrlimit(Resource::Nofile, Rlimit { current, ..unlimited }).expect("a lower limit");
    assert_eq!(fetch(&second, "/").await.expect("an answer"), "hello");
    until(|| (first.status().idle, second.status().idle) == (0, 1)).await;
    // Its connection is in use, so that none can be closed.
    let answer = with_timeout(second.send(get("/"))).await.expect("an answer");
    let held: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = with_timeout(first.send(get("/"))).await.expect_err("no descriptor is left");
    assert!(matches!(error, UpstreamError::Exhausted { .. }), "{error:?}");
    assert!(error.to_string().contains("raise LimitNOFILE"), "{error}");
    drop((held, answer));
}
