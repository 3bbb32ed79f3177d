//! Loads that are left, fail, panic or hang, and changes of the key meanwhile.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    spawn,
    sync::Notify,
    task::{JoinHandle, yield_now},
    time::{Instant, sleep, timeout},
};

use super::{
    CACHEX, CAFFEINE, FOYER, FUSION, MOKA, Observed, Scenario,
    contender::{Answer, Contender, Settings},
    count,
    executor::{poll_once, run, within},
    issue, on_all, on_tasks,
};
use crate::process::resident_bytes;

pub static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "leader_dropped",
        title: "The caller that loads is cancelled while 99 others wait",
        issues: &[
            issue(MOKA, 59, "a call panics after the task that loaded the key was aborted"),
            issue(FOYER, 1189, "a cancelled leader fails the callers that follow it"),
        ],
        expected: "All others get the value, after two loads at most.",
        why: "",
        runs: on_tasks!(leader_dropped, u64),
    },
    Scenario {
        name: "leader_stalled",
        title: "The caller that loads is polled once, and then neither polled nor dropped",
        issues: &[issue(MOKA, 240, "a call waits for ever for one that is not polled any more")],
        expected: "A second caller gets the value.",
        why: "A load of moka runs in the future of the caller that starts it; a load of ours is a task.",
        runs: on_tasks!(leader_stalled, u64),
    },
    Scenario {
        name: "impatient_callers",
        title: "A load takes 500 ms, and each caller gives up after 300 ms",
        issues: &[issue(MOKA, 240, "callers with a short timeout never fill the cache")],
        expected: "The value is in the cache after 3 s of such callers.",
        why: "A load of moka runs in the future of the caller that starts it; a load of ours is a task. Each cancelled caller of moka costs a load.",
        runs: on_tasks!(impatient_callers, u64),
    },
    Scenario {
        name: "waiters_dropped",
        title: "5,000 callers that wait for one load are cancelled, ten times",
        issues: &[issue(FUSION, 608, "callers are cancelled while they wait for the lock of a key")],
        expected: "Each load ends and is stored, and resident memory grows by less than 8 MiB in the last five times.",
        why: "",
        runs: on_tasks!(waiters_dropped, u64),
    },
    Scenario {
        name: "loader_panics",
        title: "The first load panics, 100 callers",
        issues: &[
            issue(MOKA, 43, "waiters panic when the load panics"),
            issue(CACHEX, 220, "the process of a load crashes, and all later calls wait"),
        ],
        expected: "One caller at most panics, the others get a value or an error, and the next call loads.",
        why: "",
        runs: on_all!(loader_panics, u64),
    },
    Scenario {
        name: "loader_fails",
        title: "A load returns an error, 100 callers",
        issues: &[
            issue(CAFFEINE, 539, "what callers get when the load throws"),
            issue(FUSION, 647, "the lock of a key stays taken after a load that throws at once"),
        ],
        expected: "All get the error of one load, and the next call loads.",
        why: "",
        runs: on_all!(loader_fails, u64),
    },
    Scenario {
        name: "load_hangs",
        title: "A load never returns, and its ten callers do not give up",
        issues: &[
            issue(FUSION, 457, "what a hard timeout of the load does"),
            issue(CACHEX, 319, "calls for a key wait for ever"),
        ],
        expected: "Each call ends within the bound that the cache was given (1 s); in a cache for threads, all but the one whose thread runs the load.",
        why: "moka has no bound of a load.",
        runs: on_all!(load_hangs, u64),
    },
    Scenario {
        name: "source_recovers",
        title: "A load never returns, its 100 callers give up after 300 ms, and then the source is repaired",
        issues: &[issue(CACHEX, 287, "calls for one key do not return until the application is restarted")],
        expected: "Each call ends when its caller gives up, and a call 1.5 s later gets a value.",
        why: "",
        runs: on_tasks!(source_recovers, u64),
    },
    Scenario {
        name: "one_load",
        title: "Four callers ask for 2,000 keys in the same order, so that calls arrive as loads end",
        issues: &[
            issue(MOKA, 195, "a call that arrives as a load ends loads again"),
            issue(CACHEX, 347, "two loads of one key"),
        ],
        expected: "Each key is loaded once.",
        why: "",
        runs: on_all!(one_load, u64),
    },
    Scenario {
        name: "invalidated_during_load",
        title: "The key is invalidated during its load, after the load has read the source",
        issues: &[
            issue(CAFFEINE, 193, "a refresh stores its value after an invalidation"),
            issue(CAFFEINE, 148, "an invalidation of a key that is being loaded"),
        ],
        expected: "Once the load has ended, the old value is not found.",
        why: "moka stores what a load returns, whatever was done to its key meanwhile.",
        runs: on_all!(invalidated_during_load, u64),
    },
    Scenario {
        name: "all_invalidated_during_load",
        title: "Everything is invalidated during a load, after the load has read the source",
        issues: &[
            issue(CAFFEINE, 13, "invalidating everything misses values that are being loaded"),
            issue(CAFFEINE, 251, "invalidating everything is without effect on a reload in progress"),
        ],
        expected: "Once the load has ended, the old value is not found.",
        why: "moka stores what a load returns, whatever was done to its key meanwhile.",
        runs: on_all!(all_invalidated_during_load, u64),
    },
    Scenario {
        name: "insert_during_load",
        title: "A value is inserted during the load of its key",
        issues: &[
            issue(FOYER, 1289, "a fetch goes on after an insert of its key"),
            issue(FOYER, 1121, "an insert during a fetch of its key leads to a panic"),
        ],
        expected: "Once the load has ended, the inserted value is found.",
        why: "moka stores what a load returns, whatever was done to its key meanwhile.",
        runs: on_all!(insert_during_load, u64),
    },
];

