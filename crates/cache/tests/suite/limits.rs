//! Limits, checked at their peak: counted bytes and values in memory.

use std::{
    ops::Range,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use proptest::prelude::*;
use stockade_cache::{
    Answer, BreakerState, Cache, Error, EvictionOrder, Insertion, Invalidation, Limit, LoadBounds, Policy,
    StoreRejection, Strategy, Writer, heap_bytes, policy::POLICIES,
};
use stockade_model::{
    outcome::Outcome,
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

fn limited(limit: Limit) -> Strategy {
    Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() }
}

fn by_bytes<V>(
    runtime: &Virtual,
    strategy: Strategy,
    weigh: impl Fn(&u32, &V) -> usize + Send + Sync + 'static,
) -> Cache<u32, V, Virtual>
where
    V: Clone + Send + Sync + 'static,
{
    Cache::builder(strategy).weigh(weigh).build_on(runtime.clone(), Seed(1)).unwrap()
}

/// A value that counts its live instances and their peak.
#[derive(Debug)]
struct Alive {
    bytes: usize,
    all: Arc<Census>,
}

#[derive(Debug, Default)]
struct Census {
    bytes: AtomicUsize,
    peak: AtomicUsize,
}

impl Alive {
    fn new(bytes: usize, all: &Arc<Census>) -> Arc<Self> {
        let alive = all.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        all.peak.fetch_max(alive, Ordering::SeqCst);
        Arc::new(Self { bytes, all: Arc::clone(all) })
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[test]
fn bytes_in_use_and_live_values_stay_within_the_limit() {
    const LIMIT: usize = 1 << 20;
    const THREADS: u32 = 4;
    for policy in &POLICIES {
        // One shard, and sixteen.
        for (largest, reclaim) in [(60_000, 0.0), (60_000, 0.3), (4_000, 0.0), (4_000, 0.3)] {
            let runtime = Virtual::new();
            let max_object = Some(largest + 96);
            let limit = Limit { policy, reclaim, max_object, ..Limit::bytes(LIMIT) };
            let cache = by_bytes(&runtime, limited(limit), |_: &u32, value: &Arc<Alive>| value.bytes);
            let all = Arc::<Census>::default();
            let start = Barrier::new(THREADS as usize);
            std::thread::scope(|threads| {
                for thread in 0..THREADS {
                    let (cache, all, start) = (&cache, &all, &start);
                    threads.spawn(move || {
                        start.wait();
                        for step in 0..2_000_u32 {
                            let bytes = 1 + (step * 7_919 + thread) as usize % largest;
                            cache.insert(step * 31 % 997, Alive::new(bytes, all));
                            assert!(cache.byte_usage().unwrap().used <= LIMIT);
                            _ = cache.get(&(step % 997));
                        }
                    });
                }
            });
            let held = cache.byte_usage().unwrap();
            assert!(held.peak <= LIMIT, "{}: {} were held", policy.name, held.peak);
            assert!(held.peak > LIMIT * 9 / 10, "{}: only {} were ever held", policy.name, held.peak);
            // Each thread has at most one value that is not stored yet.
            let peak = all.peak.load(Ordering::SeqCst);
            assert!(peak <= LIMIT + THREADS as usize * largest, "{}: {peak} were alive", policy.name);
            assert!(all.bytes.load(Ordering::SeqCst) <= held.used);
            drop(cache);
            assert_eq!(all.bytes.load(Ordering::SeqCst), 0, "nothing is lost");
        }
    }
}

#[test]
fn entry_count_stays_at_its_limit() {
    for policy in &POLICIES {
        for (entries, order) in [
            (1, EvictionOrder::PerShard),
            (1_000, EvictionOrder::PerShard),
            (5_000, EvictionOrder::PerShard),
            (5_000, EvictionOrder::Global),
        ] {
            let runtime = Virtual::new();
            let limit = Limit { policy, order, ..Limit::entries(entries) };
            let cache: Cache<u32, u32, Virtual> =
                Cache::builder(limited(limit)).build_on(runtime, Seed(1)).unwrap();
            for key in 0..20_000 {
                cache.insert(key, key);
                assert!(cache.len() <= entries);
                assert_eq!(cache.get(&key), Some(key), "the last stored entry is present");
            }
            assert_eq!((cache.len(), cache.stats().evicted_size), (entries, 20_000 - entries as u64));
        }
    }
}

#[test]
fn reached_limit_clears_its_share_and_counts_it() {
    let entries =
        Limit { reclaim: 0.3, policy: Policy::LRW, order: EvictionOrder::Global, ..Limit::entries(1_000) };
    let bytes = Limit { reclaim: 0.3, ..Limit::bytes(1 << 20) };
    let (runtime, count) = (Virtual::new(), 10_000);
    let by_entries: Cache<u32, u32, Virtual> =
        Cache::builder(limited(entries)).build_on(runtime.clone(), Seed(1)).unwrap();
    for key in 0..count {
        by_entries.insert(key, key);
    }
    // 9,000 beyond the limit, 300 at a time.
    assert_eq!(by_entries.stats().reclaims, 30);
    let by_bytes = by_bytes(&runtime, limited(bytes), |_: &u32, _: &u32| 1_024);
    for key in 0..count {
        by_bytes.insert(key, key);
    }
    let stats = by_bytes.stats();
    assert!((28..=34).contains(&stats.reclaims), "{}", stats.reclaims);
}

proptest! {
    /// The used bytes are the sum of the entries' weights after any operations.
    #[test]
    fn bytes_in_use_are_those_of_stored_entries(
        inserts in prop::collection::vec((0..40_u32, 0..3_000_usize), 1..200),
        reclaim in prop_oneof![Just(0.0), Just(0.5)],
        entries in prop::option::of(1..20_usize),
    ) {
        const LIMIT: usize = 16_384;
        let runtime = Virtual::new();
        let limit = Limit { entries, reclaim, max_object: Some(2_500), ..Limit::bytes(LIMIT) };
        let cache = by_bytes(&runtime, limited(limit), |_, value: &Vec<u8>| value.len());
        for (key, bytes) in inserts {
            cache.insert(key, vec![0; bytes]);
            let stored = cache.get(&key);
            prop_assert_eq!(stored.is_some(), bytes + cache.entry_overhead_bytes() <= 2_500, "{} bytes", bytes);
        }
        let owned: usize = (0..40).filter_map(|key| cache.get(&key)).map(|value| value.len()).sum();
        prop_assert_eq!(cache.byte_usage().unwrap().used, owned + cache.len() * cache.entry_overhead_bytes());
    }
}

#[test]
fn value_beyond_max_object_is_not_stored_and_removes_the_old_one() {
    let runtime = Virtual::new();
    let limit = Limit { max_object: Some(10_000), ..Limit::bytes(100_000) };
    let cache = by_bytes(&runtime, limited(limit), heap_bytes::<u32, Vec<u8>>);
    let size = cache.clone();
    runtime
        .run(async move {
            cache.insert(1, vec![0; 9_000]);
            cache.insert(1, vec![0; 10_000]);
            assert_eq!((cache.get(&1), cache.stats().stores_refused), (None, 1));
            let load = async || Ok::<_, Error>(vec![0; 10_000]);
            let Answer { value, outcome, .. } = cache.get_with(1, load).await.unwrap();
            assert_eq!((value.len(), outcome), (10_000, Outcome::Miss));
            assert_eq!((cache.len(), cache.stats().stores_refused), (0, 2));
        })
        .unwrap();
    assert_eq!(size.byte_usage().unwrap().used, 0, "a refused value takes no room");
}

/// Ten entries fill the limit.
#[test]
fn bytes_set_aside_are_taken_from_entries_and_given_back() {
    for reclaim in [0.0, 0.3] {
        let limit = Limit { reclaim, max_object: Some(10_000), ..Limit::bytes(100_000) };
        let cache = by_bytes(&Virtual::new(), limited(limit), heap_bytes::<u32, Vec<u8>>);
        let value = || vec![0; 10_000 - cache.entry_overhead_bytes()];
        let fill = |from: u32| (from..from + 30).for_each(|key| _ = cache.insert(key, value()));
        let usage = || cache.byte_usage().unwrap();
        cache.set_aside(25_000);
        fill(0);
        assert_eq!((usage().set_aside, usage().used <= 100_000), (25_000, true));
        assert!((4..=7).contains(&cache.len()), "{} entries with 25,000 bytes set aside", cache.len());
        cache.set_aside(0);
        fill(100);
        assert!((7..=10).contains(&cache.len()), "{} entries", cache.len());
        // Half of the limit at most: entries keep the other half.
        cache.set_aside(usize::MAX);
        assert_eq!(usage().set_aside, 50_000);
        assert!((1..=5).contains(&cache.len()), "{} entries with half of the limit set aside", cache.len());
        fill(200);
        assert!(cache.len() >= 3, "stores still find room: {} entries", cache.len());
        assert_eq!(usage().peak, 100_000);
    }
    let strategy = Strategy::preset("stampede").unwrap();
    let unlimited = Cache::<u32, u32, _>::builder(strategy).build_on(Virtual::new(), Seed(1)).unwrap();
    unlimited.set_aside(1);
    assert_eq!(unlimited.byte_usage(), None);
}

#[test]
fn load_reserves_the_size_of_the_last_values() {
    let runtime = Virtual::new();
    let limit = Limit { max_object: Some(10_000), ..Limit::bytes(100_000) };
    let strategy = Strategy { ttl: Some(10 * MS), ..limited(limit) };
    let cache = by_bytes(&runtime, strategy, heap_bytes::<u32, Vec<u8>>);
    let clock = runtime.clone();
    runtime
        .run(async move {
            let during = |cache: &Cache<u32, Vec<u8>, Virtual>| {
                let (cache, clock) = (cache.clone(), clock.clone());
                async move {
                    let held = cache.byte_usage().unwrap().used;
                    clock.sleep_until(clock.now() + MS).await;
                    assert_eq!(cache.byte_usage().unwrap().used, held);
                    Ok::<_, Error>(vec![0; 3_000])
                }
            };
            let held = |cache: &Cache<u32, Vec<u8>, Virtual>| cache.byte_usage().unwrap().used;
            let (looks, load) = (cache.clone(), during(&cache));
            cache
                .get_with(1, move || {
                    assert_eq!(looks.byte_usage().unwrap().used, looks.entry_overhead_bytes());
                    load
                })
                .await
                .unwrap();
            let entry = 3_000 + cache.entry_overhead_bytes();
            assert_eq!(held(&cache), entry);
            // Another key, whose size is not known.
            let (looks, load) = (cache.clone(), during(&cache));
            let other = cache.get_with(2, move || {
                assert_eq!(looks.byte_usage().unwrap().used, 2 * entry);
                load
            });
            other.await.unwrap();
            cache.invalidate(&2, Invalidation::Hard);
            clock.sleep_until(clock.now() + 20 * MS).await;
            // Expired but still stored: the next load reserves as many bytes again.
            let (looks, load) = (cache.clone(), during(&cache));
            cache
                .get_with(1, move || {
                    assert_eq!(looks.byte_usage().unwrap().used, 2 * entry);
                    load
                })
                .await
                .unwrap();
            assert_eq!(held(&cache), entry);
        })
        .unwrap();
}

/// The time of a response, and its error.
type Response = (Time, Option<Error>);

/// The responses to concurrent callers with one key each, if each load
/// takes 10 ms.
fn request_at_once(strategy: Strategy, callers: u32) -> (Vec<Response>, Cache<u32, Vec<u8>, Virtual>) {
    let runtime = Virtual::new();
    let cache = by_bytes(&runtime, strategy, heap_bytes::<u32, Vec<u8>>);
    let answers = runtime.run(load_at_once(&runtime, &cache, 0..callers, 100)).unwrap();
    (answers, cache)
}

/// Loads of 10 ms, of values with as many bytes.
async fn load_at_once(
    runtime: &Virtual,
    cache: &Cache<u32, Vec<u8>, Virtual>,
    keys: Range<u32>,
    bytes: usize,
) -> Vec<Response> {
    let answers = keys.map(|key| {
        let clock = runtime.clone();
        async move {
            let load_clock = clock.clone();
            let load = async move || {
                load_clock.sleep_until(load_clock.now() + 10 * MS).await;
                Ok::<_, Error>(vec![0; bytes])
            };
            let answer = cache.get_with(key, load).await;
            (clock.now(), answer.err())
        }
    });
    join_all(answers).await
}

#[test]
fn loads_and_queue_are_bounded() {
    let load = LoadBounds { max_concurrent: Some(3), queue: 5, ..LoadBounds::DEFAULT };
    for preset in ["none", "stampede"] {
        let strategy = Strategy { load, ..Strategy::preset(preset).unwrap() };
        let (answers, cache) = request_at_once(strategy, 10);
        let at: Vec<u128> = answers.iter().map(|(at, _)| at.elapsed().as_millis()).collect();
        assert_eq!(at, [10, 10, 10, 20, 20, 20, 30, 30, 0, 0], "in order, and the last two at once");
        let rejected: Vec<String> =
            answers.into_iter().filter_map(|(_, error)| Some(error?.to_string())).collect();
        assert_eq!(rejected, ["the load was rejected: 5 loads are queued already"; 2]);
        assert_eq!((cache.stats().loads, cache.stats().loads_rejected), (8, 2));
    }
}

#[test]
fn wait_in_the_queue_has_a_bound_and_is_no_part_of_the_deadline() {
    let load = LoadBounds { max_concurrent: Some(1), deadline: 25 * MS, ..LoadBounds::DEFAULT };
    let (answers, cache) = request_at_once(Strategy { load, ..Strategy::preset("stampede").unwrap() }, 5);
    let at: Vec<u128> = answers.iter().map(|(at, _)| at.elapsed().as_millis()).collect();
    // The third one starts at 20 ms, and has its own 25 ms from there.
    assert_eq!(at, [10, 20, 30, 25, 25]);
    assert!(answers[..3].iter().all(|(_, error)| error.is_none()));
    assert!(answers[3..].iter().all(|(_, error)| matches!(error, Some(Error::QueueTimeout { .. }))));
    assert_eq!((cache.stats().loads, cache.stats().loads_rejected, cache.coalesced_loads()), (3, 2, 0));
}

/// Loads of 50 ms that never fail; ten may run at once; 250 misses a second for 30 s, more than these can answer.
#[test]
fn queueing_is_no_evidence_against_the_source() {
    let load = LoadBounds { max_concurrent: Some(10), deadline: 1_000 * MS, ..LoadBounds::DEFAULT };
    let strategy = Strategy { load, ..Strategy::BREAKER };
    let time = Virtual::new();
    let cache: Cache<u32, u32, Virtual> = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    let (answered, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    time.run(async {
        for number in 0..7_500 {
            time.sleep_until(Time::ZERO + number * 4 * MS).await;
            let (time, cache) = (time.clone(), cache.clone());
            let (answered, refused) = (Arc::clone(&answered), Arc::clone(&refused));
            time.clone().spawn(async move {
                let clock = time.clone();
                let load = async move || {
                    clock.sleep_until(clock.now() + 50 * MS).await;
                    Ok::<_, Error>(number)
                };
                match cache.get_with(number, load).await {
                    Ok(_) => answered.fetch_add(1, Ordering::SeqCst),
                    Err(Error::QueueTimeout { .. } | Error::Overloaded { .. }) => {
                        refused.fetch_add(1, Ordering::SeqCst)
                    }
                    Err(error) => panic!("{error:?}"),
                };
            });
        }
        cache.wait_idle().await;
    })
    .unwrap();
    assert_eq!(answered.load(Ordering::SeqCst) + refused.load(Ordering::SeqCst), 7_500);
    // Ten at once, each for 50 ms, are 200 a second.
    assert!(answered.load(Ordering::SeqCst) >= 5_900, "{answered:?} answered, {refused:?} refused");
    assert_eq!(cache.breaker_states()[0].1, BreakerState::Closed);
}

#[test]
fn loads_queue_for_bytes_and_reservations_stay_below_the_limit() {
    let runtime = Virtual::new();
    let limit = Limit { max_object: Some(10_000), ..Limit::bytes(80_000) };
    let cache = by_bytes(&runtime, limited(limit), heap_bytes::<u32, Vec<u8>>);
    runtime
        .run(async {
            // The others reserve as much.
            load_at_once(&runtime, &cache, 100..101, 9_000).await;
            let start = runtime.now();
            let answers = load_at_once(&runtime, &cache, 0..10, 9_000).await;
            let at: Vec<u128> = answers.iter().map(|(at, _)| (*at - start).as_millis()).collect();
            assert_eq!(
                at,
                [10, 10, 10, 10, 20, 20, 20, 20, 30, 30],
                "four may be promised half of the limit"
            );
            assert!(answers.iter().all(|(_, error)| error.is_none()));
            assert!(cache.byte_usage().unwrap().peak <= 80_000);
            assert_eq!(
                cache.byte_usage().unwrap().used,
                cache.len() * (9_000 + cache.entry_overhead_bytes())
            );
        })
        .unwrap();
}

#[test]
fn lost_load_releases_its_bytes_and_permit() {
    let runtime = Virtual::new();
    let load = LoadBounds { max_concurrent: Some(1), ..LoadBounds::DEFAULT };
    let limit = Limit { max_object: Some(10_000), ..Limit::bytes(10_000) };
    let cache = by_bytes(&runtime, Strategy { load, ..limited(limit) }, heap_bytes::<u32, Vec<u8>>);
    runtime
        .run(async move {
            let lost = cache.get_with(1, || async { panic!("lost") as Result<Vec<u8>, Error> }).await;
            assert!(matches!(lost, Err(Error::Panicked { .. })), "{lost:?}");
            let failed = cache.get_with(1, async || Err::<Vec<u8>, _>(Error::LeaderLost)).await;
            assert!(matches!(failed, Err(Error::Load(_))), "{failed:?}");
            assert_eq!(cache.byte_usage().unwrap().used, 0);
            assert!(cache.get_with(1, async || Ok::<_, Error>(vec![1])).await.is_ok());
        })
        .unwrap();
}

#[test]
fn contradictory_strategy_is_refused() {
    let refused = |strategy: Strategy| {
        let cache = Cache::<u32, u32>::builder(strategy).build_on(Virtual::new(), Seed(1));
        cache.unwrap_err().to_string()
    };
    assert_eq!(
        refused(limited(Limit::bytes(1 << 20))),
        "a limit in bytes needs the size of entries: set Builder::weigh"
    );
    let load = LoadBounds { max_concurrent: Some(0), ..LoadBounds::DEFAULT };
    assert_eq!(
        refused(Strategy { load, ..Strategy::preset("none").unwrap() }),
        "`max_concurrent` has to be above 0: no load could ever begin"
    );
    let lrw = Limit { policy: Policy::LRW, reclaim: 2.0, ..Limit::entries(1) };
    assert_eq!(refused(limited(lrw)), "`reclaim` is the share of the limit to be cleared: between 0 and 1");
}

/// Reservations for loads do not evict stored entries: as many hits as without a limit in bytes.
#[test]
fn loads_of_a_small_working_set_do_not_evict_it() {
    let runtime = Virtual::new();
    // Each load may need a sixteenth of the limit, and thirty-two run at once.
    let cache = by_bytes(&runtime, limited(Limit::bytes(1 << 20)), heap_bytes::<u32, Vec<u8>>);
    let clients = (0..32_u32).map(|client| {
        let (runtime, cache) = (runtime.clone(), cache.clone());
        async move {
            for step in 0..200_u32 {
                let clock = runtime.clone();
                let load = async move || {
                    clock.sleep_until(clock.now() + 10 * MS).await;
                    Ok::<_, Error>(vec![0; 100])
                };
                cache.get_with((step * 7 + client) % 100, load).await.unwrap();
            }
        }
    });
    runtime.run(join_all(clients)).unwrap();
    let stats = cache.stats();
    assert_eq!((stats.loads, stats.evicted_size, cache.len()), (100, 0, 100));
}

#[test]
fn value_in_the_mailbox_counts_under_the_limit() {
    let runtime = Virtual::new();
    let writer = Writer::mailbox(Some(MS), None, None);
    let limit = Limit { max_object: Some(20_000), ..Limit::bytes(100_000) };
    let cache = by_bytes(&runtime, Strategy { writer, ..limited(limit) }, |_, value: &Vec<u8>| value.len());
    let clock = runtime.clone();
    runtime
        .run(async move {
            let insertions: Vec<Insertion> = (0..10).map(|key| cache.insert(key, vec![0; 15_000])).collect();
            assert_eq!(insertions[..6], [Insertion::Stored; 6]);
            assert_eq!(insertions[6..], [Insertion::Rejected(StoreRejection::NoSpace); 4]);
            assert!(cache.byte_usage().unwrap().used > 90_000);
            assert_eq!(cache.insert(0, vec![0; 20_000]), Insertion::Rejected(StoreRejection::TooLarge));
            clock.sleep_until(clock.now() + 10 * MS).await;
            // The rejected insert also removes the older value of its key from the mailbox.
            let stats = cache.stats();
            assert_eq!((cache.len(), stats.stores_refused, stats.stores_outdated), (5, 5, 1));
        })
        .unwrap();
}

/// A value whose drop panics once.
#[derive(Clone, Debug)]
struct Grenade(Arc<AtomicUsize>, usize);

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(self.0.fetch_sub(1, Ordering::SeqCst) != 1, "a drop that panics");
    }
}

#[test]
fn panicking_drop_keeps_the_byte_count_correct() {
    let runtime = Virtual::new();
    let limit = Limit { policy: Policy::LRW, max_object: Some(10_000), ..Limit::bytes(20_000) };
    let cache = by_bytes(&runtime, limited(limit), |_, value: &Grenade| value.1);
    let harmless = || Grenade(Arc::new(AtomicUsize::new(100)), 9_000);
    // The value is replaced; then it is evicted.
    for others in [[1, 2], [3, 4]] {
        cache.insert(1, Grenade(Arc::new(AtomicUsize::new(1)), 5_000));
        let panics = others.map(|key| {
            let insert = || cache.insert(key, harmless());
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert)).is_err()
        });
        assert_eq!(panics.iter().filter(|&&panics| panics).count(), 1);
    }
    for _ in 0..10 {
        cache.insert(3, harmless());
        cache.insert(4, harmless());
    }
    assert_eq!(cache.byte_usage().unwrap().used, 2 * (9_000 + cache.entry_overhead_bytes()));
}

