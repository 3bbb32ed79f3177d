//! Origins with several endpoints: selection, health, probes.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_http::upstream::{HealthProbe, HealthSettings, Upstream, UpstreamError, UpstreamSettings};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

use crate::upstream::support::*;

const ONE: NonZeroU32 = NonZeroU32::new(1).expect("not zero");
const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");

async fn stub_with_body(name: &'static str) -> Stub {
    Stub::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())).await
}

/// The URL of a port without a listener.
async fn unused_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

fn endpoint_settings(urls: &[String], health: HealthSettings) -> UpstreamSettings {
    let urls = urls.iter().map(|url| url.parse().expect("an URL")).collect();
    UpstreamSettings { urls, health, ..settings("http://unused") }
}

fn resting(failures: NonZeroU32, rest: Duration) -> HealthSettings {
    HealthSettings { failures, rest, probe: None }
}

fn healthy(upstream: &Upstream) -> Vec<bool> {
    upstream.status().endpoints.iter().map(|endpoint| endpoint.is_healthy).collect()
}

#[tokio::test]
async fn least_busy_endpoint_is_selected() {
    let (a, b) = (stub_with_body("a").await, stub_with_body("b").await);
    let upstream = upstream(endpoint_settings(&[a.url(), b.url()], HealthSettings::default()));
    let answers = with_timeout(join_all((0..10).map(|_| upstream.send(get("/"))))).await;
    // The responses are still held, so each endpoint has half of the requests.
    let requests: Vec<_> = upstream.status().endpoints.iter().map(|endpoint| endpoint.requests).collect();
    assert!(requests.iter().sum::<usize>() <= 10, "{requests:?}");
    assert_eq!((a.accepted(), b.accepted()), (5, 5));
    drop(answers);
}

#[tokio::test]
async fn refused_connection_is_retried_elsewhere_and_the_endpoint_rests() {
    let (dead, alive) = (unused_url().await, stub_with_body("b").await);
    let upstream = upstream(endpoint_settings(&[dead, alive.url()], resting(TWO, Duration::from_mins(10))));
    for n in 0..4 {
        assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "b");
        assert_eq!(healthy(&upstream), [n == 0, true], "{n}");
        assert_eq!(
            upstream.status().endpoints[0].failures,
            (n + 1).min(2),
            "a resting endpoint receives no request"
        );
    }
}

#[tokio::test]
async fn all_endpoints_are_tried_if_all_rest() {
    let upstream_of =
        |urls: [String; 2]| upstream(endpoint_settings(&urls, resting(ONE, Duration::from_mins(10))));
    let upstream = upstream_of([unused_url().await, unused_url().await]);
    for failures in 1..4 {
        let error = fetch(&upstream, "/").await.expect_err("a refused connection");
        assert!(matches!(error, UpstreamError::Refused { .. }), "{error:?}");
        let of_each: Vec<_> = upstream.status().endpoints.iter().map(|endpoint| endpoint.failures).collect();
        assert_eq!(of_each, [failures, failures]);
        assert_eq!(healthy(&upstream), [false, false]);
    }
}

#[tokio::test]
async fn slow_endpoint_rests_and_returns() {
    let is_slow = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&is_slow);
    let stub = Stub::start(move |_, mut tcp: TcpStream| {
        let own = Arc::clone(&own);
        async move {
            while read_head(&mut tcp).await.is_some() && !own.load(SeqCst) {
                let _ = tcp.write_all(HELLO).await;
            }
            read_to_end(&mut tcp).await;
        }
    })
    .await;
    let settings =
        UpstreamSettings { head_timeout: SHORT, ..endpoint_settings(&[stub.url()], resting(TWO, SHORT)) };
    let upstream = upstream(settings);
    for n in 1..=2 {
        let error = fetch(&upstream, "/").await.expect_err("too slow");
        assert!(matches!(error, UpstreamError::HeadTimeout { .. }), "{error:?}");
        assert_eq!(healthy(&upstream), [n < 2]);
    }
    until(|| healthy(&upstream) == [true]).await;
    is_slow.store(false, SeqCst);
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    assert_eq!(upstream.status().endpoints[0].failures, 0);
}

#[tokio::test]
async fn probes_set_the_health_and_end_with_the_upstream() {
    let works = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&works);
    let stub = Stub::start(move |_, mut tcp: TcpStream| {
        let own = Arc::clone(&own);
        async move {
            while let Some(head) = read_head(&mut tcp).await {
                assert!(head.starts_with("GET /base/health?deep HTTP/1.1\r\n"), "{head}");
                let status = if own.load(SeqCst) { "204 No Content" } else { "503 Service Unavailable" };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                let _ = tcp.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await;
    let probe = HealthProbe {
        path: "/health?deep".to_owned(),
        every: Duration::from_millis(5),
        timeout: HANG_GUARD,
        successes: TWO,
    };
    let health = HealthSettings { failures: TWO, rest: Duration::from_millis(1), probe: Some(probe) };
    let upstream = upstream(endpoint_settings(&[format!("{}/base", stub.url())], health));
    let probes = Handle::current().spawn(upstream.probes());
    until(|| stub.accepted() >= 3).await;
    assert_eq!(healthy(&upstream), [true]);
    works.store(false, SeqCst);
    until(|| healthy(&upstream) == [false]).await;
    // With probes, an endpoint does not become healthy by time alone.
    let seen = stub.accepted();
    until(|| stub.accepted() >= seen + 3).await;
    assert_eq!(healthy(&upstream), [false]);
    works.store(true, SeqCst);
    until(|| healthy(&upstream) == [true]).await;
    assert_eq!(stub.peak(), 1, "one probe at a time on a connection of its own");
    drop(upstream);
    with_timeout(probes).await.expect("an end");
}
