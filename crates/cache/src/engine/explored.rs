//! A whole cache under the schedules that shuttle finds: admission, the breaker, and views that replace each other while
//! loads run.

use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::{
    future::{block_on, yield_now},
    thread,
};

use super::*;
use crate::{Batching, Breaker, Cache, LoadBounds, Update, locks::Lock};

/// Tasks and clock of a schedule. Only the test moves the time, and no deadline passes.
#[derive(Clone, Default)]
struct Explored(Arc<Lock<Time>>);

impl Explored {
    fn pass(&self, time: Duration) {
        let mut now = self.0.lock();
        *now = *now + time;
    }
}

impl Runtime for Explored {
    fn now(&self) -> Time {
        *self.0.lock()
    }

    fn sleep_until(&self, _: Time) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(shuttle::future::spawn(task));
    }
}

type TestedCache = Cache<u8, u32, Explored>;

/// What the source does, and what it has seen.
#[derive(Default)]
struct Source {
    running: AtomicUsize,
    most_running: AtomicUsize,
    loads: AtomicUsize,
    is_failing: std::sync::atomic::AtomicBool,
}

impl Source {
    async fn load(self: Arc<Self>, value: u32) -> Result<u32, &'static str> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        yield_now().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        if self.is_failing.load(Ordering::SeqCst) { Err("the source fails") } else { Ok(value) }
    }

    fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }
}

fn cache(strategy: Strategy) -> (TestedCache, Explored) {
    let runtime = Explored::default();
    (Cache::builder(strategy).build_on(runtime.clone(), Seed(1)).expect("a valid strategy"), runtime)
}

fn stampede() -> Strategy {
    Strategy::preset("stampede").expect("a preset")
}

fn get(cache: &TestedCache, source: &Arc<Source>, key: u8) -> Result<u32, Error> {
    let source = Arc::clone(source);
    block_on(cache.get_with(key, move || source.load(u32::from(key)))).map(|answer| answer.value)
}

fn spawn_get(cache: &TestedCache, source: &Arc<Source>, key: u8) -> thread::JoinHandle<Result<u32, Error>> {
    let (cache, source) = (cache.clone(), Arc::clone(source));
    thread::spawn(move || get(&cache, &source, key))
}

/// Random walks, and schedules that prefer one thread over the others.
fn explore(test: impl Fn() + Copy + Send + Sync + 'static) {
    shuttle::check_random(test, 2_000);
    shuttle::check_pct(test, 2_000, 3);
}

#[test]
fn admission_holds_its_bounds_and_loses_no_slot() {
    explore(|| {
        let load = LoadBounds { max_concurrent: Some(1), queue: 1, ..stampede().load };
        let (cache, _) = cache(Strategy { load, ..stampede() });
        let source = Arc::<Source>::default();
        // A caller that leaves at once: its load goes on.
        let leaving = {
            let (cache, source) = (cache.clone(), Arc::clone(&source));
            thread::spawn(move || {
                let mut leaver = Box::pin(cache.get_with(9, move || source.load(9)));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                drop(leaver.as_mut().poll(&mut context));
            })
        };
        let callers = [0, 1, 2].map(|key| (key, spawn_get(&cache, &source, key)));
        for (key, caller) in callers {
            match caller.join().unwrap() {
                Ok(value) => assert_eq!(value, u32::from(key)),
                Err(error) => assert!(matches!(error, Error::Overloaded { queue: 1 }), "{error:?}"),
            }
        }
        leaving.join().unwrap();
        block_on(cache.wait_idle());
        assert_eq!(source.most_running.load(Ordering::SeqCst), 1);
        // One slot and one place in the queue are free again.
        let callers = [10, 11].map(|key| spawn_get(&cache, &source, key));
        assert!(callers.into_iter().all(|caller| caller.join().unwrap().is_ok()));
    });
}

#[test]
fn loads_that_wait_for_bytes_get_them_in_every_schedule() {
    explore(|| {
        const LIMIT: usize = 2_000;
        let limit = crate::Limit { max_object: Some(900), ..crate::Limit::bytes(LIMIT) };
        let strategy = Strategy { limit: Some(limit), ..stampede() };
        let runtime = Explored::default();
        let cache: TestedCache =
            Cache::builder(strategy).weigh(|_, _| 500).build_on(runtime, Seed(1)).expect("a valid strategy");
        let source = Arc::<Source>::default();
        // The size of one value is known then.
        assert_eq!(get(&cache, &source, 9).expect("it loads"), 9);
        // Loads may reserve half of the limit: one at a time.
        let callers = [0, 1, 2].map(|key| spawn_get(&cache, &source, key));
        let removing = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.invalidate_all(Invalidation::Hard);
            })
        };
        for (key, caller) in (0..).zip(callers) {
            assert_eq!(caller.join().unwrap().expect("it waits, and then loads"), key);
        }
        removing.join().unwrap();
        block_on(cache.wait_idle());
        let used = cache.byte_usage().expect("a limit in bytes");
        assert!(used.peak <= LIMIT, "{used:?}");
        assert_eq!(source.most_running.load(Ordering::SeqCst), 1);
    });
}

