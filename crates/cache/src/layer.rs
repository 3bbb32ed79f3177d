//! A tower layer that caches responses.

use std::{
    future::{Future, poll_fn},
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use stockade_model::{
    outcome::Outcome,
    time::{Live, Runtime},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    answer::{Answer, Reason},
    cache::Cache,
    error::Error,
};

/// Answers requests from a cache. The inner service answers those that are missing.
///
/// `key` returns the key of a request; a request without one goes to the service ([`Outcome::Bypass`]). The layer is
/// generic over services whose responses can be cloned: rows, documents or HTTP responses. It is always ready: a
/// load waits until the service is ready, and other requests do not.
///
/// The response is an [`Answer`]. If outer layers need the plain response, put a `map_response` on top:
/// `.map_response(|answer: Answer<_>| answer.value)`.
///
/// ```
/// use stockade_cache::{Cache, CacheLayer, Outcome, Strategy};
/// use tower::{Service, ServiceBuilder, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache: Cache<u64, String> = Cache::new(Strategy::preset("breaker")?)?;
/// let mut users = ServiceBuilder::new()
///     .layer(CacheLayer::new(cache, |id: &u64| Some(*id)))
///     .service(service_fn(async |id: u64| Ok::<_, std::io::Error>(format!("user {id}"))));
///
/// assert_eq!(users.call(7).await?.outcome, Outcome::Miss);
/// let answer = users.call(7).await?;
/// assert_eq!((answer.value.as_str(), answer.outcome), ("user 7", Outcome::Hit));
/// # Ok(())
/// # }
/// ```
pub struct CacheLayer<K: Hash + Eq + Clone, V: Clone, F, R: Runtime = Live> {
    cache: Cache<K, V, R>,
    key: Arc<F>,
}

impl<K: Hash + Eq + Clone, V: Clone, F, R: Runtime> CacheLayer<K, V, F, R> {
    /// A layer that uses this cache.
    pub fn new<Request>(cache: Cache<K, V, R>, key: F) -> Self
    where
        F: Fn(&Request) -> Option<K>,
    {
        Self { cache, key: Arc::new(key) }
    }
}

impl<S, K: Hash + Eq + Clone, V: Clone, F, R: Runtime> Layer<S> for CacheLayer<K, V, F, R> {
    type Service = CacheService<S, K, V, F, R>;

    fn layer(&self, service: S) -> Self::Service {
        CacheService { service, cache: self.cache.clone(), key: Arc::clone(&self.key) }
    }
}

/// The service of a [`CacheLayer`].
pub struct CacheService<S, K: Hash + Eq + Clone, V: Clone, F, R: Runtime = Live> {
    service: S,
    cache: Cache<K, V, R>,
    key: Arc<F>,
}

impl<S, K, V, F, R, Request> Service<Request> for CacheService<S, K, V, F, R>
where
    S: Service<Request, Response = V> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    F: Fn(&Request) -> Option<K>,
    R: Runtime,
    Request: Send + 'static,
{
    type Response = Answer<V>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer<V>, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let key = (self.key)(&request);
        let mut service = self.service.clone();
        let load = async move || {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        };
        let cache = self.cache.clone();
        Box::pin(async move {
            match key {
                Some(key) => cache.get_with(key, load).await,
                None => match load().await {
                    Ok(value) => Ok(Answer {
                        value,
                        outcome: Outcome::Bypass,
                        age: Duration::ZERO,
                        reason: Reason::NoKey,
                    }),
                    Err(error) => Err(Error::Load(Arc::from(error.into()))),
                },
            }
        })
    }
}

impl<K: Hash + Eq + Clone, V: Clone, F, R: Runtime> Clone for CacheLayer<K, V, F, R> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), key: Arc::clone(&self.key) }
    }
}

impl<S: Clone, K: Hash + Eq + Clone, V: Clone, F, R: Runtime> Clone for CacheService<S, K, V, F, R> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), cache: self.cache.clone(), key: Arc::clone(&self.key) }
    }
}
