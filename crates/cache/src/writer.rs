//! Who performs stores: the load's own task, or one task with a mailbox.

use std::{hash::Hash, sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::{
    Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{
    answer::Error,
    busy::Busy,
    flight::Slot,
    load::{Landing, Loaded},
    shard::Version,
    stats::Counters,
    store::{Publication, Store, Ticket},
    strategy,
};

/// A store to be performed. Dropped unperformed, it frees its key and gives its claim back.
pub(crate) struct Write<K: Hash + Eq + Clone, V: Clone> {
    pub(crate) key: K,
    pub(crate) loaded: Loaded<V>,
    pub(crate) claim: Option<Claim<K, V>>,
    pub(crate) slot: Option<Slot<K, Landing<V>>>,
    /// None: it is not to be stored.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) busy: Busy,
}

impl<K: Hash + Eq + Clone, V: Clone> Write<K, V> {
    fn perform(self, store: &Store<K, V>) {
        let Loaded { value, life, at, since, .. } = self.loaded;
        let kept = life.zip(self.ticket);
        store.publish(Publication { key: self.key, value, since, kept }, at);
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

/// Performs stores, or has them performed.
pub(crate) struct Writer<K: Hash + Eq + Clone, V: Clone, R> {
    store: Arc<Store<K, V>>,
    counters: Arc<Counters>,
    runtime: R,
    /// None: the store is written directly.
    mailbox: Option<Mailbox<K, V>>,
}

struct Mailbox<K: Hash + Eq + Clone, V: Clone> {
    letters: mpsc::Sender<Letter<K, V>>,
    call_timeout: Duration,
}

/// A write, and whom to tell when it is done.
struct Letter<K: Hash + Eq + Clone, V: Clone> {
    write: Write<K, V>,
    sent: Time,
    done: Option<oneshot::Sender<()>>,
}

impl<K, V, R> Writer<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    pub(crate) fn new(
        how: strategy::Writer,
        store: Arc<Store<K, V>>,
        counters: Arc<Counters>,
        runtime: R,
    ) -> Self {
        let mailbox = match how {
            strategy::Writer::Direct => None,
            strategy::Writer::Mailbox { cost, call_timeout, capacity } => {
                let (letters, received) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
                runtime.spawn(work_off(received, Arc::clone(&store), runtime.clone(), cost));
                Some(Mailbox { letters, call_timeout })
            }
        };
        Self { store, counters, runtime, mailbox }
    }

    /// Whether a write is performed at once.
    pub(crate) fn is_direct(&self) -> bool {
        self.mailbox.is_none()
    }

    /// Performs a write and waits for it.
    pub(crate) async fn store(&self, write: Write<K, V>) -> Result<(), Error> {
        let Some(Mailbox { letters, call_timeout }) = &self.mailbox else {
            self.counters.stores_sync.increment();
            write.perform(&self.store);
            return Ok(());
        };
        let (done, is_done) = oneshot::channel();
        let sent = self.runtime.now();
        letters.try_send(Letter { write, sent, done: Some(done) }).map_err(|error| match error {
            TrySendError::Full(_) => Error::MailboxFull { capacity: letters.max_capacity() },
            TrySendError::Closed(_) => Error::WriterGone,
        })?;
        self.counters.stores_sync.increment();
        match before(&self.runtime, sent + *call_timeout, is_done).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::WriterGone),
            None => Err(Error::StoreTimeout { after: *call_timeout }),
        }
    }

    /// Has a write performed, without waiting for it; false if there was no room for it.
    pub(crate) fn store_later(&self, write: Write<K, V>) -> bool {
        let Some(Mailbox { letters, .. }) = &self.mailbox else {
            self.counters.stores_async.increment();
            write.perform(&self.store);
            return true;
        };
        let sent = letters.try_send(Letter { write, sent: self.runtime.now(), done: None });
        let count = if sent.is_ok() { &self.counters.stores_async } else { &self.counters.stores_dropped };
        count.increment();
        sent.is_ok()
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
    // A write begins when the one before it ended, or when it was sent, not when the task woke up: a
    // runtime that wakes late does not make every write dearer.
    let mut free_at = Time::ZERO;
    while let Some(Letter { write, sent, done }) = mailbox.recv().await {
        if !cost.is_zero() {
            free_at = free_at.max(sent) + cost;
            runtime.sleep_until(free_at).await;
        }
        write.perform(&store);
        if let Some(done) = done {
            // A caller that timed out is not there to hear it.
            let _ = done.send(());
        }
    }
}
