//! Runs a load, from its first connection to its last response.
//!
//! ```text
//! LoadTest -> prepare -> run -> one LoadWorker per thread -> WorkerEvent -> Collector -> Observer, Summary
//! ```
//!
//! The threads share the plan and a few counters. In an open segment, thread `i` of `k` sends the requests `i`, `i + k`,
//! ... of this generator's [`Share`]. Each thread tallies its own requests, and sends its tally to the collector once a second.

mod closed;
mod collect;
mod control;
mod fold;
mod health;
mod in_flight;
mod limits;
mod open;
mod seconds;
mod share;
mod worker;

use std::{
    error::Error,
    fmt, io,
    num::NonZeroUsize,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use stockade_model::{
    seed::Seed,
    time::{Precise, Runtime, Time},
};
use tokio::{
    runtime::{Builder, Runtime as Tokio},
    task::LocalSet,
};
pub use tokio_util::sync::CancellationToken;

use self::{
    collect::Collector,
    limits::InFlightLimit,
    worker::{LoadContext, LoadWorker, WorkerEvent},
};
use crate::{
    client::{ClientContext, ThreadClient},
    plan::Plan,
    sample::{RequestFailure, Sample},
    settings::ClientOptions,
    summary::Summary,
    tally::Tally,
    tls::TrustError,
    traffic::Traffic,
};

pub use self::{
    control::{Control, ShareMove},
    fold::SummaryFold,
    health::lateness_allowed,
    limits::{ConnectionLimitError, ProcessLimits},
    open::busy_wait,
    seconds::{GeneratorEnd, GeneratorSecond, SecondMerger},
    share::Share,
};

/// A load: when requests are due, what they are, and how they are sent.
#[derive(Clone, Debug)]
pub struct LoadTest {
    /// The unique id of the run.
    pub id: String,
    /// When requests are due.
    pub plan: Plan,
    /// The content of each request.
    pub traffic: Arc<Traffic>,
    /// How they are sent.
    pub options: ClientOptions,
    /// The most requests in flight in open phases, of all generators together. Requests due beyond that wait, and count as late.
    /// `None`: what [`ProcessLimits::in_flight`] allows each generator.
    pub max_in_flight: Option<usize>,
    /// How long responses are awaited after the end of the plan.
    pub drain: Duration,
    /// Threads that send; `None`: as many as the rate needs, or one per core for closed loops.
    pub threads: Option<NonZeroUsize>,
    /// The seed of every random choice.
    pub seed: Seed,
    /// The number of its first request; above 0 where it continues another run. Several generators start at the same one, a multiple of
    /// the sum of their weights.
    pub first_request: u64,
    /// The requests that this generator sends.
    pub share: Share,
    /// True if the observer receives every sample.
    pub observes_samples: bool,
}

/// A rate that one thread sustains on any machine.
const REQUESTS_PER_S_PER_THREAD: f64 = 20_000.0;

/// Sends loads: from this process, or from generators on other machines.
pub trait LoadRunner: fmt::Debug + Send + Sync {
    /// True if this process sends them: then its processor time and memory are those of the load.
    fn is_this_process(&self) -> bool;

    /// Checks before anything is sent that the load can be run.
    fn prepare<'a>(&'a self, load: &'a LoadTest) -> Result<Box<dyn ReadyLoad + 'a>, LoadTestError>;
}

/// A load that is ready to run.
pub trait ReadyLoad {
    /// Runs the load to its end, or until it is cancelled. Blocks meanwhile.
    fn run(
        self: Box<Self>,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError>;
}

/// Sends loads from threads of this process.
#[derive(Clone, Copy, Debug)]
pub struct ThisProcess;

impl LoadRunner for ThisProcess {
    fn is_this_process(&self) -> bool {
        true
    }

    fn prepare<'a>(&'a self, load: &'a LoadTest) -> Result<Box<dyn ReadyLoad + 'a>, LoadTestError> {
        Ok(Box::new(load.prepare()?))
    }
}

/// Receives the progress of a load.
pub trait Observer {
    /// All threads are ready, and the first request is due in 10 ms.
    fn on_start(&mut self, start: LoadStart);

    /// One more second is complete in all threads.
    fn on_second(&mut self, second: &LoadProgress<'_>);

    /// A request of the measured part has ended. Samples arrive in no order. An error ends the load.
    fn on_sample(&mut self, sample: &Sample) -> io::Result<()>;
}

/// When a load starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadStart {
    /// The time of day at the clock's zero.
    pub clock_zero: SystemTime,
    /// The start of the measured part: the end of the warm-up.
    pub measured_from: Time,
}

/// The progress of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress<'a> {
    /// The last second.
    pub second: &'a GeneratorSecond,
    /// The requests of the last second, measured or warm-up.
    pub tally: &'a Tally,
    /// Requests that have ended so far.
    pub requests: u64,
    /// Those of them that failed: without a response, or with a status other than 200 to 399.
    pub failed: u64,
}

impl LoadProgress<'_> {
    /// Whole seconds since the start, warm-up included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_secs(self.second.second + 1)
    }

    /// True if the last second had requests of the warm-up.
    #[must_use]
    pub fn is_warmup(&self) -> bool {
        self.second.warmup.requests() > 0
    }
}

