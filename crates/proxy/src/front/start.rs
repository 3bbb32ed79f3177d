//! A front, from its start to its end.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use stockade_model::time::Live;
use tokio::{runtime, sync::watch};

use super::{
    Handler, Settings,
    counts::{Counts, Tallies},
    door::Door,
    room::House,
    session::Thread,
    tls::{Certified, Tls, TlsError},
    worker::{Phase, Work},
};

/// How long a thread may take to end beyond what it was given; one that somebody blocks is left behind.
const PATIENCE: Duration = Duration::from_secs(2);

/// Threads that serve, until they are drained or dropped; dropping cuts whatever goes on.
#[derive(Debug)]
pub struct Front {
    addresses: Vec<SocketAddr>,
    drain: Duration,
    tls: Option<Arc<Tls>>,
    tallies: Vec<Arc<Tallies>>,
    phase: watch::Sender<Phase>,
    /// How many requests each thread cut, as it ends.
    ended: mpsc::Receiver<u64>,
    running: AtomicUsize,
}

/// What became of the requests that were being answered when a front was drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Answered to the end, or given up by their clients.
    pub finished: u64,
    /// Cut when the time was up.
    pub cut: u64,
}

/// A front could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It cannot listen there.
    #[error("cannot listen at {address}: {error}{}", free(.error))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// It listens nowhere.
    #[error("there is no address to listen at")]
    Nowhere,
    /// A thread or its runtime cannot be had, or it cannot listen where others of the front do.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn free(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse { ": somebody else does" } else { "" }
}

impl Front {
    /// Listens, and serves what comes with `handler`, each thread with a clone of it.
    ///
    /// When it returns every thread listens.
    pub fn start<H: Handler>(settings: Settings, handler: &H) -> Result<Self, StartError> {
        if settings.listen.is_empty() && settings.listen_tls.is_empty() {
            return Err(StartError::Nowhere);
        }
        let tls = settings.identity.as_ref().map(Tls::new).transpose()?.map(Arc::new);
        if tls.is_none() && !settings.listen_tls.is_empty() {
            return Err(TlsError::None.into());
        }
        let plain = settings.listen.iter().map(|address| (*address, false));
        let encrypted = settings.listen_tls.iter().map(|address| (*address, true));
        let doors = plain.chain(encrypted).map(|(address, is_tls)| {
            Door::at(address, is_tls).map_err(|error| StartError::Listen { address, error })
        });
        let doors = Arc::new(doors.collect::<Result<Vec<_>, _>>()?);
        let (phase, phases) = watch::channel(Phase::Serving);
        let (ends, ended) = mpsc::channel();
        let mut front = Self {
            addresses: doors.iter().map(|door| door.address).collect(),
            drain: settings.drain,
            tls,
            tallies: Vec::new(),
            phase,
            ended,
            running: AtomicUsize::new(0),
        };
        let settings = Arc::new(Settings { head_bytes_max: settings.head_bytes_max.max(8_192), ..settings });
        let house = Arc::new(House::new(settings.threads.get()));
        for number in 0..settings.threads.get() {
            let begin = Begin {
                number,
                settings: Arc::clone(&settings),
                house: Arc::clone(&house),
                doors: Arc::clone(&doors),
                handler: handler.clone(),
                phases: phases.clone(),
                ends: ends.clone(),
            };
            front.spawn(begin)?;
        }
        Ok(front)
    }

    /// Starts a thread, and waits until it listens.
    fn spawn<H: Handler>(&mut self, begin: Begin<H>) -> Result<(), StartError> {
        let Begin { number, settings, house, doors, handler, phases, ends } = begin;
        let (ready, is_ready) = mpsc::channel();
        let tallies = Arc::new(Tallies::default());
        self.tallies.push(Arc::clone(&tallies));
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        let thread = Arc::new(Thread {
            number,
            settings,
            time: Live::on(runtime.handle().clone()),
            tallies,
            house,
            tls: self.tls.clone(),
            lingering: AtomicUsize::new(0),
        });
        let run = move || {
            let work = Work { handler, thread, doors };
            let cut = runtime.block_on(work.run(|listens| drop(ready.send(listens)), phases));
            runtime.shutdown_background();
            let _ = ends.send(cut);
        };
        thread::Builder::new().name(format!("front-{number}")).spawn(run).map_err(StartError::Thread)?;
        self.running.fetch_add(1, Relaxed);
        // A thread that died without a word has said what it died of on standard error.
        let listens = is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        listens.map_err(StartError::Thread)
    }

    /// Where it listens: plain addresses first, then encrypted ones, as the settings have them.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Encrypts connections from now on with this, if it does so at all.
    pub fn certify(&self, certified: Certified) {
        if let Some(tls) = &self.tls {
            tls.put(certified);
        }
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.tallies.iter().for_each(|tallies| tallies.add_to(&mut counts));
        counts
    }

    /// Ends in good order: nobody is taken in any more, idle connections are closed, requests that are being answered
    /// have [`Settings::drain`], and are cut then.
    ///
    /// Blocks for no longer than that and some 2 s.
    #[must_use]
    pub fn drain(self) -> Drained {
        let before = self.counts();
        self.phase.send_replace(Phase::Draining);
        let cut = self.join(self.drain + PATIENCE);
        let after = self.counts();
        let ended = |counts: Counts| counts.requests - counts.in_flight;
        Drained { finished: (ended(after) - ended(before)).saturating_sub(cut), cut }
    }

    /// Waits for every thread to end: how many requests were cut.
    fn join(&self, patience: Duration) -> u64 {
        let mut cut = 0;
        while self.running.load(Relaxed) > 0 {
            match self.ended.recv_timeout(patience) {
                Ok(requests) => cut += requests,
                // Somebody blocks it.
                Err(RecvTimeoutError::Timeout) => return cut + self.counts().in_flight,
                Err(RecvTimeoutError::Disconnected) => return cut,
            }
            self.running.fetch_sub(1, Relaxed);
        }
        cut
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Ended);
        self.join(PATIENCE);
    }
}

/// What a thread begins with.
struct Begin<H> {
    number: usize,
    settings: Arc<Settings>,
    house: Arc<House>,
    doors: Arc<Vec<Door>>,
    handler: H,
    phases: watch::Receiver<Phase>,
    ends: mpsc::Sender<u64>,
}
