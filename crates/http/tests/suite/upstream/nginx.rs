//! An nginx that ends its connections early: after ten requests, and soon after each.

use std::{fs, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use stockade_http::upstream::{Upstream, UpstreamSettings};
use stockade_services::{NginxServer, free_port};

use crate::upstream::support::*;

const CLIENTS: usize = 9;
const REQUESTS: usize = 450;

/// How many of [`REQUESTS`] have failed, sent by [`CLIENTS`] at the same time, `pause` apart.
async fn failures(upstream: &Upstream, method: &Method, pause: Duration) -> usize {
    let client = |client: usize| async move {
        let mut failed = Vec::new();
        for n in 0..REQUESTS / CLIENTS {
            let request = Request::builder().method(method).uri(format!("/{client}-{n}"));
            let request = request.body(Full::new(Bytes::from(vec![b'a'; 100]))).expect("a request");
            match with_timeout(upstream.send(request)).await {
                Ok(answer) if answer.status().is_success() => drop(whole(answer).await),
                Ok(answer) => failed.push(answer.status().to_string()),
                Err(error) => failed.push(error.to_string()),
            }
            elapse(pause).await;
        }
        failed
    };
    let failed = with_timeout(join_all((0..CLIENTS).map(client))).await.concat();
    println!(
        "{method}: {} of {REQUESTS} have failed: {:?}",
        failed.len(),
        failed.iter().take(3).collect::<Vec<_>>()
    );
    failed.len()
}

/// Accepts PUT, and answers other methods by a file, after it has read their content.
fn nginx(settings: &[&str]) -> NginxServer {
    let common = ["dav_methods PUT", "error_page 404 405 =200 /file"];
    let server = NginxServer::with(&[&common, settings].concat()).expect("nginx");
    fs::write(server.documents().join("file"), "ok").expect("a file");
    server
}

#[tokio::test]
async fn no_request_is_lost_when_nginx_ends_connections_after_ten_requests() {
    let port = free_port().expect("a port");
    let server = nginx(&["keepalive_requests 10", &format!("listen 127.0.0.1:{port} http2")]);
    for (url, http2) in [(server.url(), false), (format!("http://127.0.0.1:{port}"), true)] {
        for method in [Method::POST, Method::PUT, Method::PATCH] {
            let upstream = upstream(UpstreamSettings { http2, ..settings(&url) });
            assert_eq!(failures(&upstream, &method, Duration::ZERO).await, 0, "{method} http2={http2}");
        }
    }
}

#[tokio::test]
async fn no_request_is_lost_when_nginx_closes_idle_connections() {
    let server = nginx(&["keepalive_timeout 5ms"]);
    for method in [Method::PUT, Method::POST] {
        let upstream = upstream(settings(&server.url()));
        let failed = failures(&upstream, &method, Duration::from_millis(5)).await;
        assert!(failed <= if method == Method::PUT { 0 } else { REQUESTS / 20 }, "{method}: {failed}");
    }
}
