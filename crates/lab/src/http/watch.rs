//! What is seen of a run once a second: by the load itself, of its processes, and of the cache.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde::Deserialize;
use stockade_load::{
    drive::{Begins, Observer, Progress},
    sample::Sample,
};
use stockade_model::record::{Holds, Role, Usage};

use crate::engine::{OpenSecond, Second};

/// How long a process may take to say how it goes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Follows a load, and looks at its processes with each second of it.
pub(super) struct Watch<'a> {
    roles: Vec<Process>,
    /// Where the proxy is looked at.
    admin: String,
    counted: Counted,
    bytes_max: Option<u64>,
    sink: &'a mut dyn FnMut(Second),
}

/// A process, and what it had used when it was last looked at.
struct Process {
    role: Role,
    id: u32,
    ticks: u64,
    at: Instant,
}

/// What a cache has counted since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) entries: u64,
    pub(super) bytes: Option<u64>,
    pub(super) evicted: u64,
    pub(super) loads: u64,
    pub(super) loads_refused: u64,
    pub(super) loads_rejected: u64,
    pub(super) refreshes: u64,
    pub(super) waiters: u64,
}

impl<'a> Watch<'a> {
    pub(super) fn new(roles: &[(Role, u32)], admin: String, sink: &'a mut dyn FnMut(Second)) -> Self {
        let process =
            |&(role, id): &(Role, u32)| Process { role, id, ticks: ticks(id).unwrap_or_default(), at: now() };
        let roles = roles.iter().map(process).collect();
        Self { roles, admin, counted: Counted::default(), bytes_max: None, sink }
    }

    /// What the cache has counted in all, as far as it has said.
    pub(super) fn last(&mut self) -> Counted {
        self.look();
        self.counted
    }

    /// The most bytes that it was seen to hold.
    pub(super) fn bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    /// What it has counted; a cache that does not say so now has what it said last.
    fn look(&mut self) {
        let stats = get(&format!("{}/stats", self.admin))
            .ok()
            .and_then(|text| serde_json::from_str::<Stats>(&text).ok());
        if let Some(stats) = stats {
            self.counted = stats.counted();
            self.bytes_max = self.bytes_max.max(self.counted.bytes);
        }
    }
}

impl Observer for Watch<'_> {
    fn begins(&mut self, _: Begins) {}

    fn second(&mut self, progress: &Progress<'_>) {
        let before = self.counted;
        self.look();
        let Counted { entries, bytes, loads, .. } = self.counted;
        let usage: BTreeMap<_, _> =
            self.roles.iter_mut().filter_map(|process| Some((process.role, process.usage()?))).collect();
        (self.sink)(Second {
            second: progress.elapsed.as_secs().saturating_sub(1),
            outcomes: super::outcomes(progress.tally),
            times: progress.tally.times.clone(),
            open: Some(OpenSecond {
                source_loads: loads.saturating_sub(before.loads),
                retries: progress.tally.retries,
                ..OpenSecond::default()
            }),
            usage,
            holds: Some(Holds { entries, bytes }),
        });
    }

    fn sample(&mut self, _: &Sample) -> io::Result<()> {
        Ok(())
    }
}

impl Process {
    /// What it has used since it was last looked at; `None`: it is gone.
    fn usage(&mut self) -> Option<Usage> {
        let (ticks, at) = (ticks(self.id)?, now());
        let seconds = (at - self.at).as_secs_f64();
        let cpu = ticks.saturating_sub(self.ticks) as f64 / rustix::param::clock_ticks_per_second() as f64;
        (self.ticks, self.at) = (ticks, at);
        Some(Usage { rss_bytes: rss_bytes(self.id)?, cpu: if seconds > 0.0 { cpu / seconds } else { 0.0 } })
    }
}

#[expect(clippy::disallowed_methods, reason = "processes use real time")]
fn now() -> Instant {
    Instant::now()
}

/// Processor time, the user's and the system's, in the system's ticks.
fn ticks(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Behind the name in brackets, which may have any character in it.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn rss_bytes(id: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// A proxy's `/stats`, as far as it matters here.
#[derive(Deserialize)]
struct Stats {
    entries: u64,
    bytes: Option<u64>,
    evicted_expired: u64,
    evicted_size: u64,
    routes: Vec<Route>,
}

#[derive(Deserialize)]
struct Route {
    loads: u64,
    loads_refused: u64,
    loads_rejected: u64,
    waiters: u64,
    refreshes: BTreeMap<String, u64>,
}

impl Stats {
    fn counted(&self) -> Counted {
        let sum = |of: fn(&Route) -> u64| self.routes.iter().map(of).sum();
        Counted {
            entries: self.entries,
            bytes: self.bytes,
            evicted: self.evicted_expired + self.evicted_size,
            loads: sum(|route| route.loads),
            loads_refused: sum(|route| route.loads_refused),
            loads_rejected: sum(|route| route.loads_rejected),
            refreshes: sum(|route| route.refreshes.values().sum()),
            waiters: sum(|route| route.waiters),
        }
    }
}

/// What a page of a process says; or why it says nothing.
pub(super) fn get(url: &str) -> Result<String, String> {
    let ask = || -> io::Result<String> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        // A version without chunks.
        write!(tcp, "GET /{path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let is_good = head.split(' ').nth(1) == Some("200");
        if is_good { Ok(body.to_owned()) } else { Err(io::Error::other(body.trim().to_owned())) }
    };
    ask().map_err(|error| format!("does not say how it goes: {error}"))
}
