//! How a source that comes back is given its loads again: a round of probes, then a bound that grows with its answers. Pure.

use std::collections::VecDeque;

use stockade_model::time::Time;

use super::{
    circuit::{Breaker, LoadOutcome},
    evidence::LoadIdentity,
};

/// Bounds the loads in flight by what the source has answered: slow start, as of a connection of TCP (RFC 5681, 3.1).
#[derive(Debug)]
pub(super) struct AdmissionRamp {
    pub(super) until: Time,
    pub(super) in_flight: u32,
    in_flight_max: u32,
}

impl AdmissionRamp {
    pub(super) fn new(until: Time, in_flight_max: u32) -> Self {
        Self { until, in_flight: 0, in_flight_max }
    }

    pub(super) fn has_room(&self, now: Time) -> bool {
        self.in_flight < self.in_flight_max || now >= self.until
    }

    pub(super) fn end(&mut self, outcome: LoadOutcome) {
        // Loads of before the ramp's end are all counted; none ends twice.
        self.in_flight = self.in_flight.saturating_sub(1);
        match outcome {
            LoadOutcome::Answered => self.in_flight_max = self.in_flight_max.saturating_add(1),
            LoadOutcome::Failed | LoadOutcome::TimedOut => {
                self.in_flight_max = (self.in_flight_max / 2).max(1);
            }
            LoadOutcome::NotRun => {}
        }
    }
}

/// The probes since it was last open.
#[derive(Debug)]
pub(super) struct ProbeRound {
    pub(super) in_flight: Vec<LoadIdentity>,
    pub(super) answered: u32,
    /// Failures in the current period of `open_for`.
    failed: u32,
    period_ends: Time,
}

impl ProbeRound {
    /// Counts a failure. True if there are more in a period of `open_for` than probes at once.
    pub(super) fn add_failure(&mut self, now: Time, config: &Breaker) -> bool {
        if now >= self.period_ends {
            (self.failed, self.period_ends) = (0, now + config.open_for);
        }
        self.failed += 1;
        self.failed > config.probes
    }

    /// True if a load may be a probe: neither one slow value nor one client takes the place of all.
    pub(super) fn has_room(&self, identity: LoadIdentity, config: &Breaker) -> bool {
        let of_client = |probe: &&LoadIdentity| identity.client.is_some() && probe.client == identity.client;
        let of_client = self.in_flight.iter().filter(of_client).count();
        self.in_flight.len() < config.probes as usize
            && of_client < (config.probes as usize - 1).max(1)
            && !self.in_flight.iter().any(|probe| probe.key == identity.key)
    }
}

impl Default for ProbeRound {
    fn default() -> Self {
        Self { in_flight: Vec::new(), answered: 0, failed: 0, period_ends: Time::ZERO }
    }
}

/// Keys whose probes have failed, each with the time of its next one.
#[derive(Debug, Default)]
pub(super) struct FailedProbes(VecDeque<(u64, Time)>);

impl FailedProbes {
    /// The oldest is forgotten for another.
    const KEYS_MAX: usize = 32;

    pub(super) fn may_try(&self, key: u64, now: Time) -> bool {
        self.0.iter().all(|(failed, next)| *failed != key || now >= *next)
    }

    /// True if it is the first failure of this key.
    pub(super) fn add(&mut self, key: u64, next: Time) -> bool {
        let known = self.0.iter().position(|(failed, _)| *failed == key);
        if let Some(at) = known {
            self.0.remove(at);
        } else if self.0.len() == Self::KEYS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((key, next));
        known.is_none()
    }
}
