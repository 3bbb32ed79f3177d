//! The state that traffic, faults and samples of a run share.

use std::{
    fs::File,
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{
    Result,
    client::Target,
    content::Resource,
    incident::{Incident, IncidentKind},
    schedule::Fault,
    tally::Tally,
    traffic::{Planned, Role},
};

/// Lines of `incidents.jsonl` for excused incidents, and as many for the others; the counts go on.
const INCIDENT_LINES_MAX: u64 = 5_000;

pub struct Context {
    pub seed: u64,
    pub out: PathBuf,
    /// The start of the traffic.
    pub started: Instant,
    targets: [Target; 2],
    tally: Mutex<Tally>,
    windows: Mutex<Vec<Window>>,
    purges: Mutex<Vec<Purge>>,
    pids: Mutex<[u32; 2]>,
    files: Mutex<Files>,
    /// The reason why the run ends early.
    stop: watch::Sender<Option<String>>,
}

struct Files {
    incidents: File,
    /// Of incidents that no fault excuses, and of the others.
    incident_lines: [u64; 2],
    faults: File,
}

/// A fault and the time in which it excuses incidents.
struct Window {
    fault: Fault,
    /// `None` while it lasts.
    end: Option<Instant>,
}

pub enum PurgeScope {
    Path(String),
    Class(&'static str),
    All,
}

pub struct Purge {
    pub role: Role,
    pub scope: PurgeScope,
    pub started_ms: u64,
    pub ended_ms: u64,
}

/// The number of a window, to close it.
#[derive(Clone, Copy)]
pub struct WindowId(usize);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub fn new(seed: u64, out: PathBuf, addresses: [SocketAddr; 2], pids: [u32; 2]) -> Result<Self> {
        let files = Files {
            incidents: File::create(out.join("incidents.jsonl"))?,
            incident_lines: [0; 2],
            faults: File::create(out.join("faults.jsonl"))?,
        };
        Ok(Self {
            seed,
            out,
            started: Instant::now(),
            targets: addresses.map(Target::new),
            tally: Mutex::new(Tally::new()?),
            windows: Mutex::default(),
            purges: Mutex::default(),
            pids: Mutex::new(pids),
            files: Mutex::new(files),
            stop: watch::Sender::new(None),
        })
    }

    pub fn target(&self, role: Role) -> &Target {
        &self.targets[role as usize]
    }

    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    pub fn pid(&self, role: Role) -> u32 {
        lock(&self.pids)[role as usize]
    }

    pub fn set_pid(&self, role: Role, pid: u32) {
        lock(&self.pids)[role as usize] = pid;
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the run early; the first reason stays.
    pub fn stop(&self, reason: String) {
        self.stop.send_if_modified(|stop| {
            let is_first = stop.is_none();
            if is_first {
                eprintln!("soak: {reason}");
                *stop = Some(reason);
            }
            is_first
        });
    }

    pub fn stopped(&self) -> watch::Receiver<Option<String>> {
        self.stop.subscribe()
    }

    pub fn open_window(&self, fault: Fault) -> WindowId {
        let mut windows = lock(&self.windows);
        windows.push(Window { fault, end: None });
        WindowId(windows.len() - 1)
    }

    /// The fault is over; its recovery starts.
    pub fn close_window(&self, WindowId(index): WindowId) {
        let window = &mut lock(&self.windows)[index];
        window.end = Some(Instant::now() + window.fault.recovery());
    }

    /// The latest fault that explains an incident of a request which started at `since` and ends now.
    fn excuse(&self, kind: IncidentKind, role: Role, since: Instant) -> Option<Fault> {
        let windows = lock(&self.windows);
        let overlaps =
            |window: &&Window| window.end.is_none_or(|end| end >= since) && window.fault.excuses(kind, role);
        windows.iter().rev().take(64).find(overlaps).map(|window| window.fault)
    }

    pub fn add_purge(&self, purge: Purge) {
        lock(&self.purges).push(purge);
    }

    /// The start of the latest purge of a resource that had ended at `sent_ms`.
    pub fn purged_ms(&self, role: Role, resource: &Resource, sent_ms: u64) -> Option<u64> {
        let purges = lock(&self.purges);
        let concerns = |purge: &&Purge| {
            purge.role == role
                && purge.ended_ms <= sent_ms
                && match &purge.scope {
                    PurgeScope::Path(path) => *path == resource.path(),
                    PurgeScope::Class(class) => *class == resource.class.name,
                    PurgeScope::All => true,
                }
        };
        purges.iter().filter(concerns).map(|purge| purge.started_ms).max()
    }

    /// Counts an incident and writes it down, with what is needed to find it again.
    pub fn record_incident(&self, planned: &Planned, since: Instant, incident: &Incident) {
        let excuse = self.excuse(incident.kind, planned.role, since);
        *self.tally().incidents.entry((incident.kind, excuse)).or_default() += 1;
        let mut files = lock(&self.files);
        let lines = &mut files.incident_lines[usize::from(excuse.is_some())];
        *lines += 1;
        if *lines > INCIDENT_LINES_MAX {
            return;
        }
        let line = json!({
            "seconds": self.elapsed().as_secs_f64(),
            "kind": incident.kind.name(),
            "excused_by": excuse.map(Fault::name),
            "seed": self.seed,
            "request": planned.number,
            "proxy": planned.role.name(),
            "action": format!("{:?}", planned.action),
            "transport": format!("{:?}", planned.transport),
            "path": planned.resource.path(),
            "variant": planned.resource.variant,
            "started_seconds": since.duration_since(self.started).as_secs_f64(),
            "detail": incident.detail,
        });
        self.write(|files| writeln!(files.incidents, "{line}"), files);
    }

    /// Writes a fault and its outcome down.
    pub fn record_fault(
        &self,
        fault: Fault,
        started: Duration,
        outcome: &std::result::Result<String, String>,
    ) {
        let line = json!({
            "seconds": started.as_secs_f64(),
            "until_seconds": self.elapsed().as_secs_f64(),
            "fault": fault.name(),
            "held": outcome.is_ok(),
            "detail": match outcome { Ok(text) | Err(text) => text },
        });
        println!("{line}");
        self.write(|files| writeln!(files.faults, "{line}"), lock(&self.files));
    }

    fn write(&self, write: impl FnOnce(&mut Files) -> std::io::Result<()>, mut files: MutexGuard<'_, Files>) {
        if let Err(error) = write(&mut files) {
            self.stop(format!("cannot write into {}: {error}", self.out.display()));
        }
    }
}
