//! Sources that fail, hang and recover, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_cache::{
    Answer, Breaker, BreakerState, Cache, Error, Fetch, LoadBounds, Outcome, Reason, Strategy,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// The behavior of a source during a load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behavior {
    Succeeds,
    Fails,
    Hangs,
    Panics,
    /// At the end of the load's time.
    PanicsLate,
    NotFound,
}

/// A cache in front of a source with controlled failures.
#[derive(Clone)]
struct Fixture {
    time: Virtual,
    cache: Cache<u32, Option<Time>, Virtual>,
    loads: Arc<AtomicU64>,
}

impl Fixture {
    fn new(strategy: Strategy) -> Self {
        let time = Virtual::new();
        let cache =
            Cache::builder(strategy).not_found(Option::is_none).build_on(time.clone(), Seed(1)).unwrap();
        Self { time, cache, loads: Arc::default() }
    }

    /// A request. If it starts a load, the load has this duration and this behavior.
    async fn request(
        &self,
        key: u32,
        takes: Duration,
        behavior: Behavior,
    ) -> (Result<Answer<Option<Time>>, Error>, Duration) {
        let start = self.time.now();
        let (time, loads) = (self.time.clone(), Arc::clone(&self.loads));
        let load = async move || {
            loads.fetch_add(1, Ordering::Relaxed);
            assert!(behavior != Behavior::Panics, "on purpose");
            time.sleep_until(time.now() + takes).await;
            assert!(behavior != Behavior::PanicsLate, "on purpose");
            match behavior {
                Behavior::Succeeds => Ok(Some(time.now())),
                Behavior::NotFound => Ok(None),
                Behavior::Hangs => std::future::pending().await,
                _ => Err("on purpose"),
            }
        };
        let answer = self.cache.get_with(key, load).await;
        (answer, self.time.now() - start)
    }

    async fn outcome(&self, takes: Duration, behavior: Behavior) -> (Outcome, Duration) {
        let (answer, waited) = self.request(1, takes, behavior).await;
        (answer.map_or(Outcome::Error, |answer| answer.outcome), waited)
    }

    async fn until(&self, at: Duration) {
        self.time.sleep_until(Time::ZERO + at).await;
    }

    fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.time.run(test).expect("no request hangs")
    }
}

fn fallback() -> Strategy {
    Strategy { ttl: Some(SEC), sie: 10 * SEC, ..Strategy::preset("fallback").unwrap() }
}

#[test]
fn failed_load_falls_back_to_stale_until_gone() {
    let fixture = Fixture::new(Strategy { throttle: Duration::ZERO, ..fallback() });
    fixture.run(async {
        assert_eq!(fixture.outcome(20 * MS, Behavior::Succeeds).await, (Outcome::Miss, 20 * MS));
        fixture.until(2 * SEC).await;
        let (answer, waited) = fixture.request(1, 30 * MS, Behavior::Fails).await;
        let answer = answer.unwrap();
        assert_eq!((answer.outcome, waited), (Outcome::Fallback, 30 * MS));
        assert_eq!(answer.age, 2 * SEC + 10 * MS, "from the end of its load");
        assert!(matches!(answer.reason, Reason::Failed(Error::Load(_))), "{:?}", answer.reason);
        assert_eq!(fixture.outcome(30 * MS, Behavior::Panics).await.0, Outcome::Fallback);
        fixture.until(11 * SEC).await;
        assert_eq!(
            fixture.outcome(5 * MS, Behavior::Fails).await.0,
            Outcome::Fallback,
            "15 ms before its limit"
        );
        assert_eq!(
            fixture.outcome(30 * MS, Behavior::Fails).await.0,
            Outcome::Error,
            "gone while it was waited for"
        );
        assert_eq!(fixture.outcome(20 * MS, Behavior::Succeeds).await.0, Outcome::Miss);
    });
}

#[test]
fn failed_load_throttles_its_key() {
    let fixture = Fixture::new(Strategy { jitter: 1.0, ..fallback() });
    fixture.run(async {
        fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        fixture.request(1, 20 * MS, Behavior::Fails).await.0.unwrap();
        for ms in [2_021, 2_500, 3_019] {
            fixture.until(ms * MS).await;
            let (answer, waited) = fixture.request(1, 20 * MS, Behavior::Fails).await;
            let answer = answer.unwrap();
            assert_eq!(
                (answer.outcome, waited, fixture.loads()),
                (Outcome::Fallback, Duration::ZERO, 2),
                "{ms} ms"
            );
            assert!(matches!(answer.reason, Reason::Failed(Error::Throttled { .. })));
        }
        fixture.until(3_020 * MS).await;
        assert_eq!(fixture.outcome(20 * MS, Behavior::Succeeds).await, (Outcome::Miss, 20 * MS));
        assert_eq!(fixture.outcome(20 * MS, Behavior::Fails).await.0, Outcome::Hit, "and it is fresh again");
    });
}

