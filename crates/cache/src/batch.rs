//! Loads of many keys with one call of the source.
//!
//! A [`BatchLoader`] turns a function that loads many keys into one that loads a single key, for
//! [`get_with`](crate::Cache::get_with). So every rule for loads holds for each key of a batch: one load in flight, the
//! breaker, the deadline, refreshes in the background.

pub(crate) mod join;

use std::{
    collections::VecDeque,
    future::Future,
    hash::Hash,
    mem,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime, Time, before},
};
use tokio::sync::oneshot;

use crate::{
    engine::loader::{BoxError, LoadFailure},
    error::Error,
    locks::{Lock, MutexGuard},
};

/// When the keys that wait are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// How long the first key of a batch waits for others. Zero: for as long as the runtime takes to run a task.
    pub window: Duration,
    /// Keys of one batch at most. A full one does not wait for the end of its window.
    pub keys_max: usize,
    /// Batches loaded at once at most. Further keys wait until one has ended.
    pub concurrent_max: usize,
}

impl Batching {
    /// A window of 2 ms, a thousand keys, four batches at once.
    pub const DEFAULT: Self = Self { window: Duration::from_millis(2), keys_max: 1_000, concurrent_max: 4 };
}

impl Default for Batching {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Gathers the keys that several callers need, and loads them together. Clones share the batches.
///
/// Made by [`Cache::batch_loader`](crate::Cache::batch_loader), and passed to
/// [`Cache::get_many_with`](crate::Cache::get_many_with).
pub struct BatchLoader<K, V, R: Runtime = Live>(Arc<Batches<K, V, R>>);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type LoadedKey<V> = Result<V, LoadFailure>;
type LoadedBatch<K, V> = Result<Vec<(K, LoadedKey<V>)>, LoadFailure>;
type LoadFn<K, V> = Box<dyn Fn(Vec<K>) -> BoxFuture<LoadedBatch<K, V>> + Send + Sync>;
/// The loads that wait for one key: one, unless the strategy does not coalesce.
type Receivers<V> = SmallVec<[oneshot::Sender<LoadedKey<V>>; 1]>;
type Waiting<K, V> = HashMap<K, Receivers<V>, FixedState>;

struct Batches<K, V, R> {
    runtime: R,
    batching: Batching,
    /// No load waits longer for its batch, so none is of use after it.
    deadline: Duration,
    load: LoadFn<K, V>,
    gathered: Lock<Gathered<K, V>>,
}

/// The keys that wait for a batch.
struct Gathered<K, V> {
    waiting: Waiting<K, V>,
    /// The keys of `waiting`, longest first.
    order: VecDeque<K>,
    /// Batches whose load has not ended.
    running: usize,
    /// The number of the current window. A timer of an earlier one does nothing.
    window: u64,
    /// The window has ended, and the keys wait for a running batch to end.
    is_due: bool,
}

/// Keys that are loaded together. If it is dropped, for instance because the load panicked, its keys fail and the next
/// batch starts.
struct Batch<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static, R: Runtime> {
    batches: Arc<Batches<K, V, R>>,
    keys: Vec<K>,
    receivers: Waiting<K, V>,
}

impl<K, V, R> BatchLoader<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    pub(crate) fn new<L, F, I, E>(
        runtime: R,
        seed: Seed,
        deadline: Duration,
        batching: Batching,
        load: L,
    ) -> Self
    where
        L: Fn(Vec<K>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<I, E>> + Send + 'static,
        I: IntoIterator<Item = (K, Result<V, E>)>,
        E: Into<BoxError>,
    {
        let load: LoadFn<K, V> = Box::new(move |keys| {
            let load = load(keys);
            Box::pin(async move {
                let values = load.await.map_err(LoadFailure::new)?;
                Ok(values.into_iter().map(|(key, value)| (key, value.map_err(LoadFailure::new))).collect())
            })
        });
        let Batching { window, keys_max, concurrent_max } = batching;
        let batching = Batching { window, keys_max: keys_max.max(1), concurrent_max: concurrent_max.max(1) };
        let gathered = Gathered {
            waiting: HashMap::with_hasher(FixedState::with_seed(seed.0)),
            order: VecDeque::new(),
            running: 0,
            window: 0,
            is_due: false,
        };
        Self(Arc::new(Batches { runtime, batching, deadline, load, gathered: Lock::new(gathered) }))
    }

    /// A load of one key as part of a batch, for [`Cache::get_with`](crate::Cache::get_with).
    pub fn one(&self, key: K) -> impl FnOnce() -> BoxFuture<Result<V, BoxError>> + Send + use<K, V, R> {
        let batches = Arc::clone(&self.0);
        move || {
            let value = batches.add(key);
            let lost = |_| Err(LoadFailure::from(Error::LeaderLost));
            Box::pin(async move { value.await.unwrap_or_else(lost).map_err(Into::into) })
        }
    }
}

impl<K, V, R> Batches<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Adds a key to the next batch.
    fn add(self: &Arc<Self>, key: K) -> oneshot::Receiver<LoadedKey<V>> {
        let (sender, receiver) = oneshot::channel();
        let mut gathered = self.gathered.lock();
        let is_first = gathered.order.is_empty();
        let Gathered { waiting, order, .. } = &mut *gathered;
        let add_key = |key: &K| {
            order.push_back(key.clone());
            Receivers::new()
        };
        waiting.entry(key).or_insert_with_key(add_key).push(sender);
        if gathered.order.len() >= self.batching.keys_max {
            gathered.is_due = true;
            self.start_next(gathered);
        } else if is_first && !gathered.is_due {
            let (batches, window) = (Arc::downgrade(self), gathered.window);
            let end = self.runtime.now() + self.batching.window;
            drop(gathered);
            self.runtime.spawn(end_window(batches, window, end, self.runtime.clone()));
        }
        receiver
    }

