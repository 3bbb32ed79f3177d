//! All open connections, and the eviction of idle ones.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use stockade_model::time::Time;
use tokio::sync::Notify;

use super::{
    client::ClientNetwork,
    request_memory::RequestMemory,
    settings::FrontendSettings,
    state::{CloseRequest, ConnectionState},
};
use crate::locks::{Guard, Lock};

/// An eviction compares this many connections of a thread.
const EVICTION_SAMPLE: usize = 64;
/// A client with more than this part of all connections is greedy, and loses those that wait for it to others' new ones: in a request's
/// head, in its body (HTTP/1), or until the client reads.
pub(super) const GREEDY_SHARE: usize = 8;

fn is_greedy(connections: usize, connections_max: usize) -> bool {
    connections > connections_max / GREEDY_SHARE
}

#[derive(Debug)]
pub(super) struct ConnectionTable {
    open: AtomicUsize,
    clients: Lock<HashMap<ClientNetwork, ClientEntry>>,
    threads: Vec<ThreadConnections>,
}

#[derive(Debug, Default)]
struct ClientEntry {
    connections: usize,
    requests: Arc<RequestMemory>,
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadConnections {
    list: Lock<ConnectionList>,
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
            clients: Lock::default(),
            threads: (0..threads).map(|_| ThreadConnections::default()).collect(),
        }
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.open.load(Relaxed) >= max
    }

    fn clients(&self) -> Guard<'_, HashMap<ClientNetwork, ClientEntry>> {
        self.clients.lock()
    }

    /// The open connections of a client.
    pub(super) fn count(&self, client: ClientNetwork) -> usize {
        self.clients().get(&client).map_or(0, |entry| entry.connections)
    }

    fn forget(&self, client: ClientNetwork) {
        if let Entry::Occupied(mut entry) = self.clients().entry(client) {
            entry.get_mut().connections -= 1;
            if entry.get().connections == 0 {
                entry.remove();
            }
        }
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

    /// Requests that a connection close for one of `newcomer`. False: no connection may be closed.
    pub(super) fn evict(
        &self,
        thread: usize,
        connections_max: usize,
        newcomer: Option<ClientNetwork>,
    ) -> bool {
        // No lock is held: a woken connection may run on another thread and take it.
        let Some((victim, request)) = self.victim(thread, connections_max, newcomer) else { return false };
        victim.request_close(request);
        true
    }

    /// Requests that an idle connection of `client` close for another one of it. False: a sample has no idle one.
    pub(super) fn evict_of(&self, thread: usize, client: ClientNetwork) -> bool {
        let (others, from) = self.threads.split_at(thread);
        let idle = |connection: &ConnectionState| {
            connection.evictable_since().filter(|_| connection.client.get() == Some(&client))
        };
        let victim = from.iter().chain(others).find_map(|thread| thread.list().longest_since(idle));
        victim.inspect(|victim| victim.request_close(CloseRequest::Graceful)).is_some()
    }

    /// Of this thread before those of others: an idle connection of a client that has more than its share of
    /// `connections_max`, or one that waits for that client. Then, unless the newcomer has more than its share: an idle one
    /// of any client, or one that waits for a trusted proxy.
    fn victim(
        &self,
        thread: usize,
        connections_max: usize,
        newcomer: Option<ClientNetwork>,
    ) -> Option<(Arc<ConnectionState>, CloseRequest)> {
        let (others, from) = self.threads.split_at(thread);
        let clients = self.clients();
        let is_greedy =
            |client| clients.get(&client).is_some_and(|entry| is_greedy(entry.connections, connections_max));
        let of_greedy =
            |connection: &ConnectionState| connection.client.get().is_some_and(|client| is_greedy(*client));
        let of_no_client = |connection: &ConnectionState| connection.client.get().is_none();
        let find = |since: &dyn Fn(&ConnectionState) -> Option<Time>| {
            from.iter().chain(others).find_map(|thread| thread.list().longest_since(since))
        };
        // Graceful: a request that has arrived meanwhile is served.
        let idle = |connection: &ConnectionState| connection.evictable_since();
        let idle_of_greedy =
            |connection: &ConnectionState| idle(connection).filter(|_| of_greedy(connection));
        let waiting = |connection: &ConnectionState| connection.waiting_since();
        let waiting_of_greedy =
            |connection: &ConnectionState| waiting(connection).filter(|_| of_greedy(connection));
        let waiting_of_no_client =
            |connection: &ConnectionState| waiting(connection).filter(|_| of_no_client(connection));
        if let Some(victim) = find(&idle_of_greedy) {
            return Some((victim, CloseRequest::Graceful));
        }
        if let Some(victim) = find(&waiting_of_greedy) {
            return Some((victim, CloseRequest::Immediate));
        }
        if newcomer.is_some_and(is_greedy) {
            return None;
        }
        if let Some(victim) = find(&idle) {
            return Some((victim, CloseRequest::Graceful));
        }
        find(&waiting_of_no_client).map(|victim| (victim, CloseRequest::Immediate))
    }
}

