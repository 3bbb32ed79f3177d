//! One partition of the keys: its requests, and what they find on the nodes and in the shared tier.

use rand::RngExt;
use stockade_load::schedule::ThinnedDueTimes;
use stockade_model::{
    outcome::Outcome,
    seed::{Rng, Seed},
};

use super::{
    Fleet, FleetEventKind, Route,
    keys::PartitionKeys,
    life::{Life, Meanwhile, NEVER, TickClock, Ticks},
    memory::NodeMemories,
    table::ExpiringTable,
    tally::FleetTally,
};

/// The settings of a fleet in ticks.
#[derive(Clone, Debug)]
pub(super) struct Rules<'a> {
    fleet: &'a Fleet,
    clock: TickClock,
    /// [`NEVER`]: values do not expire.
    ttl: Ticks,
    swr: Ticks,
    /// How long before its expiry a value is refreshed.
    early: Option<Ticks>,
    tier_latency: Ticks,
    events: Vec<(Ticks, FleetEventKind)>,
}

impl<'a> Rules<'a> {
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
            swr: ticks(cache.swr),
            early,
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

/// A value in the shared tier, or the load that will store it.
#[derive(Clone, Copy, Debug, Default)]
struct TierValue {
    /// When it is in the tier.
    ready: Ticks,
    expires: Ticks,
    /// The expiry of the value that is in the tier before; 0: the tier has no value.
    expires_before: Ticks,
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
    rules: &'a Rules<'a>,
    tally: FleetTally,
    memories: NodeMemories,
    tier: ExpiringTable<TierValue>,
    /// From when on the next load of a key opens an episode.
    episodes: ExpiringTable<Ticks>,
    /// A bit for each key: it was requested.
    seen: Vec<u64>,
    /// Draws latencies and ttls.
    draws: Rng,
}

impl<'a> Partition<'a> {
    pub(super) fn new(rules: &'a Rules<'a>, tally: FleetTally) -> Self {
        Self {
            rules,
            tally,
            memories: NodeMemories::new(rules.fleet.nodes, rules.fleet.cache.entries),
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
        let rules = self.rules;
        let mut events = rules.events.iter().peekable();
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
        self.tally.counts.entries += self.memories.count(now, rules.swr);
    }

    fn apply(&mut self, event: FleetEventKind, now: Ticks) {
        match event {
            FleetEventKind::FlushSharedTier => self.tier.clear(),
            FleetEventKind::RestartNodes => self.memories.clear(),
            FleetEventKind::Purge => {
                self.tally.counts.invalidated += self.memories.count(now, self.rules.swr);
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
            let is_evicted = self.memories.add(node, key, fetched.life, now, self.rules.swr);
            self.tally.counts.evicted += u64::from(is_evicted);
            return (fetched.outcome, fetched.answered);
        };
        if now < life.ready() {
            return self.answer_during_load(place, life, key, now);
        }
        if now < life.expires {
            if self.rules.early.is_some_and(|early| now >= life.expires.saturating_sub(early))
                && life.expires != NEVER
            {
                self.tally.counts.refreshes_early += 1;
                self.refresh(place, life, key, now, Meanwhile::ServeFresh);
            }
            return (Outcome::Hit, now);
        }
        if now < life.expires.saturating_add(self.rules.swr) {
            self.tally.counts.refreshes_swr += 1;
            self.refresh(place, life, key, now, Meanwhile::ServeStale);
            return (Outcome::Stale, now);
        }
        let fetched = self.fetch(key, now, None);
        self.memories.set(place, fetched.life);
        (fetched.outcome, fetched.answered)
    }

    fn answer_during_load(&mut self, place: usize, life: Life, key: u32, now: Ticks) -> (Outcome, Ticks) {
        match life.meanwhile() {
            Meanwhile::ServeFresh => (Outcome::Hit, now),
            Meanwhile::ServeStale => (Outcome::Stale, now),
            Meanwhile::WaitForTier => (Outcome::Hit, life.ready()),
            Meanwhile::WaitForLoad if self.rules.fleet.cache.coalesces => {
                self.tally.counts.waiters += 1;
                (Outcome::Coalesced, life.ready())
            }
            Meanwhile::WaitForLoad => {
                let fetched = self.fetch(key, now, None);
                let ready = life.ready().min(fetched.life.ready());
                self.memories.set(place, Life::new(ready, Meanwhile::WaitForLoad, fetched.life.expires));
                (fetched.outcome, fetched.answered)
            }
        }
    }

    /// Replaces a value without a wait.
    fn refresh(&mut self, place: usize, life: Life, key: u32, now: Ticks, meanwhile: Meanwhile) {
        let fetched = self.fetch(key, now, Some(life.expires));
        self.memories.set(place, Life::new(fetched.life.ready(), meanwhile, fetched.life.expires));
    }

    /// Looks a key up in the shared tier, and loads it if it is not there. `known`: the expiry of the value that this refreshes.
    fn fetch(&mut self, key: u32, now: Ticks, known: Option<Ticks>) -> Fetched {
        let rules = self.rules;
        let Some(tier) = &rules.fleet.tier else {
            let (ready, expires) = self.load(key, now);
            let life = Life::new(ready, Meanwhile::WaitForLoad, expires);
            return Fetched { outcome: Outcome::Miss, answered: ready, life };
        };
        let now = now.saturating_add(rules.tier_latency);
        let place = self.tier.find(u64::from(key));
        let value = place.map(|place| self.tier.get(place)).unwrap_or_default();
        let is_ready = now >= value.ready;
        // A refresh needs a newer value than the one it refreshes.
        let there = if is_ready { value.expires } else { value.expires_before };
        let is_newer = known.is_none_or(|known| there > known);
        if now < there && is_newer {
            self.tally.counts.shared_hits += 1;
            let life = Life::new(now, Meanwhile::WaitForTier, there);
            return Fetched { outcome: Outcome::Hit, answered: now, life };
        }
        let is_stale = known.is_none() && there > 0 && now < there.saturating_add(rules.swr);
        if !is_ready && tier.locks {
            if is_stale {
                let life = Life::new(now, Meanwhile::WaitForTier, there);
                return Fetched { outcome: Outcome::Stale, answered: now, life };
            }
            self.tally.counts.shared_waits += 1;
            self.tally.counts.shared_hits += 1;
            let answered = value.ready.saturating_add(rules.tier_latency);
            let life = Life::new(answered, Meanwhile::WaitForLoad, value.expires);
            return Fetched { outcome: Outcome::Coalesced, answered, life };
        }
        self.tally.counts.shared_misses += 1;
        let (loaded, expires) = self.load(key, now);
        let stored = loaded.saturating_add(rules.tier_latency);
        let ready = if is_ready { stored } else { stored.min(value.ready) };
        let kept = there > 0 && now < there.saturating_add(rules.swr);
        let stored = TierValue { ready, expires, expires_before: if kept { there } else { 0 } };
        match place {
            Some(place) => self.tier.set(place, stored),
            None => {
                let is_gone = |value: &TierValue| value.expires.saturating_add(rules.swr) <= now;
                self.tier.add(u64::from(key), stored, is_gone);
            }
        }
        if is_stale {
            let life = Life::new(loaded, Meanwhile::ServeStale, expires);
            return Fetched { outcome: Outcome::Stale, answered: now, life };
        }
        let life = Life::new(loaded, Meanwhile::WaitForLoad, expires);
        Fetched { outcome: Outcome::Miss, answered: loaded, life }
    }

    /// Loads a key from the origin: when the load ends, and when its value expires.
    fn load(&mut self, key: u32, now: Ticks) -> (Ticks, Ticks) {
        let rules = self.rules;
        let latency = rules.clock.ticks(rules.fleet.origin.draw(&mut self.draws));
        let ends = now.saturating_add(latency);
        self.tally.source_load(now, ends);
        let jitter = rules.fleet.cache.jitter;
        let ttl = if jitter > 0.0 && rules.ttl != NEVER {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a 32-bit number"
            )]
            let ttl = (f64::from(rules.ttl) * (1.0 - jitter * self.draws.random::<f64>())) as Ticks;
            ttl
        } else {
            rules.ttl
        };
        let expires = ends.saturating_add(ttl);
        self.open_episode(key, now, expires.saturating_sub(rules.early.unwrap_or(0)));
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
