//! Values that arrive in pieces, values with their own lifetime, and requests with another cache mode,
//! in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_cache::{
    Answer, Breaker, BreakerState, Cache, CacheMode, Error, Invalidation, Lifespan, Limit, LoadedValue,
    Outcome, Reason, Reservation, Strategy,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// The beginning of a value, and the complete value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Page {
    is_whole: bool,
    version: u64,
    lifespan: Option<Lifespan>,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Comes,
    Breaks,
    Hangs,
    Panics,
    IsTooLarge,
}

type Pages = Cache<u32, Page, Virtual>;

#[derive(Clone)]
struct Scene {
    time: Virtual,
    cache: Pages,
    loads: Arc<AtomicU64>,
    lifespan: Option<Lifespan>,
}

impl Scene {
    fn new(strategy: Strategy) -> Self {
        let time = Virtual::new();
        let cache = Cache::builder(strategy).weigh(|_, _| 1_000).lifespan(|page: &Page| page.lifespan);
        let cache = cache.build_on(time.clone(), Seed(1)).unwrap();
        Self { time, cache, loads: Arc::default(), lifespan: None }
    }

    fn preset(name: &str) -> Self {
        Self::new(Strategy::preset(name).unwrap())
    }

    /// A load with 10 ms for its head and 40 ms for the rest.
    async fn ask(&self, key: u32, mode: CacheMode, end: End) -> Result<Answer<Page>, Error> {
        let (time, lifespan) = (self.time.clone(), self.lifespan);
        let version = self.loads.clone();
        let load = async move |mut reservation: Reservation<u32, Page>| {
            let version = version.fetch_add(1, Relaxed) + 1;
            time.sleep_until(time.now() + 10 * MS).await;
            let remainder = async move {
                let is_reserved = reservation.grow(if end == End::IsTooLarge { usize::MAX } else { 500 });
                time.sleep_until(time.now() + 40 * MS).await;
                match end {
                    End::Comes => Ok((Page { is_whole: true, version, lifespan }, reservation)),
                    End::IsTooLarge => {
                        assert!(!is_reserved);
                        Ok((Page { is_whole: true, version, lifespan: Some(Lifespan::NONE) }, reservation))
                    }
                    End::Breaks => Err("connection reset".into()),
                    End::Hangs => std::future::pending().await,
                    End::Panics => panic!("on purpose"),
                }
            };
            let value = Page { is_whole: false, version, lifespan };
            Ok::<_, std::io::Error>(LoadedValue {
                remainder: Some(Box::pin(remainder)),
                ..LoadedValue::complete(value)
            })
        };
        self.cache.get_streaming(key, mode, load).await
    }

    async fn until(&self, at: Duration) {
        self.time.sleep_until(Time::ZERO + at).await;
    }

    fn loads(&self) -> u64 {
        self.loads.load(Relaxed)
    }

    fn run(self, story: impl AsyncFnOnce(Self)) {
        let time = self.time.clone();
        time.run(story(self)).expect("no request hangs");
    }
}

#[test]
fn waiters_receive_the_beginning_and_the_complete_value_is_stored() {
    Scene::preset("swr").run(async |scene| {
        let early = join_all((0..100).map(|_| scene.ask(1, CacheMode::Default, End::Comes)));
        let answers = early.await;
        assert_eq!(scene.time.now(), Time::ZERO + 10 * MS, "no caller waits for the rest");
        assert!(answers.iter().flatten().all(|answer| !answer.value.is_whole));
        let coalesced = answers.iter().flatten().filter(|answer| answer.outcome == Outcome::Coalesced);
        assert_eq!(coalesced.count(), 99);
        assert!(scene.cache.is_empty() && scene.cache.coalesced_loads() == 1);

        scene.until(30 * MS).await;
        let between = scene.ask(1, CacheMode::Default, End::Comes).await.unwrap();
        assert_eq!((between.value.is_whole, between.outcome), (false, Outcome::Coalesced));

        scene.until(51 * MS).await;
        let late = scene.ask(1, CacheMode::Default, End::Comes).await.unwrap();
        assert_eq!((late.value.is_whole, late.outcome, late.age), (true, Outcome::Hit, 41 * MS));
        assert_eq!((scene.loads(), scene.cache.stats().loads_answered), (1, 1));
    });
}

