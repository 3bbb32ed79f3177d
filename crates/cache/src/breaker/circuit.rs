//! The breaker's state machine. Pure: time is an argument.

use std::time::Duration;

use stockade_model::time::Time;

use super::{
    evidence::{Evidence, LoadIdentity, ResultWindow},
    recovery::{AdmissionRamp, FailedProbes, ProbeRound},
};
use crate::error::InvalidStrategy;
#[cfg(feature = "spec")]
use crate::spec::shown;

/// When a breaker opens, and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize))]
pub struct Breaker {
    /// It opens when this share of the last `min_calls` loads has failed, above 0 and up to 1. Half of these failures, or
    /// five if that is fewer, have to be of different keys and [clients](crate::RequestOptions::client), or as many as all
    /// these loads have: a few bad keys do not open it while others are answered.
    pub errors_rate: f64,
    /// Loads that ended longer ago are not counted.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub period: Duration,
    /// How many loads it looks at, from 1 to 10,000. A failing source receives no more loads than that, apart from those
    /// that run at the same time. If they were of a few keys or clients, it receives up to four trials, which are loads of
    /// others: their answers close the breaker.
    pub min_calls: u32,
    /// How long it stays open before it admits probes.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub open_for: Duration,
    /// How long a load waits for the next probes, or for their answers, before it is refused. Zero: it is refused at once.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub wait: Duration,
    /// How many probes it admits at once, of different keys, and not all of one client. After as many answers it closes; if one
    /// fails it opens again.
    pub probes: u32,
    /// How long it then bounds the loads in flight, so that a recovered source does not receive all loads at once: to `probes` first,
    /// and to one more after each answer. Loads beyond the bound wait for their turn. Zero: there is no bound.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub ramp: Duration,
}

impl Breaker {
    /// Opens for 5 s when half of the last 20 loads in 10 s have failed; then 3 probes, and a ramp of 10 s.
    pub const DEFAULT: Self = Self {
        errors_rate: 0.5,
        period: Duration::from_secs(10),
        min_calls: 20,
        open_for: Duration::from_secs(5),
        wait: Duration::ZERO,
        probes: 3,
        ramp: Duration::from_secs(10),
    };

    pub(crate) fn check(&self) -> Result<(), InvalidStrategy> {
        if !(self.errors_rate > 0.0 && self.errors_rate <= 1.0) {
            return Err(InvalidStrategy("`errors_rate` is a share of the loads, above 0 and up to 1"));
        }
        if !(1..=10_000).contains(&self.min_calls) {
            return Err(InvalidStrategy("the breaker's `min_calls` is from 1 to 10,000"));
        }
        if self.period.is_zero() || self.probes == 0 {
            return Err(InvalidStrategy("the breaker's `period` and `probes` have to be above 0"));
        }
        Ok(())
    }

    fn wait_until(&self, until: Time, now: Time) -> Admission {
        if self.wait.is_zero() || until - now > self.wait {
            return Admission::Refused;
        }
        Admission::Wait { until, at_most: Some(self.wait) }
    }

    /// How many independent failures open the breaker while other loads are answered: five, or half of the failures that
    /// `errors_rate` needs if that is fewer.
    pub(super) fn independent_failures(&self) -> u32 {
        const MOST: u32 = 5;
        let to_open = self.errors_rate * f64::from(self.min_calls);
        (1..MOST).find(|half| f64::from(2 * half) >= to_open).unwrap_or(MOST)
    }
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Admits all loads.
    Closed,
    /// Admits a growing number of loads at once.
    Ramp,
    /// Admits probes.
    HalfOpen,
    /// Admits no load, or only trials.
    Open,
}

#[derive(Debug)]
pub(super) struct Circuit {
    config: Breaker,
    state: CircuitState,
    /// Counts the changes of state.
    term: u64,
    /// Why it opened. Kept after trials have closed it: the suspects alone do not open it again.
    evidence: Evidence,
    trials: Trials,
    /// Keys whose probes have failed since it opened.
    failed_probes: FailedProbes,
    /// When the source last answered a load.
    answered_at: Option<Time>,
}

#[derive(Debug)]
enum CircuitState {
    Closed { window: ResultWindow, ramp: Option<AdmissionRamp> },
    Open { until: Time },
    HalfOpen { round: ProbeRound },
}

