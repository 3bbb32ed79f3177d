//! The bytes of a cache: one account for all shards and all loads.

use std::sync::Arc;

use stockade_model::time::yield_now;
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
    /// Of what is held, what loads under way may bring: half of the limit at most, so that what may
    /// come does not drive out all that is there.
    promised: AtomicUsize,
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
            promised: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            is_reclaiming: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    fn try_take(&self, bytes: usize) -> bool {
        match add_below(&self.held, bytes, self.ceiling.most) {
            Some(held) => {
                self.peak.fetch_max(held, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.held.fetch_sub(bytes, Ordering::SeqCst);
            self.tell();
        }
    }

    /// There is room, or something that can make room: whoever waits for that tries again.
    fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Takes steps until one is the last. Between two it waits for a change, if the first found
    /// nothing to do, and else lets others have their turn.
    pub(crate) async fn until(&self, mut step: impl FnMut() -> Progress) {
        let _waiting = Waiting::begin(&self.waiting);
        loop {
            let freed = self.freed.notified();
            match step() {
                Progress::Done => return,
                Progress::More => yield_now().await,
                Progress::Blocked => freed.await,
            }
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// What is held by entries, and by what is on its way in or out.
    pub(crate) fn stored(&self) -> usize {
        self.held().saturating_sub(self.promised.load(Ordering::SeqCst))
    }

    /// The most that was ever held.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// The ceiling was met; true for who is to begin reclaiming.
    pub(crate) fn begin_reclaim(&self) -> bool {
        self.ceiling.reclaimed < self.ceiling.most
            && !self.is_reclaiming.load(Ordering::Relaxed)
            && !self.is_reclaiming.swap(true, Ordering::SeqCst)
    }

    /// Whether there is still something to be reclaimed.
    pub(crate) fn is_reclaiming(&self) -> bool {
        if !self.is_reclaiming.load(Ordering::Relaxed) {
            return false;
        }
        let goes_on = self.stored() > self.ceiling.reclaimed;
        if !goes_on {
            self.is_reclaiming.store(false, Ordering::SeqCst);
        }
        goes_on
    }
}

/// How far the making of room has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// There is more to be evicted.
    More,
    /// Nothing is left that could be evicted.
    Blocked,
}

/// Adds, unless that makes more than `most`; the sum.
fn add_below(to: &AtomicUsize, addend: usize, most: usize) -> Option<usize> {
    let grown = |value: usize| value.checked_add(addend).filter(|&sum| sum <= most);
    to.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown).ok().map(|before| before + addend)
}

/// Counts who waits, however the wait ends.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }

    /// Only if fewer than `most` wait.
    pub(crate) fn try_begin(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        add_below(count, 1, most).map(|_| Self(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that a load may need, or that a value has until it is stored, or an entry until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
    /// How much of the budget's promises is for this one.
    promised: usize,
}

impl Reservation {
    /// No bytes yet.
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self::of(budget, 0)
    }

    /// Of bytes that are held already, by an entry that has left.
    pub(crate) fn of(budget: &Arc<Budget>, bytes: usize) -> Self {
        Self { budget: Arc::clone(budget), bytes, promised: 0 }
    }

    /// Says that it is for a load that may bring so many; false if loads have been promised too much.
    pub(crate) fn try_promise(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.promised);
        let most = (self.budget.ceiling.most / 2).max(self.budget.max_object);
        if more > 0 && add_below(&self.budget.promised, more, most).is_none() {
            return false;
        }
        self.promised += more;
        true
    }

    /// The load is over: what it brought is known.
    pub(crate) fn settle(&mut self) {
        let promised = std::mem::take(&mut self.promised);
        if promised > 0 {
            self.budget.promised.fetch_sub(promised, Ordering::SeqCst);
            self.budget.tell();
        }
    }

    /// Makes it so many bytes; false if there is no room now for what is missing.
    pub(crate) fn try_resize(&mut self, bytes: usize) -> bool {
        if self.bytes >= bytes {
            self.budget.release(self.bytes - bytes);
        } else if !self.budget.try_take(bytes - self.bytes) {
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Drops what has left, and has its bytes.
    pub(crate) fn adopt<T>(&mut self, left: T, bytes: usize) {
        let mut freed = Self::of(&self.budget, bytes);
        drop(left);
        self.bytes += std::mem::take(&mut freed.bytes);
    }

    /// What is held besides, and not promised to loads.
    pub(crate) fn others(&self) -> usize {
        self.budget.stored().saturating_sub(self.bytes)
    }

    /// The bytes now belong to what was stored with them.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
        self.budget.tell();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle();
        self.budget.release(self.bytes);
    }
}
