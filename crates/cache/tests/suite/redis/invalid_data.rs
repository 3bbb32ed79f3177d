//! A Redis that returns wrong data or errors: callers receive the source's values.

use std::time::Duration;

use super::nodes::{self, BUSY, MINUTE, MS, Node, Source, coalescing, command, connect, sleep, until};
use stockade_cache::{Invalidation, Live, Outcome, Runtime, Strategy};
use stockade_services::RedisServer;

const TIMEOUT: Duration = Duration::from_millis(100);

fn url(redis: &RedisServer) -> String {
    format!("{}?timeout=100ms&lease=500ms", redis.url())
}

/// Requests a key on all nodes, twice. Returns the number of loads.
async fn request_twice(nodes: &[Node], key: &str, source: &Source, live: &Live) -> usize {
    let loads = source.loads_of(key);
    for node in nodes.iter().chain(nodes) {
        let start = live.now();
        let answer = node.get(key, source).await;
        let took = live.now() - start;
        assert_eq!(answer.value, format!("{key} {}", source.version()), "{key}");
        assert!(took < TIMEOUT + BUSY, "{key}: {took:?}");
        node.cache.wait_idle().await;
    }
    source.loads_of(key) - loads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_value_is_ignored_and_replaced() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let nodes: [Node; 2] = nodes::nodes(&url(&redis), &coalescing(MINUTE), true).await;
    assert_eq!(request_twice(&nodes, "good", &source, &live).await, 1);
    let mut redis_too = connect(&redis).await;
    let good: Vec<u8> =
        redis::cmd("GET").arg("stockade:v:{:good}").query_async(&mut redis_too).await.unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let now = text.split(' ').nth(2).unwrap().parse::<u64>().unwrap();
    let line = |stamp: u64, fresh: u64| format!("S1 f {stamp} {fresh} {stamp} 0 0 - - 00000000\ninvalid");
    let hour = 3_600_000_000;
    let values: [(&str, Vec<u8>); 9] = [
        ("garbage", vec![0xff, 0, b'\n', 7, 200]),
        ("empty", Vec::new()),
        ("of another key", good.clone()),
        ("truncated", good[..good.len() - 1].to_vec()),
        ("no body", good[..20].to_vec()),
        ("from the future", line(now + hour, now + 2 * hour).into()),
        ("from the very future", line(u64::MAX, u64::MAX).into()),
        ("plausible", line(now + 1_000, now + hour).into()),
        ("long ago", line(1, now + hour).into()),
    ];
    for (key, value) in &values {
        let name = format!("stockade:v:{{:{key}}}");
        let _: String = redis::cmd("SET").arg(name).arg(value).query_async(&mut redis_too).await.unwrap();
        assert_eq!(request_twice(&nodes, key, &source, &live).await, 1, "{key}: the value is replaced");
    }
    for kind in ["v", "l", "w"] {
        let key = format!("list-{kind}");
        let name = format!("stockade:{kind}:{{:{key}}}");
        let _: usize = command(&redis, &format!("RPUSH {name} a b")).await;
        assert!(request_twice(&nodes, &key, &source, &live).await <= 2, "{key}");
        // The session continues with the next event.
        for how in [Invalidation::Soft, Invalidation::Hard] {
            let _: usize = command(&redis, &format!("DEL {name}")).await;
            let _: usize = command(&redis, &format!("RPUSH {name} a b")).await;
            source.change();
            nodes[0].cache.invalidate(&key, how);
            until("the other node has the event", async || nodes[1].cache.get(&key).is_none()).await;
            assert!(request_twice(&nodes, &key, &source, &live).await <= 2, "{key}");
            assert!(nodes.iter().all(|node| node.tier.is_connected()));
        }
    }
    // A lock without an owner, which is never released.
    let _: String = command(&redis, "SET stockade:l:{:locked} token").await;
    let start = live.now();
    assert_eq!(nodes[0].get("locked", &source).await.value, format!("locked {}", source.version()));
    assert!(live.now() - start < Duration::from_millis(500) + BUSY, "{:?}", live.now() - start);
}

