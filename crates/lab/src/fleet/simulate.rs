//! Simulates all partitions, on several threads.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use rand::RngExt;
use stockade_model::seed::Seed;
use tokio_util::sync::CancellationToken;

use super::{
    Fleet,
    keys::PartitionKeys,
    life::TickClock,
    partition::{Partition, Requests, TickSettings},
    tally::FleetTally,
};

/// The most partitions: their state then fits into the caches of a processor.
const PARTITIONS_MAX: u64 = 4_096;
/// The keys of a partition at least, and the entries of a limited memory at least; the eviction policy chooses from those.
const PARTITION_MIN: u64 = 64;
/// The most keys of a partition.
const KEYS_MAX: u64 = 1 << 31;

/// The keys and the rooms of all partitions.
#[derive(Clone, Debug)]
pub(super) struct Partitions<'a> {
    fleet: &'a Fleet,
    pub(super) clock: TickClock,
    pub(super) count: u64,
    /// The sum of the weights of all keys.
    weight_sum: f64,
}

impl<'a> Partitions<'a> {
    pub(super) fn new(fleet: &'a Fleet) -> Self {
        let by_keys = (fleet.keys / PARTITION_MIN).clamp(1, PARTITIONS_MAX);
        let by_room = fleet.cache.entries.map_or(by_keys, |entries| (entries as u64 / PARTITION_MIN).max(1));
        let count = by_keys.min(by_room).max(fleet.keys.div_ceil(KEYS_MAX));
        let keys = |number| PartitionKeys::new(fleet.popularity, fleet.keys, count, number);
        let weight_sum = (0..count).map(|number| keys(number).weight_sum()).sum();
        Self { fleet, clock: TickClock::for_load(fleet.schedule.duration()), count, weight_sum }
    }

    pub(super) fn keys(&self, number: u64) -> PartitionKeys {
        PartitionKeys::new(self.fleet.popularity, self.fleet.keys, self.count, number)
    }

    /// The requests of one partition.
    pub(super) fn requests(&self, number: u64, seed: Seed) -> Requests<'a> {
        let keys = self.keys(number);
        let share = keys.weight_sum() / self.weight_sum;
        Requests::new(self.fleet, self.clock, keys, share, seed_of(number, seed))
    }

    /// The part of a node's memory for the keys of one partition: at least one entry, and no more than there are keys. Unused without a
    /// limit.
    fn room(&self, number: u64) -> usize {
        let entries = self.fleet.cache.entries.unwrap_or_default() as u64;
        let room = entries / self.count + u64::from(number < entries % self.count);
        usize::try_from(room.max(1)).unwrap_or(usize::MAX).min(self.keys(number).count() as usize)
    }
}

/// The seed of a partition.
fn seed_of(number: u64, seed: Seed) -> Seed {
    Seed(seed.nth(number).random())
}

/// Simulates the load of a fleet; `None`: it was cancelled. The result depends on the seed alone, not on the number of threads.
pub(super) fn simulate(
    fleet: &Fleet,
    seed: Seed,
    threads: NonZeroUsize,
    cancel: &CancellationToken,
) -> Option<FleetTally> {
    let partitions = Partitions::new(fleet);
    let settings = TickSettings::new(fleet, partitions.clock);
    // Each of its parts may be rounded up by half a tick.
    let longest = partitions.clock.ticks(fleet.longest_response()).saturating_add(8);
    let next = AtomicU64::new(0);
    let work = || {
        let tally = FleetTally::new(partitions.clock, fleet.schedule.duration(), longest);
        Work { partitions: &partitions, next: &next, seed, cancel }.run(Partition::new(&settings, tally))
    };
    let tallies: Vec<FleetTally> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.get()).map(|_| scope.spawn(work)).collect();
        let own = work();
        let others = others.into_iter().map(|other| other.join().expect("a partition does not panic"));
        std::iter::once(own).chain(others).collect()
    });
    if cancel.is_cancelled() {
        return None;
    }
    tallies.into_iter().reduce(|mut all, more| {
        all.merge(&more);
        all
    })
}

/// The partitions that no thread has begun.
struct Work<'a> {
    partitions: &'a Partitions<'a>,
    next: &'a AtomicU64,
    seed: Seed,
    cancel: &'a CancellationToken,
}

impl Work<'_> {
    fn run(&self, mut partition: Partition<'_>) -> FleetTally {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.partitions.count || self.cancel.is_cancelled() {
                return partition.into_tally();
            }
            let requests = self.partitions.requests(number, self.seed);
            partition.run(requests, self.partitions.room(number), seed_of(number, self.seed));
        }
    }
}
