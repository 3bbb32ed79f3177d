//! Lookups per second of warm caches.
//!
//! The workload is that of `hits_table`, which compares the contenders round by round; here criterion measures
//! each by itself, with its confidence interval and the change since the last run: the bench to watch
//! during work on a cache. "elem/s" are lookups, of all threads together. The hit ratios follow on
//! standard error. The map never evicts: its hit ratio is 1 and its memory has no bound.

use std::{sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use stockade_bench::{
    contenders::Value,
    hits::{serve, warm_caches},
    workload::{BATCH, BATCHES, draws},
};

const SEED: u64 = 1;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let draws = draws(2, SEED);
    hits::<u64>(&mut criterion, "hits/u64", &draws);
    hits::<Arc<[u8]>>(&mut criterion, "hits/1KiB", &draws);
    criterion.final_summary();
}

/// One iteration is a batch of keys in each thread.
fn hits<V: Value>(criterion: &mut Criterion, name: &str, draws: &[Vec<u32>]) {
    let caches = warm_caches::<V>(draws);
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_secs(1));
    for threads in 1..=draws.len() {
        group.throughput(Throughput::Elements((threads * BATCH) as u64));
        for (entrant, cache) in &caches {
            let mut next = 0;
            group.bench_function(BenchmarkId::new(entrant.name, threads), |bencher| {
                bencher.iter_custom(|iterations| {
                    let batches = next..next + usize::try_from(iterations).expect("a count");
                    next = batches.end;
                    serve(cache.as_ref(), &draws[..threads], batches).took
                });
            });
        }
    }
    group.finish();
    // The number of measured batches depends on the speed; here all serve the same batches.
    for (entrant, cache) in &caches {
        let served = serve(cache.as_ref(), draws, 0..BATCHES);
        eprintln!("{name} hit ratio of {}: {:.4}", entrant.name, served.hit_ratio());
    }
}
