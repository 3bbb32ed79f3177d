//! Weights, times and capacities at the edges of their types, and what becomes of values.

use std::{sync::Arc, time::Duration};

use tokio::{spawn, time::sleep};

use super::{
    CAFFEINE, FOYER, MOKA, Observed, Scenario,
    calls::{OnDrop, Tracked},
    contender::{Capacity, Contender, Settings},
    count,
    executor::{run, within},
    issue,
    loads::{Counter, ms},
    on_all,
};

pub static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "heavy_entry",
        title: "The loaded value is heavier than the whole cache, which has 100 light entries",
        issues: &[issue(FOYER, 414, "an entry heavier than the capacity")],
        expected: "The caller gets the value, it is not kept, and the light entries stay.",
        why: "",
        runs: on_all!(heavy_entry, u64),
    },
    Scenario {
        name: "weight_zero",
        title: "1,000 entries of weight 0 in a cache of 1 MiB",
        issues: &[issue(CAFFEINE, 881, "the valid weights: 0 excludes an entry from eviction by size")],
        expected: "All are found.",
        why: "",
        runs: on_all!(weight_zero, u64),
    },
    Scenario {
        name: "weight_max",
        title: "Ten entries whose weight is the largest of its type, in a cache for three times `u32::MAX`",
        issues: &[
            issue("arthurprs/quick-cache", 28, "sums of weights that overflow"),
            issue(CAFFEINE, 881, "the valid weights, and how their sum cannot overflow"),
        ],
        expected: "Nothing panics, three entries at most are found, and the sum is that of the entries.",
        why: "",
        runs: on_all!(weight_max, u64),
    },
    Scenario {
        name: "ttl_max",
        title: "The ttl is `Duration::MAX`",
        issues: &[
            issue(MOKA, 52, "an overflow with a large ttl"),
            issue(MOKA, 56, "a ttl of more than 1,000 years is refused"),
        ],
        expected: "The build refuses it with a message, or a value is stored and found.",
        why: "",
        runs: on_all!(ttl_max, u64),
    },
    Scenario {
        name: "entry_ttl_max",
        title: "The ttl of an entry is `Duration::MAX`",
        issues: &[issue(CAFFEINE, 1843, "an entry with a time that never comes, so that it stays")],
        expected: "The value is stored and found.",
        why: "",
        runs: on_all!(entry_ttl_max, u64),
    },
    Scenario {
        name: "ttl_zero",
        title: "The ttl is 0, 100 callers during a load, and one later",
        issues: &[issue(CAFFEINE, 625, "with a ttl of 0, calls during a load do not share it")],
        expected: "The 100 callers share one load, and the later one loads anew.",
        why: "",
        runs: on_all!(ttl_zero, u64),
    },
    Scenario {
        name: "capacity_zero",
        title: "The capacity is 0",
        issues: &[issue(MOKA, 230, "a cache of capacity 0 stores values for a while")],
        expected: "The build refuses it with a message, or a load is answered and nothing is found.",
        why: "",
        runs: on_all!(capacity_zero, u64),
    },
    Scenario {
        name: "iteration",
        title: "All entries are listed 50 times while a task inserts and removes 1,000 others",
        issues: &[issue(MOKA, 114, "what an iterator returns while the cache changes")],
        expected: "Each list has each of the 1,000 entries that do not change exactly once.",
        why: "",
        runs: on_all!(iteration, u64),
    },
    Scenario {
        name: "expired_memory",
        title: "10,000 entries expire, and no request comes",
        issues: &[
            issue(MOKA, 125, "when expired entries leave memory"),
            issue(MOKA, 349, "expired entries leave when `run_pending_tasks` is called"),
        ],
        expected: "All values are dropped after ten calls of `purge_expired` or `run_pending_tasks` at most.",
        why: "",
        runs: on_all!(expired_memory, Tracked),
    },
    Scenario {
        name: "cache_dropped",
        title: "A cache with 1,000 entries, 100 of them invalidated, is dropped",
        issues: &[
            issue(MOKA, 383, "values are not dropped with their cache"),
            issue(MOKA, 176, "memory leaks when a cache is dropped"),
        ],
        expected: "All values have been dropped when the drop of the cache returns.",
        why: "",
        runs: on_all!(cache_dropped, Tracked),
    },
];

