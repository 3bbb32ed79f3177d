//! Where loads run: in real time on tokio, or in virtual time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use stockade_cache::{InvalidStrategy, RedisUrlError};
use stockade_model::{
    record::Clock,
    seed::Seed,
    source::{Source, SourceError},
    time::{Live, Stalled, Virtual},
};
use stockade_services::ServiceError;
use stockade_source::{OpenError, Opening, SourceUrl, documents::NamedDocument};

use super::{
    Load, Measured, Second, Stop,
    burst::Burst,
    documents::{DocsError, Popularity},
    open::Open,
    shared::SharedTier,
};
use crate::services::{Service, Services};

/// The time that loads live by.
pub struct World {
    clockwork: Clockwork,
    /// For the loads that name none.
    services: Services,
}

enum Clockwork {
    Live(tokio::runtime::Runtime),
    Virtual,
}

/// A source and the ids of its documents.
pub struct Library {
    source: Arc<dyn Source>,
    ids: Vec<Arc<str>>,
}

/// A load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The documents could not be chosen.
    #[error(transparent)]
    Docs(#[from] DocsError),
    /// The source could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The documents could not be listed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A shared tier cannot be used.
    #[error("the shared tier {url} cannot be used: {reason}")]
    Tier {
        /// Where it is, without secrets.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A server could not be started for the run.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The runtime could not be started.
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    /// In virtual time: a hang that would have been one in real time, too.
    #[error("the load hangs: {0}")]
    Stalled(#[from] Stalled),
    /// The strategy's limit has no room for anything that an open load stores.
    #[error(transparent)]
    Strategy(#[from] InvalidStrategy),
    /// More workers than the machine has room for.
    #[error(
        "{workers} workers need about {needed_mib} MiB, more than 60 % of this machine's {memory_mib} MiB: \
         ask for at most {most}"
    )]
    TooManyWorkers {
        /// How many were asked for.
        workers: usize,
        /// What they would take.
        needed_mib: u64,
        /// What there is.
        memory_mib: u64,
        /// How many would do.
        most: usize,
    },
    /// More requests under way at once than the machine has room for.
    #[error(
        "{in_flight} requests under way need about {needed_mib} MiB, more than 60 % of this machine's {memory_mib} \
         MiB: write max_in_flight = {most}, or less"
    )]
    TooManyInFlight {
        /// How many there may be.
        in_flight: usize,
        /// What they would take.
        needed_mib: u64,
        /// What there is.
        memory_mib: u64,
        /// How many would do.
        most: usize,
    },
}

/// What one worker and its load take at most. Measured at 200,000 workers over SQLite, as the growth
/// of the peak resident size: 3.1 KiB under `none`, 0.8 KiB under `stampede`.
const WORKER_BYTES: u64 = 4 << 10;

/// What one request of an open load, and one load that its client has left behind, take at most. Measured
/// at 100,000 in flight over a silent source, as the resident size: 3.6 KiB under `none`; 4.7 KiB where
/// as many loads have been left behind.
const REQUEST_BYTES: u64 = 5 << 10;

impl EngineError {
    /// Whether it was asked for wrongly, rather than something that went wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Open(error) => error.is_usage(),
            Self::Source(_) | Self::Tier { .. } | Self::Service(_) | Self::Runtime(_) | Self::Stalled(_) => {
                false
            }
            _ => true,
        }
    }
}

impl World {
    /// Starts the clock.
    pub fn new(clock: Clock) -> Result<Self, EngineError> {
        let clockwork = match clock {
            Clock::Live => Clockwork::Live(tokio()?),
            Clock::Virtual => Clockwork::Virtual,
        };
        Ok(Self { clockwork, services: Services::default() })
    }

    /// A shared tier as it is there: started, if it names none.
    fn there(&self, tier: &SharedTier) -> Result<SharedTier, EngineError> {
        let wrong =
            |error: RedisUrlError| EngineError::Tier { url: tier.url.to_string(), reason: error.to_string() };
        let url = self.services.at(tier.url.written())?;
        Ok(SharedTier { url: url.parse().map_err(wrong)?, ..tier.clone() })
    }

    /// Starts a server, and fills it with documents if there are some for it.
    pub fn provide(&self, service: Service, documents: Option<&[NamedDocument]>) -> Result<(), EngineError> {
        let url = self.services.url(service)?;
        if let Some(documents) = documents {
            let url: SourceUrl = url.parse()?;
            self.library(url.fill(documents))?;
        }
        Ok(())
    }

    /// The servers that it has started.
    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Opens a source and lists its documents. In real time it also warms the source up: connections are opened,
    /// statements prepared and threads started by fetches that no burst counts, or else the first
    /// burst would pay for them, and always the same strategy with it.
    pub fn library(&self, source: Opening<'_>) -> Result<Library, EngineError> {
        const WARM_UP_FETCHES: usize = 64;
        match &self.clockwork {
            Clockwork::Live(tokio) => tokio.block_on(async {
                let source = source.await?;
                let ids = source.ids().await?;
                let fetches = ids.iter().cycle().take(if ids.is_empty() { 0 } else { WARM_UP_FETCHES });
                let fetches: Vec<_> = fetches
                    .map(|id| {
                        let (source, id) = (Arc::clone(&source), Arc::clone(id));
                        // What fails now fails again when it counts.
                        tokio.spawn(async move { source.fetch(&id).await.is_ok() })
                    })
                    .collect();
                for fetch in fetches {
                    let _ = fetch.await;
                }
                Ok(Library { source, ids })
            }),
            Clockwork::Virtual => Virtual::new().run(async {
                let source = source.await?;
                let ids = source.ids().await?;
                Ok(Library { source, ids })
            })?,
        }
    }