#[test]
fn readers_of_a_dead_source_wait_for_the_soft_timeout_at_most() {
    for behavior in [Behavior::Hangs, Behavior::Fails] {
        let fixture = Fixture::new(fallback());
        let waits = fixture.run(async {
            fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
            // A reader every 100 us: the first one finds the value stale, and its load hangs.
            let readers = (0..10_000_u32).map(|reader| {
                let fixture = fixture.clone();
                async move {
                    fixture.until(2 * SEC + reader * MS / 10).await;
                    let (answer, waited) = fixture.request(1, 5 * SEC, behavior).await;
                    let answer = answer.unwrap();
                    assert_eq!(answer.outcome, Outcome::Fallback);
                    assert!(answer.age <= 11 * SEC);
                    (waited, fixture.time.now())
                }
            });
            join_all(readers).await
        });
        let soft = 500 * MS;
        assert!(waits.iter().all(|(waited, _)| *waited <= soft));
        let waited = waits.iter().filter(|(waited, _)| !waited.is_zero()).count();
        assert_eq!(waited, 5_000, "requests after the soft timeout do not wait");
        assert!(waits[..5_000].iter().all(|(_, at)| *at == Time::ZERO + 2 * SEC + soft), "woken together");
        assert_eq!(fixture.loads(), 2, "the first, and the one that hangs");
    }
}

#[test]
fn not_found_is_a_response() {
    let breaker = Breaker { min_calls: 1, ..Breaker::DEFAULT };
    let strategy = Strategy { negative_ttl: Some(100 * MS), breaker: Some(breaker), ..fallback() };
    let fixture = Fixture::new(strategy);
    fixture.run(async {
        fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        let (answer, _) = fixture.request(1, 20 * MS, Behavior::NotFound).await;
        let answer = answer.unwrap();
        assert_eq!((answer.outcome, answer.value), (Outcome::Miss, None), "it does not fall back");
        assert_eq!(fixture.outcome(20 * MS, Behavior::Succeeds).await, (Outcome::Negative, Duration::ZERO));
        assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Closed);
        fixture.until(2_121 * MS).await;
        assert_eq!(
            fixture.outcome(20 * MS, Behavior::Fails).await.0,
            Outcome::Error,
            "it is not served stale"
        );
    });
    let fixture = Fixture::new(fallback());
    fixture.run(async {
        fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        assert_eq!(fixture.request(1, 20 * MS, Behavior::NotFound).await.0.unwrap().value, None);
        assert_eq!(
            fixture.cache.len(),
            0,
            "without a negative ttl it is not kept, and nor is what it replaces"
        );
    });
}

#[test]
fn failed_refresh_is_cancelled_and_stale_value_serves_until_gone() {
    for behavior in [Behavior::Hangs, Behavior::Panics, Behavior::Fails] {
        let strategy = Strategy {
            ttl: Some(SEC),
            swr: 5 * SEC,
            load: LoadBounds { deadline: 2 * SEC, ..LoadBounds::DEFAULT },
            ..Strategy::preset("swr").unwrap()
        };
        let limit = strategy.max_served_age().unwrap();
        let fixture = Fixture::new(strategy);
        fixture.run(async {
            fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
            let gone = Duration::from_millis(20) + limit;
            let mut at = 1_100 * MS;
            while at < gone {
                fixture.until(at).await;
                assert_eq!(
                    fixture.outcome(Duration::ZERO, behavior).await,
                    (Outcome::Stale, Duration::ZERO),
                    "{behavior:?}"
                );
                at += 100 * MS;
            }
            if behavior == Behavior::Hangs {
                assert_eq!(fixture.loads(), 4, "the first, and one for each deadline");
            }
            fixture.until(gone).await;
            let (outcome, waited) = fixture.outcome(20 * MS, Behavior::Succeeds).await;
            // A request waits for a hanging refresh, at most until the load's deadline.
            assert!(waited <= 2 * SEC, "{behavior:?}: {outcome:?} after {waited:?}");
            fixture.until(gone + 3 * SEC).await;
            assert_ne!(fixture.outcome(20 * MS, Behavior::Succeeds).await.0, Outcome::Error);
        });
    }
}

