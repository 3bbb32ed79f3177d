//! The cache as a layer of a tower stack.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::future::join_all;
use stockade_cache::{Cache, CacheLayer, Outcome, Strategy};
use tower::{Layer, Service, ServiceExt, service_fn};

#[tokio::test]
async fn service_is_called_once_per_herd_and_for_each_request_without_key() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let service = service_fn(move |request: (u32, bool)| {
        let call = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::task::yield_now().await;
            if request.0 == 13 { Err("no luck") } else { Ok(call) }
        }
    });
    let cache: Cache<u32, u64> = Cache::new(Strategy::preset("stampede").unwrap()).unwrap();
    let cached =
        CacheLayer::new(cache, |request: &(u32, bool)| request.1.then_some(request.0)).layer(service);

    let herd = (0..1_000).map(|_| cached.clone().oneshot((1, true)));
    let answers = join_all(herd).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().value == 0));
    assert_eq!(calls.load(Ordering::Relaxed), 1);

    let bypassed = cached.clone().call((1, false)).await.unwrap();
    assert_eq!((bypassed.outcome, bypassed.value), (Outcome::Bypass, 1));
    assert_eq!(cached.clone().call((1, true)).await.unwrap().outcome, Outcome::Hit);
    for has_key in [true, false] {
        let error = cached.clone().call((13, has_key)).await.unwrap_err();
        assert_eq!(error.to_string(), "no luck");
    }
}