/// Why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadTestError {
    /// The trusted certificates could not be read.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The plan needs more connections than this process can open.
    #[error(transparent)]
    ConnectionLimit(#[from] ConnectionLimitError),
    /// The load has a server that this generator may not reach.
    #[error(transparent)]
    NotAllowed(RequestFailure),
    /// The system refused a thread, a timer or memory.
    #[error("cannot start a thread of the load: {0}")]
    Thread(io::Error),
    /// Samples could not be written.
    #[error("cannot write samples: {0}")]
    Samples(io::Error),
    /// Generators on other machines cannot run it.
    #[error(transparent)]
    Agents(Box<dyn Error + Send + Sync>),
    /// A thread panicked.
    #[error("a thread of the load panicked: this is a bug in Stockade")]
    Panic,
}

/// A finished load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadTestRun {
    /// Its results.
    pub summary: Summary,
    /// The part of them that is known at its end only.
    pub end: GeneratorEnd,
}

/// The capacity of the queue from the threads to the collector.
const EVENTS_MAX: usize = 256;

impl LoadTest {
    /// Checks before anything is sent that the process can open the connections, and reads the trusted certificates.
    pub fn prepare(&self) -> Result<PreparedLoadTest<'_>, LoadTestError> {
        ProcessLimits::raised().check(self)?;
        let client_context = ClientContext::new(self.options.clone(), Arc::clone(&self.traffic))?;
        if self.options.allowed.is_some() {
            let runtime = runtime().map_err(LoadTestError::Thread)?;
            runtime.block_on(client_context.check_allowed()).map_err(LoadTestError::NotAllowed)?;
        }
        Ok(PreparedLoadTest { load: self, client_context: Arc::new(client_context), control: None })
    }

    /// Runs the load to its end, or until it is cancelled: [`prepare`](Self::prepare), then [`PreparedLoadTest::run`].
    pub fn run(
        &self,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        self.prepare()?.run(observer, cancel)
    }

    /// The bound on this generator's requests in flight.
    fn own_in_flight_max(&self) -> usize {
        self.in_flight_limit().most
    }

    fn in_flight_limit(&self) -> InFlightLimit {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
        let enough = (self.own_peak_per_second() * self.options.timeout.as_secs_f64()).ceil() as usize;
        let all = self.plan.requests().map_or(usize::MAX, |all| self.own_part(all));
        let enough = enough.min(all).max(self.own_burst());
        let most = match self.max_in_flight {
            Some(max) => self.share.part_of(max).max(1),
            None => ProcessLimits::raised().in_flight(enough, self.own_burst()),
        };
        InFlightLimit { most, enough, is_of_process: self.max_in_flight.is_none() }
    }

    /// This generator's connections in closed loops.
    fn own_connections(&self) -> usize {
        self.share.part_of(self.plan.connections_max())
    }

    /// This generator's highest rate.
    fn own_peak_per_second(&self) -> f64 {
        self.plan.peak_per_second() * self.share.fraction()
    }

    /// This generator's part of `requests`.
    fn own_part(&self, requests: u64) -> usize {
        usize::try_from(self.share.below(requests)).unwrap_or(usize::MAX)
    }

    /// This generator's requests of the largest burst that need a connection each.
    fn own_burst(&self) -> usize {
        // HTTP/2 requests share connections.
        self.own_part(if self.options.http2 { 0 } else { self.plan.burst_max() })
    }

    fn threads(&self) -> usize {
        if let Some(threads) = self.threads {
            return threads.get();
        }
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if self.plan.connections_max() > 0 {
            return cores;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
        let needed = (self.own_peak_per_second() / REQUESTS_PER_S_PER_THREAD).ceil() as usize;
        needed.clamp(1, cores)
    }

    /// The threads that have a connection to use.
    fn useful_threads(&self) -> usize {
        let closed_max = Some(self.own_connections()).filter(|count| *count > 0).unwrap_or(usize::MAX);
        let open_max = if self.plan.peak_per_second() > 0.0 { self.own_in_flight_max() } else { usize::MAX };
        self.threads().min(closed_max).min(open_max).max(1)
    }
}

