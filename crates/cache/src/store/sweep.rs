//! Chooses the slot of a shard that is examined next for an expired entry. Pure.

use std::mem::replace;

use stockade_model::time::Time;

use crate::policy::Slot;

/// Examines all slots in turn for expired entries. It pauses while none can have expired.
#[derive(Debug)]
pub(super) struct ExpirySweep {
    at: Slot,
    /// No entry expires before this.
    pub(super) earliest: Time,
    /// No entry examined in this turn, or stored since its start, expires before this.
    earliest_next: Time,
}

impl Default for ExpirySweep {
    fn default() -> Self {
        Self { at: 0, earliest: Time::NEVER, earliest_next: Time::NEVER }
    }
}

impl ExpirySweep {
    /// The next slot to examine.
    pub(super) fn next(&mut self, slots: usize) -> Slot {
        if self.at as usize >= slots {
            self.at = 0;
            self.earliest = replace(&mut self.earliest_next, Time::NEVER);
        }
        self.at += 1;
        self.at - 1
    }

    /// Registers a new or changed expiry.
    pub(super) fn register(&mut self, gone: Time) {
        self.earliest = self.earliest.min(gone);
        self.keep(gone);
    }

    /// Registers the expiry of an entry that was examined.
    pub(super) fn keep(&mut self, gone: Time) {
        self.earliest_next = self.earliest_next.min(gone);
    }
}
