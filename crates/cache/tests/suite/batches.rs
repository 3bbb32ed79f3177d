//! Loads of many keys at once, in virtual time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use stockade_cache::{Batching, Breaker, Cache, Error, LoadBounds, Outcome, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

type TestedCache = Cache<u32, u32, Virtual>;

const WINDOW: Duration = Duration::from_millis(2);
const LOAD: Duration = Duration::from_millis(5);

/// When a batch was asked for, and its keys.
type Asked = (Time, Vec<u32>);

/// The batches that a source was asked for.
#[derive(Clone, Default)]
struct Source {
    batches: Arc<Mutex<Vec<Asked>>>,
}

impl Source {
    fn batches(&self) -> Vec<Asked> {
        self.batches.lock().unwrap().clone()
    }

    /// How often each key was loaded.
    fn loads(&self) -> HashMap<u32, usize> {
        let mut loads = HashMap::new();
        self.batches()
            .into_iter()
            .flat_map(|(_, keys)| keys)
            .for_each(|key| *loads.entry(key).or_default() += 1);
        loads
    }
}

fn stampede() -> Strategy {
    let load = LoadBounds { max_concurrent: None, ..LoadBounds::DEFAULT };
    Strategy { load, ..Strategy::preset("stampede").unwrap() }
}

fn run<T>(strategy: Strategy, test: impl AsyncFnOnce(Virtual, TestedCache, Source) -> T) -> T {
    let time = Virtual::new();
    let cache = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    time.run(test(time.clone(), cache, Source::default())).unwrap()
}

/// Loads twice the key after [`LOAD`]; keys fail for which `fails` is true.
fn loader(
    time: &Virtual,
    cache: &TestedCache,
    source: &Source,
    batching: Batching,
    fails: fn(u32) -> bool,
) -> stockade_cache::BatchLoader<u32, u32, Virtual> {
    let (time, source) = (time.clone(), source.clone());
    cache.batch_loader(batching, move |keys| {
        source.batches.lock().unwrap().push((time.now(), keys.clone()));
        let time = time.clone();
        async move {
            time.sleep_until(time.now() + LOAD).await;
            let value = |key| if fails(key) { Err("no such row") } else { Ok(2 * key) };
            Ok::<_, &str>(keys.into_iter().map(|key| (key, value(key))).collect::<Vec<_>>())
        }
    })
}

const BATCHING: Batching = Batching { window: WINDOW, keys_max: usize::MAX, concurrent_max: 16 };

/// 10,000 callers come within 20 ms and ask for a hundred of a thousand keys each.
#[test]
fn ten_thousand_callers_load_each_key_once() {
    run(stampede(), async |time, cache, source| {
        let loader = loader(&time, &cache, &source, BATCHING, |key| key % 97 == 0);
        let mut random = SmallRng::seed_from_u64(7);
        let callers = (0..10_000).map(|_| {
            let at = Time::ZERO + Duration::from_micros(random.random_range(0..20_000));
            let keys: Vec<u32> = (0..100).map(|_| random.random_range(0..1_000)).collect();
            let (time, cache, loader) = (time.clone(), cache.clone(), loader.clone());
            async move {
                time.sleep_until(at).await;
                let answers = cache.get_many_with(keys.iter().copied(), &loader).await;
                assert_eq!(answers.len(), keys.len());
                for (key, answer) in keys.into_iter().zip(answers) {
                    match answer {
                        Ok(answer) => assert_eq!((key % 97 == 0, answer.value), (false, 2 * key)),
                        Err(error) => {
                            assert!(key % 97 == 0, "{key}: {error}");
                            assert_eq!(error.to_string(), "no such row");
                        }
                    }
                }
            }
        });
        join_all(callers).await;
        let loads = source.loads();
        assert_eq!(loads.len(), 1_000, "every key was asked for");
        assert!(loads.iter().all(|(key, loads)| *loads == 1 || key % 97 == 0), "a value is loaded once");
        let batches = source.batches();
        let is_apart = batches.windows(2).all(|pair| pair[1].0 - pair[0].0 >= WINDOW);
        assert!(is_apart && batches.len() <= 10, "more than one batch in a window: {batches:?}");
    });
}

#[test]
fn hits_need_no_batch_and_duplicates_share_an_answer() {
    run(stampede(), async |time, cache, source| {
        let loader = loader(&time, &cache, &source, BATCHING, |_| false);
        cache.insert(1, 100);
        let answers = cache.get_many_with([1, 2, 2, 3], &loader).await;
        let answers: Vec<_> =
            answers.into_iter().map(|answer| answer.map(|a| (a.value, a.outcome)).unwrap()).collect();
        assert_eq!(
            answers,
            [(100, Outcome::Hit), (4, Outcome::Miss), (4, Outcome::Coalesced), (6, Outcome::Miss)]
        );
        assert_eq!(source.batches(), [(Time::ZERO + WINDOW, vec![2, 3])]);
        let stats = cache.stats();
        assert_eq!((stats.loads, stats.waiters), (2, 1));
        assert!(cache.get_many_with([], &loader).await.is_empty());
        let single = cache.get_many_with([9], &loader).await.remove(0).unwrap();
        assert_eq!((single.value, source.batches().len()), (18, 2));
    });
}

