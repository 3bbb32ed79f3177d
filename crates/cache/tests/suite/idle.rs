//! Entries that no request finds, in virtual time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use stockade_cache::{Builder, Cache, Limit, Outcome, RemovalReason, Strategy, Update};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

const SECOND: Duration = Duration::from_secs(1);

async fn pass(time: &Virtual, duration: Duration) {
    time.sleep_until(time.now() + duration).await;
}

#[test]
fn an_idle_entry_is_gone_and_a_request_keeps_one() {
    let (time, removed) = (Virtual::new(), Arc::new(Mutex::new(Vec::new())));
    let strategy = Strategy {
        limit: Some(Limit::entries(16)),
        ttl: Some(60 * SECOND),
        sie: 600 * SECOND,
        ..Strategy::preset("stampede").unwrap()
    };
    let heard = Arc::clone(&removed);
    let cache: Cache<u8, u32, Virtual> = Cache::builder(strategy)
        .time_to_idle(10 * SECOND)
        .on_removal(move |key, _, reason| heard.lock().unwrap().push((*key, reason)))
        .build_on(time.clone(), Seed(1))
        .unwrap();
    time.run(async {
        for key in 0..4 {
            cache.insert(key, u32::from(key));
        }
        for round in 0..5 {
            pass(&time, 9 * SECOND).await;
            assert_eq!(cache.get(&0), Some(0));
            assert!(cache.get_with(1, async || Ok::<_, std::io::Error>(9)).await.unwrap().value == 1);
            assert!(cache.peek(&2).is_some() == (round == 0), "a peek is not a request");
        }
        assert_eq!((cache.get(&2), cache.peek(&3).is_none(), cache.entries().count()), (None, true, 2));
        assert_eq!(cache.len(), 4, "stores remove them");
        // Each examines two slots.
        for key in 10..14 {
            cache.insert(key, 0);
        }
        let mut gone = std::mem::take(&mut *removed.lock().unwrap());
        gone.sort_by_key(|(key, _)| *key);
        assert_eq!(gone, [(2, RemovalReason::Expired), (3, RemovalReason::Expired)]);

        // A stale value is kept by requests that find it, and not served once it is idle.
        let fails = async || Err::<u32, _>(std::io::Error::other("no route to host"));
        pass(&time, 9 * SECOND).await;
        assert_eq!(cache.get(&0), Some(0));
        pass(&time, 9 * SECOND).await;
        let stale = cache.get_with(0, fails).await.unwrap();
        assert_eq!((stale.value, stale.outcome), (0, Outcome::Fallback));
        pass(&time, 11 * SECOND).await;
        assert!(cache.get_with(0, fails).await.is_err(), "idle");

        // An update is a request.
        cache.insert(7, 1);
        pass(&time, 6 * SECOND).await;
        assert_eq!(cache.update(&7, |_| Update::Keep), Some(1));
        pass(&time, 6 * SECOND).await;
        assert_eq!(cache.get(&7), Some(1));
    })
    .unwrap();
}

#[test]
fn an_idle_time_costs_bytes_and_must_not_be_zero() {
    let build = |idle: Option<Duration>| {
        let builder: Builder<u8, u32> = Cache::builder(Strategy::preset("stampede").unwrap());
        let builder = match idle {
            Some(idle) => builder.time_to_idle(idle),
            None => builder,
        };
        builder.build_on(Virtual::new(), Seed(1)).map(|cache| cache.entry_overhead_bytes())
    };
    assert_eq!(build(Some(SECOND)).unwrap(), build(None).unwrap() + 8);
    assert!(build(Some(Duration::ZERO)).unwrap_err().to_string().contains("Builder::time_to_idle"));
}
