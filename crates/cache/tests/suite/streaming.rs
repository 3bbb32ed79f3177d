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
    Completes,
    Breaks,
    Hangs,
    Panics,
    IsTooLarge,
}

type Pages = Cache<u32, Page, Virtual>;

#[derive(Clone)]
struct Fixture {
    time: Virtual,
    cache: Pages,
    loads: Arc<AtomicU64>,
    lifespan: Option<Lifespan>,
}

impl Fixture {
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
    async fn request(&self, key: u32, mode: CacheMode, end: End) -> Result<Answer<Page>, Error> {
        let (time, lifespan) = (self.time.clone(), self.lifespan);
        let version = self.loads.clone();
        let load = async move |mut reservation: Reservation<u32, Page>| {
            let version = version.fetch_add(1, Relaxed) + 1;
            time.sleep_until(time.now() + 10 * MS).await;
            let remainder = async move {
                let is_reserved = reservation.grow_to(if end == End::IsTooLarge { usize::MAX } else { 500 });
                time.sleep_until(time.now() + 40 * MS).await;
                match end {
                    End::Completes => Ok((Page { is_whole: true, version, lifespan }, reservation)),
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

    fn run(self, test: impl AsyncFnOnce(Self)) {
        let time = self.time.clone();
        time.run(test(self)).expect("no request hangs");
    }
}

#[test]
fn waiters_receive_the_beginning_and_the_complete_value_is_stored() {
    Fixture::preset("swr").run(async |fixture| {
        let early = join_all((0..100).map(|_| fixture.request(1, CacheMode::Default, End::Completes)));
        let answers = early.await;
        assert_eq!(fixture.time.now(), Time::ZERO + 10 * MS, "no caller waits for the rest");
        assert!(answers.iter().flatten().all(|answer| !answer.value.is_whole));
        let coalesced = answers.iter().flatten().filter(|answer| answer.outcome == Outcome::Coalesced);
        assert_eq!(coalesced.count(), 99);
        assert!(fixture.cache.is_empty() && fixture.cache.coalesced_loads() == 1);

        fixture.until(30 * MS).await;
        let between = fixture.request(1, CacheMode::Default, End::Completes).await.unwrap();
        assert_eq!((between.value.is_whole, between.outcome), (false, Outcome::Coalesced));

        fixture.until(51 * MS).await;
        let late = fixture.request(1, CacheMode::Default, End::Completes).await.unwrap();
        assert_eq!((late.value.is_whole, late.outcome, late.age), (true, Outcome::Hit, 41 * MS));
        assert_eq!((fixture.loads(), fixture.cache.stats().loads_answered), (1, 1));
    });
}

#[test]
fn incomplete_stream_is_a_failure_and_not_stored() {
    for end in [End::Breaks, End::Hangs, End::Panics] {
        let breaker = Breaker { min_calls: 1, ..Breaker::DEFAULT };
        let strategy = Strategy { breaker: Some(breaker), ..Strategy::preset("breaker").unwrap() };
        Fixture::new(strategy).run(async move |fixture| {
            let answer = fixture.request(1, CacheMode::Default, end).await.unwrap();
            assert_eq!((answer.value.is_whole, answer.outcome), (false, Outcome::Miss));
            assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Closed);
            fixture.cache.wait_idle().await;
            // A value that streams has been returned by then.
            let (failed, state) = match end {
                End::Hangs => (0, BreakerState::Closed),
                _ => (1, BreakerState::Open),
            };
            assert_eq!(fixture.cache.stats().loads_failed, failed, "{end:?}");
            assert_eq!(fixture.cache.breaker_states()[0].1, state, "{end:?}");
            assert!(fixture.cache.is_empty() && fixture.cache.coalesced_loads() == 0, "{end:?}");
            assert!(
                fixture.time.now() <= Time::ZERO + 11 * SEC,
                "a rest that hangs ends at the load's deadline"
            );
        });
    }
}

#[test]
fn stale_value_stays_when_a_stream_breaks_off() {
    let strategy = Strategy { ttl: Some(SEC), ..Strategy::preset("fallback").unwrap() };
    Fixture::new(strategy).run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.until(2 * SEC).await;
        let cut = fixture.request(1, CacheMode::Default, End::Breaks).await.unwrap();
        assert_eq!((cut.value.version, cut.outcome), (2, Outcome::Miss));
        fixture.cache.wait_idle().await;
        let after = fixture.request(1, CacheMode::Default, End::Completes).await.unwrap();
        assert_eq!((after.value.version, after.value.is_whole), (1, true));
        assert!(matches!(after.reason, Reason::Failed(Error::Throttled { .. })), "{:?}", after.reason);
    });
}

#[test]
fn invalidation_during_a_stream_prevents_its_store() {
    Fixture::preset("swr").run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.until(20 * MS).await;
        fixture.cache.invalidate_if(|key, _| *key == 1, Invalidation::Hard);
        let answer = fixture.request(1, CacheMode::Default, End::Completes).await.unwrap();
        assert_eq!((answer.value.version, answer.outcome), (2, Outcome::Miss));
        fixture.cache.wait_idle().await;
        let stored = fixture.cache.peek(&1).unwrap();
        assert_eq!((stored.value.version, fixture.cache.stats().stores_outdated), (2, 1));
    });
}

