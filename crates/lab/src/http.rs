//! A run over HTTP: the origin and the cache are processes of their own, and the load comes from this one.
//!
//! ```text
//! Http -- setup/*.json, *.toml --> stockade origin <--- stockade proxy <--- stockade_load, here
//!                                         |                   |                    |
//!                                         +---- memory, processor time, counts, once a second --> Second
//! ```
//!
//! Whatever it starts it ends: a process is told to end when the run is over, and ends by itself when this one dies, since
//! its standard input does.

mod child;
mod recipe;
mod watch;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value, json};
use stockade_load::{
    Options,
    drive::{Load, LoadError, Ran, Stop, threads},
    plan::Plan,
    schedule::{Beyond, Schedule},
    tally::Tally,
    target::{Target, UrlError, read_url},
    traffic::{Traffic, TrafficError, Variety},
};
use stockade_model::{
    outcome::Outcomes,
    record::{self, Calls, HttpFigures, OpenFigures, Role},
    seed::Seed,
    units::milliseconds,
};

use self::{
    child::Child,
    watch::{Watch, get},
};
pub use self::{
    child::ChildError,
    recipe::{Recipe, Written},
};
use crate::engine::{Did, Measured, Second};

/// What an arm has to bear over HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    /// The strategy's name in reports.
    pub name: String,
    /// What the origin serves, and how it behaves when.
    pub recipe: Recipe,
    /// What the proxy is told, as its file has it: all but where it listens and whom it asks.
    pub proxy: Map<String, Value>,
    /// When requests are due.
    pub schedule: Schedule,
    /// What they ask for.
    pub path: String,
    /// Each of them asks for a URL of its own.
    pub cache_bust: bool,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many requests may be under way.
    pub max_in_flight: usize,
    /// How long answers are waited for when the schedule is over.
    pub drain: Duration,
}

/// A run over HTTP failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A process could not be started, or is gone.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// What a process is told could not be written, or read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The recipe makes no sense.
    #[error("the origin's recipe: {0}")]
    Recipe(String),
    /// The load could not be run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It asks for nothing that can be asked for.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The same.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It asks for too much.
    #[error("the load is {0}")]
    Beyond(#[from] Beyond),
}

/// Where the processes come from, and what is left of them.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The program whose commands they are.
    pub program: &'a Path,
    /// Where the files are that the experiment names.
    pub files: &'a Path,
    /// Where what they were told, and what they said, is kept.
    pub folder: &'a Path,
}

