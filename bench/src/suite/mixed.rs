//! Reads and writes of warm caches.

use super::{Bench, Better, Figure, Metric, Result, Sitting, hits::threads};
use crate::{
    contenders::entrants,
    hits::{Operation, serve, warm_cache},
    workload::{BATCHES, draws, mark_writes},
};

const ROUNDS: usize = 3;

pub(super) const BENCH: Bench = Bench {
    name: "mixed",
    shows: "operations a second of warm caches with 5 % and 50 % writes",
    method: "As `hits`, with `u64` values: a read looks a key up and inserts nothing, a write stores a new value of a key, whether it is \
             there or not. Which operations write is drawn before the measurement, for all contenders alike.",
    seconds: 60,
    needs: &[],
    peers: &["quick_cache", "moka", "foyer-memory", "papaya"],
    metrics: &[Metric { name: "operations", unit: "M/s", digits: 1, better: Better::Higher, aim: Some(1.0) }],
    limits: &["papaya"],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let keys = draws(2, sitting.scaled(BATCHES, 1), super::hits::SEED);
    let entrants = entrants::<u64>();
    let names = entrants.map(|entrant| entrant.name);
    let batches = sitting.scaled(BATCHES / 2, 1);
    let mut figures = Vec::new();
    for (mix, share) in [("95/5", 0.05), ("50/50", 0.5)] {
        // Fresh caches: a map that never evicts has no key yet that only the mix before wrote.
        let caches: Vec<_> = entrants.iter().map(|entrant| warm_cache(entrant, &keys)).collect();
        let operations = mark_writes(&keys, share, super::hits::SEED);
        for count in 1..=operations.len() {
            let case = format!("{mix} reads and writes, {}", threads(count));
            figures.extend(sitting.interleave(&case, ["operations"], &names, ROUNDS, |at| {
                let cache = caches[at].as_ref();
                let served = serve(cache, Operation::ReadOrWrite, &operations[..count], 0..batches);
                Ok([served.millions_per_second()])
            })?);
        }
    }
    Ok(figures)
}
