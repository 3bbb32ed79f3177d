//! Nodes on one machine: caches that share a tier on a real Redis, the source that they load from, and what
//! stands between.
#![allow(dead_code, reason = "every test file needs a part of it")]

pub mod proxy;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use stockade_cache::{Answer, Cache, Error, Live, Redis as Tier, Runtime, Shared, Strategy, tier::Plain};
use stockade_model::time::Time;
use stockade_services::Redis;

pub const MS: Duration = Duration::from_millis(1);
pub const MINUTE: Duration = Duration::from_mins(1);

/// What a busy machine may add to any wait.
pub const BUSY: Duration = Duration::from_secs(1);

/// A node: its tier, its cache. An empty value is a not-found; a key's tag is what is before its colon.
#[derive(Clone)]
pub struct Node {
    pub tier: Arc<Tier>,
    pub cache: Cache<String, String>,
}

/// A source that counts its loads and takes a while. What it brings is the key, a space, and the key's version.
#[derive(Clone)]
pub struct Source(Arc<Inside>);

struct Inside {
    live: Live,
    takes: Duration,
    is_down: AtomicBool,
    version: AtomicU64,
    /// By key, when loads began.
    began: Mutex<BTreeMap<String, Vec<Time>>>,
}

impl Source {
    pub fn new(live: &Live, takes: Duration) -> Self {
        Self(Arc::new(Inside {
            live: live.clone(),
            takes,
            is_down: AtomicBool::new(false),
            version: AtomicU64::new(0),
            began: Mutex::default(),
        }))
    }

    pub async fn load(self, key: String) -> Result<String, std::io::Error> {
        let Inside { live, takes, .. } = &*self.0;
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

    /// Everything is another version from now on.
    pub fn change(&self) -> u64 {
        self.0.version.fetch_add(1, SeqCst) + 1
    }

    pub fn loads(&self) -> usize {
        self.0.began.lock().unwrap().values().map(Vec::len).sum()
    }

    pub fn loads_of(&self, key: &str) -> usize {
        self.0.began.lock().unwrap().get(key).map_or(0, Vec::len)
    }

    /// How many loads began between two moments, by key.
    pub fn loads_within(&self, from: Time, to: Time) -> BTreeMap<String, usize> {
        let is_within = |began: &&Time| (from..to).contains(*began);
        let began = self.0.began.lock().unwrap();
        began.iter().map(|(key, began)| (key.clone(), began.iter().filter(is_within).count())).collect()
    }
}

/// Coalescing, with some ttl. Who waits does so for five seconds.
pub fn coalescing(ttl: Duration) -> Strategy {
    Strategy { ttl: Some(ttl), swr: Duration::ZERO, ..Strategy::preset("swr").unwrap() }
}

/// As patient as a machine may be busy: for tests that count loads and break nothing.
pub fn patient(redis: &Redis) -> String {
    format!("{}?lease=5s&timeout=5s", redis.url())
}

impl Node {
    /// With a tier at a URL, up or not.
    pub fn at(url: &str, strategy: &Strategy, is_alone: bool) -> Self {
        let tier = Tier::open(url).unwrap();
        let dyn_tier: Arc<dyn stockade_cache::tier::Tier> = Arc::clone(&tier) as _;
        let shared = if is_alone {
            Shared::alone(dyn_tier, Plain, Plain)
        } else {
            Shared::under(dyn_tier, Plain, Plain)
        };
        let cache = Cache::builder(strategy.clone())
            .not_found(String::is_empty)
            .tags(|key: &String, _, tag| key.split_once(':').into_iter().for_each(|(name, _)| tag(name)))
            .shared(shared)
            .build()
            .unwrap();
        Self { tier, cache }
    }

    pub async fn up(self) -> Self {
        until("the tier is up", async || self.tier.is_up()).await;
        self
    }

    /// Asks for a key, and loads it from there.
    pub async fn ask(&self, key: &str, source: &Source) -> Result<Answer<String>, Error> {
        let (source, of) = (source.clone(), key.to_owned());
        self.cache.get_with(key.to_owned(), move || source.load(of)).await
    }

    pub async fn get(&self, key: &str, source: &Source) -> Answer<String> {
        self.ask(key, source).await.unwrap()
    }
}

/// Nodes on one Redis, all of them up.
pub async fn nodes<const N: usize>(url: &str, strategy: &Strategy, is_alone: bool) -> [Node; N] {
    let nodes: [Node; N] = std::array::from_fn(|_| Node::at(url, strategy, is_alone));
    for node in nodes.clone() {
        node.up().await;
    }
    nodes
}

pub async fn sleep(time: Duration) {
    let live = Live::new();
    live.sleep_until(live.now() + time).await;
}

/// Waits until something is so: half a minute at most.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let live = Live::new();
    let ends = live.now() + MINUTE / 2;
    while !is_so().await {
        assert!(live.now() < ends, "{what}: never");
        live.sleep_until(live.now() + MS).await;
    }
}

/// Connects to a Redis beside the nodes.
pub async fn connect(redis: &Redis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    let connecting = async || client.get_multiplexed_async_connection().await.ok();
    for _ in 0..1_000 {
        if let Some(connection) = connecting().await {
            return connection;
        }
        sleep(10 * MS).await;
    }
    panic!("it never listens");
}

/// Gives Redis a command of a few words.
pub async fn tell<T: redis::FromRedisValue>(redis: &Redis, words: &str) -> T {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    let mut connection = connect(redis).await;
    command.query_async(&mut connection).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Of some durations, that which so many of a hundred do not exceed.
pub fn percentile(durations: &mut [Duration], percent: usize) -> Duration {
    durations.sort_unstable();
    durations[(durations.len() * percent).div_ceil(100).saturating_sub(1)]
}
