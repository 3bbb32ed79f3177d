//! Functions of the caller that call the cache: loads, listeners, predicates and destructors.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{spawn, task::JoinError, time::Instant};

use super::{
    CAFFEINE, FUSION, MOKA, Observed, Scenario,
    contender::{Answer, Capacity, Contender, Settings},
    executor::{run, within},
    issue,
    loads::{Counter, ms},
    on_all,
};

pub static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "nested_loads",
        title: "Each load asks for another key of the same cache, 100 deep",
        issues: &[
            issue(CAFFEINE, 1237, "loads that ask for other keys, 100 deep"),
            issue(FUSION, 513, "whether a load may ask for another key"),
        ],
        expected: "The first call gets the value.",
        why: "Nested loads use one stack, of 2 MiB here: in a debug build 37 KiB for each in ours for threads, \
         24 KiB in moka, 7 KiB in moka for threads. Ours nests sixteen at most; \
         deeper loads run on tasks, or on threads of the cache.",
        runs: on_all!(nested_loads, u64),
    },
    Scenario {
        name: "same_key",
        title: "A load asks for its own key",
        issues: &[issue(FUSION, 513, "a load that asks for its own key is a deadlock")],
        expected: "The call ends within 5 s with a value, an error or a panic. A cache with bounds has 1 s.",
        why: "moka has no bound of a wait. In ours a hedge answered after half of the bound; without one the wait ends with an error.",
        runs: on_all!(same_key, u64),
    },
    Scenario {
        name: "mutual_loads",
        title: "The loads of two keys ask for each other's key",
        issues: &[issue(CAFFEINE, 89, "loads of A that need B, and of B that need A")],
        expected: "Both calls end within 5 s with a value, an error or a panic. A cache with bounds has 1 s.",
        why: "moka has no bound of a wait. In ours a hedge answered after half of the bound; without one the wait ends with an error.",
        runs: on_all!(mutual_loads, u64),
    },
    Scenario {
        name: "listener_calls",
        title: "The listener of removals inserts into the cache and reads it, 1,000 inserts into 100 places",
        issues: &[
            issue(MOKA, 298, "how a listener can add an entry to its cache"),
            issue(CAFFEINE, 1065, "listeners that write to a cache hang"),
        ],
        expected: "All inserts return, and the listener was called.",
        why: "",
        runs: on_all!(listener_calls, u64),
    },
    Scenario {
        name: "listener_panics",
        title: "The listener of removals panics once, 1,000 inserts into 100 places",
        issues: &[issue(MOKA, 391, "the panic of a listener is hidden, and it is not called again")],
        expected: "No insert panics, and the last inserted value is found.",
        why: "",
        runs: on_all!(listener_panics, u64),
    },
    Scenario {
        name: "predicate_calls",
        title: "The predicate of an invalidation reads the cache",
        issues: &[issue(MOKA, 12, "invalidation of the entries for which a function returns true")],
        expected: "The invalidation returns; the matching entries are gone, and the others stay.",
        why: "",
        runs: on_all!(predicate_calls, u64),
    },
    Scenario {
        name: "drop_calls",
        title: "The destructor of a value reads the cache, 1,000 inserts into 100 places",
        issues: &[issue("awolverp/cachebox", 85, "destructors of values run under the lock of the cache")],
        expected: "All inserts return, and destructors have run.",
        why: "moka drops values while its map holds the lock with which it grows, and a read waits for this lock.",
        runs: on_all!(drop_calls, Tracked),
    },
];

/// Runs when the last clone of a value is dropped.
pub(super) struct OnDrop(pub(super) Box<dyn Fn() + Send + Sync>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(super) type Tracked = Arc<OnDrop>;

const DEPTH: u64 = 100;

fn nested<C: Contender<u64>>(cache: C, depth: u64) -> Pin<Box<dyn Future<Output = Answer<u64>> + Send>> {
    Box::pin(async move {
        let inner = nested_load(cache.clone(), depth);
        cache.load(depth, inner).await
    })
}

async fn nested_load<C: Contender<u64>>(cache: C, depth: u64) -> Answer<u64> {
    match depth {
        0 => Ok(0),
        _ => nested(cache, depth - 1).await.map(|value| value + 1),
    }
}

fn nested_loads<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        match within(spawn(nested(cache, DEPTH))).await {
            Some(Ok(Ok(DEPTH))) => Observed::when(true, "the value"),
            Some(Ok(Ok(value))) => Observed::when(false, format!("the value {value}")),
            Some(Ok(Err(error))) => Observed::when(false, format!("an error: {error}")),
            Some(Err(_)) => Observed::when(false, "a panic"),
            None => Observed::when(false, "hung"),
        }
    })
}

fn bounded() -> Settings<u64> {
    Settings { bound: Some(ms(1_000)), ..Settings::default() }
}

/// How a call ended, and after which time.
fn end_of(end: Option<&Result<Answer<u64>, JoinError>>, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    match end {
        Some(Ok(Ok(_))) => format!("a value after {seconds:.1} s"),
        Some(Ok(Err(_))) => format!("an error after {seconds:.1} s"),
        Some(Err(_)) => format!("a panic after {seconds:.1} s"),
        None => "hung".to_owned(),
    }
}

fn same_key<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(bounded()).expect("a cache");
        let began = Instant::now();
        let call = spawn(async move {
            let inner = cache.clone();
            cache.load(1, async move { inner.load(1, async { Ok(7) }).await }).await
        });
        let end = within(call).await;
        Observed::when(end.is_some(), end_of(end.as_ref(), began.elapsed()))
    })
}

