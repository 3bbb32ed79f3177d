//! A leader with a thousand waiters is lost in each possible way, in virtual time.

use std::{
    future::{Future, pending},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{AbortHandle, Abortable, join_all};
use stockade_cache::{Cache, Error, HedgeAfter, Outcome, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const WAITERS: usize = 1_000;
const LOAD: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(400);

/// The end of the first load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Panic,
    PanicBeforeTheFirstAwait,
    Abort,
    DropUnpolled,
    Error,
    Hang,
}

/// Virtual time that can abort the first spawned task or drop it without a poll.
#[derive(Clone)]
struct Hostile {
    time: Virtual,
    fate: Fate,
    first: Arc<Mutex<Option<AbortHandle>>>,
}

impl Runtime for Hostile {
    fn now(&self) -> Time {
        self.time.now()
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        self.time.sleep_until(deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut first = self.first.lock().unwrap();
        if first.is_some() {
            return self.time.spawn(task);
        }
        let (handle, registration) = AbortHandle::new_pair();
        *first = Some(handle);
        drop(first);
        if self.fate == Fate::DropUnpolled {
            // A runtime that shuts down drops its tasks some time later.
            let (time, later) = (self.time.clone(), self.now() + LOAD);
            self.time.spawn(async move {
                time.sleep_until(later).await;
                drop(task);
            });
        } else {
            let task = Abortable::new(task, registration);
            self.time.spawn(async move {
                let _aborted = task.await;
            });
        }
    }
}

struct Report {
    loads: u64,
    answers: Vec<(Result<u32, Error>, Option<Outcome>, Duration)>,
    flights_left: usize,
    reload: Result<u32, Error>,
}

/// One caller leads and the others wait; the first load ends with its fate; then another caller requests the key.
fn stampede(fate: Fate) -> Report {
    let time = Virtual::new();
    let runtime = Hostile { time: time.clone(), fate, first: Arc::default() };
    let mut strategy = Strategy::preset("stampede").unwrap();
    strategy.load.deadline = DEADLINE;
    let cache: Cache<&str, u32, Hostile> =
        Cache::builder(strategy).build_on(runtime.clone(), Seed(1)).unwrap();
    let loads = Arc::new(AtomicU64::new(0));

    let load = || {
        let (loads, runtime) = (Arc::clone(&loads), runtime.clone());
        move || {
            let is_first = loads.fetch_add(1, Ordering::Relaxed) == 0;
            let is_doomed = is_first && fate != Fate::DropUnpolled;
            assert!(!(is_doomed && fate == Fate::PanicBeforeTheFirstAwait), "on purpose");
            async move {
                runtime.sleep_until(runtime.now() + LOAD).await;
                if !is_doomed {
                    return Ok(7);
                }
                match fate {
                    Fate::Panic => panic!("on purpose"),
                    Fate::Error => Err("on purpose"),
                    Fate::Abort => {
                        let first = runtime.first.lock().unwrap().clone();
                        first.unwrap().abort();
                        pending().await
                    }
                    _ => pending().await,
                }
            }
        }
    };

    let run = time.run(async {
        let start = runtime.now();
        let get = async || {
            let result = cache.get_with("key", load()).await;
            let outcome = result.as_ref().ok().map(|answer| answer.outcome);
            (result.map(|answer| answer.value), outcome, runtime.now() - start)
        };
        let answers = join_all((0..=WAITERS).map(|_| get())).await;
        let loads_of_all = loads.load(Ordering::Relaxed);
        cache.wait_idle().await;
        let flights_left = cache.coalesced_loads();
        let (reload, ..) = get().await;
        Report { loads: loads_of_all, answers, flights_left, reload }
    });
    run.unwrap_or_else(|stalled| panic!("{fate:?}: a caller hangs: {stalled}"))
}

#[test]
fn lost_leader_is_replaced_by_one_waiter() {
    for fate in [Fate::Panic, Fate::PanicBeforeTheFirstAwait, Fate::Abort, Fate::DropUnpolled] {
        let report = stampede(fate);
        let begun = if fate == Fate::DropUnpolled { 1 } else { 2 };
        assert_eq!(report.loads, begun, "{fate:?}: one load is lost, one elected waiter loads");
        for (result, _, waited) in &report.answers {
            assert!(matches!(result, Ok(7)), "{fate:?}: {result:?}");
            assert!(*waited <= 2 * LOAD, "{fate:?}: waited {waited:?}");
        }
        let missed = report.answers.iter().filter(|(_, outcome, _)| *outcome == Some(Outcome::Miss)).count();
        assert_eq!(
            missed, 1,
            "{fate:?}: the elected one; the first caller's load was not the one that answered"
        );
        assert_eq!(report.flights_left, 0, "{fate:?}");
        assert!(matches!(report.reload, Ok(7)), "{fate:?}: stored");
    }
}

#[test]
fn lost_load_without_waiters_is_an_error_and_frees_its_key() {
    let runtime = Virtual::new();
    let run = runtime.run(async {
        let cache: Cache<&str, u32, Virtual> =
            Cache::builder(Strategy::preset("stampede").unwrap()).build_on(runtime.clone(), Seed(1)).unwrap();
        let lost =
            cache.get_with("key", async || -> Result<u32, std::io::Error> { panic!("on purpose") }).await;
        assert_eq!(lost.unwrap_err().to_string(), "the load panicked: on purpose");
        let found = cache.get_with("key", async || Ok::<_, std::io::Error>(7)).await;
        assert_eq!(found.unwrap().value, 7);
    });
    assert_eq!(run, Ok(()));
}

#[test]
fn failed_load_is_shared_with_waiters_and_not_stored() {
    let report = stampede(Fate::Error);
    assert_eq!(report.loads, 1);
    for (result, _, waited) in &report.answers {
        assert!(matches!(result, Err(Error::Load(error)) if error.to_string() == "on purpose"), "{result:?}");
        assert_eq!(*waited, LOAD);
    }
    assert_eq!(report.flights_left, 0);
    assert!(matches!(report.reload, Ok(7)), "the next caller loads anew");
}

#[test]
fn hanging_load_is_cancelled_at_its_deadline() {
    let report = stampede(Fate::Hang);
    assert_eq!(report.loads, 1);
    for (result, _, waited) in &report.answers {
        assert!(matches!(result, Err(Error::Deadline { after: DEADLINE })), "{result:?}");
        assert_eq!(*waited, DEADLINE);
    }
    assert_eq!(report.flights_left, 0);
    assert!(matches!(report.reload, Ok(7)), "the next caller loads anew");
}

#[test]
fn waiter_times_out_and_the_load_goes_on() {
    let runtime = Virtual::new();
    let run = runtime.run(async {
        let cache: Cache<&str, u32, Virtual> =
            Cache::builder(Strategy::preset("stampede").unwrap()).build_on(runtime.clone(), Seed(1)).unwrap();
        let get = || {
            let sleeper = runtime.clone();
            cache.get_with("key", async move || {
                sleeper.sleep_until(sleeper.now() + Duration::from_secs(2)).await;
                Ok::<_, std::io::Error>(7)
            })
        };
        let answers = join_all((0..=WAITERS).map(|_| get())).await;
        (answers, cache.get(&"key"), runtime.now(), cache.stats())
    });
    let (answers, stored, now, stats) = run.unwrap();
    assert!(matches!(&answers[0], Ok(answer) if answer.value == 7));
    let timeout = Duration::from_millis(1500);
    for answer in &answers[1..] {
        assert!(matches!(answer, Err(Error::WaitTimeout { after }) if *after == timeout), "{answer:?}");
    }
    assert_eq!((stored, now.elapsed(), stats.loads), (Some(7), Duration::from_secs(2), 1));
}

/// As `proxy_cache_lock_timeout` of nginx. The bound of concurrent loads holds for these loads, too, and a stale value is served in
/// place of one.
#[test]
fn wait_may_end_in_a_load_of_the_waiter() {
    let wait = Duration::from_millis(50);
    for (max_concurrent, has_stale, loads, took) in [
        (None, false, 11, wait + LOAD),
        // One place is the silent load's.
        (Some(6), false, 11, wait + 2 * LOAD),
        (None, true, 1, wait),
    ] {
        let time = Virtual::new();
        let mut strategy = Strategy {
            ttl: Some(Duration::from_millis(1)),
            sie: if has_stale { Duration::from_secs(60) } else { Duration::ZERO },
            fetch: stockade_cache::Fetch::coalesce_or_load(wait),
            ..Strategy::preset("stampede").unwrap()
        };
        strategy.load.max_concurrent = max_concurrent;
        let cache: Cache<&str, u32, Virtual> =
            Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
        let started = Arc::new(AtomicU64::new(0));
        let run = time.run(async {
            if has_stale {
                cache.insert("key", 1);
                time.sleep_until(time.now() + Duration::from_millis(2)).await;
            }
            let start = time.now();
            let get = || {
                let (clock, started) = (time.clone(), Arc::clone(&started));
                let load = async move || {
                    if started.fetch_add(1, Ordering::Relaxed) == 0 {
                        pending::<()>().await;
                    }
                    clock.sleep_until(clock.now() + LOAD).await;
                    Ok::<_, Error>(7)
                };
                cache.get_with("key", load)
            };
            let silent = get();
            let waiters = join_all((0..10).map(|_| get()));
            let answers = async {
                let answers = waiters.await;
                (answers, time.now() - start)
            };
            let (silent, answers) = futures_util::future::join(silent, answers).await;
            (silent, answers)
        });
        let (silent, (answers, waited)) = run.unwrap();
        let case = format!("{max_concurrent:?} {has_stale}");
        assert_eq!((started.load(Ordering::Relaxed), waited), (loads, took), "{case}");
        let outcome = if has_stale { Outcome::Fallback } else { Outcome::Miss };
        for answer in answers {
            let answer = answer.unwrap();
            assert_eq!((answer.value, answer.outcome), (if has_stale { 1 } else { 7 }, outcome), "{case}");
        }
        assert_eq!(silent.is_ok(), has_stale, "{case}: {silent:?}");
    }
}

/// Those whose wait ends later find the value that the first one has loaded.
#[test]
fn one_waiter_that_loads_for_itself_is_enough_for_later_ones() {
    let (time, loads) = (Virtual::new(), Arc::new(AtomicU64::new(0)));
    let fetch = stockade_cache::Fetch::coalesce_or_load(Duration::from_millis(50));
    let strategy = Strategy { fetch, ..Strategy::preset("stampede").unwrap() };
    let cache: Cache<&str, u64, Virtual> = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    let call = async |number: u32| {
        time.sleep_until(Time::ZERO + number * Duration::from_millis(30)).await;
        let (clock, loads) = (time.clone(), Arc::clone(&loads));
        let load = async move || {
            if loads.fetch_add(1, Ordering::Relaxed) == 0 {
                pending::<()>().await;
            }
            clock.sleep_until(clock.now() + LOAD).await;
            Ok::<_, Error>(7)
        };
        cache.get_with("key", load).await
    };
    let answers = time.run(join_all((0..5).map(call))).unwrap();
    assert!(matches!(answers[0], Err(Error::Deadline { .. })), "{answers:?}");
    let outcomes: Vec<_> = answers[1..].iter().map(|answer| answer.as_ref().unwrap().outcome).collect();
    assert_eq!(outcomes, [Outcome::Miss, Outcome::Hit, Outcome::Hit, Outcome::Hit]);
    assert_eq!(loads.load(Ordering::Relaxed), 2);
}

#[test]
fn no_cancellation_ends_a_load() {
    let runtime = Virtual::new();
    let run = runtime.run(async {
        for preset in ["none", "async", "stampede", "stampede_async"] {
            let cache: Cache<&str, u32, Virtual> =
                Cache::builder(Strategy::preset(preset).unwrap()).build_on(runtime.clone(), Seed(1)).unwrap();
            let sleeper = runtime.clone();
            let get = cache.get_with("key", async move || {
                sleeper.sleep_until(sleeper.now() + LOAD).await;
                Ok::<_, std::io::Error>(7)
            });
            let impatient = runtime.now() + LOAD / 2;
            assert!(stockade_model::time::before(&runtime, impatient, get).await.is_none());
            cache.wait_idle().await;
            assert_eq!(cache.get(&"key"), Some(7), "{preset}");
        }
    });
    assert_eq!(run, Ok(()));
}

#[test]
fn cancelled_elected_waiter_is_replaced_by_another() {
    let runtime = Virtual::new();
    let run = runtime.run(async {
        let cache: Cache<&str, u32, Virtual> =
            Cache::builder(Strategy::preset("stampede").unwrap()).build_on(runtime.clone(), Seed(1)).unwrap();
        let doomed = runtime.clone();
        let first = cache.get_with("key", async move || {
            doomed.sleep_until(doomed.now() + LOAD).await;
            panic!("on purpose");
            #[expect(unreachable_code, reason = "gives the loader its type")]
            Ok::<u32, std::io::Error>(0)
        });
        let load = async || Ok::<_, std::io::Error>(7);
        // The first waiter's deadline passes at the moment of the leader's loss.
        let leaver =
            stockade_model::time::before(&runtime, runtime.now() + LOAD, cache.get_with("key", load));
        let stayers = join_all((0..WAITERS).map(|_| cache.get_with("key", load)));
        let (first, _, stayers) = futures_util::future::join3(first, leaver, stayers).await;
        assert_eq!(first.unwrap().value, 7);
        assert!(stayers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.value == 7)));
        assert!(cache.stats().loads <= 2);
    });
    assert_eq!(run, Ok(()));
}

