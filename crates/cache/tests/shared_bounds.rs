//! What ten thousand keys and ten thousand callers that leave do not leave behind.
#![cfg(feature = "redis")]

mod nodes;

use std::time::Duration;

use futures_util::future::join_all;
use nodes::{BUSY, MINUTE, MS, Node, Source, coalescing, tell, until};
use stockade_cache::{Invalidation, Live, Runtime};
use stockade_services::Redis;

const KEYS: usize = 10_000;

fn is_clean(node: &Node) -> bool {
    // Nobody waits in the tier, nothing is pending.
    let tier = format!("{:?}", node.tier);
    node.cache.flights() == 0 && tier.contains("waiting: 0") && tier.contains("pending: 0")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_that_are_dropped_leave_nothing_behind() {
    let (redis, live) = (Redis::start().unwrap(), Live::new());
    let url = format!("{}?lease=10s&timeout=10s", redis.url());
    let source = Source::new(&live, 500 * MS);
    let nodes: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), false).await;
    let keys: Vec<_> = (0..KEYS).map(|key| key.to_string()).collect();
    // Both ask for each: one of them loads, the other waits. All leave at once.
    let mut requests: Vec<_> =
        keys.iter().flat_map(|key| nodes.iter().map(|node| Box::pin(node.ask(key, &source)))).collect();
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
    // What was loaded for nobody is there for everybody.
    let answers = join_all(keys.iter().map(|key| nodes[1].get(key, &source))).await;
    assert_eq!((answers.len(), source.loads()), (KEYS, KEYS));
}

async fn names(redis: &Redis, kind: &str) -> usize {
    tell::<Vec<String>>(redis, &format!("KEYS stockade:{kind}:*")).await.len()
}

/// Questions that were given up may have taken locks all the same, or take them yet: they are freed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_freezes_under_ten_thousand_questions_keeps_no_lock() {
    let (redis, live) = (Redis::start().unwrap(), Live::new());
    let lease = Duration::from_secs(20);
    let source = Source::new(&live, MS);
    let nodes: [Node; 2] =
        nodes::nodes(&format!("{}?lease=20s&timeout=100ms", redis.url()), &coalescing(MINUTE), false).await;
    let keys: Vec<_> = (0..KEYS).map(|key| key.to_string()).collect();
    // It knows the scripts.
    nodes[0].get("first", &source).await;
    nodes[0].cache.idle().await;
    redis.process().unwrap().freeze();
    // Nobody knows whether the first of them have their locks.
    let answers = join_all(keys.iter().map(|key| nodes[0].get(key, &source))).await;
    assert_eq!((answers.len(), source.loads()), (KEYS, KEYS + 1));
    redis.process().unwrap().thaw();
    let thawed = live.now();
    until("it is up", async || nodes.iter().all(|node| node.tier.is_up())).await;
    until("all is over", async || nodes.iter().all(is_clean)).await;
    until("no lock is left", async || names(&redis, "l").await == 0).await;
    let took = live.now() - thawed;
    println!("no lock was left {took:?} after the thaw, with a lease of {lease:?}");
    assert!(took < 3 * BUSY, "{took:?}");
    until("nobody is told to wait", async || names(&redis, "w").await == 0).await;
}

/// More is told while Redis is away than anybody remembers: other nodes forget everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_while_redis_is_away_is_bounded_and_nothing_is_forgotten() {
    const TOLD: usize = 70_000;
    let (mut redis, live) = (Redis::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let url = format!("{}?lease=1s&timeout=5s", redis.url());
    let [one, other]: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), false).await;
    other.get("first", &source).await;
    other.get("last", &source).await;
    redis.kill();
    until("it is gone", async || !one.tier.is_up() && !other.tier.is_up()).await;
    let new = source.change();
    one.cache.invalidate(&"first".to_owned(), Invalidation::Hard);
    for key in 0..TOLD {
        one.cache.invalidate(&key.to_string(), Invalidation::Hard);
    }
    one.cache.invalidate(&"last".to_owned(), Invalidation::Hard);
    let shown = format!("{:?}", one.tier);
    let pending: usize = shown.trim_end_matches(" }").rsplit(' ').next().unwrap().parse().unwrap();
    assert!(pending <= 1 << 16, "{pending}");
    assert_eq!(other.get("first", &source).await.value, "first 0", "nobody could tell");
    redis.restart().unwrap();
    let back = live.now();
    until("all is told", async || is_clean(&one)).await;
    for key in ["first", "last"] {
        until("it is gone", async || {
            other.cache.get(key).is_none_or(|value| value.ends_with(&new.to_string()))
        })
        .await;
        assert_eq!(other.get(key, &source).await.value, format!("{key} {new}"));
    }
    println!("{pending} pending of {TOLD}, told {:?} after its return", live.now() - back);
}

/// The same while it is there: so much is told so fast that all of it is given up while some is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_faster_than_redis_hears_is_bounded_and_nothing_is_forgotten() {
    const TOLD: usize = 400_000;
    let (redis, live) = (Redis::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let [one, other]: [Node; 2] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), false).await;
    let keys: Vec<_> = (0..400).map(|key| format!("kept {key}")).collect();
    join_all(keys.iter().map(|key| other.get(key, &source))).await;
    let told = live.now();
    for number in 0..TOLD {
        let key = if number % 1_000 == 0 { keys[number / 1_000].clone() } else { number.to_string() };
        one.cache.invalidate(&key, Invalidation::Hard);
    }
    let telling = live.now() - told;
    until("all is told", async || is_clean(&one)).await;
    println!("{TOLD} told in {telling:?}, heard after {:?}", live.now() - told);
    until("all is gone", async || keys.iter().all(|key| other.cache.get(key).is_none())).await;
}
