//! Performs stores: in the load's own task, or in one task with a mailbox.

use std::{hash::Hash, sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::{
    Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{
    loaded::{LoadResult, Loaded},
    pending_work::WorkGuard,
};
use crate::{
    coalesce::KeyGuard,
    error::Error,
    stats::Counters,
    store::{NewValue, Store, StorePermit, load_mark::LoadMark, refills::Version},
    strategy,
};

/// A store to be performed. Dropping it frees the key and the claim.
pub(crate) struct Write<K: Hash + Eq + Clone, V: Clone> {
    pub(crate) mark: LoadMark<K, V>,
    pub(crate) key: K,
    pub(crate) loaded: Loaded<V>,
    pub(crate) claim: Option<VersionClaim<K, V>>,
    pub(crate) key_guard: Option<KeyGuard<K, LoadResult<V>>>,
    /// `None`: the value is not stored.
    pub(crate) permit: Option<StorePermit>,
    pub(crate) pending_work: WorkGuard,
}

impl<K: Hash + Eq + Clone, V: Clone> Write<K, V> {
    fn execute(self, store: &Store<K, V>, now: Time) {
        let Loaded { value, life, took, since, .. } = self.loaded;
        let new = NewValue { key: self.key, value, since, took };
        match life.zip(self.permit) {
            // The store counts a value that is outdated.
            Some((life, permit)) => drop(store.insert(new, &life, self.mark, permit, now)),
            None => store.remove_older(&new, self.mark, now),
        }
        // Free the key after the store: a request that finds it free has to find the value.
        drop((self.key_guard, self.claim, self.pending_work));
    }
}

/// The right to store the successor of one entry version. It ends with the store or when it is dropped.
pub(crate) struct VersionClaim<K: Hash + Eq + Clone, V: Clone> {
    store: Arc<Store<K, V>>,
    key: K,
    seen_version: Version,
}

impl<K: Hash + Eq + Clone, V: Clone> VersionClaim<K, V> {
    pub(crate) fn take(store: &Arc<Store<K, V>>, key: &K, seen_version: Version) -> Option<Self> {
        store.claim(key, seen_version).then(|| Self {
            store: Arc::clone(store),
            key: key.clone(),
            seen_version,
        })
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for VersionClaim<K, V> {
    fn drop(&mut self) {
        self.store.unclaim(&self.key, self.seen_version);
    }
}

pub(crate) struct StoreWriter<K: Hash + Eq + Clone, V: Clone, R> {
    store: Arc<Store<K, V>>,
    counters: Arc<Counters>,
    runtime: R,
    /// `None`: stores are performed directly.
    mailbox: Option<MailboxSender<K, V>>,
}

struct MailboxSender<K: Hash + Eq + Clone, V: Clone> {
    writes: mpsc::Sender<MailboxWrite<K, V>>,
    call_timeout: Duration,
}

/// A write, and a channel for its completion.
struct MailboxWrite<K: Hash + Eq + Clone, V: Clone> {
    write: Write<K, V>,
    sent: Time,
    done: Option<oneshot::Sender<()>>,
}

impl<K, V, R> StoreWriter<K, V, R>
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
                let (writes, received) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
                runtime.spawn_lasting(run_mailbox(received, Arc::clone(&store), runtime.clone(), cost));
                Some(MailboxSender { writes, call_timeout })
            }
        };
        Self { store, counters, runtime, mailbox }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.mailbox.is_none()
    }

    /// Performs a write and waits for it.
    pub(crate) async fn store(&self, write: Write<K, V>) -> Result<(), Error> {
        let Some(MailboxSender { writes, call_timeout }) = &self.mailbox else {
            self.counters.stores_sync.increment();
            write.execute(&self.store, self.runtime.coarse_now());
            return Ok(());
        };
        let (done, is_done) = oneshot::channel();
        let sent = self.runtime.now();
        writes.try_send(MailboxWrite { write, sent, done: Some(done) }).map_err(|error| match error {
            TrySendError::Full(_) => Error::MailboxFull { capacity: writes.max_capacity() },
            TrySendError::Closed(_) => Error::WriterGone,
        })?;
        self.counters.stores_sync.increment();
        match before(&self.runtime, sent + *call_timeout, is_done).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::WriterGone),
            None => Err(Error::StoreTimeout { after: *call_timeout }),
        }
    }

    /// Performs or enqueues a write without waiting. Returns false if the mailbox is full.
    pub(crate) fn store_async(&self, write: Write<K, V>) -> bool {
        let Some(MailboxSender { writes, .. }) = &self.mailbox else {
            self.counters.stores_async.increment();
            write.execute(&self.store, self.runtime.coarse_now());
            return true;
        };
        let sent = writes.try_send(MailboxWrite { write, sent: self.runtime.now(), done: None });
        let count = if sent.is_ok() { &self.counters.stores_async } else { &self.counters.stores_dropped };
        count.increment();
        sent.is_ok()
    }
}

/// The mailbox's task: performs writes in order until the cache is dropped and the mailbox is empty.
async fn run_mailbox<K, V, R>(
    mut mailbox: mpsc::Receiver<MailboxWrite<K, V>>,
    store: Arc<Store<K, V>>,
    runtime: R,
    cost: Duration,
) where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    // A write starts when the previous one ended or when it was sent, not when the task woke up. Otherwise a late
    // timer would make writes slower.
    let mut free_at = Time::ZERO;
    while let Some(MailboxWrite { write, sent, done }) = mailbox.recv().await {
        if !cost.is_zero() {
            free_at = free_at.max(sent) + cost;
            runtime.sleep_until(free_at).await;
        }
        write.execute(&store, runtime.coarse_now());
        if let Some(done) = done {
            // A caller that timed out has dropped the receiver.
            let _ = done.send(());
        }
    }
}
