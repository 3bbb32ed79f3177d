//! What is seen of a run once a second: by the load itself, of its processes, and of the cache.

use std::{
    collections::BTreeMap,
    fs, io, process,
    time::{Duration, Instant},
};

use serde::Deserialize;
use stockade_load::{
    drive::{Begins, Observer, Progress, Stop},
    sample::Sample,
};
use stockade_model::{
    record::{self, Holds, Role, Tells, Times, Usage},
    seed::Seed,
    units::format_duration,
};

use super::{
    ask::get,
    child::{Child, ChildError},
    memory::SHARE_MAX,
    probe::{Probe, Sent},
};
use crate::engine::{OpenSecond, Second};

/// What was used in less time than this nobody can tell.
const SECONDS_MIN: f64 = 0.5;

/// What the load asks.
pub(super) struct Front {
    pub(super) url: String,
    /// Where it tells what it has counted, or its origin does for it.
    pub(super) stats: Option<String>,
    pub(super) pid: Option<u32>,
    /// Its process, if it was started for this.
    pub(super) child: Option<Child>,
}

/// Follows a load, and looks at its processes with each second of it. It ends the load when one of them has ended, or
/// when they take more memory than they may.
pub(super) struct Watch<'a> {
    url: &'a str,
    stats: Option<&'a str>,
    processes: Vec<Process>,
    children: Vec<&'a Child>,
    /// All processes together may take no more.
    bytes_max: Option<u64>,
    figures: Figures,
    /// Those that are not due yet, by when they are.
    probes: Vec<(Probe, Seed)>,
    sent: Vec<Sent>,
    answered: Vec<record::Probe>,
    ended: Option<Ended>,
    stop: &'a Stop,
    sink: &'a mut dyn FnMut(Second),
}

/// All that was seen.
pub(super) struct Seen {
    pub(super) figures: Figures,
    pub(super) probes: Vec<record::Probe>,
    /// Why it ended before its time.
    pub(super) ended: Option<Ended>,
}

/// Why a load was ended.
pub(super) enum Ended {
    /// A process has.
    Child(ChildError),
    /// They took too much memory.
    Memory(String),
}

/// A process, and what it had used when it was last looked at.
struct Process {
    role: Role,
    id: u32,
    ticks: u64,
    at: Instant,
}

/// What a cache has told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// In the end.
    pub(super) last: Counted,
    /// The most bytes that it was seen to hold.
    pub(super) bytes_max: Option<u64>,
    /// Who tells of it.
    pub(super) tells: Tells,
    /// Whether it was told in the end.
    pub(super) is_last: bool,
    /// What had been counted before the load.
    before: Counted,
}

/// What a cache has counted since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) entries: u64,
    pub(super) bytes: Option<u64>,
    pub(super) evicted: u64,
    pub(super) reclaims: u64,
    pub(super) loads: u64,
    pub(super) loads_refused: u64,
    pub(super) loads_rejected: u64,
    pub(super) refreshes: u64,
    pub(super) waiters: u64,
}

impl Counted {
    /// What was counted since then; what it holds now.
    fn since(self, before: Self) -> Self {
        Self {
            evicted: self.evicted.saturating_sub(before.evicted),
            reclaims: self.reclaims.saturating_sub(before.reclaims),
            loads: self.loads.saturating_sub(before.loads),
            loads_refused: self.loads_refused.saturating_sub(before.loads_refused),
            loads_rejected: self.loads_rejected.saturating_sub(before.loads_rejected),
            refreshes: self.refreshes.saturating_sub(before.refreshes),
            waiters: self.waiters.saturating_sub(before.waiters),
            ..self
        }
    }
}

