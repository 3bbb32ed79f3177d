//! A cluster instead of one Redis server.

use super::nodes::{self, BUSY, MINUTE, MS, Node, Source, coalescing, until};
use futures_util::future::join_all;
use stockade_cache::{Invalidation, Live, Outcome, Runtime};
use stockade_services::RedisCluster;

fn patient(cluster: &RedisCluster) -> String {
    format!("{}?lease=5s&timeout=5s", cluster.url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_behaves_like_one_redis() {
    let (cluster, live) = (RedisCluster::start().unwrap(), Live::new());
    let source = Source::new(&live, 20 * MS);
    let nodes: [Node; 4] = nodes::nodes(&patient(&cluster), &coalescing(MINUTE), true).await;
    let keys: Vec<_> = (0..100).map(|key| format!("sport:{key}")).collect();
    let requests = || keys.iter().flat_map(|key| nodes.iter().map(|node| node.get(key, &source)));
    let answers = join_all(requests()).await;
    assert_eq!(answers.iter().filter(|answer| answer.outcome == Outcome::Miss).count(), 100);
    assert_eq!(source.loads(), 100, "the keys are on all servers");

    // By key, by tag, all: entries are removed on all nodes and loaded once.
    let kinds: [fn(&Node, &[String]); 3] = [
        |node, keys| {
            keys.iter().for_each(|key| {
                node.cache.invalidate(key, Invalidation::Hard);
            });
        },
        |node, _| {
            node.cache.invalidate_tag("sport", Invalidation::Hard);
        },
        |node, _| {
            node.cache.invalidate_all(Invalidation::Hard);
        },
    ];
    for (round, invalidate) in kinds.into_iter().enumerate() {
        for node in &nodes {
            node.cache.wait_idle().await;
        }
        let new = source.change();
        let start = live.now();
        invalidate(&nodes[round], &keys);
        until("it is gone on all nodes", async || nodes.iter().all(|node| node.cache.is_empty())).await;
        println!("gone on all nodes {:?} after the invalidation", live.now() - start);
        for answer in join_all(requests()).await {
            assert!(answer.value.ends_with(&format!(" {new}")), "{}", answer.value);
        }
        assert_eq!(source.loads(), 100 * (round + 2));
    }
    nodes[0].cache.insert("sport:1".to_owned(), "written".to_owned());
    let is_there = async |node: &Node| node.get("sport:1", &source).await.value == "written";
    until("it is written", async || is_there(&nodes[1]).await).await;
}

/// Requests keys on all nodes in turn. Returns the number of keys with one load, by the state of their server, and the
/// longest wait.
async fn request_all(
    nodes: &[Node],
    keys: &[(String, bool)],
    source: &Source,
    live: &Live,
) -> ([usize; 2], std::time::Duration) {
    let (mut shared, mut longest) = ([0, 0], MS);
    for (key, is_dead) in keys {
        let loads = source.loads_of(key);
        for node in nodes {
            let start = live.now();
            assert_eq!(node.get(key, source).await.value, format!("{key} {}", source.version()));
            longest = longest.max(live.now() - start);
            node.cache.wait_idle().await;
        }
        shared[usize::from(*is_dead)] += usize::from(source.loads_of(key) == loads + 1);
    }
    (shared, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_cluster_server_loses_its_keys_and_no_request_fails() {
    let (mut cluster, live) = (RedisCluster::start().unwrap(), Live::new());
    let source = Source::new(&live, 2 * MS);
    let url = format!("{}?lease=500ms&timeout=200ms", cluster.url());
    let nodes: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    let log = cluster.server_of("stockade:log").unwrap();
    for dying in [(log + 1) % 3, log] {
        let is_dead = |key: &String| cluster.server_of(&format!("{{:{key}}}")).unwrap() == dying;
        let keys = (0..60).map(|key| format!("{dying}-{key}"));
        let keys: Vec<_> = keys.map(|key| (key.clone(), is_dead(&key))).collect();
        let dead = keys.iter().filter(|(_, is_dead)| *is_dead).count();
        let ([shared, _], _) = request_all(&nodes, &keys, &source, &live).await;
        assert_eq!(shared, 60 - dead, "all values are shared");
        cluster.kill(dying);
        if dying != log {
            // Some requests detect it.
            request_all(&nodes, &keys, &source, &live).await;
            until("the nodes are connected without it", async || {
                nodes.iter().all(|node| node.tier.is_connected())
            })
            .await;
        }
        source.change();
        for (key, _) in &keys {
            nodes[0].cache.invalidate(key, Invalidation::Hard);
            nodes[1].cache.invalidate(key, Invalidation::Soft);
        }
        for node in &nodes {
            // The event for a server that is down is sent later; the local invalidation happens at once.
            keys.iter().for_each(|(key, _)| {
                node.cache.invalidate(key, Invalidation::Hard);
            });
        }
        if dying != log {
            let is_sent = async || nodes.iter().all(|node| format!("{:?}", node.tier).contains("pending: 0"));
            until("all events are sent", is_sent).await;
        }
        let ([shared, dead_shared], longest) = request_all(&nodes, &keys, &source, &live).await;
        println!(
            "one of three is dead ({}): {shared} of {} keys shared, {dead_shared} of its {dead}; longest wait {longest:?}",
            if dying == log { "that with the log" } else { "another" },
            60 - dead
        );
        assert!(longest < BUSY, "{longest:?}");
        if dying != log {
            assert!(shared * 10 >= (60 - dead) * 9 && dead_shared == 0, "{shared}, {dead_shared}");
        }
        cluster.restart(dying).unwrap();
        let back = live.now();
        until("all are up", async || nodes.iter().all(|node| node.tier.is_connected())).await;
        let is_used = async || {
            source.change();
            nodes[0].cache.invalidate_all(Invalidation::Hard);
            until("it is gone", async || nodes.iter().all(|node| node.cache.is_empty())).await;
            request_all(&nodes, &keys, &source, &live).await.0 == [60 - dead, dead]
        };
        until("it is used again", is_used).await;
        println!("used again {:?} after it was back", live.now() - back);
    }
}
