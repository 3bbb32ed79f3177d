//! The breaker's state machine. Pure: time is an argument.

use std::{collections::VecDeque, time::Duration};

use stockade_model::time::Time;

use crate::error::InvalidStrategy;

/// When a breaker opens, and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// It opens when this share of the last `min_calls` loads has failed, above 0 and up to 1.
    pub errors_rate: f64,
    /// Loads that ended longer ago are not counted.
    pub period: Duration,
    /// How many loads it looks at, from 1 to 10,000. A failing source receives no more loads than that, beside those
    /// that run at the same time.
    pub min_calls: u32,
    /// How long it stays open before it admits probes.
    pub open_for: Duration,
    /// How many probes it admits. If all of them succeed it closes; if one fails it opens again.
    pub probes: u32,
    /// How long the share of admitted loads then grows from none to all, so that a recovered source does not receive
    /// all loads at once.
    pub ramp: Duration,
}

impl Breaker {
    /// Opens for 5 s when half of the last 20 loads in 10 s have failed; then 3 probes, and a ramp of 10 s.
    pub const DEFAULT: Self = Self {
        errors_rate: 0.5,
        period: Duration::from_secs(10),
        min_calls: 20,
        open_for: Duration::from_secs(5),
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
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Admits all loads.
    Closed,
    /// Admits a growing share of loads.
    Ramp,
    /// Admits probes.
    HalfOpen,
    /// Admits no load.
    Open,
}

#[derive(Debug)]
pub(super) struct Circuit {
    config: Breaker,
    state: CircuitState,
    /// Counts the changes of state.
    term: u64,
}

#[derive(Debug)]
enum CircuitState {
    Closed { window: ResultWindow, ramp: Option<AdmissionRamp> },
    Open { until: Time },
    HalfOpen { started: u32, answered: u32 },
}

/// The term in which a load was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallTerm {
    term: u64,
}

impl Circuit {
    pub(super) fn new(config: Breaker) -> Self {
        Self { config, state: CircuitState::Closed { window: ResultWindow::new(), ramp: None }, term: 0 }
    }

    /// The time from which all loads pass, unless the state changes.
    pub(super) fn closed_from(&self) -> Time {
        match &self.state {
            CircuitState::Closed { ramp: None, .. } => Time::ZERO,
            CircuitState::Closed { ramp: Some(ramp), .. } => ramp.since + ramp.duration,
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => Time::NEVER,
        }
    }

