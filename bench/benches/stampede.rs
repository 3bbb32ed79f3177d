//! The time of 10,000 tasks that request one cold key.
//!
//! The stampede of `stampede_table`, which also measures memory and a million tasks. The time is from the first
//! spawn to the last response; 5 ms of it are the load, which begins with the last request. Every iteration has
//! an empty cache.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use stockade_bench::stampede::{STAMPEDERS, runtime};

const SIZE: usize = 10_000;

fn stampede(criterion: &mut Criterion) {
    let runtime = runtime().expect("a runtime");
    let _context = runtime.enter();
    let mut group = criterion.benchmark_group("stampede/10000");
    group.sample_size(20);
    for stampeder in STAMPEDERS {
        group.bench_function(stampeder.name, |bencher| {
            bencher.iter_custom(|iterations| {
                let took = |_| {
                    let stampede = runtime.spawn((stampeder.prepare)(SIZE));
                    let stampede = runtime.block_on(stampede).expect("all tasks get the value");
                    assert_eq!(stampede.loads, 1, "{} coalesces", stampeder.name);
                    stampede.took
                };
                (0..iterations).map(took).sum::<Duration>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, stampede);
criterion_main!(benches);
