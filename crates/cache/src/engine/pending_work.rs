//! Counts the loads and stores in progress, so that callers can wait for their end.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::locks::{AtomicUsize, Ordering};

/// Held by every load and every store in progress. The [`PendingWork`] is idle when all are dropped.
#[derive(Debug)]
pub(crate) struct WorkGuard(Arc<PendingWork>);

#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    under_way: AtomicUsize,
    wait_idle: Notify,
}

impl PendingWork {
    pub(crate) fn start(self: &Arc<Self>) -> WorkGuard {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        WorkGuard(Arc::clone(self))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    pub(crate) async fn wait_idle(&self) {
        loop {
            let notified = self.wait_idle.notified();
            if self.is_idle() {
                return;
            }
            notified.await;
        }
    }
}

impl Clone for WorkGuard {
    fn clone(&self) -> Self {
        self.0.start()
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::Release) == 1 {
            self.0.wait_idle.notify_waiters();
        }
    }
}
