//! Ghosts against caches that have their configuration.

use std::{convert::Infallible, time::Duration};

use proptest::prelude::*;
use stockade_model::time::{Runtime as _, Virtual};

use super::*;
use crate::{Cache, EvictionOrder, Lifespan, Refresh, Strategy};

const SECOND: Duration = Duration::from_secs(1);
/// Between two requests: few enough for a sample of all keys.
const GAP: Duration = Duration::from_millis(2);

/// A request of a trace: when, and for which key.
type Request = (Duration, u64);

/// Zipf-like: the popularity of a key falls with its number. Each request comes `gap` after the one before.
fn requests(number: usize, keys: u64, skew: f64, gap: Duration) -> Vec<Request> {
    let random = crate::random::Random::new(Seed(7));
    let mut at = Duration::ZERO;
    (0..number)
        .map(|_| {
            at += gap;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below `keys`")]
            let key = (random.uniform().powf(skew) * keys as f64) as u64;
            (at, key)
        })
        .collect()
}

fn strategy(limit: Limit) -> Strategy {
    Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() }
}

fn weight(key: u64) -> usize {
    usize::try_from(500 + key % 1_000 * 3).unwrap()
}

/// Runs the requests against a cache whose loads take `load`. Returns the cache's own hits and loads, and those of its ghosts.
fn run(
    trace: &[Request],
    strategy: Strategy,
    shadow: Option<Shadow>,
    lifespan: impl Fn(u64) -> Option<Lifespan> + Send + Sync + 'static,
    load: Duration,
) -> (u64, u64, Option<ShadowStats>) {
    let time = Virtual::new();
    let builder = Cache::builder(strategy).weigh(|key, _| weight(*key)).count_lookups();
    let builder = builder.lifespan(move |value: &u64| lifespan(*value));
    let builder = match shadow {
        Some(shadow) => builder.shadow(shadow),
        None => builder,
    };
    let cache: Cache<u64, u64, Virtual> = builder.build_on(time.clone(), Seed(3)).unwrap();
    time.run(async {
        for (at, key) in trace {
            time.sleep_until(Time::ZERO + *at).await;
            let (cache, key, own) = (cache.clone(), *key, time.clone());
            // Requests do not wait for each other.
            time.spawn(async move {
                let load = {
                    let time = own.clone();
                    async move || {
                        time.sleep_until(time.now() + load).await;
                        Ok::<_, Infallible>(key)
                    }
                };
                let _ = cache.get_with(key, load).await;
            });
        }
        cache.wait_idle().await;
    })
    .unwrap();
    let stats = cache.stats();
    let found = stats.lookups.unwrap().hits;
    (found, stats.loads, cache.shadow_stats())
}

fn ratio(part: u64, all: usize) -> f64 {
    part as f64 / all as f64
}

#[test]
fn a_ghost_over_all_keys_is_the_cache_with_its_configuration() {
    let trace = requests(20_000, 3_000, 3.0, GAP);
    let limit = Limit { order: EvictionOrder::Global, ..Limit::entries(400) };
    let (hits, loads, stats) =
        run(&trace, strategy(limit.clone()), Some(Shadow::around(&limit)), |_| None, Duration::ZERO);
    let ghosts = stats.unwrap().ghosts;
    assert_eq!((ghosts[0].total.hits, ghosts[0].total.loads), (hits, loads), "as configured");
    for (ghost, stats) in Shadow::around(&limit).ghosts.into_iter().zip(&ghosts[1..]) {
        let (hits, loads, _) = run(&trace, strategy(ghost.limit), None, |_| None, Duration::ZERO);
        assert_eq!((stats.total.hits, stats.total.loads), (hits, loads), "{}", ghost.name);
    }
}

