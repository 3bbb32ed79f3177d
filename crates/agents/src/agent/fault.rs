//! The fault that ends a load of an agent.

use std::sync::{Arc, Mutex, PoisonError};

use stockade_load::generator::CancellationToken;

/// The first fault of an agent's load, which ends it.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    reason: Arc<Mutex<Option<String>>>,
    /// Cancels the load.
    stop: CancellationToken,
}

impl Fault {
    pub(super) fn none(stop: CancellationToken) -> Self {
        Self { reason: Arc::default(), stop }
    }

    pub(super) fn note(&self, reason: impl Into<String>) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason.into());
        self.stop.cancel();
    }

    pub(super) fn take(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
