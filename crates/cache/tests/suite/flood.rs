//! A flood of large values in real memory: the resident size of the process stays within the limit. Each test
//! has its own process.

use std::fs;

use stockade_cache::{Cache, EvictionOrder, Limit, Policy, Strategy, heap_bytes};
use stockade_model::{seed::Seed, time::Virtual};
use stockade_services::in_own_process;

const MIB: usize = 1 << 20;

fn cache(limit: Limit) -> Cache<u64, std::sync::Arc<[u8]>, Virtual> {
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() };
    Cache::builder(strategy).weigh(heap_bytes).build_on(Virtual::new(), Seed(1)).unwrap()
}

/// The resident memory of this process (`VmRSS:`) or its peak (`VmHWM:`), in bytes.
fn resident(what: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1_024
}

/// Stores large values from several threads at full speed and checks the process's memory.
fn flood(threads: u64, bytes: impl Fn(u64) -> usize + Sync) {
    const LIMIT: usize = 256 * MIB;
    for reclaim in [0.0, 0.3] {
        let cache = cache(Limit { reclaim, ..Limit::bytes(LIMIT) });
        std::thread::scope(|scope| {
            let (cache, bytes) = (&cache, &bytes);
            let flooding = (0..threads).map(|thread| {
                scope.spawn(move || {
                    for step in 0..3_000 {
                        let value = std::iter::repeat_n(7, bytes(step)).collect();
                        cache.insert(step * threads + thread, value);
                        assert!(cache.byte_usage().unwrap().used <= LIMIT);
                    }
                })
            });
            // A scope ends before its threads do, and a thread of the next round would have a heap in addition to theirs.
            flooding.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        });
        let (held, resident) = (cache.byte_usage().unwrap().peak, resident("VmHWM:"));
        let mib = |bytes: usize| bytes as f64 / MIB as f64;
        println!(
            "{threads} threads, reclaim {reclaim}: at most {:.1} MiB held, {:.1} MiB resident",
            mib(held),
            mib(resident)
        );
        assert!(held <= LIMIT && held > LIMIT - MIB, "{held} bytes were held");
        assert!(resident <= LIMIT + LIMIT / 20 + 32 * MIB, "{resident} bytes were resident");
    }
}

#[test]
fn flood_of_300_kib_values_stays_below_256_mib() {
    in_own_process("flood::flood_of_300_kib_values_stays_below_256_mib", "", || flood(1, |_| 300 * 1_024));
}

/// Slots are freed when three quarters of them are vacant: some hundred large entries replace three million small
/// ones. Until then the slots of both exist.
#[test]
fn large_values_after_small_ones_end_below_256_mib() {
    in_own_process("flood::large_values_after_small_ones_end_below_256_mib", "", large_after_small);
}

fn large_after_small() {
    const LIMIT: usize = 256 * MIB;
    let cache = cache(Limit::bytes(LIMIT));
    let small: std::sync::Arc<[u8]> = [].into();
    for key in 0..6_000_000 {
        cache.insert(key, std::sync::Arc::clone(&small));
    }
    assert!(cache.len() > 2_300_000, "{} small entries", cache.len());
    for key in 0..3_000 {
        cache.insert(1 << 32 | key, std::iter::repeat_n(7, 300 * 1_024).collect());
    }
    let resident = resident("VmRSS:");
    println!("small, then large: {:.1} MiB resident in the end", resident as f64 / MIB as f64);
    assert!(resident <= LIMIT + LIMIT / 20 + 32 * MIB, "{resident} bytes are resident");
}

/// glibc gives each thread its own heap. Memory that the cache frees stays in that heap if the next value comes from
/// another thread: half as much again. With one heap for all threads, the resident size matches the counted bytes.
#[test]
fn flood_from_many_threads_stays_below_256_mib_with_one_heap() {
    in_own_process(
        "flood::flood_from_many_threads_stays_below_256_mib_with_one_heap",
        "export MALLOC_ARENA_MAX=1",
        || {
            flood(4, |_| 300 * 1_024);
            flood(4, |step| 1_000 + usize::try_from(step * 7_919 % 300_000).unwrap());
        },
    );
}

#[test]
fn reclaim_of_36_000_entries_stops_at_its_share() {
    const ENTRIES: usize = 36_000;
    let limit =
        Limit { policy: Policy::LRW, reclaim: 0.3, order: EvictionOrder::Global, ..Limit::entries(ENTRIES) };
    let cache = cache(limit);
    for key in 0..ENTRIES as u64 {
        cache.insert(key, [7; 1_024].into());
    }
    let held = (0..1_000).map(|key| {
        cache.insert(1 << 32 | key, [7; 1_024].into());
        cache.len()
    });
    assert_eq!(held.min(), Some(ENTRIES * 7 / 10 + 1));
}

/// A caller keeps every value that it finds stored, as a proxy does for clients that do not read.
#[test]
fn values_that_callers_hold_count_under_the_limit() {
    in_own_process("flood::values_that_callers_hold_count_under_the_limit", "", || {
        const LIMIT: usize = 64 * MIB;
        let strategy = Strategy { limit: Some(Limit::bytes(LIMIT)), ..Strategy::preset("stampede").unwrap() };
        let builder = Cache::<u64, std::sync::Arc<[u8]>>::builder(strategy)
            .weigh(heap_bytes)
            .held(|value| std::sync::Arc::strong_count(value) > 1);
        let cache = builder.build_on(Virtual::new(), Seed(1)).unwrap();
        let store = |key| cache.insert(key, std::iter::repeat_n(7, 300 * 1_024).collect());
        let mut held = Vec::new();
        for key in 0..1_000 {
            store(key);
            held.extend(cache.get(&key));
        }
        let resident = resident("VmHWM:");
        assert!(resident <= LIMIT + LIMIT / 20 + 32 * MIB, "{resident} bytes were resident");
        let stats = cache.stats();
        assert!(stats.bytes_held.unwrap() >= LIMIT as u64 / 4 && stats.stores_refused > 700, "{stats:?}");
        assert!((cache.held_fill() - 1.0).abs() < f64::EPSILON);
        // A quarter at most is lost to them.
        assert!(stats.entries * 300 * 1_024 > (LIMIT * 7 / 10) as u64, "{stats:?}");
        drop(held);
        for key in 1_000..1_100 {
            store(key);
            assert!(cache.get(&key).is_some(), "{key} is not stored");
        }
        assert_eq!(cache.stats().bytes_held, Some(0));
    });
}
