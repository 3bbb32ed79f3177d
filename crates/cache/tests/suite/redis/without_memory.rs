//! Nodes without local entries: each lookup reads from Redis.

use std::time::Duration;

use super::nodes::{self, BUSY, MINUTE, MS, Node, Source, coalescing, command, sleep, until};
use futures_util::future::join_all;
use stockade_cache::{Answer, Error, Live, Outcome, Reason, Refresh, Runtime, Strategy};
use stockade_services::RedisServer;

async fn nodes_without_memory(redis: &RedisServer, strategy: &Strategy) -> [Node; 4] {
    nodes::nodes(&nodes::patient(redis), strategy, false).await
}

async fn all(nodes: &[Node], key: &str, source: &Source) -> Vec<Answer<String>> {
    join_all(nodes.iter().map(|node| node.get(key, source))).await
}

async fn idle(nodes: &[Node]) {
    for node in nodes {
        node.cache.wait_idle().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_load_a_key_once_and_keep_nothing() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 20 * MS);
    let nodes = nodes_without_memory(&redis, &coalescing(MINUTE)).await;
    for round in 1..=20 {
        let key = round.to_string();
        let requests = nodes.iter().flat_map(|node| (0..10).map(|_| node.get(&key, &source)));
        let answers = join_all(requests).await;
        assert!(answers.iter().all(|answer| answer.value == format!("{key} 0")));
        assert_eq!(answers.iter().filter(|answer| answer.outcome == Outcome::Miss).count(), 1);
        assert_eq!(source.loads(), round);
        idle(&nodes).await;
        for answer in all(&nodes, &key, &source).await {
            assert!(matches!((answer.outcome, answer.reason), (Outcome::Hit, Reason::Shared)));
        }
    }
    // The response may arrive before the end of the task that sent it.
    idle(&nodes).await;
    assert!(nodes.iter().all(|node| node.cache.is_empty() && node.cache.coalesced_loads() == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_value_is_served_by_all_nodes_and_refreshed_by_one() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 300 * MS);
    let strategy = Strategy { swr: MINUTE, ..coalescing(200 * MS) };
    let nodes = nodes_without_memory(&redis, &strategy).await;
    for round in 1..=3 {
        all(&nodes, "key", &source).await;
        idle(&nodes).await;
        sleep(250 * MS).await;
        let loads = source.loads();
        let new = format!("key {}", source.change());
        let start = live.now();
        for _ in 0..10 {
            for answer in all(&nodes, "key", &source).await {
                assert_eq!((answer.outcome, answer.value == new), (Outcome::Stale, false), "{round}");
            }
        }
        assert!(live.now() - start < 300 * MS, "no request waits: {:?}", live.now() - start);
        idle(&nodes).await;
        assert_eq!(source.loads(), loads + 1, "round {round}");
        assert!(all(&nodes, "key", &source).await.iter().all(|answer| answer.value == new));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_value_in_redis_serves_until_gone_while_the_source_fails() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 50 * MS);
    let strategy = Strategy { sie: 1_000 * MS, ..coalescing(200 * MS) };
    let nodes = nodes_without_memory(&redis, &strategy).await;
    all(&nodes, "key", &source).await;
    let loaded = live.now();
    sleep(250 * MS).await;
    source.break_down(true);
    let mut fallbacks = 0;
    while live.now() < loaded + 900 * MS {
        let loads = source.loads();
        // The leader falls back, and so do its waiters.
        for answer in all(&nodes, "key", &source).await {
            assert_eq!((answer.outcome, answer.value.as_str()), (Outcome::Fallback, "key 0"));
            assert!(matches!(answer.reason, Reason::Failed(Error::Load(_) | Error::OtherNode { .. })));
            fallbacks += 1;
        }
        assert!(source.loads() - loads <= 2, "a late request leads again");
    }
    assert!(fallbacks > 8);
    sleep((loaded + 1_300 * MS) - live.now()).await;
    for gone in join_all(nodes.iter().map(|node| node.try_get("key", &source))).await {
        assert!(gone.is_err(), "{gone:?}");
    }
    source.break_down(false);
    assert_eq!(nodes[0].get("key", &source).await.outcome, Outcome::Miss);
}

/// All nodes request a key continuously for some ttls. Returns the loads, the waits and the refreshes.
async fn episodes(refresh: Refresh, ttl: Duration, load: Duration, for_ttls: u32) -> (u64, usize, u64) {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, load);
    let nodes = nodes_without_memory(&redis, &Strategy { refresh, ..coalescing(ttl) }).await;
    nodes[0].get("key", &source).await;
    idle(&nodes).await;
    let ends = live.now() + ttl * for_ttls;
    let waited = join_all(nodes.iter().map(async |node| {
        let mut waited = 0;
        while live.now() < ends {
            waited += usize::from(node.get("key", &source).await.outcome != Outcome::Hit);
            sleep(MS).await;
        }
        waited
    }));
    let waited = waited.await.iter().sum();
    idle(&nodes).await;
    let refreshes = nodes
        .iter()
        .map(|node| node.cache.stats())
        .map(|stats| stats.refreshes_early + stats.refreshes_xfetch);
    (u64::try_from(source.loads()).unwrap(), waited, refreshes.sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_refresh_runs_on_one_of_all_nodes() {
    let (ttl, load) = (500 * MS, 20 * MS);
    let (loads, waited, refreshes) = episodes(Refresh::Early { at: 0.6 }, ttl, load, 6).await;
    println!("early: {loads} loads in six ttls, {refreshes} refreshes, {waited} waits");
    // At 0.6 of each ttl, plus the duration of the load: at most nine, and the first one.
    assert!(refreshes + 3 >= loads, "{refreshes} refreshes, {loads} loads");
    // A machine that pauses may miss one.
    assert!((5..=10).contains(&loads) && waited <= 8, "{loads} loads, {waited} waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xfetch_refresh_runs_on_one_of_all_nodes() {
    let (ttl, load) = (500 * MS, 20 * MS);
    let (loads, waited, refreshes) = episodes(Refresh::XFetch { beta: 1.0 }, ttl, load, 6).await;
    println!("xfetch: {loads} loads in six ttls, {refreshes} refreshes, {waited} waits");
    // At this rate of requests a refresh starts some load durations before the end of each ttl.
    assert!((5..=12).contains(&loads), "{loads} loads");
    assert!(refreshes + 3 >= loads && waited <= 8, "{refreshes} refreshes, {waited} waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_found_has_its_own_ttl() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let absent = async |node: &Node| {
        let source = source.clone();
        let load = async move || source.load("absent".to_owned()).await.map(|_| String::new());
        node.cache.get_with("absent".to_owned(), load).await.unwrap()
    };
    let with_negative_ttl = Strategy { negative_ttl: Some(300 * MS), ..coalescing(MINUTE) };
    let nodes = nodes_without_memory(&redis, &with_negative_ttl).await;
    assert_eq!(absent(&nodes[0]).await.outcome, Outcome::Miss);
    let loaded = live.now();
    idle(&nodes).await;
    for node in &nodes {
        let answer = absent(node).await;
        if live.now() - loaded < 250 * MS {
            assert_eq!((answer.outcome, answer.value.as_str()), (Outcome::Negative, ""));
        }
    }
    sleep(350 * MS).await;
    assert_eq!(absent(&nodes[1]).await.outcome, Outcome::Miss, "the not-found has expired");

    let redis = RedisServer::start().unwrap();
    let nodes = nodes_without_memory(&redis, &coalescing(MINUTE)).await;
    let loads = source.loads();
    for node in &nodes {
        assert_eq!(absent(node).await.outcome, Outcome::Miss);
        node.cache.wait_idle().await;
    }
    assert_eq!(source.loads(), loads + 4);
    // The waiters receive it nevertheless.
    let slow = Source::new(&live, 300 * MS);
    let answers = join_all(nodes.iter().map(async |node| {
        let source = slow.clone();
        let load = async move || source.load("absent".to_owned()).await.map(|_| String::new());
        node.cache.get_with("absent".to_owned(), load).await.unwrap()
    }))
    .await;
    assert_eq!((slow.loads(), answers.iter().all(|answer| answer.value.is_empty())), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn independent_fetch_takes_no_lock() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 300 * MS);
    let nodes = nodes_without_memory(&redis, &Strategy::preset("simple").unwrap()).await;
    let answers = all(&nodes, "key", &source).await;
    assert!(answers.iter().all(|answer| answer.outcome == Outcome::Miss));
    assert_eq!((source.loads(), command::<usize>(&redis, "EXISTS stockade:l:{:key}").await), (4, 0));
    idle(&nodes).await;
    assert!(all(&nodes, "key", &source).await.iter().all(|answer| answer.outcome == Outcome::Hit));
    // An entry with a time in the future is replaced.
    let invalid = "S1_f_9000000000000000_9007199254740991_1_0_0_-_-_00000000\ninvalid".replace('_', " ");
    let mut redis_too = nodes::connect(&redis).await;
    let _: String = redis::cmd("SET")
        .arg("stockade:v:{:invalid}")
        .arg(invalid)
        .query_async(&mut redis_too)
        .await
        .unwrap();
    assert_eq!(nodes[0].get("invalid", &source).await.outcome, Outcome::Miss);
    idle(&nodes).await;
    assert_eq!(nodes[1].get("invalid", &source).await.outcome, Outcome::Hit);
    let start = live.now();
    until("all loads have ended", async || nodes.iter().all(|node| node.cache.coalesced_loads() == 0)).await;
    assert!(live.now() - start < BUSY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_hit_costs_one_get_and_no_script() {
    const HITS: u64 = 1_000;
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let nodes = nodes_without_memory(&redis, &coalescing(MINUTE)).await;
    let keys: Vec<String> = (0..HITS).map(|key| key.to_string()).collect();
    join_all(keys.iter().map(|key| nodes[0].get(key, &source))).await;
    idle(&nodes).await;
    let calls = async |name: &str| {
        let stats: String = command(&redis, "INFO commandstats").await;
        let line = format!("cmdstat_{name}:calls=");
        let calls =
            stats.lines().find_map(|stats| stats.strip_prefix(&line)?.split(',').next()?.parse().ok());
        calls.unwrap_or(0_u64)
    };
    let before = (calls("get").await, calls("evalsha").await);
    for key in &keys {
        assert_eq!(nodes[1].get(key, &source).await.outcome, Outcome::Hit);
    }
    let (gets, scripts) = (calls("get").await - before.0, calls("evalsha").await - before.1);
    assert_eq!((gets, source.loads()), (HITS, keys.len()));
    assert!(scripts < HITS / 10, "{scripts} scripts: the sessions run scripts too");
}
