//! Ten thousand keys and ten thousand cancelled callers leave no state behind.

use std::time::Duration;

use super::nodes::{self, BUSY, MINUTE, MS, Node, Source, coalescing, command, until};
use futures_util::future::join_all;
use stockade_cache::{Invalidation, Live, Runtime};
use stockade_services::RedisServer;

const KEYS: usize = 10_000;

fn is_clean(node: &Node) -> bool {
    // No waiters in the tier, no pending work.
    let tier = format!("{:?}", node.tier);
    node.cache.coalesced_loads() == 0 && tier.contains("waiting: 0") && tier.contains("pending: 0")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_requests_leave_no_state() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let url = format!("{}?lease=60s&timeout=60s", redis.url());
    let source = Source::new(&live, 500 * MS);
    let nodes: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    let keys: Vec<_> = (0..KEYS).map(|key| key.to_string()).collect();
    // Both nodes request each key: one loads, the other waits. All requests are cancelled at once.
    let mut requests: Vec<_> =
        keys.iter().flat_map(|key| nodes.iter().map(|node| Box::pin(node.try_get(key, &source)))).collect();
    for request in &mut requests {
        assert!(futures_util::poll!(request).is_pending());
    }
    until("some load", async || source.loads() > 100).await;
    drop(requests);
    until("all loads are over", async || nodes.iter().all(is_clean)).await;
    assert_eq!(source.loads(), KEYS);
    for kind in ["l", "w"] {
        assert_eq!(names(&redis, kind).await, 0, "{kind}");
    }
    assert_eq!(names(&redis, "v").await, KEYS);
    // The value of a cancelled request is available to all.
    let answers = join_all(keys.iter().map(|key| nodes[1].get(key, &source))).await;
    assert_eq!((answers.len(), source.loads()), (KEYS, KEYS));
}

async fn names(redis: &RedisServer, kind: &str) -> usize {
    command::<Vec<String>>(redis, &format!("KEYS stockade:{kind}:*")).await.len()
}

/// Cancelled requests may have taken locks, or may still take them: the locks are freed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_redis_keeps_no_lock() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let lease = Duration::from_secs(20);
    let source = Source::new(&live, MS);
    let nodes: [Node; 2] =
        nodes::nodes(&format!("{}?lease=20s&timeout=100ms", redis.url()), &coalescing(MINUTE), true).await;
    let keys: Vec<_> = (0..KEYS).map(|key| key.to_string()).collect();
    // Redis has the scripts now.
    nodes[0].get("first", &source).await;
    nodes[0].cache.wait_idle().await;
    redis.process().unwrap().freeze();
    // The state of the first locks is unknown.
    let answers = join_all(keys.iter().map(|key| nodes[0].get(key, &source))).await;
    assert_eq!((answers.len(), source.loads()), (KEYS, KEYS + 1));
    redis.process().unwrap().thaw();
    let thawed = live.now();
    until("it is up", async || nodes.iter().all(|node| node.tier.is_connected())).await;
    until("all is over", async || nodes.iter().all(is_clean)).await;
    until("no lock is left", async || names(&redis, "l").await == 0).await;
    let took = live.now() - thawed;
    println!("no lock was left {took:?} after the thaw, with a lease of {lease:?}");
    assert!(took < 3 * BUSY, "{took:?}");
    until("no waiters in Redis", async || names(&redis, "w").await == 0).await;
}

/// More events than the outbox holds while Redis is down: the other nodes drop all entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbox_is_bounded_while_redis_is_down_and_loses_no_invalidation() {
    const EVENTS: usize = 70_000;
    let (mut redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let url = format!("{}?lease=1s&timeout=5s", redis.url());
    let [one, other]: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    other.get("first", &source).await;
    other.get("last", &source).await;
    redis.kill();
    until("it is gone", async || !one.tier.is_connected() && !other.tier.is_connected()).await;
    let new = source.change();
    one.cache.invalidate(&"first".to_owned(), Invalidation::Hard);
    for key in 0..EVENTS {
        one.cache.invalidate(&key.to_string(), Invalidation::Hard);
    }
    one.cache.invalidate(&"last".to_owned(), Invalidation::Hard);
    let shown = format!("{:?}", one.tier);
    let pending: usize = shown.trim_end_matches(" }").rsplit(' ').next().unwrap().parse().unwrap();
    assert!(pending <= 1 << 16, "{pending}");
    assert_eq!(other.get("first", &source).await.value, "first 0", "the event is not sent yet");
    redis.restart().unwrap();
    let back = live.now();
    until("all events are sent", async || is_clean(&one)).await;
    for key in ["first", "last"] {
        until("it is gone", async || {
            other.cache.get(key).is_none_or(|value| value.ends_with(&new.to_string()))
        })
        .await;
        assert_eq!(other.get(key, &source).await.value, format!("{key} {new}"));
    }
    println!("{pending} pending of {EVENTS}, sent {:?} after its return", live.now() - back);
}

/// The same with Redis up: the outbox overflows while some events are in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbox_is_bounded_under_load_and_loses_no_invalidation() {
    const EVENTS: usize = 400_000;
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let [one, other]: [Node; 2] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    let keys: Vec<_> = (0..400).map(|key| format!("kept {key}")).collect();
    join_all(keys.iter().map(|key| other.get(key, &source))).await;
    let start = live.now();
    for number in 0..EVENTS {
        let key = if number % 1_000 == 0 { keys[number / 1_000].clone() } else { number.to_string() };
        one.cache.invalidate(&key, Invalidation::Hard);
    }
    let queueing = live.now() - start;
    until("all events are sent", async || is_clean(&one)).await;
    println!("{EVENTS} queued in {queueing:?}, sent after {:?}", live.now() - start);
    until("all is gone", async || keys.iter().all(|key| other.cache.get(key).is_none())).await;
}
