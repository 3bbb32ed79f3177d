//! The waits in queues of the cache, in virtual time: the breaker does not count them as failures of the source, and a load reserves the
//! bytes that its value needs.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use stockade_cache::{
    Batching, Breaker, BreakerState, Cache, Error, Limit, LoadBounds, Strategy, Weigh, heap_bytes,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const LOAD: Duration = Duration::from_millis(50);

fn breaker() -> Strategy {
    Strategy { breaker: Some(Breaker::DEFAULT), throttle: SEC, ..Strategy::preset("breaker").unwrap() }
}

/// The results of misses at a constant rate, by their kind.
async fn misses<F>(
    time: &Virtual,
    keys: std::ops::Range<u64>,
    rate_hz: u32,
    get: impl Fn(u64) -> F,
) -> BTreeMap<String, u64>
where
    F: Future<Output = Result<(), Error>>,
{
    let (start, mut results) = (time.now(), BTreeMap::new());
    let mut requests: FuturesUnordered<_> = (0..)
        .zip(keys)
        .map(|(nth, key)| {
            let get = &get;
            async move {
                time.sleep_until(start + SEC * nth / rate_hz).await;
                get(key).await
            }
        })
        .collect();
    while let Some(result) = requests.next().await {
        let kind = match result {
            Ok(()) => "answered".to_owned(),
            Err(error) => format!("{error:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
        };
        *results.entry(kind).or_default() += 1;
    }
    results
}

/// A load that takes its time and never fails.
async fn slow<T>(time: Virtual, value: T) -> Result<T, io::Error> {
    time.sleep_until(time.now() + LOAD).await;
    Ok(value)
}

type Pairs<V> = Vec<(u64, Result<V, io::Error>)>;

async fn slow_batch<V>(
    time: Virtual,
    keys: Vec<u64>,
    value: impl Fn(u64) -> V,
) -> Result<Pairs<V>, io::Error> {
    slow(time, keys.into_iter().map(|key| (key, Ok(value(key)))).collect()).await
}

/// 200 of 250 misses a second can be loaded, and the others wait for a second. The breaker stays closed.
async fn overload<F>(
    time: &Virtual,
    cache: &Cache<u64, u64, Virtual>,
    answered_min: u64,
    get: impl Fn(u64) -> F,
) where
    F: Future<Output = Result<(), Error>>,
{
    let overload = misses(time, 0..2_500, 250, &get).await;
    assert_eq!(overload.keys().collect::<Vec<_>>(), ["QueueTimeout", "answered"]);
    assert!(overload["answered"] > answered_min, "{overload:?}");
    assert_eq!(cache.breaker_states()[0].1, BreakerState::Closed);
    let afterwards = misses(time, 10_000..10_250, 50, get).await;
    assert_eq!(afterwards, BTreeMap::from([("answered".to_owned(), 250)]));
}

#[test]
fn overload_of_our_own_making_leaves_the_breaker_closed() {
    let load = LoadBounds { max_concurrent: Some(10), deadline: SEC, ..LoadBounds::DEFAULT };
    let time = Virtual::new();
    let cache: Cache<u64, u64, _> =
        Cache::builder(Strategy { load, ..breaker() }).build_on(time.clone(), Seed(1)).unwrap();
    let get = async |key| {
        let clock = time.clone();
        cache.get_with(key, move || slow(clock, key)).await.map(drop)
    };
    time.run(overload(&time, &cache, 2_000, get)).expect("no request hangs");
}

/// A batch takes 50 ms, one runs at a time, with ten keys.
#[test]
fn keys_that_wait_for_a_batch_are_no_evidence_either() {
    let time = Virtual::new();
    let load = LoadBounds { deadline: SEC, ..LoadBounds::DEFAULT };
    let cache: Cache<u64, u64, _> =
        Cache::builder(Strategy { load, ..breaker() }).build_on(time.clone(), Seed(1)).unwrap();
    let batching = Batching { window: MS, keys_max: 10, concurrent_max: 1 };
    let clock = time.clone();
    let loader = cache.batch_loader(batching, move |keys| slow_batch(clock.clone(), keys, |key| key));
    let get = async |key| cache.get_many_with([key], &loader).await.remove(0).map(drop);
    time.run(overload(&time, &cache, 1_900, get)).expect("no request hangs");
}

fn limited(bytes: usize, time: &Virtual) -> Cache<u64, Vec<u8>, Virtual> {
    let strategy = Strategy { limit: Some(Limit::bytes(bytes)), ..breaker() };
    Cache::builder(strategy).weigh(heap_bytes::<u64, Vec<u8>>).build_on(time.clone(), Seed(1)).unwrap()
}

/// Each used to reserve `max_object`, so that eight ran at a time.
#[test]
fn small_values_load_at_once_under_a_limit_in_bytes() {
    let time = Virtual::new();
    let cache = limited(16 << 20, &time);
    let get = async |key| {
        let clock = time.clone();
        cache.get_with(key, move || slow(clock, vec![0; 200])).await.map(drop)
    };
    time.run(async {
        for round in 0..3 {
            let start = time.now();
            let results = misses(&time, round * 3_000..(round + 1) * 3_000, u32::MAX, get).await;
            assert_eq!((results.values().sum::<u64>(), results["answered"]), (3_000, 3_000));
            assert!(time.now() - start <= LOAD + MS, "{:?}", time.now() - start);
        }
        assert!(cache.byte_usage().unwrap().peak <= 16 << 20);
    })
    .expect("no request hangs");
}

/// A full cache keeps its entries while small values are loaded, but for those that they replace.
#[test]
fn loads_evict_what_their_values_need() {
    let time = Virtual::new();
    let cache = limited(64 << 20, &time);
    for key in 0..100_000 {
        cache.insert(key, vec![0; 1_000]);
    }
    let full = cache.len();
    time.run(async {
        for round in 0..2 {
            let loads: FuturesUnordered<_> = (0..64)
                .map(|key| {
                    let clock = time.clone();
                    cache.get_with(1_000_000 + round * 64 + key, move || slow(clock, vec![0; 1_000]))
                })
                .collect();
            let answers: Vec<_> = loads.collect().await;
            assert!(answers.iter().all(Result::is_ok));
            assert!(cache.len() + 64 >= full, "{} of {full}", cache.len());
        }
    })
    .expect("no request hangs");
    assert!(cache.byte_usage().unwrap().peak <= 64 << 20);
}

/// Of a loader of many keys all that are missing share a few calls.
#[test]
fn batches_under_a_limit_are_full() {
    let time = Virtual::new();
    let cache = limited(16 << 20, &time);
    let calls = Arc::new(AtomicU64::new(0));
    let (counted, clock) = (Arc::clone(&calls), time.clone());
    let loader = cache.batch_loader(Batching::DEFAULT, move |keys: Vec<u64>| {
        counted.fetch_add(1, SeqCst);
        slow_batch(clock.clone(), keys, |_| vec![0; 200])
    });
    let answers = time.run(cache.get_many_with(0..2_500, &loader)).expect("no request hangs");
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(calls.load(SeqCst), 3, "a thousand keys each");
    assert!(answers[0].as_ref().is_ok_and(|answer| answer.value.heap_bytes() == 200));
    assert_eq!(time.now(), Time::ZERO + LOAD + Batching::DEFAULT.window);
}