#[test]
fn cancelled_first_caller_does_not_cancel_the_load() {
    let fixture = Fixture::new(fallback());
    let is_done = Arc::new(AtomicBool::new(false));
    fixture.run(async {
        let first = fixture.clone();
        let mut first = Box::pin(async move { first.request(1, 200 * MS, Behavior::Succeeds).await });
        let second = fixture.clone();
        let done = Arc::clone(&is_done);
        assert!(futures_util::poll!(&mut first).is_pending(), "it is the leader");
        fixture.time.spawn(async move {
            let (answer, waited) = second.request(1, 200 * MS, Behavior::Succeeds).await;
            assert_eq!((answer.unwrap().outcome, waited), (Outcome::Coalesced, 200 * MS));
            done.store(true, Ordering::Relaxed);
        });
        fixture.until(50 * MS).await;
        drop(first);
        fixture.until(SEC).await;
    });
    assert!(is_done.load(Ordering::Relaxed));
    assert_eq!(fixture.loads(), 1);
}

#[test]
fn wait_ends_at_the_earlier_of_both_deadlines() {
    let coalesce = |wait: Duration, soft: Duration| Strategy {
        fetch: Fetch::coalesce(wait),
        load: LoadBounds { soft_timeout: Some(soft), ..LoadBounds::DEFAULT },
        ..fallback()
    };
    // The waiters' own timeout ends before the soft timeout, which ends the leader's wait.
    let fixture = Fixture::new(coalesce(100 * MS, 5 * SEC));
    fixture.run(async {
        fixture.request(1, MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        let leader = fixture.request(1, 9 * SEC, Behavior::Succeeds);
        let waiters = join_all((0..100).map(|_| fixture.request(1, SEC, Behavior::Succeeds)));
        let ((_, led), waited) = futures_util::future::join(leader, waiters).await;
        assert_eq!(led, 5 * SEC);
        for (answer, waited) in waited {
            assert!(matches!(answer.unwrap().reason, Reason::Failed(Error::WaitTimeout { .. })));
            assert_eq!(waited, 100 * MS);
        }
    });
    // A waiter with a stale value behind a leader without one.
    let fixture = Fixture::new(coalesce(5 * SEC, 500 * MS));
    fixture.run(async {
        let leader = fixture.request(1, 9 * SEC, Behavior::Succeeds);
        let without = async {
            fixture.until(10 * MS).await;
            fixture.request(1, SEC, Behavior::Succeeds).await
        };
        let with = async {
            fixture.until(50 * MS).await;
            // The load in flight started before there was a value. (After an `insert` later requests would not wait for it.)
            let independent = Strategy { fetch: Fetch::Independent, ..fallback() };
            let independent = fixture.cache.view(&independent, None).unwrap();
            independent.get_with(1, async || Ok::<_, Error>(Some(Time::ZERO))).await.unwrap();
            fixture.until(SEC + 50 * MS).await;
            fixture.request(1, SEC, Behavior::Succeeds).await
        };
        let (_, (_, without), (answer, with)) = futures_util::future::join3(leader, without, with).await;
        assert_eq!(
            (answer.unwrap().outcome, with),
            (Outcome::Fallback, Duration::ZERO),
            "it is late already"
        );
        assert_eq!(without, 5 * SEC);
    });
    // The successor of a lost leader keeps the start time of the load.
    let fixture = Fixture::new(coalesce(5 * SEC, 500 * MS));
    fixture.run(async {
        fixture.request(1, MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        let dying = fixture.request(1, 450 * MS, Behavior::PanicsLate);
        let (_, (answer, waited)) =
            futures_util::future::join(dying, fixture.request(1, 9 * SEC, Behavior::Succeeds)).await;
        assert_eq!((answer.unwrap().outcome, waited), (Outcome::Fallback, 500 * MS));
    });
}

/// A breaker that opens at the first failure, for a second.
fn fragile() -> Breaker {
    Breaker { min_calls: 1, probes: 1, ramp: SEC, open_for: SEC, ..Breaker::DEFAULT }
}

#[test]
fn breaker_records_every_load() {
    for behavior in [Behavior::Panics, Behavior::PanicsLate, Behavior::Fails, Behavior::Hangs] {
        let load = LoadBounds { deadline: 50 * MS, ..LoadBounds::DEFAULT };
        let strategy = Strategy { breaker: Some(fragile()), load, ..Strategy::preset("stampede").unwrap() };
        let fixture = Fixture::new(strategy);
        fixture.run(async {
            fixture.request(1, 20 * MS, behavior).await.0.unwrap_err();
            assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Open, "{behavior:?}");
        });
    }
    // A load that never starts is not evidence about its source.
    let load = LoadBounds { max_concurrent: Some(1), queue: 0, ..LoadBounds::DEFAULT };
    let strategy = Strategy { breaker: Some(fragile()), load, ..Strategy::preset("stampede").unwrap() };
    let fixture = Fixture::new(strategy);
    fixture.run(async {
        let (first, second) = futures_util::future::join(
            fixture.request(1, SEC, Behavior::Succeeds),
            fixture.request(2, SEC, Behavior::Succeeds),
        )
        .await;
        first.0.unwrap();
        assert!(matches!(second.0, Err(Error::Overloaded { .. })));
        assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Closed);
    });
}

