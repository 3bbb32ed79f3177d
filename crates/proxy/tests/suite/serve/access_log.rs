//! Entries of the access log for requests that failed or were refused.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::serve::support::*;

fn log_to(path: &Path) -> String {
    format!("[log]\nformat = \"json\"\npath = \"{}\"\n", path.display())
}

/// The records once there are this many.
async fn records(path: &Path, count: usize) -> Vec<Value> {
    let text = log_lines(path, count).await;
    text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

/// An origin whose port refuses connections.
async fn refusing_origin() -> Origin {
    let mut origin = Origin::responding(|_| good(b"")).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    origin.address = listener.local_addr().expect("an address");
    origin
}

#[tokio::test]
async fn failed_request_is_logged_with_the_reason_of_the_origin() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let origin = refusing_origin().await;
    let proxy = start_with(&origin, &format!("[cache]\nstrategy = \"none\"\n{}", log_to(&path))).await;
    let refused = format!("{}: connection refused", origin.address);
    for (number, method) in ["GET", "HEAD", "POST"].into_iter().enumerate() {
        assert_eq!(send(&proxy, method, "/a", &[]).await.status(), 502, "{method}");
        let record = &records(&path, number + 1).await[number];
        assert_eq!((&record["error"], &record["origin_status"]), (&json!(refused), &Value::Null), "{record}");
    }
}

#[tokio::test]
async fn request_that_the_breaker_refuses_is_logged_with_that_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let origin = refusing_origin().await;
    let breaker = "[cache]\nstrategy = \"breaker\"\nbreaker = { min_calls = 1, open_for = \"1h\" }\n";
    let proxy = start_with(&origin, &format!("{breaker}{}", log_to(&path))).await;
    assert_eq!(get(&proxy, "/a").await.status(), 502);
    assert_eq!(get(&proxy, "/a").await.status(), 503);
    let record = &records(&path, 2).await[1];
    assert_eq!(record["error"], json!("the load did not begin: the breaker is open"));
    assert_eq!(record.get("origin_ms"), None, "the origin was not asked: {record}");
}

#[tokio::test]
async fn stale_answer_is_logged_with_the_error_that_caused_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let origin = Origin::responding(|received| match received.number {
        0 => sized("200 OK", &["Cache-Control: max-age=0, stale-if-error=60"], b"old"),
        _ => sized("503 Service Unavailable", &[], b""),
    })
    .await;
    let proxy = start_with(&origin, &format!("[cache]\nstrategy = \"fallback\"\n{}", log_to(&path))).await;
    assert_eq!(get(&proxy, "/a").await.text(), "old");
    assert_eq!(get(&proxy, "/a").await.text(), "old");
    let records = records(&path, 2).await;
    assert_eq!(records[0].get("error"), None);
    assert_eq!(
        (&records[1]["error"], &records[1]["origin_status"]),
        (&json!("the origin answers 503 Service Unavailable"), &json!(503))
    );
}

#[tokio::test]
async fn refused_request_is_logged_with_client_status_and_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let origin = Origin::responding(|_| good(b"")).await;
    let proxy = start_with(&origin, &log_to(&path)).await;
    let huge = "x".repeat(80 << 10);
    for (number, (request, status, reason, url)) in [
        ("GET /a?token=b HTTP/1.1\r\n\r\n".to_owned(), 400, "the request names no host", "/a?token=***"),
        ("GET /a HTTP/1.1\nHost: a\n\n".to_owned(), 400, "a line ends in a bare LF", "/a"),
        ("TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, "TRACE is not supported", "/a"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 501, "CONNECT is not supported", "a:1"),
        (
            "GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(),
            501,
            "the only supported transfer coding is chunked",
            "/a",
        ),
        ("GET\x01 / HTTP/1.1\r\n\r\n".to_owned(), 400, "invalid HTTP method parsed", "-"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {huge}\r\n\r\n"), 431, "message head is too large", "-"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect_from([127, 0, 0, 9], &proxy).await;
        // The proxy closes the connection before it has read the huge head.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, request.as_bytes()).await;
        assert_eq!(client.head_to("GET").await.expect("a response").status, status, "{reason}");
        let record = &records(&path, number + 1).await[number];
        assert_eq!(
            (&record["status"], &record["error"], &record["url"], &record["cache"]),
            (&json!(status), &json!(reason), &json!(url), &json!("error")),
            "{record}"
        );
        assert!(record["peer"].as_str().expect("an address").starts_with("127.0.0.9:"), "{record}");
    }
    assert_eq!(origin.count(), 0);
    assert!(fs::metadata(&path).expect("the log").len() < 4_096, "the huge head is not logged");
}
