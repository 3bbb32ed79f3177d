//! The traffic of targets over HTTP.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use stockade_load::{
    generator::{LoadTest, Share},
    keys::Keys,
    plan::{ClosedLoop, EndCondition, Plan},
    schedule::{Schedule, ScheduleLimitError},
    settings::RequestSettings,
    targets::{
        log::{AccessLog, HostHeader, LogInput, LogReader, ReplayError, ReplayOptions},
        read_body, siege, vegeta,
    },
    template::RequestTemplate,
    traffic::{CacheBust, RequestOrder, Traffic as RequestStream, TrafficOptions},
    url::BaseUrl,
};
use stockade_model::{seed::Seed, units::stretched};

use super::HttpError;
use crate::target::Facts;

#[derive(Clone, Debug)]
pub struct HttpTraffic {
    pub requests: RequestPlan,
    /// The parts of each request, and how it is sent.
    pub request: RequestSettings,
    /// The most requests of an open load in flight; `None`: the most that the machine supports.
    pub max_in_flight: Option<usize>,
    /// The time for responses after the end of the load.
    pub drain: Duration,
}

/// The requests and their times.
#[derive(Clone, Debug)]
pub enum RequestPlan {
    /// At a configured pace.
    Generated { source: RequestSource, pace: RequestPace },
    /// From an access log.
    Replayed(ReplaySettings),
}

/// The URLs of requests.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestSource {
    /// A path; `{key}` in it is replaced by a key.
    Path { path: String, keys: Option<Keys> },
    /// A file of requests, sent to the server of the target.
    File {
        format: RequestFile,
        /// Relative to the experiment's folder.
        file: PathBuf,
        /// In random order.
        is_random: bool,
        hosts: HostHeader,
    },
}

/// The format of a file of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFile {
    /// URLs of siege.
    Siege,
    /// Targets of Vegeta.
    Vegeta,
}

/// When requests start.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestPace {
    /// When they are due.
    Open(Schedule),
    /// After the response to the connection's previous request.
    Closed {
        /// The number of connections, with one request at a time each.
        connections: usize,
        duration: Duration,
    },
}

/// An access log to replay. A log that is too short is repeated with unique URLs.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySettings {
    /// Relative to the experiment's folder.
    pub log: PathBuf,
    /// A factor of the log's own pace.
    pub speed: f64,
    /// The share of its requests.
    pub share: f64,
    /// The methods and hosts of its requests.
    pub options: ReplayOptions,
    pub duration: Duration,
}

