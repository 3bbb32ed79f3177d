//! Lookups per second and hit ratio of warm caches.

use std::sync::Arc;

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::{
    contenders::{Value, entrants},
    hits::{Operation, serve, warm_cache},
    workload::{BATCHES, draws},
};

pub(super) const METRICS: &[Metric] = &[
    Metric { name: "lookups", unit: "M/s", digits: 1, better: Better::Higher, aim: Some(1.0) },
    Metric { name: "hit ratio", unit: "%", digits: 1, better: Better::Higher, aim: Some(1.0) },
];
/// Seeds the keys: every contender and sitting has the same ones.
pub(super) const SEED: u64 = 1;
const ROUNDS: usize = 3;

pub(super) const BENCH: Bench = Bench {
    name: "hits",
    shows: "lookups a second and hit ratio of warm caches, compared with four Rust peers",
    method: "A million keys by Zipf's law (exponent 0.99), room for 100,000 entries; a missing key is inserted. Each thread has a core \
             and requests 4 Mi keys a round, the same ones for all. Every entry has a time to live that every hit checks, and all \
             hash with foldhash. papaya is a map without eviction, the limit for a cache: it has no aim.",
    seconds: 90,
    needs: &[],
    peers: &["quick_cache", "moka", "foyer-memory", "papaya"],
    metrics: METRICS,
    limits: &["papaya"],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let draws = draws(2, sitting.scaled(BATCHES, 1), SEED);
    let mut figures = cases::<u64>(sitting, "u64", &draws)?;
    // The policy does not see values, nor does a second thread change what it keeps.
    figures.retain(|figure| figure.metric == "lookups" || figure.case == "u64, 1 thread");
    let more = cases::<Arc<[u8]>>(sitting, "1 KiB in an `Arc`", &draws)?;
    figures.extend(more.into_iter().filter(|figure| figure.metric == "lookups"));
    Ok(figures)
}

fn cases<V: Value>(sitting: &Sitting, values: &str, draws: &[Vec<u32>]) -> Result<Vec<Figure>> {
    let entrants = entrants::<V>();
    let caches: Vec<_> = entrants.iter().map(|entrant| warm_cache(entrant, draws)).collect();
    let names = entrants.map(|entrant| entrant.name);
    let batches = sitting.scaled(BATCHES, 1);
    let mut figures = Vec::new();
    for threads in 1..=draws.len() {
        let case = format!("{values}, {}", super::hits::threads(threads));
        figures.extend(sitting.interleave(&case, ["lookups", "hit ratio"], &names, ROUNDS, |at| {
            let served = serve(caches[at].as_ref(), Operation::Lookup, &draws[..threads], 0..batches);
            Ok([served.millions_per_second(), served.hit_ratio() * 100.0])
        })?);
    }
    Ok(figures)
}

pub(super) fn threads(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}