#[test]
fn times_of_ghosts_are_those_of_the_cache() {
    // A load takes as long as 40 requests, and popular keys expire often.
    let trace = requests(40_000, 2_000, 4.0, GAP);
    let limit = Limit { order: EvictionOrder::Global, ..Limit::entries(300) };
    let early = Refresh::Early { at: 0.8 };
    for (swr, refresh) in
        [(Duration::ZERO, Refresh::None), (SECOND * 2 / 5, Refresh::None), (Duration::ZERO, early)]
    {
        let with_ttl = |ttl| Strategy { ttl: Some(ttl), swr, refresh, ..strategy(limit.clone()) };
        let half = Ghost { name: "half".to_owned(), ..Ghost::of_ttl(&limit, GhostTtl::Times(0.5)) };
        let long = Ghost::of_ttl(&limit, GhostTtl::Fixed(8 * SECOND));
        let shadow = Shadow { ghosts: vec![half, long], keys_max: 4_096 };
        let (hits, loads, stats) = run(&trace, with_ttl(4 * SECOND), Some(shadow), |_| None, 40 * GAP);
        let stats = stats.unwrap();
        let others = [2 * SECOND, 8 * SECOND].map(|ttl| run(&trace, with_ttl(ttl), None, |_| None, 40 * GAP));
        let expected =
            std::iter::once((hits, loads)).chain(others.into_iter().map(|(hits, loads, _)| (hits, loads)));
        for (ghost, (hits, loads)) in stats.ghosts.iter().zip(expected) {
            let (hits_off, loads_off) = (
                ratio(ghost.total.hits, trace.len()) - ratio(hits, trace.len()),
                ghost.total.loads as f64 / loads as f64 - 1.0,
            );
            assert!(hits_off.abs() < 0.005, "{} {swr:?} {refresh:?}: hits {hits_off}", ghost.name);
            assert!(loads_off.abs() < 0.01, "{} {swr:?} {refresh:?}: loads {loads_off}", ghost.name);
        }
        assert_eq!(stats.sampled_requests, trace.len() as u64);
    }
}

/// A sample of less than a tenth of the keys is enough to know to a point what a cache with a limit in bytes would gain or lose.
#[test]
fn a_sample_predicts_other_configurations() {
    let trace = requests(300_000, 300_000, 3.0, GAP);
    let limit = Limit { max_object: Some(64 << 10), ..Limit::bytes(24 << 20) };
    let shadow = Shadow { keys_max: 2_048, ..Shadow::around(&limit) };
    let (hits, _, stats) =
        run(&trace, strategy(limit.clone()), Some(shadow.clone()), |_| None, Duration::ZERO);
    let stats = stats.unwrap();
    assert!(stats.keys <= 2_048 && stats.sampled_share < 0.1, "{stats:?}");
    let measured = ratio(hits, trace.len());
    for (ghost, predicted) in shadow.ghosts.into_iter().zip(&stats.ghosts[1..]) {
        if ghost.ttl != GhostTtl::Same {
            continue;
        }
        let (hits, _, _) = run(&trace, strategy(ghost.limit), None, |_| None, Duration::ZERO);
        let off = measured + predicted.hit_ratio_change.unwrap() - ratio(hits, trace.len());
        assert!(off.abs() < 0.01, "{}: {off}", ghost.name);
    }
}

/// A client that never requests a key twice.
#[test]
fn a_flood_of_keys_does_not_grow_the_sample() {
    let limit = Limit::entries(1_000_000);
    let ghosts =
        SampledGhosts::new(Some(&Shadow { keys_max: 256, ..Shadow::around(&limit) }), Some(&limit), Seed(1));
    let life = LIFE.restarted(Time::ZERO, |_| None);
    let mut now = Time::ZERO;
    for number in 1..1_000_000_u64 {
        now = now + Duration::from_micros(100);
        let hash = hash(number);
        ghosts.request(hash, now, None);
        // Some loads fail, some never end.
        match number % 4 {
            0 => ghosts.not_stored(hash),
            1 => {}
            _ => ghosts.stored(hash, now, StoredFacts { life, weight: 1, is_marker: false }, Duration::ZERO),
        }
    }
    let flooded = ghosts.stats(now).unwrap();
    assert!(flooded.keys < 256 && flooded.sampled_share < 0.01, "{flooded:?}");
    // Afterwards it grows again when it is asked for, though no requested key is in the sample and the ghosts hold the flood.
    for number in 0..200_000_u64 {
        now = now + SECOND;
        let hash = hash(1_000_000 + number % 50);
        ghosts.request(hash, now, Some(StoredFacts { life, weight: 1, is_marker: false }));
        if number % 15 == 0 {
            ghosts.stats(now);
        }
    }
    let calm = ghosts.stats(now).unwrap();
    assert!(calm.sampled_share > 0.1 && calm.keys < 256, "{calm:?}");
}

const LIFE: Lifetime = Lifetime::GONE;

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

