//! Knowing when nothing is under way.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Held by every load and every store under way; the [`Site`] is idle when none is left.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Site>);

#[derive(Debug, Default)]
pub(crate) struct Site {
    under_way: AtomicUsize,
    idle: Notify,
}

impl Site {
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    pub(crate) async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            if self.is_idle() {
                return;
            }
            notified.await;
        }
    }
}

impl Clone for Busy {
    fn clone(&self) -> Self {
        self.0.begin()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::Release) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
