//! Connections that come, are evicted and go on several threads, in every schedule that shuttle finds.

use std::net::Ipv4Addr;

use shuttle::{future::block_on, thread};
use stockade_model::time::Live;
use tokio::runtime::Builder;

use super::*;
use crate::{
    frontend::{
        client::ClientPrefix, counts::ThreadCounters, settings::FrontendSettings, state::ThreadContext,
    },
    locks::explored::explore,
};

const THREADS: usize = 2;

struct TestedTable {
    table: Arc<ConnectionTable>,
    contexts: Vec<Arc<ThreadContext>>,
}

impl TestedTable {
    fn new() -> Self {
        // The clock needs a runtime; no task runs on it.
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let time = Live::on(runtime.handle().clone());
        let contexts = (0..THREADS).map(|number| {
            let (settings, counters) = (Arc::<FrontendSettings>::default(), Arc::<ThreadCounters>::default());
            Arc::new(ThreadContext {
                number,
                settings,
                time: time.clone(),
                counters,
                announces_close: Arc::default(),
                requests: Arc::default(),
                send_choice: Lock::default(),
            })
        });
        Self { contexts: contexts.collect(), table: Arc::new(ConnectionTable::new(THREADS)) }
    }

    fn insert(&self, thread: usize, client: u8) -> (ConnectionSlot, Arc<ConnectionState>) {
        let connection = ConnectionState::new(Arc::clone(&self.contexts[thread]));
        let slot = self.table.insert(&connection);
        slot.set_client(network(client));
        (slot, connection)
    }

    fn assert_empty(&self) {
        assert_eq!(self.table.open.load(Relaxed), 0);
        assert!(self.table.clients().is_empty());
        assert!((0..THREADS).all(|thread| self.table.thread(thread).len() == 0));
    }
}

fn network(client: u8) -> ClientNetwork {
    ClientNetwork::of(Ipv4Addr::new(192, 0, client, 1).into(), ClientPrefix::default())
}

#[test]
fn counts_and_places_are_right_whoever_goes_first() {
    explore(|| {
        let table = Arc::new(TestedTable::new());
        let connections = [(0, 1), (0, 1), (1, 1), (0, 2)].map(|(thread, client)| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let (slot, connection) = table.insert(thread, client);
                assert!(table.table.count(network(client)) >= 1);
                drop(slot);
                assert_eq!(connection.close_request(), CloseRequest::None);
            })
        });
        connections.into_iter().for_each(|connection| connection.join().unwrap());
        table.assert_empty();
    });
}

#[test]
fn evictions_of_two_threads_find_a_connection_each() {
    explore(|| {
        let table = Arc::new(TestedTable::new());
        let connections: Vec<_> =
            [(0, 1), (0, 1), (1, 2), (1, 2)].map(|(thread, client)| table.insert(thread, client)).into();
        let evictions = [0, 1].map(|thread| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.table.evict(thread, 100, Some(network(9))))
        });
        let evicted = evictions.map(|eviction| eviction.join().unwrap());
        assert_eq!(evicted, [true, true]);
        let closing =
            connections.iter().filter(|(_, connection)| connection.close_request() != CloseRequest::None);
        assert_eq!(closing.count(), 2);
        drop(connections);
        table.assert_empty();
    });
}

#[test]
fn drain_waits_for_the_last_connection_and_misses_no_end() {
    explore(|| {
        let table = Arc::new(TestedTable::new());
        let connections = [1, 2].map(|client| table.insert(0, client));
        let ending = connections.map(|connection| thread::spawn(move || drop(connection)));
        let draining = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let thread = table.table.thread(0);
                thread.request_close(CloseRequest::Graceful);
                block_on(thread.wait_until_empty());
                assert_eq!(thread.len(), 0);
            })
        };
        let evicting = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.table.evict(1, 100, None))
        };
        ending.into_iter().for_each(|connection| connection.join().unwrap());
        draining.join().unwrap();
        evicting.join().unwrap();
        table.assert_empty();
    });
}
