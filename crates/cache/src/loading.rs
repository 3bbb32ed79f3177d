//! A cache with the function that loads its values.

use std::{borrow::Borrow, fmt, future::Future, hash::Hash, pin::Pin, sync::Arc};

use stockade_model::time::{Live, Runtime};

use crate::{answer::Answer, cache::Cache, engine::loader::BoxError, error::Error};

type BoxLoad<V> = Pin<Box<dyn Future<Output = Result<V, BoxError>> + Send>>;
type LoadFn<K, V> = dyn Fn(K) -> BoxLoad<V> + Send + Sync;

/// A [`Cache`] with the function that loads its values: [`Cache::loading`]. Clones share both.
pub struct LoadingCache<K: Hash + Eq + Clone, V: Clone, R: Runtime = Live> {
    cache: Cache<K, V, R>,
    load: Arc<LoadFn<K, V>>,
}

impl<K, V, R> LoadingCache<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    pub(crate) fn new<L, F, E>(cache: Cache<K, V, R>, load: L) -> Self
    where
        L: Fn(K) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let load = move |key| {
            let loaded = load(key);
            let boxed: BoxLoad<V> = Box::pin(async move { loaded.await.map_err(Into::into) });
            boxed
        };
        Self { cache, load: Arc::new(load) }
    }

    /// The cache itself, which also takes other loads.
    #[must_use]
    pub fn cache(&self) -> &Cache<K, V, R> {
        &self.cache
    }

    /// The value of `key`: as [`Cache::get_with_by_ref`].
    pub async fn get<Q>(&self, key: &Q) -> Result<Answer<V>, Error>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + Sync + ?Sized,
    {
        if let Some(answer) = self.cache.hit(key) {
            return Ok(answer);
        }
        let (load, key): (_, K) = (Arc::clone(&self.load), key.to_owned().into());
        self.cache.get_with(key.clone(), move || load(key)).await
    }

    /// Loads the value of `key` anew: as [`Cache::refresh`].
    pub async fn refresh<Q>(&self, key: &Q) -> Result<Answer<V>, Error>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + Sync + ?Sized,
    {
        let (load, key): (_, K) = (Arc::clone(&self.load), key.to_owned().into());
        self.cache.refresh(key.clone(), move || load(key)).await
    }
}

impl<K: Hash + Eq + Clone, V: Clone, R: Runtime> Clone for LoadingCache<K, V, R> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), load: Arc::clone(&self.load) }
    }
}

impl<K: Hash + Eq + Clone, V: Clone, R: Runtime> fmt::Debug for LoadingCache<K, V, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingCache").finish_non_exhaustive()
    }
}
