//! A load, from its first connection to its last answer.
//!
//! Threads share the plan and some counters: of an open part thread `i` of `k` sends the requests `i`, `i + k`, ..., and
//! each counts for itself.
//! Once a second each tells what that second came to; whoever called merges that, shows it, and writes it down.

mod closed;
mod collect;
mod limits;
mod open;
mod underway;
mod worker;

use std::{
    cell::Cell,
    io,
    iter::successors,
    num::NonZeroUsize,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use futures_util::future::select_all;
use stockade_model::{
    seed::Seed,
    time::{Precise, Runtime, Time},
};
use tokio::{
    runtime::{Builder, Runtime as Tokio},
    sync::watch,
    task::LocalSet,
};

use self::{
    collect::Collector,
    worker::{Event, Shared, Worker},
};
use crate::{
    client::{Client, Common, Options},
    plan::Plan,
    sample::Sample,
    summary::Summary,
    tally::Tally,
    tls::TrustError,
    traffic::Traffic,
};

pub use self::limits::{Limits, TooMany};

/// A load: when, what, how.
#[derive(Clone, Debug)]
pub struct Load {
    /// Tells its run from all others.
    pub id: String,
    /// When requests are due.
    pub plan: Plan,
    /// What they ask for.
    pub traffic: Arc<Traffic>,
    /// How they are made.
    pub options: Options,
    /// How many may be under way at once in the open phases; what is due beyond that waits, and is told to be late.
    pub max_in_flight: usize,
    /// How long answers are waited for once the plan is at its end.
    pub drain: Duration,
    /// How many threads send.
    pub threads: NonZeroUsize,
    /// Where every random choice comes from.
    pub seed: Seed,
    /// The number of its first request; 0, unless it goes on where another one ended.
    pub first: u64,
    /// Whether the observer is told every sample.
    pub tells_samples: bool,
}

/// So many requests a second are one thread's without a doubt.
const PER_THREAD: f64 = 20_000.0;

/// How many threads a plan takes: as many as its rate needs; users are spread over all cores.
#[must_use]
pub fn threads(plan: &Plan) -> NonZeroUsize {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    if plan.connections_max() > 0 {
        return cores;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
    let needed = (plan.peak_per_second() / PER_THREAD).ceil() as usize;
    NonZeroUsize::new(needed.clamp(1, cores.get())).unwrap_or(cores)
}

/// Whoever follows a load while it runs.
pub trait Observer {
    /// The first request will be due in a moment.
    fn begins(&mut self, begins: Begins);

    /// One more second of all threads is complete.
    fn second(&mut self, second: &Progress<'_>);

    /// A request of the measured part has ended; they come in no order. An error ends the load.
    fn sample(&mut self, sample: &Sample) -> io::Result<()>;
}

/// When a load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begins {
    /// The time of day at the clock's zero.
    pub clock_zero: SystemTime,
    /// When the measured part begins: after the warm-up.
    pub at: Time,
}

/// How far a load is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Seconds since it began, the warm-up's included.
    pub elapsed: Duration,
    /// What the last of them came to; in the warm-up, that of the warm-up.
    pub tally: &'a Tally,
    /// It is still the warm-up.
    pub is_warmup: bool,
    /// Requests that ended so far.
    pub requests: u64,
    /// Those of them without an answer.
    pub failed: u64,
}

/// Asks a load to end, from wherever.
#[derive(Clone, Debug)]
pub struct Stop {
    own: watch::Sender<bool>,
    above: Option<Box<Self>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { own: watch::channel(false).0, above: None }
    }
}

impl Stop {
    /// Another one, which hears of what this one is asked, and is asked for itself alone.
    #[must_use]
    pub fn below(&self) -> Self {
        Self { above: Some(Box::new(self.clone())), ..Self::default() }
    }

    /// Now, with what has been measured. Whoever holds a clone hears it, and whoever is below.
    pub fn request(&self) {
        self.own.send_replace(true);
    }

    /// Whether anybody has.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.own.borrow() || self.above.as_ref().is_some_and(|above| above.is_requested())
    }

    /// Completes when somebody asks, at once if somebody has.
    pub async fn requested(&self) {
        let all = successors(Some(self), |stop| stop.above.as_deref());
        let heard = all.map(|stop| {
            let mut heard = stop.own.subscribe();
            // This end is alive: it cannot fail.
            Box::pin(async move { drop(heard.wait_for(|stop| *stop).await) })
        });
        select_all(heard).await;
    }
}

/// A load that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nobody could be trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// More than this machine can have open.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The system refused a thread, a timer or memory.
    #[error("cannot start a thread of the load: {0}")]
    Thread(io::Error),
    /// Samples could not be written.
    #[error("cannot write samples: {0}")]
    Samples(io::Error),
    /// A fault of ours.
    #[error("a thread of the load has failed: this is a fault of Stockade's")]
    Fault,
}

