//! One partition of the keys: its requests, and what they find on the nodes and in the shared tier.

use rand::RngExt;
use stockade_cache::simulation::FreshnessState;
use stockade_load::schedule::ThinnedDueTimes;
use stockade_model::{
    outcome::Outcome,
    seed::{Rng, Seed},
};

use super::{
    Fleet, FleetEventKind, Route,
    keys::PartitionKeys,
    life::{Life, NEVER, States, TickClock, Ticks},
    memory::NodeMemories,
    table::ExpiringTable,
    tally::FleetTally,
};

/// The settings of a fleet in ticks.
#[derive(Clone, Debug)]
pub(super) struct TickSettings<'a> {
    fleet: &'a Fleet,
    clock: TickClock,
    /// [`NEVER`]: values do not expire.
    ttl: Ticks,
    states: States,
    tier_latency: Ticks,
    events: Vec<(Ticks, FleetEventKind)>,
}

impl<'a> TickSettings<'a> {
    pub(super) fn new(fleet: &'a Fleet, clock: TickClock) -> Self {
        let ticks = |duration| clock.ticks(duration);
        let cache = &fleet.cache;
        // With jitter, that of the mean ttl.
        let mean = 1.0 - cache.jitter / 2.0;
        let early = cache.early.zip(cache.ttl).map(|(at, ttl)| ticks(ttl.mul_f64((1.0 - at) * mean)));
        Self {
            fleet,
            clock,
            ttl: cache.ttl.map_or(NEVER, ticks),
            states: States::new(early.unwrap_or(0), ticks(cache.swr)),
            tier_latency: fleet.tier.as_ref().map_or(0, |tier| ticks(tier.latency)),
            events: fleet.events.iter().map(|event| (ticks(event.at), event.kind)).collect(),
        }
    }
}

/// A request of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FleetRequest {
    pub(super) at: Ticks,
    /// The key's number in the partition.
    pub(super) key: u32,
    pub(super) node: u32,
}

/// The requests of a partition in the order of time: a Poisson process whose rate is the share of the partition.
pub(super) struct Requests<'a> {
    due: ThinnedDueTimes<'a>,
    keys: PartitionKeys,
    clock: TickClock,
    route: Route,
    nodes: u32,
    of_keys: Rng,
    of_nodes: Rng,
}

impl<'a> Requests<'a> {
    pub(super) fn new(
        fleet: &'a Fleet,
        clock: TickClock,
        keys: PartitionKeys,
        share: f64,
        seed: Seed,
    ) -> Self {
        let due = fleet.schedule.due_times_of_share(share, seed.stream("arrivals"));
        let (of_keys, of_nodes) = (seed.stream("keys"), seed.stream("nodes"));
        Self { due, keys, clock, route: fleet.route, nodes: fleet.nodes, of_keys, of_nodes }
    }
}

impl Iterator for Requests<'_> {
    type Item = FleetRequest;

    #[inline]
    fn next(&mut self) -> Option<FleetRequest> {
        let at = self.clock.ticks(self.due.next()?);
        let key = self.keys.draw(&mut self.of_keys);
        let node = match self.route {
            Route::Random => self.of_nodes.random_range(0..self.nodes),
            Route::ConsistentHash => node_of(self.keys.rank(key), self.nodes),
        };
        Some(FleetRequest { at, key, node })
    }
}

/// The node of a key. The number of nodes does not change during a load, so any hash that spreads the keys evenly has the same effect as a
/// ring.
fn node_of(rank: f64, nodes: u32) -> u32 {
    let hash = Seed(rank.to_bits()).child("node").0;
    u32::try_from((u128::from(hash) * u128::from(nodes)) >> 64).unwrap_or_default()
}

/// The result of a lookup beyond the node's memory.
struct Fetched {
    outcome: Outcome,
    /// When the request is answered.
    answered: Ticks,
    life: Life,
}