impl ThreadConnections {
    fn list(&self) -> Guard<'_, ConnectionList> {
        self.list.lock()
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
}

impl ConnectionList {
    /// The connection of the next sample with the earliest time.
    fn longest_since(
        &mut self,
        since: impl Fn(&ConnectionState) -> Option<Time>,
    ) -> Option<Arc<ConnectionState>> {
        let sample = self.connections.len().min(EVICTION_SAMPLE);
        let start = self.hand;
        self.hand = (start + sample) % self.connections.len().max(1);
        let sampled = (0..sample).map(|n| &self.connections[(start + n) % self.connections.len()]);
        let candidates = sampled.filter_map(|connection| Some((since(connection)?, connection)));
        candidates.min_by_key(|(since, _)| *since).map(|(_, connection)| Arc::clone(connection))
    }
}

impl ConnectionSlot {
    /// Counts a connection as one of `client`, whose name came after its admission. False: it has too many of its own, or
    /// more than its share of a full table.
    pub(super) fn admit_client(&self, client: ClientNetwork, settings: &FrontendSettings) -> bool {
        let (count, max) = (self.set_client(client), settings.connections_max);
        count <= settings.connections_per_client_max && !(self.table.is_full(max) && is_greedy(count, max))
    }

    /// Counts the connection as one of `client`, once. Returns how many it has now.
    pub(super) fn set_client(&self, client: ClientNetwork) -> usize {
        let mut clients = self.table.clients();
        let entry = clients.entry(client).or_default();
        if self.connection.client.set(client).is_ok() {
            entry.connections += 1;
            let _ = self.connection.client_requests.set(Arc::clone(&entry.requests));
        }
        entry.connections
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Self { table, connection } = self;
        table.open.fetch_sub(1, Relaxed);
        if let Some(client) = connection.client.get() {
            table.forget(*client);
        }
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
        connection.thread.counters.connections_ended.increment();
        if is_empty {
            thread.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod explored;
#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::AtomicBool,
        task::{Wake, Waker},
    };

    use stockade_model::time::Live;

    use super::*;
    use crate::frontend::{counts::ThreadCounters, state::ThreadContext};

    struct LockProbe {
        table: Arc<ConnectionTable>,
        was_free: AtomicBool,
    }

    impl Wake for LockProbe {
        fn wake(self: Arc<Self>) {
            let is_free = self.table.clients.is_free() && self.table.thread(0).list.is_free();
            self.was_free.store(is_free, Relaxed);
        }
    }

    #[tokio::test]
    async fn waker_of_an_evicted_connection_is_called_without_locks() {
        let table = Arc::new(ConnectionTable::new(1));
        let thread = Arc::new(ThreadContext {
            number: 0,
            settings: Arc::new(FrontendSettings::default()),
            time: Live::new(),
            counters: Arc::new(ThreadCounters::default()),
            announces_close: Arc::default(),
            requests: Arc::default(),
            send_choice: Lock::default(),
        });
        let connection = ConnectionState::new(thread);
        let slot = table.insert(&connection);
        let probe = Arc::new(LockProbe { table: Arc::clone(&table), was_free: AtomicBool::new(false) });
        connection.register_waker(&Waker::from(Arc::clone(&probe)));
        assert!(table.evict(0, 1, None));
        assert!(probe.was_free.load(Relaxed));
        drop(slot);
    }
}