#[test]
fn full_batches_do_not_wait_and_running_ones_are_bounded() {
    run(stampede(), async |time, cache, source| {
        let batching = Batching { window: WINDOW, keys_max: 10, concurrent_max: 2 };
        let loader = loader(&time, &cache, &source, batching, |_| false);
        let answers = cache.get_many_with(0..45, &loader).await;
        assert!(answers.iter().all(Result::is_ok));
        let starts: Vec<_> = source.batches().iter().map(|(at, keys)| (at.elapsed(), keys.len())).collect();
        assert_eq!(
            starts,
            [(0, 10), (0, 10), (1, 10), (1, 10), (2, 5)].map(|(rounds, keys)| (rounds * LOAD, keys))
        );
        assert_eq!(source.batches()[0].1, (0..10).collect::<Vec<_>>(), "in the order of the request");
    });
}

#[test]
fn a_failed_or_lost_batch_fails_its_keys_and_the_next_one_runs() {
    run(stampede(), async |time, cache, source| {
        let rounds = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&rounds);
        let batches = Batching { window: WINDOW, keys_max: 2, concurrent_max: 1 };
        let loader = cache.batch_loader(batches, move |keys: Vec<u32>| {
            *counted.lock().unwrap() += 1;
            let round = *counted.lock().unwrap();
            async move {
                match round {
                    1 => Err("the database is down"),
                    2 => panic!("a bug in the loader"),
                    3 => std::future::pending().await,
                    _ => Ok(keys
                        .into_iter()
                        .filter(|key| *key != 7)
                        .map(|key| (key, Ok(key)))
                        .collect::<Vec<_>>()),
                }
            }
        });
        let answers = cache.get_many_with(0..8, &loader).await;
        let errors: Vec<_> = answers.iter().map(|answer| answer.as_ref().err()).collect();
        assert!(matches!(errors[..2], [Some(Error::Load(_)), Some(Error::Load(_))]), "{errors:?}");
        for error in &errors[2..4] {
            assert_eq!(error.unwrap().to_string(), "the load panicked: a bug in the loader");
        }
        assert!(
            matches!(errors[4..6], [Some(Error::Deadline { .. }), Some(Error::Deadline { .. })]),
            "{errors:?}"
        );
        // The last batch waited for the third.
        assert!(
            matches!(errors[6..], [Some(Error::QueueTimeout { .. }), Some(Error::QueueTimeout { .. })]),
            "{errors:?}"
        );
        let answers = cache.get_many_with([6, 7], &loader).await;
        assert!(matches!(answers[..], [Ok(_), Err(Error::NotInBatch)]), "{answers:?}");
        assert_eq!(*rounds.lock().unwrap(), 4, "cancelled loads are not loaded");
        drop((time, source));
    });
}

/// A refresh of many stale entries is one batch, and its callers do not wait for it.
#[test]
fn stale_entries_are_refreshed_together() {
    let strategy = Strategy { ttl: Some(Duration::from_secs(1)), swr: Duration::from_secs(10), ..stampede() };
    run(strategy, async |time, cache, source| {
        let loader = loader(&time, &cache, &source, BATCHING, |_| false);
        cache.get_many_with(0..100, &loader).await;
        time.sleep_until(time.now() + Duration::from_secs(2)).await;
        let before = time.now();
        let answers = cache.get_many_with(0..100, &loader).await;
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.outcome == Outcome::Stale))
        );
        assert_eq!(time.now(), before);
        cache.wait_idle().await;
        assert_eq!(source.batches().iter().map(|(_, keys)| keys.len()).collect::<Vec<_>>(), [100, 100]);
    });
}

/// Without coalescing each caller has a load of its own, and the batch has the key once all the same.
#[test]
fn a_batch_has_each_key_once() {
    let strategy = Strategy { load: stampede().load, ..Strategy::preset("none").unwrap() };
    run(strategy, async |time, cache, source| {
        let loader = loader(&time, &cache, &source, BATCHING, |_| false);
        let callers = (0..10).map(|_| cache.get_many_with([1, 2], &loader));
        let answers = join_all(callers).await.concat();
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.outcome == Outcome::Miss))
        );
        assert_eq!(source.batches(), [(Time::ZERO + WINDOW, vec![1, 2])]);
        assert_eq!(cache.stats().loads, 20);
    });
}

/// A batch that could not ask its source tells the breaker nothing.
#[test]
fn a_failure_without_the_source_does_not_open_the_breaker() {
    let breaker = Some(Breaker { min_calls: 10, ..Breaker::DEFAULT });
    run(Strategy { breaker, ..stampede() }, async |_, cache, _| {
        let down = cache.batch_loader(Batching::DEFAULT, async |_: Vec<u32>| {
            Err::<Vec<(u32, Result<u32, _>)>, _>(stockade_cache::WithoutSource("no sockets left".into()))
        });
        let answers = cache.get_many_with(0..100, &down).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Load(_)))));
        let (_, state) = cache.breaker_states().remove(0);
        assert_eq!(state, stockade_cache::BreakerState::Closed);
        let failing = cache.batch_loader(Batching::DEFAULT, async |_: Vec<u32>| Err::<Vec<_>, _>("down"));
        cache.get_many_with(0..100, &failing).await;
        assert_ne!(cache.breaker_states().remove(0).1, stockade_cache::BreakerState::Closed);
    });
}
