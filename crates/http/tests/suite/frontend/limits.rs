//! The limit on connections.

use std::{
    io::Read,
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use stockade_http::{
    frontend::{CloseReason, Frontend, FrontendSettings},
    trusted_proxies::TrustedNetwork,
};

use crate::frontend::support::{
    SHORT, TestHandler, connect, exchange, raise_descriptor_limit, read_response, read_to_close, send, start,
    status, wait_for_stats,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_HELD: &[u8] = b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n";
const INCOMPLETE_HEAD: &[u8] = b"GET /slow HTTP/1.1\r\nHost: a\r\nX: ";
/// Longer than any test.
const NEVER: Duration = Duration::from_hours(1);

/// A connection on which one request was answered.
fn open_idle(frontend: &Frontend) -> TcpStream {
    let mut tcp = connect(frontend.addresses()[0]);
    get(&mut tcp);
    tcp
}

fn get(tcp: &mut TcpStream) {
    send(tcp, GET);
    assert_eq!(read_response(tcp).1, "hello");
}

#[test]
fn longest_idle_connection_is_evicted() {
    let (frontend, _) = start(FrontendSettings { connections_max: 3, ..FrontendSettings::default() });
    let (mut first, mut second, mut third) =
        (open_idle(&frontend), open_idle(&frontend), open_idle(&frontend));
    // Now the second is the longest idle one.
    get(&mut first);
    let mut fourth = open_idle(&frontend);
    assert_eq!(second.read(&mut [0]).ok(), Some(0));
    for tcp in [&mut first, &mut third, &mut fourth] {
        get(tcp);
    }
    let stats = frontend.stats();
    assert_eq!((stats.closed_evicted, stats.connections_refused, stats.connections), (1, 0, 3));
}

#[test]
fn client_with_too_many_connections_loses_its_longest_idle_one() {
    let settings = FrontendSettings { connections_per_client_max: 2, ..FrontendSettings::default() };
    let (frontend, handler) = start(settings);
    let (mut first, mut second) = (open_idle(&frontend), open_idle(&frontend));
    let mut third = open_idle(&frontend);
    assert_eq!(first.read(&mut [0]).ok(), Some(0));
    for tcp in [&mut second, &mut third] {
        send(tcp, GET_HELD);
    }
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 2);
    let mut refused = connect(frontend.addresses()[0]);
    send(&mut refused, GET);
    assert_eq!(status(&read_to_close(&mut refused)), "503");
    handler.release(2);
    for tcp in [&mut second, &mut third] {
        assert_eq!(read_response(tcp).1, "held");
    }
}

#[test]
fn without_an_idle_connection_new_ones_get_503() {
    let (frontend, handler) = start(FrontendSettings { connections_max: 2, ..FrontendSettings::default() });
    let mut busy: Vec<_> = (0..2).map(|_| connect(frontend.addresses()[0])).collect();
    for tcp in &mut busy {
        send(tcp, GET_HELD);
    }
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 2);
    let mut refused = connect(frontend.addresses()[0]);
    send(&mut refused, GET);
    let response = read_to_close(&mut refused);
    assert!(status(&response) == "503" && response.contains("retry-after: 1"), "{response}");
    assert_eq!((frontend.stats().connections_refused, frontend.stats().closed_evicted), (1, 0));
    handler.release(2);
    for tcp in &mut busy {
        assert_eq!(read_response(tcp).1, "held");
    }
    open_idle(&frontend);
    wait_for_stats(&frontend, |stats| stats.connections <= 2);
}

#[test]
fn idle_connections_of_other_threads_are_evicted() {
    let threads = 2.try_into().expect("two is not zero");
    let (frontend, _) =
        start(FrontendSettings { connections_max: 4, threads, ..FrontendSettings::default() });
    let open = |_| {
        let tcp = open_idle(&frontend);
        wait_for_stats(&frontend, |stats| stats.connections <= 4);
        tcp
    };
    let clients: Vec<_> = (0..40).map(open).collect();
    assert_eq!((frontend.stats().connections_refused, frontend.stats().closed_evicted), (0, 36));
    drop(clients);
    wait_for_stats(&frontend, |stats| stats.connections == 0);
}

fn open_incomplete(frontend: &Frontend) -> TcpStream {
    let mut tcp = connect(frontend.addresses()[0]);
    send(&mut tcp, INCOMPLETE_HEAD);
    tcp
}

fn assert_none_handled(handler: &TestHandler) {
    assert!(handler.requests().iter().all(|line| !line.contains("slow")));
}

