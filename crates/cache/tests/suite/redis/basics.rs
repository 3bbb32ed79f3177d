//! A shared tier on a real Redis: each node is a cache with its own connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_cache::{
    Answer, Cache, CacheMode, Invalidation, Live, LoadedValue, Outcome, RawCodec, Reason, RedisTier as Tier,
    Runtime, SharedTier, Strategy,
};
use stockade_services::RedisServer;

/// A node: its tier and its cache.
struct Node {
    tier: Arc<Tier>,
    cache: Cache<String, String>,
}

/// A source that counts its loads and takes some time.
#[derive(Clone, Default)]
struct Source {
    loads: Arc<AtomicU64>,
}

impl Source {
    async fn load(self, value: String, takes: Duration) -> Result<String, std::io::Error> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        let live = Live::new();
        live.sleep_until(live.now() + takes).await;
        Ok(value)
    }

    fn loads(&self) -> u64 {
        self.loads.load(Ordering::SeqCst)
    }
}

fn coalescing(ttl: Duration) -> Strategy {
    Strategy { ttl: Some(ttl), ..Strategy::preset("stampede").unwrap() }
}

impl Node {
    async fn new(redis: &RedisServer, strategy: &Strategy) -> Self {
        let tier = Tier::open(&format!("{}?lease=1s", redis.url())).unwrap();
        let dyn_tier: Arc<dyn stockade_cache::tier::Tier> = Arc::clone(&tier) as _;
        let shared = SharedTier::with_memory(dyn_tier, RawCodec, RawCodec);
        let cache = Cache::builder(strategy.clone()).shared_tier(shared).build().unwrap();
        let node = Self { tier, cache };
        node.until("the tier is up", |node| node.tier.is_connected()).await;
        node
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let live = Live::new();
        for _ in 0..5_000 {
            if is_so(self) {
                return;
            }
            live.sleep_until(live.now() + Duration::from_millis(1)).await;
        }
        panic!("{what}: never");
    }

    async fn get(&self, key: &str, source: &Source, value: &str) -> Answer<String> {
        let (source, value) = (source.clone(), value.to_owned());
        let load = move || source.load(value, Duration::from_millis(20));
        self.cache.get_with(key.to_owned(), load).await.unwrap()
    }
}

