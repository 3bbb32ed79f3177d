//! What is sent, and what is made of the answer.

use std::{
    io::{BufReader, Write},
    os::unix::net::UnixListener,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method};
use sha2::{Digest as _, Sha256};
use stockade_load::{Options, Retries, drive::Load, sample::Class, target::Target, traffic::Traffic};
use stockade_model::outcome::Outcome;

use super::stub::{answering, closed, head, load, ok, run, server};

/// Heads that a server has seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn add(&self, head: &str) {
        self.0.lock().unwrap().push(head.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn of(target: Target) -> Arc<Traffic> {
    Arc::new(Traffic::one(target))
}

#[test]
fn a_request_has_what_it_needs_and_what_it_was_given() {
    let seen = Seen::default();
    let theirs = seen.clone();
    let address = answering(move |head| {
        theirs.add(head);
        ok("hello")
    });
    let url = format!("http://{address}/a?b=c");
    run(&load(&url, closed(1, 1)));
    let version = env!("CARGO_PKG_VERSION");
    let plain = format!(
        "GET /a?b=c HTTP/1.1\r\nHost: {address}\r\nUser-Agent: stockade/{version}\r\nAccept-Encoding: gzip\r\n\r\n"
    );
    assert_eq!(seen.all(), [plain]);

    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("news.example"));
    headers.insert("user-agent", HeaderValue::from_static("me"));
    headers.insert("accept-encoding", HeaderValue::from_static("br"));
    headers.append("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_static("2"));
    let target = Target { method: Method::POST, url: url.parse().unwrap(), headers, body: "four".into() };
    let options = Options { keep_alive: false, ..Options::default() };
    let summary = run(&Load { traffic: of(target), options, ..load(&url, closed(1, 1)) });
    let full = "POST /a?b=c HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\nhost: news.example\r\n\
                user-agent: me\r\naccept-encoding: br\r\nx-a: 1\r\nx-a: 2\r\n\r\n";
    assert_eq!(seen.all()[1], full);
    assert_eq!(summary.measured.bytes_out, 4);
}

#[test]
fn connections_are_kept_or_not() {
    let address = answering(|_| ok("hello"));
    for (keep_alive, connections) in [(true, 2), (false, 20)] {
        let options = Options { keep_alive, ..Options::default() };
        let summary = run(&Load { options, ..load(&format!("http://{address}/"), closed(2, 20)) });
        assert_eq!((summary.connections, summary.measured.successes), (connections, 20));
    }
}

#[test]
fn a_server_that_closes_after_each_answer_fails_nobody() {
    let address = server(|mut connection| {
        let mut requests = BufReader::new(connection.try_clone().unwrap());
        if head(&mut requests).is_ok_and(|head| head.is_some()) {
            let _ =
                connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let summary = run(&load(&format!("http://{address}/"), closed(2, 20)));
    assert_eq!((summary.connections, summary.measured.successes), (20, 20), "{:?}", summary.measured.errors);
}

#[test]
fn a_unix_socket_is_asked_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut requests = BufReader::new(connection.try_clone().unwrap());
            while let Ok(Some(_)) = head(&mut requests) {
                connection.write_all(&ok("hello")).unwrap();
            }
        }
    });
    let options = Options { unix: Some(path), ..Options::default() };
    let summary = run(&Load { options, ..load("http://localhost/", closed(1, 20)) });
    assert_eq!(summary.measured.successes, 20, "{:?}", summary.measured.errors);
}

#[test]
fn statuses_outcomes_and_bytes_are_counted() {
    let address = answering(|head| {
        if head.starts_with("GET /gone") {
            b"HTTP/1.1 503 Oops\r\nContent-Length: 3\r\n\r\nno!".to_vec()
        } else {
            b"HTTP/1.1 200 OK\r\nCache-Status: x; hit\r\nContent-Length: 5\r\n\r\nhello".to_vec()
        }
    });
    let found = run(&load(&format!("http://{address}/"), closed(1, 10))).measured;
    assert_eq!((found.bytes_in, found.wire_bytes_in, found.successes), (50, 50, 10));
    assert_eq!(found.outcomes.of(Outcome::Hit), 10);
    let gone = run(&load(&format!("http://{address}/gone"), closed(1, 10))).measured;
    assert_eq!((gone.successes, gone.status_codes[&503], gone.failed()), (0, 10, 0));
    assert_eq!(gone.errors, ["503 Service Unavailable"]);
    assert_eq!(gone.times.response.count(), 10, "an error page is an answer");
    assert_eq!(gone.times_of_successes.response.count(), 0, "and no good one");
}

