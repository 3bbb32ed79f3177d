//! What is asked over HTTP, and when.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use stockade_load::{
    Options,
    drive::{Limits, Load, threads},
    plan::{Closed, Plan, Until},
    schedule::{Beyond, Schedule},
    target::{Base, Target},
    targets::{log::Log, siege},
    traffic::{CacheBust, Keys, Order, Traffic as Asks, Variety},
};
use stockade_model::{seed::Seed, units::stretched};

use super::HttpError;

/// What a load over HTTP is.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// What is asked, and when.
    pub requests: Requests,
    /// Each request is for a URL of its own.
    pub cache_bust: bool,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many requests of an open load may be under way; `None`: as many as the machine can have.
    pub max_in_flight: Option<usize>,
    /// How long answers are waited for in the end.
    pub drain: Duration,
}

/// What is asked, and when.
#[derive(Clone, Debug)]
pub enum Requests {
    /// At a pace of ours.
    Made {
        /// For what.
        of: Of,
        /// When.
        pace: Pace,
    },
    /// As somebody else's were.
    Logged(Replay),
}

/// What requests are for.
#[derive(Clone, Debug, PartialEq)]
pub enum Of {
    /// A path; with a `{key}` in it as many as there are keys.
    Path {
        /// As it is asked for.
        path: String,
        /// What stands for the key.
        keys: Option<Keys>,
    },
    /// The URLs of a file as siege has it, of which paths and queries are asked for.
    Urls {
        /// Below the experiment's folder.
        file: PathBuf,
        /// In no order.
        is_random: bool,
    },
}

/// When requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// When they are due.
    Open(Schedule),
    /// When there was an answer.
    Closed {
        /// How many ask, one request at a time each.
        connections: usize,
        /// For how long.
        lasts: Duration,
    },
}

/// An access log that is played again; over and over, with URLs that are new, if it is shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Below the experiment's folder.
    pub log: PathBuf,
    /// So many times as fast.
    pub speed: f64,
    /// So much of its requests.
    pub share: f64,
    /// For how long.
    pub lasts: Duration,
}

impl Traffic {
    /// How long requests come.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        match &self.requests {
            Requests::Made { pace: Pace::Open(schedule), .. } => schedule.lasts(),
            Requests::Made { pace: Pace::Closed { lasts, .. }, .. }
            | Requests::Logged(Replay { lasts, .. }) => *lasts,
        }
    }

    /// How many users ask, where each waits for its answer.
    #[must_use]
    pub fn users(&self) -> Option<usize> {
        match &self.requests {
            Requests::Made { pace: Pace::Closed { connections, .. }, .. } => Some(*connections),
            Requests::Made { .. } | Requests::Logged(_) => None,
        }
    }

    /// How many requests there are, where that is known beforehand.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        match &self.requests {
            Requests::Made { pace: Pace::Open(schedule), .. } => Some(schedule.requests()),
            Requests::Made { .. } | Requests::Logged(_) => None,
        }
    }

    /// Goes on for so many times as long.
    pub fn stretch(&mut self, factor: f64) -> Result<(), Beyond> {
        match &mut self.requests {
            Requests::Made { pace: Pace::Open(schedule), .. } => *schedule = schedule.stretched(factor),
            Requests::Made { pace: Pace::Closed { lasts, .. }, .. }
            | Requests::Logged(Replay { lasts, .. }) => {
                *lasts = stretched(*lasts, factor);
            }
        }
        self.check()
    }

    /// Whether there can be so much of it.
    pub fn check(&self) -> Result<(), Beyond> {
        match &self.requests {
            Requests::Made { pace: Pace::Open(schedule), .. } => schedule.check(),
            Requests::Made { pace: Pace::Closed { connections, lasts }, .. } => {
                Plan::closed(Closed::new(*connections, Until::Duration(*lasts))).map(drop)
            }
            // A log has its own bounds; its time has those of anything that is steady.
            Requests::Logged(replay) => Plan::closed(Closed::new(1, Until::Duration(replay.lasts))).map(drop),
        }
    }

    /// Reads the files that it takes.
    pub(super) fn check_files(&self, files: &Path) -> Result<(), HttpError> {
        let base: Base = "http://localhost".parse()?;
        match &self.requests {
            Requests::Made { of, .. } => of.targets(&base, files).map(drop),
            Requests::Logged(replay) => Ok(Log::open(&files.join(&replay.log), &base).map(drop)?),
        }
    }

    /// The load, asked of `url`. Files are below `files`; `newness` is what new URLs have.
    pub(super) fn load(&self, url: &str, files: &Path, seed: Seed, newness: Seed) -> Result<Load, HttpError> {
        let base: Base = url.parse()?;
        let (targets, order, keys, plan) = match &self.requests {
            Requests::Made { of, pace } => {
                let (targets, order, keys) = of.targets(&base, files)?;
                (targets, order, keys, pace.plan()?)
            }
            Requests::Logged(replay) => {
                let log = Log::open(&files.join(&replay.log), &base)?;
                let log = log.share(replay.share, seed)?.at_speed(replay.speed)?;
                let due = log.due_within(replay.lasts)?;
                let (targets, order, _) = log.into_parts();
                (targets, order, None, Plan::replay(due)?)
            }
        };
        let cache_bust = match &self.requests {
            _ if self.cache_bust => Some(CacheBust::Requests(newness)),
            Requests::Made { .. } => None,
            Requests::Logged(_) => Some(CacheBust::Rounds(newness)),
        };
        let max_in_flight = self.max_in_flight.unwrap_or_else(|| Limits::raised().in_flight(&plan, false));
        let asks = Asks::new(targets, Variety { order, keys, cache_bust }, seed)?;
        Ok(Load {
            id: String::new(),
            threads: threads(&plan),
            plan,
            traffic: Arc::new(asks),
            options: Options { timeout: self.timeout, ..Options::default() },
            max_in_flight,
            drain: self.drain,
            seed,
            first: 0,
            tells_samples: false,
        })
    }
}

impl Of {
    fn targets(&self, base: &Base, files: &Path) -> Result<(Vec<Target>, Order, Option<Keys>), HttpError> {
        // Whatever server they name, this one is asked.
        let at = |path: &str| base.at(path).map_err(|error| HttpError::Path(format!("`{path}`: {error}")));
        match self {
            Self::Path { path, keys } => Ok((vec![Target::get(at(path)?)], Order::InTurn, *keys)),
            Self::Urls { file, is_random } => {
                let mut targets = siege::open(&files.join(file))?;
                for target in &mut targets {
                    let path = target.url.path_and_query().map_or("/", |path| path.as_str());
                    target.url = at(path)?;
                }
                let order = if *is_random { Order::Random } else { Order::InTurn };
                Ok((targets, order, None))
            }
        }
    }
}

impl Pace {
    fn plan(&self) -> Result<Plan, Beyond> {
        match self {
            Self::Open(schedule) => Plan::open(schedule.clone()),
            Self::Closed { connections, lasts } => {
                Plan::closed(Closed::new(*connections, Until::Duration(*lasts)))
            }
        }
    }
}