    pub(super) fn state(&self, now: Time) -> BreakerState {
        match &self.state {
            CircuitState::Closed { ramp: Some(ramp), .. } if ramp.share(now) < 1.0 => BreakerState::Ramp,
            CircuitState::Closed { .. } => BreakerState::Closed,
            CircuitState::Open { until } if now < *until => BreakerState::Open,
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// True if a load might be admitted.
    pub(super) fn may_admit(&self, now: Time) -> bool {
        match &self.state {
            CircuitState::Closed { .. } => true,
            CircuitState::Open { until } => now >= *until,
            CircuitState::HalfOpen { started, .. } => *started < self.config.probes,
        }
    }

    /// Admits a load; `None`: it is refused.
    pub(super) fn admit(&mut self, now: Time) -> Option<CallTerm> {
        if let CircuitState::Open { until } = self.state
            && now >= until
        {
            self.enter(CircuitState::HalfOpen { started: 0, answered: 0 });
        }
        let is_let_through = match &mut self.state {
            CircuitState::Closed { ramp, .. } => {
                if ramp.as_ref().is_some_and(|ramp| ramp.share(now) >= 1.0) {
                    *ramp = None;
                }
                ramp.as_mut().is_none_or(|ramp| ramp.admits(now))
            }
            CircuitState::Open { .. } => false,
            CircuitState::HalfOpen { started, .. } => {
                let is_probe = *started < self.config.probes;
                *started += u32::from(is_probe);
                is_probe
            }
        };
        is_let_through.then_some(CallTerm { term: self.term })
    }

    /// Records the result of an admitted load; `None`: it never started.
    pub(super) fn record_result(&mut self, call_term: CallTerm, now: Time, is_answered: Option<bool>) {
        if call_term.term != self.term {
            return;
        }
        match (&mut self.state, is_answered) {
            (CircuitState::Closed { window, .. }, Some(is_answered)) => {
                let rate = |failed| f64::from(failed) / f64::from(self.config.min_calls);
                let failed = window.count(now, is_answered, &self.config);
                if failed.is_some_and(|failed| rate(failed) >= self.config.errors_rate) {
                    self.open(now);
                }
            }
            (CircuitState::HalfOpen { .. }, Some(false)) => self.open(now),
            (CircuitState::HalfOpen { answered, .. }, Some(true)) => {
                *answered += 1;
                if *answered == self.config.probes {
                    let window = ResultWindow::new();
                    let ramp = AdmissionRamp { since: now, duration: self.config.ramp, credit: 0.0 };
                    self.enter(CircuitState::Closed {
                        window,
                        ramp: (!ramp.duration.is_zero()).then_some(ramp),
                    });
                }
            }
            (CircuitState::HalfOpen { started, .. }, None) => *started -= 1,
            (CircuitState::Closed { .. }, None) | (CircuitState::Open { .. }, _) => {}
        }
    }

    fn open(&mut self, now: Time) {
        self.enter(CircuitState::Open { until: now + self.config.open_for });
    }

    fn enter(&mut self, state: CircuitState) {
        self.state = state;
        self.term += 1;
    }
}

/// Admits a growing share of loads: each load adds the share to a credit, and a load that makes it whole is admitted
/// and spends it.
#[derive(Debug)]
struct AdmissionRamp {
    since: Time,
    duration: Duration,
    credit: f64,
}

impl AdmissionRamp {
    fn share(&self, now: Time) -> f64 {
        (now - self.since).as_secs_f64() / self.duration.as_secs_f64()
    }

    fn admits(&mut self, now: Time) -> bool {
        self.credit += self.share(now);
        let is_whole = self.credit >= 1.0;
        self.credit -= f64::from(u8::from(is_whole));
        is_whole
    }
}

/// The results of the last loads.
#[derive(Debug)]
struct ResultWindow {
    ended: VecDeque<(Time, bool)>,
    failed: u32,
}

impl ResultWindow {
    fn new() -> Self {
        Self { ended: VecDeque::new(), failed: 0 }
    }

    /// Counts a result. Returns how many of the last `min_calls` have failed, if there are as many.
    fn count(&mut self, now: Time, is_answered: bool, config: &Breaker) -> Option<u32> {
        let most = config.min_calls as usize;
        while let Some((ended, was_answered)) = self.ended.front()
            && (self.ended.len() >= most || now - *ended >= config.period)
        {
            self.failed -= u32::from(!was_answered);
            self.ended.pop_front();
        }
        self.failed += u32::from(!is_answered);
        self.ended.push_back((now, is_answered));
        (self.ended.len() == most).then_some(self.failed)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const CONFIG: Breaker = Breaker {
        errors_rate: 0.5,
        period: Duration::from_secs(10),
        min_calls: 10,
        open_for: Duration::from_secs(5),
        probes: 3,
        ramp: Duration::from_secs(10),
    };

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn is_closed(circuit: &Circuit) -> bool {
        circuit.closed_from() == Time::ZERO
    }

    /// Runs a load. Returns true if it was admitted.
    fn load(circuit: &mut Circuit, ms: u64, is_answered: bool) -> bool {
        let call_term = circuit.admit(at(ms));
        if let Some(call_term) = call_term {
            circuit.record_result(call_term, at(ms), Some(is_answered));
        }
        call_term.is_some()
    }

    fn opened(ms: u64) -> Circuit {
        let mut circuit = Circuit::new(CONFIG);
        (0..10).for_each(|_| assert!(load(&mut circuit, ms, false)));
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
        assert!(circuit.may_admit(at(5_000)) && !circuit.may_admit(at(4_999)));
        let probes: Vec<_> = (0..100).filter_map(|_| circuit.admit(at(5_000))).collect();
        assert_eq!(probes.len(), 3);
        assert!(!circuit.may_admit(at(5_000)));
        assert_eq!(circuit.state(at(5_000)), BreakerState::HalfOpen);

        circuit.record_result(probes[0], at(5_100), Some(true));
        circuit.record_result(probes[1], at(5_100), Some(false));
        assert_eq!(circuit.state(at(5_100)), BreakerState::Open, "one failed");
        circuit.record_result(probes[2], at(5_200), Some(true));
        assert_eq!(circuit.state(at(10_099)), BreakerState::Open, "what comes late says nothing");
        let probes: Vec<_> = (0..3).filter_map(|_| circuit.admit(at(10_100))).collect();
        circuit.record_result(CallTerm { term: 0 }, at(10_200), Some(false));
        circuit.record_result(CallTerm { term: 2 }, at(10_200), Some(false));
        assert_eq!(circuit.state(at(10_200)), BreakerState::HalfOpen, "nor does what began before it opened");
        circuit.record_result(probes[0], at(10_200), Some(false));
        assert_eq!(circuit.state(at(10_200)), BreakerState::Open);
        let mut circuit = opened(5_100);
        assert!(circuit.admit(at(10_100)).is_some());
    }

    #[test]
    fn a_probe_that_never_began_makes_way_for_another() {
        let mut circuit = opened(0);
        let probes: Vec<_> = (0..3).filter_map(|_| circuit.admit(at(5_000))).collect();
        circuit.record_result(probes[0], at(5_000), None);
        assert!(circuit.admit(at(5_001)).is_some());
        assert!(circuit.admit(at(5_001)).is_none());
    }

    #[test]
    fn after_the_probes_the_share_of_loads_grows_over_the_ramp() {
        let mut circuit = opened(0);
        (0..3).for_each(|_| assert!(load(&mut circuit, 5_000, true)));
        assert_eq!(circuit.state(at(5_001)), BreakerState::Ramp);
        assert!(!is_closed(&circuit));
        // With 1,000 loads a second, each second of the ramp admits its share and never more.
        let mut let_through = 0.0;
        for second in 0..10_u64 {
            let ms = |i| 5_000 + 1_000 * second + i;
            let went: u32 = (0..1_000).map(|i| u32::from(load(&mut circuit, ms(i), true))).sum();
            let allowed = 100.0 * (second as f64 + 0.5);
            assert!((f64::from(went) - allowed).abs() <= 1.5, "second {second}: {went}");
            let_through += f64::from(went);
        }
        assert!(let_through <= 5_000.0);
        assert!(load(&mut circuit, 15_000, true));
        assert!(is_closed(&circuit));
    }

    #[test]
    fn failure_on_the_ramp_opens_again() {
        let mut circuit = opened(0);
        (0..3).for_each(|_| assert!(load(&mut circuit, 5_000, true)));
        let went = (5_000..15_000).filter(|ms| load(&mut circuit, *ms, false)).count();
        assert_eq!(went, 11, "ten open it, and 5 s later so does one probe");
    }
}