/// A load that is ready to run.
#[derive(Debug)]
pub struct PreparedLoadTest<'a> {
    load: &'a LoadTest,
    client_context: Arc<ClientContext>,
    control: Option<Arc<dyn Control>>,
}

impl ReadyLoad for PreparedLoadTest<'_> {
    fn run(
        self: Box<Self>,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        (*self).run(observer, cancel)
    }
}

impl PreparedLoadTest<'_> {
    /// Lets something outside of the generator start its segments, and end it.
    #[must_use]
    pub fn with_control(self, control: Arc<dyn Control>) -> Self {
        Self { control: Some(control), ..self }
    }

    /// Runs the load to its end, or until it is cancelled.
    ///
    /// Blocks meanwhile. Only name lookups that hang outlive it.
    #[expect(clippy::disallowed_methods, reason = "results have times of day")]
    pub fn run(
        self,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        let Self { load, client_context, control } = self;
        let threads = load.useful_threads();
        let context = Arc::new(LoadContext::new(load, threads, control, cancel.clone()));
        let (events, received) = mpsc::sync_channel(EVENTS_MAX);
        let runtime = runtime().map_err(LoadTestError::Thread)?;
        let (clock, clock_zero) = {
            let _guard = runtime.enter();
            let clock = Precise::new().map_err(LoadTestError::Thread)?;
            let elapsed = clock.now().elapsed();
            (clock, SystemTime::now() - elapsed)
        };
        let mut collector = Collector::new(load, threads, clock_zero);
        let mut handles = Vec::new();
        for index in 0..threads {
            let (context, client_context) = (Arc::clone(&context), Arc::clone(&client_context));
            let (clock, events) = (clock.clone(), events.clone());
            let thread = thread::Builder::new().name(format!("worker-{index}"));
            let thread = thread.spawn(move || run_thread(index, &context, client_context, &clock, events));
            handles.push(thread.map_err(|error| {
                cancel.cancel();
                LoadTestError::Thread(error)
            })?);
        }
        drop(events);
        let mut failure = None;
        for event in received {
            if let Err(error) = collector.collect(event, observer) {
                cancel.cancel();
                failure.get_or_insert(LoadTestError::Samples(error));
            }
        }
        for thread in handles {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failure = failure.or(Some(LoadTestError::Thread(error))),
                Err(_) => failure = Some(LoadTestError::Panic),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => {
                let was_cancelled = cancel.is_cancelled();
                let in_flight_max = context.in_flight_max.load(Relaxed);
                let (summary, end) = collector.finish(in_flight_max, was_cancelled);
                Ok(LoadTestRun { summary, end })
            }
        }
    }
}

fn runtime() -> io::Result<Tokio> {
    Builder::new_current_thread().enable_io().thread_name("blocking").build()
}

fn run_thread(
    index: usize,
    context: &Arc<LoadContext>,
    client_context: Arc<ClientContext>,
    clock: &Precise,
    events: mpsc::SyncSender<WorkerEvent>,
) -> io::Result<()> {
    // The other threads wait for this one at the barrier: if it fails, the load ends.
    let guard = context.cancel.clone().drop_guard();
    let runtime = runtime()?;
    {
        let _guard = runtime.enter();
        let clock = clock.on_current_runtime()?;
        let may_send = {
            let context = Arc::clone(context);
            Box::new(move || context.may_send())
        };
        let client = ThreadClient::new(client_context, clock, may_send);
        let worker = LoadWorker::new(index, Arc::clone(context), client, events);
        LocalSet::new().block_on(&runtime, worker.run());
    }
    // Does not wait for name lookups that hang.
    runtime.shutdown_background();
    guard.disarm();
    Ok(())
}
