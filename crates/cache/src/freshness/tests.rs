use stockade_model::seed::Seed;

use super::*;
use crate::{Strategy, random::Random};

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn lifetimes(change: impl FnOnce(&mut Strategy)) -> LifetimeRules {
    let mut strategy = Strategy::preset("simple").unwrap();
    strategy.ttl = Some(Duration::from_secs(10));
    change(&mut strategy);
    strategy.check().unwrap();
    LifetimeRules::of(strategy.times())
}

fn never() -> (Time, f64) {
    panic!("only xfetch asks for the precise time and for chance")
}

fn no_share() -> f64 {
    panic!("only jitter draws")
}

#[test]
fn fresh_then_stale_then_fallback_then_gone() {
    let lifetimes = lifetimes(|strategy| {
        strategy.swr = Duration::from_secs(5);
        strategy.sie = Duration::from_mins(1);
    });
    let life = lifetimes.life(None, at(1_000), Duration::from_millis(20), no_share);
    for (ms, state) in [
        (1_000, FreshnessState::Fresh),
        (10_999, FreshnessState::Fresh),
        (11_000, FreshnessState::Stale),
        (15_999, FreshnessState::Stale),
        (16_000, FreshnessState::StaleIfError),
        (75_999, FreshnessState::StaleIfError),
        (76_000, FreshnessState::Gone),
    ] {
        assert_eq!(lifetimes.state(&life, at(ms), never), state, "at {ms} ms");
    }
}

#[test]
fn an_early_refresh_is_due_on_the_first_request_after_its_share() {
    let lifetimes = lifetimes(|strategy| strategy.refresh = Refresh::Early { at: 0.8 });
    let life = lifetimes.life(None, at(0), Duration::from_millis(20), no_share);
    assert_eq!(life.due, at(8_000));
    assert_eq!(lifetimes.state(&life, at(8_000), never), FreshnessState::Refresh);
    assert_eq!(lifetimes.state(&life, at(10_000), never), FreshnessState::Gone);
}

#[test]
fn jitter_shortens_the_ttl_and_nothing_else() {
    let lifetimes = lifetimes(|strategy| {
        strategy.jitter = 0.2;
        strategy.sie = Duration::from_mins(1);
        strategy.negative_ttl = Some(Duration::from_secs(1));
    });
    let chance = Random::new(Seed(1));
    for _ in 0..10_000 {
        let life = lifetimes.life(None, at(0), Duration::ZERO, || chance.uniform());
        assert!((at(8_000)..at(10_000)).contains(&life.expires), "{life:?}");
        assert_eq!(life.gone() - life.expires, Duration::from_mins(1));
    }
    assert_eq!(lifetimes.negative_life(None, at(0)).unwrap().expires, at(1_000));
}

#[test]
fn a_time_may_be_as_long_as_any() {
    let lifetimes = lifetimes(|strategy| {
        strategy.ttl = Some(Duration::MAX);
        strategy.swr = Duration::MAX;
        strategy.sie = Duration::MAX;
        strategy.jitter = 1e-17;
        strategy.refresh = Refresh::XFetch { beta: f64::MAX };
    });
    let life = lifetimes.life(None, at(1), Duration::MAX, || 1.0);
    assert_eq!((life.expires, life.gone()), (Time::NEVER, Time::NEVER));
    assert_eq!(lifetimes.state(&life, at(2), || (at(2), 0.1)), FreshnessState::Refresh);
}

#[test]
fn a_not_found_is_neither_refreshed_nor_served_stale() {
    let lifetimes = lifetimes(|strategy| {
        strategy.refresh = Refresh::XFetch { beta: 1.0 };
        strategy.sie = Duration::from_mins(1);
        strategy.negative_ttl = Some(Duration::from_secs(1));
    });
    let life = lifetimes.negative_life(None, at(0)).unwrap();
    assert_eq!(lifetimes.state(&life, at(999), never), FreshnessState::Fresh);
    assert_eq!(lifetimes.state(&life, at(1_000), never), FreshnessState::Gone);
}

#[test]
fn expire_makes_a_lifetime_stale_at_once() {
    let lifetimes = lifetimes(|strategy| strategy.sie = Duration::from_mins(1));
    let mut life = lifetimes.life(None, at(0), Duration::ZERO, no_share);
    life.expire(at(3_000));
    assert_eq!(lifetimes.state(&life, at(3_000), never), FreshnessState::StaleIfError);
    assert_eq!(lifetimes.state(&life, at(63_000), never), FreshnessState::Gone);
    life.expire(at(9_000));
    assert_eq!(life.expires, at(3_000), "the earlier time stays");
}

