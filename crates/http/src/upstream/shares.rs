//! How clients share the connections of an origin, and the queue for them. Pure.
//!
//! A connection goes to the waiting client with the fewest requests in flight; equal ones take turns. A client may hold at most three times what
//! stays free, so that the requests of another client find a connection although slow ones hold theirs: one client alone gets
//! three quarters, two get three sevenths each (dynamic thresholds: Choudhury and Hahne, 1998). A full queue drops the newest
//! waiter of the client that has the most (longest queue drop: Suter and others, 1998).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    num::NonZeroU64,
};

use smallvec::{SmallVec, smallvec};

/// The client of a request. `None`: no bound of a client applies to it.
pub type Client = Option<NonZeroU64>;

/// Clients that wait for one response; a few are enough.
pub type Clients = SmallVec<[Client; 2]>;

/// The most clients that wait for one response and are noted.
const CLIENTS_MAX: usize = 8;

/// The most that a client may hold, in multiples of what stays free.
const SHARE: usize = 3;

/// How many units of a shared resource each client holds.
#[derive(Debug, Default)]
pub struct ClientCounts {
    /// Without clients that hold nothing.
    held: HashMap<Client, usize>,
    total: usize,
}

/// The waiters of all clients.
#[derive(Debug)]
pub struct FairQueue<W> {
    waiting_max: usize,
    /// By arrival, with the clients in whose turn they are served.
    waiters: BTreeMap<u64, (Clients, W)>,
    /// Those of each client that has any.
    clients: HashMap<Client, ClientWaiters>,
    last_turn: u64,
}

#[derive(Debug, Default)]
struct ClientWaiters {
    ids: BTreeSet<u64>,
    /// The order of clients that hold equally many: by the last turn, or by the first waiter before there was one.
    turn: u64,
}

/// Adds a client, unless it is there or there are enough. Returns true if it was added.
pub fn note_client(clients: &mut Clients, client: Client) -> bool {
    let is_new = clients.len() < CLIENTS_MAX && !clients.contains(&client);
    if is_new {
        clients.push(client);
    }
    is_new
}

