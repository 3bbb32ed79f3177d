//! What a connection and the requests on it tell each other.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_model::time::{Runtime, Time};

use crate::{fault::Broken, service::Service, wire::FiledBody};

/// Without a request, or a byte of an answer that is taken, a connection ends after as long.
const IDLE: Duration = Duration::from_secs(75);

/// One connection.
pub(crate) struct Session {
    pub(crate) service: Service,
    /// Requests that have not been answered to the end.
    open: AtomicU64,
    /// When something happened last, in ns.
    touched: AtomicU64,
    /// The large body that is being sent.
    sending: Mutex<Option<Arc<FiledBody>>>,
    /// What is to be done to a connection of HTTP/1 in place of an answer.
    broken: Mutex<Option<Broken>>,
}

/// A request, until its answer has left or nobody wants it any more.
pub(crate) struct Visit(Arc<Session>);

impl Session {
    pub(crate) fn new(service: Service) -> Arc<Self> {
        service.state.connections.join();
        let touched = AtomicU64::new(service.time.now().as_nanos());
        let (sending, broken) = (Mutex::default(), Mutex::default());
        Arc::new(Self { service, open: AtomicU64::new(0), touched, sending, broken })
    }

    /// A request has come.
    pub(crate) fn enter(self: &Arc<Self>) -> Visit {
        self.service.state.in_flight.join();
        self.open.fetch_add(1, Relaxed);
        // What was sent before has left its buffers, or is copied out of them.
        *lock(&self.sending) = None;
        Visit(Arc::clone(self))
    }

    /// Something happens.
    pub(crate) fn touch(&self) {
        self.touched.store(self.service.time.now().as_nanos(), Relaxed);
    }

    /// When the connection is to end unless something happens; never while a request is being answered.
    pub(crate) fn deadline(&self) -> Time {
        if self.open.load(Relaxed) > 0 {
            return self.service.time.now() + IDLE;
        }
        Time::from_nanos(self.touched.load(Relaxed)) + IDLE
    }

    pub(crate) fn send(&self, body: &Arc<FiledBody>) {
        *lock(&self.sending) = Some(Arc::clone(body));
    }

    pub(crate) fn sending(&self) -> Option<Arc<FiledBody>> {
        lock(&self.sending).clone()
    }

    pub(crate) fn break_off(&self, broken: Broken) {
        *lock(&self.broken) = Some(broken);
    }

    pub(crate) fn take_broken(&self) -> Option<Broken> {
        lock(&self.broken).take()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.service.state.connections.leave();
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.touch();
        self.0.open.fetch_sub(1, Relaxed);
        self.0.service.state.in_flight.leave();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
