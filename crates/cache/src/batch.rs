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
    breaker::LoadOutcome,
    engine::loader::{BoxError, LoadFailure, LoadFuture, LoadedValue, Loader},
    error::Error,
    locks::{Lock, MutexGuard},
    panics::catch_panic,
    store::Reservation,
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
    /// Keys that have entered the queue.
    added: u64,
    /// Batches whose load has not ended.
    running: usize,
    /// The number of the current window. A timer of an earlier one does nothing.
    window: u64,
    /// The end of the current window. Its timer may be on a runtime that stands still: the next key looks, too.
    window_ends: Time,
    /// The window has ended, and the keys wait for a running batch to end.
    is_due: bool,
}

/// The right to load batches, one after the other. [`Batches::concurrent_max`](Batching::concurrent_max) of them exist at most.
struct Runner<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static, R: Runtime> {
    batches: Arc<Batches<K, V, R>>,
    first: Option<Batch<K, V>>,
    has_ended: bool,
}

/// Keys that are loaded together.
struct Batch<K, V> {
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
            added: 0,
            running: 0,
            window: 0,
            window_ends: Time::NEVER,
            is_due: false,
        };
        Self(Arc::new(Batches { runtime, batching, deadline, load, gathered: Lock::new(gathered) }))
    }

    /// A load of one key as part of a batch.
    pub(crate) fn one(&self, key: K) -> BatchedKey<K, V, R> {
        BatchedKey { batches: Arc::clone(&self.0), key }
    }
}

/// Loads one key as part of a batch.
pub(crate) struct BatchedKey<K, V, R> {
    batches: Arc<Batches<K, V, R>>,
    key: K,
}

impl<K, V, R> Loader<K, V> for BatchedKey<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn has_deadline(&self) -> bool {
        true
    }

    fn load(self: Box<Self>, _bytes: &dyn Fn() -> Reservation<K, V>) -> LoadFuture<K, V> {
        Box::pin(self.load_in_batch())
    }
}

impl<K, V, R> BatchedKey<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    async fn load_in_batch(self) -> Result<LoadedValue<K, V>, BoxError> {
        let Self { batches, key } = self;
        let queued_until = batches.runtime.now() + batches.deadline;
        let (number, mut value) = batches.add(key);
        let value = match before(&batches.runtime, queued_until, &mut value).await {
            Some(value) => value,
            // Its batch has as much time, unless its runtime stands still.
            None if batches.gathered.lock().has_left(number) => {
                let ends = queued_until + batches.deadline;
                before(&batches.runtime, ends, value)
                    .await
                    .unwrap_or_else(|| Ok(Err(timed_out(batches.deadline))))
            }
            None => {
                let error = Error::QueueTimeout { after: batches.deadline };
                return Err(LoadFailure { error, outcome: LoadOutcome::NotRun }.into());
            }
        };
        // Without an answer its task was dropped, by a runtime that shuts down.
        let lost = |_| Err(LoadFailure { error: Error::LeaderLost, outcome: LoadOutcome::NotRun });
        let value = value.unwrap_or_else(lost)?;
        Ok(LoadedValue::complete(value))
    }
}

impl<K, V, R> Batches<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Adds a key to the next batch. Returns its number in the queue, and the receiver of its value.
    fn add(self: &Arc<Self>, key: K) -> (u64, oneshot::Receiver<LoadedKey<V>>) {
        let (sender, receiver) = oneshot::channel();
        let now = self.runtime.now();
        let mut gathered = self.gathered.lock();
        let is_first = gathered.order.is_empty();
        let Gathered { waiting, order, added, .. } = &mut *gathered;
        let add_key = |key: &K| {
            order.push_back(key.clone());
            *added += 1;
            Receivers::new()
        };
        waiting.entry(key).or_insert_with_key(add_key).push(sender);
        let number = *added - 1;
        let has_passed = !is_first && now > gathered.window_ends;
        if gathered.order.len() >= self.batching.keys_max || has_passed {
            gathered.is_due = true;
            self.start_runner(gathered);
        } else if is_first && !gathered.is_due {
            let timer = WindowTimer { batches: Arc::downgrade(self), window: gathered.window };
            let end = now + self.batching.window;
            gathered.window_ends = end;
            drop(gathered);
            self.runtime.spawn(timer.run(end, self.runtime.clone()));
        }
        (number, receiver)
    }

    /// Starts a task with the batch that is due, unless as many run as may.
    fn start_runner(self: &Arc<Self>, mut gathered: MutexGuard<'_, Gathered<K, V>>) {
        if !gathered.is_due || gathered.running >= self.batching.concurrent_max {
            return;
        }
        let first = gathered.take_batch(self.batching.keys_max);
        if first.keys.is_empty() {
            return;
        }
        gathered.running += 1;
        // Without the lock: a runtime that has shut down drops the runner at once.
        drop(gathered);
        let runner = Runner { batches: Arc::clone(self), first: Some(first), has_ended: false };
        self.runtime.spawn(runner.run());
    }

    /// Fails the loads that wait, in the place of a task that a runtime has dropped.
    fn abandon(&self, is_last: impl FnOnce(&mut Gathered<K, V>) -> bool) {
        let mut gathered = self.gathered.lock();
        if !is_last(&mut gathered) {
            return;
        }
        gathered.is_due = false;
        gathered.window += 1;
        gathered.order.clear();
        let waiting = mem::take(&mut gathered.waiting);
        drop(gathered);
        // Wakes the loads.
        drop(waiting);
    }
}

