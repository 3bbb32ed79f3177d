//! Sources that fail, hang and come back, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_cache::{Answer, Breaker, BreakerState, Cache, Error, Fetch, Load, Outcome, Reason, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// What a source does with a load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    Fails,
    Hangs,
    Panics,
    /// At the end of its time.
    PanicsLate,
    NotFound,
}

/// A cache in front of a source that can be made to misbehave.
#[derive(Clone)]
struct Scene {
    time: Virtual,
    cache: Cache<u32, Option<Time>, Virtual>,
    loads: Arc<AtomicU64>,
}

impl Scene {
    fn new(strategy: Strategy) -> Self {
        let time = Virtual::new();
        let cache =
            Cache::builder(strategy).not_found(Option::is_none).build_on(time.clone(), Seed(1)).unwrap();
        Self { time, cache, loads: Arc::default() }
    }

    /// A request whose load, if it comes to that, takes so long and ends so.
    async fn ask(
        &self,
        key: u32,
        takes: Duration,
        mood: Mood,
    ) -> (Result<Answer<Option<Time>>, Error>, Duration) {
        let asked = self.time.now();
        let (time, loads) = (self.time.clone(), Arc::clone(&self.loads));
        let load = async move || {
            loads.fetch_add(1, Ordering::Relaxed);
            assert!(mood != Mood::Panics, "on purpose");
            time.sleep_until(time.now() + takes).await;
            assert!(mood != Mood::PanicsLate, "on purpose");
            match mood {
                Mood::Well => Ok(Some(time.now())),
                Mood::NotFound => Ok(None),
                Mood::Hangs => std::future::pending().await,
                _ => Err("on purpose"),
            }
        };
        let answer = self.cache.get_with(key, load).await;
        (answer, self.time.now() - asked)
    }

    async fn outcome(&self, takes: Duration, mood: Mood) -> (Outcome, Duration) {
        let (answer, waited) = self.ask(1, takes, mood).await;
        (answer.map_or(Outcome::Error, |answer| answer.outcome), waited)
    }

    async fn until(&self, at: Duration) {
        self.time.sleep_until(Time::ZERO + at).await;
    }

    fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    fn run<T>(&self, story: impl Future<Output = T>) -> T {
        self.time.run(story).expect("nobody hangs")
    }
}

fn fallback() -> Strategy {
    Strategy { ttl: Some(SEC), sie: 10 * SEC, ..Strategy::preset("fallback").unwrap() }
}

#[test]
fn a_failed_load_is_answered_with_what_is_stale_until_that_is_gone() {
    let scene = Scene::new(Strategy { throttle: Duration::ZERO, ..fallback() });
    scene.run(async {
        assert_eq!(scene.outcome(20 * MS, Mood::Well).await, (Outcome::Miss, 20 * MS));
        scene.until(2 * SEC).await;
        let (answer, waited) = scene.ask(1, 30 * MS, Mood::Fails).await;
        let answer = answer.unwrap();
        assert_eq!((answer.outcome, waited), (Outcome::Fallback, 30 * MS));
        assert_eq!(answer.age, 2 * SEC + 10 * MS, "from the end of its load");
        assert!(matches!(answer.reason, Reason::Failed(Error::Load(_))), "{:?}", answer.reason);
        assert_eq!(scene.outcome(30 * MS, Mood::Panics).await.0, Outcome::Fallback);
        scene.until(11 * SEC).await;
        assert_eq!(scene.outcome(5 * MS, Mood::Fails).await.0, Outcome::Fallback, "15 ms before it is gone");
        assert_eq!(
            scene.outcome(30 * MS, Mood::Fails).await.0,
            Outcome::Error,
            "gone while it was waited for"
        );
        assert_eq!(scene.outcome(20 * MS, Mood::Well).await.0, Outcome::Miss);
    });
}

#[test]
fn after_a_failed_load_the_key_is_left_alone_for_a_while() {
    let scene = Scene::new(Strategy { jitter: 1.0, ..fallback() });
    scene.run(async {
        scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        scene.ask(1, 20 * MS, Mood::Fails).await.0.unwrap();
        for ms in [2_021, 2_500, 3_019] {
            scene.until(ms * MS).await;
            let (answer, waited) = scene.ask(1, 20 * MS, Mood::Fails).await;
            let answer = answer.unwrap();
            assert_eq!(
                (answer.outcome, waited, scene.loads()),
                (Outcome::Fallback, Duration::ZERO, 2),
                "{ms} ms"
            );
            assert!(matches!(answer.reason, Reason::Failed(Error::Throttled { .. })));
        }
        scene.until(3_020 * MS).await;
        assert_eq!(scene.outcome(20 * MS, Mood::Well).await, (Outcome::Miss, 20 * MS));
        assert_eq!(scene.outcome(20 * MS, Mood::Fails).await.0, Outcome::Hit, "and it is fresh again");
    });
}

