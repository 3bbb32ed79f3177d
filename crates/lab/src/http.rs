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

mod ask;
mod child;
mod memory;
mod probe;
mod recipe;
mod traffic;
mod watch;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Map, Value, json};
use stockade_load::{
    drive::{LoadError, Ran, Stop},
    schedule::Beyond,
    summary::Summary,
    tally::Tally,
    target::UrlError,
    targets::{TargetsError, log::ReplayError},
    traffic::TrafficError,
};
use stockade_model::{
    outcome::Outcomes,
    record::{self, Calls, HttpFigures, OpenFigures, Role},
    seed::Seed,
    units::milliseconds,
};
use stockade_services::ServiceError;
use stockade_source::secrets::masked_file;

use self::{
    ask::get,
    child::Child,
    watch::{Ended, Figures, Front, Seen, Watch},
};
pub use self::{
    child::ChildError,
    memory::TooMuch,
    probe::Probe,
    recipe::{Recipe, Written},
    traffic::{Of, Pace, Replay, Requests, Traffic},
};
use crate::{
    engine::{Did, Measured, Second},
    services::{Service, Services},
};

/// What an arm has to bear over HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    /// The strategy's name in reports.
    pub name: String,
    /// What is asked.
    pub served: Served,
    /// What the origin serves, and how it behaves when; `None`: there is none of ours.
    pub origin: Option<Recipe>,
    /// What is asked of it.
    pub traffic: Traffic,
    /// What is asked besides.
    pub probes: Vec<Probe>,
}

/// What stands between the load and the origin.
#[derive(Clone, Debug)]
pub enum Served {
    /// `stockade proxy`, with settings as its file has them: all but where it listens and whom it asks.
    Proxy(Map<String, Value>),
    /// `stockade app`, with settings as its file has them.
    App(Map<String, Value>),
    /// Something that is there already.
    There {
        /// Where.
        url: String,
        /// Its process, to be looked at.
        pid: Option<u32>,
    },
}

/// A run over HTTP failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A process could not be started, or is gone.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A server that it takes could not be started.
    #[error(transparent)]
    Service(#[from] ServiceError),
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
    /// There is nobody to look at.
    #[error("there is no process {0}: write the `pid` of what is asked, or leave it out")]
    NoProcess(u32),
    /// The load could not be run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It asks for nothing that can be asked for.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The same.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The same.
    #[error("{0}")]
    Path(String),
    /// A file of what is asked makes no sense.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// A log cannot be played like this.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// It asks for too much.
    #[error("the load is {0}")]
    Beyond(#[from] Beyond),
}

impl HttpError {
    /// Whether it was asked for wrongly, rather than something that went wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Child(error) => error.is_usage(),
            Self::Load(error) => matches!(error, LoadError::Trust(_) | LoadError::TooMany(_)),
            Self::Service(_) | Self::File { .. } => false,
            _ => true,
        }
    }
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
    /// Servers that the run has started.
    pub services: &'a Services,
    /// What this machine has; 0: it did not tell.
    pub memory_mib: u64,
}

impl Http {
    /// The database of the run that it loads from.
    pub(crate) fn database(&self) -> Option<Service> {
        let Served::App(settings) = &self.served else { return None };
        Service::meant_by(settings.get("origin")?.get("source")?.as_str()?).map(|(service, _)| service)
    }

