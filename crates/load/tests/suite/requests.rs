//! The bytes of requests, and what is measured of responses.

use std::{
    io::{BufReader, Write},
    os::unix::net::UnixListener,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method};
use sha2::{Digest as _, Sha256};
use stockade_load::{
    ClientOptions, Retries, generator::LoadTest, sample::FailureClass, template::RequestTemplate,
    traffic::Traffic,
};
use stockade_model::outcome::Outcome;

use super::stub::{closed, load, ok, read_head, responding, run, server};

/// The request heads that a server has received.
#[derive(Clone, Default)]
struct HeadLog(Arc<Mutex<Vec<String>>>);

impl HeadLog {
    fn add(&self, head: &str) {
        self.0.lock().unwrap().push(head.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn single(template: RequestTemplate) -> Arc<Traffic> {
    Arc::new(Traffic::single_unchecked(template))
}

#[test]
fn request_has_default_headers_and_those_of_its_template() {
    let heads = HeadLog::default();
    let log = heads.clone();
    let address = responding(move |head| {
        log.add(head);
        ok("hello")
    });
    let url = format!("http://{address}/a?b=c");
    run(&load(&url, closed(1, 1)));
    let version = env!("CARGO_PKG_VERSION");
    let plain = format!(
        "GET /a?b=c HTTP/1.1\r\nHost: {address}\r\nUser-Agent: stockade/{version}\r\nAccept-Encoding: gzip\r\n\r\n"
    );
    assert_eq!(heads.all(), [plain]);

    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("news.example"));
    headers.insert("user-agent", HeaderValue::from_static("me"));
    headers.insert("accept-encoding", HeaderValue::from_static("br"));
    headers.append("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_static("2"));
    let template =
        RequestTemplate { method: Method::POST, url: url.parse().unwrap(), headers, body: "four".into() };
    let options = ClientOptions { keep_alive: false, ..ClientOptions::default() };
    let summary = run(&LoadTest { traffic: single(template), options, ..load(&url, closed(1, 1)) });
    let full = "POST /a?b=c HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\nhost: news.example\r\n\
                user-agent: me\r\naccept-encoding: br\r\nx-a: 1\r\nx-a: 2\r\n\r\n";
    assert_eq!(heads.all()[1], full);
    assert_eq!(summary.measured.bytes_out, 4);
}

#[test]
fn keep_alive_decides_whether_connections_are_reused() {
    let address = responding(|_| ok("hello"));
    for (keep_alive, connections) in [(true, 2), (false, 20)] {
        let options = ClientOptions { keep_alive, ..ClientOptions::default() };
        let summary = run(&LoadTest { options, ..load(&format!("http://{address}/"), closed(2, 20)) });
        assert_eq!((summary.connections, summary.measured.successes), (connections, 20));
    }
}

#[test]
fn server_that_closes_after_each_response_causes_no_failures() {
    let address = server(|mut connection| {
        let mut requests = BufReader::new(connection.try_clone().unwrap());
        if read_head(&mut requests).is_ok_and(|head| head.is_some()) {
            let _ =
                connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let summary = run(&load(&format!("http://{address}/"), closed(2, 20)));
    assert_eq!((summary.connections, summary.measured.successes), (20, 20), "{:?}", summary.measured.errors);
}

#[test]
fn requests_go_to_the_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut requests = BufReader::new(connection.try_clone().unwrap());
            while let Ok(Some(_)) = read_head(&mut requests) {
                connection.write_all(&ok("hello")).unwrap();
            }
        }
    });
    let options = ClientOptions { unix_socket: Some(path), ..ClientOptions::default() };
    let summary = run(&LoadTest { options, ..load("http://localhost/", closed(1, 20)) });
    assert_eq!(summary.measured.successes, 20, "{:?}", summary.measured.errors);
}

#[test]
fn statuses_outcomes_and_bytes_are_counted() {
    let address = responding(|head| {
        if head.starts_with("GET /gone") {
            b"HTTP/1.1 503 Oops\r\nContent-Length: 3\r\n\r\nno!".to_vec()
        } else {
            b"HTTP/1.1 200 OK\r\nCache-Status: x; hit\r\nContent-Length: 5\r\n\r\nhello".to_vec()
        }
    });
    let hits = run(&load(&format!("http://{address}/"), closed(1, 10))).measured;
    assert_eq!((hits.bytes_in, hits.wire_bytes_in, hits.successes), (50, 50, 10));
    assert_eq!(hits.outcomes.of(Outcome::Hit), 10);
    let gone = run(&load(&format!("http://{address}/gone"), closed(1, 10))).measured;
    assert_eq!((gone.successes, gone.status_codes[&503]), (0, 10));
    assert_eq!((gone.failed(), gone.without_response()), (10, 0), "an error status fails, with a response");
    assert_eq!(gone.errors, ["503 Service Unavailable"]);
    assert_eq!(gone.times.response.count(), 10, "an error page is a response");
    assert_eq!(gone.times_of_successes.response.count(), 0, "but no success");
}

#[test]
fn redirects_are_followed_up_to_the_maximum() {
    let address = responding(|head| {
        if head.starts_with("GET /there") {
            ok("hello, there")
        } else {
            b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
    });
    for (redirects, status, bytes) in [(0, 302, 0), (1, 200, 12)] {
        let options = ClientOptions { redirects_max: redirects, ..ClientOptions::default() };
        let summary = run(&LoadTest { options, ..load(&format!("http://{address}/"), closed(1, 1)) });
        assert_eq!(summary.measured.status_codes.keys().copied().collect::<Vec<_>>(), [status]);
        assert_eq!(summary.measured.bytes_in, bytes);
    }
}

#[test]
fn loop_of_redirects_is_a_failure() {
    let address =
        responding(|_| b"HTTP/1.1 302 Found\r\nLocation: /round\r\nContent-Length: 0\r\n\r\n".to_vec());
    let options = ClientOptions { redirects_max: 10, ..ClientOptions::default() };
    let summary = run(&LoadTest { options, ..load(&format!("http://{address}/"), closed(1, 1)) });
    assert_eq!((summary.measured.successes, summary.measured.failures_of(FailureClass::Redirects)), (0, 1));
}

#[test]
fn failed_requests_are_retried_within_the_budget() {
    let heads = HeadLog::default();
    let log = heads.clone();
    let address = responding(move |head| {
        log.add(head);
        // Every second attempt succeeds.
        if log.all().len() % 2 == 0 {
            ok("hello")
        } else {
            b"HTTP/1.1 503 Oops\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
    });
    let retries = Retries { max: 1, backoff: Duration::from_millis(1), budget: 1.0 };
    let options = ClientOptions { retries, ..ClientOptions::default() };
    let summary = run(&LoadTest { options, ..load(&format!("http://{address}/"), closed(1, 10)) });
    assert_eq!((summary.measured.successes, summary.measured.retries, heads.all().len()), (10, 10, 20));
}

#[test]
fn response_before_the_whole_request_was_read_counts() {
    // The body exceeds the socket buffers, and the server responds after 64 bytes.
    let address = server(|mut connection| {
        let mut byte = [0; 64];
        let _ = std::io::Read::read(&mut connection, &mut byte);
        let _ =
            connection.write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let mut rest = [0; 4_096];
        while std::io::Read::read(&mut connection, &mut rest).is_ok_and(|read| read > 0) {}
    });
    let url: http::Uri = format!("http://{address}/").parse().unwrap();
    let template = RequestTemplate {
        method: Method::POST,
        url: url.clone(),
        headers: HeaderMap::new(),
        body: vec![b'x'; 8 << 20].into(),
    };
    let summary = run(&LoadTest { traffic: single(template), ..load(&url.to_string(), closed(1, 2)) });
    assert_eq!(summary.measured.status_codes.keys().copied().collect::<Vec<_>>(), [413]);
}

#[test]
fn digest_is_checked_for_the_body_of_the_final_success_only() {
    let digest = Sha256::digest("hello").into();
    let address = responding(|head| match head.split(' ').nth(1) {
        Some("/there") => ok("hello"),
        Some("/gone") => b"HTTP/1.1 503 Oops\r\nContent-Length: 3\r\n\r\nno!".to_vec(),
        Some("/other") => ok("hallo"),
        Some("/empty") => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 3\r\n\r\n...".to_vec(),
    });
    for (path, status) in [("/", 200), ("/there", 200), ("/gone", 503), ("/other", 0), ("/empty", 0)] {
        let options =
            ClientOptions { redirects_max: 1, body_digest: Some(digest), ..ClientOptions::default() };
        let summary = run(&LoadTest { options, ..load(&format!("http://{address}{path}"), closed(1, 1)) });
        let statuses: Vec<u16> = summary.measured.status_codes.keys().copied().collect();
        assert_eq!(statuses, [status], "{path}: {:?}", summary.measured.errors);
        assert_eq!(summary.measured.failures_of(FailureClass::Digest), u64::from(status == 0), "{path}");
    }
}

/// A server that closes each connection at its second request, without a response.
fn closing_server() -> std::net::SocketAddr {
    server(|mut connection| {
        let mut requests = BufReader::new(connection.try_clone().unwrap());
        if read_head(&mut requests).is_ok_and(|head| head.is_some()) {
            let _ = connection.write_all(&ok("hello"));
            let _ = read_head(&mut requests);
        }
    })
}

#[test]
fn idempotent_requests_are_resent_after_the_connection_closed() {
    let url = format!("http://{}/", closing_server());
    let summary = run(&load(&url, closed(1, 10)));
    assert_eq!(
        (summary.measured.successes, summary.measured.resent),
        (10, 9),
        "{:?}",
        summary.measured.errors
    );
    // The server may have processed a POST.
    let template = RequestTemplate::new(Method::POST, url.parse().unwrap());
    let summary = run(&LoadTest { traffic: single(template), ..load(&url, closed(1, 10)) });
    assert_eq!((summary.measured.failures_of(FailureClass::Closed), summary.measured.resent), (5, 0));
}