/// The state of a partition: memories of the nodes, shared tier, episodes.
pub(super) struct Partition<'a> {
    settings: &'a TickSettings<'a>,
    tally: FleetTally,
    memories: NodeMemories,
    tier: ExpiringTable<Life>,
    /// From when on the next load of a key opens an episode.
    episodes: ExpiringTable<Ticks>,
    /// A bit for each key: it was requested.
    seen: Vec<u64>,
    /// Draws latencies and ttls.
    draws: Rng,
}

impl<'a> Partition<'a> {
    pub(super) fn new(settings: &'a TickSettings<'a>, tally: FleetTally) -> Self {
        Self {
            settings,
            tally,
            memories: NodeMemories::new(settings.fleet.nodes, settings.fleet.cache.entries),
            tier: ExpiringTable::new(),
            episodes: ExpiringTable::new(),
            seen: Vec::new(),
            draws: Seed(0).nth(0),
        }
    }

    /// The counts of all partitions so far.
    pub(super) fn into_tally(self) -> FleetTally {
        self.tally
    }

    /// Simulates the whole load on the keys of one partition, from an empty state. `room`: entries of a node's memory.
    pub(super) fn run(&mut self, requests: Requests<'_>, room: usize, seed: Seed) {
        self.memories.reset(room);
        self.tier.clear();
        self.episodes.clear();
        self.seen.clear();
        self.seen.resize(requests.keys.count().div_ceil(u64::BITS) as usize, 0);
        self.draws = seed.stream("loads");
        let settings = self.settings;
        let mut events = settings.events.iter().peekable();
        let mut now = 0;
        for request in requests {
            while let Some((_, kind)) = events.next_if(|(at, _)| *at <= request.at) {
                self.apply(*kind, request.at);
            }
            now = request.at;
            self.seen[(request.key / u64::BITS) as usize] |= 1 << (request.key % u64::BITS);
            let (outcome, answered) = self.answer(request);
            self.tally.request(outcome, request.at, answered);
        }
        events.for_each(|(at, kind)| self.apply(*kind, *at));
        let seen: u32 = self.seen.iter().map(|bits| bits.count_ones()).sum();
        self.tally.counts.distinct_keys += u64::from(seen);
        self.tally.counts.entries += self.memories.count(now, settings.states);
    }

    fn apply(&mut self, event: FleetEventKind, now: Ticks) {
        match event {
            FleetEventKind::FlushSharedTier => self.tier.clear(),
            FleetEventKind::RestartNodes => self.memories.clear(),
            FleetEventKind::Purge => {
                self.tally.counts.invalidated += self.memories.count(now, self.settings.states);
                self.memories.clear();
                self.tier.clear();
                self.episodes.clear();
            }
        }
    }

    /// The outcome of a request, and when it is answered.
    #[inline]
    fn answer(&mut self, request: FleetRequest) -> (Outcome, Ticks) {
        let FleetRequest { at: now, key, node } = request;
        let Some((place, life)) = self.memories.look_up(node, key, now) else {
            let fetched = self.fetch(key, now, None);
            let is_evicted = self.memories.add(node, key, fetched.life, now, self.settings.states);
            self.tally.counts.evicted += u64::from(is_evicted);
            return (fetched.outcome, fetched.answered);
        };
        let is_loading = now < life.ready();
        let answer = self.settings.states.state(life.expires_at(now), now).answer(is_loading);
        match answer.outcome {
            Outcome::Coalesced if life.is_from_tier() => return (Outcome::Hit, life.ready()),
            Outcome::Coalesced if self.settings.fleet.cache.coalesces => {
                self.tally.counts.waiters += 1;
                return (Outcome::Coalesced, life.ready());
            }
            Outcome::Coalesced | Outcome::Miss => {
                let fetched = self.fetch(key, now, None);
                let stored = if is_loading {
                    Life::loaded(life.ready().min(fetched.life.ready()), fetched.life.expires)
                } else {
                    fetched.life
                };
                self.memories.set(place, stored);
                return (fetched.outcome, fetched.answered);
            }
            _ => {}
        }
        if answer.starts_load {
            let refreshes = match answer.outcome {
                Outcome::Hit => &mut self.tally.counts.refreshes_early,
                _ => &mut self.tally.counts.refreshes_swr,
            };
            *refreshes += 1;
            let fetched = self.fetch(key, now, Some(life.expires));
            self.memories.set(place, fetched.life.replacing(life.expires));
        }
        (answer.outcome, now)
    }

