//! Names with several addresses, and rules that name others.

use std::{
    io::{BufReader, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use stockade_load::{
    AllowedTargets, ClientOptions, generator::LoadTest, sample::FailureClass, summary::Summary,
};

use super::stub::{HANG, closed, load, ok, read_head, run};

const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Counts the connections of a server that answers one request on each.
fn counting(listener: TcpListener) -> Arc<AtomicUsize> {
    let count = Arc::<AtomicUsize>::default();
    let connections = Arc::clone(&count);
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            connections.fetch_add(1, Ordering::SeqCst);
            let mut requests = BufReader::new(connection.try_clone().expect("a second handle"));
            if matches!(read_head(&mut requests), Ok(Some(_))) {
                let _ = connection.write_all(&ok("well"));
            }
        }
    });
    count
}

/// Listeners on one port of both addresses.
fn listeners() -> (TcpListener, TcpListener) {
    loop {
        let first = TcpListener::bind((FIRST, 0)).expect("a free port");
        let port = first.local_addr().expect("its address").port();
        if let Ok(second) = TcpListener::bind((SECOND, port)) {
            return (first, second);
        }
    }
}

/// Requests on new connections to a name that has both addresses.
fn requested(port: u16, requests: u64) -> Summary {
    let rule = format!("two.example:{port}:{FIRST},{SECOND}").parse().expect("a rule");
    let options =
        ClientOptions { timeout: HANG, keep_alive: false, resolve: vec![rule], ..ClientOptions::default() };
    run(&LoadTest { options, ..load(&format!("http://two.example:{port}/"), closed(1, requests)) })
}

#[test]
fn new_connections_are_spread_over_the_addresses() {
    let (first, second) = listeners();
    let port = first.local_addr().unwrap().port();
    let (first, second) = (counting(first), counting(second));
    let summary = requested(port, 20);
    assert_eq!(summary.measured.successes, 20, "{:?}", summary.measured.errors);
    assert_eq!((first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (10, 10));
}

#[test]
fn next_address_is_tried_where_one_refuses() {
    let (first, second) = listeners();
    let port = first.local_addr().unwrap().port();
    drop(first);
    let second = counting(second);
    let summary = requested(port, 20);
    assert_eq!((summary.measured.successes, second.load(Ordering::SeqCst)), (20, 20));
}

/// The queue of its listener is full, as that of a server that hangs.
#[test]
fn next_address_is_tried_where_one_never_accepts() {
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let (first, second) = listeners();
    let port = first.local_addr().unwrap().port();
    drop(first);
    let address = SocketAddr::new(IpAddr::V4(FIRST), port);
    bind(&full, &address).expect("the port of the dropped listener");
    listen(&full, 0).expect("it listens");
    let _queued: Vec<_> =
        (0..4).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
    let second = counting(second);
    let summary = requested(port, 20);
    assert_eq!((summary.measured.successes, second.load(Ordering::SeqCst)), (20, 20));
    // The first connection, which is opened in advance, waits for a quarter of a second. The others know better.
    let slowest = summary.measured.times.response.max().unwrap();
    assert!(slowest < HANG / 4, "{slowest:?}");
}

#[test]
fn connections_lead_elsewhere_and_hosts_stay() {
    let listener = TcpListener::bind((FIRST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&heads);
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut requests = BufReader::new(connection.try_clone().unwrap());
            while let Ok(Some(head)) = read_head(&mut requests) {
                seen.lock().unwrap().push(head);
                let _ = connection.write_all(&ok(""));
            }
        }
    });
    for rule in [format!("www.example:80:127.0.0.1:{port}"), format!(":::{port}")] {
        let url = if rule.starts_with(':') { "http://127.0.0.1/a" } else { "http://www.example/a" };
        let options = ClientOptions {
            timeout: HANG,
            connect_to: vec![rule.parse().unwrap()],
            ..ClientOptions::default()
        };
        assert_eq!(run(&LoadTest { options, ..load(url, closed(1, 1)) }).measured.successes, 1);
        let head = heads.lock().unwrap().pop().unwrap().to_lowercase();
        let host = url.split('/').nth(2).unwrap();
        assert!(head.contains(&format!("host: {host}\r\n")), "{head}");
    }
}

#[test]
fn connections_come_from_the_local_addresses_in_turn() {
    let listener = TcpListener::bind((FIRST, 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let peers = Arc::<Mutex<Vec<IpAddr>>>::default();
    let seen = Arc::clone(&peers);
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            seen.lock().unwrap().push(connection.peer_addr().unwrap().ip());
            let mut requests = BufReader::new(connection.try_clone().unwrap());
            if matches!(read_head(&mut requests), Ok(Some(_))) {
                let _ = connection.write_all(&ok(""));
            }
        }
    });
    let from = |local: &[&str]| {
        let local_addresses = local.iter().map(|address| address.parse().unwrap()).collect();
        let options =
            ClientOptions { timeout: HANG, keep_alive: false, local_addresses, ..ClientOptions::default() };
        run(&LoadTest { options, ..load(&url, closed(1, 20)) }).measured
    };
    // The server has no address of the third one's family.
    assert_eq!(from(&["127.0.0.2", "127.0.0.3", "::1"]).successes, 20);
    let count =
        |last| peers.lock().unwrap().iter().filter(|peer| **peer == IpAddr::from([127, 0, 0, last])).count();
    assert_eq!((count(2), count(3)), (10, 10));
    for (local, text) in [
        ("192.0.2.1", "192.0.2.1 is not an address of this machine"),
        ("::1", "no local address is of its family (IPv4 or IPv6)"),
    ] {
        let measured = from(&[local]);
        assert_eq!(measured.failures_of(FailureClass::Unreachable), 20);
        assert!(measured.errors.iter().any(|error| error.contains(text)), "{:?}", measured.errors);
    }
}

/// A rule does not lead around the servers that may be reached.
#[test]
fn addresses_of_rules_have_to_be_allowed() {
    let patterns = |text: &str| AllowedTargets::from(vec![text.parse().unwrap()]);
    for (allowed, resolve, connect_to) in [
        (AllowedTargets::default(), Some("a.example:80:192.0.2.1"), None),
        (AllowedTargets::default(), None, Some("a.example:80:192.0.2.1:80")),
        // A name is allowed, and the address of a rule is not one of its own.
        (patterns("*.example:*"), Some("a.example:80:192.0.2.1"), None),
        (patterns("*.example:*"), None, Some("a.example:80:192.0.2.1:80")),
        (patterns("*.example:*"), None, Some("a.example:80:other.invalid:80")),
    ] {
        let options = ClientOptions {
            timeout: HANG,
            resolve: resolve.iter().map(|rule| rule.parse().unwrap()).collect(),
            connect_to: connect_to.iter().map(|rule| rule.parse().unwrap()).collect(),
            allowed: Some(allowed),
            ..ClientOptions::default()
        };
        let load = LoadTest { options, ..load("http://a.example/", closed(1, 1)) };
        let result = load
            .run(&mut super::stub::SampleLog::default(), &stockade_load::generator::CancellationToken::new());
        match result {
            Err(error) => assert!(error.to_string().contains("; allowed: "), "{error}"),
            // A name without an address has none to refuse.
            Ok(run) => assert_eq!(run.summary.measured.failures_of(FailureClass::Dns), 1),
        }
    }
}