impl HttpTraffic {
    /// The duration and the requests of the load.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let requests_max = match &self.requests {
            RequestPlan::Generated { pace: RequestPace::Open(schedule), .. } => Some(schedule.requests_max()),
            RequestPlan::Generated { .. } | RequestPlan::Replayed(_) => None,
        };
        Facts { duration: Some(self.duration()), requests_max, is_over_http: true, ..Facts::default() }
    }

    /// The time in which requests start.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match &self.requests {
            RequestPlan::Generated { pace: RequestPace::Open(schedule), .. } => schedule.duration(),
            RequestPlan::Generated { pace: RequestPace::Closed { duration, .. }, .. }
            | RequestPlan::Replayed(ReplaySettings { duration, .. }) => *duration,
        }
    }

    /// The connections of a closed load.
    #[must_use]
    pub fn users(&self) -> Option<usize> {
        match &self.requests {
            RequestPlan::Generated { pace: RequestPace::Closed { connections, .. }, .. } => {
                Some(*connections)
            }
            RequestPlan::Generated { .. } | RequestPlan::Replayed(_) => None,
        }
    }

    /// The number of requests; `None`: known only after the run.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        match &self.requests {
            RequestPlan::Generated { pace: RequestPace::Open(schedule), .. } => Some(schedule.requests()),
            RequestPlan::Generated { .. } | RequestPlan::Replayed(_) => None,
        }
    }

    /// Multiplies the duration.
    pub fn scale_duration(&mut self, factor: f64) -> Result<(), ScheduleLimitError> {
        match &mut self.requests {
            RequestPlan::Generated { pace: RequestPace::Open(schedule), .. } => {
                *schedule = schedule.stretched(factor);
            }
            RequestPlan::Generated { pace: RequestPace::Closed { duration, .. }, .. }
            | RequestPlan::Replayed(ReplaySettings { duration, .. }) => {
                *duration = stretched(*duration, factor);
            }
        }
        self.check()
    }

    /// Refuses a load beyond the bounds of loads.
    pub fn check(&self) -> Result<(), ScheduleLimitError> {
        match &self.requests {
            RequestPlan::Generated { pace: RequestPace::Open(schedule), .. } => schedule.check(),
            RequestPlan::Generated { pace: RequestPace::Closed { connections, duration }, .. } => {
                Plan::closed_loop(ClosedLoop::new(*connections, EndCondition::Duration(*duration))).map(drop)
            }
            // A log has bounds of its own; its duration has those of a constant rate.
            RequestPlan::Replayed(replay) => {
                Plan::closed_loop(ClosedLoop::new(1, EndCondition::Duration(replay.duration))).map(drop)
            }
        }
    }

    pub(super) fn check_files(&self, files: &Path) -> Result<(), HttpError> {
        let base: BaseUrl = "http://localhost".parse()?;
        match &self.requests {
            RequestPlan::Generated { source, .. } => source.targets(&base, files, &self.request).map(drop),
            RequestPlan::Replayed(replay) => Ok(replay.read(files, &base).map(drop)?),
        }
    }

    /// The load on `url`. Paths of files are relative to `files`; unique URLs are drawn from `url_seed`.
    pub(super) fn load(
        &self,
        url: &str,
        files: &Path,
        seed: Seed,
        url_seed: Seed,
    ) -> Result<LoadTest, HttpError> {
        let base: BaseUrl = url.parse()?;
        let (targets, order, keys, plan) = match &self.requests {
            RequestPlan::Generated { source, pace } => {
                let (targets, order, keys) = source.targets(&base, files, &self.request)?;
                (targets, order, keys, pace.plan()?)
            }
            RequestPlan::Replayed(replay) => {
                let log = replay.read(files, &base)?;
                let log = log.with_share(replay.share, seed)?.at_speed(replay.speed)?;
                let due = log.due_times_within(replay.duration)?;
                let (targets, order, _) = log.into_parts();
                (targets, order, None, Plan::replay(due)?)
            }
        };
        let cache_bust = match &self.requests {
            _ if self.request.cache_bust => Some(CacheBust::EveryRequest(url_seed)),
            RequestPlan::Generated { .. } => None,
            RequestPlan::Replayed(_) => Some(CacheBust::EveryRound(url_seed)),
        };
        let mut targets = targets;
        targets.iter_mut().for_each(|target| self.request.add_headers(target));
        let traffic = RequestStream::new(targets, TrafficOptions { order, keys, cache_bust }, seed)?;
        Ok(LoadTest {
            id: String::new(),
            threads: None,
            plan,
            traffic: Arc::new(traffic),
            options: self.request.client_options(files),
            max_in_flight: self.max_in_flight,
            drain: self.drain,
            seed,
            first_request: 0,
            share: Share::WHOLE,
            observes_samples: false,
        })
    }
}

impl ReplaySettings {
    fn read(&self, files: &Path, base: &BaseUrl) -> Result<AccessLog, ReplayError> {
        let reader = LogReader::open(&[LogInput::File(files.join(&self.log))], None)?;
        AccessLog::read(reader, base, self.options)?.with_times()
    }
}

impl RequestSource {
    fn targets(
        &self,
        base: &BaseUrl,
        files: &Path,
        request: &RequestSettings,
    ) -> Result<(Vec<RequestTemplate>, RequestOrder, Option<Keys>), HttpError> {
        let at = |path: &str| base.url(path).map_err(|error| HttpError::Path(format!("`{path}`: {error}")));
        match self {
            Self::Path { path, keys } => {
                let body = request.body.as_ref().map(|body| read_body(files, body)).transpose();
                let body = body.map_err(HttpError::Path)?;
                let target = RequestTemplate::new(request.method_with(body.is_some()), at(path)?);
                let target = RequestTemplate { body: body.unwrap_or_default(), ..target };
                Ok((vec![target], RequestOrder::Sequential, *keys))
            }
            Self::File { format, file, is_random, hosts } => {
                let file = files.join(file);
                let mut targets = match format {
                    RequestFile::Siege => siege::open(&file)?,
                    RequestFile::Vegeta => vegeta::open(&file)?,
                };
                for target in &mut targets {
                    if *hosts == HostHeader::Logged {
                        target.keep_host();
                    }
                    let path = target.url.path_and_query().map_or("/", |path| path.as_str());
                    target.url = at(path)?;
                }
                let order = if *is_random { RequestOrder::Random } else { RequestOrder::Sequential };
                Ok((targets, order, None))
            }
        }
    }
}

impl RequestPace {
    fn plan(&self) -> Result<Plan, ScheduleLimitError> {
        match self {
            Self::Open(schedule) => Plan::open_loop(schedule.clone()),
            Self::Closed { connections, duration } => {
                Plan::closed_loop(ClosedLoop::new(*connections, EndCondition::Duration(*duration)))
            }
        }
    }
}