#[test]
fn streamed_bytes_count_and_large_values_are_not_stored() {
    let limit = Limit { max_object: Some(2_000), ..Limit::bytes(10_000) };
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("swr").unwrap() };
    Fixture::new(strategy).run(async |fixture| {
        let answers =
            join_all((0..20).map(|key| fixture.request(key, CacheMode::Default, End::Completes))).await;
        assert!(answers.iter().all(Result::is_ok));
        fixture.until(20 * MS).await;
        // Half of the limit is for streams in flight: ten rests of 500 bytes.
        assert_eq!(fixture.cache.byte_usage().unwrap().used, 5_000);
        fixture.cache.wait_idle().await;
        assert!(fixture.cache.byte_usage().unwrap().peak <= 10_000);

        drop(fixture.request(99, CacheMode::Default, End::IsTooLarge).await);
        fixture.cache.wait_idle().await;
        assert!(fixture.cache.peek(&99).is_none());
        assert!(fixture.cache.peek(&19).is_some());
    });
}

#[test]
fn lifespan_overrides_the_strategy() {
    let mut fixture = Fixture::preset("stampede");
    fixture.lifespan = Some(Lifespan { ttl: SEC, swr: SEC, sie: SEC, keep: SEC });
    fixture.run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.cache.wait_idle().await;
        let at = |after| 10 * MS + after;
        let held = |cache: &Pages| cache.peek(&1).map(|held| (held.fresh_for, held.servable_for));

        fixture.until(at(SEC / 2)).await;
        assert_eq!(held(&fixture.cache), Some((SEC / 2, 5 * SEC / 2)));
        fixture.until(at(7 * SEC / 2)).await;
        assert_eq!(held(&fixture.cache), Some((Duration::ZERO, Duration::ZERO)), "to be validated, no more");
        assert!(fixture.cache.get(&1).is_none());
        let answer = fixture.request(1, CacheMode::Default, End::Breaks).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Miss, 2));
        fixture.until(at(4 * SEC)).await;
        assert_eq!(held(&fixture.cache), None);
    });
    let mut fixture = Fixture::preset("swr");
    fixture.lifespan = Some(Lifespan::NONE);
    fixture.run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.cache.wait_idle().await;
        assert!(fixture.cache.is_empty(), "a value without a lifetime is not stored");
    });
}

#[test]
fn lifespan_defines_swr_and_sie() {
    let mut fixture = Fixture::preset("stampede");
    fixture.lifespan = Some(Lifespan { ttl: SEC, swr: SEC, sie: SEC, keep: Duration::ZERO });
    fixture.run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.until(3 * SEC / 2).await;
        assert_eq!(
            fixture.request(1, CacheMode::Default, End::Breaks).await.unwrap().outcome,
            Outcome::Stale
        );
        fixture.until(5 * SEC / 2).await;
        let load = async |_: Reservation<u32, Page>| Err::<LoadedValue<u32, Page>, _>("no route to host");
        let answer = fixture.cache.get_streaming(1, CacheMode::Default, load).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Fallback, 1));
        fixture.until(4 * SEC).await;
        assert!(
            fixture.cache.get_streaming(1, CacheMode::Default, load).await.is_err(),
            "the stale time has passed"
        );
    });
}

