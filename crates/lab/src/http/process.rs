//! Memory and processor time of the processes of a measurement.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use stockade_model::proc;
use stockade_record::{
    record::{Role, Usage},
    server::{ProcessReading, StartedServer},
};

use super::accounting::AccountedProcess;
use stockade_record::clock::instant;

/// Processor time over less than this is too coarse to report.
const SECONDS_MIN: f64 = 0.5;

/// A process with its descendants, and its last sample: a server may be a master process with workers.
pub(super) struct SampledProcess {
    pub(super) role: Role,
    id: u32,
    /// Processor time of each member at the last sample.
    members: BTreeMap<u32, Duration>,
    at: Instant,
    /// Members that were seen running.
    seen_running: BTreeSet<u32>,
    /// True if members have come or gone since the first sample.
    has_changed: bool,
    memory: MemoryMeasure,
}

/// A process on another machine, and its last reading.
pub(super) struct RemoteProcess {
    pub(super) role: Role,
    server: Arc<dyn StartedServer>,
    last: Option<ProcessReading>,
}

/// How the memory of a process is measured, the same for all its samples.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryMeasure {
    /// Resident memory of this process alone.
    Resident,
    /// Of the process and its descendants, with pages that they share counted once.
    ProportionalOfTree,
    /// The same where this process may not read that: shared pages count for each.
    ResidentOfTree,
}

impl SampledProcess {
    /// A process with its descendants, which may be unknown.
    pub(super) fn tree(role: Role, id: u32) -> Self {
        let is_readable = proc::proportional_bytes(id).is_some();
        let memory =
            if is_readable { MemoryMeasure::ProportionalOfTree } else { MemoryMeasure::ResidentOfTree };
        Self::new(role, id, memory)
    }

    /// A process without its descendants.
    pub(super) fn alone(role: Role, id: u32) -> Self {
        Self::new(role, id, MemoryMeasure::Resident)
    }

    fn new(role: Role, id: u32, memory: MemoryMeasure) -> Self {
        let (members, seen_running) = (BTreeMap::new(), BTreeSet::new());
        let mut process = Self { role, id, members, at: instant(), seen_running, has_changed: false, memory };
        process.members = process.cpu_times();
        process
    }

    /// Samples this process from now on, which has started since the last sample if it is another one; `None`: an event has stopped it.
    pub(super) fn follow(&mut self, id: Option<u32>) {
        self.id = id.unwrap_or(self.id);
    }

    /// The next usage begins now.
    pub(super) fn begin(&mut self) {
        (self.members, self.at) = (self.cpu_times(), instant());
        // A helper that stops itself has done so by now.
        self.is_stopped();
    }

    /// The usage since the last sample; `None`: it has ended, or the last sample was just now.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let at = instant();
        let seconds = (at - self.at).as_secs_f64();
        // The last second of a load may have hardly begun, and a tick is a hundredth of one.
        if seconds < SECONDS_MIN {
            return None;
        }
        let members = self.cpu_times();
        if members.is_empty() {
            return None;
        }
        let before = |id: &u32| self.members.get(id).copied().unwrap_or_default();
        let used: Duration = members.iter().map(|(id, cpu)| cpu.saturating_sub(before(id))).sum();
        self.has_changed |= !self.members.keys().eq(members.keys());
        let rss_bytes = self.memory.bytes_of(&members)?;
        (self.members, self.at) = (members, at);
        self.seen_running.retain(|id| self.members.contains_key(id));
        Some(Usage { rss_bytes, cpu: used.as_secs_f64() / seconds })
    }

    /// True if it is stopped now, or a member that ran before. A helper that stops itself until it is needed, as Traffic Server's
    /// `traffic_crashlog` does, serves nothing.
    pub(super) fn is_stopped(&mut self) -> bool {
        let (stopped, running): (BTreeSet<u32>, BTreeSet<u32>) =
            self.members.keys().copied().partition(|id| proc::is_stopped(*id));
        self.seen_running.extend(running);
        stopped.iter().any(|id| *id == self.id || self.seen_running.contains(id))
    }

    pub(super) fn accounted(&self) -> AccountedProcess {
        let is_foreign = self.memory != MemoryMeasure::Resident;
        AccountedProcess { role: self.role, id: self.id, is_foreign }
    }

    /// Its members at the last sample.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.members.keys().copied().collect()
    }

    /// Limits of its figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let name = self.role.name();
        let changed = format!(
            "the processes of the {name} changed during the load: processor time of those that ended is missing"
        );
        let shared = format!(
            "memory that the processes of the {name} share counts for each: run as the user of process {} or as root",
            self.id
        );
        let is_summed = self.memory == MemoryMeasure::ResidentOfTree && self.members.len() > 1;
        [(self.has_changed, changed), (is_summed, shared)]
            .into_iter()
            .filter(|note| note.0)
            .map(|note| note.1)
            .collect()
    }

    fn cpu_times(&self) -> BTreeMap<u32, Duration> {
        let ids =
            if self.memory == MemoryMeasure::Resident { vec![self.id] } else { proc::process_tree(self.id) };
        ids.into_iter().filter_map(|id| Some((id, proc::cpu_time(id)?))).collect()
    }
}

