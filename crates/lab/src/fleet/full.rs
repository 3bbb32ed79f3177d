//! A full simulation, to compare with: on each node a cache of this project, on virtual time, under the same requests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use stockade_cache::{
    Cache, Fetch, Invalidation, Limit, RawCodec, Refresh, Strategy,
    tier::{
        EventListener, InvalidationTarget, Lease, LoadRight, RemoteLoad, SharedTier, Tier, TierError,
        TierEvent, TierFuture, TierQuery, TierReply, TierValue,
    },
};
use stockade_model::{
    outcome::Outcomes,
    seed::{Rng, Seed},
    time::{Runtime, Time, Virtual},
};
use tokio::sync::oneshot;

use super::{Fleet, FleetEventKind};

type NodeCache = Cache<Arc<str>, Bytes, Virtual>;

/// A request to a node for a key.
#[derive(Clone, Debug)]
pub(super) struct FullRequest {
    pub(super) at: Duration,
    pub(super) node: usize,
    pub(super) key: Arc<str>,
}

/// The counts of a full simulation.
#[derive(Debug, Default)]
pub(super) struct FullCounts {
    pub(super) outcomes: Outcomes,
    /// Loads by the second in which they start.
    pub(super) source_loads: Vec<u64>,
    pub(super) waited: Duration,
}

/// The state that the requests of all nodes share.
struct FullSimulation {
    time: Virtual,
    origin: stockade_model::latency::Latency,
    draws: Mutex<Rng>,
    counts: Mutex<FullCounts>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it is locked")
}

/// Sends the requests, in the order of time, to the caches of the fleet.
pub(super) fn simulate(fleet: &Fleet, requests: Vec<FullRequest>, seed: Seed) -> FullCounts {
    let time = Virtual::new();
    let simulation = Arc::new(FullSimulation {
        time: time.clone(),
        origin: fleet.origin.clone(),
        draws: Mutex::new(seed.stream("loads")),
        counts: Mutex::default(),
    });
    let tier = fleet.tier.as_ref().map(|tier| {
        let state = Mutex::default();
        Arc::new(VirtualTier { time: time.clone(), latency: tier.latency, locks: tier.locks, state })
    });
    let caches = || -> Vec<NodeCache> {
        let node = |node| node_cache(fleet, &time, tier.as_ref(), node, seed);
        (0..fleet.nodes as usize).map(node).collect()
    };
    let work = async {
        let mut nodes = caches();
        let mut events = fleet.events.iter().peekable();
        for FullRequest { at, node, key } in requests {
            while let Some(event) = events.next_if(|event| event.at <= at) {
                time.sleep_until(Time::ZERO + event.at).await;
                match event.kind {
                    FleetEventKind::FlushSharedTier => {
                        tier.as_ref().expect("there is a tier").flush();
                    }
                    FleetEventKind::RestartNodes => nodes = caches(),
                    // The tier invalidates the other nodes.
                    FleetEventKind::Purge => {
                        let invalidated = if tier.is_some() { 1 } else { nodes.len() };
                        for node in &nodes[..invalidated] {
                            node.invalidate_all(Invalidation::Hard);
                        }
                    }
                }
            }
            time.sleep_until(Time::ZERO + at).await;
            time.spawn(request(Arc::clone(&simulation), nodes[node].clone(), key));
        }
        let rest = fleet.longest_response() * 2;
        time.sleep_until(time.now() + rest).await;
    };
    time.run(work).expect("the load does not hang");
    std::mem::take(&mut *locked(&simulation.counts))
}

async fn request(simulation: Arc<FullSimulation>, cache: NodeCache, key: Arc<str>) {
    let (started, loading) = (simulation.time.now(), Arc::clone(&simulation));
    let answer = cache.get_with(key, async move || loading.load().await).await.expect("loads do not fail");
    let mut counts = locked(&simulation.counts);
    counts.outcomes.record(answer.outcome);
    counts.waited += simulation.time.now() - started;
}

impl FullSimulation {
    async fn load(&self) -> Result<Bytes, std::io::Error> {
        let second = usize::try_from(self.time.now().elapsed().as_secs()).expect("a short load");
        {
            let mut counts = locked(&self.counts);
            let seconds = counts.source_loads.len().max(second + 1);
            counts.source_loads.resize(seconds, 0);
            counts.source_loads[second] += 1;
        }
        let latency = self.origin.draw(&mut locked(&self.draws));
        self.time.sleep_until(self.time.now() + latency).await;
        Ok(Bytes::from_static(b"a document"))
    }
}

