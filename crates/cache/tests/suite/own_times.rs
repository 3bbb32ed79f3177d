//! Entries with times of their own, and loads that validate the stored value, in virtual time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use stockade_cache::{
    Cache, CacheMode, Error, Insertion, Invalidation, Lifespan, LoadedValue, Outcome, Strategy, Validated,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

type TestedCache = Cache<u8, u32, Virtual>;

const SECOND: Duration = Duration::from_secs(1);

fn run(strategy: Strategy, test: impl AsyncFnOnce(Virtual, TestedCache)) {
    let time = Virtual::new();
    let cache = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    time.run(test(time.clone(), cache)).unwrap();
}

fn stampede() -> Strategy {
    Strategy::preset("stampede").unwrap()
}

/// Long enough after a moment for the coarse clock to have passed it.
async fn pass(time: &Virtual, duration: Duration) {
    time.sleep_until(time.now() + duration).await;
}

#[test]
fn an_entry_expires_where_the_strategy_has_no_ttl() {
    run(stampede(), async |time, cache| {
        assert_eq!(cache.insert(1, 10), Insertion::Stored);
        let lifespan = Lifespan { ttl: 10 * SECOND, ..Lifespan::NONE };
        assert_eq!(cache.insert_for(2, 20, lifespan), Insertion::Stored);
        assert_eq!(cache.insert_for(3, 30, Lifespan::NONE), Insertion::NotCacheable);
        pass(&time, 9 * SECOND).await;
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3)), (Some(10), Some(20), None));
        pass(&time, SECOND).await;
        assert_eq!((cache.get(&1), cache.get(&2)), (Some(10), None));
    });
}

#[test]
fn a_load_returns_the_times_of_its_value() {
    run(Strategy { ttl: Some(SECOND), ..stampede() }, async |time, cache| {
        let load = |ttl| {
            let lifespan = Some(Lifespan { ttl, ..Lifespan::NONE });
            async move |_| Ok::<_, Error>(LoadedValue { lifespan, ..LoadedValue::complete(1) })
        };
        cache.get_streaming(1, CacheMode::Default, load(60 * SECOND)).await.unwrap();
        cache.get_streaming(2, CacheMode::Default, load(SECOND / 2)).await.unwrap();
        let remainder = async |reservation| Ok((2_u32, reservation));
        let streamed = async move |reservation| {
            let lifespan = Some(Lifespan { ttl: 60 * SECOND, ..Lifespan::NONE });
            let remainder = Some(Box::pin(remainder(reservation)) as _);
            Ok::<_, Error>(LoadedValue { lifespan, remainder, ..LoadedValue::complete(1) })
        };
        cache.get_streaming(3, CacheMode::Default, streamed).await.unwrap();
        cache.wait_idle().await;
        pass(&time, SECOND * 3 / 4).await;
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3)), (Some(1), None, Some(2)));
        pass(&time, SECOND).await;
        assert_eq!((cache.get(&1), cache.get(&3)), (Some(1), Some(2)), "longer than the strategy's ttl");
    });
}

/// A source with a version, and the versions of the stored values that its loads have seen.
#[derive(Clone, Default)]
struct Source {
    version: Arc<Mutex<u32>>,
    seen: Arc<Mutex<Vec<Option<u32>>>>,
}

impl Source {
    async fn get(&self, cache: &TestedCache) -> Result<(u32, Outcome), Error> {
        let source = self.clone();
        let load = move |stored: Option<u32>| async move {
            source.seen.lock().unwrap().push(stored);
            let version = *source.version.lock().unwrap();
            Ok::<_, Error>(if stored == Some(version) {
                Validated::Unchanged
            } else {
                Validated::Changed(version)
            })
        };
        cache.get_validated(1, load).await.map(|answer| (answer.value, answer.outcome))
    }
}

#[test]
fn a_load_sees_the_stored_value_and_renews_it() {
    let strategy = Strategy { ttl: Some(10 * SECOND), swr: 10 * SECOND, sie: 100 * SECOND, ..stampede() };
    run(strategy, async |time, cache| {
        let source = Source::default();
        assert_eq!(source.get(&cache).await.unwrap(), (0, Outcome::Miss));
        assert_eq!(source.get(&cache).await.unwrap(), (0, Outcome::Hit));
        pass(&time, 15 * SECOND).await;
        assert_eq!(source.get(&cache).await.unwrap(), (0, Outcome::Stale));
        cache.wait_idle().await;
        pass(&time, 9 * SECOND).await;
        assert_eq!(source.get(&cache).await.unwrap(), (0, Outcome::Hit), "renewed for a ttl");
        pass(&time, 30 * SECOND).await;
        *source.version.lock().unwrap() = 1;
        assert_eq!(source.get(&cache).await.unwrap(), (1, Outcome::Miss));
        cache.invalidate(&1, Invalidation::Hard);
        assert_eq!(source.get(&cache).await.unwrap(), (1, Outcome::Miss));
        assert_eq!(*source.seen.lock().unwrap(), [None, Some(0), Some(0), None]);
    });
}

#[test]
fn nothing_is_validated_without_a_stored_value_or_against_an_invalidation() {
    let strategy = Strategy { ttl: Some(10 * SECOND), sie: 100 * SECOND, ..stampede() };
    run(strategy, async |time, cache| {
        let unchanged = async |_| Ok::<_, Error>(Validated::Unchanged);
        let error = cache.get_validated(1, unchanged).await.unwrap_err();
        assert_eq!(error.to_string(), "the load found the value unchanged, and none was stored");
        cache.insert(1, 7);
        pass(&time, 11 * SECOND).await;
        let slow = {
            let time = time.clone();
            move |_| async move {
                time.sleep_until(Time::ZERO + 20 * SECOND).await;
                Ok::<_, Error>(Validated::Unchanged)
            }
        };
        let validating = cache.get_validated(1, slow);
        let invalidating = async {
            pass(&time, SECOND).await;
            cache.invalidate(&1, Invalidation::Hard);
        };
        let (answer, ()) = futures_util::future::join(validating, invalidating).await;
        assert_eq!(answer.unwrap().value, 7, "it began before the invalidation");
        assert_eq!((cache.get(&1), cache.peek(&1).is_none()), (None, true), "and is not stored after it");
    });
}