async fn nodes<const N: usize>(redis: &RedisServer, strategy: &Strategy) -> [Node; N] {
    let nodes = join_all((0..N).map(|_| Node::new(redis, strategy))).await;
    nodes.try_into().unwrap_or_else(|_| unreachable!("N nodes"))
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cold_key_is_loaded_once_on_all_nodes() {
    let (redis, source) = (RedisServer::start().unwrap(), Source::default());
    let nodes: [Node; 8] = nodes(&redis, &coalescing(MINUTE)).await;
    for round in 0..50 {
        let (key, source) = (format!("key {round}"), source.clone());
        let requests = nodes.iter().flat_map(|node| (0..10).map(|_| node.get(&key, &source, "Ada")));
        let answers = join_all(requests).await;
        assert!(answers.iter().all(|answer| answer.value == "Ada"));
        assert_eq!(answers.iter().filter(|answer| answer.outcome == Outcome::Miss).count(), 1);
        assert_eq!(source.loads(), round + 1, "{:?}", nodes.each_ref().map(|node| node.cache.stats()));
    }
    for node in &nodes {
        assert_eq!(node.get("key 7", &source, "").await.outcome, Outcome::Hit);
        assert_eq!(node.cache.stats().shared_failures, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_another_node_is_a_hit_with_its_age() {
    let (redis, source) = (RedisServer::start().unwrap(), Source::default());
    let [one, other] = nodes(&redis, &coalescing(MINUTE)).await;
    assert_eq!(one.get("ada", &source, "Ada").await.outcome, Outcome::Miss);
    one.cache.wait_idle().await;
    let answer = other.get("ada", &source, "not loaded").await;
    assert_eq!((answer.value.as_str(), answer.outcome), ("Ada", Outcome::Hit));
    assert!(matches!(answer.reason, Reason::Shared), "{:?}", answer.reason);
    assert!(answer.age < Duration::from_secs(1), "{:?}", answer.age);
    assert_eq!(other.cache.get("ada").as_deref(), Some("Ada"), "it is here now, too");
    let stats = other.cache.stats();
    assert_eq!((stats.loads, stats.shared_hits, stats.shared_misses, stats.shared_stores), (0, 1, 0, 0));
    let stats = one.cache.stats();
    assert_eq!((stats.shared_hits, stats.shared_misses, stats.shared_stores), (0, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidated_value_is_served_by_no_node() {
    let (redis, source) = (RedisServer::start().unwrap(), Source::default());
    let [one, other, third] = nodes(&redis, &coalescing(MINUTE)).await;
    for node in [&one, &other, &third] {
        // An entry whose removal shows that the first event has arrived.
        node.cache
            .get_with("ada".to_owned(), async || Ok::<_, std::io::Error>("first".to_owned()))
            .await
            .unwrap();
    }
    for round in 0..20 {
        let (old, new) = (format!("{round} old"), format!("{round} new"));
        one.cache.invalidate(&"ada".to_owned(), Invalidation::Hard);
        for node in [&one, &other, &third] {
            node.until("the old one is gone", |node| node.cache.get("ada").is_none()).await;
        }
        assert_eq!(other.get("ada", &source, &old).await.value, old);
        for node in [&third, &one] {
            assert_eq!(node.get("ada", &source, "not loaded").await.value, old, "round {round}");
        }
        other.cache.invalidate(&"ada".to_owned(), Invalidation::Hard);
        assert_eq!(other.get("ada", &source, &new).await.value, new, "the node itself at once");
        for node in [&one, &third] {
            node.until("the new one is served", |node| node.cache.get("ada").as_ref() != Some(&old)).await;
            assert_eq!(node.get("ada", &source, "not loaded").await.value, new);
        }
    }
    assert_eq!(source.loads(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_inserted_on_one_node_is_served_by_all() {
    let (redis, source) = (RedisServer::start().unwrap(), Source::default());
    let [one, other] = nodes(&redis, &coalescing(MINUTE)).await;
    assert_eq!(other.get("ada", &source, "Ada").await.value, "Ada");
    one.cache.insert("ada".to_owned(), "Lovelace".to_owned());
    other.until("the old one is gone", |node| node.cache.get("ada").as_deref() != Some("Ada")).await;
    let answer = other.get("ada", &source, "not loaded").await;
    assert_eq!((answer.value.as_str(), answer.outcome), ("Lovelace", Outcome::Hit));
    one.cache.invalidate_all(Invalidation::Hard);
    other.until("all are gone", |node| node.cache.is_empty()).await;
    assert_eq!(other.get("ada", &source, "Countess").await.value, "Countess");
    assert_eq!(source.loads(), 2);
}

#[tokio::test]
async fn reload_does_not_accept_a_value_of_the_tier() {
    let redis = RedisServer::start().unwrap();
    let strategy = coalescing(Duration::from_secs(60));
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::new(&redis, &strategy).await);
    }
    let load = |value: &'static str| {
        move |_reservation| async move { Ok::<_, std::io::Error>(LoadedValue::complete(value.to_owned())) }
    };
    let request = async |node: usize, mode, value| {
        let answer = nodes[node].cache.get_streaming("key".to_owned(), mode, load(value)).await.unwrap();
        (answer.value, answer.outcome)
    };
    assert_eq!(request(0, CacheMode::Default, "old").await, ("old".to_owned(), Outcome::Miss));
    // A reload coalesces with a load in flight, and the lease of this one may outlive its answer.
    nodes[0].cache.wait_idle().await;
    assert_eq!(request(1, CacheMode::Reload, "new").await, ("new".to_owned(), Outcome::Miss));
    assert_eq!(
        request(2, CacheMode::Default, "not loaded").await,
        ("new".to_owned(), Outcome::Hit),
        "the reload shared its value"
    );
}