impl ClientCounts {
    #[must_use]
    pub fn count(&self, client: Client) -> usize {
        self.held.get(&client).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// True if a client may take one of `free`. The first one is not bounded by what stays free.
    #[must_use]
    pub fn may_take(&self, client: Client, free: usize) -> bool {
        let held = self.count(client);
        free > 0 && (client.is_none() || held == 0 || held < SHARE.saturating_mul(free - 1))
    }

    pub fn add(&mut self, client: Client) {
        *self.held.entry(client).or_default() += 1;
        self.total += 1;
    }

    pub fn remove(&mut self, client: Client) {
        let Entry::Occupied(mut held) = self.held.entry(client) else { return };
        *held.get_mut() -= 1;
        self.total -= 1;
        if *held.get() == 0 {
            held.remove();
        }
    }
}

impl<W> FairQueue<W> {
    #[must_use]
    pub fn new(waiting_max: usize) -> Self {
        Self { waiting_max, waiters: BTreeMap::new(), clients: HashMap::new(), last_turn: 0 }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Queues a waiter, whose `id` is greater than all before. Returns the waiter that gave up its place for this one, if any. Error:
    /// the queue is full.
    pub fn push(&mut self, id: u64, client: Client, waiter: W) -> Result<Option<W>, W> {
        let displaced = if self.len() < self.waiting_max {
            None
        } else {
            let Some(newest) = self.displaceable_for(client) else { return Err(waiter) };
            self.remove(newest)
        };
        self.waiters.insert(id, (smallvec![client], waiter));
        self.add_id(client, id);
        Ok(displaced)
    }

    /// Another client waits for the same response: the waiter is served in the turn of either.
    pub fn add_client(&mut self, id: u64, client: Client) {
        let Some((clients, _)) = self.waiters.get_mut(&id) else { return };
        if note_client(clients, client) {
            self.add_id(client, id);
        }
    }

    fn add_id(&mut self, client: Client, id: u64) {
        let turn = self.last_turn + 1;
        let waiters =
            self.clients.entry(client).or_insert_with(|| ClientWaiters { ids: BTreeSet::new(), turn });
        waiters.ids.insert(id);
        self.last_turn = turn;
    }

    /// The newest waiter of the client with the most, if it has more than `client` would have.
    fn displaceable_for(&self, client: Client) -> Option<u64> {
        let own = self.clients.get(&client).map_or(0, |waiters| waiters.ids.len());
        let bounded = self.clients.iter().filter(|(client, _)| client.is_some());
        let lengths = bounded.filter_map(|(_, waiters)| Some((waiters.ids.len(), *waiters.ids.last()?)));
        lengths.max().filter(|(length, _)| *length > own + 1).map(|(_, newest)| newest)
    }

    /// A waiter leaves the queue.
    pub fn remove(&mut self, id: u64) -> Option<W> {
        let (clients, waiter) = self.waiters.remove(&id)?;
        for client in clients {
            if let Entry::Occupied(mut waiters) = self.clients.entry(client) {
                waiters.get_mut().ids.remove(&id);
                if waiters.get().ids.is_empty() {
                    waiters.remove();
                }
            }
        }
        Some(waiter)
    }

    /// The client that takes the next one of `free`: of those that may take one, the one that holds the fewest.
    #[must_use]
    pub fn next(&self, held: &ClientCounts, free: usize) -> Option<Client> {
        let may_take = self.clients.iter().filter(|(client, _)| held.may_take(**client, free));
        may_take
            .min_by_key(|(client, waiters)| (held.count(**client), waiters.turn))
            .map(|(client, _)| *client)
    }

    /// The longest waiting one of a client, whose turn it was.
    pub fn pop(&mut self, client: Client) -> Option<W> {
        let waiters = self.clients.get_mut(&client)?;
        self.last_turn += 1;
        waiters.turn = self.last_turn;
        let first = *waiters.ids.first()?;
        self.remove(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Client = NonZeroU64::new(1);
    const B: Client = NonZeroU64::new(2);

    /// How many of `total` the clients get that take one in turn until none may.
    fn shares(total: usize, clients: u64) -> Vec<usize> {
        let clients: Vec<_> = (1..=clients).map(NonZeroU64::new).collect();
        let mut held = ClientCounts::default();
        loop {
            let before = held.total();
            for client in &clients {
                if held.may_take(*client, total - held.total()) {
                    held.add(*client);
                }
            }
            if held.total() == before {
                return clients.iter().map(|client| held.count(*client)).collect();
            }
        }
    }

    #[test]
    fn some_stays_free_for_another_client() {
        for (total, expected) in
            [(1, vec![1]), (2, vec![1]), (3, vec![2]), (4, vec![3]), (8, vec![6]), (256, vec![192])]
        {
            assert_eq!(shares(total, 1), expected, "{total}");
        }
        assert_eq!(shares(256, 2), [110, 109]);
        assert_eq!(shares(256, 10).iter().sum::<usize>(), 247);
        assert_eq!(shares(3, 5), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn requests_without_a_client_are_not_bounded() {
        let mut held = ClientCounts::default();
        for left in (0..10).rev() {
            assert!(held.may_take(None, left + 1));
            held.add(None);
        }
        assert!(!held.may_take(None, 0));
        (0..10).for_each(|_| held.remove(None));
        assert_eq!((held.total(), held.held.len()), (0, 0));
    }

    #[test]
    fn client_with_the_fewest_in_flight_is_next() {
        let (mut queue, mut held) = (FairQueue::new(10), ClientCounts::default());
        for (id, client) in [(1, A), (2, A), (3, B), (4, None), (5, B)] {
            assert_eq!(queue.push(id, client, id), Ok(None));
        }
        let mut served = Vec::new();
        while let Some(client) = queue.next(&held, 100) {
            served.extend(queue.pop(client));
            held.add(client);
        }
        assert_eq!(served, [1, 3, 4, 2, 5]);
        assert!(queue.is_empty() && queue.clients.is_empty());
    }

    #[test]
    fn clients_with_equally_many_take_turns() {
        let (mut queue, held) = (FairQueue::new(100), ClientCounts::default());
        for id in 0..50 {
            assert_eq!(queue.push(id, A, "a"), Ok(None));
        }
        let serve =
            |queue: &mut FairQueue<&'static str>| queue.next(&held, 1).and_then(|next| queue.pop(next));
        assert_eq!(serve(&mut queue), Some("a"));
        // B always has one waiting, and never two.
        for id in 50..60 {
            assert_eq!(queue.push(id, B, "b"), Ok(None));
            let (first, second) = (serve(&mut queue), serve(&mut queue));
            assert_eq!((first, second), (Some("a"), Some("b")), "{id}");
        }
    }

    #[test]
    fn client_over_its_share_waits_although_one_is_free() {
        let (mut queue, mut held) = (FairQueue::new(10), ClientCounts::default());
        (0..3).for_each(|_| held.add(A));
        assert_eq!(queue.push(1, A, 1), Ok(None));
        assert_eq!(queue.next(&held, 1), None);
        assert_eq!(queue.push(2, B, 2), Ok(None));
        assert_eq!(queue.next(&held, 1), Some(B));
        held.remove(A);
        assert_eq!(queue.next(&held, 2), Some(B), "B holds none");
        assert_eq!(queue.pop(B), Some(2));
        assert_eq!(queue.next(&held, 2), Some(A));
    }

    #[test]
    fn waiter_of_two_clients_is_served_in_the_turn_of_either() {
        let (mut queue, mut held) = (FairQueue::new(10), ClientCounts::default());
        for id in 1..=5 {
            assert_eq!(queue.push(id, A, id), Ok(None));
        }
        held.add(A);
        queue.add_client(4, B);
        queue.add_client(4, B);
        queue.add_client(9, B);
        assert_eq!(queue.next(&held, 10), Some(B));
        assert_eq!((queue.pop(B), queue.next(&held, 10)), (Some(4), Some(A)));
        let left: Vec<_> = std::iter::from_fn(|| queue.pop(A)).collect();
        assert_eq!(left, [1, 2, 3, 5]);
        assert!(queue.clients.is_empty());
    }

    #[test]
    fn full_queue_drops_the_newest_waiter_of_the_client_with_the_most() {
        let mut queue = FairQueue::new(4);
        for id in 1..=4 {
            assert_eq!(queue.push(id, A, id), Ok(None));
        }
        assert_eq!(queue.push(5, A, 5), Err(5));
        assert_eq!(queue.push(6, B, 6), Ok(Some(4)));
        assert_eq!(queue.push(7, B, 7), Ok(Some(3)));
        assert_eq!(queue.push(8, B, 8), Err(8), "both have two");
        assert_eq!(queue.push(9, None, 9), Ok(Some(7)));
        assert_eq!(queue.push(10, None, 10), Err(10));
        let waiting: Vec<_> = queue.waiters.keys().copied().collect();
        assert_eq!(waiting, [1, 2, 6, 9]);
    }

    #[test]
    fn waiters_without_a_client_keep_their_places() {
        let mut queue = FairQueue::new(3);
        for id in 1..=3 {
            assert_eq!(queue.push(id, None, id), Ok(None));
        }
        assert_eq!(queue.push(4, A, 4), Err(4));
    }
}
