//! Runs loads in real time on tokio, or in virtual time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use stockade_cache::InvalidStrategy;
use stockade_model::{
    seed::Seed,
    source::{Source, SourceError},
    time::{Live, Stalled, Virtual},
};
use stockade_record::record::ClockKind;
use stockade_services::ServiceError;
use stockade_source::{OpenError, OpenFuture};

use super::{
    CancellationToken,
    burst::Burst,
    documents::{DocumentCountError, Popularity},
    event::PurgedKeys,
    open::OpenLoad,
    shared_tier::TierSettings,
    tested_cache::TestedCache,
};
use crate::target::{Measurement, Second};

pub struct EngineRuntime {
    clock: RunClock,
}

enum RunClock {
    Live(tokio::runtime::Runtime),
    Virtual,
}

pub struct DocumentSet {
    source: Arc<dyn Source>,
    ids: Vec<Arc<str>>,
}

/// A load could not run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    DocumentCount(#[from] DocumentCountError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the shared tier {url} cannot be used: {reason}")]
    Tier {
        /// Without secrets.
        url: String,
        reason: String,
    },
    #[error(transparent)]
    RunService(#[from] ServiceError),
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    /// In virtual time: a hang that would also occur in real time.
    #[error("the load hangs: {0}")]
    Stalled(#[from] Stalled),
    /// The limit of the strategy cannot store any document.
    #[error(transparent)]
    Strategy(#[from] InvalidStrategy),
    /// More workers than fit into the machine's memory.
    #[error(
        "{workers} workers need about {needed_mib} MiB, more than 60 % of this machine's {memory_mib} MiB: \
         ask for at most {most}"
    )]
    TooManyWorkers {
        workers: usize,
        needed_mib: u64,
        memory_mib: u64,
        /// The largest number that fits.
        most: usize,
    },
    /// More requests in flight than fit into the machine's memory.
    #[error(
        "{in_flight} requests under way need about {needed_mib} MiB, more than 60 % of this machine's {memory_mib} \
         MiB: write max_in_flight = {most}, or less"
    )]
    TooManyInFlight {
        in_flight: usize,
        needed_mib: u64,
        memory_mib: u64,
        /// The largest number that fits.
        most: usize,
    },
}

/// The most memory of one worker and its load. Measured at 200,000 workers over SQLite, as the growth
/// of the peak resident size: 3.1 KiB under `none`, 0.8 KiB under `stampede`.
const WORKER_BYTES: u64 = 4 << 10;

/// The most memory of one request of an open load, and of one load that its client has abandoned. Measured at 100,000
/// in flight over a silent source, as the resident size: 3.6 KiB under `none`; 4.7 KiB with as many abandoned
/// loads.
const REQUEST_BYTES: u64 = 5 << 10;

impl EngineError {
    pub(crate) fn tier(tier: &TierSettings, error: &dyn std::fmt::Display) -> Self {
        Self::Tier { url: tier.url.to_string(), reason: error.to_string() }
    }

    /// True if the request is wrong, rather than the machine or a server.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Open(error) => error.is_usage(),
            Self::Source(_)
            | Self::Tier { .. }
            | Self::RunService(_)
            | Self::Runtime(_)
            | Self::Stalled(_) => false,
            _ => true,
        }
    }
}

impl EngineRuntime {
    pub fn new(clock: ClockKind) -> Result<Self, EngineError> {
        let clock = match clock {
            ClockKind::Live => RunClock::Live(tokio()?),
            ClockKind::Virtual => RunClock::Virtual,
        };
        Ok(Self { clock })
    }

    /// Opens a source and lists its documents. In real time it also warms the source up: uncounted fetches open
    /// connections, prepare statements and start threads. Otherwise the first burst, which has the same
    /// strategy in each run, would include that time.
    pub fn open_documents(&self, source: OpenFuture<'_>) -> Result<DocumentSet, EngineError> {
        const WARM_UP_FETCHES: usize = 64;
        match &self.clock {
            RunClock::Live(tokio) => tokio.block_on(async {
                let source = source.await?;
                let ids = source.ids().await?;
                let fetches = ids.iter().cycle().take(if ids.is_empty() { 0 } else { WARM_UP_FETCHES });
                let fetches: Vec<_> = fetches
                    .map(|id| {
                        let (source, id) = (Arc::clone(&source), Arc::clone(id));
                        // A failure is reported by the measured fetches.
                        tokio.spawn(async move { source.fetch(&id).await.is_ok() })
                    })
                    .collect();
                for fetch in fetches {
                    let _ = fetch.await;
                }
                Ok(DocumentSet { source, ids })
            }),
            RunClock::Virtual => Virtual::new().run(async {
                let source = source.await?;
                let ids = source.ids().await?;
                Ok(DocumentSet { source, ids })
            })?,
        }
    }