impl<'a> Watch<'a> {
    /// Of these parts, on a machine with so much memory (0: it did not tell).
    pub(super) fn new(
        front: &'a Front,
        origin: Option<&'a Child>,
        memory_mib: u64,
        stop: &'a Stop,
        sink: &'a mut dyn FnMut(Second),
    ) -> Self {
        let parts = [
            (Role::Load, Some(process::id())),
            (Role::Proxy, front.pid),
            (Role::Origin, origin.map(Child::id)),
        ];
        let process = |(role, id): (Role, Option<u32>)| {
            let id = id?;
            Some(Process { role, id, ticks: ticks(id).unwrap_or_default(), at: now() })
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of it")]
        let bytes_max = ((memory_mib << 20) as f64 * SHARE_MAX) as u64;
        Self {
            url: &front.url,
            stats: front.stats.as_deref(),
            processes: parts.into_iter().filter_map(process).collect(),
            children: front.child.iter().chain(origin).collect(),
            bytes_max: (memory_mib > 0).then_some(bytes_max),
            figures: Figures { tells: Tells::Nobody, ..Figures::default() },
            probes: Vec::new(),
            sent: Vec::new(),
            answered: Vec::new(),
            ended: None,
            stop,
            sink,
        }
    }

    /// Sends the probes that come before the load, waits for what they bring, and keeps the others until they are due.
    pub(super) fn probing(&mut self, probes: &[Probe], newness: Seed) {
        for (probe, number) in probes.iter().zip(1..) {
            let seed = newness.child(&format!("probe {number}"));
            if probe.at.is_none() {
                self.answered.push(probe.send(self.url, seed).answered());
            } else {
                self.probes.push((probe.clone(), seed));
            }
        }
        // What they have cost is not the load's.
        self.look();
        self.figures.before = self.figures.last;
        self.figures.last = Counted::default();
    }

    /// All that was seen, with a last look.
    pub(super) fn done(mut self) -> Seen {
        self.look();
        self.answered.extend(self.sent.into_iter().map(Sent::answered));
        Seen { figures: self.figures, probes: self.answered, ended: self.ended }
    }

    /// What the cache has counted; one that does not say so now has what it said last.
    fn look(&mut self) {
        let text = self.stats.and_then(|stats| get(stats).ok());
        let stats = text.and_then(|text| serde_json::from_str::<Stats>(&text).ok());
        self.figures.is_last = stats.is_some();
        let Some(stats) = stats else { return };
        self.figures.tells = if matches!(stats, Stats::Cache(_)) { Tells::Cache } else { Tells::Origin };
        self.figures.last = stats.counted().since(self.figures.before);
        self.figures.bytes_max = self.figures.bytes_max.max(self.figures.last.bytes);
    }

    /// Ends the load where it cannot go on.
    fn guard(&mut self, elapsed: Duration, usage: &BTreeMap<Role, Usage>) {
        if self.ended.is_some() {
            return;
        }
        let bytes: u64 = usage.values().map(|usage| usage.rss_bytes).sum();
        let gone = || self.children.iter().find_map(|child| child.check().err()).map(Ended::Child);
        let too_much = |most: &u64| bytes > *most;
        let memory = self.bytes_max.filter(too_much).map(|most| {
            Ended::Memory(format!(
                "ended after {}: its processes took {} MiB, more than the {} MiB that are 60 % of this machine's memory",
                format_duration(Duration::from_secs(elapsed.as_secs())),
                bytes >> 20,
                most >> 20,
            ))
        });
        self.ended = memory.or_else(gone);
        if self.ended.is_some() {
            self.stop.request();
        }
    }
}

impl Observer for Watch<'_> {
    fn begins(&mut self, _: Begins) {}

    fn second(&mut self, progress: &Progress<'_>) {
        let before = self.figures.last;
        self.look();
        let Counted { entries, bytes, reclaims, loads, waiters, .. } = self.figures.last;
        let usage: BTreeMap<_, _> =
            self.processes.iter_mut().filter_map(|process| Some((process.role, process.usage()?))).collect();
        self.guard(progress.elapsed, &usage);
        let is_due = |(probe, _): &(Probe, Seed)| probe.at.is_some_and(|at| at <= progress.elapsed);
        let (due, later): (Vec<_>, Vec<_>) = self.probes.drain(..).partition(is_due);
        self.probes = later;
        self.sent.extend(due.into_iter().map(|(probe, seed)| probe.send(self.url, seed)));
        (self.sink)(Second {
            second: progress.elapsed.as_secs().saturating_sub(1),
            outcomes: super::outcomes(progress.tally),
            times: Times {
                send_lag: progress.tally.times.send_lag.clone(),
                ..progress.tally.times_of_successes.clone()
            },
            open: Some(OpenSecond {
                source_loads: loads.saturating_sub(before.loads),
                retries: progress.tally.retries,
                ..OpenSecond::default()
            }),
            usage,
            holds: (self.figures.tells == Tells::Cache).then_some(Holds {
                entries,
                bytes,
                reclaims,
                waiters,
            }),
        });
    }