#[test]
fn redirects_are_followed_where_that_was_asked() {
    let address = answering(|head| {
        if head.starts_with("GET /there") {
            ok("hello, there")
        } else {
            b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
    });
    for (redirects, status, bytes) in [(0, 302, 0), (1, 200, 12)] {
        let options = Options { redirects, ..Options::default() };
        let summary = run(&Load { options, ..load(&format!("http://{address}/"), closed(1, 1)) });
        assert_eq!(summary.measured.status_codes.keys().copied().collect::<Vec<_>>(), [status]);
        assert_eq!(summary.measured.bytes_in, bytes);
    }
}

#[test]
fn what_fails_is_asked_again_within_its_budget() {
    let seen = Seen::default();
    let theirs = seen.clone();
    let address = answering(move |head| {
        theirs.add(head);
        // Every second attempt succeeds.
        if theirs.all().len() % 2 == 0 {
            ok("hello")
        } else {
            b"HTTP/1.1 503 Oops\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
    });
    let retries = Retries { most: 1, backoff: Duration::from_millis(1), budget: 1.0 };
    let options = Options { retries, ..Options::default() };
    let summary = run(&Load { options, ..load(&format!("http://{address}/"), closed(1, 10)) });
    assert_eq!((summary.measured.successes, summary.measured.retries, seen.all().len()), (10, 10, 20));
}

#[test]
fn a_server_that_answers_before_it_has_read_all_is_heard() {
    // More than a socket takes, for a server that has read the head and nothing else.
    let address = server(|mut connection| {
        let mut byte = [0; 64];
        let _ = std::io::Read::read(&mut connection, &mut byte);
        let _ =
            connection.write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let mut rest = [0; 4_096];
        while std::io::Read::read(&mut connection, &mut rest).is_ok_and(|read| read > 0) {}
    });
    let url: http::Uri = format!("http://{address}/").parse().unwrap();
    let target = Target {
        method: Method::POST,
        url: url.clone(),
        headers: HeaderMap::new(),
        body: vec![b'x'; 8 << 20].into(),
    };
    let summary = run(&Load { traffic: of(target), ..load(&url.to_string(), closed(1, 2)) });
    assert_eq!(summary.measured.status_codes.keys().copied().collect::<Vec<_>>(), [413]);
}

#[test]
fn only_the_body_that_was_asked_for_has_to_be_the_expected_one() {
    let digest = Sha256::digest("hello").into();
    let address = answering(|head| match head.split(' ').nth(1) {
        Some("/there") => ok("hello"),
        Some("/gone") => b"HTTP/1.1 503 Oops\r\nContent-Length: 3\r\n\r\nno!".to_vec(),
        Some("/other") => ok("hallo"),
        Some("/empty") => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 3\r\n\r\n...".to_vec(),
    });
    for (path, status) in [("/", 200), ("/there", 200), ("/gone", 503), ("/other", 0), ("/empty", 0)] {
        let options = Options { redirects: 1, digest: Some(digest), ..Options::default() };
        let summary = run(&Load { options, ..load(&format!("http://{address}{path}"), closed(1, 1)) });
        let statuses: Vec<u16> = summary.measured.status_codes.keys().copied().collect();
        assert_eq!(statuses, [status], "{path}: {:?}", summary.measured.errors);
        assert_eq!(summary.measured.of(Class::Digest), u64::from(status == 0), "{path}");
    }
}

/// Closes each connection when the second request has come, without a word.
fn closing() -> std::net::SocketAddr {
    server(|mut connection| {
        let mut requests = BufReader::new(connection.try_clone().unwrap());
        if head(&mut requests).is_ok_and(|head| head.is_some()) {
            let _ = connection.write_all(&ok("hello"));
            let _ = head(&mut requests);
        }
    })
}

#[test]
fn what_a_server_has_closed_unseen_is_sent_once_more() {
    let url = format!("http://{}/", closing());
    let summary = run(&load(&url, closed(1, 10)));
    assert_eq!(
        (summary.measured.successes, summary.measured.resent),
        (10, 9),
        "{:?}",
        summary.measured.errors
    );
    // Who posts may have been heard.
    let target = Target::new(Method::POST, url.parse().unwrap());
    let summary = run(&Load { traffic: of(target), ..load(&url, closed(1, 10)) });
    assert_eq!((summary.measured.of(Class::Closed), summary.measured.resent), (5, 0));
}
