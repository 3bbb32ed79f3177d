//! A value that one node invalidates is not served by others: the delay, also with a network that fails.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use super::nodes::{
    self, BUSY, MINUTE, MS, Node, Source, coalescing, command, percentile, proxy::Proxy, sleep, until,
};
use stockade_cache::{Invalidation, Live, Runtime};
use stockade_model::time::Time;
use stockade_services::RedisServer;

/// The interval at which the log is read for lost pushes.
const LOOK: Duration = Duration::from_millis(250);
const TIMEOUT: Duration = Duration::from_millis(100);

/// The version in a response.
fn version(value: &str) -> u64 {
    value.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// A reader on each node that requests one key continuously and records the last time of each version.
struct Readers {
    live: Live,
    source: Source,
    /// The test invalidates only after all readers have seen the current version.
    seen: Vec<Arc<AtomicU64>>,
    /// By version, the last time that it was served.
    served: Arc<Mutex<Vec<Time>>>,
    errors: Arc<AtomicU64>,
    longest: Arc<AtomicU64>,
    are_done: Arc<AtomicBool>,
}

impl Readers {
    fn start(nodes: &[Node], source: &Source, live: &Live) -> Self {
        let readers = Self {
            live: live.clone(),
            source: source.clone(),
            seen: nodes.iter().map(|_| Arc::default()).collect(),
            served: Arc::default(),
            errors: Arc::default(),
            longest: Arc::default(),
            are_done: Arc::default(),
        };
        for (node, seen) in nodes.iter().zip(&readers.seen) {
            let (node, seen, live, source) = (node.clone(), Arc::clone(seen), live.clone(), source.clone());
            let (served, errors) = (Arc::clone(&readers.served), Arc::clone(&readers.errors));
            let (longest, are_done) = (Arc::clone(&readers.longest), Arc::clone(&readers.are_done));
            readers.live.spawn(async move {
                while !are_done.load(SeqCst) {
                    let start = live.now();
                    let Ok(answer) = node.try_get("key", &source).await else {
                        errors.fetch_add(1, SeqCst);
                        continue;
                    };
                    let now = live.now();
                    longest.fetch_max(u64::try_from((now - start).as_micros()).unwrap(), SeqCst);
                    let version = version(&answer.value);
                    let index = usize::try_from(version).unwrap();
                    serve(&mut served.lock().unwrap(), index, start);
                    seen.store(version, SeqCst);
                    live.sleep_until(now + MS / 5).await;
                }
            });
        }
        readers
    }

    async fn all_have_seen(&self, version: u64) {
        until("all see it", async || self.seen.iter().all(|seen| seen.load(SeqCst) >= version)).await;
    }

    /// Changes the source and invalidates on one node. Returns the time after the call.
    async fn change(&self, node: &Node, how: impl Fn(&Node)) -> Time {
        self.all_have_seen(self.source.version()).await;
        self.source.change();
        how(node);
        self.live.now()
    }

    /// The time that each version was served after its invalidation.
    fn lags(&self, invalidated: &[Time]) -> Vec<Duration> {
        let served = self.served.lock().unwrap();
        served.iter().zip(invalidated).map(|(served, invalidated)| *served - *invalidated).collect()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.are_done.store(true, SeqCst);
    }
}

/// The time is the start of the request, so its wait is not counted.
fn serve(served: &mut Vec<Time>, version: usize, at: Time) {
    if served.len() <= version {
        served.resize(version + 1, Time::ZERO);
    }
    served[version] = served[version].max(at);
}

fn by_key(node: &Node) {
    node.cache.invalidate(&"key".to_owned(), Invalidation::Hard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidation_stops_all_nodes_serving_and_costs_one_load() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 2 * MS);
    let nodes: [Node; 4] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    let readers = Readers::start(&nodes, &source, &live);
    let mut invalidated = Vec::new();
    for round in 0..300 {
        invalidated.push(readers.change(&nodes[round % 4], by_key).await);
    }
    readers.all_have_seen(source.version()).await;
    let mut lags = readers.lags(&invalidated);
    let loads = source.loads();
    let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(&mut lags, percent));
    println!(
        "served after its invalidation, of {}: {p50:?}, p99 {p99:?}, {most:?}; {loads} loads",
        lags.len()
    );
    // Most events arrive by push, not from the log.
    assert!(most < LOOK + BUSY && p50 < LOOK / 5, "{p50:?}, {p99:?}, {most:?}");
    // One for each change, and one more if a load started between the call and its entry in the log.
    assert!(loads <= 301 + 301 / 10, "{loads}");
    assert_eq!(readers.errors.load(SeqCst), 0);
}

/// A node loads at once after an invalidation event. If the sender is far away, that is before the key itself is
/// outdated, which has no effect on loads that started after the event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidation_with_waiting_nodes_costs_one_load() {
    const ROUNDS: usize = 50;
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 20 * MS);
    let [other, third]: [Node; 2] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    let proxy = Proxy::before(redis.port()).await;
    proxy.lengthen(5 * MS);
    let url = format!("redis://127.0.0.1:{}?timeout=5s&lease=5s", proxy.port);
    let one = Node::at(&url, &coalescing(MINUTE), true).up().await;
    let name = "key".to_owned();
    one.get("key", &source).await;
    one.cache.wait_idle().await;
    for round in 0..ROUNDS {
        other.get("key", &source).await;
        third.get("key", &source).await;
        one.cache.invalidate(&name, Invalidation::Hard);
        let hear = async |node: &Node| {
            while node.cache.get("key").is_some() {
                tokio::task::yield_now().await;
            }
            node.get("key", &source).await;
            node.cache.wait_idle().await;
        };
        futures_util::future::join(hear(&other), hear(&third)).await;
        assert!(
            source.loads() <= round + 2 + round / 20 + 3,
            "{} loads after {round} rounds",
            source.loads()
        );
    }
    println!("{ROUNDS} invalidations of a key that all nodes wait for: {} loads", source.loads());
}