/// A counter of loads, or of anything else, that tasks share.
#[derive(Clone, Default)]
pub(super) struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Returns the number before.
    pub(super) fn add(&self) -> usize {
        self.0.fetch_add(1, SeqCst)
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// Waits until it has this number.
    pub(super) async fn reaches(&self, number: usize) {
        while self.get() < number {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How calls ended.
#[derive(Default)]
struct Ends {
    values: usize,
    errors: usize,
    panics: usize,
    open: usize,
}

/// Waits for all calls.
async fn ends_of(calls: Vec<JoinHandle<Answer<u64>>>) -> Ends {
    let deadline = Instant::now() + super::executor::PATIENCE;
    let mut ends = Ends::default();
    for call in calls {
        match tokio::time::timeout_at(deadline, call).await {
            Err(_) => ends.open += 1,
            Ok(Err(_)) => ends.panics += 1,
            Ok(Ok(Err(_))) => ends.errors += 1,
            Ok(Ok(Ok(_))) => ends.values += 1,
        }
    }
    ends
}

impl Ends {
    fn text(&self) -> String {
        let kinds = [(self.values, "value"), (self.errors, "error"), (self.panics, "panic")];
        let mut parts: Vec<String> = kinds
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, name)| count(*number, name))
            .collect();
        if self.open > 0 {
            parts.push(format!("{} without an answer", self.open));
        }
        parts.join(", ")
    }
}

/// The text of the call after the scenario, and whether it got a value.
async fn next_call<C: Contender<u64>>(cache: &C) -> (bool, &'static str) {
    match within(cache.load(1, async { Ok(8) })).await {
        Some(Ok(_)) => (true, "the next call gets a value"),
        Some(Err(_)) => (false, "the next call gets an error"),
        None => (false, "the next call hangs"),
    }
}

/// Starts calls that share a load. `started` counts them.
fn start_calls<C, F>(
    cache: &C,
    number: usize,
    started: &Counter,
    load: impl Fn() -> F,
) -> Vec<JoinHandle<Answer<u64>>>
where
    C: Contender<u64>,
    F: Future<Output = Answer<u64>> + Send + 'static,
{
    let call = |_| {
        let (cache, started, load) = (cache.clone(), started.clone(), load());
        spawn(async move {
            started.add();
            cache.load(1, load).await
        })
    };
    (0..number).map(call).collect()
}

fn leader_dropped<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let (loads, started) = (Counter::default(), Counter::default());
        let load = || {
            let loads = loads.clone();
            async move {
                loads.add();
                sleep(ms(300)).await;
                Ok(7)
            }
        };
        let leader = start_calls(&cache, 1, &started, load).remove(0);
        loads.reaches(1).await;
        let others = start_calls(&cache, 99, &started, load);
        started.reaches(100).await;
        sleep(ms(50)).await;
        leader.abort();
        let ends = ends_of(others).await;
        let loads = loads.get();
        Observed::when(ends.values == 99 && loads <= 2, format!("{}; {}", ends.text(), count(loads, "load")))
    })
}

fn leader_stalled<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let mut leader = pin!(cache.load(1, async {
            yield_now().await;
            Ok(7)
        }));
        let _ = poll_once(leader.as_mut());
        match within(cache.load(1, async { Ok(8) })).await {
            Some(Ok(_)) => Observed::when(true, "the second caller gets a value"),
            Some(Err(error)) => Observed::when(false, format!("an error: {error}")),
            None => Observed::when(false, "the second caller hangs"),
        }
    })
}