impl RemoteProcess {
    /// `None`: it is on this machine.
    pub(super) fn of(role: Role, server: Arc<dyn StartedServer>) -> Option<Self> {
        server.process().is_none().then(|| Self { role, last: server.reading(), server })
    }

    /// The next usage begins now.
    pub(super) fn begin(&mut self) {
        self.last = self.server.reading().or(self.last);
    }

    /// The usage since the last reading; `None`: it does not answer, or the last reading was just now.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let (now, last) = (self.server.reading()?, self.last);
        let Some(last) = last else {
            self.last = Some(now);
            return None;
        };
        let seconds = now.at.saturating_sub(last.at).as_secs_f64();
        if seconds < SECONDS_MIN {
            return None;
        }
        self.last = Some(now);
        let cpu = now.cpu.saturating_sub(last.cpu).as_secs_f64() / seconds;
        Some(Usage { rss_bytes: now.rss_bytes, cpu })
    }
}

impl MemoryMeasure {
    /// `None`: it is known of no member.
    fn bytes_of(self, members: &BTreeMap<u32, Duration>) -> Option<u64> {
        let bytes_of = match self {
            Self::ProportionalOfTree => proc::proportional_bytes,
            Self::Resident | Self::ResidentOfTree => proc::resident_bytes,
        };
        // A member that has just ended has no memory.
        members.keys().filter_map(|id| bytes_of(*id)).reduce(|sum, bytes| sum + bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// A shell with two children: one stops itself at once, the other sleeps.
    fn server_with_a_helper() -> (Child, SampledProcess, [u32; 2]) {
        let script = "sh -c 'kill -STOP $$' & sleep 60 & wait";
        let server = Command::new("sh").args(["-c", script]).spawn().expect("it starts");
        let mut children = Vec::new();
        while children.len() != 2 || !proc::is_stopped(children[0]) {
            std::thread::yield_now();
            children = proc::process_tree(server.id());
            children.retain(|id| *id != server.id());
            children.sort_by_key(|id| !proc::is_stopped(*id));
        }
        let process = SampledProcess::tree(Role::Proxy, server.id());
        (server, process, [children[0], children[1]])
    }

    #[test]
    fn helper_that_waits_stopped_is_no_disturbance_and_a_stopped_worker_is() {
        let (mut server, mut process, [helper, worker]) = server_with_a_helper();
        process.begin();
        assert!(!process.is_stopped(), "the helper was never seen running");
        let send = |id: u32, signal| {
            let id = Pid::from_raw(i32::try_from(id).expect("an id")).expect("an id");
            kill_process(id, signal).expect("it runs");
        };
        send(worker, Signal::STOP);
        while !proc::is_stopped(worker) {
            std::thread::yield_now();
        }
        assert!(process.is_stopped());
        send(worker, Signal::CONT);
        for id in [helper, worker, server.id()] {
            send(id, Signal::KILL);
        }
        server.wait().expect("it ends");
    }
}
