//! Targets: what an experiment puts under load, each kind behind one trait.
//!
//! ```text
//! spec -> Box<dyn Target> -- check ----> refused, with the place and the remedy
//!                         -- measure --> Second, Second, ... and one Measurement
//! ```

use std::{
    any::Any,
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
#[cfg(feature = "http")]
use std::{net::Ipv4Addr, sync::Arc};

use serde::Deserialize;
use stockade_cache::{RequestStats, Stats, StoreStats};
#[cfg(feature = "http")]
use stockade_load::{
    AllowedTargets,
    generator::{LoadRunner, ThisProcess},
};
use stockade_model::{
    outcome::Outcomes,
    seed::Seed,
    telemetry::{Declaration, MetricKind},
};
use stockade_record::record::{self, OriginStage, Role, Times};
#[cfg(feature = "http")]
use stockade_record::server::ServerMachine;
use stockade_source::{SourceUrl, documents::NamedDocument};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "http")]
use crate::http::ThisMachine;
use crate::{
    engine::{DocumentSet, EngineError, EngineRuntime, TierSettings, TrafficLimitError},
    services::{RunService, Services},
};

/// Something that can be put under load and measured.
pub trait Target: Any + fmt::Debug + Send + Sync {
    /// The facts known before the run.
    fn facts(&self) -> Facts;

    /// Reads the files and opens the sources of the measurements, and refuses a load larger than this machine's memory.
    /// Called before the first measurement of a run.
    fn check(&self, environment: &Environment) -> Result<(), TargetError>;

    /// Starts its parts, sends the load, and stops the parts again. `None`: it was cancelled.
    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError>;

    /// The behavior of its origin over time, if it changes.
    fn stages(&self, environment: &Environment) -> Vec<OriginStage> {
        let _ = environment;
        Vec::new()
    }

    /// The most bytes that its cache and its requests in flight may take; `None`: unknown.
    fn memory_bytes_max(&self, environment: &Environment) -> Option<u64> {
        let _ = environment;
        None
    }

    /// Multiplies one dimension by a factor; a target without that dimension stays as it is.
    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        let _ = (dimension, factor);
        Ok(())
    }
}

/// Facts about a target that are known before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// How long requests are due; `None`: all at once.
    pub duration: Option<Duration>,
    /// The most requests of the load; `None`: unknown.
    pub requests_max: Option<u64>,
    /// Its load is sent over HTTP, and so may come from agents.
    pub is_over_http: bool,
    /// The servers that it starts, which may be on other machines.
    pub servers: &'static [Role],
    /// Its answers are audited: none too old, none from before an invalidation.
    pub is_audited: bool,
    /// Its cache reports reclaims, once a second.
    pub reports_reclaims: bool,
    /// The server of the run that it loads documents from.
    pub database: Option<RunService>,
}

/// A dimension that `--scale` multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum ScaledDimension {
    /// The number of workers.
    #[serde(rename = "load.burst")]
    LoadBurst,
    /// The duration of an open load or its steps, the stages of its origin, and the windows of its claims.
    #[serde(rename = "load.duration")]
    LoadDuration,
    /// The entries that a proxy may hold.
    #[serde(rename = "cache.limit.entries")]
    CacheLimitEntries,
}

/// The part that all measurements of a run share.
pub struct Environment {
    /// Real or virtual time, and the tasks on it.
    pub runtime: EngineRuntime,
    /// The program that runs as child processes: origin, proxy and app.
    pub program: PathBuf,
    /// The experiment's folder: the paths in its file are relative to it.
    pub folder: PathBuf,
    /// Memory of this machine in MiB; 0: unknown.
    pub memory_mib: u64,
    /// Sends loads over HTTP: this process, or agents.
    #[cfg(feature = "http")]
    pub loads: Arc<dyn LoadRunner>,
    /// The servers that loads over HTTP may reach; `None`: any.
    #[cfg(feature = "http")]
    pub allowed: Option<AllowedTargets>,
    /// The machines of servers, where they are not this one.
    #[cfg(feature = "http")]
    pub machines: ServerMachines,
    services: Services,
    /// Sources that are open, by their URL.
    documents: RefCell<HashMap<SourceUrl, Rc<DocumentSet>>>,
}

/// The machines of servers by role.
#[cfg(feature = "http")]
pub type ServerMachines = BTreeMap<Role, Arc<dyn ServerMachine>>;

/// The arguments of one measurement.
pub struct MeasureContext<'a> {
    /// Every random choice is drawn from it.
    pub seed: Seed,
    /// The folder for the settings and the logs of child processes.
    pub folder: &'a Path,
    /// Ends the load early.
    pub cancel: &'a CancellationToken,
    /// Receives every second, in order, as soon as it is complete.
    pub sink: &'a mut dyn FnMut(Second),
}

impl Environment {
    /// An environment in which no service runs and no source is open yet.
    #[must_use]
    pub fn new(runtime: EngineRuntime, program: PathBuf, folder: PathBuf, memory_mib: u64) -> Self {
        Self {
            runtime,
            program,
            folder,
            memory_mib,
            #[cfg(feature = "http")]
            loads: Arc::new(ThisProcess),
            #[cfg(feature = "http")]
            allowed: None,
            #[cfg(feature = "http")]
            machines: ServerMachines::new(),
            services: Services::default(),
            documents: RefCell::default(),
        }
    }

