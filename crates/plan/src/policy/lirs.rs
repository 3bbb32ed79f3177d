//! LIRS: entries with a low inter-reference recency (LIR) are kept; of the others (HIR) a few are present, so that a
//! second request soon after the first can be seen.
//!
//! The stack orders keys by their last request and ends with a LIR entry. Keys that are not present stay in the stack;
//! the paper does not bound them, here their weight is twice the room at most. Counts are weights, as for
//! [`arc`](super::arc).

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

/// The paper's share of HIR entries.
const HIR_SHARE: f64 = 0.01;

/// The status of a key. A key of any status may be in the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Absent,
    Lir,
    Hir,
}

pub(crate) struct Lirs {
    stack_links: Links,
    stack: Queue,
    /// Present HIR entries in `resident`; keys of the stack that are not present in `ghosts`.
    links: Links,
    resident: Queue,
    ghosts: Queue,
    status: Vec<Status>,
    lir_weight: u64,
    lir_max: u64,
    ghosts_max: u64,
}

impl Lirs {
    fn in_stack(&self, key: Key) -> bool {
        self.stack.has(&self.stack_links, key)
    }

    fn move_to_top(&mut self, key: Key, weight: u32) {
        if self.in_stack(key) {
            self.stack.remove(&mut self.stack_links, key);
        }
        self.stack.push(&mut self.stack_links, key, weight);
    }

    /// The key becomes LIR, on top of the stack. LIR entries at its end become HIR until their weight is in bounds.
    fn promote(&mut self, key: Key, weight: u32) {
        self.move_to_top(key, weight);
        self.status[key as usize] = Status::Lir;
        self.lir_weight += u64::from(weight);
        // Before the first LIR entry the stack may have had other keys alone.
        self.prune();
        while self.lir_weight > self.lir_max {
            let Some(bottom) = self.stack.oldest().filter(|bottom| *bottom != key) else { break };
            // The stack ends with a LIR entry.
            let weight = self.stack_links.weight(bottom);
            self.stack.remove(&mut self.stack_links, bottom);
            self.lir_weight -= u64::from(weight);
            self.status[bottom as usize] = Status::Hir;
            self.resident.push(&mut self.links, bottom, weight);
            self.prune();
        }
    }

    /// Removes keys from the end of the stack until a LIR entry is its last.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.oldest() {
            if self.status[bottom as usize] == Status::Lir {
                break;
            }
            self.stack.remove(&mut self.stack_links, bottom);
            if self.ghosts.has(&self.links, bottom) {
                self.ghosts.remove(&mut self.links, bottom);
            }
        }
    }
}

impl EvictionPolicy for Lirs {
    fn new(setup: &PolicySetup) -> Self {
        let hir_max = super::share(setup.capacity, HIR_SHARE);
        Self {
            stack_links: Links::new(setup.keys),
            stack: Queue::new(1),
            links: Links::new(setup.keys),
            resident: Queue::new(1),
            ghosts: Queue::new(2),
            status: vec![Status::Absent; setup.keys],
            lir_weight: 0,
            lir_max: setup.capacity.saturating_sub(hir_max),
            ghosts_max: setup.capacity.saturating_mul(2),
        }
    }

    fn on_hit(&mut self, access: &Access) {
        let Access { key, .. } = *access;
        if self.status[key as usize] == Status::Lir {
            self.stack.touch(&mut self.stack_links, key);
            self.prune();
            return;
        }
        let weight = self.links.weight(key);
        if self.in_stack(key) {
            self.resident.remove(&mut self.links, key);
            self.promote(key, weight);
        } else {
            self.move_to_top(key, weight);
            self.resident.touch(&mut self.links, key);
        }
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        if let Some(oldest) = self.resident.oldest() {
            self.status[oldest as usize] = Status::Absent;
            if self.in_stack(oldest) {
                self.resident.move_to(&mut self.ghosts, &mut self.links, oldest);
                while self.ghosts.weight() > self.ghosts_max
                    && let Some(ghost) = self.ghosts.pop(&mut self.links)
                {
                    self.stack.remove(&mut self.stack_links, ghost);
                }
            } else {
                self.resident.remove(&mut self.links, oldest);
            }
            return Some(oldest);
        }
        // With a LIR set that is too small for any entry the stack may have keys that are not present alone.
        self.prune();
        let bottom = self.stack.oldest()?;
        self.on_remove(bottom);
        Some(bottom)
    }

    fn on_insert(&mut self, access: &Access) {
        let Access { key, weight, .. } = *access;
        if self.lir_weight + u64::from(weight) <= self.lir_max && self.resident.is_empty() {
            // The first entries fill the LIR set.
            if self.ghosts.has(&self.links, key) {
                self.ghosts.remove(&mut self.links, key);
            }
            self.promote(key, weight);
        } else if self.ghosts.has(&self.links, key) {
            self.ghosts.remove(&mut self.links, key);
            self.promote(key, weight);
        } else {
            self.move_to_top(key, weight);
            self.status[key as usize] = Status::Hir;
            self.resident.push(&mut self.links, key, weight);
            // Without LIR entries nothing bounds the stack.
            if self.lir_weight == 0 {
                self.prune();
            }
        }
    }

    fn on_update(&mut self, access: &Access) {
        let Access { key, weight, .. } = *access;
        if self.status[key as usize] == Status::Lir {
            self.lir_weight = self.lir_weight - u64::from(self.stack_links.weight(key)) + u64::from(weight);
        } else {
            self.resident.reweigh(&mut self.links, key, weight);
        }
        if self.in_stack(key) {
            self.stack.reweigh(&mut self.stack_links, key, weight);
        }
    }

    fn on_remove(&mut self, key: Key) {
        let status = std::mem::replace(&mut self.status[key as usize], Status::Absent);
        if self.in_stack(key) {
            if status == Status::Lir {
                self.lir_weight -= u64::from(self.stack_links.weight(key));
            }
            self.stack.remove(&mut self.stack_links, key);
        }
        if status == Status::Hir {
            self.resident.remove(&mut self.links, key);
        }
        self.prune();
    }
}
