//! The bytes of a cache: one account for all shards and all loads.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{
    limit::{Ceiling, Limit},
    sync::{AtomicBool, AtomicUsize, Ordering},
};

/// Bytes are taken before something is stored or loaded, and given back after it has been dropped. So
/// what is held is never more than the limit, not even for a moment.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) ceiling: Ceiling,
    /// Nothing larger is stored.
    pub(crate) max_object: usize,
    held: AtomicUsize,
    peak: AtomicUsize,
    is_reclaiming: AtomicBool,
    waiting: AtomicUsize,
    freed: Notify,
}

impl Budget {
    pub(crate) fn new(limit: &Limit) -> Option<Self> {
        let bytes = limit.bytes?;
        Some(Self {
            ceiling: Ceiling::new(bytes, limit.reclaim),
            max_object: limit.max_object_bytes(bytes),
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            is_reclaiming: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    /// Takes so many bytes, if there is room for them now.
    pub(crate) fn try_take(&self, bytes: usize) -> bool {
        let most = self.ceiling.most;
        let grown = |held: usize| held.checked_add(bytes).filter(|&held| held <= most);
        match self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown) {
            Ok(before) => {
                self.peak.fetch_max(before + bytes, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.held.fetch_sub(bytes, Ordering::SeqCst);
            self.tell();
        }
    }

    /// There is room, or something that can make room: whoever waits for that tries again.
    pub(crate) fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Waits until `take` succeeds. It is tried again whenever something changes.
    pub(crate) async fn until<T>(&self, take: impl Fn() -> Option<T>) -> T {
        let _waiting = Waiting::begin(&self.waiting);
        loop {
            let freed = self.freed.notified();
            if let Some(taken) = take() {
                return taken;
            }
            freed.await;
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// The most that was ever held.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// The ceiling was met; true for who is to begin reclaiming.
    pub(crate) fn begin_reclaim(&self) -> bool {
        self.ceiling.reclaimed < self.ceiling.most && !self.is_reclaiming.swap(true, Ordering::SeqCst)
    }

    /// Whether there is still something to be reclaimed.
    pub(crate) fn is_reclaiming(&self) -> bool {
        if !self.is_reclaiming.load(Ordering::Relaxed) {
            return false;
        }
        let goes_on = self.held() > self.ceiling.reclaimed;
        if !goes_on {
            self.is_reclaiming.store(false, Ordering::SeqCst);
        }
        goes_on
    }
}

/// Counts who waits, however the wait ends.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    pub(crate) fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }

    /// Only if fewer than `most` wait.
    pub(crate) fn try_begin(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let grown = |waiting: usize| (waiting < most).then_some(waiting + 1);
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown).ok().map(|_| Self(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that a load will need, or that a value has until it is stored.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    pub(crate) fn try_new(budget: &Arc<Budget>, bytes: usize) -> Option<Self> {
        budget.try_take(bytes).then(|| Self { budget: Arc::clone(budget), bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives up what is beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let beyond = self.bytes.saturating_sub(bytes);
        self.bytes -= beyond;
        self.budget.release(beyond);
    }

    /// Adds what another has.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// The bytes now belong to what was stored with them.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
        self.budget.tell();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}