#[test]
fn reload_serves_a_stored_value_only_if_the_load_fails() {
    Fixture::preset("swr").run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.until(SEC).await;
        let answers = join_all((0..10).map(|_| fixture.request(1, CacheMode::Reload, End::Completes))).await;
        assert!(answers.iter().flatten().all(|answer| answer.value.version == 2));
        assert_eq!(fixture.loads(), 2, "one for all of them");
        assert!(matches!(answers[0].as_ref().unwrap().reason, Reason::Reload));
        fixture.cache.wait_idle().await;

        let load = async |_: Reservation<u32, Page>| Err::<LoadedValue<u32, Page>, _>("no route to host");
        let answer = fixture.cache.get_streaming(1, CacheMode::Reload, load).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Fallback, 2));
        let answer = fixture.request(1, CacheMode::Default, End::Completes).await.unwrap();
        assert_eq!((answer.outcome, answer.value.version), (Outcome::Hit, 2));
    });
}

#[test]
fn views_share_entries_and_loads_and_nothing_else() {
    Fixture::preset("stampede").run(async |fixture| {
        let strategy = Strategy {
            breaker: Some(Breaker { min_calls: 1, ..Breaker::DEFAULT }),
            ..Strategy::preset("breaker").unwrap()
        };
        let other = Fixture { cache: fixture.cache.view(&strategy, None).unwrap(), ..fixture.clone() };
        let both = [
            fixture.request(1, CacheMode::Default, End::Completes),
            other.request(1, CacheMode::Default, End::Completes),
        ];
        let outcomes = join_all(both).await;
        assert_eq!(outcomes[1].as_ref().unwrap().outcome, Outcome::Coalesced);
        other.cache.wait_idle().await;
        assert_eq!((fixture.loads(), other.cache.len()), (1, 1));
        assert_eq!((fixture.cache.stats().loads, other.cache.stats().loads), (1, 0));

        drop(other.request(2, CacheMode::Default, End::Breaks).await);
        other.cache.wait_idle().await;
        assert_eq!(other.cache.breaker_states()[0].1, BreakerState::Open);
        assert!(fixture.cache.breaker_states().is_empty());
        assert_eq!(
            fixture.request(2, CacheMode::Default, End::Completes).await.unwrap().outcome,
            Outcome::Miss
        );
    });
}

#[test]
fn transient_value_replaces_nothing() {
    Fixture::preset("swr").run(async |fixture| {
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.cache.wait_for_load(&1).await;
        let load = async |_: Reservation<u32, Page>| {
            let page = Page { is_whole: true, version: 9, lifespan: None };
            Ok::<_, std::io::Error>(LoadedValue::transient(page))
        };
        let answers = join_all((0..5).map(|_| fixture.cache.get_streaming(1, CacheMode::Reload, load))).await;
        assert!(answers.iter().flatten().all(|answer| answer.value.version == 9));
        assert_eq!(fixture.cache.peek(&1).unwrap().value.version, 1);
    });
}

#[test]
fn stream_overtaken_by_a_newer_value_is_not_stored() {
    let mut fixture = Fixture::preset("stampede");
    fixture.lifespan = Some(Lifespan { ttl: SEC, ..Lifespan::NONE });
    fixture.run(async |fixture| {
        // Its head arrives at 10 ms, its end at 50 ms.
        drop(fixture.request(1, CacheMode::Default, End::Completes).await);
        fixture.until(20 * MS).await;
        fixture.cache.insert(1, Page { is_whole: true, version: 7, lifespan: fixture.lifespan });
        fixture.cache.wait_idle().await;
        assert_eq!(fixture.cache.peek(&1).unwrap().value.version, 7);
    });
}

#[test]
fn value_marked_as_failure_opens_the_breaker() {
    let breaker = Breaker { min_calls: 1, ..Breaker::DEFAULT };
    let strategy = Strategy { breaker: Some(breaker), ..Strategy::preset("breaker").unwrap() };
    Fixture::new(strategy).run(async |fixture| {
        let load = async |_: Reservation<u32, Page>| {
            let page = Page { is_whole: true, version: 1, lifespan: None };
            Ok::<_, std::io::Error>(LoadedValue { is_failure: true, ..LoadedValue::complete(page) })
        };
        let answer = fixture.cache.get_streaming(1, CacheMode::Default, load).await.unwrap();
        assert_eq!((answer.outcome, fixture.cache.len()), (Outcome::Miss, 1));
        assert_eq!(fixture.cache.breaker_states()[0].1, BreakerState::Open);
    });
}