fn impatient_callers<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let loads = Counter::default();
        let mut calls = Vec::new();
        for _ in 0..30 {
            let (cache, loads) = (cache.clone(), loads.clone());
            calls.push(spawn(async move {
                let load = async move {
                    loads.add();
                    sleep(ms(500)).await;
                    Ok(7)
                };
                timeout(ms(300), cache.load(1, load)).await.is_ok_and(|answer| answer.is_ok())
            }));
            sleep(ms(100)).await;
        }
        let mut answered = 0;
        for call in calls {
            answered += usize::from(call.await.is_ok_and(|is_answered| is_answered));
        }
        let is_stored = cache.get(1).await.is_some();
        let stored = if is_stored { "stored" } else { "not stored" };
        let loads = count(loads.get(), "load");
        Observed::when(is_stored, format!("{stored}; {answered} of 30 callers answered; {loads} begun"))
    })
}

fn waiters_dropped<C: Contender<u64>>() -> Observed {
    const CALLERS: usize = 5_000;
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let mut resident = Vec::new();
        for round in 0..10 {
            let (loads, started, gate) = (Counter::default(), Counter::default(), Arc::new(Notify::new()));
            let leader = {
                let (cache, loads, gate) = (cache.clone(), loads.clone(), Arc::clone(&gate));
                spawn(async move {
                    let load = async move {
                        loads.add();
                        gate.notified().await;
                        Ok(7)
                    };
                    cache.load(round, load).await
                })
            };
            loads.reaches(1).await;
            let wait = |_| {
                let (cache, started) = (cache.clone(), started.clone());
                spawn(async move {
                    started.add();
                    cache.load(round, async { Ok(8) }).await
                })
            };
            let waiters: Vec<_> = (0..CALLERS).map(wait).collect();
            started.reaches(CALLERS).await;
            for waiter in waiters {
                waiter.abort();
                let _ = waiter.await;
            }
            gate.notify_one();
            if !matches!(within(leader).await, Some(Ok(Ok(7)))) || cache.get(round).await != Some(7) {
                return Observed::when(false, format!("in round {round} the load was lost"));
            }
            resident.push(resident_bytes().expect("/proc"));
        }
        let grown = resident[9].saturating_sub(resident[4]) >> 20;
        let is_bounded = grown < 8;
        let grown = if is_bounded { "less than 8".to_owned() } else { grown.to_string() };
        Observed::when(is_bounded, format!("all loads stored; {grown} MiB more"))
    })
}

fn loader_panics<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let (loads, started) = (Counter::default(), Counter::default());
        let load = || {
            let (loads, started) = (loads.clone(), started.clone());
            async move {
                if loads.add() == 0 {
                    started.reaches(100).await;
                    sleep(ms(100)).await;
                    panic!("the loader");
                }
                Ok(7)
            }
        };
        let ends = ends_of(start_calls(&cache, 100, &started, load)).await;
        let (is_answered, next) = next_call(&cache).await;
        let is_expected = ends.panics <= 1 && ends.open == 0 && is_answered;
        Observed::when(is_expected, format!("{}; {}; {next}", ends.text(), count(loads.get(), "load")))
    })
}

fn loader_fails<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let (loads, started) = (Counter::default(), Counter::default());
        let load = || {
            let (loads, started) = (loads.clone(), started.clone());
            async move {
                loads.add();
                started.reaches(100).await;
                sleep(ms(200)).await;
                Err("the source is down".to_owned())
            }
        };
        let ends = ends_of(start_calls(&cache, 100, &started, load)).await;
        let loads = loads.get();
        let (is_answered, next) = next_call(&cache).await;
        let is_expected = ends.errors == 100 && loads == 1 && is_answered;
        Observed::when(is_expected, format!("{}; {}; {next}", ends.text(), count(loads, "load")))
    })
}

fn load_hangs<C: Contender<u64>>() -> Observed {
    if !C::HAS_BOUNDS {
        return Observed::no_setting("bound of a load");
    }
    run(async {
        let cache = C::build(Settings { bound: Some(ms(1_000)), ..Settings::default() }).expect("a cache");
        let ends = ends_of(start_calls(&cache, 10, &Counter::default(), pending)).await;
        Observed::when(ends.open <= C::BLOCKED_BY_LOAD, ends.text())
    })
}