proptest! {
    /// Whatever happens, a ghost uses what its entries weigh, and no more than its limit.
    #[test]
    fn room_of_a_ghost_is_that_of_its_entries(
        steps in prop::collection::vec((0_u8..8, 1_u64..400, 1_u32..5_000, 0_u64..90), 1..400),
        reclaim in prop::sample::select(vec![0.0, 0.3]),
        policy in prop::sample::select(vec![Policy::SIEVE, Policy::AUTO]),
    ) {
        let limit = Limit { entries: Some(60), reclaim, policy, ..Limit::bytes(200_000) };
        let shadow = Shadow { keys_max: 256, ..Shadow::around(&limit) };
        let mut sample = Sample::new(Some(&shadow), &limit, Seed(1));
        let mut now = Time::ZERO;
        for (step, key, weight, seconds) in steps {
            let (hash, life) = (hash(key), Lifetime::GONE.restarted(now, |_| Some(30 * SECOND)));
            let stored = StoredFacts { life, weight, is_marker: key % 7 == 0 };
            match step {
                0 | 1 => _ = sample.request(hash, now, Some(stored)),
                2 => _ = sample.request(hash, now, None),
                3 => sample.stored(hash, now, stored, SECOND),
                4 => sample.not_stored(hash),
                5 => sample.invalidate(position(hash), Invalidation::Hard, now),
                6 => sample.invalidate(position(hash), Invalidation::Soft, now),
                // Backwards as well: threads read the clock before they take the lock.
                _ => now = (now + SECOND * u32::try_from(seconds).unwrap()).back(10 * SECOND),
            }
            sample.check();
        }
    }
}

#[test]
fn what_is_no_answer_is_no_hit() {
    let limit = Limit::entries(100);
    let time = Virtual::new();
    let strategy =
        Strategy { ttl: Some(60 * SECOND), negative_ttl: Some(60 * SECOND), ..strategy(limit.clone()) };
    let cache: Cache<u64, u64, Virtual> = Cache::builder(strategy)
        .shadow(Shadow::around(&limit))
        .not_found(|value| *value == 1)
        .marker(|value| *value == 2)
        .build_on(time.clone(), Seed(1))
        .unwrap();
    time.run(async {
        for (key, value) in [(10, 0), (11, 1), (12, 2)] {
            for _ in 0..5 {
                let _ = cache.get_with(key, async move || Ok::<_, Infallible>(value)).await;
            }
        }
        // A load that fails, and one whose value is stored after it.
        let _ = cache.get_with(13, async || Err::<u64, _>("down")).await;
        let _ = cache.get_with(13, async || Ok::<_, Infallible>(0)).await;
        let _ = cache.get_with(13, async || Ok::<_, Infallible>(0)).await;
    })
    .unwrap();
    for ghost in cache.shadow_stats().unwrap().ghosts {
        let GhostCounts { requests, hits, coalesced, loads, .. } = ghost.total;
        // Five loads of the marker, one of each other value, and one that failed.
        assert_eq!((requests, hits, coalesced, loads), (18, 4 + 1, 0, 2 + 5 + 2), "{}", ghost.name);
    }
    assert_eq!(cache.shadow_stats().unwrap().measured_hit_ratio, Some(5.0 / 18.0));
}

#[test]
fn a_ghost_forgets_the_load_of_an_invalidated_value() {
    let limit = Limit::entries(100);
    let sampled = SampledGhosts::new(Some(&Shadow::around(&limit)), Some(&limit), Seed(1));
    let at = |seconds: u32| Time::ZERO + seconds * SECOND;
    let rules = crate::freshness::LifetimeRules::of(
        Strategy { ttl: Some(60 * SECOND), swr: 60 * SECOND, ..strategy(limit.clone()) }.times(),
    );
    let stored = StoredFacts { life: rules.life(None, at(0), SECOND, || 0.0), weight: 0, is_marker: false };
    let counts = || sampled.stats(at(70)).unwrap().ghosts[0].total;
    sampled.request(hash(1), at(0), Some(stored));
    sampled.request(hash(1), at(62), Some(stored));
    assert_eq!((counts().stale, counts().loads), (1, 2), "it is refreshed");
    sampled.invalidate(&[position(hash(1))], Invalidation::Soft, at(63));
    sampled.request(hash(1), at(64), Some(stored));
    assert_eq!((counts().stale, counts().loads), (2, 3), "it is stale again");
    sampled.invalidate(&[position(hash(1))], Invalidation::Hard, at(64));
    sampled.request(hash(1), at(65), Some(stored));
    assert_eq!((counts().hits, counts().stale, counts().loads), (0, 2, 4), "it is gone");
}

/// An invalidation with [`Invalidation::Fallback`] leaves what a failed load may need: nothing without `sie`, and with it a value that is
/// not served stale.
#[test]
fn ghost_does_not_serve_stale_what_is_a_fallback_only() {
    let limit = Limit::entries(100);
    let at = |seconds: u32| Time::ZERO + seconds * SECOND;
    for sie in [Duration::ZERO, 60 * SECOND] {
        let sampled = SampledGhosts::new(Some(&Shadow::around(&limit)), Some(&limit), Seed(1));
        let rules = crate::freshness::LifetimeRules::of(
            Strategy { ttl: Some(60 * SECOND), swr: 60 * SECOND, sie, ..strategy(limit.clone()) }.times(),
        );
        let life = rules.life(None, at(0), SECOND, || 0.0);
        let stored = StoredFacts { life, weight: 0, is_marker: false };
        sampled.request(hash(1), at(0), Some(stored));
        sampled.request(hash(1), at(1), Some(stored));
        sampled.invalidate(&[position(hash(1))], Invalidation::Fallback, at(2));
        sampled.request(hash(1), at(3), Some(stored));
        let GhostCounts { hits, stale, loads, .. } = sampled.stats(at(4)).unwrap().ghosts[0].total;
        assert_eq!((hits, stale, loads), (1, 0, 2), "sie {sie:?}");
    }
}

