//! A gate that releases all workers of a burst at one moment.
//!
//! N tasks cannot be started at once: the first one would finish before the last one starts, and the figures would
//! measure the start, not the strategy. So the clock stands at zero and the source holds every load until all N
//! lookups have finished and every load that they started is held. Then the gate opens and the clock starts.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use stockade_model::{
    source::{Document, Source, SourceFuture},
    time::{Runtime, Time},
};
use stockade_source::StagedSource;
use tokio::sync::Notify;

/// A barrier in front of a source. It holds the clock, too.
pub(super) struct Gate {
    /// The time of the opening on the inner clock, in nanoseconds.
    opened: AtomicU64,
    opening: Notify,
    arrivals: Mutex<Arrivals>,
    /// When the last held load passed, in nanoseconds after the opening.
    last_passed: AtomicU64,
}

#[derive(Default)]
struct Arrivals {
    workers: usize,
    looked_up: usize,
    loads: u64,
    held: u64,
}

/// The value of [`Gate::opened`] before the opening; no clock reaches it.
const CLOSED: u64 = u64::MAX;

impl Gate {
    /// A gate that opens when `workers` workers have arrived.
    pub(super) fn closed(workers: usize) -> Arc<Self> {
        Arc::new(Self::new(CLOSED, workers))
    }

    /// A gate that is open from the start: time begins now.
    pub(super) fn open(now: Time) -> Arc<Self> {
        Arc::new(Self::new(now.as_nanos(), 0))
    }

    fn new(opened: u64, workers: usize) -> Self {
        Self {
            opened: AtomicU64::new(opened),
            opening: Notify::new(),
            arrivals: Mutex::new(Arrivals { workers, ..Arrivals::default() }),
            last_passed: AtomicU64::new(0),
        }
    }

    /// A worker's lookup has finished; by then the cache had started `loads` loads.
    ///
    /// The worker that starts the last load sees all of them, so the largest number is the total.
    pub(super) fn looked_up(&self, loads: impl FnOnce() -> u64, now: impl FnOnce() -> Time) {
        if self.is_open() {
            return;
        }
        let loads = loads();
        self.arrive(now, |arrivals| {
            arrivals.looked_up += 1;
            arrivals.loads = arrivals.loads.max(loads);
        });
    }

    fn arrive(&self, now: impl FnOnce() -> Time, note: impl FnOnce(&mut Arrivals)) {
        if self.is_open() {
            return;
        }
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut arrivals);
        if arrivals.looked_up == arrivals.workers && arrivals.held == arrivals.loads {
            self.opened.store(now().as_nanos(), Ordering::Release);
            self.opening.notify_waiters();
        }
    }

    fn is_open(&self) -> bool {
        self.opened.load(Ordering::Acquire) != CLOSED
    }

    /// When the last held load passed, after the opening.
    pub(super) fn last_passed(&self) -> Duration {
        Duration::from_nanos(self.last_passed.load(Ordering::Relaxed))
    }
}

/// The clock behind a gate: zero until the gate opens.
#[derive(Clone)]
pub(super) struct Gated<R> {
    pub(super) clock: R,
    pub(super) gate: Arc<Gate>,
}

impl<R: Runtime> Runtime for Gated<R> {
    fn now(&self) -> Time {
        // Before the opening the saturating difference is zero.
        let opened = Time::from_nanos(self.gate.opened.load(Ordering::Acquire));
        Time::ZERO + (self.clock.now() - opened)
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        let this = self.clone();
        async move {
            loop {
                let now = this.now();
                if now >= deadline {
                    return;
                }
                // Before the opening this wakes too early, and sleeps again.
                this.clock.sleep_until(this.clock.now() + (deadline - now)).await;
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.clock.spawn(task);
    }
}

/// The source behind a gate.
pub(super) struct GatedSource<R> {
    pub(super) source: StagedSource<Gated<R>>,
    pub(super) time: Gated<R>,
}

impl<R: Runtime> GatedSource<R> {
    async fn pass(&self) {
        let gate = &*self.time.gate;
        if gate.is_open() {
            return;
        }
        // Registers before it arrives: its own arrival may open the gate.
        let mut opening = Box::pin(gate.opening.notified());
        opening.as_mut().enable();
        gate.arrive(|| self.time.clock.now(), |arrivals| arrivals.held += 1);
        if !gate.is_open() {
            opening.await;
        }
        gate.last_passed.fetch_max(self.time.now().as_nanos(), Ordering::Relaxed);
    }
}

impl<R: Runtime> Source for GatedSource<R> {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        Box::pin(async move {
            self.pass().await;
            self.source.fetch(id).await
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        self.source.ids()
    }
}
