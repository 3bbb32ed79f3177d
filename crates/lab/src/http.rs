//! Targets over HTTP: origin, proxy and app are child processes, and this process sends the load.
//!
//! ```text
//! target -- setup/*.json, *.toml --> stockade origin <--- stockade proxy <--- stockade_load, here
//!                                         |                   |                    |
//!                                         +---- memory, processor time, counters, once a second --> Second
//! ```
//!
//! Every process that a target starts ends with the measurement. It also ends when this process dies, which closes its
//! standard input.

mod accounting;
mod app;
mod cache_memory;
mod child;
mod disturbance;
mod event;
mod fetch;
mod measure;
mod probe;
mod process;
mod proxy;
mod recipe;
mod restart;
mod sampler;
mod settings;
mod this_machine;
mod traffic;
mod url;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use stockade_load::{
    generator::LoadTestError,
    schedule::ScheduleLimitError,
    targets::{TargetFileError, log::ReplayError},
    traffic::TrafficError,
    url::UrlError,
};
use stockade_record::{
    record::OriginStage,
    server::{ServerError, StartedServer},
};
use stockade_services::{CommandEnvironment, ServiceError, ShellError};

use crate::target::Environment;

pub use self::{
    accounting::AccountingWindow,
    app::AppTarget,
    cache_memory::CacheMemoryError,
    event::{EventAction, EventRequest, LoadEvent},
    probe::PreflightProbe,
    proxy::ProxyTarget,
    recipe::{RecipeSource, RecipeSpec},
    this_machine::ThisMachine,
    traffic::{HttpTraffic, ReplaySettings, RequestFile, RequestPace, RequestPlan, RequestSource},
    url::{CacheReset, UrlTarget},
};

#[derive(Clone, Debug)]
pub struct HttpLoad {
    /// The name in reports.
    pub name: String,
    /// `None`: this run starts no origin.
    pub origin: Option<RecipeSpec>,
    pub traffic: HttpTraffic,
    /// Requests apart from the load. An unexpected answer makes the measurement invalid.
    pub probes: Vec<PreflightProbe>,
    /// Purges, restarts and other events of the run during the load.
    pub events: Vec<LoadEvent>,
    /// When the time of threads is accounted, if it is.
    pub accounting: Option<AccountingWindow>,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    RunService(#[from] ServiceError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("the origin's recipe: {0}")]
    Recipe(String),
    #[error("there is no process {0}: write the `pid` of the target, or leave it out")]
    NoProcess(u32),
    #[error("{0}")]
    Unreachable(String),
    /// A command of the target failed.
    #[error(transparent)]
    Command(#[from] ShellError),
    #[error(transparent)]
    Load(#[from] LoadTestError),
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("{0}")]
    Path(String),
    /// An event cannot be done.
    #[error("{0}")]
    Event(String),
    #[error(transparent)]
    Targets(#[from] TargetFileError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("the load is {0}")]
    Schedule(#[from] ScheduleLimitError),
    #[error(transparent)]
    Memory(#[from] CacheMemoryError),
}

impl HttpError {
    /// True if the file or the command line is wrong, rather than the machine or a server.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Server(error) => error.is_usage,
            Self::Load(error) => matches!(error, LoadTestError::Trust(_) | LoadTestError::ConnectionLimit(_)),
            Self::RunService(_) | Self::File { .. } | Self::Unreachable(_) | Self::Command(_) => false,
            _ => true,
        }
    }
}

impl HttpLoad {
    /// Reads the recipe, URLs and log, so that an error in them does not surface after hours of measurements.
    fn check_files(&self, folder: &Path) -> Result<(), HttpError> {
        if let Some(recipe) = &self.origin {
            recipe.text(folder).map_err(HttpError::Recipe)?;
        }
        self.traffic.check_files(folder)
    }

    /// True if an event stops the cache, and its counters end with it.
    fn restarts_cache(&self) -> bool {
        self.events.iter().any(|event| event.action.restarts_cache())
    }

    /// Refuses events whose part is on another machine.
    fn check_events(&self, environment: &Environment) -> Result<(), HttpError> {
        for event in &self.events {
            let machine = event.action.signalled().map(|part| environment.machine(part));
            if let Some(name) = machine.as_ref().and_then(|machine| machine.name()) {
                let message = format!(
                    "the event `{}` is for processes of this machine, and not of {name}",
                    event.action
                );
                return Err(HttpError::Event(message));
            }
        }
        Ok(())
    }

    fn stages(&self, folder: &Path) -> Vec<OriginStage> {
        self.origin.as_ref().map(|recipe| recipe.stages(folder)).unwrap_or_default()
    }

    fn scale_duration(&mut self, factor: f64) -> Result<(), ScheduleLimitError> {
        if let Some(recipe) = &mut self.origin {
            recipe.factor *= factor;
        }
        self.probes.iter_mut().for_each(|probe| probe.scale_duration(factor));
        self.events.iter_mut().for_each(|event| event.scale_duration(factor));
        self.accounting.iter_mut().for_each(|window| window.scale(factor));
        self.traffic.scale_duration(factor)
    }
}

/// The environment of the commands of a measurement.
fn commands(
    environment: &Environment,
    origin: Option<&Arc<dyn StartedServer>>,
    folder: &Path,
) -> CommandEnvironment {
    CommandEnvironment {
        current: environment.folder.clone(),
        folder: folder.to_owned(),
        origin: origin.map(|origin| origin.url().to_owned()),
        process: None,
    }
}