const MIB: u64 = 1 << 20;

/// `all 1000`, `7 of 1000`.
fn of_all(number: usize, all: usize) -> String {
    if number == all { format!("all {all}") } else { format!("{number} of {all}") }
}

fn heavy_entry<C: Contender<u64>>() -> Observed {
    run(async {
        let capacity = Capacity::Weight(MIB, |value| *value);
        let cache = C::build(Settings { capacity, ..Settings::default() }).expect("a cache");
        for key in 0..100 {
            cache.insert(key, 100).await;
        }
        cache.maintain().await;
        let is_answered = cache.load(1_000, async { Ok(2 * MIB) }).await == Ok(2 * MIB);
        cache.maintain().await;
        let is_kept = cache.get(1_000).await.is_some();
        let mut light = 0;
        for key in 0..100 {
            light += usize::from(cache.get(key).await.is_some());
        }
        let answered = if is_answered { "answered" } else { "not answered" };
        let kept = if is_kept { "kept" } else { "not kept" };
        let fact = format!("{answered}, {kept}; {light} of 100 light entries are found");
        Observed::when(is_answered && !is_kept && light == 100, fact)
    })
}

fn weight_zero<C: Contender<u64>>() -> Observed {
    run(async {
        let capacity = Capacity::Weight(MIB, |_| 0);
        let cache = C::build(Settings { capacity, ..Settings::default() }).expect("a cache");
        let mut found = 0;
        for key in 0..1_000 {
            cache.insert(key, key).await;
        }
        cache.maintain().await;
        for key in 0..1_000 {
            found += usize::from(cache.get(key).await == Some(key));
        }
        Observed::when(found == 1_000, format!("{} are found", of_all(found, 1_000)))
    })
}

fn weight_max<C: Contender<u64>>() -> Observed {
    const LARGE: u64 = u32::MAX as u64;
    run(async {
        let capacity = 3 * LARGE + MIB;
        let mut facts = Vec::new();
        let mut is_expected = true;
        // The largest weight of moka's type, and of each cache's own.
        for weight in [LARGE, u64::MAX] {
            let settings =
                Settings { capacity: Capacity::Weight(capacity, |value| *value), ..Settings::default() };
            let cache = C::build(settings).expect("a cache");
            for key in 0..10 {
                cache.insert(key, weight).await;
                cache.maintain().await;
            }
            let found = cache.entries().len() as u64;
            let sum = cache.weight();
            is_expected &= found <= 3 && sum <= capacity && sum >= found * LARGE;
            facts.push(format!("{found} found"));
        }
        facts.dedup();
        let sums = if is_expected { "the sums are right" } else { "a sum is wrong" };
        Observed::when(is_expected, format!("{}; {sums}", facts.join(", ")))
    })
}

/// Stores a value in a cache with these settings. True if it is found afterwards.
async fn is_stored<C: Contender<u64>>(settings: Settings<u64>) -> Result<bool, String> {
    let cache = C::build(settings)?;
    cache.insert(1, 7).await;
    cache.maintain().await;
    Ok(cache.get(1).await == Some(7))
}

fn ttl_max<C: Contender<u64>>() -> Observed {
    run(async {
        match is_stored::<C>(Settings { ttl: Some(Duration::MAX), ..Settings::default() }).await {
            Ok(true) => Observed::when(true, "stored and found"),
            Ok(false) => Observed::when(false, "not found"),
            Err(message) => Observed::when(true, format!("refused: {message}")),
        }
    })
}

fn entry_ttl_max<C: Contender<u64>>() -> Observed {
    run(async {
        let settings = Settings { ttl: None, entry_ttl: Some(Duration::MAX), ..Settings::default() };
        match spawn(is_stored::<C>(settings)).await {
            Ok(Ok(true)) => Observed::when(true, "stored and found"),
            Ok(Ok(false)) => Observed::when(false, "not found"),
            Ok(Err(message)) => Observed::when(false, format!("refused: {message}")),
            Err(_) => Observed::when(false, "the insert panicked"),
        }
    })
}