impl Http {
    /// Starts what it takes, sends the load, and ends it all. `None`: it was stopped.
    pub fn run(
        &self,
        place: Place<'_>,
        seed: Seed,
        stop: &Stop,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measured>, HttpError> {
        fs::create_dir_all(place.folder).map_err(file(place.folder))?;
        let origin = self.origin(place)?;
        let proxy = self.proxy(place, &origin)?;
        // What the origin does when is counted from here on.
        get(&format!("{}/_admin/start", origin.url)).map_err(|error| origin.failed(&error))?;
        let mut url = proxy.url.clone();
        url.push_str(&self.path);
        let variety = Variety { cache_bust: self.cache_bust.then_some(seed), ..Variety::default() };
        let traffic = Traffic::new(vec![Target::get(read_url(&url)?)], variety, seed)?;
        let plan = Plan::open(self.schedule.clone())?;
        let load = Load {
            id: String::new(),
            threads: threads(&plan),
            plan,
            traffic: Arc::new(traffic),
            options: Options { timeout: self.timeout, ..Options::default() },
            max_in_flight: self.max_in_flight,
            drain: self.drain,
            seed,
            first: 0,
            tells_samples: false,
        };
        let roles =
            [(Role::Load, std::process::id()), (Role::Proxy, proxy.id()), (Role::Origin, origin.id())];
        let mut watch = Watch::new(&roles, proxy.admin()?, sink);
        let Ran { summary, was_stopped } = load.ready()?.run(&mut watch, stop)?;
        if was_stopped {
            return Ok(None);
        }
        let counted = watch.last();
        for child in [&origin, &proxy] {
            child.check()?;
        }
        let tally = &summary.measured;
        let extremes = tally.times.response.min().zip(tally.times.response.max());
        let waiters = usize::try_from(counted.waiters).unwrap_or(usize::MAX);
        let open = OpenFigures {
            strategy: self.name.clone(),
            schedule: self.schedule.to_string(),
            duration_ms: milliseconds(self.schedule.lasts()),
            documents: None,
            distinct_keys: None,
            finished_ms: milliseconds(tally.end.map_or(Duration::ZERO, |end| end - summary.began)),
            calls: Calls { fetch_doc: counted.loads, ..Calls::default() },
            waiters,
            response: extremes
                .map(|(min, max)| record::Extremes { min_ms: milliseconds(min), max_ms: milliseconds(max) }),
            retries: tally.retries,
            dropped: summary.dropped,
            in_flight_max: usize::try_from(summary.in_flight_max).unwrap_or(usize::MAX),
            source_concurrent_max: None,
            audit: None,
        };
        Ok(Some(Measured {
            load: record::Load::Open(open),
            whole_ms_sum: None,
            outcomes: outcomes(tally),
            bytes_in: tally.bytes_in,
            service_sum: service_sum(tally),
            did: Did::default(),
            cache: record::CacheFigures {
                entries: usize::try_from(counted.entries).unwrap_or(usize::MAX),
                bytes_max: watch.bytes_max().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
                evicted: counted.evicted,
                loads_refused: counted.loads_refused,
                loads_rejected: counted.loads_rejected,
                refreshes: counted.refreshes,
                ..record::CacheFigures::default()
            },
            errors: errors(tally),
            http: Some(HttpFigures {
                status_codes: tally.status_codes.clone(),
                connections: summary.connections,
                in_flight_at_end: summary.in_flight_at_end,
                invalid: summary.generator.reasons.clone(),
            }),
        }))
    }

    /// Has room for so many times as many entries, where their number is limited.
    pub fn stretch_entries(&mut self, factor: f64) {
        let limit = self.proxy.get_mut("cache").and_then(|cache| cache.get_mut("limit"));
        if let Some(entries) = limit.and_then(|limit| limit.get_mut("entries"))
            && let Some(count) = entries.as_f64()
        {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
            let stretched = (count * factor).round() as u64;
            *entries = stretched.max(1).into();
        }
    }

    fn origin(&self, place: Place<'_>) -> Result<Child, HttpError> {
        let path = place.folder.join("origin.json");
        let recipe = self.recipe.text(place.files).map_err(HttpError::Recipe)?;
        fs::write(&path, recipe).map_err(file(&path))?;
        let mut arguments = vec!["origin".to_owned(), path.display().to_string()];
        arguments.extend(["--listen", "127.0.0.1:0", "--hold"].map(str::to_owned));
        Ok(Child::start(Role::Origin, place.program, &arguments, place.folder)?)
    }

    fn proxy(&self, place: Place<'_>, origin: &Child) -> Result<Child, HttpError> {
        let path = place.folder.join("proxy.toml");
        let mut told = json!({
            "listen": ["127.0.0.1:0"],
            "admin": { "listen": "127.0.0.1:0" },
            "log": { "format": "none" },
            "origin": [{ "name": "origin", "url": origin.url }],
        });
        if let Some(all) = told.as_object_mut() {
            all.extend(self.proxy.clone());
        }
        let told: String = told.as_object().into_iter().flatten().map(setting).collect();
        fs::write(&path, told).map_err(file(&path))?;
        let arguments = ["proxy".to_owned(), "--config".to_owned(), path.display().to_string()];
        Ok(Child::start(Role::Proxy, place.program, &arguments, place.folder)?)
    }
}

/// A line of TOML.
fn setting((key, value): (&String, &Value)) -> String {
    format!("{} = {}\n", Value::from(key.as_str()), toml(value))
}

/// A value as TOML has it, in one line: as JSON but for tables.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let pairs =
                table.iter().map(|(key, value)| format!("{} = {}", Value::from(key.as_str()), toml(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> HttpError {
    let path = path.to_owned();
    |error| HttpError::File { path, error }
}

/// Service times of all requests together: what is known of those that failed is how long they took to.
fn service_sum(tally: &Tally) -> Duration {
    tally.response_sum.saturating_sub(tally.send_lag_sum)
}

/// What became of all requests: those without a good answer are errors, and an answer that does not say what a cache did
/// for it went by one.
fn outcomes(tally: &Tally) -> Outcomes {
    let failed = tally.requests() - tally.successes;
    let told = Outcomes { error: 0, ..tally.outcomes };
    let untold = tally.successes.saturating_sub(told.requests());
    Outcomes { error: failed, bypass: told.bypass + untold, ..told }
}

/// What the failed were told, and how many were.
fn errors(tally: &Tally) -> BTreeMap<String, u64> {
    let failures = tally.failures.iter().map(|(class, count)| ((*class).to_owned(), *count));
    let statuses =
        tally.status_codes.iter().filter(|(status, _)| !(200..400).contains(*status) && **status != 0);
    failures.chain(statuses.map(|(status, count)| (format!("status {status}"), *count))).collect()
}
