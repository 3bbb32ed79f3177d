//! Nodes on one machine: caches with a shared tier on a real Redis, their source, and the network
//! between them.

pub mod proxy;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use stockade_cache::{
    Answer, Cache, Error, Live, RawCodec, RedisTier as Tier, Runtime, SharedTier, Strategy,
};
use stockade_model::time::Time;
use stockade_services::RedisServer;

pub const MS: Duration = Duration::from_millis(1);
pub const MINUTE: Duration = Duration::from_secs(60);

/// The delay that a busy machine may add to a wait.
pub const BUSY: Duration = Duration::from_secs(1);

/// A node: its tier and its cache. An empty value is a not-found; a key's tag is the part before its colon.
#[derive(Clone)]
pub struct Node {
    pub tier: Arc<Tier>,
    pub cache: Cache<String, String>,
}

/// A source that counts its loads and takes some time. Its value is the key, a space, and the key's version.
#[derive(Clone)]
pub struct Source(Arc<SourceState>);

struct SourceState {
    live: Live,
    takes: Duration,
    is_down: AtomicBool,
    version: AtomicU64,
    /// Start times of loads, by key.
    began: Mutex<BTreeMap<String, Vec<Time>>>,
}

impl Source {
    pub fn new(live: &Live, takes: Duration) -> Self {
        Self(Arc::new(SourceState {
            live: live.clone(),
            takes,
            is_down: AtomicBool::new(false),
            version: AtomicU64::new(0),
            began: Mutex::default(),
        }))
    }

    pub async fn load(self, key: String) -> Result<String, std::io::Error> {
        let SourceState { live, takes, .. } = &*self.0;
        let (began, value) = (live.now(), format!("{key} {}", self.version()));
        self.0.began.lock().unwrap().entry(key).or_default().push(began);
        live.sleep_until(began + *takes).await;
        if self.0.is_down.load(SeqCst) { Err(std::io::Error::other("the source is down")) } else { Ok(value) }
    }

    pub fn break_down(&self, is_down: bool) {
        self.0.is_down.store(is_down, SeqCst);
    }

    pub fn version(&self) -> u64 {
        self.0.version.load(SeqCst)
    }

    /// Changes the version of all keys.
    pub fn change(&self) -> u64 {
        self.0.version.fetch_add(1, SeqCst) + 1
    }

    pub fn loads(&self) -> usize {
        self.0.began.lock().unwrap().values().map(Vec::len).sum()
    }

    pub fn loads_of(&self, key: &str) -> usize {
        self.0.began.lock().unwrap().get(key).map_or(0, Vec::len)
    }

    /// The number of loads that started in an interval, by key.
    pub fn loads_within(&self, from: Time, to: Time) -> BTreeMap<String, usize> {
        let is_within = |began: &&Time| (from..to).contains(*began);
        let began = self.0.began.lock().unwrap();
        began.iter().map(|(key, began)| (key.clone(), began.iter().filter(is_within).count())).collect()
    }
}

/// Coalescing with this ttl and a wait of five seconds.
pub fn coalescing(ttl: Duration) -> Strategy {
    Strategy { ttl: Some(ttl), swr: Duration::ZERO, ..Strategy::preset("swr").unwrap() }
}

/// A URL with long timeouts, for tests that count loads and have no failures.
pub fn patient(redis: &RedisServer) -> String {
    format!("{}?lease=5s&timeout=5s", redis.url())
}

impl Node {
    /// Connects to a URL, which need not be reachable.
    pub fn at(url: &str, strategy: &Strategy, has_memory: bool) -> Self {
        let tier = Tier::open(url).unwrap();
        let dyn_tier: Arc<dyn stockade_cache::tier::Tier> = Arc::clone(&tier) as _;
        let shared = if has_memory {
            SharedTier::with_memory(dyn_tier, RawCodec, RawCodec)
        } else {
            SharedTier::without_memory(dyn_tier, RawCodec, RawCodec)
        };
        let cache = Cache::builder(strategy.clone())
            .not_found(String::is_empty)
            .tags(|key: &String, _, tag| key.split_once(':').into_iter().for_each(|(name, _)| tag(name)))
            .shared_tier(shared)
            .build()
            .unwrap();
        Self { tier, cache }
    }

    pub async fn up(self) -> Self {
        until("the tier is up", async || self.tier.is_connected()).await;
        self
    }

    /// Requests a key, with `source` as its loader.
    pub async fn try_get(&self, key: &str, source: &Source) -> Result<Answer<String>, Error> {
        let (source, of) = (source.clone(), key.to_owned());
        self.cache.get_with(key.to_owned(), move || source.load(of)).await
    }

    pub async fn get(&self, key: &str, source: &Source) -> Answer<String> {
        self.try_get(key, source).await.unwrap()
    }
}

/// Nodes on one Redis, all of them connected.
pub async fn nodes<const N: usize>(url: &str, strategy: &Strategy, has_memory: bool) -> [Node; N] {
    let nodes: [Node; N] = std::array::from_fn(|_| Node::at(url, strategy, has_memory));
    for node in nodes.clone() {
        node.up().await;
    }
    nodes
}

pub async fn sleep(time: Duration) {
    let live = Live::new();
    live.sleep_until(live.now() + time).await;
}

/// Waits until a condition holds, at most half a minute.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let live = Live::new();
    let ends = live.now() + MINUTE / 2;
    while !is_so().await {
        assert!(live.now() < ends, "{what}: never");
        live.sleep_until(live.now() + MS).await;
    }
}

/// A connection to Redis in addition to the nodes'.
pub async fn connect(redis: &RedisServer) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    let connecting = async || client.get_multiplexed_async_connection().await.ok();
    for _ in 0..1_000 {
        if let Some(connection) = connecting().await {
            return connection;
        }
        sleep(10 * MS).await;
    }
    panic!("redis does not listen");
}

/// Sends a command, with spaces between its words.
pub async fn command<T: redis::FromRedisValue>(redis: &RedisServer, words: &str) -> T {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    let mut connection = connect(redis).await;
    command.query_async(&mut connection).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The percentile of the durations.
pub fn percentile(durations: &mut [Duration], percent: usize) -> Duration {
    durations.sort_unstable();
    durations[(durations.len() * percent).div_ceil(100).saturating_sub(1)]
}