fn mutual_loads<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(bounded()).expect("a cache");
        let (loads, began) = (Counter::default(), Instant::now());
        let call = |key: u64| {
            let (cache, loads) = (cache.clone(), loads.clone());
            spawn(async move {
                let inner = cache.clone();
                let load = async move {
                    loads.add();
                    loads.reaches(2).await;
                    inner.load(3 - key, async { Ok(7) }).await
                };
                cache.load(key, load).await
            })
        };
        let end = async |call| {
            let end = within(call).await;
            (end.is_some(), end_of(end.as_ref(), began.elapsed()))
        };
        let ((is_first, first), (is_second, second)) = tokio::join!(end(call(1)), end(call(2)));
        let fact = if first == second { format!("both: {first}") } else { format!("{first}; {second}") };
        Observed::when(is_first && is_second, fact)
    })
}

fn listener_calls<C: Contender<u64>>() -> Observed {
    run(async {
        let (slot, calls) = (Arc::new(OnceLock::<C>::new()), Counter::default());
        let listener = {
            let (slot, calls) = (Arc::clone(&slot), calls.clone());
            move |key: u64, _| {
                let (slot, calls) = (Arc::clone(&slot), calls.clone());
                let call = async move {
                    calls.add();
                    // The entry that it inserts itself is replaced by the next one.
                    if let (Some(cache), true) = (slot.get(), key != 0) {
                        cache.insert(0, key).await;
                        cache.get(key).await;
                    }
                };
                Box::pin(call) as Pin<Box<dyn Future<Output = ()> + Send>>
            }
        };
        let settings = Settings {
            capacity: Capacity::Entries(100),
            listener: Some(Arc::new(listener)),
            ..Settings::default()
        };
        let cache = C::build(settings).expect("a cache");
        let _ = slot.set(cache.clone());
        let inserts = async {
            for key in 1..=1_000 {
                cache.insert(key, key).await;
            }
            cache.maintain().await;
        };
        match within(inserts).await {
            Some(()) => Observed::when(calls.get() > 0, "all inserts returned"),
            None => Observed::when(false, "an insert hung"),
        }
    })
}

fn listener_panics<C: Contender<u64>>() -> Observed {
    run(async {
        let calls = Counter::default();
        let listener = {
            let calls = calls.clone();
            move |_, _| {
                let calls = calls.clone();
                let call = async move { assert!(calls.add() != 0, "the listener") };
                Box::pin(call) as Pin<Box<dyn Future<Output = ()> + Send>>
            }
        };
        let settings = Settings {
            capacity: Capacity::Entries(100),
            listener: Some(Arc::new(listener)),
            ..Settings::default()
        };
        let cache = C::build(settings).expect("a cache");
        let inserts = spawn(async move {
            for key in 1..=1_000 {
                cache.insert(key, key).await;
                if key % 100 == 0 {
                    cache.maintain().await;
                }
            }
            cache.insert(1_001, 1_001).await;
            cache.get(1_001).await
        });
        let later = match calls_after(within(inserts).await.as_ref(), &calls) {
            Ok(later) => later,
            Err(fact) => return Observed::when(false, fact),
        };
        let again = if later > 0 { "called again" } else { "not called again" };
        Observed::when(true, format!("all inserts returned; the listener was {again}"))
    })
}

/// The calls of the listener after its panic, if the inserts ended well.
fn calls_after(end: Option<&Result<Option<u64>, JoinError>>, calls: &Counter) -> Result<usize, &'static str> {
    match end {
        Some(Ok(Some(_))) => calls.get().checked_sub(1).ok_or("the listener was not called"),
        Some(Ok(None)) => Err("the last value is not found"),
        Some(Err(_)) => Err("an insert panicked"),
        None => Err("an insert hung"),
    }
}

fn predicate_calls<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        for key in 0..100 {
            cache.insert(key, key).await;
        }
        let inner = cache.clone();
        let matches = move |key: u64, _: &u64| inner.contains(key + 1_000) || key.is_multiple_of(2);
        if within(cache.invalidate_if(matches)).await.is_none() {
            return Observed::when(false, "the invalidation hung");
        }
        let (mut even, mut odd) = (0, 0);
        for key in 0..100 {
            if cache.get(key).await.is_some() {
                *if key % 2 == 0 { &mut even } else { &mut odd } += 1;
            }
        }
        Observed::when(
            even == 0 && odd == 50,
            format!("{even} of 50 that match are found, {odd} of 50 others"),
        )
    })
}

fn drop_calls<C: Contender<Tracked>>() -> Observed {
    run(async {
        let (slot, drops) = (Arc::new(OnceLock::<C>::new()), Counter::default());
        let settings = Settings { capacity: Capacity::Entries(100), ..Settings::default() };
        let cache = C::build(settings).expect("a cache");
        let _ = slot.set(cache.clone());
        let inserts = spawn({
            let drops = drops.clone();
            async move {
                for key in 0..1_000 {
                    let (slot, drops) = (Arc::clone(&slot), drops.clone());
                    let read = move || {
                        drops.add();
                        if let Some(cache) = slot.get() {
                            cache.contains(key);
                            cache.contains(key / 2);
                        }
                    };
                    cache.insert(key, Arc::new(OnDrop(Box::new(read)))).await;
                    if key % 100 == 0 {
                        cache.maintain().await;
                    }
                }
            }
        });
        let fact = match within(inserts).await {
            Some(Ok(())) => "all inserts returned",
            Some(Err(_)) => "an insert panicked",
            None => "an insert hung",
        };
        let has_dropped = drops.get() > 0;
        Observed::when(fact == "all inserts returned" && has_dropped, fact)
    })
}