    /// Starts what it takes, sends the load, and ends it all. `None`: it was stopped.
    pub fn run(
        &self,
        place: Place<'_>,
        seed: Seed,
        stop: &Stop,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Option<Measured>, HttpError> {
        fs::create_dir_all(place.folder).map_err(file(place.folder))?;
        let origin = self.origin.as_ref().map(|recipe| origin(recipe, place)).transpose()?;
        let front = self.front(place, origin.as_ref())?;
        // What is there already may know what an earlier run with the same seed has asked it.
        let newness = match self.served {
            Served::There { .. } => Seed::from_entropy(),
            Served::Proxy(_) | Served::App(_) => seed,
        };
        let load = self.traffic.load(&front.url, place.files, seed, newness)?;
        let ready = load.ready()?;
        // What ends here early is this load, and no other.
        let above = stop;
        let stop = above.below();
        let of_origin = origin.as_ref().map(|origin| &origin.child);
        let mut watch = Watch::new(&front, of_origin, place.memory_mib, &stop, sink);
        watch.probing(&self.probes, newness);
        // What the origin does when is counted from here on.
        if let Some(Origin { child, admin }) = &origin {
            get(&format!("{admin}/start")).map_err(|error| child.silent(&error))?;
        }
        let Ran { summary, was_stopped } = ready.run(&mut watch, &stop)?;
        let Seen { figures, probes, ended } = watch.done();
        let mut invalid = summary.generator.reasons.clone();
        match ended {
            _ if above.is_requested() => return Ok(None),
            Some(Ended::Child(error)) => return Err(error.into()),
            Some(Ended::Memory(reason)) => invalid.push(reason),
            None if was_stopped => return Ok(None),
            None => {}
        }
        if front.stats.is_some() && !figures.is_last {
            invalid.push(
                "what was counted in the end was not told: the figures of the cache are older".to_owned(),
            );
        }
        for child in [of_origin, front.child.as_ref()].into_iter().flatten() {
            child.check()?;
        }
        invalid.extend(probes.iter().filter_map(probe::complaint));
        let http = HttpFigures {
            status_codes: summary.measured.status_codes.clone(),
            connections: summary.connections,
            in_flight_at_end: summary.in_flight_at_end,
            sent_after_end: summary.sent_after_end,
            users: self.traffic.users(),
            attack_ms: milliseconds(summary.attack()),
            wait_ms: milliseconds(summary.wait()),
            wire_bytes_in: summary.measured.wire_bytes_in,
            steal: summary.generator.steal,
            tells: figures.tells,
            probes,
            invalid,
        };
        Ok(Some(self.measured(&summary, &figures, load.plan.to_string(), http)))
    }

    /// What it has come to.
    fn measured(
        &self,
        summary: &Summary,
        figures: &Figures,
        schedule: String,
        http: HttpFigures,
    ) -> Measured {
        let tally = &summary.measured;
        let response = &tally.times_of_successes.response;
        let extremes = response.min().zip(response.max());
        let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let counted = figures.last;
        let open = OpenFigures {
            strategy: self.name.clone(),
            schedule,
            duration_ms: milliseconds(self.traffic.lasts()),
            documents: None,
            distinct_keys: None,
            finished_ms: milliseconds(tally.end.map_or(Duration::ZERO, |end| end - summary.began)),
            calls: Calls { fetch_doc: counted.loads, ..Calls::default() },
            waiters: whole(counted.waiters),
            response: extremes
                .map(|(min, max)| record::Extremes { min_ms: milliseconds(min), max_ms: milliseconds(max) }),
            retries: tally.retries,
            dropped: summary.dropped,
            in_flight_max: whole(summary.in_flight_max),
            source_concurrent_max: None,
            audit: None,
        };
        Measured {
            load: record::Load::Open(open),
            whole_ms_sum: None,
            outcomes: outcomes(tally),
            bytes_in: tally.bytes_in,
            service_sum: service_sum(tally),
            did: Did::default(),
            cache: record::CacheFigures {
                entries: whole(counted.entries),
                bytes_max: figures.bytes_max.map(whole),
                evicted: counted.evicted,
                loads_refused: counted.loads_refused,
                loads_rejected: counted.loads_rejected,
                refreshes: counted.refreshes,
                ..record::CacheFigures::default()
            },
            errors: errors(tally),
            http: Some(http),
        }
    }

    /// Reads the files that it will take, so that nothing of them is wrong when others have been measured for hours.
    pub fn check_files(&self, files: &Path) -> Result<(), HttpError> {
        if let Some(recipe) = &self.origin {
            recipe.text(files).map_err(HttpError::Recipe)?;
        }
        self.traffic.check_files(files)
    }

    /// Has room for so many times as many entries, where their number is limited.
    pub fn stretch_entries(&mut self, factor: f64) {
        let Served::Proxy(settings) = &mut self.served else { return };
        let limit = settings.get_mut("cache").and_then(|cache| cache.get_mut("limit"));
        if let Some(entries) = limit.and_then(|limit| limit.get_mut("entries"))
            && let Some(count) = entries.as_f64()
        {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
            let stretched = (count * factor).round() as u64;
            *entries = stretched.max(1).into();
        }
    }

    /// Takes so many times as long.
    pub fn stretch(&mut self, factor: f64) -> Result<(), Beyond> {
        if let Some(recipe) = &mut self.origin {
            recipe.factor *= factor;
        }
        self.probes.iter_mut().for_each(|probe| probe.stretch(factor));
        self.traffic.stretch(factor)
    }

    /// What the load asks.
    fn front(&self, place: Place<'_>, origin: Option<&Origin>) -> Result<Front, HttpError> {
        let (command, name, told) = match &self.served {
            Served::There { url, pid } => {
                if let Some(pid) = pid.filter(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                    return Err(HttpError::NoProcess(pid));
                }
                let counts = origin.map(|origin| format!("{}/current_count", origin.admin));
                return Ok(Front { url: url.clone(), stats: counts, pid: *pid, child: None });
            }
            Served::Proxy(settings) => {
                let mut told = json!({
                    "listen": ["127.0.0.1:0"],
                    "admin": { "listen": "127.0.0.1:0" },
                    "log": { "format": "none" },
                });
                if let Some(all) = told.as_object_mut() {
                    let url = origin.map(|origin| json!([{ "name": "origin", "url": origin.child.url }]));
                    all.extend(url.map(|url| ("origin".to_owned(), url)));
                    all.extend(settings.clone());
                }
                (&["proxy", "--config"][..], "proxy.toml", told)
            }
            Served::App(settings) => {
                let mut told = Value::Object(settings.clone());
                for place_of_url in ["/origin/source", "/cache/shared"] {
                    if let Some(url) = told.pointer_mut(place_of_url)
                        && let Some(written) = url.as_str()
                    {
                        *url = place.services.at(written)?.into();
                    }
                }
                (&["app"][..], "app.toml", told)
            }
        };
        let path = place.folder.join(name);
        let told: String = told.as_object().into_iter().flatten().map(setting).collect();
        write_secret(&path, &told).map_err(file(&path))?;
        let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        arguments.push(path.display().to_string());
        let started = Child::start(Role::Proxy, place.program, &arguments, place.folder);
        let started = started.and_then(|child| Ok((child.admin()?, child)));
        // It has been read, whatever came of it, and is kept without what nobody else is to know.
        fs::write(&path, masked_file(&told)).map_err(file(&path))?;
        let (admin, child) = started?;
        let stats = Some(format!("{admin}/stats"));
        Ok(Front { url: child.url.clone(), stats, pid: Some(child.id()), child: Some(child) })
    }
}

/// An origin of ours, which can be looked at while it refuses everybody.
struct Origin {
    child: Child,
    admin: String,
}

fn origin(recipe: &Recipe, place: Place<'_>) -> Result<Origin, HttpError> {
    let path = place.folder.join("origin.json");
    let text = recipe.text(place.files).map_err(HttpError::Recipe)?;
    fs::write(&path, text).map_err(file(&path))?;
    let listen = recipe.listen.map_or_else(|| "127.0.0.1:0".to_owned(), |listen| listen.to_string());
    let path = path.display().to_string();
    let arguments = ["origin", &path, "--listen", &listen, "--admin", "127.0.0.1:0", "--hold"];
    let child = Child::start(Role::Origin, place.program, &arguments.map(str::to_owned), place.folder)?;
    Ok(Origin { admin: child.admin()?, child })
}

/// Writes a file that nobody else may read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
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
