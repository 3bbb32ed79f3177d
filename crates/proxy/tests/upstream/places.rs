//! One origin in several places.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_proxy::upstream::{HealthSettings, Probe, Settings, Upstream, UpstreamError};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

use crate::support::*;

const ONE: NonZeroU32 = NonZeroU32::new(1).expect("not zero");
const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");

async fn named(name: &'static str) -> Stub {
    Stub::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())).await
}

/// Where nobody listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

fn of(urls: &[String], health: HealthSettings) -> Settings {
    let urls = urls.iter().map(|url| url.parse().expect("an URL")).collect();
    Settings { urls, health, ..settings("http://unused") }
}

fn resting(failures: NonZeroU32, rest: Duration) -> HealthSettings {
    HealthSettings { failures, rest, probe: None }
}

fn healthy(upstream: &Upstream) -> Vec<bool> {
    upstream.state().places.iter().map(|place| place.is_healthy).collect()
}

#[tokio::test]
async fn the_least_busy_place_is_asked() {
    let (a, b) = (named("a").await, named("b").await);
    let upstream = upstream(of(&[a.url(), b.url()], HealthSettings::default()));
    let answers = soon(join_all((0..10).map(|_| upstream.send(get("/"))))).await;
    // All of them are still held: half of them is under way in each place.
    let requests: Vec<_> = upstream.state().places.iter().map(|place| place.requests).collect();
    assert!(requests.iter().sum::<usize>() <= 10, "{requests:?}");
    assert_eq!((a.accepted(), b.accepted()), (5, 5));
    drop(answers);
}

#[tokio::test]
async fn a_place_where_nobody_listens_costs_nobody_an_answer_and_then_rests() {
    let (dead, alive) = (nowhere().await, named("b").await);
    let upstream = upstream(of(&[dead, alive.url()], resting(TWO, Duration::from_mins(10))));
    for n in 0..4 {
        assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "b");
        assert_eq!(healthy(&upstream), [n == 0, true], "{n}");
        assert_eq!(upstream.state().places[0].failures, (n + 1).min(2), "it is not asked while it rests");
    }
}

#[tokio::test]
async fn where_all_rest_all_are_asked() {
    let upstream_of = |urls: [String; 2]| upstream(of(&urls, resting(ONE, Duration::from_mins(10))));
    let upstream = upstream_of([nowhere().await, nowhere().await]);
    for failures in 1..4 {
        let error = fetch(&upstream, "/").await.expect_err("nobody");
        assert!(matches!(error, UpstreamError::Refused { .. }), "{error:?}");
        let of_each: Vec<_> = upstream.state().places.iter().map(|place| place.failures).collect();
        assert_eq!(of_each, [failures, failures]);
        assert_eq!(healthy(&upstream), [false, false]);
    }
}

#[tokio::test]
async fn a_place_that_is_too_slow_rests_and_comes_back() {
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
    let settings = Settings { head_timeout: SHORT, ..of(&[stub.url()], resting(TWO, SHORT)) };
    let upstream = upstream(settings);
    for n in 1..=2 {
        let error = fetch(&upstream, "/").await.expect_err("too slow");
        assert!(matches!(error, UpstreamError::HeadTimeout { .. }), "{error:?}");
        assert_eq!(healthy(&upstream), [n < 2]);
    }
    until(|| healthy(&upstream) == [true]).await;
    is_slow.store(false, SeqCst);
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    assert_eq!(upstream.state().places[0].failures, 0);
}

#[tokio::test]
async fn probes_say_who_works_and_end_with_the_upstream() {
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
    let probe = Probe {
        path: "/health?deep".to_owned(),
        every: Duration::from_millis(5),
        timeout: PATIENCE,
        successes: TWO,
    };
    let health = HealthSettings { failures: TWO, rest: Duration::from_millis(1), probe: Some(probe) };
    let upstream = upstream(of(&[format!("{}/base", stub.url())], health));
    let probes = Handle::current().spawn(upstream.probes());
    until(|| stub.accepted() >= 3).await;
    assert_eq!(healthy(&upstream), [true]);
    works.store(false, SeqCst);
    until(|| healthy(&upstream) == [false]).await;
    // Time alone heals nothing.
    let seen = stub.accepted();
    until(|| stub.accepted() >= seen + 3).await;
    assert_eq!(healthy(&upstream), [false]);
    works.store(true, SeqCst);
    until(|| healthy(&upstream) == [true]).await;
    assert_eq!(stub.peak(), 1, "one at a time, and none is kept");
    drop(upstream);
    soon(probes).await.expect("an end");
}