const OPEN_FOR: Duration = Duration::from_secs(5);

/// Opens after two failures.
fn breaker(probes: u32) -> Breaker {
    let (min_calls, errors_rate, ramp) = (2, 1.0, Duration::ZERO);
    Breaker { min_calls, errors_rate, open_for: OPEN_FOR, probes, ramp, ..Breaker::DEFAULT }
}

#[test]
fn breaker_admits_one_probe_and_closes_when_it_is_answered() {
    explore(|| {
        let (cache, runtime) = cache(Strategy { breaker: Some(breaker(1)), ..stampede() });
        let source = Arc::<Source>::default();
        source.is_failing.store(true, Ordering::SeqCst);
        let callers = [0, 1, 2].map(|key| spawn_get(&cache, &source, key));
        assert!(callers.into_iter().all(|caller| caller.join().unwrap().is_err()));
        block_on(cache.wait_idle());
        let failed = source.loads();
        assert!((2..=3).contains(&failed));
        assert!(matches!(get(&cache, &source, 3), Err(Error::BreakerOpen)));
        assert_eq!(source.loads(), failed);

        // Of three requests after the pause one is the probe, which fails and opens the breaker again.
        runtime.pass(OPEN_FOR);
        let callers = [4, 5, 6].map(|key| spawn_get(&cache, &source, key));
        assert!(callers.into_iter().all(|caller| caller.join().unwrap().is_err()));
        assert_eq!(source.loads(), failed + 1);

        // The next probe is answered. Requests at the same time are answered or refused; later ones are answered.
        runtime.pass(OPEN_FOR);
        source.is_failing.store(false, Ordering::SeqCst);
        let callers = [7, 8, 9].map(|key| (key, spawn_get(&cache, &source, key)));
        let answers = callers.map(|(key, caller)| (key, caller.join().unwrap()));
        assert!(answers.iter().any(|(key, answer)| matches!(answer, Ok(value) if *value == u32::from(*key))));
        assert!(
            answers.iter().all(|(_, answer)| matches!(answer, Ok(_) | Err(Error::BreakerOpen))),
            "{answers:?}"
        );
        assert!(get(&cache, &source, 10).is_ok());
        assert!(cache.breaker_states().iter().all(|(_, state)| *state == BreakerState::Closed));
    });
}

#[test]
fn probe_that_admission_refuses_is_given_back() {
    explore(|| {
        let load = LoadBounds { max_concurrent: Some(1), queue: 0, ..stampede().load };
        let (cache, runtime) = cache(Strategy { load, breaker: Some(breaker(2)), ..stampede() });
        let source = Arc::<Source>::default();
        source.is_failing.store(true, Ordering::SeqCst);
        assert!([0, 1].into_iter().all(|key| get(&cache, &source, key).is_err()));
        runtime.pass(OPEN_FOR);
        source.is_failing.store(false, Ordering::SeqCst);
        let callers = [2, 3, 4].map(|key| spawn_get(&cache, &source, key));
        for caller in callers {
            let answer = caller.join().unwrap();
            let is_expected =
                matches!(answer, Ok(_) | Err(Error::BreakerOpen | Error::Overloaded { queue: 0 }));
            assert!(is_expected, "{answer:?}");
        }
        block_on(cache.wait_idle());
        for key in [5, 6, 7] {
            assert!(get(&cache, &source, key).is_ok(), "at most one probe is missing, and then it is closed");
        }
    });
}