impl<K: Hash + Eq + Clone, V> Gathered<K, V> {
    /// True if the key with this number waits for no batch any more.
    fn has_left(&self, number: u64) -> bool {
        number + (self.order.len() as u64) < self.added
    }

    fn take_batch(&mut self, keys_max: usize) -> Batch<K, V> {
        let hasher = self.waiting.hasher().clone();
        let (mut keys, mut receivers) = (Vec::new(), Waiting::with_hasher(hasher));
        while keys.len() < keys_max
            && let Some(key) = self.order.pop_front()
        {
            let Some(mut loads) = self.waiting.remove(&key) else { continue };
            // A load that was cancelled at its deadline needs no value.
            loads.retain(|load| !load.is_closed());
            if !loads.is_empty() {
                keys.push(key.clone());
                receivers.insert(key, loads);
            }
        }
        self.is_due = !self.order.is_empty();
        self.window += 1;
        Batch { keys, receivers }
    }
}

/// Makes the batch of a window due at its end.
struct WindowTimer<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static, R: Runtime>
{
    batches: Weak<Batches<K, V, R>>,
    window: u64,
}

impl<K, V, R> WindowTimer<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    async fn run(self, end: Time, runtime: R) {
        if end > runtime.now() {
            runtime.sleep_until(end).await;
        }
        let Some(batches) = self.batches.upgrade() else { return };
        let mut gathered = batches.gathered.lock();
        if gathered.window == self.window {
            gathered.is_due = true;
            batches.start_runner(gathered);
        }
    }
}

impl<K, V, R> Drop for WindowTimer<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn drop(&mut self) {
        if let Some(batches) = self.batches.upgrade() {
            batches.abandon(|gathered| gathered.window == self.window && !gathered.is_due);
        }
    }
}

impl<K, V, R> Runner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    async fn run(mut self) {
        while let Some(batch) = self.first.take().or_else(|| self.next_batch()) {
            self.load(batch).await;
        }
    }

    /// Takes the next batch. `None`: none is due, and the runner has ended.
    fn next_batch(&mut self) -> Option<Batch<K, V>> {
        let mut gathered = self.batches.gathered.lock();
        while gathered.is_due {
            let batch = gathered.take_batch(self.batches.batching.keys_max);
            if !batch.keys.is_empty() {
                return Some(batch);
            }
        }
        gathered.running -= 1;
        self.has_ended = true;
        None
    }

    /// A panic of the load fails its keys, and no others.
    async fn load(&self, Batch { keys, mut receivers }: Batch<K, V>) {
        let Batches { runtime, deadline, load, .. } = &*self.batches;
        let load = catch_panic(async { load(keys).await });
        let failure = match before(runtime, runtime.now() + *deadline, load).await {
            Some(Ok(Ok(values))) => {
                for (key, value) in values {
                    if let Some(receivers) = receivers.remove(&key) {
                        answer(receivers, &value);
                    }
                }
                Error::NotInBatch.into()
            }
            Some(Ok(Err(failure))) => failure,
            Some(Err(panic)) => panic.error().into(),
            None => Error::Deadline { after: *deadline }.into(),
        };
        for (_, receivers) in receivers {
            answer(receivers, &Err(failure.clone()));
        }
    }
}

/// A runtime that shuts down drops its runners. The keys of their batches fail, and those that wait, too, if no runner is left. No task
/// is started here.
impl<K, V, R> Drop for Runner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn drop(&mut self) {
        if !self.has_ended {
            self.batches.abandon(|gathered| {
                gathered.running -= 1;
                gathered.running == 0 && gathered.is_due
            });
        }
    }
}

fn timed_out(after: Duration) -> LoadFailure {
    LoadFailure { error: Error::Deadline { after }, outcome: LoadOutcome::TimedOut }
}

fn answer<V: Clone>(receivers: Receivers<V>, value: &LoadedKey<V>) {
    for receiver in receivers {
        // A load that was cancelled does not receive it.
        drop(receiver.send(value.clone()));
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