/// The result of a caller, its outcome and its time.
type Received = (Result<usize, Error>, Outcome, Duration);

/// A hundred callers request a key whose loads take the given times, one after another as they start; `None`: for ever.
/// Returns the loads, and the results with their times.
fn hedged(loads_take: Vec<Option<Duration>>) -> (usize, Vec<Received>) {
    let (time, loads_take) = (Virtual::new(), Arc::new(loads_take));
    let mut strategy =
        Strategy { ttl: Some(Duration::from_secs(60)), ..Strategy::preset("stampede").unwrap() };
    strategy.fetch = stockade_cache::Fetch::coalesce(Duration::from_secs(60));
    strategy.load.deadline = 10 * LOAD;
    strategy.load.hedge_after = Some(HedgeAfter::Time(3 * LOAD));
    let cache: Cache<&str, usize, Virtual> =
        Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    let loads = Arc::new(AtomicU64::new(0));
    let run = time.run(async {
        let start = time.now();
        let get = async || {
            let (loads, loads_take, clock) = (Arc::clone(&loads), Arc::clone(&loads_take), time.clone());
            let load = move || {
                let nth = usize::try_from(loads.fetch_add(1, Ordering::Relaxed)).unwrap();
                let takes = loads_take[nth];
                async move {
                    match takes {
                        Some(takes) => clock.sleep_until(clock.now() + takes).await,
                        None => pending().await,
                    }
                    Ok::<_, Error>(nth)
                }
            };
            let result = cache.get_with("key", load).await;
            let outcome = result.as_ref().map_or(Outcome::Error, |answer| answer.outcome);
            (result.map(|answer| answer.value), outcome, time.now() - start)
        };
        join_all((0..100).map(|_| get())).await
    });
    let answers = run.unwrap_or_else(|stalled| panic!("a caller hangs: {stalled}"));
    (usize::try_from(loads.load(Ordering::Relaxed)).unwrap(), answers)
}

