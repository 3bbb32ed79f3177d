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
    /// That of the raise that led to the priority.
    raise_number: u64,
    /// The number of the key's valid element in the heap; 0: the key is not there.
    heap_raise_number: u64,
}

impl<P: Copy + Ord + Default> RisingHeap<P> {
    pub(crate) fn new(keys: usize) -> Self {
        let state = KeyState { priority: P::default(), raise_number: 0, heap_raise_number: 0 };
        Self { state: vec![state; keys], heap: BinaryHeap::new(), raises: 0, len: 0 }
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: Key, priority: P) {
        self.raises += 1;
        let number = self.raises;
        self.state[key as usize] = KeyState { priority, raise_number: number, heap_raise_number: number };
        self.heap.push(Reverse((priority, number, key)));
        self.len += 1;
    }

    /// Raises the priority of a key that is there, or confirms it.
    pub(crate) fn raise(&mut self, key: Key, priority: P) {
        self.raises += 1;
        let state = &mut self.state[key as usize];
        (state.priority, state.raise_number) = (priority, self.raises);
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.state[key as usize].heap_raise_number = 0;
        self.len -= 1;
        if self.heap.len() > 2 * self.len + 64 {
            let state = &self.state;
            self.heap.retain(|Reverse((_, number, key))| state[*key as usize].heap_raise_number == *number);
        }
    }

    /// Removes the key with the lowest priority.
    pub(crate) fn pop(&mut self) -> Option<(Key, P)> {
        loop {
            let Reverse((_, number, key)) = self.heap.pop()?;
            let state = &mut self.state[key as usize];
            if state.heap_raise_number != number {
                continue;
            }
            if state.raise_number == number {
                state.heap_raise_number = 0;
                self.len -= 1;
                return Some((key, state.priority));
            }
            state.heap_raise_number = state.raise_number;
            self.heap.push(Reverse((state.priority, state.raise_number, key)));
        }
    }
}
