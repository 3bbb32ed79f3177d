//! Lookups per second and hit ratio of warm caches.
//!
//! One million keys by Zipf's law (exponent 0.99), a capacity of 100,000 entries, a time to live that every
//! hit checks; missing keys are inserted. One thread, then two, with a core each.
//!
//! The machine's own noise is greater than many differences, so every contender serves the same 4 Mi keys
//! a thread once a round, in a random order, and is compared with `quick_cache` in the same round.
//! Rely on the ratio, whose median and range are printed, not on the lookups per second. The map at the end
//! never evicts: its hit ratio is 1 and its memory has no bound.

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use stockade_bench::{
    contenders::{REFERENCE, Value},
    hits::{Served, serve, warm_caches},
    statistics::{median, range},
    workload::{BATCHES, draws},
};

const SEED: u64 = 1;
const ROUNDS: usize = 9;
const THREADS_MAX: usize = 2;

fn main() {
    let draws = draws(THREADS_MAX, SEED);
    table::<u64>("u64", &draws);
    table::<Arc<[u8]>>("1 KiB, behind an `Arc`", &draws);
}

fn table<V: Value>(values: &str, draws: &[Vec<u32>]) {
    let caches = warm_caches::<V>(draws);
    let mut rng = Pcg64Mcg::seed_from_u64(SEED);
    for threads in 1..=THREADS_MAX {
        let mut order: Vec<_> = (0..caches.len()).collect();
        let mut rounds = vec![Vec::new(); caches.len()];
        for _ in 0..ROUNDS {
            order.shuffle(&mut rng);
            for &contender in &order {
                let (_, cache) = &caches[contender];
                rounds[contender].push(serve(cache.as_ref(), &draws[..threads], 0..BATCHES));
            }
        }
        let names: Vec<_> = caches.iter().map(|(entrant, _)| entrant.name).collect();
        print(&format!("values: {values}; threads: {threads}"), &names, &rounds);
    }
}

/// `rounds[c]` has the results of contender number c, round by round.
fn print(title: &str, names: &[&str], rounds: &[Vec<Served>]) {
    let reference = names.iter().position(|&name| name == REFERENCE).expect("it takes part");
    println!("\n{title}\n");
    println!("| contender | times {REFERENCE} | least to greatest | million lookups/s | hit ratio |");
    println!("|---|---|---|---|---|");
    for (name, served) in names.iter().zip(rounds) {
        let speeds = |served: &[Served]| served.iter().map(Served::millions_per_second).collect::<Vec<_>>();
        let ratios: Vec<_> =
            speeds(served).iter().zip(speeds(&rounds[reference])).map(|(own, other)| own / other).collect();
        let (least, greatest) = range(&ratios);
        let hit_ratio = served.iter().copied().sum::<Served>().hit_ratio();
        println!(
            "| {name} | {:.2} | {least:.2} to {greatest:.2} | {:.1} | {hit_ratio:.4} |",
            median(ratios),
            median(speeds(served)),
        );
    }
}
