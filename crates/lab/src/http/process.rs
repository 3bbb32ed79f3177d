//! Memory and processor time of the processes of a measurement.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use stockade_model::record::{Role, Usage};
use stockade_net::proc;

/// Processor time over less than this is too coarse to report.
const SECONDS_MIN: f64 = 0.5;

/// A process with its descendants, and its last sample: a server may be a master process with workers.
pub(super) struct SampledProcess {
    pub(super) role: Role,
    id: u32,
    /// Processor time of each member at the last sample.
    members: BTreeMap<u32, Duration>,
    at: Instant,
    /// True if members have come or gone since the first sample.
    has_changed: bool,
    /// Without descendants: this process has the others as children.
    is_alone: bool,
}

impl SampledProcess {
    /// A process with its descendants.
    pub(super) fn tree(role: Role, id: u32) -> Self {
        Self::new(role, id, false)
    }

    /// A process without its descendants.
    pub(super) fn alone(role: Role, id: u32) -> Self {
        Self::new(role, id, true)
    }

    fn new(role: Role, id: u32, is_alone: bool) -> Self {
        let mut process =
            Self { role, id, members: BTreeMap::new(), at: now(), has_changed: false, is_alone };
        process.members = process.cpu_times();
        process
    }

    /// The usage since the last sample; `None`: it has ended, or the last sample was just now.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let at = now();
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
        let rss_bytes = memory_bytes(&members)?;
        (self.members, self.at) = (members, at);
        Some(Usage { rss_bytes, cpu: used.as_secs_f64() / seconds })
    }

    /// A limit of its figures, if there is one.
    pub(super) fn note(&self) -> Option<String> {
        self.has_changed.then(|| {
            format!(
                "the processes of {} (process {}) changed during the load: processor time of those that ended is missing",
                self.role.name(),
                self.id
            )
        })
    }

    fn cpu_times(&self) -> BTreeMap<u32, Duration> {
        let ids = if self.is_alone { vec![self.id] } else { proc::process_tree(self.id) };
        ids.into_iter().filter_map(|id| Some((id, proc::cpu_time(id)?))).collect()
    }
}

/// The memory of all members. Those that share pages, such as a cache in shared memory, count them once.
fn memory_bytes(members: &BTreeMap<u32, Duration>) -> Option<u64> {
    let sum = |bytes_of: fn(u32) -> Option<u64>| members.keys().map(|id| bytes_of(*id)).sum::<Option<u64>>();
    match members.len() {
        1 => sum(proc::resident_bytes),
        _ => sum(proc::proportional_bytes).or_else(|| sum(proc::resident_bytes)),
    }
}

#[expect(clippy::disallowed_methods, reason = "processes use real time")]
fn now() -> Instant {
    Instant::now()
}
