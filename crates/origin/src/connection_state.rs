//! State that a connection shares with the requests on it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_model::time::{Precise, Runtime, Time};

use crate::{fault::BrokenResponse, memfd::MemfdBody, state::OriginState};

/// A connection ends after this time without an open request and without a byte that the client takes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// One listener, on its own thread.
#[derive(Clone)]
pub(crate) struct ListenerContext {
    pub(crate) state: Arc<OriginState>,
    pub(crate) time: Precise,
    /// It serves the admin pages as well.
    pub(crate) has_admin_pages: bool,
}

pub(crate) struct OriginConnection {
    pub(crate) listener: ListenerContext,
    open_requests: AtomicU64,
    /// Time of the last activity, in ns.
    last_activity: AtomicU64,
    /// The large body that is being sent.
    sending: Mutex<Option<Arc<MemfdBody>>>,
    /// The response that the connection has to send in place of hyper (HTTP/1.1).
    broken: Mutex<Option<BrokenResponse>>,
}

/// An open request, until its response has been sent or dropped.
pub(crate) struct OpenRequestGuard(Arc<OriginConnection>);

impl OriginConnection {
    pub(crate) fn new(listener: ListenerContext) -> Arc<Self> {
        listener.state.connections.increment();
        let last_activity = AtomicU64::new(listener.time.now().as_nanos());
        let (sending, broken) = (Mutex::default(), Mutex::default());
        Arc::new(Self { listener, open_requests: AtomicU64::new(0), last_activity, sending, broken })
    }

    pub(crate) fn open_request(self: &Arc<Self>) -> OpenRequestGuard {
        self.listener.state.open_requests.increment();
        self.open_requests.fetch_add(1, Relaxed);
        // hyper has sent the previous body, or holds a copy of its rest.
        *lock(&self.sending) = None;
        OpenRequestGuard(Arc::clone(self))
    }

    /// Postpones the idle timeout.
    pub(crate) fn record_activity(&self) {
        self.last_activity.store(self.listener.time.now().as_nanos(), Relaxed);
    }

    /// Time at which the connection ends unless there is activity before. An open request postpones it.
    pub(crate) fn idle_deadline(&self) -> Time {
        if self.open_requests.load(Relaxed) > 0 {
            return self.listener.time.now() + IDLE_TIMEOUT;
        }
        Time::from_nanos(self.last_activity.load(Relaxed)) + IDLE_TIMEOUT
    }

    pub(crate) fn set_sending(&self, body: &Arc<MemfdBody>) {
        *lock(&self.sending) = Some(Arc::clone(body));
    }

    pub(crate) fn sending(&self) -> Option<Arc<MemfdBody>> {
        lock(&self.sending).clone()
    }

    pub(crate) fn set_broken(&self, broken: BrokenResponse) {
        *lock(&self.broken) = Some(broken);
    }

    pub(crate) fn take_broken(&self) -> Option<BrokenResponse> {
        lock(&self.broken).take()
    }
}

impl Drop for OriginConnection {
    fn drop(&mut self) {
        self.listener.state.connections.decrement();
    }
}

impl Drop for OpenRequestGuard {
    fn drop(&mut self) {
        self.0.record_activity();
        self.0.open_requests.fetch_sub(1, Relaxed);
        self.0.listener.state.open_requests.decrement();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
