//! A heap of keys whose priorities only rise.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::trace::Key;

/// The key with the lowest priority leaves first; of equal ones the key that was raised to it first.
///
/// A raise does not move the key: the heap orders keys by priorities that may be too low, and a key that surfaces with
/// one is put back with its true priority.
pub(crate) struct RisingHeap<P> {
    state: Vec<KeyState<P>>,
    heap: BinaryHeap<Reverse<(P, u64, Key)>>,
    raises: u64,
    len: usize,
}

#[derive(Clone, Copy)]
struct KeyState<P> {
    priority: P,
    /// The number of the raise that led to it.
    raised: u64,
    /// `raised` of the key's valid element in the heap; 0: the key is not there.
    listed: u64,
}

impl<P: Copy + Ord + Default> RisingHeap<P> {
    pub(crate) fn new(keys: usize) -> Self {
        let state = KeyState { priority: P::default(), raised: 0, listed: 0 };
        Self { state: vec![state; keys], heap: BinaryHeap::new(), raises: 0, len: 0 }
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: Key, priority: P) {
        self.raises += 1;
        let number = self.raises;
        self.state[key as usize] = KeyState { priority, raised: number, listed: number };
        self.heap.push(Reverse((priority, number, key)));
        self.len += 1;
    }

    /// Raises the priority of a key that is there, or confirms it.
    pub(crate) fn raise(&mut self, key: Key, priority: P) {
        self.raises += 1;
        let state = &mut self.state[key as usize];
        (state.priority, state.raised) = (priority, self.raises);
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.state[key as usize].listed = 0;
        self.len -= 1;
        if self.heap.len() > 2 * self.len + 64 {
            let state = &self.state;
            self.heap.retain(|Reverse((_, number, key))| state[*key as usize].listed == *number);
        }
    }

    /// Removes the key with the lowest priority.
    pub(crate) fn pop(&mut self) -> Option<(Key, P)> {
        loop {
            let Reverse((_, number, key)) = self.heap.pop()?;
            let state = &mut self.state[key as usize];
            if state.listed != number {
                continue;
            }
            if state.raised == number {
                state.listed = 0;
                self.len -= 1;
                return Some((key, state.priority));
            }
            state.listed = state.raised;
            self.heap.push(Reverse((state.priority, state.raised, key)));
        }
    }
}
