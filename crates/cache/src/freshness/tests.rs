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

#[test]
fn each_state_has_its_answer() {
    let answer = |state: FreshnessState, is_loading| {
        let EntryAnswer { outcome, starts_load } = state.answer(is_loading);
        (outcome, starts_load)
    };
    for (state, alone, while_loading) in [
        (FreshnessState::Fresh, (Outcome::Hit, false), (Outcome::Hit, false)),
        (FreshnessState::Refresh, (Outcome::Hit, true), (Outcome::Hit, false)),
        (FreshnessState::Stale, (Outcome::Stale, true), (Outcome::Stale, false)),
        (FreshnessState::StaleIfError, (Outcome::Miss, true), (Outcome::Coalesced, false)),
        (FreshnessState::Gone, (Outcome::Miss, true), (Outcome::Coalesced, false)),
    ] {
        assert_eq!((answer(state, false), answer(state, true)), (alone, while_loading), "{state:?}");
    }
}

#[test]
fn refresh_has_bounds() {
    let is_valid = |refresh: Refresh| refresh.check().is_ok();
    for (at, valid) in [(0.0, false), (0.001, true), (0.999, true), (1.0, false), (f64::NAN, false)] {
        assert_eq!(is_valid(Refresh::Early { at }), valid, "at {at}");
    }
    for (beta, valid) in [
        (0.0, false),
        (-1.0, false),
        (0.001, true),
        (f64::MAX, true),
        (f64::INFINITY, false),
        (f64::NAN, false),
    ] {
        assert_eq!(is_valid(Refresh::XFetch { beta }), valid, "beta {beta}");
    }
    assert!(is_valid(Refresh::None));
}

/// Each invalidation of a value that expires after 10 s, at 3 s: the states at 3 s, just before and at the end of what is left.
#[test]
fn invalidation_leaves_what_its_kind_permits() {
    let secs = Duration::from_secs;
    let life = |swr: u64, sie: u64, keep: u64| {
        Lifetime::new(at(0), at(10_000), at(10_000), Spans::new(secs(swr), secs(sie), secs(keep)))
    };
    let after = |life: Lifetime, how, ms| {
        life.after_invalidation(how, at(3_000)).map(|life| life.state(at(ms), never))
    };
    // No time after the expiry: nothing is left.
    for how in [Invalidation::Soft, Invalidation::Fallback, Invalidation::Hard] {
        assert_eq!(after(life(0, 0, 0), how, 3_000), None, "{how:?}");
    }
    let all = life(5, 60, 0);
    assert!(!all.is_fallback_only() && all.is_kept_after_expiry() && all.has_fallback());
    for (ms, soft, fallback) in [
        (3_000, FreshnessState::Stale, FreshnessState::StaleIfError),
        (7_999, FreshnessState::Stale, FreshnessState::StaleIfError),
        (8_000, FreshnessState::StaleIfError, FreshnessState::StaleIfError),
        (67_999, FreshnessState::StaleIfError, FreshnessState::StaleIfError),
        (68_000, FreshnessState::Gone, FreshnessState::Gone),
    ] {
        assert_eq!(after(all, Invalidation::Soft, ms), Some(soft), "soft, {ms} ms");
        assert_eq!(after(all, Invalidation::Fallback, ms), Some(fallback), "fallback, {ms} ms");
        assert_eq!(after(all, Invalidation::Hard, ms), None, "hard, {ms} ms");
    }
    let is_fallback_only =
        |how| all.after_invalidation(how, at(3_000)).map(|life: Lifetime| life.is_fallback_only());
    assert_eq!(is_fallback_only(Invalidation::Soft), Some(false));
    assert_eq!(is_fallback_only(Invalidation::Fallback), Some(true));
    // Without stale-if-error it is of no use as a fallback.
    assert_eq!(after(life(5, 0, 0), Invalidation::Fallback, 3_000), None);
    assert_eq!(after(life(5, 0, 0), Invalidation::Soft, 3_000), Some(FreshnessState::Stale));
    // Kept for its validators alone.
    assert!(life(0, 0, 5).is_kept_after_expiry() && !life(0, 0, 5).has_fallback());
    assert_eq!(after(life(0, 0, 5), Invalidation::Soft, 3_000), Some(FreshnessState::Gone));
    let not_found = Lifetime::negative(at(0), at(10_000));
    for how in [Invalidation::Soft, Invalidation::Fallback, Invalidation::Hard] {
        assert_eq!(after(not_found, how, 3_000), None, "{how:?}");
    }
}

