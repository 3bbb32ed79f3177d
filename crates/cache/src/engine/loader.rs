//! A caller's function that loads a value, whole or as a stream.

use std::{future::Future, hash::Hash, num::NonZeroU64, pin::Pin};

use crate::{breaker::LoadOutcome, error::Error, freshness::Lifespan, store::Reservation};

/// The stored values that a request accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Stored values are served as the strategy says.
    #[default]
    Default,
    /// The request is answered by a load that ends after the request started. If the load fails, a stored value is
    /// served as a [fallback](stockade_model::outcome::Outcome::Fallback). (The `reload` cache mode of the Fetch
    /// standard.)
    Reload,
}

/// What a request asks of [`Cache::get_streaming`](crate::Cache::get_streaming). A [`CacheMode`] alone is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// The stored values that it accepts.
    pub mode: CacheMode,
    /// A number for its client, such as the prefix of an address. The failed loads of one client do not open a
    /// [breaker](crate::Breaker) for others. `None` if it is not known.
    pub client: Option<NonZeroU64>,
}

impl From<CacheMode> for RequestOptions {
    fn from(mode: CacheMode) -> Self {
        Self { mode, client: None }
    }
}

/// The result of the `load` function of [`Cache::get_streaming`](crate::Cache::get_streaming): a value that can be
/// served, and the future of what is still being received.
pub struct LoadedValue<K: Hash + Eq + Clone, V: Clone> {
    /// The value that waiting callers receive.
    pub value: V,
    /// How long it is served. `None`: the [lifespan](crate::Builder::lifespan) that the value defines, else the strategy's times.
    pub lifespan: Option<Lifespan>,
    /// Resolves to the value to store and the bytes reserved for it, once everything has been received. `None`:
    /// `value` is complete and is stored itself. An error fails the load: nothing is stored, although callers
    /// were answered with `value`.
    pub remainder: Option<Remainder<K, V>>,
    /// The bytes reserved for `value`, if there is no remainder.
    pub reservation: Option<Reservation<K, V>>,
    /// True if the source failed even though there is a value, such as a response with status 503. The breaker
    /// counts the load as failed.
    pub is_failure: bool,
    /// True if the value only answers the callers that wait for it: it is not stored and replaces nothing.
    pub is_transient: bool,
    /// True if the source was contacted. If not, the breaker does not count the load.
    pub is_from_source: bool,
}

/// Resolves to the complete value of a load and the bytes reserved for it.
pub type Remainder<K, V> = Pin<Box<dyn Future<Output = Result<(V, Reservation<K, V>), BoxError>> + Send>>;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a load that tells nothing about its source, for instance that this process has no file descriptors
/// left. The breaker does not count the load. Requests receive the inner error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WithoutSource(pub BoxError);

/// The error of a load that its source has not answered in time. The breaker counts the load as failed only if the source has
/// answered no other load since it started. Requests receive the inner error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SourceTimeout(pub BoxError);

/// How a load failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct LoadFailure {
    pub(crate) error: Error,
    /// What it tells about the source.
    pub(crate) outcome: LoadOutcome,
}

impl LoadFailure {
    /// The failure of a loader that returned this error.
    pub(crate) fn new(error: impl Into<BoxError>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(failure) => return *failure,
            Err(error) => error,
        };
        let (error, outcome) = match error.downcast::<WithoutSource>() {
            Ok(without_source) => (without_source.0, LoadOutcome::NotRun),
            Err(error) => match error.downcast::<SourceTimeout>() {
                Ok(timeout) => (timeout.0, LoadOutcome::TimedOut),
                Err(error) => (error, LoadOutcome::Failed),
            },
        };
        Self { error: Error::Load(error.into()), outcome }
    }
}

