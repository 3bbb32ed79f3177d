//! The faults, when they start, and which incidents they excuse. Pure.

use std::time::Duration;

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;

use super::{incident::IncidentKind, traffic::Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    ReloadBySignal,
    ReloadByAdmin,
    PurgeUrl,
    PurgeTag,
    PurgePrefix,
    PurgeAll,
    OriginKilled,
    OriginStopped,
    Roll,
    DescriptorsFull,
    LogDiskFull,
    ClockForward,
    ClockBack,
}

/// The faults of a cycle. Those that pass at once occur more than once.
const CYCLE: [Fault; 16] = [
    Fault::ReloadBySignal,
    Fault::ReloadByAdmin,
    Fault::PurgeUrl,
    Fault::PurgeUrl,
    Fault::PurgeTag,
    Fault::PurgePrefix,
    Fault::PurgeAll,
    Fault::OriginKilled,
    Fault::OriginStopped,
    Fault::Roll,
    Fault::Roll,
    Fault::ReloadBySignal,
    Fault::DescriptorsFull,
    Fault::LogDiskFull,
    Fault::ClockForward,
    Fault::ClockBack,
];
/// A quarter of an hour, so that the quarters that are compared have the same faults.
const CYCLE_DURATION: Duration = Duration::from_mins(15);

impl Fault {
    pub const ALL: [Self; 13] = [
        Self::ReloadBySignal,
        Self::ReloadByAdmin,
        Self::PurgeUrl,
        Self::PurgeTag,
        Self::PurgePrefix,
        Self::PurgeAll,
        Self::OriginKilled,
        Self::OriginStopped,
        Self::Roll,
        Self::DescriptorsFull,
        Self::LogDiskFull,
        Self::ClockForward,
        Self::ClockBack,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReloadBySignal => "reload by SIGHUP",
            Self::ReloadByAdmin => "reload by POST /reload",
            Self::PurgeUrl => "purge of a URL",
            Self::PurgeTag => "purge of a tag",
            Self::PurgePrefix => "purge of a prefix",
            Self::PurgeAll => "purge of everything",
            Self::OriginKilled => "origin killed and restarted",
            Self::OriginStopped => "origin stopped by SIGSTOP",
            Self::Roll => "SIGTERM roll",
            Self::DescriptorsFull => "descriptors full",
            Self::LogDiskFull => "disk of the log full",
            Self::ClockForward => "clock an hour forward and back",
            Self::ClockBack => "clock an hour back and forward",
        }
    }

    /// How long it lasts in a schedule with this much time for each fault.
    #[must_use]
    pub fn duration(self, slot: Duration) -> Duration {
        let seconds = match self {
            // Longer than the deadline of loads (10 s).
            Self::OriginStopped => 12,
            Self::DescriptorsFull => 15,
            Self::OriginKilled | Self::LogDiskFull | Self::ClockForward | Self::ClockBack => 20,
            _ => 0,
        };
        Duration::from_secs(seconds).min(slot.mul_f64(0.8))
    }

    /// How long after its end it excuses incidents. The breaker is open for 5 s, then admits probes, and admits more and
    /// more loads for 10 s after those.
    #[must_use]
    pub fn recovery(self) -> Duration {
        Duration::from_secs(match self {
            Self::OriginKilled | Self::OriginStopped => 30,
            Self::DescriptorsFull => 10,
            _ => 0,
        })
    }

    /// Whether it explains an incident on this proxy. The rest of the system has to work as ever.
    #[must_use]
    pub fn excuses(self, kind: IncidentKind, role: Role) -> bool {
        use IncidentKind::{Closed, Cut, Hang, Refused, Status};
        match self {
            Self::OriginKilled | Self::OriginStopped => matches!(kind, Status(502..=504) | Cut),
            // Idle connections are closed, and one may be about to carry a request.
            Self::Roll => role == Role::Rolled && kind == Closed,
            Self::DescriptorsFull => {
                role == Role::Steady && matches!(kind, Closed | Cut | Hang | Refused | Status(502..=504))
            }
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Since the start of the traffic.
    pub at: Duration,
    pub fault: Fault,
    /// Until the next one.
    pub slot: Duration,
}

/// The faults of a run: whole cycles, each in an order of its own. Short runs have one cycle, which is as long as they are.
#[must_use]
pub fn schedule(seed: u64, duration: Duration) -> Vec<Scheduled> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let cycle = duration.min(CYCLE_DURATION);
    let count = u32::try_from(CYCLE.len()).unwrap_or(u32::MAX);
    // The last slot stays free: the run ends recovered.
    let slot = cycle / (count + 1);
    let mut all = Vec::new();
    let mut start = Duration::ZERO;
    while start + cycle <= duration {
        let mut faults = CYCLE;
        faults.shuffle(&mut random);
        all.extend(faults.iter().zip(0..).map(|(fault, nth): (_, u32)| Scheduled {
            at: start + slot.mul_f64(0.5) + slot * nth,
            fault: *fault,
            slot,
        }));
        start += cycle;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hours_have_eight_cycles_with_every_fault() {
        let all = schedule(1, Duration::from_hours(2));
        assert_eq!(all.len(), 8 * CYCLE.len());
        for cycle in all.chunks(CYCLE.len()) {
            assert!(Fault::ALL.iter().all(|fault| cycle.iter().any(|one| one.fault == *fault)));
        }
        assert!(all.is_sorted_by_key(|one| one.at));
        assert_ne!(all[..CYCLE.len()].iter().map(|one| one.fault).collect::<Vec<_>>(), CYCLE);
    }

    #[test]
    fn a_fault_ends_before_the_next_one_starts() {
        for minutes in [1, 2, 20, 120] {
            let duration = Duration::from_mins(minutes);
            let all = schedule(1, duration);
            assert!(!all.is_empty());
            for (one, at) in all.iter().zip(all.iter().skip(1).map(|next| next.at).chain([duration])) {
                assert!(one.at + one.fault.duration(one.slot) < at, "{one:?}");
            }
        }
    }

    #[test]
    fn no_fault_excuses_a_wrong_or_outdated_body() {
        for fault in Fault::ALL {
            for role in Role::ALL {
                for kind in [IncidentKind::WrongBody, IncidentKind::TooStale, IncidentKind::Purged] {
                    assert!(!fault.excuses(kind, role));
                }
            }
        }
    }
}