#[test]
fn slow_or_silent_load_is_hedged_once_an_interval() {
    let (loads, answers) = hedged(vec![Some(2 * LOAD)]);
    assert_eq!(loads, 1, "a load within the time");
    assert!(answers.iter().all(|(_, _, waited)| *waited == 2 * LOAD), "{answers:?}");

    for (case, first, expected, waited) in [
        ("silent", None, 1, 4 * LOAD),
        ("slower than the hedge", Some(9 * LOAD), 1, 4 * LOAD),
        ("sooner than the hedge", Some(7 * LOAD / 2), 0, 7 * LOAD / 2),
    ] {
        let (loads, answers) = hedged(vec![first, Some(LOAD)]);
        assert_eq!(loads, 2, "{case}");
        for (result, _, took) in &answers {
            assert!(matches!(result, Ok(value) if *value == expected), "{case}: {result:?}");
            assert_eq!(*took, waited, "{case}");
        }
        let misses = answers.iter().filter(|(_, outcome, _)| *outcome == Outcome::Miss).count();
        assert_eq!(misses, 1, "{case}: the caller whose load has answered");
    }

    // The deadline of the first load ends the hedging, that of the last hedge the wait.
    let (loads, answers) = hedged(vec![None; 4]);
    assert_eq!(loads, 4);
    for (result, _, waited) in &answers {
        assert!(matches!(result, Err(Error::Deadline { .. })), "{result:?}");
        assert_eq!(*waited, 19 * LOAD);
    }
}