/// An event without a push: it is only in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_with_a_lost_push_is_read_from_the_log() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let nodes: [Node; 2] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    let readers = Readers::start(&nodes, &source, &live);
    let mut lags = Vec::new();
    for _ in 0..6 {
        readers.all_have_seen(source.version()).await;
        let version = source.change();
        let [secs, micros]: [u64; 2] = command::<Vec<u64>>(&redis, "TIME").await.try_into().unwrap();
        let at = secs * 1_000_000 + micros;
        let _: String = command(&redis, &format!("XADD stockade:log * at {at} node other event khkey")).await;
        let start = live.now();
        readers.all_have_seen(version).await;
        lags.push(live.now() - start);
    }
    println!("seen after an event without a push: {lags:?}");
    assert!(lags.iter().all(|lag| *lag < LOOK + BUSY), "{lags:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnected_node_serves_for_the_ttl_and_catches_up_on_reconnect() {
    const TTL: Duration = Duration::from_millis(1_500);
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let proxy = Proxy::before(redis.port()).await;
    let url = |port: u16| format!("redis://127.0.0.1:{port}?timeout=100ms");
    let one = Node::at(&url(redis.port()), &coalescing(MINUTE), true).up().await;
    for (how, stalls) in [("cut", false), ("stalled", true)] {
        let ttl = if stalls { MINUTE } else { TTL };
        let cut = Node::at(&url(proxy.port), &coalescing(ttl), true).up().await;
        let get = async || version(&cut.get("key", &source).await.value);
        // It has a value, so it serves the next one only after it has received the event: no event comes later.
        get().await;
        let fresh = source.change();
        by_key(&one);
        until("the new value is served", async || get().await == fresh).await;
        if stalls {
            proxy.stall();
        } else {
            proxy.cut();
        }
        until("it has noticed", async || !cut.tier.is_connected()).await;
        let new = source.change();
        by_key(&one);
        let invalidated = live.now();
        assert_eq!(version(&one.get("key", &source).await.value), new);
        if !stalls {
            // Stale for at most a ttl, then a load.
            until("the ttl ends", async || get().await == new).await;
            let served = live.now() - invalidated;
            assert!(served < TTL + BUSY, "{served:?}");
            println!("{how}: the old one was served for {served:?}, of a ttl of {TTL:?}");
        }
        // Another invalidation, and then the connection works again.
        let newer = source.change();
        by_key(&one);
        assert_eq!(version(&one.get("key", &source).await.value), newer);
        if stalls {
            // On a busy machine the short ttl may have ended.
            assert_ne!(get().await, newer, "the node is disconnected");
        }
        proxy.open();
        until("it is up", async || cut.tier.is_connected()).await;
        let up = live.now();
        assert_eq!(get().await, newer, "{how}: a node that is up has caught up");
        println!("{how}: the new one was served {:?} after it was up", live.now() - up);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breaking_connections_fail_no_request_and_revive_no_value() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 2 * MS);
    let url = format!("{}?timeout=100ms&lease=500ms", redis.url());
    let nodes: [Node; 4] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    let readers = Readers::start(&nodes, &source, &live);
    let ends = live.now() + 4 * BUSY;
    let killing = async {
        let mut kills = 0;
        let mut connection = nodes::connect(&redis).await;
        while live.now() < ends {
            kills += redis::cmd("CLIENT")
                .arg(&["KILL", "SKIPME", "yes"])
                .query_async::<u64>(&mut connection)
                .await
                .unwrap();
            sleep(50 * MS).await;
        }
        kills
    };
    let changing = async {
        let mut invalidated = Vec::new();
        while live.now() < ends {
            let node = &nodes[invalidated.len() % 4];
            invalidated.push(readers.change(node, by_key).await);
        }
        invalidated
    };
    let (kills, invalidated) = futures_util::future::join(killing, changing).await;
    readers.all_have_seen(source.version()).await;
    let mut lags = readers.lags(&invalidated);
    let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(&mut lags, percent));
    let longest = Duration::from_micros(readers.longest.load(SeqCst));
    println!(
        "{kills} connections were killed; served after its invalidation, of {}: {p50:?}, p99 {p99:?}, {most:?}; \
         longest wait {longest:?}",
        lags.len()
    );
    assert!(kills > 50 && lags.len() > 10, "{kills} kills, {} changes", lags.len());
    // The event waits for the connection of its node, and for those of the others.
    assert!(most < 2 * (LOOK + TIMEOUT) + BUSY, "{most:?}");
    assert!(longest < 2 * MS + 2 * TIMEOUT + BUSY, "{longest:?}");
    assert_eq!(readers.errors.load(SeqCst), 0);
}
