//! The speed of a warm cache: threads, a core each, get the keys drawn for them and insert the missing ones.

use std::{
    iter::Sum,
    ops::{Add, Range},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use core_affinity::CoreId;

use crate::{
    contenders::{Contender, Entrant, Value},
    workload::{BATCH, CAPACITY},
};

/// The result of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// From the moment when every thread was ready to the end of the last one.
    pub took: Duration,
    /// The lookups of all threads.
    pub lookups: u64,
    /// The hits among them.
    pub hits: u64,
}

impl Served {
    /// Lookups per second, in millions.
    #[must_use]
    pub fn millions_per_second(&self) -> f64 {
        self.lookups as f64 / self.took.as_secs_f64() / 1e6
    }

    /// Hits / lookups.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.lookups as f64
    }
}

impl Add for Served {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            took: self.took + other.took,
            lookups: self.lookups + other.lookups,
            hits: self.hits + other.hits,
        }
    }
}

impl Sum for Served {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Self::add)
    }
}

/// The use of a drawn key.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Gets the key, and inserts it if it is missing.
    Lookup,
    /// Gets the key, or inserts it if the number is marked as a write.
    ReadOrWrite,
}

/// A full cache, after one lookup of all `draws`, so that its policy knows the popular keys.
#[must_use]
pub fn warm_cache<V: Value>(entrant: &Entrant<V>, draws: &[Vec<u32>]) -> Box<dyn Contender<V>> {
    let cache = (entrant.build)(CAPACITY);
    for keys in draws {
        cache.serve(keys);
    }
    cache
}

/// Serves `batches` of the keys drawn for each thread: as many threads as there are `draws`. After the last
/// batch follows the first again.
///
/// # Panics
/// Without a core for each thread.
#[must_use]
pub fn serve<V: Value>(
    cache: &dyn Contender<V>,
    operation: Operation,
    draws: &[Vec<u32>],
    batches: Range<usize>,
) -> Served {
    let serve = |keys: &[u32]| match operation {
        Operation::Lookup => cache.serve(keys),
        Operation::ReadOrWrite => cache.read_or_write(keys),
    };
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    assert!(cores.len() >= draws.len(), "{} threads need a core each", draws.len());
    let ready = Barrier::new(draws.len());
    let work = |keys: &[u32], core: CoreId| {
        assert!(core_affinity::set_for_current(core), "a thread cannot be pinned to {core:?}");
        let keys: Vec<_> = keys.chunks(BATCH).collect();
        ready.wait();
        let began = Instant::now();
        let hits: u64 = batches.clone().map(|batch| serve(keys[batch % keys.len()])).sum();
        (began, Instant::now(), hits)
    };
    let shifts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            draws.iter().zip(cores).map(|(keys, core)| scope.spawn(move || work(keys, core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no contender panics")).collect()
    });
    let began = shifts.iter().map(|(began, ..)| *began).min();
    let ended = shifts.iter().map(|(_, ended, _)| *ended).max();
    Served {
        took: ended.zip(began).map(|(ended, began)| ended - began).unwrap_or_default(),
        lookups: (draws.len() * batches.len() * BATCH) as u64,
        hits: shifts.iter().map(|(.., hits)| hits).sum(),
    }
}