impl From<Error> for LoadFailure {
    fn from(error: Error) -> Self {
        Self { error, outcome: LoadOutcome::Failed }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> LoadedValue<K, V> {
    /// A value that was received completely and is to be stored.
    #[must_use]
    pub fn complete(value: V) -> Self {
        Self {
            value,
            lifespan: None,
            remainder: None,
            reservation: None,
            is_failure: false,
            is_transient: false,
            is_from_source: true,
        }
    }

    /// A complete value for the callers that wait. It is not stored, and a stored value stays.
    #[must_use]
    pub fn transient(value: V) -> Self {
        Self { is_transient: true, ..Self::complete(value) }
    }

    /// A [transient](Self::transient) value that was made without contacting the source.
    #[must_use]
    pub fn without_source(value: V) -> Self {
        Self { is_from_source: false, ..Self::transient(value) }
    }
}

impl<K: Hash + Eq + Clone, V: Clone + std::fmt::Debug> std::fmt::Debug for LoadedValue<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { value, remainder, is_failure, is_transient, .. } = self;
        f.debug_struct("LoadedValue")
            .field("value", value)
            .field("has_remainder", &remainder.is_some())
            .field("is_failure", is_failure)
            .field("is_transient", is_transient)
            .finish()
    }
}

/// Loads the value of one key. It is boxed when its load starts, so that the engine is compiled once, not for each caller's function.
pub(crate) trait Loader<K: Hash + Eq + Clone, V: Clone>: Send + 'static {
    /// True if bytes for the value are reserved before the load starts.
    fn reserves_bytes(&self) -> bool {
        true
    }

    /// True if it has bounds of its own: one for the time in its queue, and the strategy's deadline for the source.
    fn has_deadline(&self) -> bool {
        false
    }

    /// The client of the request, if it is known.
    fn client(&self) -> Option<NonZeroU64> {
        None
    }

    fn load(self: Box<Self>, bytes: &dyn Fn() -> Reservation<K, V>) -> LoadFuture<K, V>;
}

/// A load in progress.
pub(crate) type LoadFuture<K, V> = Pin<Box<dyn Future<Output = Result<LoadedValue<K, V>, BoxError>> + Send>>;

/// The loader of a request until its load starts.
pub(crate) trait UnstartedLoader<K: Hash + Eq + Clone, V: Clone> {
    fn is_taken(&self) -> bool;
    /// `None`: the client is not known, or the load has started.
    fn client(&self) -> Option<NonZeroU64>;
    fn take(&mut self) -> Option<Box<dyn Loader<K, V>>>;
}

impl<K: Hash + Eq + Clone, V: Clone, L: Loader<K, V>> UnstartedLoader<K, V> for Option<L> {
    fn is_taken(&self) -> bool {
        self.is_none()
    }

    fn client(&self) -> Option<NonZeroU64> {
        self.as_ref().and_then(Loader::client)
    }

    fn take(&mut self) -> Option<Box<dyn Loader<K, V>>> {
        Some(Box::new(self.take()?))
    }
}

/// A function that returns the complete value.
pub(crate) struct ValueLoader<L>(pub(crate) L);

/// A function that returns the complete value, and how long it is served.
pub(crate) struct LifespanLoader<L>(pub(crate) L);

/// A function that returns the beginning of a value and the future of the remainder.
pub(crate) struct StreamLoader<L> {
    pub(crate) load: L,
    pub(crate) client: Option<NonZeroU64>,
}

impl<K, V, L, F, E> Loader<K, V> for ValueLoader<L>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    fn load(self: Box<Self>, _bytes: &dyn Fn() -> Reservation<K, V>) -> LoadFuture<K, V> {
        let load = self.0();
        Box::pin(async move { load.await.map(LoadedValue::complete).map_err(Into::into) })
    }
}

impl<K, V, L, F, E> Loader<K, V> for LifespanLoader<L>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<(V, Lifespan), E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    fn load(self: Box<Self>, _bytes: &dyn Fn() -> Reservation<K, V>) -> LoadFuture<K, V> {
        let load = self.0();
        Box::pin(async move {
            let (value, lifespan) = load.await.map_err(Into::into)?;
            Ok(LoadedValue { lifespan: Some(lifespan), ..LoadedValue::complete(value) })
        })
    }
}

impl<K, V, L, F, E> Loader<K, V> for StreamLoader<L>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: FnOnce(Reservation<K, V>) -> F + Send + 'static,
    F: Future<Output = Result<LoadedValue<K, V>, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    fn reserves_bytes(&self) -> bool {
        false
    }

    fn client(&self) -> Option<NonZeroU64> {
        self.client
    }

    fn load(self: Box<Self>, bytes: &dyn Fn() -> Reservation<K, V>) -> LoadFuture<K, V> {
        let load = (self.load)(bytes());
        Box::pin(async move { load.await.map_err(Into::into) })
    }
}