#[test]
fn many_requests_make_the_sample_smaller() {
    let limit = Limit::entries(1_000);
    let ghosts = SampledGhosts::new(Some(&Shadow::around(&limit)), Some(&limit), Seed(1));
    let stored = StoredFacts { life: LIFE.restarted(Time::ZERO, |_| None), weight: 0, is_marker: false };
    for number in 0..1_000_000_u64 {
        let hash = hash(1 + number % 512);
        ghosts.request(hash, Time::ZERO + Duration::from_micros(number), Some(stored));
    }
    let stats = ghosts.stats(Time::ZERO + SECOND).unwrap();
    assert!(stats.sampled_requests < 40_000 && stats.keys > 0, "{stats:?}");
}

#[test]
fn what_is_invalidated_leaves_the_ghosts() {
    let time = Virtual::new();
    let limit = Limit::entries(1_000);
    let strategy = Strategy { ttl: Some(60 * SECOND), sie: 60 * SECOND, ..strategy(limit.clone()) };
    let cache: Cache<u64, u64, Virtual> = Cache::builder(strategy)
        .shadow(Shadow::around(&limit))
        .tags(|key, _, tag| tag(if key % 2 == 0 { "even" } else { "odd" }))
        .build_on(time.clone(), Seed(1))
        .unwrap();
    let hits = || cache.shadow_stats().unwrap().ghosts[0].total.hits;
    let request_all = || {
        let before = hits();
        (0..10_u64).for_each(|key| {
            if cache.get(&key).is_none() {
                cache.insert(key, key);
            }
        });
        hits() - before
    };
    let request_all = |expected: u64| assert_eq!(request_all(), expected);
    request_all(0);
    request_all(10);
    cache.invalidate(&3, Invalidation::Hard);
    request_all(9);
    cache.invalidate(&3, Invalidation::Soft);
    request_all(9);
    cache.invalidate_tag("even", Invalidation::Hard);
    request_all(5);
    cache.invalidate_if(|key, _| *key < 3, Invalidation::Hard);
    request_all(7);
    // The cache has one entry, and a larger ghost more.
    cache.invalidate_all(Invalidation::Hard);
    cache.insert(1, 1);
    cache.invalidate_all(Invalidation::Hard);
    request_all(0);
    let before = cache.shadow_stats().unwrap().ghosts;
    cache.invalidate_all(Invalidation::Hard);
    request_all(0);
    for (before, after) in before.iter().zip(cache.shadow_stats().unwrap().ghosts) {
        assert_eq!(before.total.hits, after.total.hits, "{}", after.name);
    }
}

#[test]
fn a_shadow_needs_a_limit_and_sensible_ghosts() {
    let limit = Limit::entries(10);
    let check = |shadow: Shadow, limit: Option<&Limit>| shadow.check(limit).is_ok();
    assert!(check(Shadow::around(&limit), Some(&limit)));
    let objects = Limit { max_object: Some(10 << 20), ..Limit::bytes(16 << 20) };
    assert!(
        check(Shadow::around(&objects), Some(&objects)),
        "half of the room is less than the largest object"
    );
    assert!(!check(Shadow::around(&limit), None));
    for wrong in [
        Shadow { keys_max: 255, ..Shadow::around(&limit) },
        Shadow { ghosts: vec![Ghost::of_size(&limit, 2.0); 2], ..Shadow::around(&limit) },
        Shadow {
            ghosts: (0..=GHOSTS_MAX).map(|n| Ghost::of_limit(n.to_string(), limit.clone())).collect(),
            ..Shadow::around(&limit)
        },
        Shadow { ghosts: vec![Ghost::of_ttl(&limit, GhostTtl::Times(f64::NAN))], ..Shadow::around(&limit) },
        Shadow {
            ghosts: vec![Ghost {
                limit: Limit { reclaim: 2.0, ..limit.clone() },
                ..Ghost::of_size(&limit, 2.0)
            }],
            ..Shadow::around(&limit)
        },
    ] {
        assert!(!check(wrong, Some(&limit)));
    }
}