#[test]
fn incomplete_stream_is_a_failure_and_not_stored() {
    for end in [End::Breaks, End::Hangs, End::Panics] {
        let breaker = Breaker { min_calls: 1, ..Breaker::DEFAULT };
        let strategy = Strategy { breaker: Some(breaker), ..Strategy::preset("breaker").unwrap() };
        Scene::new(strategy).run(async move |scene| {
            let answer = scene.ask(1, CacheMode::Default, end).await.unwrap();
            assert_eq!((answer.value.is_whole, answer.outcome), (false, Outcome::Miss));
            assert_eq!(scene.cache.breaker_states()[0].1, BreakerState::Closed);
            scene.cache.wait_idle().await;
            // A value that streams has been returned by then.
            let (failed, state) = match end {
                End::Hangs => (0, BreakerState::Closed),
                _ => (1, BreakerState::Open),
            };
            assert_eq!(scene.cache.stats().loads_failed, failed, "{end:?}");
            assert_eq!(scene.cache.breaker_states()[0].1, state, "{end:?}");
            assert!(scene.cache.is_empty() && scene.cache.coalesced_loads() == 0, "{end:?}");
            assert!(
                scene.time.now() <= Time::ZERO + 11 * SEC,
                "a rest that hangs ends at the load's deadline"
            );
        });
    }
}

#[test]
fn stale_value_stays_when_a_stream_breaks_off() {
    let strategy = Strategy { ttl: Some(SEC), ..Strategy::preset("fallback").unwrap() };
    Scene::new(strategy).run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.until(2 * SEC).await;
        let cut = scene.ask(1, CacheMode::Default, End::Breaks).await.unwrap();
        assert_eq!((cut.value.version, cut.outcome), (2, Outcome::Miss));
        scene.cache.wait_idle().await;
        let after = scene.ask(1, CacheMode::Default, End::Comes).await.unwrap();
        assert_eq!((after.value.version, after.value.is_whole), (1, true));
        assert!(matches!(after.reason, Reason::Failed(Error::Throttled { .. })), "{:?}", after.reason);
    });
}

#[test]
fn invalidation_during_a_stream_prevents_its_store() {
    Scene::preset("swr").run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.until(20 * MS).await;
        scene.cache.invalidate_where(|key| *key == 1, Invalidation::Hard);
        let answer = scene.ask(1, CacheMode::Default, End::Comes).await.unwrap();
        assert_eq!((answer.value.version, answer.outcome), (2, Outcome::Miss));
        scene.cache.wait_idle().await;
        let stored = scene.cache.peek(&1).unwrap();
        assert_eq!((stored.value.version, scene.cache.stats().stores_outdated), (2, 1));
    });
}

#[test]
fn streamed_bytes_count_and_large_values_are_not_stored() {
    let limit = Limit { max_object: Some(2_000), ..Limit::bytes(10_000) };
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("swr").unwrap() };
    Scene::new(strategy).run(async |scene| {
        let answers = join_all((0..20).map(|key| scene.ask(key, CacheMode::Default, End::Comes))).await;
        assert!(answers.iter().all(Result::is_ok));
        scene.until(20 * MS).await;
        // Half of the limit is for streams in flight: ten rests of 500 bytes.
        assert_eq!(scene.cache.byte_usage().unwrap().used, 5_000);
        scene.cache.wait_idle().await;
        assert!(scene.cache.byte_usage().unwrap().peak <= 10_000);

        drop(scene.ask(99, CacheMode::Default, End::IsTooLarge).await);
        scene.cache.wait_idle().await;
        assert!(scene.cache.peek(&99).is_none());
        assert!(scene.cache.peek(&19).is_some());
    });
}

#[test]
fn lifespan_overrides_the_strategy() {
    let mut scene = Scene::preset("stampede");
    scene.lifespan = Some(Lifespan { ttl: SEC, swr: SEC, sie: SEC, keep: SEC });
    scene.run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.cache.wait_idle().await;
        let at = |after| 10 * MS + after;
        let held = |cache: &Pages| cache.peek(&1).map(|held| (held.fresh_for, held.servable_for));

        scene.until(at(SEC / 2)).await;
        assert_eq!(held(&scene.cache), Some((SEC / 2, 5 * SEC / 2)));
        scene.until(at(7 * SEC / 2)).await;
        assert_eq!(held(&scene.cache), Some((Duration::ZERO, Duration::ZERO)), "to be validated, no more");
        assert!(scene.cache.get(&1).is_none());
        let answer = scene.ask(1, CacheMode::Default, End::Breaks).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Miss, 2));
        scene.until(at(4 * SEC)).await;
        assert_eq!(held(&scene.cache), None);
    });
    let mut scene = Scene::preset("swr");
    scene.lifespan = Some(Lifespan::NONE);
    scene.run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.cache.wait_idle().await;
        assert!(scene.cache.is_empty(), "good for nothing");
    });
}

