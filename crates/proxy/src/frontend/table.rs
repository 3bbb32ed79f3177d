//! All open connections, and the eviction of idle ones.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

use super::{
    counts::increment,
    state::{CloseRequest, ConnectionState},
};

/// An eviction compares this many connections of a thread.
const EVICTION_SAMPLE: usize = 64;

#[derive(Debug)]
pub(super) struct ConnectionTable {
    open: AtomicUsize,
    threads: Vec<ThreadConnections>,
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadConnections {
    list: Mutex<ConnectionList>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct ConnectionList {
    connections: Vec<Arc<ConnectionState>>,
    /// Where the next sample begins.
    hand: usize,
}

/// An entry of the table, removed on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    connection: Arc<ConnectionState>,
}

impl ConnectionTable {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            open: AtomicUsize::new(0),
            threads: (0..threads).map(|_| ThreadConnections::default()).collect(),
        }
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.open.load(Relaxed) >= max
    }

    pub(super) fn thread(&self, number: usize) -> &ThreadConnections {
        &self.threads[number]
    }

    pub(super) fn insert(self: &Arc<Self>, connection: &Arc<ConnectionState>) -> ConnectionSlot {
        self.open.fetch_add(1, Relaxed);
        let mut list = self.thread(connection.thread.number).list();
        connection.slot.store(list.connections.len(), Relaxed);
        list.connections.push(Arc::clone(connection));
        ConnectionSlot { table: Arc::clone(self), connection: Arc::clone(connection) }
    }

    /// Requests that an idle connection close, of this thread before those of others. False: none is idle.
    pub(super) fn evict_idle(&self, thread: usize) -> bool {
        let (others, from) = self.threads.split_at(thread);
        from.iter().chain(others).any(ThreadConnections::evict_idle)
    }
}

impl ThreadConnections {
    fn list(&self) -> MutexGuard<'_, ConnectionList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.list().connections.len()
    }

    pub(super) fn request_close(&self, request: CloseRequest) {
        // The lock is released first: a woken connection may run on another thread and take it.
        let connections = self.list().connections.clone();
        connections.iter().for_each(|connection| connection.request_close(request));
    }

    pub(super) async fn wait_until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn evict_idle(&self) -> bool {
        let victim = self.list().longest_idle();
        let is_found = victim.is_some();
        if let Some(victim) = victim {
            // Graceful: a request that has arrived meanwhile is served.
            victim.request_close(CloseRequest::Graceful);
        }
        is_found
    }
}

impl ConnectionList {
    /// The longest idle connection of the next sample.
    fn longest_idle(&mut self) -> Option<Arc<ConnectionState>> {
        let sample = self.connections.len().min(EVICTION_SAMPLE);
        let start = self.hand;
        self.hand = (start + sample) % self.connections.len().max(1);
        let sampled = (0..sample).map(|n| &self.connections[(start + n) % self.connections.len()]);
        let idle = sampled.filter_map(|connection| Some((connection.evictable_since()?, connection)));
        idle.min_by_key(|(since, _)| *since).map(|(_, connection)| Arc::clone(connection))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Self { table, connection } = self;
        table.open.fetch_sub(1, Relaxed);
        let thread = table.thread(connection.thread.number);
        let mut list = thread.list();
        let slot = connection.slot.load(Relaxed);
        let removed = list.connections.swap_remove(slot);
        if let Some(moved) = list.connections.get(slot) {
            moved.slot.store(slot, Relaxed);
        }
        let is_empty = list.connections.is_empty();
        drop(list);
        drop(removed);
        increment(&connection.thread.counters.connections_ended);
        if is_empty {
            thread.emptied.notify_waiters();
        }
    }
}