    /// Runs a load, with every choice drawn from `seed`; `None` if it was stopped. `sink` is told of
    /// every second in its turn: of an open load as soon as it is complete.
    pub fn run(
        &self,
        load: &Load,
        library: &Library,
        seed: Seed,
        stop: &Stop,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measured>, EngineError> {
        match load {
            Load::Burst(burst) => self.burst(burst, library, seed, stop, sink),
            Load::Open(open) => self.open(open, library, seed, stop, sink),
        }
    }

    /// Runs a burst.
    pub fn burst(
        &self,
        burst: &Burst,
        library: &Library,
        seed: Seed,
        stop: &Stop,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measured>, EngineError> {
        let draw = Arc::new(burst.docs.draw(burst.workers, &library.ids, seed)?);
        let source = Arc::clone(&library.source);
        match &self.clockwork {
            Clockwork::Live(tokio) => {
                let live = Live::on(tokio.handle().clone());
                Ok(tokio.block_on(first(burst.run(live, source, draw, seed, sink), stop.requested())))
            }
            Clockwork::Virtual => {
                let time = Virtual::new();
                let run = burst.run(time.clone(), source, draw, seed, sink);
                Ok(time.run(first(run, stop.requested()))?)
            }
        }
    }

    fn open(
        &self,
        open: &Open,
        library: &Library,
        seed: Seed,
        stop: &Stop,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measured>, EngineError> {
        let source = Arc::clone(&library.source);
        let keys = &library.ids[..Popularity::count(open.traffic.keys, library.ids.len())?];
        match &self.clockwork {
            Clockwork::Live(_) => {
                // What it leaves behind must not go on beside the next one.
                let tokio = tokio()?;
                let live = Live::on(tokio.handle().clone());
                let shared = open.shared.as_ref().map(|tier| self.there(tier)).transpose()?;
                let run = async {
                    let Some(shared) = &shared else {
                        let run = open.run(live, source, keys, seed, None, sink);
                        return Ok(first(run, stop.requested()).await.transpose()?);
                    };
                    let opened = first(open.target.tier(shared, seed, &live), stop.requested()).await;
                    let Some((tier, table)) = opened.transpose()? else { return Ok(None) };
                    let run = open.run(live, source, keys, seed, Some((&tier, table)), sink);
                    let measured = first(run, stop.requested()).await;
                    // Whoever stops it leaves nothing there either.
                    tier.close().await;
                    Ok(measured.transpose()?)
                };
                let measured = tokio.block_on(run);
                tokio.shutdown_background();
                measured
            }
            Clockwork::Virtual => {
                let time = Virtual::new();
                let run = open.run(time.clone(), source, keys, seed, None, sink);
                Ok(time.run(first(run, stop.requested()))?.transpose()?)
            }
        }
    }
}

fn tokio() -> Result<tokio::runtime::Runtime, EngineError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(EngineError::Runtime)
}

/// What `work` comes to, unless `stop` is first.
async fn first<T>(work: impl Future<Output = T>, stop: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut stop) = (pin!(work), pin!(stop));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
    })
    .await
}

impl Library {
    /// Refuses a load that asks for more documents than there are, or for more workers than this
    /// machine's memory can hold (0: it did not tell).
    pub fn check(&self, load: &Load, memory_mib: u64) -> Result<(), EngineError> {
        match load {
            Load::Burst(burst) => self.check_burst(burst, memory_mib),
            Load::Open(open) => {
                Popularity::count(open.traffic.keys, self.ids.len())?;
                open.target.check()?;
                let requests = usize::try_from(open.traffic.schedule.requests()).unwrap_or(usize::MAX);
                let in_flight = open.traffic.max_in_flight.min(requests);
                let too_much = too_much(in_flight, REQUEST_BYTES, memory_mib);
                too_much.map_or(Ok(()), |TooMuch { needed_mib, most }| {
                    Err(EngineError::TooManyInFlight { in_flight, needed_mib, memory_mib, most })
                })
            }
        }
    }

    /// The same of a burst.
    pub fn check_burst(&self, burst: &Burst, memory_mib: u64) -> Result<(), EngineError> {
        burst.docs.count(burst.workers, self.ids.len())?;
        let workers = burst.workers;
        too_much(workers, WORKER_BYTES, memory_mib).map_or(Ok(()), |TooMuch { needed_mib, most }| {
            Err(EngineError::TooManyWorkers { workers, needed_mib, memory_mib, most })
        })
    }
}

/// What does not fit, and how many would.
struct TooMuch {
    needed_mib: u64,
    most: usize,
}

/// Whether so many requests at once are more than 60 % of the memory can hold.
fn too_much(requests: usize, each_bytes: u64, memory_mib: u64) -> Option<TooMuch> {
    let room_bytes = memory_mib * (1 << 20) / 10 * 6;
    let needed_bytes = (requests as u64).saturating_mul(each_bytes);
    (memory_mib > 0 && needed_bytes > room_bytes).then(|| TooMuch {
        needed_mib: needed_bytes >> 20,
        most: usize::try_from(room_bytes / each_bytes).unwrap_or(usize::MAX),
    })
}
