//! Fleets compared with a full simulation, and repeatability.

use std::{num::NonZeroUsize, time::Duration};

use rand::RngExt;
use stockade_load::schedule::{ArrivalProcess, Schedule, Step};
use stockade_model::{outcome::Outcomes, seed::Seed};
use tokio_util::sync::CancellationToken;

use super::{
    full::{self, FullCounts, FullRequest},
    partition::FleetRequest,
    simulate::{Partitions, simulate},
    tally::FleetTally,
    *,
};
use crate::target::Second;

const SECONDS: u64 = 24;
/// The second of the event.
const EVENT: u64 = 15;

/// 50 nodes, 50,000 keys, 10,000 requests a second, an event in the middle.
fn fleet(kind: FleetEventKind) -> Fleet {
    let steps = vec![
        Step::steady("10_000/s".parse().unwrap(), Duration::from_secs(SECONDS))
            .with_arrivals(ArrivalProcess::Poisson),
    ];
    Fleet {
        name: "fleet".to_owned(),
        nodes: 50,
        route: Route::Random,
        cache: NodeCache {
            coalesces: true,
            ttl: Some(Duration::from_secs(6)),
            jitter: 0.0,
            early: None,
            swr: Duration::ZERO,
            entries: None,
        },
        tier: None,
        origin: "50ms".parse().unwrap(),
        keys: 50_000,
        popularity: Popularity::Zipf { exponent: 0.99 },
        schedule: Schedule::new(steps),
        events: vec![FleetEvent { at: Duration::from_secs(EVENT), kind }],
    }
}

fn with_tier(locks: bool, fleet: Fleet) -> Fleet {
    Fleet { tier: Some(FleetTier { latency: Duration::from_millis(1), locks }), ..fleet }
}

fn simulated(fleet: &Fleet, threads: usize) -> FleetTally {
    let threads = NonZeroUsize::new(threads).unwrap();
    simulate(fleet, Seed(1), threads, &CancellationToken::new()).unwrap()
}

/// The figures that are compared.
#[derive(Clone, Copy, Debug)]
struct Figures {
    hit_ratio: f64,
    source_loads: f64,
    /// Loads in the second after the event, and in the busiest one of the rest.
    after_event: f64,
    before_event: f64,
    waited_s: f64,
}

impl Figures {
    fn new(outcomes: &Outcomes, loads: &[u64], waited: Duration) -> Self {
        let event = usize::try_from(EVENT).unwrap();
        Self {
            hit_ratio: outcomes.hit_ratio().unwrap(),
            source_loads: loads.iter().sum::<u64>() as f64,
            after_event: *loads[event..].iter().max().unwrap() as f64,
            before_event: *loads[..event].iter().max().unwrap() as f64,
            waited_s: waited.as_secs_f64(),
        }
    }

    fn of_fleet(tally: &FleetTally) -> Self {
        let seconds: Vec<Second> = tally.seconds().collect();
        let mut outcomes = Outcomes::default();
        seconds.iter().for_each(|second| outcomes += second.outcomes);
        let loads: Vec<u64> =
            seconds.iter().map(|second| second.open.unwrap().source_loads.unwrap()).collect();
        Self::new(&outcomes, &loads, tally.waited())
    }

    fn of_full(counts: &FullCounts) -> Self {
        Self::new(&counts.outcomes, &counts.source_loads, counts.waited)
    }

    /// The largest difference, as a share.
    fn difference(self, other: Self) -> f64 {
        let share = |one: f64, other: f64| (one / other - 1.0).abs();
        [
            share(self.hit_ratio, other.hit_ratio),
            share(self.source_loads, other.source_loads),
            share(self.after_event, other.after_event),
            share(self.before_event, other.before_event),
            share(self.waited_s, other.waited_s),
        ]
        .into_iter()
        .fold(0.0, f64::max)
    }
}

/// The requests of all partitions, as a full simulation receives them.
fn same_requests(fleet: &Fleet) -> Vec<FullRequest> {
    let partitions = Partitions::new(fleet);
    let mut all: Vec<FullRequest> = Vec::new();
    for number in 0..partitions.count {
        let keys = partitions.keys(number);
        let request = |FleetRequest { at, key, node }| FullRequest {
            at: Duration::from_nanos(partitions.clock.nanos(at)),
            node: node as usize,
            key: keys.rank(key).to_string().into(),
        };
        all.extend(partitions.requests(number, Seed(1)).map(request));
    }
    all.sort_by_key(|request| request.at);
    all
}

/// Asserts that the fleet has the figures of the full simulation, within 2 %.
fn assert_agrees(name: &str, fleet: &Fleet) {
    let here = Figures::of_fleet(&simulated(fleet, 2));
    let full = Figures::of_full(&full::simulate(fleet, same_requests(fleet), Seed(1)));
    let difference = here.difference(full);
    println!("{name}: {difference:.4}\n  {here:?}\n  {full:?}");
    assert!(difference < 0.02, "{name}: {difference}: {here:?} {full:?}");
}