#[test]
fn a_thousand_incomplete_heads_do_not_block_others() {
    raise_descriptor_limit();
    let (frontend, handler) = start(FrontendSettings {
        connections_max: 1_001,
        head_timeout: NEVER,
        ..FrontendSettings::default()
    });
    let _slow: Vec<_> = (0..1_000).map(|_| open_incomplete(&frontend)).collect();
    wait_for_stats(&frontend, |stats| stats.connections == 1_000);
    let mut busy = open_idle(&frontend);
    get(&mut busy);
    send(&mut busy, GET_HELD);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1);
    // No connection is idle; their client has more than its share.
    drop(open_idle(&frontend));
    assert_eq!((frontend.stats().closed_evicted, frontend.stats().connections_refused), (1, 0));
    handler.release(1);
    assert_eq!(read_response(&mut busy).1, "held");
    assert_none_handled(&handler);
}

/// Opened in batches that fit into any backlog.
#[test]
fn a_thousand_incomplete_heads_get_408() {
    raise_descriptor_limit();
    let (frontend, handler) = start(FrontendSettings { head_timeout: SHORT, ..FrontendSettings::default() });
    let mut slow = Vec::new();
    for _ in 0..10 {
        slow.extend(
            handler.hold_accepts(|| (0..100).map(|_| open_incomplete(&frontend)).collect::<Vec<_>>()),
        );
    }
    let mut busy = handler.hold_accepts(|| {
        let mut tcp = connect(frontend.addresses()[0]);
        send(&mut tcp, GET_HELD);
        tcp
    });
    wait_for_stats(&frontend, |stats| stats.closed_for(CloseReason::Head) == 1_000);
    for mut tcp in slow {
        assert_eq!(status(&read_to_close(&mut tcp)), "408");
    }
    handler.release(1);
    assert_eq!(read_response(&mut busy).1, "held");
    assert_none_handled(&handler);
}

#[test]
fn a_thousand_silent_connections_are_evicted() {
    raise_descriptor_limit();
    let (frontend, _) =
        start(FrontendSettings { connections_max: 100, head_timeout: NEVER, ..FrontendSettings::default() });
    let silent: Vec<_> = (0..1_000).map(|_| connect(frontend.addresses()[0])).collect();
    wait_for_stats(&frontend, |stats| stats.connections_accepted == 1_000 && stats.connections <= 100);
    open_idle(&frontend);
    assert_eq!((frontend.stats().connections_refused, frontend.stats().closed_evicted), (0, 901));
    drop(silent);
}

/// A load balancer that has all connections loses those that stall.
#[test]
fn stalled_connection_of_a_trusted_proxy_is_evicted() {
    let balancer: TrustedNetwork = "127.0.0.1".parse().expect("a network");
    let (frontend, _) = start(FrontendSettings {
        connections_max: 3,
        trusted_proxies: [balancer].into_iter().collect(),
        ..FrontendSettings::default()
    });
    let mut stalled: Vec<_> = (0..3).map(|_| connect(frontend.addresses()[0])).collect();
    for tcp in &mut stalled {
        send(tcp, b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 3);
    // Refused until a response stalls.
    let last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    wait_for_stats(&frontend, |_| status(&exchange(frontend.addresses()[0], last)) == "200");
    assert_eq!(frontend.stats().closed_evicted, 1);
}

/// The client of a connection is known only after its admission, for which another one was closed.
#[test]
fn greedy_client_behind_a_load_balancer_evicts_no_others() {
    let balancer: TrustedNetwork = "127.0.0.1".parse().expect("a network");
    let (frontend, handler) = start(FrontendSettings {
        connections_max: 16,
        listen_proxy_protocol: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        trusted_proxies: [balancer].into_iter().collect(),
        ..FrontendSettings::default()
    });
    let open_for = |network: usize, request: &[u8]| {
        let mut tcp = connect(frontend.addresses()[1]);
        let header = format!("PROXY TCP4 203.0.{network}.9 198.51.100.1 1 2\r\n");
        send(&mut tcp, &[header.as_bytes(), request].concat());
        tcp
    };
    let mut others: Vec<_> = (0..13).map(|network| open_for(network, GET)).collect();
    for tcp in &mut others {
        assert_eq!(read_response(tcp).1, "hello");
    }
    let mut greedy = Vec::new();
    for number in 1..=8 {
        greedy.push(open_for(100, GET_HELD));
        wait_for_stats(&frontend, |stats| stats.requests_in_flight + stats.connections_refused == number);
    }
    // The third one would fill the table, and is more than an eighth of it.
    let stats = frontend.stats();
    assert_eq!((stats.requests_in_flight, stats.connections_refused, stats.closed_evicted), (2, 6, 0));
    let mut last = open_for(101, GET);
    assert_eq!(read_response(&mut last).1, "hello");
    for tcp in &mut others {
        get(tcp);
    }
    handler.release(2);
}