/// The result of a load that the circuit has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadOutcome {
    Answered,
    Failed,
    /// The source did not answer in the time that it had. While it answers other loads, this tells of one slow value only.
    TimedOut,
    /// It never started, or its result tells nothing about the source.
    NotRun,
}

/// The verdict of the circuit on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted(AdmittedLoad),
    /// Ask again when a load has ended, or at this time. `at_most`: how long this goes on; `None`: as long as the caller likes.
    Wait {
        until: Time,
        at_most: Option<Duration>,
    },
    Refused,
}

/// Loads of other keys and clients than those that have failed, while the circuit is open.
#[derive(Debug, Default)]
struct Trials {
    /// The term in which the circuit opened.
    since: u64,
    /// How many may start now. A failed one is not given back until the circuit closes.
    left: u32,
    answered: u32,
    failed: u32,
}

/// A load that the circuit has admitted, and that its result names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdmittedLoad {
    identity: LoadIdentity,
    at: Time,
    /// The term in which it was admitted.
    term: u64,
    is_trial: bool,
}

impl Circuit {
    pub(super) fn new(config: Breaker) -> Self {
        Self {
            config,
            state: CircuitState::Closed { window: ResultWindow::default(), ramp: None },
            term: 0,
            evidence: Evidence::default(),
            trials: Trials::default(),
            failed_probes: FailedProbes::default(),
            answered_at: None,
        }
    }

    /// The time from which all loads are admitted, unless the state changes.
    pub(super) fn all_admitted_from(&self) -> Time {
        match &self.state {
            CircuitState::Closed { ramp: None, .. } => Time::ZERO,
            CircuitState::Closed { ramp: Some(ramp), .. } => ramp.until,
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => Time::NEVER,
        }
    }

