//! The bytes of a cache: one account for all shards and all loads.

use std::sync::Arc;

use stockade_model::time::yield_now;
use tokio::sync::Notify;

use crate::{
    limit::{Limit, LimitBounds},
    locks::{AtomicBool, AtomicUsize, Ordering},
};

/// Bytes are reserved before a value is stored or loaded, and released after it has been dropped. So the bytes in
/// use never exceed the limit, not even for a moment.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    max: AtomicUsize,
    reclaim_to: AtomicUsize,
    /// Larger entries are not stored.
    pub(crate) max_object: usize,
    used: AtomicUsize,
    /// Bytes reserved for loads in flight: half of the limit at most, so that loads do not evict all entries.
    reserved_for_loads: AtomicUsize,
    set_aside: AtomicUsize,
    peak: AtomicUsize,
    is_reclaiming: AtomicBool,
    waiting: AtomicUsize,
    freed: Notify,
}

impl ByteBudget {
    pub(crate) fn new(limit: &Limit) -> Option<Self> {
        let bytes = limit.bytes?;
        let LimitBounds { max, reclaim_to } = LimitBounds::new(bytes, limit.reclaim);
        Some(Self {
            max: AtomicUsize::new(max),
            reclaim_to: AtomicUsize::new(reclaim_to),
            max_object: limit.max_object_bytes(bytes),
            used: AtomicUsize::new(0),
            reserved_for_loads: AtomicUsize::new(0),
            set_aside: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            is_reclaiming: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    /// Bytes in use beyond a smaller limit stay until they are released.
    pub(crate) fn resize(&self, LimitBounds { max, reclaim_to }: LimitBounds) {
        self.max.store(max, Ordering::SeqCst);
        self.reclaim_to.store(reclaim_to, Ordering::SeqCst);
        self.freed.notify_waiters();
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    fn reclaim_to(&self) -> usize {
        self.reclaim_to.load(Ordering::Relaxed)
    }

    fn try_take(&self, bytes: usize) -> bool {
        match add_below(&self.used, bytes, self.max()) {
            Some(used) => {
                self.peak.fetch_max(used, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::SeqCst);
            self.notify_waiters();
        }
    }

    /// Drops removed entries and releases their bytes.
    pub(crate) fn drop_and_release<T>(&self, left: T, bytes: usize) {
        let freed = FreedBytes { budget: self, bytes };
        drop(left);
        drop(freed);
    }

    /// Wakes tasks that wait for bytes.
    fn notify_waiters(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Repeats a step until it is done. In between it waits for released bytes if the step was blocked, and yields
    /// otherwise.
    pub(crate) async fn wait_until(&self, mut step: impl FnMut() -> EvictionProgress) {
        let _waiting = WaitCount::start(&self.waiting);
        loop {
            let freed = self.freed.notified();
            match step() {
                EvictionProgress::Done => return,
                EvictionProgress::More => yield_now().await,
                EvictionProgress::Blocked => freed.await,
            }
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Bytes of entries, and of stores in progress.
    pub(crate) fn stored(&self) -> usize {
        let reserved = self.reserved_for_loads.load(Ordering::SeqCst);
        self.used().saturating_sub(reserved).saturating_sub(self.set_aside())
    }

    /// Bytes that are set aside for other memory.
    pub(crate) fn set_aside(&self) -> usize {
        self.set_aside.load(Ordering::Relaxed)
    }

    /// Records how many bytes are set aside: those of a [`ReservedBytes`].
    pub(super) fn record_set_aside(&self, bytes: usize) {
        self.set_aside.store(bytes, Ordering::Relaxed);
    }

    /// The maximum of `used`.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Called when the limit is reached. Returns true to the caller that starts reclaiming.
    pub(crate) fn start_reclaim(&self) -> bool {
        self.reclaim_to() < self.max()
            && self.stored() > self.reclaim_to()
            && !self.is_reclaiming.load(Ordering::Relaxed)
            && !self.is_reclaiming.swap(true, Ordering::SeqCst)
    }

    /// True if reclaiming goes on.
    pub(crate) fn is_reclaiming(&self) -> bool {
        if !self.is_reclaiming.load(Ordering::Relaxed) {
            return false;
        }
        let goes_on = self.stored() > self.reclaim_to();
        if !goes_on {
            self.is_reclaiming.store(false, Ordering::SeqCst);
        }
        goes_on
    }
}

/// Bytes accounted to a [limit in bytes](crate::Limit::bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteUsage {
    /// Bytes of entries, of reservations, and [set aside](crate::Cache::set_aside), at this moment.
    pub used: usize,
    /// The part that is set aside.
    pub set_aside: usize,
    /// The maximum of `used` since the cache was built. It never exceeds the limit, unless that was [made smaller](crate::Cache::resize).
    pub peak: usize,
}

/// The progress of an eviction for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionProgress {
    Done,
    /// More can be evicted.
    More,
    /// Nothing is left to evict, or removed entries are held.
    Blocked,
}

/// Adds, unless the sum exceeds the bound. Returns the sum.
fn add_below(to: &AtomicUsize, addend: usize, max: usize) -> Option<usize> {
    let grown = |value: usize| value.checked_add(addend).filter(|&sum| sum <= max);
    to.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown).ok().map(|before| before + addend)
}

/// Counts waiting tasks, however the wait ends.
pub(crate) struct WaitCount<'a>(&'a AtomicUsize);

impl<'a> WaitCount<'a> {
    fn start(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }

    /// `None`: the count has reached the bound.
    pub(crate) fn try_start(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        add_below(count, 1, max).map(|_| Self(count))
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes of removed entries. They are released even if the drop of an entry panics.
struct FreedBytes<'a> {
    budget: &'a ByteBudget,
    bytes: usize,
}

impl Drop for FreedBytes<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Bytes reserved for a load, for a value until it is stored, or for an entry until it is dropped.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    budget: Arc<ByteBudget>,
    bytes: usize,
    /// The part that counts against the bound of loads.
    reserved_for_loads: usize,
}

impl ReservedBytes {
    pub(crate) fn none(budget: &Arc<ByteBudget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0, reserved_for_loads: 0 }
    }

    /// Counts these bytes as reserved for a load. Returns false if loads have reserved too much.
    pub(crate) fn try_reserve_for_load(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.reserved_for_loads);
        let max = (self.budget.max() / 2).max(self.budget.max_object);
        if more > 0 && add_below(&self.budget.reserved_for_loads, more, max).is_none() {
            return false;
        }
        self.reserved_for_loads += more;
        true
    }

    /// Ends the load. The bytes now count as stored.
    pub(crate) fn end_load(&mut self) {
        let reserved_for_loads = std::mem::take(&mut self.reserved_for_loads);
        if reserved_for_loads > 0 {
            self.budget.reserved_for_loads.fetch_sub(reserved_for_loads, Ordering::SeqCst);
            self.budget.notify_waiters();
        }
    }

    /// Sets the reservation to `bytes`. Returns false if the limit has no room for more.
    pub(crate) fn try_resize(&mut self, bytes: usize) -> bool {
        if self.bytes >= bytes {
            self.budget.release(self.bytes - bytes);
        } else if !self.budget.try_take(bytes - self.bytes) {
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Drops removed entries and takes over their bytes.
    pub(crate) fn drop_and_take<T>(&mut self, left: T, bytes: usize) {
        let mut freed = FreedBytes { budget: &self.budget, bytes };
        drop(left);
        self.bytes += std::mem::take(&mut freed.bytes);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes in use outside this reservation, without those reserved for loads.
    pub(crate) fn used_by_others(&self) -> usize {
        self.budget.stored().saturating_sub(self.bytes)
    }

    /// Hands the bytes over to the stored entry.
    pub(crate) fn commit(mut self) {
        self.bytes = 0;
        self.budget.notify_waiters();
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.end_load();
        self.budget.release(self.bytes);
    }
}
