//! What else took processor time during a load: other machines, a quota, other processes, a stop.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use stockade_model::proc::{self, CpuTicks};
use stockade_record::record::{Disturbance, Role};

use stockade_record::clock::instant;

/// The least share of stolen or throttled time that counts.
const TAKEN_MIN: f64 = 0.05;
/// The least share of the machine that other processes have to use.
const OTHERS_MIN: f64 = 0.25;
/// The least share of the second in which threads of the run have to wait meanwhile.
const WAIT_MIN: f64 = 0.01;

/// The readings at the end of the last second.
struct Readings {
    at: Instant,
    ticks: Option<CpuTicks>,
    throttled: Option<Duration>,
    run_delay: Option<Duration>,
}

/// Compares the readings of one second with those of the last.
pub(super) struct DisturbanceMonitor {
    last: Readings,
    /// Seconds and what disturbed them.
    disturbed: Vec<(u64, Disturbance)>,
    /// True if every process of the run is known, so that all others do not belong to it.
    knows_processes: bool,
}

impl Readings {
    fn now(processes: &[(Role, Vec<u32>)]) -> Self {
        let all = processes.iter().flat_map(|(_, ids)| ids);
        let run_delay = all.filter_map(|id| proc::run_delay(*id)).reduce(|sum, delay| sum + delay);
        Self { at: instant(), ticks: CpuTicks::now(), throttled: proc::throttled_time(), run_delay }
    }
}

impl DisturbanceMonitor {
    pub(super) fn new(processes: &[(Role, Vec<u32>)], knows_processes: bool) -> Self {
        Self { last: Readings::now(processes), disturbed: Vec::new(), knows_processes }
    }

    /// The disturbance of the second that has just ended. `own_cores`: used by the processes of the run, if known; `stopped`: one of
    /// them that is stopped now.
    pub(super) fn second(
        &mut self,
        second: u64,
        processes: &[(Role, Vec<u32>)],
        own_cores: Option<f64>,
        stopped: Option<Role>,
    ) -> Option<Disturbance> {
        let now = Readings::now(processes);
        let own_cores = own_cores.filter(|_| self.knows_processes);
        let disturbance = disturbance(&self.last, &now, own_cores, stopped);
        // Without a process on this machine the measurement is on others.
        let disturbance = disturbance.filter(|_| !processes.is_empty());
        self.last = now;
        self.disturbed.extend(disturbance.map(|disturbance| (second, disturbance)));
        disturbance
    }

    /// The disturbed seconds in words; `None`: nothing disturbed the run.
    pub(super) fn in_words(&self) -> Option<String> {
        let most = |of: fn(&Disturbance) -> f64| {
            self.disturbed.iter().map(|(_, of_one)| of(of_one)).fold(0.0, f64::max)
        };
        let percent = |share: f64| (share * 100.0).round();
        let mut causes = Vec::new();
        for (share, cause) in [
            (most(|of| of.stolen), "of the machine's processor time went to other machines (steal)"),
            (most(|of| of.throttled), "of a second the run had used up its quota (throttled)"),
            (most(|of| of.others), "of the machine was used by other processes"),
        ] {
            if share > 0.0 {
                causes.push(format!("{} % {cause}", percent(share)));
            }
        }
        let stopped = self.disturbed.iter().find_map(|(_, of)| of.stopped);
        causes.extend(stopped.map(|role| format!("the {} was stopped", role.name())));
        let mut text = match self.disturbed.len() {
            0 => return None,
            1 => "1 second was disturbed".to_owned(),
            seconds => format!("{seconds} seconds were disturbed"),
        };
        let first = self.disturbed.first()?.0;
        let _ = write!(text, ", the first at {first}s: {}", causes.join(", "));
        Some(text)
    }
}

/// `None`: less than the times show.
fn disturbance(
    before: &Readings,
    now: &Readings,
    own_cores: Option<f64>,
    stopped: Option<Role>,
) -> Option<Disturbance> {
    let seconds = (now.at - before.at).as_secs_f64().max(f64::EPSILON);
    let since = |before: Option<Duration>, now: Option<Duration>| {
        before.zip(now).map_or(0.0, |(before, now)| now.saturating_sub(before).as_secs_f64() / seconds)
    };
    let ticks = before.ticks.zip(now.ticks);
    let stolen = ticks.and_then(|(before, now)| now.stolen_share_since(before)).unwrap_or_default();
    let busy = ticks.and_then(|(before, now)| now.busy_share_since(before)).unwrap_or_default();
    let cores = ticks.map_or(1.0, |(before, now)| now.cores_since(before, seconds)).max(1.0);
    let others = own_cores.map_or(0.0, |own_cores| busy - own_cores / cores);
    let waited = since(before.run_delay, now.run_delay);
    let at_least = |share: f64, least: f64| if share >= least { share } else { 0.0 };
    let disturbance = Disturbance {
        stolen: at_least(stolen, TAKEN_MIN),
        throttled: at_least(since(before.throttled, now.throttled), TAKEN_MIN),
        others: if waited >= WAIT_MIN { at_least(others, OTHERS_MIN) } else { 0.0 },
        stopped,
    };
    (disturbance != Disturbance::default()).then_some(disturbance)
}
