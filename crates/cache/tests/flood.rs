//! A flood of large values, in real memory: what the process holds, and how long a store takes. Each
//! test has a process of its own, for the process is what is measured.

use std::{
    env, fs,
    process::Command,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use stockade_cache::{Cache, Limit, Order, Policy, Strategy, heap_bytes};
use stockade_model::{seed::Seed, time::Virtual};

const MIB: usize = 1 << 20;

/// Runs the test of this name in a process of its own, one after the other, with so many malloc heaps.
fn alone(name: &str, heaps: &str, test: impl FnOnce()) {
    const ALONE: &str = "STOCKADE_TEST_ALONE";
    static TURN: Mutex<()> = Mutex::new(());
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = Command::new(env::current_exe().unwrap());
    // Malloc reads it when a process starts.
    child.args([name, "--exact", "--nocapture"]).env(ALONE, "1").env("MALLOC_ARENA_MAX", heaps);
    let child = child.output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    println!("{said}");
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

fn cache(limit: Limit) -> Cache<u64, std::sync::Arc<[u8]>, Virtual> {
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() };
    Cache::builder(strategy).weigh(heap_bytes).build_on(Virtual::new(), Seed(1)).unwrap()
}

/// The memory that this process has resident (`VmRSS:`), or had at most (`VmHWM:`), in bytes.
fn resident(what: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1_024
}

#[expect(clippy::disallowed_methods, reason = "a pause is a matter of real time")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

/// Stores large values from so many threads as fast as it goes, and looks at the process.
fn flood(threads: u64, bytes: impl Fn(u64) -> usize + Sync) {
    const LIMIT: usize = 256 * MIB;
    for reclaim in [0.0, 0.3] {
        let cache = cache(Limit { reclaim, ..Limit::bytes(LIMIT) });
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (cache, bytes) = (&cache, &bytes);
                scope.spawn(move || {
                    for step in 0..3_000 {
                        let value = std::iter::repeat_n(7, bytes(step)).collect();
                        cache.insert(step * threads + thread, value);
                        assert!(cache.bytes().unwrap().held <= LIMIT);
                    }
                });
            }
        });
        let (held, resident) = (cache.bytes().unwrap().peak, resident("VmHWM:"));
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
fn a_flood_of_300_kib_values_stays_below_256_mib() {
    alone("a_flood_of_300_kib_values_stays_below_256_mib", "0", || flood(1, |_| 300 * 1_024));
}

/// Slots are given back when three quarters of them are vacant: three million entries that own next to
/// nothing leave for some hundred large ones. Until then both are there.
#[test]
fn large_values_after_small_ones_end_below_256_mib() {
    alone("large_values_after_small_ones_end_below_256_mib", "0", large_after_small);
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

/// glibc gives every thread a heap of its own, and keeps in one what the cache gave back when the next
/// value comes from another: half as much again. With one heap for all, memory is what was counted.
#[test]
fn a_flood_from_many_threads_stays_there_too_with_one_heap() {
    alone("a_flood_from_many_threads_stays_there_too_with_one_heap", "1", || {
        flood(4, |_| 300 * 1_024);
        flood(4, |step| 1_000 + usize::try_from(step * 7_919 % 300_000).unwrap());
    });
}

/// The longest of the stores around a reclaim is told by the machine as much as by the cache; so the
/// reclaim is repeated, and the quietest one counts.
#[test]
fn no_store_pauses_for_a_reclaim_of_a_third_of_36_000_entries() {
    alone("no_store_pauses_for_a_reclaim_of_a_third_of_36_000_entries", "0", reclaim_repeatedly);
}

fn reclaim_repeatedly() {
    const ENTRIES: usize = 36_000;
    let pauses = (0..7).map(|_| {
        let limit =
            Limit { policy: Policy::LRW, reclaim: 0.3, order: Order::Global, ..Limit::entries(ENTRIES) };
        let cache = cache(limit);
        let value: std::sync::Arc<[u8]> = vec![7; 1_024].into();
        for key in 0..ENTRIES as u64 {
            cache.insert(key, value.to_vec().into());
        }
        let mut longest = Duration::ZERO;
        let mut least = ENTRIES;
        for key in 0..1_000 {
            let value = value.to_vec().into();
            let (_, took) = timed(|| cache.insert(1 << 32 | key, value));
            longest = longest.max(took);
            least = least.min(cache.len());
        }
        assert_eq!(least, ENTRIES * 7 / 10 + 1);
        longest
    });
    let pauses: Vec<Duration> = pauses.collect();
    println!("the longest store of each reclaim: {pauses:?}");
    assert!(pauses.iter().min().unwrap() < &Duration::from_millis(1), "{pauses:?}");
}