#[test]
fn ten_thousand_readers_of_a_dead_source_wait_no_longer_than_the_soft_timeout() {
    for mood in [Mood::Hangs, Mood::Fails] {
        let scene = Scene::new(fallback());
        let waits = scene.run(async {
            scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
            // A reader every 100 us: the first finds it stale, and its load takes forever.
            let readers = (0..10_000_u32).map(|reader| {
                let scene = scene.clone();
                async move {
                    scene.until(2 * SEC + reader * MS / 10).await;
                    let (answer, waited) = scene.ask(1, 5 * SEC, mood).await;
                    let answer = answer.unwrap();
                    assert_eq!(answer.outcome, Outcome::Fallback);
                    assert!(answer.age <= 11 * SEC);
                    (waited, scene.time.now())
                }
            });
            join_all(readers).await
        });
        let soft = 500 * MS;
        assert!(waits.iter().all(|(waited, _)| *waited <= soft));
        let waited = waits.iter().filter(|(waited, _)| !waited.is_zero()).count();
        assert_eq!(waited, 5_000, "who comes after the soft timeout does not wait at all");
        assert!(waits[..5_000].iter().all(|(_, at)| *at == Time::ZERO + 2 * SEC + soft), "woken together");
        assert_eq!(scene.loads(), 2, "the first, and the one that is dead");
    }
}

#[test]
fn a_not_found_is_an_answer() {
    let breaker = Breaker { min_calls: 1, ..Breaker::DEFAULT };
    let strategy = Strategy { negative_ttl: Some(100 * MS), breaker: Some(breaker), ..fallback() };
    let scene = Scene::new(strategy);
    scene.run(async {
        scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        let (answer, _) = scene.ask(1, 20 * MS, Mood::NotFound).await;
        let answer = answer.unwrap();
        assert_eq!((answer.outcome, answer.value), (Outcome::Miss, None), "it does not fall back");
        assert_eq!(scene.outcome(20 * MS, Mood::Well).await, (Outcome::Negative, Duration::ZERO));
        assert_eq!(scene.cache.breakers()[0].1, BreakerState::Closed);
        scene.until(2_121 * MS).await;
        assert_eq!(scene.outcome(20 * MS, Mood::Fails).await.0, Outcome::Error, "it is not served stale");
    });
    let scene = Scene::new(fallback());
    scene.run(async {
        scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        assert_eq!(scene.ask(1, 20 * MS, Mood::NotFound).await.0.unwrap().value, None);
        assert_eq!(
            scene.cache.len(),
            0,
            "without a negative ttl it is not kept, and nor is what it replaces"
        );
    });
}

#[test]
fn a_refresh_that_hangs_or_dies_is_cancelled_and_what_is_stale_serves_until_it_is_gone() {
    for mood in [Mood::Hangs, Mood::Panics, Mood::Fails] {
        let strategy = Strategy {
            ttl: Some(SEC),
            swr: 5 * SEC,
            load: Load { deadline: 2 * SEC, ..Load::DEFAULT },
            ..Strategy::preset("swr").unwrap()
        };
        let limit = strategy.hard_limit().unwrap();
        let scene = Scene::new(strategy);
        scene.run(async {
            scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
            let gone = Duration::from_millis(20) + limit;
            let mut at = 1_100 * MS;
            while at < gone {
                scene.until(at).await;
                assert_eq!(
                    scene.outcome(Duration::ZERO, mood).await,
                    (Outcome::Stale, Duration::ZERO),
                    "{mood:?}"
                );
                at += 100 * MS;
            }
            if mood == Mood::Hangs {
                assert_eq!(scene.loads(), 4, "the first, and one for each deadline");
            }
            scene.until(gone).await;
            let (outcome, waited) = scene.outcome(20 * MS, Mood::Well).await;
            // A refresh that hangs is waited for, at most to its deadline.
            assert!(waited <= 2 * SEC, "{mood:?}: {outcome:?} after {waited:?}");
            scene.until(gone + 3 * SEC).await;
            assert_ne!(scene.outcome(20 * MS, Mood::Well).await.0, Outcome::Error);
        });
    }
}