/// What a finished load leaves, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// What it came to.
    pub summary: Summary,
    /// Somebody stopped it.
    pub was_stopped: bool,
}

/// Between a thread and whoever listens: so much may wait.
const EVENTS_MAX: usize = 256;

impl Load {
    /// Looks at what can be wrong before anything is sent: whether this machine can have so many connections, and whom
    /// they trust.
    pub fn ready(&self) -> Result<Ready<'_>, LoadError> {
        Limits::raised().check(&self.plan, self.max_in_flight, &self.options)?;
        let common = Common::new(self.options.clone(), Arc::clone(&self.traffic))?;
        Ok(Ready { load: self, common: Arc::new(common) })
    }

    /// Runs it to its end, or until somebody stops it: [`ready`](Self::ready), and then [`Ready::run`].
    pub fn run(&self, observer: &mut dyn Observer, stop: &Stop) -> Result<Ran, LoadError> {
        self.ready()?.run(observer, stop)
    }

    /// How many threads there are: one without a connection would have nothing to do.
    fn threads(&self) -> usize {
        let of_users = Some(self.plan.connections_max()).filter(|users| *users > 0).unwrap_or(usize::MAX);
        let of_rates = if self.plan.peak_per_second() > 0.0 { self.max_in_flight } else { usize::MAX };
        self.threads.get().min(of_users).min(of_rates).max(1)
    }
}

/// A load that can begin.
#[derive(Debug)]
pub struct Ready<'a> {
    load: &'a Load,
    common: Arc<Common>,
}

impl Ready<'_> {
    /// Runs it to its end, or until somebody stops it.
    ///
    /// Blocks for as long as that takes. Nothing outlives it but name look-ups that hang.
    #[expect(clippy::disallowed_methods, reason = "results tell the time of day")]
    pub fn run(self, observer: &mut dyn Observer, stop: &Stop) -> Result<Ran, LoadError> {
        let Self { load, common } = self;
        let threads = load.threads();
        let shared = Arc::new(Shared::new(load, threads, stop.clone()));
        let (events, told) = mpsc::sync_channel(EVENTS_MAX);
        let runtime = runtime().map_err(LoadError::Thread)?;
        let (clock, clock_zero) = {
            let _inside = runtime.enter();
            let clock = Precise::new().map_err(LoadError::Thread)?;
            let since = clock.now().elapsed();
            (clock, SystemTime::now() - since)
        };
        let mut collector = Collector::new(load, threads, clock_zero);
        let mut started = Vec::new();
        for index in 0..threads {
            let (ours, common) = (Arc::clone(&shared), Arc::clone(&common));
            let (clock, events) = (clock.clone(), events.clone());
            let thread = thread::Builder::new().name(format!("load-{index}"));
            let thread = thread.spawn(move || run_thread(index, &ours, common, &clock, events));
            started.push(thread.map_err(|error| {
                stop.request();
                LoadError::Thread(error)
            })?);
        }
        drop(events);
        let mut trouble = None;
        for event in told {
            if let Err(error) = collector.take(event, observer) {
                stop.request();
                trouble.get_or_insert(LoadError::Samples(error));
            }
        }
        for thread in started {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => trouble = trouble.or(Some(LoadError::Thread(error))),
                Err(_) => trouble = Some(LoadError::Fault),
            }
        }
        match trouble {
            Some(error) => Err(error),
            None => {
                let was_stopped = stop.is_requested();
                let in_flight_max = shared.in_flight_max.load(Relaxed);
                Ok(Ran { summary: collector.summary(in_flight_max, was_stopped), was_stopped })
            }
        }
    }
}

fn runtime() -> io::Result<Tokio> {
    Builder::new_current_thread().enable_io().build()
}

/// One thread of it.
fn run_thread(
    index: usize,
    shared: &Arc<Shared>,
    common: Arc<Common>,
    clock: &Precise,
    events: mpsc::SyncSender<Event>,
) -> io::Result<()> {
    // The others wait for it; without it they need not.
    let guard = StopOnDrop { stop: &shared.stop, is_done: Cell::new(false) };
    let runtime = runtime()?;
    {
        let _inside = runtime.enter();
        let clock = clock.beside()?;
        let worker = Worker::new(index, Arc::clone(shared), Client::new(common, clock), events);
        LocalSet::new().block_on(&runtime, worker.run());
    }
    // A name look-up that hangs is nobody's any more.
    runtime.shutdown_background();
    guard.is_done.set(true);
    Ok(())
}

/// Ends the load with a thread that fails.
struct StopOnDrop<'a> {
    stop: &'a Stop,
    is_done: Cell<bool>,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_done.get() {
            self.stop.request();
        }
    }
}