#[test]
fn calls_beside_the_cache_share_its_breaker() {
    let strategy = Strategy { breaker: Some(fragile()), ..Strategy::preset("stampede").unwrap() };
    let fixture = Fixture::new(strategy);
    fixture.run(async {
        let cache = &fixture.cache;
        // A call without a result is not evidence.
        drop(cache.admit_call(&1, None).await.unwrap());
        cache.admit_call(&1, None).await.unwrap().record_result(true);
        cache.admit_call(&1, None).await.unwrap().record_result(false);
        assert_eq!(cache.breaker_states()[0].1, BreakerState::Open);
        assert!(matches!(cache.admit_call(&1, None).await, Err(Error::BreakerOpen)));
        let refused = fixture.request(1, MS, Behavior::Succeeds).await.0;
        assert!(matches!(refused, Err(Error::BreakerOpen)), "{refused:?}");
        assert_eq!(cache.stats().requests().loads_refused, 2);
    });
    // Without a breaker all calls pass.
    let fixture = Fixture::new(Strategy::preset("stampede").unwrap());
    fixture.run(async {
        fixture.cache.admit_call(&1, None).await.unwrap().record_result(false);
        assert!(fixture.cache.admit_call(&1, None).await.is_ok());
    });
}

#[test]
fn open_breaker_serves_stale_without_waiting_until_the_ramp_ends() {
    let fixture = Fixture::new(Strategy { breaker: Some(fragile()), sie: 10_000 * SEC, ..fallback() });
    fixture.run(async {
        fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        fixture.request(2, 20 * MS, Behavior::Fails).await.0.unwrap_err();
        for _ in 0..100 {
            assert_eq!(
                fixture.outcome(20 * MS, Behavior::Succeeds).await,
                (Outcome::Fallback, Duration::ZERO)
            );
        }
        assert_eq!((fixture.loads(), fixture.cache.stats().loads_refused), (2, 0));
        // Then one of many probes, which is answered at once, too.
        fixture.until(3_100 * MS).await;
        for _ in 0..100 {
            assert_eq!(
                fixture.outcome(20 * MS, Behavior::Succeeds).await,
                (Outcome::Fallback, Duration::ZERO)
            );
        }
        fixture.cache.wait_idle().await;
        assert_eq!((fixture.loads(), fixture.cache.stats().probes), (3, 1));
        fixture.until(3_600 * SEC).await;
        assert_eq!(
            fixture.outcome(20 * MS, Behavior::Succeeds).await,
            (Outcome::Miss, 20 * MS),
            "the ramp is long over"
        );
    });
}