#[test]
fn the_first_caller_s_leaving_takes_nothing_along() {
    let scene = Scene::new(fallback());
    let is_done = Arc::new(AtomicBool::new(false));
    scene.run(async {
        let first = scene.clone();
        let mut first = Box::pin(async move { first.ask(1, 200 * MS, Mood::Well).await });
        let second = scene.clone();
        let done = Arc::clone(&is_done);
        assert!(futures_util::poll!(&mut first).is_pending(), "it leads");
        scene.time.spawn(async move {
            let (answer, waited) = second.ask(1, 200 * MS, Mood::Well).await;
            assert_eq!((answer.unwrap().outcome, waited), (Outcome::Coalesced, 200 * MS));
            done.store(true, Ordering::Relaxed);
        });
        scene.until(50 * MS).await;
        drop(first);
        scene.until(SEC).await;
    });
    assert!(is_done.load(Ordering::Relaxed));
    assert_eq!(scene.loads(), 1);
}

#[test]
fn patience_is_the_shorter_of_two_and_counted_from_its_own_beginning() {
    let coalesce = |wait: Duration, soft: Duration| Strategy {
        fetch: Fetch::Coalesce { wait_timeout: wait },
        load: Load { soft_timeout: Some(soft), ..Load::DEFAULT },
        ..fallback()
    };
    // The waiters' own patience ends before the soft timeout, on which the leader's wait ends.
    let scene = Scene::new(coalesce(100 * MS, 5 * SEC));
    scene.run(async {
        scene.ask(1, MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        let leader = scene.ask(1, 9 * SEC, Mood::Well);
        let waiters = join_all((0..100).map(|_| scene.ask(1, SEC, Mood::Well)));
        let ((_, led), waited) = futures_util::future::join(leader, waiters).await;
        assert_eq!(led, 5 * SEC);
        for (answer, waited) in waited {
            assert!(matches!(answer.unwrap().reason, Reason::Failed(Error::WaitTimeout { .. })));
            assert_eq!(waited, 100 * MS);
        }
    });
    // Somebody with something stale behind somebody without.
    let scene = Scene::new(coalesce(5 * SEC, 500 * MS));
    scene.run(async {
        let leader = scene.ask(1, 9 * SEC, Mood::Well);
        let without = async {
            scene.until(10 * MS).await;
            scene.ask(1, SEC, Mood::Well).await
        };
        let with = async {
            scene.until(50 * MS).await;
            // The load under way began before there was anything.
            scene.cache.insert(1, Some(Time::ZERO));
            scene.until(SEC + 50 * MS).await;
            scene.ask(1, SEC, Mood::Well).await
        };
        let (_, (_, without), (answer, with)) = futures_util::future::join3(leader, without, with).await;
        assert_eq!(
            (answer.unwrap().outcome, with),
            (Outcome::Fallback, Duration::ZERO),
            "it is late already"
        );
        assert_eq!(without, 5 * SEC);
    });
    // The successor of a lost leader inherits the time at which the flight began.
    let scene = Scene::new(coalesce(5 * SEC, 500 * MS));
    scene.run(async {
        scene.ask(1, MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        let dying = scene.ask(1, 450 * MS, Mood::PanicsLate);
        let (_, (answer, waited)) =
            futures_util::future::join(dying, scene.ask(1, 9 * SEC, Mood::Well)).await;
        assert_eq!((answer.unwrap().outcome, waited), (Outcome::Fallback, 500 * MS));
    });
}

/// A breaker that opens at the first failure, for a second.
fn fragile() -> Breaker {
    Breaker { min_calls: 1, probes: 1, ramp: SEC, open_for: SEC, ..Breaker::DEFAULT }
}

#[test]
fn whatever_becomes_of_a_load_the_breaker_hears_of_it() {
    for mood in [Mood::Panics, Mood::PanicsLate, Mood::Fails, Mood::Hangs] {
        let load = Load { deadline: 50 * MS, ..Load::DEFAULT };
        let strategy = Strategy { breaker: Some(fragile()), load, ..Strategy::preset("stampede").unwrap() };
        let scene = Scene::new(strategy);
        scene.run(async {
            scene.ask(1, 20 * MS, mood).await.0.unwrap_err();
            assert_eq!(scene.cache.breakers()[0].1, BreakerState::Open, "{mood:?}");
        });
    }
    // A load that never begins says nothing of its source.
    let load = Load { max_concurrent: Some(1), queue: 0, ..Load::DEFAULT };
    let strategy = Strategy { breaker: Some(fragile()), load, ..Strategy::preset("stampede").unwrap() };
    let scene = Scene::new(strategy);
    scene.run(async {
        let (first, second) =
            futures_util::future::join(scene.ask(1, SEC, Mood::Well), scene.ask(2, SEC, Mood::Well)).await;
        first.0.unwrap();
        assert!(matches!(second.0, Err(Error::Overloaded { .. })));
        assert_eq!(scene.cache.breakers()[0].1, BreakerState::Closed);
    });
}

#[test]
fn while_the_breaker_is_open_nobody_waits_and_nobody_knocks_and_after_the_ramp_all_is_as_before() {
    let scene = Scene::new(Strategy { breaker: Some(fragile()), sie: 10_000 * SEC, ..fallback() });
    scene.run(async {
        scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        scene.ask(2, 20 * MS, Mood::Fails).await.0.unwrap_err();
        for _ in 0..100 {
            assert_eq!(scene.outcome(20 * MS, Mood::Well).await, (Outcome::Fallback, Duration::ZERO));
        }
        assert_eq!((scene.loads(), scene.cache.stats().loads_refused), (2, 0));
        // Then one of many probes, and it is answered at once, too.
        scene.until(3_100 * MS).await;
        for _ in 0..100 {
            assert_eq!(scene.outcome(20 * MS, Mood::Well).await, (Outcome::Fallback, Duration::ZERO));
        }
        scene.cache.idle().await;
        assert_eq!((scene.loads(), scene.cache.stats().probes), (3, 1));
        scene.until(3_600 * SEC).await;
        assert_eq!(
            scene.outcome(20 * MS, Mood::Well).await,
            (Outcome::Miss, 20 * MS),
            "the ramp is long over"
        );
    });
}

#[test]
fn a_key_that_is_left_alone_may_still_be_the_probe() {
    let breaker = Some(fragile());
    let scene = Scene::new(Strategy { breaker, throttle: 100 * SEC, sie: 1_000 * SEC, ..fallback() });
    scene.run(async {
        scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
        scene.until(2 * SEC).await;
        assert_eq!(scene.outcome(20 * MS, Mood::Fails).await.0, Outcome::Fallback);
        scene.until(4 * SEC).await;
        assert_eq!(scene.outcome(20 * MS, Mood::Well).await, (Outcome::Fallback, Duration::ZERO));
        scene.cache.idle().await;
        assert_eq!(scene.cache.stats().probes, 1);
        assert_eq!(scene.outcome(20 * MS, Mood::Fails).await.0, Outcome::Hit, "it is there");
    });
}

#[test]
fn refreshes_that_fail_are_throttled_and_those_that_are_refused_are_not_counted() {
    let swr =
        Strategy { ttl: Some(SEC), swr: 1_000 * SEC, throttle: SEC, ..Strategy::preset("swr").unwrap() };
    let scene = Scene::new(swr.clone());
    scene.run(async {
        scene.ask(1, 20 * MS, Mood::Well).await.0.unwrap();
        for step in 0..100 {
            scene.until(2 * SEC + step * 50 * MS).await;
            assert_eq!(scene.outcome(20 * MS, Mood::Fails).await, (Outcome::Stale, Duration::ZERO));
        }
        assert_eq!(scene.loads(), 1 + 5, "one a second, for five seconds");
    });
    let scene = Scene::new(Strategy { breaker: Some(Breaker { ramp: 1_000 * SEC, ..fragile() }), ..swr });
    scene.run(async {
        scene.ask(1, MS, Mood::Well).await.0.unwrap();
        scene.ask(2, MS, Mood::Fails).await.0.unwrap_err();
        scene.until(3 * SEC).await;
        scene.ask(3, MS, Mood::Well).await.0.unwrap();
        let before = scene.loads();
        for _ in 0..100 {
            scene.ask(1, MS, Mood::Well).await.0.unwrap();
        }
        scene.cache.idle().await;
        assert_eq!(scene.cache.stats().refreshes_swr, scene.loads() - before);
    });
}

/// 100 keys asked for 1,000 times a second; the source dies for a minute.
#[test]
fn a_breaker_leaves_a_dead_source_alone_and_lets_the_herd_back_in_by_its_ramp() {
    let breaker = Breaker {
        errors_rate: 0.5,
        period: 2 * SEC,
        min_calls: 10,
        open_for: 5 * SEC,
        probes: 2,
        ramp: 10 * SEC,
    };
    let strategy = Strategy { sie: 600 * SEC, ttl: Some(SEC), breaker: Some(breaker), ..fallback() };
    let scene = Scene::new(strategy);
    let (dies, returns, ends) = (30 * SEC, 90 * SEC, 150 * SEC);
    let loads_at = |scene: &Scene| scene.loads();
    let (before, dead, back, per_second) = scene.run(async {
        let mut per_second: Vec<u64> = Vec::new();
        let (mut before, mut dead) = (0, 0);
        for ms in 0..u32::try_from(ends.as_millis()).unwrap() {
            scene.until(ms * MS).await;
            let at = ms * MS;
            if at == dies {
                before = loads_at(&scene);
            }
            if at == returns {
                dead = loads_at(&scene);
            }
            if ms % 1_000 == 0 {
                per_second.push(loads_at(&scene));
            }
            let mood = if (dies..returns).contains(&at) { Mood::Fails } else { Mood::Well };
            let asking = scene.clone();
            scene.time.spawn(async move {
                let (answer, waited) = asking.ask(ms % 100, 5 * MS, mood).await;
                assert!(answer.is_ok(), "at {at:?}: {answer:?}");
                assert!(waited <= 5 * MS, "at {at:?}: {waited:?}");
            });
        }
        (before, dead, loads_at(&scene), per_second)
    });
    assert!(before > 2_000, "about 100 a second: {before}");
    // 60 s, open for 5 s each time: the probes of twelve half-openings.
    let most = u64::from(breaker.min_calls + 12 * breaker.probes);
    assert!(dead - before <= most, "{} loads of a dead source, {most} allowed", dead - before);
    assert!(dead - before >= u64::from(breaker.min_calls / 2 + 11));
    // It closes within open_for of the source's return, and then no more than the ramp allows: all 100 keys
    // want to be loaded at once.
    let loads_in = |second: usize| per_second[second + 1] - per_second[second];
    let closed = (90..97).find(|second| loads_in(*second) > 2).expect("it closes");
    for second in 0..5 {
        let wanted = 1_000.0;
        let share = (second as f64 + 1.0) / 10.0;
        assert!(
            loads_in(closed + second) as f64 <= wanted * share,
            "{second}: {}",
            loads_in(closed + second)
        );
    }
    assert!(back - dead > 2_000, "and it is as before");
    assert_eq!(scene.cache.breakers()[0].1, BreakerState::Closed);
}

#[test]
fn each_route_has_a_breaker_of_its_own() {
    let time = Virtual::new();
    let breaker = Breaker { min_calls: 2, ..Breaker::DEFAULT };
    let strategy = Strategy { breaker: Some(breaker), ..Strategy::preset("stampede").unwrap() };
    let cache: Cache<(&str, u32), u32, Virtual> =
        Cache::builder(strategy).route(|key: &(&str, u32)| key.0).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async {
        for key in 0..2 {
            let failed = cache.get_with(("bad", key), async || Err::<u32, _>("on purpose")).await;
            assert!(matches!(failed, Err(Error::Load(_))));
        }
        let refused = cache.get_with(("bad", 2), async || Ok::<_, Error>(1)).await;
        assert!(matches!(refused, Err(Error::BreakerOpen)), "{refused:?}");
        assert_eq!(cache.get_with(("good", 2), async || Ok::<_, Error>(1)).await.unwrap().value, 1);
        let states: Vec<_> = cache.breakers();
        let state = |route: &str| states.iter().find(|(name, _)| name == route).map(|(_, state)| *state);
        assert_eq!((state("bad"), state("good")), (Some(BreakerState::Open), Some(BreakerState::Closed)));
        assert_eq!(cache.stats().loads_refused, 1);
        for route in 0..5_000 {
            let name: &'static str = format!("route {route}").leak();
            cache.get_with((name, 0), async || Ok::<_, Error>(1)).await.unwrap();
        }
        assert_eq!(cache.breakers().len(), 1_025, "names from requests do not fill the memory");
    })
    .unwrap();
}
