//! Who performs stores: the load's own task, or one task with a mailbox.

use std::{hash::Hash, sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{
    answer::Error,
    busy::Busy,
    cache::{Landing, Loaded},
    flight::Slot,
    shard::Version,
    stats::Counters,
    store::Store,
    strategy,
};

/// A store to be performed. Dropped unperformed, it frees its key and gives its claim back.
pub(crate) struct Write<K: Hash + Eq + Clone, V: Clone> {
    pub(crate) key: K,
    pub(crate) loaded: Loaded<V>,
    pub(crate) claim: Option<Claim<K, V>>,
    pub(crate) slot: Option<Slot<K, Landing<V>>>,
    pub(crate) busy: Busy,
}

impl<K: Hash + Eq + Clone, V: Clone> Write<K, V> {
    fn perform(self, store: &Store<K, V>) {
        store.publish(self.key, self.loaded.value, self.loaded.expires);
        // Only then: whoever finds the key free has to find the value, too.
        drop((self.slot, self.claim, self.busy));
    }
}

/// The right to store the successor of one entry version. It ends with the store, or when dropped.
pub(crate) struct Claim<K: Hash + Eq + Clone, V: Clone> {
    store: Arc<Store<K, V>>,
    key: K,
    seen: Version,
}

impl<K: Hash + Eq + Clone, V: Clone> Claim<K, V> {
    pub(crate) fn take(store: &Arc<Store<K, V>>, key: &K, seen: Version) -> Option<Self> {
        store.claim(key, seen).then(|| Self { store: Arc::clone(store), key: key.clone(), seen })
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for Claim<K, V> {
    fn drop(&mut self) {
        self.store.unclaim(&self.key, self.seen);
    }
}

pub(crate) enum Writer<K: Hash + Eq + Clone, V: Clone> {
    Direct,
    Mailbox { letters: mpsc::Sender<Letter<K, V>>, call_timeout: Duration },
}

/// A write, and whom to tell when it is done.
pub(crate) struct Letter<K: Hash + Eq + Clone, V: Clone> {
    write: Write<K, V>,
    done: Option<oneshot::Sender<()>>,
}

impl<K, V> Writer<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new<R: Runtime>(how: strategy::Writer, store: &Arc<Store<K, V>>, runtime: &R) -> Self {
        match how {
            strategy::Writer::Direct => Self::Direct,
            strategy::Writer::Mailbox { cost, call_timeout, capacity } => {
                let (letters, mailbox) = mpsc::channel(capacity.max(1));
                runtime.spawn(work_off(mailbox, Arc::clone(store), runtime.clone(), cost));
                Self::Mailbox { letters, call_timeout }
            }
        }
    }

    /// Performs a write and waits for it.
    pub(crate) async fn store<R: Runtime>(
        &self,
        write: Write<K, V>,
        store: &Store<K, V>,
        counters: &Counters,
        runtime: &R,
    ) -> Result<(), Error> {
        match self {
            Self::Direct => {
                counters.stores_sync.increment();
                write.perform(store);
                Ok(())
            }
            Self::Mailbox { letters, call_timeout } => {
                let (done, is_done) = oneshot::channel();
                let deadline = runtime.now() + *call_timeout;
                letters.try_send(Letter { write, done: Some(done) }).map_err(|error| match error {
                    TrySendError::Full(_) => Error::MailboxFull { capacity: letters.max_capacity() },
                    TrySendError::Closed(_) => Error::WriterGone,
                })?;
                counters.stores_sync.increment();
                match before(runtime, deadline, is_done).await {
                    Some(Ok(())) => Ok(()),
                    Some(Err(_)) => Err(Error::WriterGone),
                    None => Err(Error::StoreTimeout { after: *call_timeout }),
                }
            }
        }
    }

    /// Has a write performed, without waiting for it.
    pub(crate) fn store_later(&self, write: Write<K, V>, store: &Store<K, V>, counters: &Counters) {
        match self {
            Self::Direct => {
                counters.stores_async.increment();
                write.perform(store);
            }
            Self::Mailbox { letters, .. } => match letters.try_send(Letter { write, done: None }) {
                Ok(()) => counters.stores_async.increment(),
                Err(TrySendError::Full(_) | TrySendError::Closed(_)) => counters.stores_dropped.increment(),
            },
        }
    }
}

/// The mailbox's task: one write after the other, until the cache is gone and the mailbox empty.
async fn work_off<K, V, R>(
    mut mailbox: mpsc::Receiver<Letter<K, V>>,
    store: Arc<Store<K, V>>,
    runtime: R,
    cost: Duration,
) where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    // Costs are added to the end of the last write, not to the time of waking: a runtime that wakes
    // late does not make every write dearer.
    let mut free_at = Time::ZERO;
    while let Some(Letter { write, done }) = mailbox.recv().await {
        if !cost.is_zero() {
            free_at = free_at.max(runtime.now()) + cost;
            runtime.sleep_until(free_at).await;
        }
        write.perform(&store);
        if let Some(done) = done {
            // A caller that timed out is not there to hear it.
            let _ = done.send(());
        }
    }
}