    /// Looks a key up in the shared tier, and loads it if it is not there. `known`: the expiry of the value that this refreshes.
    fn fetch(&mut self, key: u32, now: Ticks, known: Option<Ticks>) -> Fetched {
        let settings = self.settings;
        let Some(tier) = &settings.fleet.tier else {
            let (ready, expires) = self.load(key, now);
            let life = Life::loaded(ready, expires);
            return Fetched { outcome: Outcome::Miss, answered: ready, life };
        };
        let now = now.saturating_add(settings.tier_latency);
        let place = self.tier.find(u64::from(key));
        let value = place.map(|place| self.tier.get(place)).unwrap_or_default();
        let is_ready = now >= value.ready();
        // A refresh needs a newer value than the one it refreshes.
        let there = value.expires_at(now);
        let state = settings.states.state(there, now);
        let is_newer = known.is_none_or(|known| there > known);
        if matches!(state, FreshnessState::Fresh | FreshnessState::Refresh) && is_newer {
            self.tally.counts.shared_hits += 1;
            let life = Life::from_tier(now, there);
            return Fetched { outcome: Outcome::Hit, answered: now, life };
        }
        let is_stale = known.is_none() && state == FreshnessState::Stale;
        if !is_ready && tier.locks {
            if is_stale {
                let life = Life::from_tier(now, there);
                return Fetched { outcome: Outcome::Stale, answered: now, life };
            }
            self.tally.counts.shared_waits += 1;
            self.tally.counts.shared_hits += 1;
            let answered = value.ready().saturating_add(settings.tier_latency);
            let life = Life::loaded(answered, value.expires);
            return Fetched { outcome: Outcome::Coalesced, answered, life };
        }
        self.tally.counts.shared_misses += 1;
        let (loaded, expires) = self.load(key, now);
        let stored = loaded.saturating_add(settings.tier_latency);
        let ready = if is_ready { stored } else { stored.min(value.ready()) };
        let kept = if state == FreshnessState::Gone { 0 } else { there };
        let stored = Life::loaded(ready, expires).replacing(kept);
        match place {
            Some(place) => self.tier.set(place, stored),
            None => {
                let is_gone = |value: &Life| settings.states.is_gone(*value, now);
                self.tier.add(u64::from(key), stored, is_gone);
            }
        }
        let life = Life::loaded(loaded, expires);
        if is_stale {
            return Fetched { outcome: Outcome::Stale, answered: now, life: life.replacing(there) };
        }
        Fetched { outcome: Outcome::Miss, answered: loaded, life }
    }

    /// Loads a key from the origin: when the load ends, and when its value expires.
    fn load(&mut self, key: u32, now: Ticks) -> (Ticks, Ticks) {
        let settings = self.settings;
        let latency = settings.clock.ticks(settings.fleet.origin.draw(&mut self.draws));
        let ends = now.saturating_add(latency);
        self.tally.source_load(now, ends);
        let jitter = settings.fleet.cache.jitter;
        let ttl = if jitter > 0.0 && settings.ttl != NEVER {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a 32-bit number"
            )]
            let ttl = (f64::from(settings.ttl) * (1.0 - jitter * self.draws.random::<f64>())) as Ticks;
            ttl
        } else {
            settings.ttl
        };
        let expires = ends.saturating_add(ttl);
        self.open_episode(key, now, settings.states.due(expires));
        (ends, expires)
    }

    /// Counts an episode, unless a value of the key that the fleet has loaded before is not due yet.
    fn open_episode(&mut self, key: u32, now: Ticks, due: Ticks) {
        let key = u64::from(key);
        match self.episodes.find(key) {
            Some(place) if now < self.episodes.get(place) => return,
            Some(place) => self.episodes.set(place, due),
            None => self.episodes.add(key, due, |due| *due <= now),
        }
        self.tally.counts.episodes += 1;
    }
}
