//! When the entries of a shard were last requested, for [`Builder::time_to_idle`](crate::Builder::time_to_idle).

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use stockade_model::time::Time;

use crate::policy::Slot;

/// A request writes the time of its entry if the time there is older than this part of the idle time: hits of a hot entry only read.
const STEPS: u32 = 128;

/// The last request of the entry in each slot. An entry is idle after the idle time at the earliest, and a 128th of it later at the
/// latest.
#[derive(Debug)]
pub(crate) struct IdleTimes {
    step: Duration,
    idle_after: Duration,
    /// In nanoseconds.
    last: Vec<AtomicU64>,
}

impl IdleTimes {
    /// Bytes of an entry.
    pub(crate) const ENTRY_BYTES: usize = size_of::<AtomicU64>();

    pub(crate) fn new(idle: Duration) -> Self {
        let step = idle / STEPS;
        Self { step, idle_after: idle.saturating_add(step), last: Vec::new() }
    }

    /// Begins the idle time of the new value in a slot. Returns its end.
    pub(crate) fn start(&mut self, slot: Slot, now: Time) -> Time {
        let slot = slot as usize;
        if slot >= self.last.len() {
            self.last.resize_with(slot + 1, AtomicU64::default);
        }
        *self.last[slot].get_mut() = now.as_nanos();
        now + self.idle_after
    }

    /// Records a request, unless the entry is idle already. Returns false if it is.
    pub(crate) fn touch(&self, slot: Slot, now: Time) -> bool {
        let Some(last) = self.last.get(slot as usize) else { return true };
        let unused = now - Time::from_nanos(last.load(Relaxed));
        if unused >= self.idle_after {
            return false;
        }
        if unused > self.step {
            last.store(now.as_nanos(), Relaxed);
        }
        true
    }

    /// The end of an entry's idle time, if no request comes before.
    pub(crate) fn end(&self, slot: Slot) -> Time {
        let last = self.last.get(slot as usize);
        last.map_or(Time::NEVER, |last| Time::from_nanos(last.load(Relaxed)) + self.idle_after)
    }

    /// Releases the memory of the slots from `slots` on, but for `capacity`.
    pub(crate) fn shrink(&mut self, slots: usize, capacity: usize) {
        self.last.truncate(slots);
        self.last.shrink_to(capacity);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any requests: an entry is idle between the idle time and a 128th more after the last of them that found it.
        #[test]
        fn an_entry_is_idle_after_its_last_request(
            idle_ms in 1_u64..1_000_000,
            waits in prop::collection::vec(0.0..1.1_f64, 1..50),
        ) {
            let idle = Duration::from_millis(idle_ms);
            let mut times = IdleTimes::new(idle);
            let mut now = Time::ZERO + Duration::from_secs(1);
            prop_assert_eq!(times.start(0, now), times.end(0));
            let mut last = now;
            for wait in waits {
                now = now + idle.mul_f64(wait);
                let (unused, end) = (now - last, times.end(0));
                let is_found = times.touch(0, now);
                prop_assert_eq!(is_found, now < end, "the sweep and lookups agree");
                prop_assert!(is_found || unused >= idle);
                prop_assert!(!is_found || unused <= idle + idle / STEPS);
                if !is_found {
                    break;
                }
                last = now;
            }
        }
    }
}
