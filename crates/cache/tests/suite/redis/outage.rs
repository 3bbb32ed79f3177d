//! Redis is killed, freezes and restarts empty under a steady load on several nodes: only the source sees a change.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::nodes::{self, BUSY, MS, Node, Source, coalescing};
use stockade_cache::{Live, Outcome, Runtime};
use stockade_model::time::Time;
use stockade_services::RedisServer;

const NODES: usize = 4;
const KEYS: u64 = 20;
const TTL: Duration = Duration::from_millis(200);
const SOURCE: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_millis(100);

/// The result of a request: its start, its duration, its outcome.
type Answered = (Time, Duration, Option<Outcome>);

/// A thousand requests a second over four nodes.
struct Traffic {
    live: Live,
    nodes: [Node; NODES],
    source: Source,
    answered: Arc<Mutex<Vec<Answered>>>,
}

impl Traffic {
    async fn start(redis: &RedisServer) -> Self {
        let live = Live::new();
        let source = Source::new(&live, SOURCE);
        let url = format!("{}?lease=500ms&timeout=100ms", redis.url());
        let nodes = nodes::nodes(&url, &coalescing(TTL), true).await;
        let traffic = Self { live, nodes, source, answered: Arc::default() };
        let Self { live, nodes, source, .. } = &traffic;
        let (live, nodes, source) = (live.clone(), nodes.clone(), source.clone());
        let answered = Arc::downgrade(&traffic.answered);
        live.clone().spawn(async move {
            let began = live.now();
            for request in 0_u64.. {
                live.sleep_until(began + Duration::from_millis(request)).await;
                let node = nodes[usize::try_from(request).unwrap() % NODES].clone();
                // Each node requests each key.
                let key = (request / NODES as u64 % KEYS).to_string();
                let Some(answered) = answered.upgrade() else { return };
                let (clock, source) = (live.clone(), source.clone());
                live.spawn(async move {
                    let start = clock.now();
                    let answer = node.try_get(&key, &source).await;
                    assert!(answer.as_ref().is_ok_and(|answer| answer.value.starts_with(&key)), "{answer:?}");
                    let outcome = answer.ok().map(|answer| answer.outcome);
                    answered.lock().unwrap().push((start, clock.now() - start, outcome));
                });
            }
        });
        traffic
    }

    /// Uses of the shared tier: lookups with a result, and leases.
    fn shared(&self) -> u64 {
        let stats = self.nodes.iter().map(|node| node.cache.stats());
        stats.map(|stats| stats.shared_hits + stats.shared_misses).sum()
    }

    fn started_within(&self, from: Time, to: Time) -> Vec<Answered> {
        let answered = self.answered.lock().unwrap();
        answered.iter().filter(|(start, ..)| (from..to).contains(start)).copied().collect()
    }

    /// The number of responses in each tenth of a second.
    fn tenths(&self, from: Time, to: Time) -> Vec<usize> {
        let mut tenths = BTreeMap::new();
        for (start, took, _) in &*self.answered.lock().unwrap() {
            let at = *start + *took;
            if (from..to).contains(&at) {
                *tenths.entry((at - from).as_millis() / 100).or_default() += 1;
            }
        }
        (0..(to - from).as_millis() / 100).map(|tenth| tenths.get(&tenth).copied().unwrap_or(0)).collect()
    }

    /// The peak of loads of one key in an interval, and the loads of all keys.
    fn loads(&self, from: Time, to: Time) -> (usize, usize) {
        let loads = self.source.loads_within(from, to);
        (loads.values().copied().max().unwrap_or(0), loads.values().sum())
    }
}

/// Each node keeps its loads for a ttl; a ttl that starts just before the end may add one more.
fn loads_without_redis(time: Duration) -> usize {
    let ttls = time.div_duration_f64(TTL).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few")]
    let ttls = ttls as usize;
    NODES * (ttls + 1)
}

async fn outage(
    name: &str,
    away: Duration,
    mut redis: RedisServer,
    stop: fn(&mut RedisServer),
    start: fn(&mut RedisServer),
) {
    let traffic = Traffic::start(&redis).await;
    let live = traffic.live.clone();
    let sleep = nodes::sleep;
    sleep(BUSY).await;
    let normal = live.now();
    sleep(BUSY).await;
    let gone = live.now();
    stop(&mut redis);
    sleep(away).await;
    start(&mut redis);
    let back = live.now();
    let is_up = async || traffic.nodes.iter().all(|node| node.tier.is_connected());
    nodes::until("all nodes are connected", is_up).await;
    let up = live.now();
    let shared = traffic.shared();
    nodes::until("the tier is used", async || traffic.shared() > shared).await;
    let used = live.now();
    sleep((back + 2 * BUSY) - live.now()).await;
    let end = live.now();
    // All requests until then.
    sleep(BUSY).await;

    let all = traffic.started_within(normal, end);
    let due = (end - normal).as_millis();
    assert!(all.len() as u128 * 100 >= due * 90, "{} of {due} are answered", all.len());
    assert!(all.iter().all(|(.., outcome)| outcome.is_some()));
    let mut waits: Vec<_> = all.iter().map(|(_, took, _)| *took).collect();
    let longest = nodes::percentile(&mut waits, 100);
    assert!(longest < SOURCE + TIMEOUT + BUSY, "{longest:?}");
    let (before, after) = (traffic.tenths(normal, gone), traffic.tenths(back + BUSY, end));
    let median = |tenths: &[usize]| {
        let mut tenths = tenths.to_vec();
        tenths.sort_unstable();
        tenths[tenths.len() / 2]
    };
    assert!(median(&after) * 10 >= median(&before) * 8, "{after:?} against {before:?}");
    let [usual, outage, herd, later] =
        [(normal, gone), (gone, back), (back, back + BUSY), (back + BUSY, end)]
            .map(|(from, to)| traffic.loads(from, to));
    assert!(outage.0 <= loads_without_redis(back - gone), "{outage:?} in {:?}", back - gone);
    let keys = usize::try_from(KEYS).unwrap();
    assert!(herd.1 <= usual.1 + NODES * keys, "{herd:?} against {usual:?}");
    assert!(up - back < BUSY + BUSY, "{:?}", up - back);
    println!(
        "{name}: away for {:?}, up {:?} after its return, used after {:?}; longest wait {longest:?}, p99 {:?}; \
         loads of a key at most / of all, in the second before {usual:?}, without it {outage:?} (may be {}), in \
         the second after {herd:?}, in the next {later:?}; answered in 100 ms {} before, {} a second after",
        back - gone,
        up - back,
        used - back,
        nodes::percentile(&mut waits, 99),
        loads_without_redis(back - gone),
        median(&before),
        median(&after),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_redis_after_a_kill_costs_only_loads() {
    let stop: fn(&mut RedisServer) = |redis| redis.kill();
    outage("killed", 1_500 * MS, RedisServer::start().unwrap(), stop, |redis| redis.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_redis_costs_only_loads() {
    let stop: fn(&mut RedisServer) = |redis| redis.process().unwrap().freeze();
    outage("frozen", 1_500 * MS, RedisServer::start().unwrap(), stop, |redis| {
        redis.process().unwrap().thaw();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_redis_after_restart_costs_only_loads() {
    let stop: fn(&mut RedisServer) = |redis| redis.restart().unwrap();
    outage("restarted", Duration::ZERO, RedisServer::start().unwrap(), stop, |_| {}).await;
}
