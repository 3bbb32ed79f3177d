//! Ghosts against caches that have their configuration.

use std::{convert::Infallible, time::Duration};

use stockade_model::time::{Runtime as _, Virtual};

use super::*;
use crate::{Cache, EvictionOrder, Lifespan, Refresh, Strategy};

const SECOND: Duration = Duration::from_secs(1);

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
    let trace = requests(20_000, 3_000, 3.0, SECOND / 2_000);
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
    let trace = requests(40_000, 2_000, 4.0, SECOND / 2_000);
    let limit = Limit { order: EvictionOrder::Global, ..Limit::entries(300) };
    let early = Refresh::Early { at: 0.8 };
    for (swr, refresh) in
        [(Duration::ZERO, Refresh::None), (SECOND / 10, Refresh::None), (Duration::ZERO, early)]
    {
        let with_ttl = |ttl| Strategy { ttl: Some(ttl), swr, refresh, ..strategy(limit.clone()) };
        let half = Ghost { name: "half".to_owned(), ..Ghost::of_ttl(&limit, GhostTtl::Times(0.5)) };
        let long = Ghost::of_ttl(&limit, GhostTtl::Fixed(2 * SECOND));
        let shadow = Shadow { ghosts: vec![half, long], keys_max: 4_096 };
        let (hits, loads, stats) = run(&trace, with_ttl(SECOND), Some(shadow), |_| None, SECOND / 50);
        let stats = stats.unwrap();
        let others =
            [SECOND / 2, 2 * SECOND].map(|ttl| run(&trace, with_ttl(ttl), None, |_| None, SECOND / 50));
        let expected =
            std::iter::once((hits, loads)).chain(others.into_iter().map(|(hits, loads, _)| (hits, loads)));
        for (ghost, (hits, loads)) in stats.ghosts.iter().zip(expected) {
            let (hits_off, loads_off) = (
                ratio(ghost.total.hits, trace.len()) - ratio(hits, trace.len()),
                ghost.total.loads as f64 / loads as f64 - 1.0,
            );
            assert!(hits_off.abs() < 0.003, "{} {swr:?} {refresh:?}: hits {hits_off}", ghost.name);
            assert!(loads_off.abs() < 0.01, "{} {swr:?} {refresh:?}: loads {loads_off}", ghost.name);
        }
        assert_eq!(stats.measured.requests, trace.len() as u64);
    }
}

/// A sample of less than a tenth of the keys is enough to know to a point what a cache with a limit in bytes would gain or lose.
#[test]
fn a_sample_predicts_other_configurations() {
    let trace = requests(300_000, 300_000, 3.0, SECOND / 2_000);
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
    let ghosts = Ghosts::new(&Shadow { keys_max: 256, ..Shadow::around(&limit) }, &limit, Seed(1));
    let life = LIFE.restarted(Time::ZERO, |_| None);
    let mut now = Time::ZERO;
    for number in 0..1_000_000_u64 {
        now = now + Duration::from_micros(100);
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ghosts.request(hash, now, None);
        // Some loads fail, some never end.
        match number % 4 {
            0 => ghosts.not_stored(hash),
            1 => {}
            _ => ghosts.stored(hash, now, StoredTimes { life, weight: 1 }, Duration::ZERO),
        }
    }
    let flooded = ghosts.stats(now).unwrap();
    assert!(flooded.keys < 256 && flooded.sampled_share < 0.01, "{flooded:?}");
    // Afterwards it grows again, and sees what there is.
    ghosts.invalidate_all(Invalidation::Hard, now);
    for number in 0..200_000_u64 {
        now = now + SECOND;
        let hash = (number % 50).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ghosts.request(hash, now, Some(StoredTimes { life, weight: 1 }));
    }
    let calm = ghosts.stats(now).unwrap();
    assert!(calm.sampled_share > 0.9 && calm.keys == 50, "{calm:?}");
}

const LIFE: Lifetime = Lifetime::GONE;

#[test]
fn many_requests_make_the_sample_smaller() {
    let limit = Limit::entries(1_000);
    let ghosts = Ghosts::new(&Shadow::around(&limit), &limit, Seed(1));
    let stored = StoredTimes { life: LIFE.restarted(Time::ZERO, |_| None), weight: 0 };
    for number in 0..1_000_000_u64 {
        let hash = (number % 512).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
    cache.invalidate_all(Invalidation::Soft);
    request_all(0);
    cache.invalidate_where(|key| *key < 3, Invalidation::Hard);
    request_all(7);
}

#[test]
fn a_shadow_needs_a_limit_and_sensible_ghosts() {
    let limit = Limit::entries(10);
    let check = |shadow: Shadow, limit: Option<&Limit>| shadow.check(limit).is_ok();
    assert!(check(Shadow::around(&limit), Some(&limit)));
    assert!(!check(Shadow::around(&limit), None));
    for wrong in [
        Shadow { keys_max: 255, ..Shadow::around(&limit) },
        Shadow { ghosts: vec![Ghost::of_size(&limit, 2.0); GHOSTS_MAX], ..Shadow::around(&limit) },
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