/// After an outage, 200 keys that have never been stored are asked for at once.
#[test]
fn load_on_the_ramp_waits_for_its_turn() {
    let breaker = Breaker { probes: 2, ramp: 10 * SEC, ..fragile() };
    let fixture = Fixture::new(Strategy { breaker: Some(breaker), ..Strategy::preset("stampede").unwrap() });
    let in_flight_max = std::cell::Cell::new(0);
    fixture.run(async {
        fixture.request(0, MS, Behavior::Fails).await.0.unwrap_err();
        fixture.until(2 * SEC).await;
        let requests = (1..=200).map(|key| fixture.request(key, 100 * MS, Behavior::Succeeds));
        // The first two are probes; the others come once these have been answered.
        fixture.request(1_001, 10 * MS, Behavior::Succeeds).await.0.unwrap();
        fixture.request(1_002, 10 * MS, Behavior::Succeeds).await.0.unwrap();
        assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Ramp);
        let answers = join_all(requests).await;
        let mut waits: Vec<_> = answers
            .iter()
            .map(|(answer, waited)| {
                assert!(answer.is_ok(), "{answer:?}");
                *waited
            })
            .collect();
        waits.sort_unstable();
        in_flight_max.set(waits.iter().filter(|waited| **waited == 100 * MS).count());
        // 2, 4, 8, ... at once: seven rounds of 100 ms for 200 loads.
        assert_eq!(waits.last(), Some(&(700 * MS)));
        assert_eq!(fixture.cache.stats().requests().loads_refused, 0);
    });
    assert_eq!(in_flight_max.get(), 2);
    // A source that answers no more gives no turns: the wait has its bound, and so has the queue.
    let load = LoadBounds { queue: 3, ..LoadBounds::DEFAULT };
    let strategy = Strategy { breaker: Some(breaker), load, ..Strategy::preset("stampede").unwrap() };
    let fixture = Fixture::new(strategy);
    fixture.run(async {
        fixture.request(0, MS, Behavior::Fails).await.0.unwrap_err();
        fixture.until(2 * SEC).await;
        for key in 1_001..1_003 {
            fixture.request(key, 10 * MS, Behavior::Succeeds).await.0.unwrap();
        }
        let requests = (1..=10).map(|key| fixture.request(key, 5 * SEC, Behavior::Succeeds));
        let answers = join_all(requests).await;
        let refused: Vec<_> =
            answers.iter().filter(|(answer, _)| matches!(answer, Err(Error::BreakerOpen))).collect();
        // Two run for 5 s; three wait for 1.5 s.
        assert_eq!(refused.len(), 8);
        assert_eq!(refused.iter().filter(|(_, waited)| *waited == Duration::ZERO).count(), 5);
        assert_eq!(refused.iter().filter(|(_, waited)| *waited == 1_500 * MS).count(), 3);
    });
}

#[test]
fn throttled_key_may_be_the_probe() {
    let breaker = Some(fragile());
    let fixture = Fixture::new(Strategy { breaker, throttle: 100 * SEC, sie: 1_000 * SEC, ..fallback() });
    fixture.run(async {
        fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
        fixture.until(2 * SEC).await;
        assert_eq!(fixture.outcome(20 * MS, Behavior::Fails).await.0, Outcome::Fallback);
        fixture.until(4 * SEC).await;
        assert_eq!(fixture.outcome(20 * MS, Behavior::Succeeds).await, (Outcome::Fallback, Duration::ZERO));
        fixture.cache.wait_idle().await;
        assert_eq!(fixture.cache.stats().probes, 1);
        assert_eq!(
            fixture.outcome(20 * MS, Behavior::Fails).await.0,
            Outcome::Hit,
            "the probe stored a value"
        );
    });
}

#[test]
fn failed_refreshes_are_throttled_and_refused_ones_are_not_counted() {
    let swr =
        Strategy { ttl: Some(SEC), swr: 1_000 * SEC, throttle: SEC, ..Strategy::preset("swr").unwrap() };
    let fixture = Fixture::new(swr.clone());
    fixture.run(async {
        fixture.request(1, 20 * MS, Behavior::Succeeds).await.0.unwrap();
        for step in 0..100 {
            fixture.until(2 * SEC + step * 50 * MS).await;
            assert_eq!(fixture.outcome(20 * MS, Behavior::Fails).await, (Outcome::Stale, Duration::ZERO));
        }
        assert_eq!(fixture.loads(), 1 + 5, "one a second, for five seconds");
    });
    let fixture = Fixture::new(Strategy { breaker: Some(Breaker { ramp: 1_000 * SEC, ..fragile() }), ..swr });
    fixture.run(async {
        fixture.request(1, MS, Behavior::Succeeds).await.0.unwrap();
        fixture.request(2, MS, Behavior::Fails).await.0.unwrap_err();
        fixture.until(3 * SEC).await;
        fixture.request(3, MS, Behavior::Succeeds).await.0.unwrap();
        let before = fixture.loads();
        for _ in 0..100 {
            fixture.request(1, MS, Behavior::Succeeds).await.0.unwrap();
        }
        fixture.cache.wait_idle().await;
        assert_eq!(fixture.cache.stats().refreshes_swr, fixture.loads() - before);
    });
}