#[test]
fn restarted_lifetime_has_the_same_rules_from_the_new_load_on() {
    let times = |life: &Lifetime| (life.loaded, life.due, life.expires);
    let ten_s = Some(Duration::from_secs(10));
    let early = lifetimes(|strategy| strategy.refresh = Refresh::Early { at: 0.8 });
    let life = early.life(None, at(1_000), Duration::ZERO, no_share);
    // The share of an early refresh stays, of whatever ttl.
    for (ttl_ms, due_ms) in [(10_000, 108_000), (20_000, 116_000), (5_000, 104_000)] {
        let again = life.restarted(at(100_000), |old| {
            assert_eq!(old, ten_s);
            Some(Duration::from_millis(ttl_ms))
        });
        assert_eq!(times(&again), (at(100_000), at(due_ms), at(100_000 + ttl_ms)), "{ttl_ms} ms");
    }
    let for_ever = life.restarted(at(100_000), |_| None);
    assert_eq!(times(&for_ever), (at(100_000), Time::NEVER, Time::NEVER));
    // One without an end, or without a ttl, has no share: it is due when it expires.
    let no_end = lifetimes(|strategy| strategy.ttl = None).life(None, at(0), Duration::ZERO, no_share);
    let again = no_end.restarted(at(100_000), |old| {
        assert_eq!(old, None);
        ten_s
    });
    assert_eq!(times(&again), (at(100_000), at(110_000), at(110_000)));
    let empty = Lifetime::new(at(1_000), at(1_000), at(1_000), Spans::NONE);
    assert_eq!(times(&empty.restarted(at(100_000), |_| ten_s)), (at(100_000), at(110_000), at(110_000)));
    // Xfetch subtracts by the duration of the load, whatever the ttl.
    let xfetch = lifetimes(|strategy| strategy.refresh = Refresh::XFetch { beta: 1.0 });
    let life = xfetch.life(None, at(1_000), Duration::from_millis(20), no_share);
    let again = life.restarted(at(100_000), |_| Some(Duration::from_secs(20)));
    assert_eq!((again.expires, again.expires - again.due), (at(120_000), life.expires - life.due));
    // A not-found keeps its own.
    let again = Lifetime::negative(at(0), at(3_000)).restarted(at(100_000), |_| ten_s);
    assert_eq!(times(&again), (at(100_000), Time::ZERO, at(103_000)));
    assert!(again.is_negative());
}

#[test]
fn value_of_another_node_lives_no_longer_than_this_one_permits() {
    let secs = Duration::from_secs;
    let rules = lifetimes(|strategy| strategy.negative_ttl = Some(Duration::from_secs(2)));
    let for_ever = lifetimes(|strategy| strategy.ttl = None);
    let now = at(100_000);
    let expires = |rules: &LifetimeRules, own: Option<Lifespan>, fresh_s: Option<u64>, is_negative| {
        let kept = RemoteTimes {
            age: secs(1),
            load_duration: Duration::ZERO,
            fresh_for: fresh_s.map(secs),
            is_negative,
        };
        let life = rules.resume(own, now, kept);
        assert_eq!((life.loaded, life.is_negative()), (at(99_000), is_negative));
        life.expires
    };
    let own = Lifespan { ttl: secs(4), swr: Duration::ZERO, sie: Duration::ZERO, keep: Duration::ZERO };
    for (own, fresh_s, is_negative, expires_ms) in [
        (None, Some(30), false, 109_000),
        (None, Some(3), false, 102_000),
        (None, None, false, 109_000),
        (Some(own), Some(30), false, 103_000),
        (Some(own), Some(3), false, 102_000),
        (None, Some(30), true, 101_000),
        (None, Some(1), true, 100_000),
        (Some(own), Some(30), true, 103_000),
    ] {
        assert_eq!(
            expires(&rules, own, fresh_s, is_negative),
            at(expires_ms),
            "{own:?} {fresh_s:?} {is_negative}"
        );
    }
    // Xfetch knows from the load of the other node how early it refreshes.
    let xfetch = lifetimes(|strategy| strategy.refresh = Refresh::XFetch { beta: 1.0 });
    let load_duration = Duration::from_millis(20);
    let kept = RemoteTimes { age: secs(1), load_duration, fresh_for: Some(secs(10)), is_negative: false };
    let own = xfetch.life(None, at(99_000), load_duration, no_share);
    let other = xfetch.resume(None, now, kept);
    assert_eq!((other.due, other.expires, other.spans), (own.due, own.expires, own.spans));
    assert_eq!(expires(&for_ever, None, Some(30), false), at(129_000));
    assert_eq!(expires(&for_ever, None, None, false), Time::NEVER);
}

#[test]
fn lifetime_continues_in_another_process() {
    let early = lifetimes(|strategy| strategy.refresh = Refresh::Early { at: 0.8 });
    let xfetch = lifetimes(|strategy| strategy.refresh = Refresh::XFetch { beta: 1.0 });
    let swr = lifetimes(|strategy| strategy.swr = Duration::from_secs(5));
    let took = Duration::from_millis(20);
    let times = |life: &Lifetime| (life.loaded, life.due, life.expires, life.spans);
    for rules in [early, xfetch, swr] {
        let life = rules.life(None, at(50_000), took, no_share);
        let later = LifetimeRecord::new(&life, at(53_000)).resume(at(3_003_000));
        assert_eq!(times(&later), times(&rules.life(None, at(3_000_000), took, no_share)));
    }
    let not_found = LifetimeRecord::new(&Lifetime::negative(at(50_000), at(60_000)), at(53_000));
    assert_eq!(times(&not_found.resume(at(103_000))), times(&Lifetime::negative(at(100_000), at(110_000))));
    let for_ever = Lifetime::new(at(50_000), Time::NEVER, Time::NEVER, Spans::NONE);
    let later = LifetimeRecord::new(&for_ever, at(53_000)).resume(at(103_000));
    assert_eq!(times(&later), (at(100_000), Time::NEVER, Time::NEVER, Spans::NONE));
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