/// Redis may report any lifetime of an entry, and nodes may pause: no value is served beyond the hard limit of the
/// node's own strategy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_value_is_served_beyond_the_hard_limit() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let long = coalescing(MINUTE);
    let short = Strategy { ttl: Some(200 * MS), sie: 200 * MS, ..coalescing(MINUTE) };
    let generous = Node::at(&url(&redis), &long, true).up().await;
    let strict = Node::at(&url(&redis), &short, true).up().await;
    let without_memory = Node::at(&url(&redis), &short, false).up().await;
    generous.get("key", &source).await;
    let loaded = live.now();
    generous.cache.wait_idle().await;
    source.break_down(true);
    let (mut fallbacks, mut errors, mut hits) = (0, 0, 0);
    while live.now() < loaded + 700 * MS {
        for node in [&strict, &without_memory] {
            let start = live.now();
            match node.try_get("key", &source).await {
                Ok(answer) => {
                    // The coarse clock is up to two milliseconds late, and the load ended after its start.
                    assert!(start - loaded <= 405 * MS, "{answer:?} {:?} after its load", start - loaded);
                    match answer.outcome {
                        Outcome::Fallback => fallbacks += 1,
                        _ => hits += 1,
                    }
                }
                Err(_) => errors += 1,
            }
            sleep(2 * MS).await;
        }
    }
    assert!(hits > 0 && fallbacks > 0 && errors > 0, "{hits} hits, {fallbacks} fallbacks, {errors} errors");
    assert_eq!(generous.get("key", &source).await.outcome, Outcome::Hit, "its own limit is later");
}

/// Redis responds to each script with an error, or writes fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_redis_is_bypassed_and_used_again_later() {
    let redis = RedisServer::with(&["--maxmemory-policy", "noeviction"]).unwrap();
    let (leader, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let nodes: [Node; 2] = nodes::nodes(&url(&redis), &coalescing(MINUTE), true).await;
    assert_eq!(request_twice(&nodes, "before", &source, &live).await, 1);
    let replicate = format!("REPLICAOF 127.0.0.1 {}", leader.port());
    let refusals = [
        ("acl", vec!["ACL SETUSER default -eval -evalsha"], vec!["ACL SETUSER default +@all"]),
        ("keys", vec!["ACL SETUSER default resetkeys ~other:*"], vec!["ACL SETUSER default ~*"]),
        ("oom", vec!["CONFIG SET maxmemory 1"], vec!["CONFIG SET maxmemory 0"]),
        ("replica", vec![replicate.as_str()], vec!["REPLICAOF NO ONE"]),
    ];
    for (refusal, begin, end) in refusals {
        for words in begin {
            let _: String = command(&redis, words).await;
        }
        if refusal == "replica" {
            let is_replica =
                async || command::<String>(&redis, "INFO replication").await.contains("link_status:up");
            until("the replica is connected", is_replica).await;
        }
        for key in 0..10 {
            let key = format!("{refusal} {key}");
            let loads = request_twice(&nodes, &key, &source, &live).await;
            assert!((1..=2).contains(&loads), "{key}: {loads} loads");
        }
        // Events meanwhile wait, or take effect at once.
        source.change();
        nodes[0].cache.invalidate(&format!("{refusal} 1"), Invalidation::Hard);
        assert_eq!(
            nodes[0].get(&format!("{refusal} 1"), &source).await.value,
            format!("{refusal} 1 {}", source.version())
        );
        for words in end {
            let _: String = command(&redis, words).await;
        }
        let back = live.now();
        until("the tier is up", async || nodes.iter().all(|node| node.tier.is_connected())).await;
        let key = format!("{refusal} after");
        until("the tier is used", async || {
            source.change();
            nodes[0].cache.invalidate(&key, Invalidation::Hard);
            request_twice(&nodes, &key, &source, &live).await == 1
        })
        .await;
        println!("{refusal}: used {:?} after the refusal", live.now() - back);
    }
}