#[test]
fn memory_alone_agrees_with_a_full_simulation() {
    assert_agrees("memory", &fleet(FleetEventKind::Purge));
}

/// The arrivals, keys and nodes of the full simulation come from samplers that know no partitions.
#[test]
fn fleet_agrees_with_a_full_simulation_of_other_requests() {
    let fleet = fleet(FleetEventKind::Purge);
    let mut keys = fleet.popularity.keys(50_000, Seed(3));
    let mut nodes = Seed(3).stream("nodes");
    let request =
        |at| FullRequest { at, node: nodes.random_range(0..50), key: (keys.draw() + 1).to_string().into() };
    let requests = fleet.schedule.due_times(Seed(3)).map(request).collect();
    let here = Figures::of_fleet(&simulated(&fleet, 2));
    let full = Figures::of_full(&full::simulate(&fleet, requests, Seed(3)));
    let difference = here.difference(full);
    // The error of the fleet, and the chance of two loads.
    assert!(difference < 0.02, "{difference}: {here:?} {full:?}");
}

#[test]
fn limited_memory_agrees_with_a_full_simulation() {
    let mut limited = fleet(FleetEventKind::RestartNodes);
    limited.cache.entries = Some(200);
    limited.cache.ttl = None;
    assert_agrees("limited", &limited);
}

#[test]
fn independent_loads_agree_with_a_full_simulation() {
    let mut independent = fleet(FleetEventKind::Purge);
    independent.cache.coalesces = false;
    assert_agrees("independent", &independent);
}

#[test]
fn shared_tier_agrees_with_a_full_simulation() {
    let tier = with_tier(false, fleet(FleetEventKind::FlushSharedTier));
    assert_agrees("shared tier", &tier);
}

#[test]
fn locks_agree_with_a_full_simulation() {
    let locks = with_tier(true, fleet(FleetEventKind::Purge));
    assert_agrees("locks", &locks);
    let restarted = with_tier(true, fleet(FleetEventKind::RestartNodes));
    assert_agrees("locks, restarted", &restarted);
}

#[test]
fn jitter_agrees_with_a_full_simulation() {
    let mut jitter = fleet(FleetEventKind::Purge);
    jitter.cache.jitter = 0.5;
    assert_agrees("jitter", &jitter);
    let jitter = with_tier(true, jitter);
    assert_agrees("jitter and locks", &jitter);
}

#[test]
fn consistent_hash_agrees_with_a_full_simulation() {
    let mut hash = Fleet { route: Route::ConsistentHash, ..fleet(FleetEventKind::Purge) };
    assert_agrees("consistent hash", &hash);
    hash.cache.entries = Some(200);
    hash.cache.ttl = None;
    assert_agrees("consistent hash, limited", &hash);
}

#[test]
fn refreshes_agree_with_a_full_simulation() {
    let mut early = fleet(FleetEventKind::Purge);
    early.cache.early = Some(0.8);
    assert_agrees("early", &early);
    let mut stale = fleet(FleetEventKind::Purge);
    stale.cache.swr = Duration::from_secs(5);
    assert_agrees("swr", &stale);
    let early = with_tier(true, early);
    assert_agrees("early and locks", &early);
    let stale = with_tier(true, stale);
    assert_agrees("swr and locks", &stale);
}

/// A value that expires while its refresh goes on is stale, and later gone: requests then wait for the load.
#[test]
fn slow_refreshes_agree_with_a_full_simulation() {
    let mut slow = fleet(FleetEventKind::Purge);
    slow.origin = "2s".parse().unwrap();
    slow.cache.early = Some(0.8);
    assert_agrees("slow early", &slow);
    slow.cache.swr = Duration::from_secs(1);
    assert_agrees("slow early and swr", &slow);
}

#[test]
fn limit_that_is_never_reached_changes_nothing() {
    let unlimited = Fleet { keys: 1_000, ..fleet(FleetEventKind::Purge) };
    let mut limited = unlimited.clone();
    limited.cache.entries = Some(Fleet::ENTRIES_MAX);
    assert_eq!(simulated(&limited, 2), simulated(&unlimited, 2));
}

#[test]
fn result_depends_neither_on_threads_nor_on_time() {
    let fleet = with_tier(true, fleet(FleetEventKind::Purge));
    let one = simulated(&fleet, 1);
    assert_eq!(one, simulated(&fleet, 2));
    assert_eq!(one, simulated(&fleet, 2));
    let other = simulate(&fleet, Seed(2), NonZeroUsize::MIN, &CancellationToken::new()).unwrap();
    assert_ne!(one, other);
}