    fn sample(&mut self, _: &Sample) -> io::Result<()> {
        Ok(())
    }
}

impl Process {
    /// What it has used since it was last looked at; `None`: it is gone, or that was just now.
    fn usage(&mut self) -> Option<Usage> {
        let (ticks, at) = (ticks(self.id)?, now());
        let seconds = (at - self.at).as_secs_f64();
        // The last second of a load may have hardly begun, and a tick is a hundredth of one.
        if seconds < SECONDS_MIN {
            return None;
        }
        let cpu = ticks.saturating_sub(self.ticks) as f64 / rustix::param::clock_ticks_per_second() as f64;
        (self.ticks, self.at) = (ticks, at);
        Some(Usage { rss_bytes: rss_bytes(self.id)?, cpu: cpu / seconds })
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

/// What is told of a cache.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stats {
    Cache(CacheStats),
    Origin(OriginStats),
}

/// `/stats` of a proxy, as far as it matters here, and of an app.
#[derive(Deserialize)]
struct CacheStats {
    entries: u64,
    bytes: Option<u64>,
    evicted_size: u64,
    reclaims: u64,
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

/// What an origin has answered: of a cache that tells nothing that is all there is to know.
#[derive(Deserialize)]
struct OriginStats {
    total_requests: u64,
}

impl Stats {
    fn counted(&self) -> Counted {
        let cache = match self {
            Self::Cache(cache) => cache,
            Self::Origin(origin) => return Counted { loads: origin.total_requests, ..Counted::default() },
        };
        let sum = |of: fn(&Route) -> u64| cache.routes.iter().map(of).sum();
        Counted {
            entries: cache.entries,
            bytes: cache.bytes,
            evicted: cache.evicted_size,
            // Without a share to clear, each eviction is one.
            reclaims: if cache.reclaims > 0 { cache.reclaims } else { cache.evicted_size },
            loads: sum(|route| route.loads),
            loads_refused: sum(|route| route.loads_refused),
            loads_rejected: sum(|route| route.loads_rejected),
            refreshes: sum(|route| route.refreshes.values().sum()),
            waiters: sum(|route| route.waiters),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front() -> Front {
        Front { url: "http://127.0.0.1:1".to_owned(), stats: None, pid: None, child: None }
    }

    fn taking(mib: u64) -> BTreeMap<Role, Usage> {
        let usage = |mib: u64| Usage { rss_bytes: mib << 20, cpu: 0.0 };
        BTreeMap::from([(Role::Load, usage(10)), (Role::Proxy, usage(mib))])
    }

    #[test]
    fn what_takes_more_memory_than_it_may_is_ended_and_nobody_else_is() {
        let (front, above, mut sink) = (front(), Stop::default(), |_: Second| {});
        let stop = above.below();
        let mut watch = Watch::new(&front, None, 1000, &stop, &mut sink);
        watch.guard(Duration::from_secs(1), &taking(590));
        assert!(watch.ended.is_none() && !stop.is_requested());
        watch.guard(Duration::from_millis(61_300), &taking(591));
        watch.guard(Duration::from_secs(62), &taking(900));
        let Some(Ended::Memory(told)) = &watch.ended else { panic!("it goes on") };
        assert_eq!(
            told,
            "ended after 61s: its processes took 601 MiB, more than the 600 MiB that are 60 % of this machine's memory"
        );
        assert!(stop.is_requested() && !above.is_requested());
    }

    #[test]
    fn a_machine_that_does_not_tell_its_memory_ends_nothing() {
        let (front, stop, mut sink) = (front(), Stop::default(), |_: Second| {});
        let mut watch = Watch::new(&front, None, 0, &stop, &mut sink);
        watch.guard(Duration::from_secs(1), &taking(1 << 20));
        assert!(watch.ended.is_none() && !stop.is_requested());
    }
}