    /// Starts the next batch, if it is due and may run.
    fn start_next(self: &Arc<Self>, mut gathered: MutexGuard<'_, Gathered<K, V>>) {
        if !gathered.is_due || gathered.running >= self.batching.concurrent_max {
            return;
        }
        let hasher = gathered.waiting.hasher().clone();
        let (mut keys, mut receivers) = (Vec::new(), Waiting::with_hasher(hasher));
        while keys.len() < self.batching.keys_max
            && let Some(key) = gathered.order.pop_front()
        {
            let Some(mut loads) = gathered.waiting.remove(&key) else { continue };
            // A load that was cancelled at its deadline needs no value.
            loads.retain(|load| !load.is_closed());
            if !loads.is_empty() {
                keys.push(key.clone());
                receivers.insert(key, loads);
            }
        }
        gathered.is_due = !gathered.order.is_empty();
        gathered.window += 1;
        if keys.is_empty() {
            return;
        }
        gathered.running += 1;
        drop(gathered);
        let batch = Batch { batches: Arc::clone(self), keys, receivers };
        self.runtime.spawn(batch.run());
    }
}

/// Makes the batch of a window due at its end.
async fn end_window<K, V, R>(batches: Weak<Batches<K, V, R>>, window: u64, end: Time, runtime: R)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    if end > runtime.now() {
        runtime.sleep_until(end).await;
    }
    let Some(batches) = batches.upgrade() else { return };
    let mut gathered = batches.gathered.lock();
    if gathered.window != window {
        return;
    }
    gathered.is_due = true;
    batches.start_next(gathered);
}

impl<K, V, R> Batch<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    async fn run(mut self) {
        let Batches { runtime, deadline, load, .. } = &*self.batches;
        let load = load(mem::take(&mut self.keys));
        let loaded = before(runtime, runtime.now() + *deadline, load).await;
        let failure = match loaded {
            Some(Ok(values)) => {
                for (key, value) in values {
                    if let Some(receivers) = self.receivers.remove(&key) {
                        answer(receivers, &value);
                    }
                }
                Error::NotInBatch.into()
            }
            Some(Err(failure)) => failure,
            None => Error::Deadline { after: *deadline }.into(),
        };
        for (_, receivers) in mem::take(&mut self.receivers) {
            answer(receivers, &Err(failure.clone()));
        }
    }
}

fn answer<V: Clone>(receivers: Receivers<V>, value: &LoadedKey<V>) {
    for receiver in receivers {
        // A load that was cancelled does not receive it.
        drop(receiver.send(value.clone()));
    }
}

impl<K, V, R> Drop for Batch<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn drop(&mut self) {
        let mut gathered = self.batches.gathered.lock();
        gathered.running -= 1;
        self.batches.start_next(gathered);
    }
}

impl<K, V, R: Runtime> Clone for BatchLoader<K, V, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V, R: Runtime> std::fmt::Debug for BatchLoader<K, V, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchLoader").field("batching", &self.0.batching).finish_non_exhaustive()
    }
}