    pub(super) fn state(&self, now: Time) -> BreakerState {
        match &self.state {
            CircuitState::Closed { ramp: Some(ramp), .. } if now < ramp.until => BreakerState::Ramp,
            CircuitState::Closed { .. } => BreakerState::Closed,
            CircuitState::Open { until } if now < *until => BreakerState::Open,
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// True if a load might be admitted now.
    pub(super) fn may_admit(&self, now: Time, identity: LoadIdentity) -> bool {
        match &self.state {
            CircuitState::Closed { ramp, .. } => ramp.as_ref().is_none_or(|ramp| ramp.has_room(now)),
            CircuitState::Open { until } => {
                now >= *until && self.failed_probes.may_try(identity.key, now) || self.is_trial(identity)
            }
            CircuitState::HalfOpen { round } => {
                round.has_room(identity, &self.config) && self.failed_probes.may_try(identity.key, now)
                    || self.is_trial(identity)
            }
        }
    }

    fn is_trial(&self, identity: LoadIdentity) -> bool {
        self.trials.left > 0 && !self.evidence.is_suspect(identity, &self.config)
    }

    pub(super) fn admit(&mut self, now: Time, identity: LoadIdentity) -> Admission {
        if let CircuitState::Open { until } = self.state
            && now >= until
        {
            self.enter(CircuitState::HalfOpen { round: ProbeRound::default() });
        }
        let is_trial = !matches!(self.state, CircuitState::Closed { .. }) && self.is_trial(identity);
        let admitted = AdmittedLoad { identity, at: now, term: self.term, is_trial };
        match &mut self.state {
            CircuitState::Closed { ramp, .. } => {
                if ramp.as_ref().is_some_and(|ramp| now >= ramp.until) {
                    *ramp = None;
                }
                match ramp {
                    Some(ramp) if !ramp.has_room(now) => {
                        return Admission::Wait { until: ramp.until, at_most: None };
                    }
                    Some(ramp) => ramp.in_flight += 1,
                    None => {}
                }
            }
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } if is_trial => self.trials.left -= 1,
            CircuitState::HalfOpen { round }
                if round.has_room(identity, &self.config)
                    && self.failed_probes.may_try(identity.key, now) =>
            {
                round.in_flight.push(identity);
            }
            CircuitState::Open { until } => return self.config.wait_until(*until, now),
            CircuitState::HalfOpen { .. } if self.failed_probes.may_try(identity.key, now) => {
                return self.config.wait_until(now + self.config.wait, now);
            }
            CircuitState::HalfOpen { .. } => return Admission::Refused,
        }
        Admission::Admitted(admitted)
    }

    /// Records the result of an admitted load.
    pub(super) fn record_result(&mut self, load: AdmittedLoad, now: Time, outcome: LoadOutcome) {
        let outcome = match outcome {
            // The source has answered another load since this one started.
            LoadOutcome::TimedOut if self.answered_at.is_some_and(|answered| answered > load.at) => {
                LoadOutcome::NotRun
            }
            LoadOutcome::TimedOut => LoadOutcome::Failed,
            outcome => outcome,
        };
        if outcome == LoadOutcome::Answered {
            self.answered_at = self.answered_at.max(Some(now));
        }
        if load.is_trial {
            return self.record_trial(load, now, outcome);
        }
        if load.term != self.term {
            return;
        }
        match &mut self.state {
            CircuitState::Closed { ramp, .. } => {
                if let Some(ramp) = ramp {
                    ramp.end(outcome);
                }
                if outcome != LoadOutcome::NotRun {
                    self.record_closed(load.identity, now, outcome == LoadOutcome::Answered);
                }
            }
            CircuitState::HalfOpen { .. } => self.record_probe(load.identity, now, outcome),
            CircuitState::Open { .. } => {}
        }
    }

    fn record_closed(&mut self, identity: LoadIdentity, now: Time, is_answered: bool) {
        let CircuitState::Closed { window, .. } = &mut self.state else { return };
        if !self.evidence.is_empty() {
            if !window.has_answer(now, &self.config) {
                self.evidence = Evidence::default();
            } else if self.evidence.is_suspect(identity, &self.config) {
                return;
            }
        }
        window.push(identity, now, is_answered, &self.config);
        if window.is_source_failing(&self.config) {
            let (evidence, independent) = window.evidence(&self.config);
            let left = self.config.independent_failures() - independent;
            self.evidence = evidence;
            self.failed_probes = FailedProbes::default();
            self.open(now);
            self.trials = Trials { since: self.term, left, answered: 0, failed: 0 };
        }
    }

    fn record_probe(&mut self, identity: LoadIdentity, now: Time, outcome: LoadOutcome) {
        let CircuitState::HalfOpen { round } = &mut self.state else { return };
        if let Some(at) = round.in_flight.iter().position(|probe| *probe == identity) {
            round.in_flight.swap_remove(at);
        }
        match outcome {
            LoadOutcome::Answered => {
                round.answered += 1;
                if round.answered >= self.config.probes {
                    let ramp = self.new_ramp(now);
                    self.evidence = Evidence::default();
                    self.failed_probes = FailedProbes::default();
                    self.enter(CircuitState::Closed { window: ResultWindow::default(), ramp });
                }
            }
            LoadOutcome::Failed | LoadOutcome::TimedOut => {
                let are_many = round.add_failure(now, &self.config);
                // A key that fails again proves nothing new.
                let is_new = self.failed_probes.add(identity.key, now + self.config.open_for);
                if is_new || are_many {
                    self.open(now);
                }
            }
            LoadOutcome::NotRun => {}
        }
    }

    fn record_trial(&mut self, load: AdmittedLoad, now: Time, outcome: LoadOutcome) {
        let is_closed = matches!(self.state, CircuitState::Closed { .. });
        if is_closed || load.term < self.trials.since {
            return;
        }
        if outcome == LoadOutcome::Failed {
            self.trials.failed += 1;
            return self.evidence.add(load.identity);
        }
        self.trials.left += 1;
        self.trials.answered += u32::from(outcome == LoadOutcome::Answered);
        if self.trials.answered >= self.config.probes {
            let mut window = ResultWindow::default();
            window.push(load.identity, now, true, &self.config);
            // Without a ramp if no trial has failed: then the source answered, and only the suspects were refused.
            let ramp = if self.trials.failed == 0 { None } else { self.new_ramp(now) };
            self.enter(CircuitState::Closed { window, ramp });
        }
    }

    /// A ramp that begins now; `None`: the configuration has none.
    fn new_ramp(&self, now: Time) -> Option<AdmissionRamp> {
        let Breaker { ramp, probes, .. } = self.config;
        (!ramp.is_zero()).then(|| AdmissionRamp::new(now + ramp, probes))
    }

    fn open(&mut self, now: Time) {
        self.enter(CircuitState::Open { until: now + self.config.open_for });
    }

    fn enter(&mut self, state: CircuitState) {
        self.state = state;
        self.term += 1;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const CONFIG: Breaker = Breaker {
        errors_rate: 0.5,
        period: Duration::from_secs(10),
        min_calls: 10,
        open_for: Duration::from_secs(5),
        wait: Duration::ZERO,
        probes: 3,
        ramp: Duration::from_secs(10),
    };

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn is_closed(circuit: &Circuit) -> bool {
        circuit.all_admitted_from() == Time::ZERO
    }

    const ONE: LoadIdentity = LoadIdentity { key: 1, client: None };

    fn identity(client: u64, key: u64) -> LoadIdentity {
        LoadIdentity { key, client: NonZeroU64::new(client) }
    }

    /// Runs a load of always the same key. Returns true if it was admitted.
    fn load(circuit: &mut Circuit, ms: u64, is_answered: bool) -> bool {
        load_of(circuit, ONE, ms, is_answered)
    }

    fn load_of(circuit: &mut Circuit, identity: LoadIdentity, ms: u64, is_answered: bool) -> bool {
        let admitted = admit(circuit, ms, identity);
        if let Some(admitted) = admitted {
            circuit.record_result(admitted, at(ms), outcome(is_answered));
        }
        admitted.is_some()
    }

    fn admit(circuit: &mut Circuit, ms: u64, identity: LoadIdentity) -> Option<AdmittedLoad> {
        match circuit.admit(at(ms), identity) {
            Admission::Admitted(admitted) => Some(admitted),
            Admission::Wait { .. } | Admission::Refused => None,
        }
    }

    fn outcome(is_answered: bool) -> LoadOutcome {
        if is_answered { LoadOutcome::Answered } else { LoadOutcome::Failed }
    }

    /// Of a client and a key of its own.
    fn other(number: u64) -> LoadIdentity {
        identity(1_000 + number, 1_000 + number)
    }

    /// Opened by failures of many.
    fn opened(ms: u64) -> Circuit {
        let mut circuit = Circuit::new(CONFIG);
        (0..10).for_each(|i| assert!(load_of(&mut circuit, other(900 + i), ms, false)));
        assert_eq!(circuit.state(at(ms)), BreakerState::Open);
        circuit
    }

    #[test]
    fn opens_at_errors_rate_after_min_calls() {
        let mut circuit = Circuit::new(CONFIG);
        (0..9).for_each(|_| assert!(load(&mut circuit, 0, false)));
        assert!(is_closed(&circuit), "nine say nothing");
        assert!(load(&mut circuit, 0, true));
        assert!(!is_closed(&circuit), "nine of ten have failed, and the tenth is what was missing");

        // Earlier successes do not count.
        let mut circuit = Circuit::new(CONFIG);
        (0..1_000).for_each(|_| assert!(load(&mut circuit, 0, true)));
        (0..4).for_each(|_| assert!(load(&mut circuit, 0, false)));
        assert!(is_closed(&circuit), "four of the last ten");
        assert!(load(&mut circuit, 0, false));
        assert!(!load(&mut circuit, 0, true), "five of them");

        for percent in 1..=100 {
            let config = Breaker { errors_rate: f64::from(percent) / 100.0, min_calls: 100, ..CONFIG };
            let mut circuit = Circuit::new(config);
            (percent..100).for_each(|_| assert!(load(&mut circuit, 0, true)));
            (0..percent).for_each(|_| assert!(load(&mut circuit, 0, false)));
            assert!(!is_closed(&circuit), "{percent} of 100");
        }
    }

    #[test]
    fn forgets_results_older_than_the_period() {
        let mut circuit = Circuit::new(CONFIG);
        (0..9).for_each(|_| assert!(load(&mut circuit, 500, false)));
        assert!(load(&mut circuit, 10_500, false));
        assert!(is_closed(&circuit), "one in the last period");
        (0..8).for_each(|_| assert!(load(&mut circuit, 20_499, false)));
        assert!(is_closed(&circuit));
        assert!(load(&mut circuit, 20_499, false), "the tenth in a period");
        assert_eq!(circuit.state(at(20_499)), BreakerState::Open);
    }

    #[test]
    fn open_admits_nothing_then_probes() {
        let mut circuit = opened(0);
        assert!(!load(&mut circuit, 4_999, true));
        assert!(circuit.may_admit(at(5_000), ONE) && !circuit.may_admit(at(4_999), ONE));
        let probes: Vec<_> = (0..100).filter_map(|i| admit(&mut circuit, 5_000, other(i))).collect();
        assert_eq!(probes.len(), 3);
        assert!(!circuit.may_admit(at(5_000), ONE));
        assert_eq!(circuit.state(at(5_000)), BreakerState::HalfOpen);

        circuit.record_result(probes[0], at(5_100), LoadOutcome::Answered);
        circuit.record_result(probes[1], at(5_100), LoadOutcome::Failed);
        assert_eq!(circuit.state(at(5_100)), BreakerState::Open, "one failed");
        circuit.record_result(probes[2], at(5_200), LoadOutcome::Answered);
        assert_eq!(circuit.state(at(10_099)), BreakerState::Open, "what comes late says nothing");
        let probes: Vec<_> = (10..13).filter_map(|i| admit(&mut circuit, 10_100, other(i))).collect();
        for term in [0, 2] {
            let late = AdmittedLoad { identity: ONE, at: at(0), term, is_trial: false };
            circuit.record_result(late, at(10_200), LoadOutcome::Failed);
        }
        assert_eq!(circuit.state(at(10_200)), BreakerState::HalfOpen, "nor does what began before it opened");
        circuit.record_result(probes[0], at(10_200), LoadOutcome::Failed);
        assert_eq!(circuit.state(at(10_200)), BreakerState::Open);
    }

    #[test]
    fn probe_that_never_began_makes_way_for_another() {
        let mut circuit = opened(0);
        let probes: Vec<_> = (0..3).filter_map(|i| admit(&mut circuit, 5_000, other(i))).collect();
        circuit.record_result(probes[0], at(5_000), LoadOutcome::NotRun);
        assert!(admit(&mut circuit, 5_001, other(3)).is_some());
        assert!(admit(&mut circuit, 5_001, other(4)).is_none());
    }

    #[test]
    fn one_key_or_client_does_not_take_the_place_of_all_probes() {
        let mut circuit = opened(0);
        assert!(admit(&mut circuit, 5_000, identity(1, 7)).is_some());
        assert!(admit(&mut circuit, 5_000, identity(2, 7)).is_none(), "another probe of the key");
        assert!(admit(&mut circuit, 5_000, identity(1, 8)).is_some());
        assert!(admit(&mut circuit, 5_000, identity(1, 9)).is_none(), "the last place, by the same client");
        assert!(admit(&mut circuit, 5_000, identity(2, 9)).is_some());
        // Without names of clients there is no such bound.
        let mut circuit = opened(0);
        assert_eq!((0..9).filter_map(|key| admit(&mut circuit, 5_000, identity(0, key))).count(), 3);
    }

    #[test]
    fn slow_value_does_not_keep_the_circuit_from_closing() {
        for answers_at_last in [false, true] {
            let mut circuit = opened(0);
            let slow = admit(&mut circuit, 5_000, ONE).unwrap();
            assert!((5_100..6_000).all(|ms| !load(&mut circuit, ms, true)), "one at a time");
            assert!((0..3).all(|i| load_of(&mut circuit, other(i), 6_000 + i, true)));
            assert_eq!(circuit.state(at(6_100)), BreakerState::Ramp);
            let last = if answers_at_last { LoadOutcome::Answered } else { LoadOutcome::TimedOut };
            circuit.record_result(slow, at(35_000), last);
            assert!(is_closed(&circuit) || circuit.state(at(35_000)) == BreakerState::Closed);
        }
        // A value that always fails, asked for three times a second, and others once a second.
        let mut circuit = opened(0);
        let bad = (0..60).filter(|i| load(&mut circuit, 5_000 + 333 * i, false)).count();
        assert_eq!(bad, 4, "once in 5 s, also if there is nothing else");
        for second in 0..4 {
            let _ = load(&mut circuit, 30_000 + 1_000 * second, false);
            let _ = load_of(&mut circuit, other(second), 30_300 + 1_000 * second, true);
        }
        assert_ne!(circuit.state(at(34_000)), BreakerState::HalfOpen);
        assert_ne!(circuit.state(at(34_000)), BreakerState::Open);
    }

    #[test]
    fn timeouts_count_only_while_the_source_answers_nothing() {
        // Forty reports of a minute, and a page of 50 ms each second.
        let mut circuit = Circuit::new(CONFIG);
        let reports: Vec<_> = (0..40).map(|i| admit(&mut circuit, 0, other(i)).unwrap()).collect();
        assert!((0..10).all(|second| load(&mut circuit, 1_000 * second + 50, true)));
        reports.iter().for_each(|report| circuit.record_result(*report, at(10_000), LoadOutcome::TimedOut));
        assert!(is_closed(&circuit));
        // A source that hangs: it has answered before.
        let loads: Vec<_> = (0..10).map(|i| admit(&mut circuit, 10_100, other(i)).unwrap()).collect();
        loads.iter().for_each(|load| circuit.record_result(*load, at(20_100), LoadOutcome::TimedOut));
        assert_eq!(circuit.state(at(20_100)), BreakerState::Open);
    }

    #[test]
    fn after_the_probes_each_answer_admits_one_load_more() {
        let mut circuit = opened(0);
        assert!((0..3).all(|i| load_of(&mut circuit, other(i), 5_000, true)));
        assert_eq!(circuit.state(at(5_001)), BreakerState::Ramp);
        assert!(!is_closed(&circuit));
        // The source takes 100 ms, and there are always loads that wait.
        let mut at_once = Vec::new();
        for round in 0..5 {
            let ms = 5_001 + 100 * round;
            let loads: Vec<_> = std::iter::from_fn(|| admit(&mut circuit, ms, ONE)).collect();
            assert_eq!(circuit.admit(at(ms), ONE), Admission::Wait { until: at(15_000), at_most: None });
            assert!(!circuit.may_admit(at(ms), ONE));
            at_once.push(loads.len());
            loads.iter().for_each(|load| circuit.record_result(*load, at(ms + 100), LoadOutcome::Answered));
        }
        assert_eq!(at_once, [3, 6, 12, 24, 48]);
        // A failure halves the bound, and one that never ran only gives its place back.
        let loads: Vec<_> = std::iter::from_fn(|| admit(&mut circuit, 6_000, ONE)).collect();
        circuit.record_result(loads[0], at(6_000), LoadOutcome::NotRun);
        assert!(admit(&mut circuit, 6_000, ONE).is_some());
        circuit.record_result(loads[1], at(6_000), LoadOutcome::Failed);
        assert!(admit(&mut circuit, 6_000, ONE).is_none());
        // After its end all pass.
        assert!((0..200).all(|_| admit(&mut circuit, 15_000, ONE).is_some()));
        assert!(is_closed(&circuit));
    }

    #[test]
    fn load_waits_for_the_next_probes_if_they_are_near() {
        let wait = Duration::from_secs(1);
        let mut circuit = opened(0);
        circuit.config.wait = wait;
        assert_eq!(circuit.admit(at(3_999), ONE), Admission::Refused);
        assert_eq!(circuit.admit(at(4_000), ONE), Admission::Wait { until: at(5_000), at_most: Some(wait) });
        let probes: Vec<_> = (0..3).filter_map(|i| admit(&mut circuit, 5_000, other(i))).collect();
        assert_eq!(circuit.admit(at(5_100), ONE), Admission::Wait { until: at(6_100), at_most: Some(wait) });
        // Of a key whose probe has failed a load does not wait.
        circuit.record_result(probes[0], at(5_200), LoadOutcome::Failed);
        assert!((10..12).all(|i| admit(&mut circuit, 10_200, other(i)).is_some()));
        assert!(load_of(&mut circuit, other(0), 10_200, false));
        assert_eq!(circuit.admit(at(10_300), other(0)), Admission::Refused);
    }

    #[test]
    fn failure_on_the_ramp_opens_again() {
        let mut circuit = opened(0);
        assert!((0..3).all(|i| load_of(&mut circuit, other(i), 5_000, true)));
        let went = (5_000..15_000).filter(|ms| load(&mut circuit, *ms, false)).count();
        assert_eq!(went, 11, "ten open it, and 5 s later so does one probe");
    }

    /// With these settings five independent failures accuse the source, as by default.
    const WIDE: Breaker = Breaker { min_calls: 20, ..CONFIG };

    fn opened_by(failures: impl Iterator<Item = LoadIdentity>) -> Circuit {
        let mut circuit = Circuit::new(WIDE);
        failures.for_each(|load| assert!(load_of(&mut circuit, load, 0, false)));
        assert_eq!(circuit.state(at(0)), BreakerState::Open);
        circuit
    }

    #[test]
    fn independent_failures_are_five_or_half_of_those_that_open() {
        let with =
            |errors_rate, min_calls| Breaker { errors_rate, min_calls, ..CONFIG }.independent_failures();
        let counts = [(0.5, 20), (0.5, 10_000), (0.5, 10), (0.5, 5), (0.5, 1), (0.1, 20), (1.0, 4)];
        assert_eq!(counts.map(|(rate, calls)| with(rate, calls)), [5, 5, 3, 2, 1, 1, 2]);
    }

    #[test]
    fn failures_of_a_few_do_not_open_while_others_are_answered() {
        type Of = fn(u64) -> LoadIdentity;
        let suspects: [(&str, Of); 5] = [
            ("one key", |_| identity(0, 1)),
            ("one key of many clients", |i| identity(i + 10, 1)),
            ("many keys of one client", |i| identity(1, i)),
            ("four keys of many clients", |i| identity(i + 10, i % 4)),
            ("a bad client and three bad keys", |i| {
                if i.is_multiple_of(2) { identity(1, i) } else { identity(i + 10, 10_000 + i % 3) }
            }),
        ];
        for (name, suspect) in suspects {
            let mut circuit = Circuit::new(WIDE);
            for i in 0..1_000 {
                let is_answered = i % 4 == 0;
                let load = if is_answered { identity(5_000 + i, 5_000 + i) } else { suspect(i) };
                assert!(load_of(&mut circuit, load, i, is_answered), "{name}: {i}");
            }
        }
        let mut circuit = Circuit::new(WIDE);
        let load =
            |i: u64| if i.is_multiple_of(6) { identity(i + 10, i + 10) } else { identity(i % 6, i % 6) };
        let admitted = (0..1_000).filter(|i| load_of(&mut circuit, load(*i), 0, i % 6 == 0)).count();
        assert_eq!(admitted, 20, "five bad keys of five clients");
    }

    #[test]
    fn source_that_fails_for_all_opens_whoever_asks() {
        let who: [fn(u64) -> LoadIdentity; 5] = [
            |_| identity(1, 1),
            |i| identity(1, i),
            |i| identity(i + 1, 1),
            |i| identity(i + 1, i),
            |i| identity(i % 2 + 1, i % 3),
        ];
        for who in who {
            // It has been well.
            let mut circuit = Circuit::new(WIDE);
            (0..100).for_each(|i| assert!(load_of(&mut circuit, who(i), 0, true)));
            let failed = (100..1_000).filter(|i| load_of(&mut circuit, who(*i), 0, false)).count();
            assert!((10..=20).contains(&failed), "{failed}");
        }
    }

    #[test]
    fn dead_source_receives_four_trials_and_then_probes() {
        // Opened by many: no trial.
        let mut circuit = opened_by((0..20).map(|i| identity(i + 1, i)));
        assert!(!(100..200).any(|i| load_of(&mut circuit, identity(i, i), 0, false)));
        // By one, or by one client: four. Also if they run at the same time.
        for client in 0..2 {
            let mut circuit = opened_by((0..20).map(|i| identity(client, i * client)));
            assert!(!load_of(&mut circuit, identity(client, 0), 0, true), "a suspect");
            let trials: Vec<_> =
                (100..200).filter_map(|i| admit(&mut circuit, 0, identity(i * client, i))).collect();
            assert_eq!(trials.len(), 4);
            trials.into_iter().for_each(|trial| circuit.record_result(trial, at(1), LoadOutcome::Failed));
            let new = |ms| identity(ms * client, ms);
            let loads = (1_000..=60_000).filter(|ms| load_of(&mut circuit, new(*ms), *ms, false)).count();
            assert_eq!(loads, 12, "one probe every five seconds");
        }
    }

    #[test]
    fn settings_have_bounds() {
        let is_valid = |config: Breaker| config.check().is_ok();
        for (errors_rate, valid) in
            [(0.0, false), (0.01, true), (1.0, true), (1.01, false), (-0.5, false), (f64::NAN, false)]
        {
            assert_eq!(is_valid(Breaker { errors_rate, ..CONFIG }), valid, "{errors_rate}");
        }
        for (min_calls, valid) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
            assert_eq!(is_valid(Breaker { min_calls, ..CONFIG }), valid, "{min_calls}");
        }
        assert!(!is_valid(Breaker { period: Duration::ZERO, ..CONFIG }));
        assert!(!is_valid(Breaker { probes: 0, ..CONFIG }));
    }

    #[test]
    fn failures_beyond_the_last_loads_do_not_count() {
        let mut circuit = Circuit::new(CONFIG);
        // Four of ten fail, again and again, and between them ten are answered.
        for round in 0..10 {
            for i in 0..20 {
                assert!(load_of(&mut circuit, other(100 * round + i), round, i >= 4), "{round}: {i}");
            }
        }
        assert!(is_closed(&circuit));
    }

    #[test]
    fn trials_close_with_a_ramp_only_after_one_has_failed() {
        for (failed, state) in [(0, BreakerState::Closed), (1, BreakerState::Ramp)] {
            let mut circuit = opened_by((0..20).map(|i| identity(1, i)));
            assert!((0..failed).all(|i| load_of(&mut circuit, identity(2 + i, 100 + i), 0, false)));
            assert!((10..13).all(|i| load_of(&mut circuit, identity(i, 100 + i), 0, true)));
            assert_eq!(circuit.state(at(0)), state, "{failed} failed");
        }
    }

    #[test]
    fn only_the_last_keys_with_failed_probes_are_known() {
        let mut failed = FailedProbes::default();
        assert!((0..32).all(|key| failed.add(key, at(5_000))));
        assert!(!failed.add(0, at(6_000)), "it is known");
        assert!(!(0..32).any(|key| failed.may_try(key, at(4_999))));
        assert!(!failed.may_try(0, at(5_999)) && failed.may_try(1, at(5_000)));
        // The key whose probe failed longest ago is forgotten for another.
        assert!(failed.add(100, at(7_000)));
        let may_try: Vec<u64> = (0..32).filter(|key| failed.may_try(*key, at(4_999))).collect();
        assert_eq!(may_try, [1]);
    }

    #[test]
    fn few_bad_keys_do_not_accuse_their_clients() {
        let circuit = opened_by((0..20).map(|i| identity(1, i % 2)));
        assert!(!circuit.may_admit(at(0), identity(2, 0)), "a bad key");
        assert!(circuit.may_admit(at(0), identity(1, 2)), "another key of the same client");
        // Few are less than the five failures that accuse the source.
        for (keys, is_admitted) in [(4, true), (5, false)] {
            let circuit = opened_by((0..20).map(|i| identity(1, i % keys)));
            assert_eq!(circuit.may_admit(at(0), identity(1, 100)), is_admitted, "{keys} keys");
        }
        let circuit = opened_by((0..20).map(|i| identity(1, i)));
        assert!(!circuit.may_admit(at(0), identity(1, 100)), "a bad client");
        assert!(circuit.may_admit(at(0), identity(2, 100)));
    }

    #[test]
    fn answered_trials_close_and_the_suspects_do_not_open_it_again() {
        let mut circuit = opened_by((0..20).map(|i| identity(1, i)));
        let bad = |i| identity(1, 1_000 + i);
        // A trial that never started is given back.
        for i in 0..10 {
            let trial = admit(&mut circuit, 0, identity(2, i + 50)).unwrap();
            circuit.record_result(trial, at(0), LoadOutcome::NotRun);
        }
        // Also while it is half-open, and probes of the suspect fail.
        assert!(load_of(&mut circuit, identity(2, 100), 0, true));
        assert!(load_of(&mut circuit, bad(0), 5_000, false));
        assert!(load_of(&mut circuit, identity(2, 101), 6_000, true));
        let late = admit(&mut circuit, 6_000, identity(2, 103)).unwrap();
        assert!(load_of(&mut circuit, identity(2, 102), 6_000, true));
        assert!(is_closed(&circuit), "without a ramp");
        circuit.record_result(late, at(6_000), LoadOutcome::Failed);
        for i in 0..10_000 {
            assert!(load_of(&mut circuit, bad(i), 6_000 + i, false));
            if i % 9_000 == 0 {
                assert!(load_of(&mut circuit, identity(2, i), 6_000 + i, true));
            }
        }
        // Nothing else was loaded for a period.
        let opens = (0..100).filter(|i| load_of(&mut circuit, bad(*i), 25_000, false)).count();
        assert_eq!(opens, 20);
        // Others count as always.
        let mut circuit = opened_by((0..20).map(|i| identity(1, i)));
        (0..3).for_each(|i| assert!(load_of(&mut circuit, identity(2, 100 + i), 0, true)));
        let failed = (0..100).filter(|i| load_of(&mut circuit, identity(i + 3, 200 + i), 1, false)).count();
        assert_eq!(failed, 19, "and one was answered");
    }
}
