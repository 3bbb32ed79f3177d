//! The exact costs of each strategy for the source and the store, in virtual time.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use proptest::prelude::*;
use stockade_cache::{
    Breaker, Cache, Error, Fetch, Invalidation, LoadBounds, Outcome, PRESETS, Refresh, Stats, StoreMode,
    Strategy as Cached, Writer,
};
use stockade_model::{
    outcome::Outcomes,
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

/// N callers request the key `worker % keys` at the same moment; each load takes 5 ms.
fn burst(strategy: Cached, callers: usize, keys: usize) -> (Stats, Vec<Result<usize, Error>>, Duration) {
    let runtime = Virtual::new();
    let run = runtime.run(async {
        let cache: Cache<usize, usize, Virtual> =
            Cache::builder(strategy).build_on(runtime.clone(), Seed(1)).unwrap();
        let answers = join_all((0..callers).map(|caller| {
            let sleeper = runtime.clone();
            let key = caller % keys;
            cache.get_with(key, async move || {
                sleeper.sleep_until(sleeper.now() + 5 * MS).await;
                Ok::<_, std::io::Error>(key * 10)
            })
        }))
        .await;
        let answered_at = runtime.now().elapsed();
        cache.wait_idle().await;
        for key in 0..keys {
            assert_eq!(cache.get(&key), Some(key * 10), "stored for the next one");
        }
        let answers = answers.into_iter().map(|answer| answer.map(|answer| answer.value)).collect();
        (cache.stats(), answers, answered_at)
    });
    run.unwrap()
}

#[test]
fn published_table_is_exact() {
    for (callers, keys) in [(10, 1), (100, 3), (1_000, 3), (10_000, 30)] {
        let [n, d] = [callers as u64, keys as u64];
        for (preset, loads, sync, later, waiters) in [
            ("none", n, n, 0, 0),
            ("async", n, 0, n, 0),
            ("stampede", d, d, 0, n - d),
            ("stampede_async", n, 0, d, 0),
        ] {
            let (stats, answers, _) = burst(Cached::preset(preset).unwrap(), callers, keys);
            assert!(answers.iter().enumerate().all(|(i, a)| a.as_ref().is_ok_and(|v| *v == i % keys * 10)));
            assert_eq!(
                (stats.loads, stats.stores_sync, stats.stores_async, stats.waiters, stats.episodes),
                (loads, sync, later, waiters, d),
                "{preset}, {callers} callers, {keys} keys"
            );
        }
    }
}

fn mailbox(cost_ms: u32, call_timeout_ms: u32, capacity: usize) -> Writer {
    Writer::Mailbox { cost: cost_ms * MS, call_timeout: call_timeout_ms * MS, capacity }
}

#[test]
fn backed_up_mailbox_fails_sync_stores() {
    // 1,000 x 2 ms > 300 ms > 3 x 2 ms.
    let with_mailbox = |preset| Cached { writer: mailbox(2, 300, 2_000), ..Cached::preset(preset).unwrap() };

    let (stats, answers, answered_at) = burst(with_mailbox("none"), 1_000, 3);
    let failed = answers.iter().filter(|answer| matches!(answer, Err(Error::StoreTimeout { .. }))).count();
    assert_eq!(failed, 851, "the 150th of 2 ms each ends with the timeout of 300 ms, which was set first");
    assert_eq!(stats.stores_sync, 1_000, "enqueued, so executed, all the same");
    assert_eq!(answered_at, 305 * MS);

    for (preset, answered_after) in [("async", 5 * MS), ("stampede", 11 * MS), ("stampede_async", 5 * MS)] {
        let (_, answers, answered_at) = burst(with_mailbox(preset), 1_000, 3);
        assert!(answers.iter().all(Result::is_ok), "{preset}");
        assert_eq!(answered_at, answered_after, "{preset}");
    }
}

#[test]
fn full_mailbox_fails_sync_stores_and_drops_async_stores() {
    let full = |preset| Cached { writer: mailbox(2, 300, 5), ..Cached::preset(preset).unwrap() };
    let (stats, answers, _) = burst(full("none"), 100, 1);
    let refused = answers.iter().filter(|a| matches!(a, Err(Error::MailboxFull { capacity: 5 }))).count();
    assert_eq!(stats.stores_sync + refused as u64, 100);
    assert!(refused >= 94, "{refused}");

    let (stats, answers, _) = burst(full("async"), 100, 1);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(stats.stores_async + stats.stores_dropped, 100);
    assert!(stats.stores_dropped >= 94, "{}", stats.stores_dropped);
}

#[test]
fn dropped_store_frees_its_key_and_its_claim() {
    // Key 0 fills the mailbox's only place while the writer sleeps over key 1; key 2 is dropped.
    let runtime = Virtual::new();
    let strategy = Cached { writer: mailbox(10, 300, 1), ..Cached::preset("stampede_async").unwrap() };
    let run = runtime.run(async {
        let cache: Cache<u8, u8, Virtual> =
            Cache::builder(strategy).build_on(runtime.clone(), Seed(1)).unwrap();
        let load = async |key: u8| cache.get_with(key, async move || Ok::<_, std::io::Error>(key)).await;
        for key in [1, 0, 2] {
            assert_eq!(load(key).await.unwrap().value, key);
            runtime.sleep_until(runtime.now() + MS).await;
        }
        assert_eq!(cache.stats().stores_dropped, 1);
        cache.wait_idle().await;
        assert_eq!((cache.get(&0), cache.get(&1), cache.get(&2)), (Some(0), Some(1), None));
        load(2).await.unwrap();
        cache.wait_idle().await;
        assert_eq!(cache.get(&2), Some(2), "an unreleased claim would have skipped this store");
    });
    assert_eq!(run, Ok(()));
}

/// Loaded in 5 ms, 10 ms on the way to the store: it is expired on arrival, and may be stale for 10 ms more.
#[test]
fn value_that_expires_before_its_store_is_served_stale() {
    let runtime = Virtual::new();
    let strategy = Cached {
        ttl: Some(2 * MS),
        swr: 10 * MS,
        writer: mailbox(10, 300, 1),
        ..Cached::preset("stampede").unwrap()
    };
    let run = runtime.run(async {
        let cache: Cache<u8, u8, Virtual> =
            Cache::builder(strategy).build_on(runtime.clone(), Seed(1)).unwrap();
        let request = async |at: Duration| {
            runtime.sleep_until(Time::ZERO + at).await;
            let sleeper = runtime.clone();
            let load = async move || {
                sleeper.sleep_until(sleeper.now() + 5 * MS).await;
                Ok::<_, std::io::Error>(0)
            };
            cache.get_with(0, load).await.unwrap().outcome
        };
        futures_util::join!(request(Duration::ZERO), request(4 * MS), request(6 * MS), request(8 * MS))
    });
    let expected = (Outcome::Miss, Outcome::Coalesced, Outcome::Coalesced, Outcome::Stale);
    assert_eq!(run, Ok(expected));
}

#[test]
fn expired_key_starts_a_new_episode_of_one_load() {
    let runtime = Virtual::new();
    let strategy = Cached { ttl: Some(100 * MS), ..Cached::preset("stampede").unwrap() };
    let run = runtime.run(async {
        let cache: Cache<u8, Time, Virtual> =
            Cache::builder(strategy).build_on(runtime.clone(), Seed(1)).unwrap();
        let mut oldest = Duration::ZERO;
        for tick in 0..1_000_u32 {
            runtime.sleep_until(Time::ZERO + tick * MS).await;
            let sleeper = runtime.clone();
            let loads = join_all((0..10).map(|_| {
                let sleeper = sleeper.clone();
                cache.get_with(0, async move || {
                    sleeper.sleep_until(sleeper.now() + Duration::from_micros(500)).await;
                    Ok::<_, std::io::Error>(sleeper.now())
                })
            }));
            for answer in loads.await {
                oldest = oldest.max(runtime.now() - answer.unwrap().value);
            }
        }
        (cache.stats(), oldest)
    });
    let (stats, oldest) = run.unwrap();
    assert_eq!(stats.loads, stats.episodes);
    assert_eq!(stats.loads, 10, "every 101 ms: the lookup after 100.5 ms misses");
    assert!(oldest < 100 * MS, "{oldest:?}");
}

#[cfg(feature = "spec")]
#[test]
fn unknown_names_suggest_the_nearest() {
    let message = |name| Cached::preset(name).unwrap_err().to_string();
    assert_eq!(message("stampeed"), "unknown strategy `stampeed`: did you mean `stampede`?");
    assert_eq!(
        message("redis"),
        "unknown strategy `redis`: use one of: none, async, stampede, stampede_async, simple, early, xfetch, \
         swr, fallback, breaker, fallback_ask_first"
    );
    for preset in &PRESETS {
        preset.strategy.check().expect(preset.name);
    }
}

fn any_strategy() -> impl Strategy<Value = Cached> {
    let fetch = prop_oneof![
        Just(Fetch::Independent),
        (1..40_u32).prop_map(|ms| Fetch::coalesce(ms * MS)),
        (1..40_u32).prop_map(|ms| Fetch::coalesce_or_load(ms * MS)),
    ];
    let store = prop_oneof![Just(StoreMode::Sync), Just(StoreMode::Async), Just(StoreMode::LockedAsync)];
    let writer = prop_oneof![
        Just(Writer::Direct),
        (0..3_u32, 1..20_u32, 1..20_usize)
            .prop_map(|(cost, timeout, capacity)| mailbox(cost, timeout, capacity)),
    ];
    let refresh = prop_oneof![
        Just(Refresh::None),
        Just(Refresh::Early { at: 0.5 }),
        Just(Refresh::XFetch { beta: 1.0 }),
    ];
    let breaker = prop_oneof![
        Just(None),
        (1..4_u32, 1..3_u32, 0..20_u32).prop_map(|(min_calls, probes, ramp_ms)| Some(Breaker {
            errors_rate: 0.5,
            period: 20 * MS,
            min_calls,
            open_for: 5 * MS,
            probes,
            ramp: ramp_ms * MS,
            wait: Duration::ZERO,
        })),
    ];
    let stale = (0..20_u32, 0..30_u32, 0..15_u32, prop::option::of(1..20_u32));
    let times = (0..30_u32, 0..=2_u32, stale);
    let composed = (fetch, 5..30_u32, store, writer, prop::option::of((refresh, times)), breaker);
    composed.prop_map(|(fetch, deadline_ms, store, writer, expiring, breaker)| {
        let load = LoadBounds { deadline: deadline_ms * MS, ..LoadBounds::DEFAULT };
        let lasting = Cached { fetch, load, store, breaker, writer, ..Cached::preset("none").unwrap() };
        let Some((refresh, (ttl_ms, jitter, (swr_ms, sie_ms, throttle_ms, soft_ms)))) = expiring else {
            return lasting;
        };
        let soft_timeout = soft_ms.filter(|_| swr_ms + sie_ms > 0).map(|ms| ms * MS);
        Cached {
            load: LoadBounds { soft_timeout, ..lasting.load },
            refresh,
            ttl: Some(ttl_ms * MS),
            jitter: f64::from(jitter) / 4.0,
            swr: swr_ms * MS,
            sie: sie_ms * MS,
            throttle: throttle_ms * MS,
            ..lasting
        }
    })
}

/// The start of a request, its key, the duration of its load and the end of that load.
type Visit = (u32, u8, u32, u8);

/// The value of a load: its key, its start and its end.
type Value = (u8, Time, Time);

proptest! {
    /// For any strategy, requests and invalidations: each request is answered in bounded time, no response
    /// is older than its limit or invalidated, and no state is left behind.
    #[test]
    fn any_composition_responds_in_bounded_time(
        strategy in any_strategy(),
        visits in prop::collection::vec((0..90_u32, 0..3_u8, 0..35_u32, 0..12_u8), 1..80),
        invalidations in prop::collection::vec((0..90_u32, 0..4_u8), 0..6),
    ) {
        let runtime = Virtual::new();
        let deadline = strategy.load.deadline;
        let limit = strategy.max_served_age();
        let ttl = strategy.ttl;
        let wait = match strategy.fetch {
            Fetch::Coalesce { wait_timeout, .. } => wait_timeout,
            Fetch::Independent => Duration::ZERO,
        };
        let call = match strategy.writer {
            Writer::Mailbox { call_timeout, .. } => call_timeout,
            Writer::Direct => Duration::ZERO,
        };
        let requests = visits.len() as u64;
        let run = runtime.run(async {
            let cache: Arc<Cache<u8, Value, Virtual>> =
                Arc::new(Cache::builder(strategy).count_lookups().build_on(runtime.clone(), Seed(1)).unwrap());
            let invalidate = |&(at, key): &(u32, u8)| {
                let (cache, runtime) = (Arc::clone(&cache), runtime.clone());
                async move {
                    runtime.sleep_until(Time::ZERO + at * MS).await;
                    match key {
                        0..3 => cache.invalidate(&key, Invalidation::Hard),
                        _ => cache.invalidate_all(Invalidation::Hard) > 0,
                    }
                }
            };
            let visit = |(at, key, takes, end): Visit| {
                let (cache, runtime) = (Arc::clone(&cache), runtime.clone());
                async move {
                    runtime.sleep_until(Time::ZERO + at * MS).await;
                    let start = runtime.now();
                    let sleeper = runtime.clone();
                    let answer = cache.get_with(key, async move || {
                        let began = sleeper.now();
                        sleeper.sleep_until(began + takes * MS).await;
                        match end {
                            0 => panic!("on purpose"),
                            1 => Err("on purpose"),
                            2 => std::future::pending().await,
                            _ => Ok((key, began, sleeper.now())),
                        }
                    }).await;
                    (key, start, runtime.now(), answer)
                }
            };
            let invalidating = join_all(invalidations.iter().map(invalidate));
            let visiting = join_all(visits.into_iter().map(visit));
            let (_, answers) = futures_util::future::join(invalidating, visiting).await;
            cache.wait_idle().await;
            (answers, cache.stats(), cache.coalesced_loads())
        });
        let (answers, stats, in_flight) = run.expect("no request hangs");
        prop_assert_eq!((stats.lookups.map(|lookups| lookups.total), in_flight), (Some(requests), 0));
        let mut outcomes = Outcomes::default();
        for (key, start, answered, answer) in answers {
            // A waiter may be elected at the end of its wait, and then loads and stores.
            prop_assert!(answered - start <= wait + deadline + deadline + call, "{:?}", answered - start);
            outcomes.record(answer.as_ref().map_or(Outcome::Error, |answer| answer.outcome));
            let Ok(answer) = answer else { continue };
            let (of, began, loaded) = answer.value;
            prop_assert_eq!(of, key);
            let is_young = match answer.outcome {
                Outcome::Stale | Outcome::Fallback => limit.is_some_and(|limit| answered < loaded + limit),
                _ => loaded >= start || ttl.is_none_or(|ttl| start < loaded + ttl),
            };
            prop_assert!(is_young, "{:?} of {:?} at {:?}", answer.outcome, loaded, answered);
            prop_assert_eq!(answer.age, answered - loaded);
            for &(at, target) in &invalidations {
                let is_meant = target == key || target == 3;
                let at = Time::ZERO + at * MS;
                let is_outdated = is_meant && began < at && at < start;
                prop_assert!(!is_outdated, "{:?} of {:?}, invalidated at {:?}", answer.outcome, began, at);
            }
        }
        prop_assert_eq!(stats.outcomes(), outcomes);
    }
}

#[cfg(feature = "spec")]
#[test]
fn stats_are_serialised_under_the_names_of_their_fields() {
    let cache: Cache<u32, u32, _> = Cache::builder(Cached::STAMPEDE)
        .count_lookups()
        .build_on(Virtual::new(), Seed(1))
        .expect("a valid strategy");
    cache.insert(1, 2);
    assert_eq!(cache.get(&1), Some(2));
    let written = toml::Table::try_from(cache.stats()).expect("a table");
    let integer = |value: &toml::Value| value.as_integer();
    assert_eq!(integer(&written["lookups"]["hits"]), Some(1));
    assert_eq!(integer(&written["entries"]), Some(1));
    assert_eq!(written.try_into(), Ok(cache.stats()));
}
