//! A time to live for caches without one: the cheapest fair check.
//!
//! An entry has the millisecond of its expiry, and a hit compares it with a counter that a separate thread
//! updates every millisecond: one load from a cache line that is nearly always cached.
//! stockade's own clock works the same way; moka asks the operating system, for some 20 ns.

use std::{
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The time to live: longer than any measurement, so that no entry expires.
pub const TTL: Duration = Duration::from_hours(1);

static NOW: Millis = Millis(AtomicU64::new(0));

/// Milliseconds, on a cache line without other writers.
#[repr(align(64))]
struct Millis(AtomicU64);

/// Starts the clock's thread, unless it runs.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let began = Instant::now();
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(1));
                NOW.0.store(millis(began.elapsed()), Ordering::Relaxed);
            }
        });
    });
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A value and its expiry.
#[derive(Clone)]
pub struct Expiring<V> {
    value: V,
    expires: u64,
}

impl<V> Expiring<V> {
    /// Fresh for [`TTL`] from now.
    pub fn new(value: V) -> Self {
        Self { value, expires: NOW.0.load(Ordering::Relaxed) + millis(TTL) }
    }

    /// True if it has not expired.
    pub fn is_fresh(&self) -> bool {
        NOW.0.load(Ordering::Relaxed) < self.expires
    }

    /// The value, if it has not expired.
    pub fn fresh(self) -> Option<V> {
        self.is_fresh().then_some(self.value)
    }
}

impl<V: Clone> Expiring<V> {
    /// A clone of the value, if it has not expired: an expired one is not cloned.
    pub fn fresh_clone(&self) -> Option<V> {
        self.is_fresh().then(|| self.value.clone())
    }
}
