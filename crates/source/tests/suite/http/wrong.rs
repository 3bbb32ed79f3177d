//! Servers with invalid, late or missing responses: each fetch ends with an error that names the cause.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use stockade_model::source::{Source, SourceError};
use stockade_source::documents::NamedDocument;
use tokio::task::JoinSet;

use crate::http::{
    raw::{Raw, ok},
    support::{TASKS, assert_all_answered, assert_error, url, with},
};

async fn opened(raw: &Raw, parameters: &str) -> Arc<dyn Source> {
    with(&raw.url(), parameters).open().await.unwrap()
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    for (bytes, expected) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "it does not answer in HTTP: check host, port and scheme"),
        ("", "it closed the connection before its answer was whole"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "it closed the connection before its answer was whole"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "it closed the connection before its answer was whole",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "it closed the connection before its answer was whole",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\nhalf", "it does not answer in HTTP"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhalf\r\n", "the connection broke: "),
        (
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
            "it answers 500 Internal Server Error",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "it answers 204 No Content"),
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
            "401 Unauthorized: check the user and the password in the URL, user:password@host",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 25\r\n\r\n{\"reason\":\"no \\u001b[1m\"}",
            "403 Forbidden (no [1m): check what this user may do there",
        ),
        (
            "HTTP/1.1 301 Moved Permanently\r\nLocation: https://ada:secret@host/b?key=secret\r\n\
             Content-Length: 0\r\n\r\n",
            "301 Moved Permanently, to https://host/b: name that place instead",
        ),
        ("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "302 Found: name the place itself"),
    ] {
        let source = opened(&Raw::answering(bytes), "token=secret").await;
        for _ in 0..2 {
            assert_error(source.fetch("a").await, &["http://127.0.0.1:", expected]);
        }
    }
    let gone = opened(&Raw::answering("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"), "").await;
    assert_eq!(gone.fetch("a").await.unwrap(), None);
}

#[tokio::test]
async fn missing_and_unfinished_responses_time_out() {
    let timeout = Duration::from_secs(2);
    for bytes in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"] {
        let silent = Raw::start(move |_, stream| {
            stream.write_all(bytes.as_bytes()).unwrap();
            // Until the client closes the connection.
            stream.read(&mut [0]).is_err()
        });
        let source = opened(&silent, "timeout=2s&connections=2").await;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let source = Arc::clone(&source);
            tasks.spawn(async move { source.fetch("a").await });
        }
        for fetched in tasks.join_all().await {
            assert!(
                matches!(fetched, Err(SourceError::TimedOut { after, .. }) if after == timeout),
                "{fetched:?}"
            );
        }
    }
}

#[tokio::test]
async fn endless_responses_are_cut_off() {
    let bodies = Raw::start(|_, stream| {
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while sent.is_ok() {
            sent = stream.write_all(chunk.as_bytes());
        }
        false
    });
    assert_error(opened(&bodies, "timeout=1m").await.fetch("a").await, &["its answer has more than 64 MiB"]);
    let heads = Raw::start(|_, stream| {
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while sent.is_ok() {
            sent = stream.write_all(b"x: y\r\n");
        }
        false
    });
    assert_error(opened(&heads, "timeout=1m").await.fetch("a").await, &["it does not answer in HTTP"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded_and_responses_match_requests() {
    let raw = Raw::start(|target, stream| stream.write_all(ok(&body(target)).as_bytes()).is_ok());
    let source = opened(&raw, "connections=3").await;
    let documents: Vec<_> = (0..TASKS).map(|n| document(&format!("{n}"))).collect();
    for _ in 0..20 {
        assert_all_answered(&source, &documents).await;
    }
    assert_eq!(raw.connections_max(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_fetch_reuses_its_connection_and_leaks_no_response() {
    let raw = Raw::start(|target, stream| stream.write_all(ok(&body(target)).as_bytes()).is_ok());
    let source = opened(&raw, "connections=2").await;
    let documents: Vec<_> = (0..TASKS).map(|n| document(&format!("{n}"))).collect();
    for steps in 0..200 {
        // Polled a few times, like a fetch that is cancelled at an arbitrary moment.
        let mut fetch = source.fetch("left");
        for _ in 0..steps % 10 {
            if futures_util::future::poll_immediate(&mut fetch).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(fetch);
        if steps % 10 == 9 {
            assert_all_answered(&source, &documents).await;
        }
    }
    assert_eq!(raw.connections(), 2);
}

#[tokio::test]
async fn unrequested_response_matches_no_request() {
    let raw = Raw::start(|target, stream| {
        let answers = format!("{}{}", ok(&body(target)), ok("an unrequested answer"));
        stream.write_all(answers.as_bytes()).is_ok()
    });
    let source = opened(&raw, "connections=1").await;
    for _ in 0..20 {
        match source.fetch("a").await {
            Ok(document) => assert_eq!(document.unwrap(), body("/a")),
            Err(error) => assert!(error.to_string().contains("it does not answer in HTTP"), "{error}"),
        }
    }
}

#[tokio::test]
async fn connection_closed_while_idle_fails_no_request() {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    // The server closes without notice: it responds once, reads the next request, and closes.
    let raw = Raw::start(move |target, stream| {
        seen.fetch_add(1, SeqCst);
        stream.write_all(ok(&body(target)).as_bytes()).unwrap();
        let _ = stream.read(&mut [0]);
        false
    });
    let source = opened(&raw, "connections=1").await;
    for n in 1..=20 {
        assert_eq!(source.fetch("a").await.unwrap().unwrap(), body("/a"));
        assert_eq!(requests.load(SeqCst), n);
    }
}

#[tokio::test]
async fn parameters_of_the_server_are_sent_and_not_shown() {
    let raw = Raw::start(|target, stream| stream.write_all(ok(target).as_bytes()).is_ok());
    let place = with(&format!("{}/a", raw.url()), "lang=en&timeout=3s&token=secret");
    let fetched = place.open().await.unwrap().fetch("b/c").await.unwrap().unwrap();
    assert_eq!(fetched, "/a/b%2Fc?lang=en&token=secret");
    assert_eq!(place.to_string(), format!("{}/a?timeout=3s", raw.url()));
    assert_error(
        place.open().await.unwrap().fetch("..").await,
        &["`..` is not an id: a server takes it for a folder"],
    );
}

#[tokio::test]
async fn other_servers_are_refused_as_couchdb() {
    for (body, expected) in [
        ("{}", "it is not a CouchDB: check host, port and database"),
        ("<html>", "it is not a CouchDB: check host, port and database"),
    ] {
        let raw = Raw::start(move |_, stream| stream.write_all(ok(body).as_bytes()).is_ok());
        let place = url(&format!("couchdb://ada:secret@127.0.0.1:{}/db", raw.port()));
        assert_error(place.open().await, &["couchdb://ada@127.0.0.1:", "/db cannot be used: ", expected]);
    }
}

fn document(id: &str) -> NamedDocument {
    NamedDocument { id: id.into(), body: body(&format!("/{id}")).into() }
}

fn body(target: &str) -> String {
    format!("{{\"target\":\"{target}\"}}")
}