    /// Runs a burst, with every choice drawn from `seed`; `None`: it was cancelled. `sink` receives every
    /// second, in order.
    pub fn burst(
        &self,
        burst: &Burst,
        documents: &DocumentSet,
        seed: Seed,
        stop: &CancellationToken,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measurement>, EngineError> {
        let assignment = Arc::new(burst.docs.assign(burst.workers, &documents.ids, seed)?);
        let source = Arc::clone(&documents.source);
        match &self.clock {
            RunClock::Live(tokio) => {
                let live = Live::on(tokio.handle().clone());
                Ok(tokio.block_on(unless_cancelled(
                    burst.run(live, source, assignment, seed, sink),
                    stop.cancelled(),
                )))
            }
            RunClock::Virtual => {
                let time = Virtual::new();
                let run = burst.run(time.clone(), source, assignment, seed, sink);
                Ok(time.run(unless_cancelled(run, stop.cancelled()))?)
            }
        }
    }

    /// Runs an open load; `sink` receives each second as soon as it is complete.
    pub fn open(
        &self,
        open: &OpenLoad,
        documents: &DocumentSet,
        tier: Option<&TierSettings>,
        seed: Seed,
        stop: &CancellationToken,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measurement>, EngineError> {
        let source = Arc::clone(&documents.source);
        let keys = &documents.ids[..Popularity::count(open.traffic.keys, documents.ids.len())?];
        match &self.clock {
            RunClock::Live(_) => {
                // Tasks that the load leaves behind must not run during the next load.
                let tokio = tokio()?;
                let live = Live::on(tokio.handle().clone());
                let run = async {
                    let Some(tier) = tier else {
                        let run = open.run(live, source, keys, seed, None, sink);
                        return Ok(unless_cancelled(run, stop.cancelled()).await.transpose()?);
                    };
                    let opened =
                        unless_cancelled(open.target.connect(tier, seed, &live), stop.cancelled()).await;
                    let Some((tier, table)) = opened.transpose()? else { return Ok(None) };
                    let run = open.run(live, source, keys, seed, Some((&tier, table)), sink);
                    let measured = unless_cancelled(run, stop.cancelled()).await;
                    // A cancelled load leaves no keys behind either.
                    tier.close().await;
                    Ok(measured.transpose()?)
                };
                let measured = tokio.block_on(run);
                tokio.shutdown_background();
                measured
            }
            RunClock::Virtual => {
                let time = Virtual::new();
                let run = open.run(time.clone(), source, keys, seed, None, sink);
                Ok(time.run(unless_cancelled(run, stop.cancelled()))?.transpose()?)
            }
        }
    }
}

fn tokio() -> Result<tokio::runtime::Runtime, EngineError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("engine")
        .build()
        .map_err(EngineError::Runtime)
}

/// The result of `work`, or `None` if `stop` completes first.
async fn unless_cancelled<T>(work: impl Future<Output = T>, stop: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut stop) = (pin!(work), pin!(stop));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
    })
    .await
}

impl DocumentSet {
    /// Refuses an open load for more documents than the source has, or for more requests in flight than fit into memory
    /// (0 MiB: unknown).
    pub fn check_open(&self, open: &OpenLoad, memory_mib: u64) -> Result<(), EngineError> {
        let keys = Popularity::count(open.traffic.keys, self.ids.len())?;
        for event in &open.events {
            if let PurgedKeys::One(key) = event.purge
                && key >= keys
            {
                return Err(DocumentCountError::PurgedKey { key: key + 1, keys }.into());
            }
        }
        open.target.check()?;
        let in_flight = open.in_flight_max();
        excess_over_memory_share(in_flight, REQUEST_BYTES, memory_mib).map_or(
            Ok(()),
            |MemoryExcess { needed_mib, most }| {
                Err(EngineError::TooManyInFlight { in_flight, needed_mib, memory_mib, most })
            },
        )
    }

    /// Refuses a burst for more documents than the source has, or with more workers than fit into memory (0
    /// MiB: unknown).
    pub fn check_burst(&self, burst: &Burst, memory_mib: u64) -> Result<(), EngineError> {
        burst.docs.count(burst.workers, self.ids.len())?;
        let workers = burst.workers;
        excess_over_memory_share(workers, WORKER_BYTES, memory_mib).map_or(
            Ok(()),
            |MemoryExcess { needed_mib, most }| {
                Err(EngineError::TooManyWorkers { workers, needed_mib, memory_mib, most })
            },
        )
    }
}

impl Burst {
    /// The memory of its workers, all of them at once.
    pub(super) fn worker_bytes_max(&self) -> u64 {
        (self.workers as u64).saturating_mul(WORKER_BYTES)
    }
}

impl OpenLoad {
    fn in_flight_max(&self) -> usize {
        let requests = usize::try_from(self.traffic.schedule.requests()).unwrap_or(usize::MAX);
        self.traffic.max_in_flight.min(requests)
    }

    /// The memory of its requests, as many at once as are allowed, and of its cache; `None`: the cache has no limit in bytes.
    pub(super) fn request_and_cache_bytes_max(&self) -> Option<u64> {
        let limit = match &self.target {
            TestedCache::Cache(strategy) => strategy.limit.as_ref()?.bytes? as u64,
            // It stores everything in Redis.
            TestedCache::NodeJsTest(_) => 0,
        };
        Some((self.in_flight_max() as u64).saturating_mul(REQUEST_BYTES).saturating_add(limit))
    }
}

/// The memory that is needed, and the largest number that fits.
struct MemoryExcess {
    needed_mib: u64,
    most: usize,
}

/// The excess over 60 % of the memory, if this number of requests or workers exceeds it; `None` for 0 MiB, which is unknown.
fn excess_over_memory_share(count: usize, each_bytes: u64, memory_mib: u64) -> Option<MemoryExcess> {
    let room_bytes = memory_mib * (1 << 20) / 10 * 6;
    let needed_bytes = (count as u64).saturating_mul(each_bytes);
    (memory_mib > 0 && needed_bytes > room_bytes).then(|| MemoryExcess {
        needed_mib: needed_bytes >> 20,
        most: usize::try_from(room_bytes / each_bytes).unwrap_or(usize::MAX),
    })
}