#[test]
fn lifespan_defines_swr_and_sie() {
    let mut scene = Scene::preset("stampede");
    scene.lifespan = Some(Lifespan { ttl: SEC, swr: SEC, sie: SEC, keep: Duration::ZERO });
    scene.run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.until(3 * SEC / 2).await;
        assert_eq!(scene.ask(1, CacheMode::Default, End::Breaks).await.unwrap().outcome, Outcome::Stale);
        scene.until(5 * SEC / 2).await;
        let load = async |_: Reservation<u32, Page>| Err::<LoadedValue<u32, Page>, _>("no route to host");
        let answer = scene.cache.get_streaming(1, CacheMode::Default, load).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Fallback, 1));
        scene.until(4 * SEC).await;
        assert!(scene.cache.get_streaming(1, CacheMode::Default, load).await.is_err(), "it is gone");
    });
}

#[test]
fn reload_serves_a_stored_value_only_if_the_load_fails() {
    Scene::preset("swr").run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.until(SEC).await;
        let asked = join_all((0..10).map(|_| scene.ask(1, CacheMode::Reload, End::Comes))).await;
        assert!(asked.iter().flatten().all(|answer| answer.value.version == 2));
        assert_eq!(scene.loads(), 2, "one for all of them");
        assert!(matches!(asked[0].as_ref().unwrap().reason, Reason::Reload));
        scene.cache.wait_idle().await;

        let load = async |_: Reservation<u32, Page>| Err::<LoadedValue<u32, Page>, _>("no route to host");
        let answer = scene.cache.get_streaming(1, CacheMode::Reload, load).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Fallback, 2));
        let answer = scene.ask(1, CacheMode::Default, End::Comes).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Hit, 2));
    });
}

#[test]
fn views_share_entries_and_loads_and_nothing_else() {
    Scene::preset("stampede").run(async |scene| {
        let strategy = Strategy {
            breaker: Some(Breaker { min_calls: 1, ..Breaker::DEFAULT }),
            ..Strategy::preset("breaker").unwrap()
        };
        let other = Scene { cache: scene.cache.view(&strategy, None).unwrap(), ..scene.clone() };
        let both =
            [scene.ask(1, CacheMode::Default, End::Comes), other.ask(1, CacheMode::Default, End::Comes)];
        let outcomes = join_all(both).await;
        assert_eq!(outcomes[1].as_ref().unwrap().outcome, Outcome::Coalesced);
        other.cache.wait_idle().await;
        assert_eq!((scene.loads(), other.cache.len()), (1, 1));
        assert_eq!((scene.cache.stats().loads, other.cache.stats().loads), (1, 0));

        drop(other.ask(2, CacheMode::Default, End::Breaks).await);
        other.cache.wait_idle().await;
        assert_eq!(other.cache.breaker_states()[0].1, BreakerState::Open);
        assert!(scene.cache.breaker_states().is_empty());
        assert_eq!(scene.ask(2, CacheMode::Default, End::Comes).await.unwrap().outcome, Outcome::Miss);
    });
}

#[test]
fn transient_value_replaces_nothing() {
    Scene::preset("swr").run(async |scene| {
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.cache.wait_for_load(&1).await;
        let load = async |_: Reservation<u32, Page>| {
            let page = Page { is_whole: true, version: 9, lifespan: None };
            Ok::<_, std::io::Error>(LoadedValue::transient(page))
        };
        let asked = join_all((0..5).map(|_| scene.cache.get_streaming(1, CacheMode::Reload, load))).await;
        assert!(asked.iter().flatten().all(|answer| answer.value.version == 9));
        assert_eq!(scene.cache.peek(&1).unwrap().value.version, 1);
    });
}

#[test]
fn stream_overtaken_by_a_newer_value_is_not_stored() {
    let mut scene = Scene::preset("stampede");
    scene.lifespan = Some(Lifespan { ttl: SEC, ..Lifespan::NONE });
    scene.run(async |scene| {
        // Its head arrives at 10 ms, its end at 50 ms.
        drop(scene.ask(1, CacheMode::Default, End::Comes).await);
        scene.until(20 * MS).await;
        scene.cache.insert(1, Page { is_whole: true, version: 7, lifespan: scene.lifespan });
        scene.cache.wait_idle().await;
        assert_eq!(scene.cache.peek(&1).unwrap().value.version, 7);
    });
}

#[test]
fn value_marked_as_failure_opens_the_breaker() {
    let breaker = Breaker { min_calls: 1, ..Breaker::DEFAULT };
    let strategy = Strategy { breaker: Some(breaker), ..Strategy::preset("breaker").unwrap() };
    Scene::new(strategy).run(async |scene| {
        let load = async |_: Reservation<u32, Page>| {
            let page = Page { is_whole: true, version: 1, lifespan: None };
            Ok::<_, std::io::Error>(LoadedValue { is_failure: true, ..LoadedValue::complete(page) })
        };
        let answer = scene.cache.get_streaming(1, CacheMode::Default, load).await.unwrap();
        assert_eq!((answer.outcome, scene.cache.len()), (Outcome::Miss, 1));
        assert_eq!(scene.cache.breaker_states()[0].1, BreakerState::Open);
    });
}