/// Its hedges wait for a learned time.
fn learning_cache(time: &Virtual) -> Cache<u64, u64, Virtual> {
    let mut strategy =
        Strategy { ttl: Some(Duration::from_secs(60 * 60)), ..Strategy::preset("stampede").unwrap() };
    strategy.fetch = stockade_cache::Fetch::coalesce(Duration::from_secs(60));
    strategy.load.hedge_after = Some(HedgeAfter::Learned);
    Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap()
}

/// One leader in 250 is silent, one slow and one lost. The followers of all keys wait for twice a usual load at the 99th percentile, and
/// those of a silent leader for as long as was learned and a load.
#[test]
fn learned_hedges_are_one_load_in_a_hundred_at_most() {
    const KEYS: u64 = 5_000;
    let time = Virtual::new();
    let cache = learning_cache(&time);
    let mut waits: Vec<Duration> = Vec::new();
    let run = time.run(async {
        for key in 0..KEYS {
            let is_first = Arc::new(AtomicU64::new(0));
            let start = time.now();
            let callers = (0..10).map(|_| {
                let (clock, is_first) = (time.clone(), Arc::clone(&is_first));
                let load = async move || {
                    let takes = match (is_first.fetch_add(1, Ordering::Relaxed), key % 250) {
                        (0, 100) => pending().await,
                        (0, 150) => 50 * LOAD,
                        (0, 200) => panic!("on purpose"),
                        _ => LOAD + Duration::from_micros(key % 1_000),
                    };
                    clock.sleep_until(clock.now() + takes).await;
                    Ok::<_, Error>(key)
                };
                cache.get_with(key, load)
            });
            let answers = join_all(callers).await;
            let answered =
                answers.iter().filter(|answer| answer.as_ref().is_ok_and(|answer| answer.value == key));
            assert_eq!(answered.count(), 10, "{key}: {answers:?}");
            waits.push(time.now() - start);
        }
    });
    run.unwrap_or_else(|stalled| panic!("a caller hangs: {stalled}"));
    waits.sort_unstable();
    let p99 = waits[waits.len() * 99 / 100];
    assert!(p99 <= 2 * LOAD, "{p99:?}");
    assert!(waits[waits.len() - 1] <= 4 * LOAD, "{:?}", waits[waits.len() - 1]);
    let stats = cache.stats();
    assert_eq!((stats.hedges, stats.loads), (2 * KEYS / 250, KEYS + 3 * KEYS / 250));
}

