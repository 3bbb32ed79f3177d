//! Events of a run during a load: purges, restarts, frozen processes.

use std::{
    fmt,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use stockade_http::tls::Trust;
use stockade_load::truth::{AnsweredPurge, AnsweredPurges};
use stockade_model::{
    proc,
    units::{format_duration, milliseconds, stretched},
};
use stockade_record::{
    clock::{instant, since_1970},
    record::{EventFigures, Role},
    server::StartedServer,
};

use stockade_services::CommandEnvironment;

use super::{fetch::send, restart::CacheServer};

/// An event and its time since the start of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadEvent {
    pub at: Duration,
    pub action: EventAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// A request with which the cache forgets pages. With `*` at the end of its path: all that begin so.
    Purge(EventRequest),
    /// An unsafe request through the cache, which changes a page (RFC 9111, 4.4).
    Write(EventRequest),
    /// A shell command that ends by itself.
    Exec(String),
    /// The part reads its configuration again: SIGHUP.
    Reload(Role),
    /// The cache ends by SIGTERM, and starts again.
    Restart,
    /// The cache ends by SIGKILL, and starts again after this time.
    Kill { down_for: Duration },
    /// The processes of the part do not run for this time: SIGSTOP.
    Freeze { part: Role, lasts: Duration },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRequest {
    pub method: String,
    pub path: String,
}

/// The parts that events act on.
pub(super) struct EventParts {
    /// The URL of the cache.
    pub(super) url: String,
    pub(super) trust: Trust,
    pub(super) commands: CommandEnvironment,
    /// `None`: the run has not started it.
    pub(super) cache: Option<CacheServer>,
    /// Of a cache that the run has not started; `None`: unknown.
    pub(super) cache_process: Option<u32>,
    pub(super) origin: Option<Arc<dyn StartedServer>>,
    /// Receives purges and writes.
    pub(super) purges: AnsweredPurges,
    /// The parts that do not run because of an event.
    frozen: Mutex<Vec<Role>>,
}

/// The events of a load in progress, each on a thread of its own.
pub(super) struct RunningEvents {
    end: Arc<LoadEnd>,
    threads: Vec<JoinHandle<Option<EventFigures>>>,
}

/// The end of the load.
#[derive(Default)]
struct LoadEnd {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl LoadEvent {
    /// Scales its times with the run.
    pub fn scale_duration(&mut self, factor: f64) {
        self.at = stretched(self.at, factor);
        if let EventAction::Kill { down_for: time } | EventAction::Freeze { lasts: time, .. } =
            &mut self.action
        {
            *time = stretched(*time, factor);
        }
    }
}

impl EventAction {
    /// True if the cache ends and starts again.
    #[must_use]
    pub fn restarts_cache(&self) -> bool {
        matches!(self, Self::Restart | Self::Kill { .. })
    }

    /// The part whose processes it signals.
    #[must_use]
    pub fn signalled(&self) -> Option<Role> {
        match self {
            Self::Reload(part) | Self::Freeze { part, .. } => Some(*part),
            Self::Restart | Self::Kill { .. } => Some(Role::Proxy),
            Self::Purge(_) | Self::Write(_) | Self::Exec(_) => None,
        }
    }
}

/// As in the experiment.
impl fmt::Display for EventAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Purge(request) => write!(f, "purge {request}"),
            Self::Write(request) => write!(f, "write {request}"),
            Self::Exec(command) => write!(f, "exec {command}"),
            Self::Reload(part) => write!(f, "reload {}", part_name(*part)),
            Self::Restart => f.write_str("restart cache"),
            Self::Kill { down_for: Duration::ZERO } => f.write_str("kill cache"),
            Self::Kill { down_for } => write!(f, "kill cache for {}", format_duration(*down_for)),
            Self::Freeze { part, lasts } => {
                write!(f, "freeze {} for {}", part_name(*part), format_duration(*lasts))
            }
        }
    }
}

impl fmt::Display for EventRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// The name in experiments.
fn part_name(part: Role) -> &'static str {
    if part == Role::Proxy { "cache" } else { part.name() }
}

impl EventParts {
    pub(super) fn new(url: String, trust: Trust, commands: CommandEnvironment) -> Self {
        Self {
            url,
            trust,
            commands,
            cache: None,
            cache_process: None,
            origin: None,
            purges: AnsweredPurges::default(),
            frozen: Mutex::default(),
        }
    }

    /// True if an event keeps this part from running.
    pub(super) fn is_frozen(&self, part: Role) -> bool {
        self.frozen().contains(&part)
    }

    /// True if an event keeps a part from running.
    pub(super) fn is_any_frozen(&self) -> bool {
        !self.frozen().is_empty()
    }