fn source_recovers<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings { bound: Some(ms(1_000)), ..Settings::default() }).expect("a cache");
        let call = |_| {
            let cache = cache.clone();
            spawn(async move {
                let began = Instant::now();
                let is_answered = timeout(ms(300), cache.load(1, pending())).await.is_ok();
                !is_answered && began.elapsed() < ms(2_000)
            })
        };
        let calls: Vec<_> = (0..100).map(call).collect();
        let mut ended = 0;
        for call in calls {
            ended += usize::from(call.await.is_ok_and(|is_in_time| is_in_time));
        }
        sleep(ms(1_500)).await;
        let (is_answered, next) = next_call(&cache).await;
        Observed::when(ended == 100 && is_answered, format!("{ended} of 100 gave up in time; {next}"))
    })
}

fn one_load<C: Contender<u64>>() -> Observed {
    const KEYS: usize = 2_000;
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let loads: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
        let call = |_| {
            let (cache, loads) = (cache.clone(), Arc::clone(&loads));
            spawn(async move {
                for key in 0..KEYS {
                    let loads = Arc::clone(&loads);
                    let load = async move {
                        loads[key].fetch_add(1, SeqCst);
                        yield_now().await;
                        Ok(7)
                    };
                    cache.load(key as u64, load).await?;
                }
                Ok(0)
            })
        };
        let ends = ends_of((0..4).map(call).collect()).await;
        let repeated = loads.iter().filter(|loads| loads.load(SeqCst) > 1).count();
        let fact = if ends.values == 4 {
            format!("{repeated} keys were loaded more than once")
        } else {
            format!("of the four callers: {}", ends.text())
        };
        Observed::when(ends.values == 4 && repeated == 0, fact)
    })
}

/// The load reads the source and goes on when `change` has returned. Returns what the source had when it was read, what
/// a caller got that came between, and what is stored at the end.
async fn changed_during_load<C, F>(change: impl FnOnce(C, Arc<AtomicU64>) -> F) -> (u64, Option<u64>)
where
    C: Contender<u64>,
    F: Future<Output = ()>,
{
    let cache = C::build(Settings::default()).expect("a cache");
    let (source, is_released) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let loads = Counter::default();
    let leader = {
        let (cache, loads, source) = (cache.clone(), loads.clone(), Arc::clone(&source));
        let is_released = Arc::clone(&is_released);
        spawn(async move {
            let load = async move {
                let read = source.load(SeqCst);
                loads.add();
                while !is_released.load(SeqCst) {
                    sleep(ms(1)).await;
                }
                Ok(read)
            };
            cache.load(1, load).await
        })
    };
    loads.reaches(1).await;
    change(cache.clone(), Arc::clone(&source)).await;
    let between = {
        let (cache, source) = (cache.clone(), Arc::clone(&source));
        spawn(async move { cache.load(1, async move { Ok(source.load(SeqCst)) }).await })
    };
    sleep(ms(100)).await;
    is_released.store(true, SeqCst);
    let _ = within(leader).await;
    let between = within(between).await.and_then(Result::ok).and_then(Result::ok);
    (between.unwrap_or(0), cache.get(1).await)
}

/// The verdict on a source that had 1, and 2 from the change on.
fn old_or_new(between: u64, stored: Option<u64>) -> Observed {
    let name = |value| match value {
        1 => "the old value",
        2 => "the new value",
        _ => "nothing",
    };
    let (between, after) = (name(between), name(stored.unwrap_or(0)));
    let fact = format!("{after} is found; a call between the two got {between}");
    Observed::when(stored != Some(1), fact)
}

fn invalidated_during_load<C: Contender<u64>>() -> Observed {
    run(async {
        let change = |cache: C, source: Arc<AtomicU64>| async move {
            source.store(2, SeqCst);
            cache.invalidate(1).await;
        };
        let (between, stored) = changed_during_load::<C, _>(change).await;
        old_or_new(between, stored)
    })
}

fn all_invalidated_during_load<C: Contender<u64>>() -> Observed {
    run(async {
        let change = |cache: C, source: Arc<AtomicU64>| async move {
            source.store(2, SeqCst);
            cache.invalidate_all();
        };
        let (between, stored) = changed_during_load::<C, _>(change).await;
        old_or_new(between, stored)
    })
}

fn insert_during_load<C: Contender<u64>>() -> Observed {
    run(async {
        let change = |cache: C, _| async move { cache.insert(1, 50).await };
        let (_, stored) = changed_during_load::<C, _>(change).await;
        let fact = match stored {
            Some(50) => "the inserted value is found",
            Some(_) => "the loaded value is found",
            None => "nothing is found",
        };
        Observed::when(stored == Some(50), fact)
    })
}