/// If all loads become slow at once, hedges would double them. Their budget ends first.
#[test]
fn source_that_is_slow_altogether_gets_few_hedges() {
    let time = Virtual::new();
    let cache = learning_cache(&time);
    let load_all = async |keys: std::ops::Range<u64>, takes: Duration| {
        let get = |key| {
            let clock = time.clone();
            let load = async move || {
                clock.sleep_until(clock.now() + takes).await;
                Ok::<_, Error>(key)
            };
            cache.get_with(key, load)
        };
        // Two callers of each key.
        let answers = join_all(keys.flat_map(|key| [get(key), get(key)])).await;
        assert!(answers.iter().all(Result::is_ok));
    };
    let run = time.run(async {
        load_all(0..200, LOAD).await;
        load_all(200..2_200, 40 * LOAD).await;
    });
    run.unwrap_or_else(|stalled| panic!("a caller hangs: {stalled}"));
    let hedges = cache.stats().hedges;
    assert!((10..=25).contains(&hedges), "{hedges} of 2,200 loads");
}

/// The loads of a key take 5 units, then 9. A tag of the value is purged before the request that hedges the first one starts.
#[test]
fn hedge_that_an_invalidated_value_overtakes_is_an_error() {
    let time = Virtual::new();
    let mut strategy =
        Strategy { ttl: Some(Duration::from_secs(60)), ..Strategy::preset("stampede").unwrap() };
    strategy.fetch = stockade_cache::Fetch::coalesce(Duration::from_secs(60));
    strategy.load.hedge_after = Some(HedgeAfter::Time(3 * LOAD));
    let cache: Cache<&str, u32, Virtual> =
        Cache::builder(strategy).tags(|_, _, tag| tag("all")).build_on(time.clone(), Seed(1)).unwrap();
    let get = |after: u32, takes: u32| {
        let (cache, time) = (&cache, time.clone());
        async move {
            time.sleep_until(Time::ZERO + after * LOAD).await;
            let load = move || async move {
                time.sleep_until(time.now() + takes * LOAD).await;
                Ok::<_, std::io::Error>(takes)
            };
            cache.get_with("key", load).await
        }
    };
    let purge = async {
        time.sleep_until(Time::ZERO + LOAD).await;
        cache.invalidate_tag("all", stockade_cache::Invalidation::Hard)
    };
    let run = time.run(async {
        let results = futures_util::future::join3(get(0, 5), get(2, 9), purge).await;
        (results, cache.stats().loads, get(6, 1).await)
    });
    let ((first, second, _), loads, later) = run.unwrap();
    assert_eq!((first.unwrap().value, loads), (5, 2));
    assert!(matches!(second, Err(Error::Invalidated)), "{second:?}");
    assert_eq!(later.unwrap().value, 1, "it was not stored");
}