    fn frozen(&self) -> MutexGuard<'_, Vec<Role>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, action: &EventAction, end: &LoadEnd) -> Result<(), String> {
        match action {
            EventAction::Purge(request) | EventAction::Write(request) => self.send(request),
            EventAction::Exec(command) => {
                let commands =
                    CommandEnvironment { process: self.process_of(Role::Proxy), ..self.commands.clone() };
                commands.run("exec", command).map_err(|error| error.to_string())
            }
            EventAction::Reload(part) => self.signal(*part, Signal::HUP),
            EventAction::Restart => self.restart(Signal::TERM, Duration::ZERO, end),
            EventAction::Kill { down_for } => self.restart(Signal::KILL, *down_for, end),
            EventAction::Freeze { part, lasts } => self.freeze(*part, *lasts, end),
        }
    }

    fn send(&self, request: &EventRequest) -> Result<(), String> {
        let EventRequest { method, path } = request;
        let sent = since_1970();
        match send(method, &format!("{}{path}", self.url), &self.trust) {
            // Some caches answer with 404 if there is nothing to purge.
            Ok((200..400 | 404, _)) => {
                self.purges.add(AnsweredPurge { path: path.clone(), sent, answered: since_1970() });
                Ok(())
            }
            Ok((status, _)) => Err(format!("it was answered with {status}: let the cache accept it")),
            Err(error) => Err(error),
        }
    }

    fn process_of(&self, part: Role) -> Option<u32> {
        if part == Role::Origin {
            return self.origin.as_ref()?.process();
        }
        self.cache.as_ref().and_then(CacheServer::process).or(self.cache_process)
    }

    fn known_process_of(&self, part: Role) -> Result<u32, String> {
        self.process_of(part).ok_or_else(|| format!("the process of the {} is not known", part_name(part)))
    }

    fn signal(&self, part: Role, signal: Signal) -> Result<(), String> {
        let id = self.known_process_of(part)?;
        let id = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or("its process has no valid id")?;
        kill_process(id, signal).map_err(|error| format!("its process cannot be signalled: {error}"))
    }

    fn restart(&self, signal: Signal, down_for: Duration, end: &LoadEnd) -> Result<(), String> {
        let cache = self.cache.as_ref().ok_or("the run has not started the cache")?;
        cache.restart(signal, || !end.within(down_for)).map_err(|error| error.to_string())
    }

    fn freeze(&self, part: Role, lasts: Duration, end: &LoadEnd) -> Result<(), String> {
        let ids = proc::process_tree(self.known_process_of(part)?);
        let failed = |error: std::io::Error| format!("its processes cannot be stopped: {error}");
        // The shell lets them go on when its standard input closes, and so also if this process is killed.
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "kill -s STOP \"$@\"; status=$?; cat >/dev/null; kill -s CONT \"$@\"; exit $status",
                "sh",
            ])
            .args(ids.iter().map(u32::to_string))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        self.frozen().push(part);
        end.within(lasts);
        drop(shell.stdin.take());
        let ended = shell.wait();
        let mut frozen = self.frozen();
        if let Some(index) = frozen.iter().position(|one| *one == part) {
            frozen.swap_remove(index);
        }
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("its processes cannot be stopped: {status}")),
            Err(error) => Err(failed(error)),
        }
    }
}

impl RunningEvents {
    /// The load starts now.
    pub(super) fn start(events: &[LoadEvent], parts: &Arc<EventParts>) -> Self {
        let (end, zero) = (Arc::new(LoadEnd::default()), instant());
        let start = |event: &LoadEvent| {
            let (event, parts, end) = (event.clone(), Arc::clone(parts), Arc::clone(&end));
            let run = move || {
                if end.within(event.at.saturating_sub(zero.elapsed())) {
                    return None;
                }
                let began = zero.elapsed();
                let result = parts.run(&event.action, &end);
                Some(EventFigures {
                    at_ms: milliseconds(began),
                    took_ms: milliseconds(zero.elapsed().saturating_sub(began)),
                    event: event.action.to_string(),
                    failed: result.err(),
                })
            };
            let thread = thread::Builder::new().name("event".to_owned()).spawn(run);
            thread.expect("a machine that runs a load has threads")
        };
        let threads = events.iter().map(start).collect();
        Self { end, threads }
    }

    /// The load has ended: no event begins from now on. Returns those that began, in the order of time.
    pub(super) fn finish(self) -> Vec<EventFigures> {
        self.end.announce();
        let figures = self.threads.into_iter().filter_map(|thread| thread.join().ok().flatten());
        let mut figures: Vec<_> = figures.collect();
        figures.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        figures
    }
}

impl LoadEnd {
    /// Waits for this time. True: the load has ended before.
    fn within(&self, time: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn announce(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// Why the event makes the run invalid; `None`: it succeeded.
pub(super) fn failure(event: &EventFigures) -> Option<String> {
    let at = format_duration(Duration::from_secs_f64(event.at_ms.max(0.0).round() / 1e3));
    event.failed.as_ref().map(|reason| format!("the event `{}` at {at} failed: {reason}", event.event))
}