/// 1,000 requests a second for 100 keys; the source fails for a minute.
#[test]
fn breaker_stops_loads_and_ramps_them_up_again() {
    let breaker = Breaker {
        errors_rate: 0.5,
        period: 2 * SEC,
        min_calls: 10,
        open_for: 5 * SEC,
        probes: 2,
        ramp: 10 * SEC,
        wait: Duration::ZERO,
    };
    let strategy = Strategy { sie: 600 * SEC, ttl: Some(SEC), breaker: Some(breaker), ..fallback() };
    let fixture = Fixture::new(strategy);
    let (dies, returns, ends) = (30 * SEC, 90 * SEC, 150 * SEC);
    let loads_at = |fixture: &Fixture| fixture.loads();
    let (before, dead, back, per_second) = fixture.run(async {
        let mut per_second: Vec<u64> = Vec::new();
        let (mut before, mut dead) = (0, 0);
        for ms in 0..u32::try_from(ends.as_millis()).unwrap() {
            fixture.until(ms * MS).await;
            let at = ms * MS;
            if at == dies {
                before = loads_at(&fixture);
            }
            if at == returns {
                dead = loads_at(&fixture);
            }
            if ms % 1_000 == 0 {
                per_second.push(loads_at(&fixture));
            }
            let behavior = if (dies..returns).contains(&at) { Behavior::Fails } else { Behavior::Succeeds };
            let client = fixture.clone();
            fixture.time.spawn(async move {
                let (answer, waited) = client.request(ms % 100, 5 * MS, behavior).await;
                assert!(answer.is_ok(), "at {at:?}: {answer:?}");
                assert!(waited <= 5 * MS, "at {at:?}: {waited:?}");
            });
        }
        (before, dead, loads_at(&fixture), per_second)
    });
    assert!(before > 2_000, "about 100 a second: {before}");
    // 60 s, open for 5 s each time: the probes of twelve half-open phases.
    let most = u64::from(breaker.min_calls + 12 * breaker.probes);
    assert!(dead - before <= most, "{} loads of a dead source, {most} allowed", dead - before);
    assert!(dead - before >= u64::from(breaker.min_calls / 2 + 11));
    // The breaker closes within `open_for` of the recovery. After that all 100 keys need a load at once, and the ramp follows the
    // source: each has one in a second.
    let loads_in = |second: usize| per_second[second + 1] - per_second[second];
    let closed = (90..97).find(|second| loads_in(*second) > 4).expect("it closes");
    let ramp: Vec<_> = (0..6).map(|second| loads_in(closed + second)).collect();
    assert!((400..=600).contains(&ramp.iter().sum::<u64>()), "{ramp:?}");
    assert!(back - dead > 2_000, "and it is as before");
    assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Closed);
}

#[test]
fn each_route_has_its_own_breaker() {
    let time = Virtual::new();
    let breaker = Breaker { min_calls: 2, ..Breaker::DEFAULT };
    let strategy = Strategy { breaker: Some(breaker), ..Strategy::preset("stampede").unwrap() };
    let cache: Cache<(&str, u32), u32, Virtual> = Cache::builder(strategy)
        .breaker_route(|key: &(&str, u32)| key.0)
        .build_on(time.clone(), Seed(1))
        .unwrap();
    time.run(async {
        for key in 0..2 {
            let failed = cache.get_with(("bad", key), async || Err::<u32, _>("on purpose")).await;
            assert!(matches!(failed, Err(Error::Load(_))));
        }
        let refused = cache.get_with(("bad", 2), async || Ok::<_, Error>(1)).await;
        assert!(matches!(refused, Err(Error::BreakerOpen)), "{refused:?}");
        assert_eq!(cache.get_with(("good", 2), async || Ok::<_, Error>(1)).await.unwrap().value, 1);
        let states: Vec<_> = cache.breaker_states();
        let state = |route: &str| states.iter().find(|(name, _)| name == route).map(|(_, state)| *state);
        assert_eq!((state("bad"), state("good")), (Some(BreakerState::Open), Some(BreakerState::Closed)));
        assert_eq!(cache.stats().loads_refused, 1);
        for route in 0..5_000 {
            let name: &'static str = format!("route {route}").leak();
            cache.get_with((name, 0), async || Ok::<_, Error>(1)).await.unwrap();
        }
        assert_eq!(cache.breaker_states().len(), 1_025, "names from requests do not fill the memory");
    })
    .unwrap();
}