fn ttl_zero<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings { ttl: Some(Duration::ZERO), ..Settings::default() }).expect("a cache");
        let (loads, started) = (Counter::default(), Counter::default());
        let call = |_| {
            let (cache, loads, started) = (cache.clone(), loads.clone(), started.clone());
            spawn(async move {
                started.add();
                let load = async move {
                    loads.add();
                    started.reaches(100).await;
                    sleep(ms(200)).await;
                    Ok(7)
                };
                cache.load(1, load).await
            })
        };
        let calls: Vec<_> = (0..100).map(call).collect();
        let mut answered = 0;
        for call in calls {
            answered += usize::from(matches!(within(call).await, Some(Ok(Ok(7)))));
        }
        let shared = loads.get();
        sleep(ms(5)).await;
        let later = {
            let loads = loads.clone();
            cache.load(1, async move {
                loads.add();
                Ok(8)
            })
        };
        let is_anew = within(later).await == Some(Ok(8));
        let later = if is_anew { "loads anew" } else { "gets the old value" };
        let fact = format!("{answered} answered by {}; the later one {later}", count(shared, "load"));
        Observed::when(answered == 100 && shared == 1 && is_anew, fact)
    })
}

fn capacity_zero<C: Contender<u64>>() -> Observed {
    run(async {
        let built = C::build(Settings { capacity: Capacity::Entries(0), ..Settings::default() });
        let cache = match built {
            Ok(cache) => cache,
            Err(message) => return Observed::when(true, format!("refused: {message}")),
        };
        let is_answered = within(cache.load(1, async { Ok(7) })).await == Some(Ok(7));
        cache.insert(2, 8).await;
        let found = [cache.get(1).await, cache.get(2).await].iter().flatten().count();
        let answered = if is_answered { "answered" } else { "not answered" };
        Observed::when(is_answered && found == 0, format!("{answered}; {found} entries are found"))
    })
}

fn iteration<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        for key in 0..1_000 {
            cache.insert(key, key).await;
        }
        let churn = spawn({
            let cache = cache.clone();
            async move {
                loop {
                    for key in 1_000..2_000 {
                        cache.insert(key, key).await;
                    }
                    for key in 1_000..2_000 {
                        cache.invalidate(key).await;
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut wrong = 0;
        for _ in 0..50 {
            let mut listed = vec![0; 1_000];
            for (key, _) in cache.entries() {
                if let Some(times) = usize::try_from(key).ok().and_then(|key| listed.get_mut(key)) {
                    *times += 1;
                }
            }
            wrong += usize::from(listed.iter().any(|times| *times != 1));
            tokio::task::yield_now().await;
        }
        churn.abort();
        Observed::when(wrong == 0, format!("{wrong} of 50 lists miss or repeat an entry"))
    })
}

fn tracked(drops: &Counter) -> Tracked {
    let drops = drops.clone();
    let count = move || {
        drops.add();
    };
    Arc::new(OnDrop(Box::new(count)))
}

fn expired_memory<C: Contender<Tracked>>() -> Observed {
    run(async {
        let cache = C::build(Settings { ttl: Some(ms(1_000)), ..Settings::default() }).expect("a cache");
        let drops = Counter::default();
        for key in 0..10_000 {
            cache.insert(key, tracked(&drops)).await;
        }
        sleep(ms(1_500)).await;
        let mut calls = 0;
        while drops.get() < 10_000 && calls < 10 {
            cache.maintain().await;
            calls += 1;
        }
        let dropped = drops.get();
        Observed::when(
            dropped == 10_000,
            format!("{} values dropped after {}", of_all(dropped, 10_000), count(calls, "call")),
        )
    })
}

fn cache_dropped<C: Contender<Tracked>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let drops = Counter::default();
        for key in 0..1_000 {
            cache.insert(key, tracked(&drops)).await;
        }
        for key in 0..100 {
            cache.invalidate(key).await;
        }
        drop(cache);
        let dropped = drops.get();
        Observed::when(dropped == 1_000, format!("{} values dropped", of_all(dropped, 1_000)))
    })
}