/// As a proxy reloads its configuration: requests use the view that is current when they begin.
#[test]
fn view_replaced_while_loads_run_keeps_one_load_a_key_and_all_entries() {
    explore(|| {
        let (cache, _) = cache(stampede());
        let current = Arc::new(Lock::new(cache.view(&stampede(), None).expect("a valid strategy")));
        let source = Arc::<Source>::default();
        let ask = || {
            let (current, source) = (Arc::clone(&current), Arc::clone(&source));
            thread::spawn(move || {
                let view = current.lock().clone();
                get(&view, &source, 0)
            })
        };
        let reloading = {
            let (cache, current) = (cache.clone(), Arc::clone(&current));
            thread::spawn(move || {
                for strategy in ["swr", "fallback"] {
                    let strategy = Strategy::preset(strategy).expect("a preset");
                    let view = cache.view(&strategy, None).expect("a valid strategy");
                    let replaced = std::mem::replace(&mut *current.lock(), view);
                    drop(replaced);
                }
            })
        };
        let callers = [ask(), ask(), ask()];
        assert!(callers.into_iter().all(|caller| matches!(caller.join().unwrap(), Ok(0))));
        reloading.join().unwrap();
        block_on(cache.wait_idle());
        assert_eq!(source.loads(), 1, "views share loads");
        assert_eq!(current.lock().get(&0), Some(0), "views share entries");
    });
}

/// A purge between a reload and the loads that began before it: what was read before the purge is not found after it.
#[test]
fn value_loaded_through_a_replaced_view_is_not_found_after_a_purge() {
    explore(|| {
        let (cache, _) = cache(stampede());
        let version = Arc::new(AtomicUsize::new(0));
        let load = |view: TestedCache| {
            let version = Arc::clone(&version);
            move || {
                let loaded = block_on(view.get_with(0, move || async move {
                    let read = version.load(Ordering::SeqCst);
                    yield_now().await;
                    Ok::<_, Error>(u32::try_from(read).expect("a small number"))
                }));
                loaded.expect("the source answers").value
            }
        };
        let loading = thread::spawn(load(cache.view(&stampede(), None).expect("a valid strategy")));
        let new = cache.view(&stampede(), None).expect("a valid strategy");
        version.store(1, Ordering::SeqCst);
        new.invalidate(&0, Invalidation::Hard);
        assert_eq!(load(new)(), 1, "the request began after the purge");
        loading.join().unwrap();
        block_on(cache.wait_idle());
        assert!(matches!(cache.get(&0), None | Some(1)));
    });
}

#[test]
fn callers_of_batches_share_loads_whatever_their_schedule() {
    explore(|| {
        let (cache, _) = cache(stampede());
        let (loaded, running) = (Arc::<Lock<Vec<u8>>>::default(), Arc::<AtomicUsize>::default());
        let all = Arc::clone(&loaded);
        let batching = Batching { window: Duration::ZERO, keys_max: 2, concurrent_max: 1 };
        let loader = cache.batch_loader(batching, move |keys: Vec<u8>| {
            let (all, running) = (Arc::clone(&all), Arc::clone(&running));
            async move {
                assert!(keys.len() <= 2 && running.fetch_add(1, Ordering::SeqCst) == 0, "{keys:?}");
                yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                all.lock().extend(&keys);
                let value = |key| if key == 9 { Err("no such row") } else { Ok(u32::from(key)) };
                Ok(keys.into_iter().map(|key| (key, value(key))).collect::<Vec<_>>())
            }
        });
        let callers = [[1, 2, 3], [3, 2, 9], [1, 4, 2]].map(|keys| {
            let (cache, loader) = (cache.clone(), loader.clone());
            (keys, thread::spawn(move || block_on(cache.get_many_with(keys, &loader))))
        });
        for (keys, caller) in callers {
            for (key, answer) in keys.into_iter().zip(caller.join().unwrap()) {
                assert_eq!(answer.ok().map(|answer| answer.value), (key != 9).then_some(u32::from(key)));
            }
        }
        let mut loaded = std::mem::take(&mut *loaded.lock());
        loaded.sort_unstable();
        assert_eq!(loaded, [1, 2, 3, 4, 9]);
    });
}

/// Threads change a value during an invalidation and a load of another key: the invalidation alone loses changes.
#[test]
fn no_change_of_a_value_is_lost() {
    explore(|| {
        let (cache, _) = cache(stampede());
        let spawn_add = |more: u32| {
            let cache = cache.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let add = |stored: u32| Update::Store(stored + more);
                    let sum = cache.update(&1, |stored| add(stored.map_or(0, |stored| stored.value)));
                    assert!(sum.is_some_and(|sum| !(sum / more).is_multiple_of(10)), "{sum:?} has no {more}");
                }
            })
        };
        let loader = spawn_get(&cache, &Arc::default(), 2);
        let threads = [spawn_add(1), spawn_add(10)];
        let was_stored = cache.invalidate(&1, Invalidation::Hard);
        threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
        drop(loader.join().expect("no thread panics"));
        let sum = cache.get(&1);
        assert!(sum == Some(22) || was_stored && sum.is_none_or(|sum| sum < 22), "{sum:?}");
    });
}