#[test]
fn limit_without_room_for_an_entry_is_refused() {
    let runtime = Virtual::new();
    let limit = Limit::bytes(700);
    let cache = Cache::<u32, u32>::builder(limited(limit)).weigh(|_, _| 0).build_on(runtime, Seed(1));
    assert_eq!(
        cache.unwrap_err().to_string(),
        "nothing could be stored: an entry alone costs more than `max_object`"
    );
}

/// A cache that is switched off: callers share loads, and nothing is stored.
#[test]
fn limit_of_nothing_stores_nothing_and_coalesces() {
    let time = Virtual::new();
    for limit in [Limit::entries(0), Limit::bytes(0), Limit { entries: Some(0), ..Limit::bytes(1 << 20) }] {
        let strategy = Strategy { limit: Some(limit.clone()), ..Strategy::preset("stampede").unwrap() };
        let builder = Cache::builder(strategy).weigh(heap_bytes);
        let cache: Cache<u64, Vec<u8>, Virtual> = builder.build_on(time.clone(), Seed(1)).unwrap();
        assert_eq!(cache.insert(1, vec![1]), Insertion::Rejected(StoreRejection::NoCapacity), "{limit:?}");
        let run = time.run(async {
            let load = || {
                let clock = time.clone();
                cache.get_with(1, async move || {
                    clock.sleep_until(clock.now() + Duration::from_millis(5)).await;
                    Ok::<_, Error>(vec![7])
                })
            };
            join_all((0..10).map(|_| load())).await
        });
        for answer in run.unwrap() {
            assert_eq!(answer.unwrap().value, [7], "{limit:?}");
        }
        assert_eq!((cache.get(&1), cache.stats().loads, cache.stats().entries), (None, 1, 0), "{limit:?}");
    }
    let strategy = Strategy { limit: Some(Limit::entries(10)), ..Strategy::preset("stampede").unwrap() };
    let cache: Cache<u64, u64, Virtual> = Cache::builder(strategy).build_on(time, Seed(1)).unwrap();
    cache.insert(1, 1);
    cache.resize(&Limit::entries(0)).unwrap();
    assert_eq!(cache.insert(1, 1), Insertion::Rejected(StoreRejection::NoCapacity));
    assert_eq!(cache.get(&1), None);
    cache.resize(&Limit::entries(10)).unwrap();
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn limit_is_resized_while_the_cache_is_in_use() {
    let runtime = Virtual::new();
    for policy in &POLICIES {
        let limit = |entries| Limit { policy, ..Limit::entries(entries) };
        let cache: Cache<u32, u32, Virtual> =
            Cache::builder(limited(limit(100_000))).build_on(runtime.clone(), Seed(1)).unwrap();
        let fill = || {
            for key in 0..200_000 {
                cache.insert(key, key);
            }
        };
        fill();
        for entries in [5_000, 80_000, 640, 100_000] {
            cache.resize(&limit(entries)).unwrap();
            assert!(cache.len() <= entries, "{}: {} of {entries}", policy.name, cache.len());
            fill();
            assert_eq!(cache.len(), entries, "{}", policy.name);
        }
        for wrong in [Limit::entries(10), Limit::bytes(1_000), Limit { bytes: Some(1 << 20), ..limit(1_000) }]
        {
            assert!(cache.resize(&wrong).is_err(), "{wrong:?}");
        }
    }
    let all = Arc::<Census>::default();
    let limit = |bytes| Limit { max_object: Some(1_000), ..Limit::bytes(bytes) };
    let cache = by_bytes(&runtime, limited(limit(1 << 20)), |_, alive: &Arc<Alive>| alive.bytes);
    let fill = || {
        for key in 0..10_000 {
            cache.insert(key, Alive::new(500, &all));
        }
    };
    fill();
    for bytes in [1 << 18, 1 << 19, 20_000, 1 << 20] {
        cache.resize(&limit(bytes)).unwrap();
        let usage = cache.byte_usage().unwrap().used;
        assert!(usage <= bytes && all.bytes.load(Ordering::SeqCst) <= usage, "{usage} of {bytes}");
        fill();
        let usage = cache.byte_usage().unwrap().used;
        assert!(usage <= bytes && usage > bytes - 1_000, "{usage} of {bytes}");
    }
    let unlimited: Cache<u32, u32, Virtual> =
        Cache::builder(Strategy::preset("stampede").unwrap()).build_on(runtime, Seed(1)).unwrap();
    assert!(unlimited.resize(&Limit::entries(1_000)).is_err());
}