fn node_cache(
    fleet: &Fleet,
    time: &Virtual,
    tier: Option<&Arc<VirtualTier>>,
    node: usize,
    seed: Seed,
) -> NodeCache {
    let cache = &fleet.cache;
    let strategy = Strategy {
        fetch: if cache.coalesces { Fetch::coalesce(Duration::from_mins(1)) } else { Fetch::Independent },
        ttl: cache.ttl,
        jitter: cache.jitter,
        refresh: cache.early.map_or(Refresh::None, |at| Refresh::Early { at }),
        swr: cache.swr,
        limit: cache.entries.map(Limit::entries),
        ..Strategy::preset("none").expect("it is a preset")
    };
    let mut builder = Cache::builder(strategy);
    if let Some(tier) = tier {
        let tier = Arc::new(NodeTier { node, tier: Arc::clone(tier) });
        builder = builder.shared_tier(SharedTier::with_memory(tier, RawCodec, RawCodec));
    }
    let seed = Seed(seed.child("node").0 ^ node as u64);
    builder.build_on(time.clone(), seed).expect("a valid strategy")
}

/// A store that nodes share, in virtual time.
struct VirtualTier {
    time: Virtual,
    latency: Duration,
    locks: bool,
    state: Mutex<TierState>,
}

#[derive(Default)]
struct TierState {
    values: HashMap<Box<[u8]>, (Time, TierValue)>,
    /// The keys that a node loads, and the nodes that wait for it.
    held: HashMap<Box<[u8]>, Vec<oneshot::Sender<RemoteLoad>>>,
    /// The number of times that all values were lost or invalidated. A load that began before is not stored.
    epoch: u64,
    listeners: HashMap<usize, EventListener>,
}

impl VirtualTier {
    fn flush(&self) {
        let mut state = locked(&self.state);
        state.epoch += 1;
        state.values.clear();
        let held = std::mem::take(&mut state.held);
        drop(state);
        for waiting in held.into_values().flatten() {
            let _ = waiting.send(RemoteLoad::Released);
        }
    }

    async fn pause(&self) {
        self.time.sleep_until(self.time.now() + self.latency).await;
    }
}

/// The shared tier as one node sees it.
struct NodeTier {
    node: usize,
    tier: Arc<VirtualTier>,
}

impl Tier for NodeTier {
    fn lookup<'a>(&'a self, key: &'a [u8], query: TierQuery) -> TierFuture<'a, Result<TierReply, TierError>> {
        Box::pin(async move {
            let tier = &self.tier;
            tier.pause().await;
            let now = tier.time.now();
            let mut state = locked(&tier.state);
            let value = state
                .values
                .get(key)
                .map(|(loaded, value)| TierValue { age: now - *loaded, ..value.clone() });
            let is_found = |value: &TierValue| {
                let is_fresh = value.fresh_for.is_none_or(|fresh_for| value.age < fresh_for);
                is_fresh && query.younger_than.is_none_or(|younger| value.age < younger)
                    || query.waited.is_some_and(|waited| value.age <= waited)
            };
            if let Some(value) = value.clone().filter(is_found) {
                return Ok(TierReply::Found(value));
            }
            let stale = value.filter(|value| {
                value.fresh_for.is_none_or(|fresh_for| value.age < fresh_for + value.stale_for)
            });
            let wants_lock = query.wants_lock && tier.locks;
            let right = match state.held.get_mut(key) {
                Some(waiting) if wants_lock => {
                    let (sender, receiver) = oneshot::channel();
                    waiting.push(sender);
                    let outcome = async move { receiver.await.unwrap_or(RemoteLoad::Released) };
                    let lease_remaining = Duration::from_mins(1);
                    LoadRight::HeldElsewhere { lease_remaining, outcome: Box::pin(outcome) }
                }
                _ => {
                    if wants_lock {
                        state.held.insert(key.into(), Vec::new());
                    }
                    let tier = Arc::clone(tier);
                    LoadRight::Granted(Box::new(VirtualLease { tier, key: key.into(), epoch: state.epoch }))
                }
            };
            Ok(TierReply::NotFound { stale, right })
        })
    }

    fn publish(&self, event: TierEvent) {
        if matches!(event, TierEvent::Invalidated(InvalidationTarget::All, _)) {
            self.tier.flush();
        }
        let state = locked(&self.tier.state);
        for (_, listener) in state.listeners.iter().filter(|(node, _)| **node != self.node) {
            listener(event.clone());
        }
    }

    fn subscribe(&self, listener: EventListener) {
        locked(&self.tier.state).listeners.insert(self.node, listener);
    }
}

struct VirtualLease {
    tier: Arc<VirtualTier>,
    key: Box<[u8]>,
    epoch: u64,
}

impl Lease for VirtualLease {
    fn complete(self: Box<Self>, result: Result<TierValue, String>) -> TierFuture<'static, ()> {
        Box::pin(async move {
            let Self { tier, key, epoch } = *self;
            let loaded = tier.time.now();
            tier.pause().await;
            let mut state = locked(&tier.state);
            if state.epoch != epoch {
                return;
            }
            if let Ok(value) = result {
                let loaded = loaded.back(value.age);
                state.values.insert(key.clone(), (loaded, value));
            }
            let waiting = state.held.remove(&key);
            drop(state);
            for waiting in waiting.into_iter().flatten() {
                let _ = waiting.send(RemoteLoad::Stored);
            }
        })
    }
}
