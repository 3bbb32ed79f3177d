//! Linked queues of keys, with their weights.

use crate::trace::Key;

/// No key.
const NONE: Key = Key::MAX;

/// The links of all keys of a trace. A key is in one queue at most.
#[derive(Debug)]
pub(crate) struct Links(Vec<Node>);

/// 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Node {
    older: Key,
    newer: Key,
    weight: u32,
    queue: QueueId,
    /// Of use to the policy; 0 when a key enters a queue from outside.
    mark: u8,
}

/// Names a queue within its [`Links`].
pub(crate) type QueueId = u8;

/// In no queue.
pub(crate) const NO_QUEUE: QueueId = 0;

/// First in, first out; any key can be removed.
#[derive(Debug)]
pub(crate) struct Queue {
    id: QueueId,
    oldest: Key,
    newest: Key,
    weight: u64,
}

impl Links {
    pub(crate) fn new(keys: usize) -> Self {
        Self(vec![Node { older: NONE, newer: NONE, weight: 0, queue: NO_QUEUE, mark: 0 }; keys])
    }

    /// The queue that has the key, or [`NO_QUEUE`].
    pub(crate) fn queue(&self, key: Key) -> QueueId {
        self.0[key as usize].queue
    }

    pub(crate) fn mark(&mut self, key: Key) -> &mut u8 {
        &mut self.0[key as usize].mark
    }

    pub(crate) fn weight(&self, key: Key) -> u32 {
        self.0[key as usize].weight
    }

    /// Removes a key from that of these queues that has it.
    pub(crate) fn remove_from<const N: usize>(&mut self, queues: [&mut Queue; N], key: Key) {
        if let Some(queue) = queues.into_iter().find(|queue| queue.has(self, key)) {
            queue.remove(self, key);
        }
    }

    /// Sets the weight of a key of one of these queues.
    pub(crate) fn reweigh_in<const N: usize>(&mut self, queues: [&mut Queue; N], key: Key, weight: u32) {
        if let Some(queue) = queues.into_iter().find(|queue| queue.has(self, key)) {
            queue.reweigh(self, key, weight);
        }
    }
}

impl Queue {
    /// An empty queue. `id` is not [`NO_QUEUE`], and no other queue of the links has it.
    pub(crate) const fn new(id: QueueId) -> Self {
        Self { id, oldest: NONE, newest: NONE, weight: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    /// The weights of its keys.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn has(&self, links: &Links, key: Key) -> bool {
        links.queue(key) == self.id
    }

    pub(crate) fn oldest(&self) -> Option<Key> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Appends a key that is in no queue. Its mark is 0.
    pub(crate) fn push(&mut self, links: &mut Links, key: Key, weight: u32) {
        let older = self.newest;
        links.0[key as usize] = Node { older, newer: NONE, weight, queue: self.id, mark: 0 };
        if older == NONE {
            self.oldest = key;
        } else {
            links.0[older as usize].newer = key;
        }
        self.newest = key;
        self.weight += u64::from(weight);
    }

    /// Removes a key that is in this queue.
    pub(crate) fn remove(&mut self, links: &mut Links, key: Key) {
        let Node { older, newer, weight, .. } = links.0[key as usize];
        if older == NONE {
            self.oldest = newer;
        } else {
            links.0[older as usize].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            links.0[newer as usize].older = older;
        }
        links.0[key as usize].queue = NO_QUEUE;
        self.weight -= u64::from(weight);
    }

    /// Removes the oldest key.
    pub(crate) fn pop(&mut self, links: &mut Links) -> Option<Key> {
        let oldest = self.oldest()?;
        self.remove(links, oldest);
        Some(oldest)
    }

    /// Removes the oldest key without a mark. Marked ones before it lose their mark and become the newest: second chance.
    pub(crate) fn pop_unmarked(&mut self, links: &mut Links) -> Option<Key> {
        loop {
            let oldest = self.oldest()?;
            if std::mem::take(links.mark(oldest)) == 0 {
                self.remove(links, oldest);
                return Some(oldest);
            }
            self.touch(links, oldest);
        }
    }

    /// Makes a key of this queue its newest.
    pub(crate) fn touch(&mut self, links: &mut Links, key: Key) {
        if self.newest != key {
            let (weight, mark) = (links.weight(key), *links.mark(key));
            self.remove(links, key);
            self.push(links, key, weight);
            *links.mark(key) = mark;
        }
    }

    /// Moves a key of this queue to the end of another one. Its mark is 0.
    pub(crate) fn move_to(&mut self, to: &mut Self, links: &mut Links, key: Key) {
        let weight = links.weight(key);
        self.remove(links, key);
        to.push(links, key, weight);
    }

    /// Sets the weight of a key of this queue.
    pub(crate) fn reweigh(&mut self, links: &mut Links, key: Key, weight: u32) {
        let node = &mut links.0[key as usize];
        self.weight = self.weight - u64::from(node.weight) + u64::from(weight);
        node.weight = weight;
    }

    /// Removes the oldest keys until the weight is at most this.
    pub(crate) fn trim(&mut self, links: &mut Links, weight_max: u64) {
        while self.weight > weight_max && self.pop(links).is_some() {}
    }
}