/// Compares the draws of a rule at 20 distances from expiry with `exp(-distance / (delta * beta))`. Returns
/// chi-squared with 20 degrees of freedom.
fn chi_squared(delta: Duration, beta: f64, seed: u64, rule: impl Fn(&Random, Duration) -> bool) -> f64 {
    const DRAWS: u32 = 20_000;
    let chance = Random::new(Seed(seed));
    let spread = delta.mul_f64(beta);
    (1..=20)
        .map(|step| {
            // From a likelihood of 86 % to one of 5 %.
            let distance = spread.mul_f64(0.15 * f64::from(step));
            let expected = (-distance.as_secs_f64() / spread.as_secs_f64()).exp();
            let early = f64::from((0..DRAWS).map(|_| u32::from(rule(&chance, distance))).sum::<u32>());
            let (draws, variance) = (f64::from(DRAWS), f64::from(DRAWS) * expected * (1.0 - expected));
            (early - draws * expected).powi(2) / variance
        })
        .sum()
}

/// Exceeded by chance once in a thousand seeds.
const CHI_SQUARED_20: f64 = 45.31;

#[test]
fn requests_refresh_as_early_as_the_paper_says() {
    for (delta, beta) in [
        (Duration::from_millis(20), 1.0),
        (Duration::from_millis(20), 2.5),
        (Duration::from_micros(50), 1.0),
        (Duration::from_nanos(700), 0.5),
    ] {
        let lifetimes = lifetimes(|strategy| strategy.refresh = Refresh::XFetch { beta });
        let life = lifetimes.life(None, at(5_000), delta, no_share);
        for seed in 0..10 {
            let found = chi_squared(delta, beta, seed, |chance, distance| {
                let now = life.expires.back(distance);
                assert!(now >= life.due, "a lookup before the due time does not draw");
                lifetimes.state(&life, now, || (now, chance.exponential())) == FreshnessState::Refresh
            });
            assert!(found < CHI_SQUARED_20, "{delta:?}, beta {beta}, seed {seed}: {found:.1}");
        }
    }
}

#[test]
fn the_published_test_s_rule_fails_where_the_paper_s_holds() {
    // It adds a ttl in seconds to a clock in milliseconds (docs/explanation/early-refresh.md).
    let delta_ms = 20.0;
    let bugged = |chance: &Random, distance: Duration| {
        let ttl_secs = distance.as_secs_f64();
        delta_ms * chance.exponential() >= ttl_secs
    };
    for seed in 0..10 {
        let found = chi_squared(Duration::from_millis(20), 1.0, seed, bugged);
        assert!(found > 100.0 * CHI_SQUARED_20, "seed {seed}: {found:.1}");
    }
}

#[test]
fn no_random_number_refreshes_before_due() {
    let lifetimes = lifetimes(|strategy| strategy.refresh = Refresh::XFetch { beta: 1.0 });
    let life = lifetimes.life(None, at(5_000), Duration::from_millis(20), no_share);
    let state = |now| lifetimes.state(&life, now, || (now, NATS_MAX));
    assert_eq!(state(life.due), FreshnessState::Fresh, "it is due a little before, as clocks differ");
    let rounded = Duration::from_micros(1);
    assert_eq!(state(life.due + COARSE_LAG + rounded), FreshnessState::Refresh);
    // A load so slow that every request may refresh.
    let slow = lifetimes.life(None, at(5_000), Duration::from_mins(1), no_share);
    assert_eq!(slow.due, Time::ZERO);
    let now = at(6_000);
    assert_eq!(lifetimes.state(&slow, now, || (now, 0.2)), FreshnessState::Refresh);
    assert_eq!(lifetimes.state(&slow, now, || (now, 0.1)), FreshnessState::Fresh);
}

#[test]
fn a_span_is_exact_or_a_little_less() {
    let kept = |duration: Duration| Duration::from(CompactDuration::from(duration));
    for exact in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_nanos((1 << 27) - 1),
        Duration::from_millis(500),
    ] {
        assert_eq!(kept(exact), exact);
    }
    for long in
        [Duration::from_nanos(123_456_789_012), Duration::from_hours(6), Duration::from_hours(24 * 365)]
    {
        assert!(kept(long) <= long && kept(long) + long / 50_000_000 >= long, "{long:?}");
    }
    assert_eq!(kept(Duration::MAX), kept(Duration::from_hours(24 * 365 * 30)));
    assert!(kept(Duration::MAX) > Duration::from_hours(24 * 365 * 9));
}
