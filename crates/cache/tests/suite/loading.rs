//! Shorter ways to ask: by a borrowed key, with a loader that is attached, with the time that the load knows.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{Cache, Lifespan, Outcome, Strategy, Update, sync};

const MINUTE: Duration = Duration::from_secs(60);

fn strategy() -> Strategy {
    Strategy { ttl: Some(MINUTE), ..Strategy::default() }
}

#[tokio::test]
async fn borrowed_keys_are_enough() {
    let cache: Cache<String, u32> = Cache::new(strategy()).unwrap();
    let load = |value| async move || Ok::<_, io::Error>(value);
    assert_eq!(cache.get_with_by_ref("a", load(1)).await.unwrap().outcome, Outcome::Miss);
    let hit = cache.get_with_by_ref("a", load(2)).await.unwrap();
    assert_eq!((hit.value, hit.outcome), (1, Outcome::Hit));
    assert!(cache.contains_key("a") && !cache.contains_key("b"));
    let count = |stored: Option<&stockade_cache::StoredValue<u32>>| {
        Update::StoreInPlace(stored.map_or(10, |stored| stored.value + 1))
    };
    assert_eq!((cache.update("a", count), cache.update("b", count)), (Some(2), Some(10)));
    assert_eq!([cache.remove("a"), cache.remove("a")], [Some(2), None]);
    assert_eq!(cache.get("a"), None);
}

#[tokio::test]
async fn attached_loader_loads_each_key_once() {
    let cache: Cache<String, u32> = Cache::new(strategy()).unwrap();
    let loads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&loads);
    let numbers = cache.loading(move |key: String| {
        counted.fetch_add(1, Relaxed);
        async move { key.parse::<u32>() }
    });
    let answers = futures_util::future::join_all((0..10).map(|_| numbers.get("7"))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.value == 7)));
    assert_eq!(loads.load(Relaxed), 1);
    assert_eq!(numbers.clone().refresh("7").await.unwrap().value, 7);
    assert_eq!((loads.load(Relaxed), numbers.cache().get("7")), (2, Some(7)));
    let error = numbers.get("seven").await.unwrap_err();
    let of_load = error.of_load::<std::num::ParseIntError>().expect("the loader's error");
    assert_eq!(
        (error.to_string(), of_load.kind()),
        (of_load.to_string(), &std::num::IntErrorKind::InvalidDigit)
    );
    assert!(error.of_load::<io::Error>().is_none());
}

#[tokio::test]
async fn refresh_replaces_a_fresh_value_and_keeps_it_if_it_fails() {
    let cache: Cache<u32, u32> = Cache::new(strategy()).unwrap();
    cache.insert(1, 1);
    let refreshed = cache.refresh(1, async || Ok::<_, io::Error>(2)).await.unwrap();
    assert_eq!((refreshed.value, refreshed.outcome, cache.get(&1)), (2, Outcome::Miss, Some(2)));
    let kept = cache.refresh(1, async || Err::<u32, _>(io::Error::other("down"))).await.unwrap();
    assert_eq!((kept.value, kept.outcome, cache.get(&1)), (2, Outcome::Fallback, Some(2)));
}

#[tokio::test]
async fn load_tells_how_long_its_value_is_served() {
    let cache: Cache<u32, u32> = Cache::new(strategy()).unwrap();
    let for_secs = |secs| Lifespan { ttl: Duration::from_secs(secs), ..Lifespan::NONE };
    cache
        .get_with_lifespan(1, move || async move { Ok::<_, io::Error>((1, for_secs(3_600))) })
        .await
        .unwrap();
    let fresh_for = cache.peek(&1).unwrap().fresh_for;
    assert!(fresh_for > MINUTE && fresh_for <= Duration::from_secs(3_600), "{fresh_for:?}");
    let answer = cache.get_with_lifespan(2, async || Ok::<_, io::Error>((2, Lifespan::NONE))).await.unwrap();
    assert_eq!((answer.value, cache.peek(&2).is_none()), (2, true), "answered, and not stored");
}

#[test]
fn threads_have_the_same() {
    let cache: sync::Cache<String, u32> = sync::Cache::new(strategy()).unwrap();
    let load = |value| move || Ok::<_, io::Error>(value);
    assert_eq!(cache.get_with_by_ref("a", load(1)).unwrap().outcome, Outcome::Miss);
    assert_eq!(cache.get_with_by_ref("a", load(2)).unwrap().value, 1);
    assert_eq!(cache.refresh("a".to_owned(), load(3)).unwrap().value, 3);
    assert!(cache.contains_key("a"));
    assert_eq!([cache.remove("a"), cache.remove("a")], [Some(3), None]);
    let token = move || Ok::<_, io::Error>((5, Lifespan { ttl: 60 * MINUTE, ..Lifespan::NONE }));
    assert_eq!(cache.get_with_lifespan("t".to_owned(), token).unwrap().value, 5);
    assert!(cache.as_async().peek("t").unwrap().fresh_for > MINUTE);
}

/// A load that need not wait runs in its caller's task, so that a thread or a task of its own costs nothing.
#[tokio::test]
async fn load_begins_in_the_task_of_its_caller() {
    tokio::task_local! {
        static USER: u32;
    }
    let cache: Cache<u32, u32> = Cache::new(strategy()).unwrap();
    let request = USER.scope(7, cache.get_with(1, async || Ok::<_, io::Error>(USER.get())));
    assert_eq!(request.await.unwrap().value, 7);
    // It ends, though its caller does not wait for it.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    {
        let request = cache.get_with(2, move || receiver);
        let mut request = std::pin::pin!(request);
        assert!(futures_util::poll!(request.as_mut()).is_pending());
    }
    sender.send(2).unwrap();
    cache.wait_idle().await;
    assert_eq!(cache.get(&2), Some(2));
}