    /// The machine of servers with this role.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn machine(&self, role: Role) -> Arc<dyn ServerMachine> {
        self.machines.get(&role).cloned().unwrap_or_else(|| {
            Arc::new(ThisMachine { program: self.program.clone(), address: Ipv4Addr::LOCALHOST.into() })
        })
    }

    /// The servers that were started for this run.
    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// The documents of a source, which is opened on first use.
    pub fn documents(&self, source: &SourceUrl) -> Result<Rc<DocumentSet>, EngineError> {
        if let Some(documents) = self.documents.borrow().get(source) {
            return Ok(Rc::clone(documents));
        }
        let documents = Rc::new(self.runtime.open_documents(source.open())?);
        self.documents.borrow_mut().insert(source.clone(), Rc::clone(&documents));
        Ok(documents)
    }

    /// Starts a server, and fills it with documents if there are any for it.
    pub fn start_service(
        &self,
        service: RunService,
        documents: Option<&[NamedDocument]>,
    ) -> Result<(), EngineError> {
        let url = self.services.url(service)?;
        if let Some(documents) = documents {
            let url: SourceUrl = url.parse()?;
            self.runtime.open_documents(url.fill(documents))?;
        }
        Ok(())
    }

    /// A shared tier with the address of its server, which is started on first use if the run provides it.
    pub fn tier(&self, tier: &TierSettings) -> Result<TierSettings, EngineError> {
        let url = self.services.resolve(tier.url.as_written())?;
        let url = url.parse().map_err(|error| EngineError::tier(tier, &error))?;
        Ok(TierSettings { url, ..tier.clone() })
    }
}

/// A target could not be checked or measured.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The engine's.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Processes and HTTP.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] crate::http::HttpError),
}

impl TargetError {
    /// True if the file or the command line is wrong, rather than the machine or a server.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_usage(),
            #[cfg(feature = "http")]
            Self::Http(error) => error.is_usage(),
        }
    }
}

/// The result of one measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The figures of this kind of load.
    pub load: record::LoadFigures,
    /// The sum of the answered workers' whole milliseconds: the published report of a burst truncates
    /// before it adds.
    pub whole_ms_sum: Option<u64>,
    /// Requests by outcome.
    pub outcomes: Outcomes,
    /// Bytes of all answers.
    pub bytes_in: u64,
    /// The sum of the service times of all requests, failed ones included.
    pub service_sum: Duration,
    /// The counters of the cache, without those of its warm-up.
    pub counters: CacheCounters,
    /// The most bytes that the cache held, if they are limited.
    pub peak_bytes: Option<usize>,
    /// Failed requests by message.
    pub errors: BTreeMap<String, u64>,
    /// The events of its load, in the order of time.
    pub events: Vec<record::EventFigures>,
    /// The figures of a load over HTTP.
    pub http: Option<record::HttpFigures>,
}

/// The counters and gauges of a cache, all its routes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    pub requests: RequestStats,
    pub store: StoreStats,
}

impl CacheCounters {
    /// The counters since an earlier reading; gauges stay.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        Self { requests: self.requests.since(&before.requests), store: self.store.since(&before.store) }
    }

    /// Reclaims; without a share to reclaim, each eviction is one.
    #[must_use]
    pub fn reclaims(&self) -> u64 {
        if self.store.reclaims > 0 { self.store.reclaims } else { self.store.evicted_size }
    }

    /// Every gauge that has a value and every counter above 0, by the name of its field.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<Cow<'static, str>, f64> {
        fn values<S>(
            snapshot: &S,
            metrics: &[Declaration<S>],
        ) -> impl Iterator<Item = (Cow<'static, str>, f64)> {
            metrics.iter().filter_map(|metric| {
                let value = (metric.read)(snapshot)?;
                let is_kept = value > 0.0 || metric.kind == MetricKind::Gauge;
                is_kept.then_some((Cow::Borrowed(metric.field), value))
            })
        }
        let requests = values(&self.requests, RequestStats::METRICS);
        requests.chain(values(&self.store, StoreStats::METRICS)).collect()
    }
}

impl From<Stats> for CacheCounters {
    fn from(stats: Stats) -> Self {
        Self { requests: stats.requests(), store: stats.store() }
    }
}

/// The requests that finished in one second of a load.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Seconds since the start.
    pub second: u64,
    /// Requests by outcome.
    pub outcomes: Outcomes,
    /// Their times.
    pub times: Times,
    /// Further counts of an open load.
    pub open: Option<OpenSecond>,
    /// Memory and processor time of each process.
    pub usage: BTreeMap<Role, record::Usage>,
    /// The content of a cache in another process.
    pub holds: Option<record::CacheContents>,
    /// Requests by status, over HTTP; 0: no response.
    pub status_codes: BTreeMap<u16, u64>,
    /// Failed requests by the class of their failure, or by their status, over HTTP.
    pub errors: BTreeMap<String, u64>,
    /// Something else that took processor time.
    pub disturbance: Option<record::Disturbance>,
}

impl Second {
    /// True if nothing happened in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = |OpenSecond { source_loads, retries, dropped, age_max }| {
            source_loads.unwrap_or(0) + retries + dropped == 0 && age_max.is_none()
        };
        self.outcomes.requests() == 0 && self.open.is_none_or(is_empty)
    }
}

/// Further counts of an open load in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenSecond {
    /// Fetches that reached the source; `None`: nothing counts them.
    pub source_loads: Option<u64>,
    /// Attempts after a request's first.
    pub retries: u64,
    /// Requests that were due and not sent.
    pub dropped: u64,
    /// The age of the oldest answer.
    pub age_max: Option<Duration>,
}
