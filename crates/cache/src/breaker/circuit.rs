//! The breaker's state machine. Pure: it is told the time.

use std::{collections::VecDeque, time::Duration};

use stockade_model::time::Time;

use super::{Breaker, BreakerState};

/// One breaker.
#[derive(Debug)]
pub(super) struct Circuit {
    config: Breaker,
    state: State,
    /// Counts the changes of state.
    term: u64,
}

#[derive(Debug)]
enum State {
    Closed { window: Window, ramp: Option<Ramp> },
    Open { until: Time },
    HalfOpen { begun: u32, answered: u32 },
}

/// Leave for one load, given in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    term: u64,
}

impl Circuit {
    pub(super) fn new(config: Breaker) -> Self {
        Self { config, state: State::Closed { window: Window::new(), ramp: None }, term: 0 }
    }

    /// From when on it lets everything through, as things are.
    pub(super) fn closed_from(&self) -> Time {
        match &self.state {
            State::Closed { ramp: None, .. } => Time::ZERO,
            State::Closed { ramp: Some(ramp), .. } => ramp.since + ramp.lasts,
            State::Open { .. } | State::HalfOpen { .. } => Time::NEVER,
        }
    }

    pub(super) fn state(&self, now: Time) -> BreakerState {
        match &self.state {
            State::Closed { ramp: Some(ramp), .. } if ramp.share(now) < 1.0 => BreakerState::Ramp,
            State::Closed { .. } => BreakerState::Closed,
            State::Open { until } if now < *until => BreakerState::Open,
            State::Open { .. } | State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Whether a load might be let through.
    pub(super) fn may_admit(&self, now: Time) -> bool {
        match &self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= *until,
            State::HalfOpen { begun, .. } => *begun < self.config.probes,
        }
    }

    /// Lets a load through, or not.
    pub(super) fn admit(&mut self, now: Time) -> Option<Turn> {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.enter(State::HalfOpen { begun: 0, answered: 0 });
        }
        let is_let_through = match &mut self.state {
            State::Closed { ramp, .. } => {
                if ramp.as_ref().is_some_and(|ramp| ramp.share(now) >= 1.0) {
                    *ramp = None;
                }
                ramp.as_mut().is_none_or(|ramp| ramp.admits(now))
            }
            State::Open { .. } => false,
            State::HalfOpen { begun, .. } => {
                let is_probe = *begun < self.config.probes;
                *begun += u32::from(is_probe);
                is_probe
            }
        };
        is_let_through.then_some(Turn { term: self.term })
    }

    /// A load that was let through is over; `None`: it never began.
    pub(super) fn settle(&mut self, turn: Turn, now: Time, is_answered: Option<bool>) {
        if turn.term != self.term {
            return;
        }
        match (&mut self.state, is_answered) {
            (State::Closed { window, .. }, Some(is_answered)) => {
                let rate = |failed| f64::from(failed) / f64::from(self.config.min_calls);
                let failed = window.count(now, is_answered, &self.config);
                if failed.is_some_and(|failed| rate(failed) >= self.config.errors_rate) {
                    self.open(now);
                }
            }
            (State::HalfOpen { .. }, Some(false)) => self.open(now),
            (State::HalfOpen { answered, .. }, Some(true)) => {
                *answered += 1;
                if *answered == self.config.probes {
                    let window = Window::new();
                    let ramp = Ramp { since: now, lasts: self.config.ramp, credit: 0.0 };
                    self.enter(State::Closed { window, ramp: (!ramp.lasts.is_zero()).then_some(ramp) });
                }
            }
            (State::HalfOpen { begun, .. }, None) => *begun -= 1,
            (State::Closed { .. }, None) | (State::Open { .. }, _) => {}
        }
    }

    fn open(&mut self, now: Time) {
        self.enter(State::Open { until: now + self.config.open_for });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.term += 1;
    }
}

/// Lets a growing share of loads through: each adds the share to a credit, and one that makes it whole
/// spends it.
#[derive(Debug)]
struct Ramp {
    since: Time,
    lasts: Duration,
    credit: f64,
}

impl Ramp {
    fn share(&self, now: Time) -> f64 {
        (now - self.since).as_secs_f64() / self.lasts.as_secs_f64()
    }

    fn admits(&mut self, now: Time) -> bool {
        self.credit += self.share(now);
        let is_whole = self.credit >= 1.0;
        self.credit -= f64::from(u8::from(is_whole));
        is_whole
    }
}

/// How the last loads ended, and when.
#[derive(Debug)]
struct Window {
    ended: VecDeque<(Time, bool)>,
    failed: u32,
}

impl Window {
    fn new() -> Self {
        Self { ended: VecDeque::new(), failed: 0 }
    }

    /// Counts one more, and tells how many of the last `min_calls` have failed, if there are as many.
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

    /// A load at that moment; true if it was let through.
    fn load(circuit: &mut Circuit, ms: u64, is_answered: bool) -> bool {
        let turn = circuit.admit(at(ms));
        if let Some(turn) = turn {
            circuit.settle(turn, at(ms), Some(is_answered));
        }
        turn.is_some()
    }

    fn opened(ms: u64) -> Circuit {
        let mut circuit = Circuit::new(CONFIG);
        (0..10).for_each(|_| assert!(load(&mut circuit, ms, false)));
        assert_eq!(circuit.state(at(ms)), BreakerState::Open);
        circuit
    }

    #[test]
    fn it_opens_at_its_rate_and_not_before_its_least_number_of_calls() {
        let mut circuit = Circuit::new(CONFIG);
        (0..9).for_each(|_| assert!(load(&mut circuit, 0, false)));
        assert!(is_closed(&circuit), "nine say nothing");
        assert!(load(&mut circuit, 0, true));
        assert!(!is_closed(&circuit), "nine of ten have failed, and the tenth is what was missing");

        // However many went well before.
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
    fn it_forgets_what_is_longer_ago_than_its_period() {
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
    fn while_it_is_open_nothing_goes_and_then_only_probes() {
        let mut circuit = opened(0);
        assert!(!load(&mut circuit, 4_999, true));
        assert!(circuit.may_admit(at(5_000)) && !circuit.may_admit(at(4_999)));
        let probes: Vec<_> = (0..100).filter_map(|_| circuit.admit(at(5_000))).collect();
        assert_eq!(probes.len(), 3);
        assert!(!circuit.may_admit(at(5_000)));
        assert_eq!(circuit.state(at(5_000)), BreakerState::HalfOpen);

        circuit.settle(probes[0], at(5_100), Some(true));
        circuit.settle(probes[1], at(5_100), Some(false));
        assert_eq!(circuit.state(at(5_100)), BreakerState::Open, "one failed");
        circuit.settle(probes[2], at(5_200), Some(true));
        assert_eq!(circuit.state(at(10_099)), BreakerState::Open, "what comes late says nothing");
        let probes: Vec<_> = (0..3).filter_map(|_| circuit.admit(at(10_100))).collect();
        circuit.settle(Turn { term: 0 }, at(10_200), Some(false));
        circuit.settle(Turn { term: 2 }, at(10_200), Some(false));
        assert_eq!(circuit.state(at(10_200)), BreakerState::HalfOpen, "nor does what began before it opened");
        circuit.settle(probes[0], at(10_200), Some(false));
        assert_eq!(circuit.state(at(10_200)), BreakerState::Open);
        let mut circuit = opened(5_100);
        assert!(circuit.admit(at(10_100)).is_some());
    }

    #[test]
    fn a_probe_that_never_began_makes_way_for_another() {
        let mut circuit = opened(0);
        let probes: Vec<_> = (0..3).filter_map(|_| circuit.admit(at(5_000))).collect();
        circuit.settle(probes[0], at(5_000), None);
        assert!(circuit.admit(at(5_001)).is_some());
        assert!(circuit.admit(at(5_001)).is_none());
    }

    #[test]
    fn after_the_probes_the_share_of_loads_grows_over_the_ramp() {
        let mut circuit = opened(0);
        (0..3).for_each(|_| assert!(load(&mut circuit, 5_000, true)));
        assert_eq!(circuit.state(at(5_001)), BreakerState::Ramp);
        assert!(!is_closed(&circuit));
        // 1,000 a second ask: in each second of the ramp as many go as it allows, and never more.
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
    fn a_source_that_fails_again_on_the_ramp_is_left_alone_again() {
        let mut circuit = opened(0);
        (0..3).for_each(|_| assert!(load(&mut circuit, 5_000, true)));
        let went = (5_000..15_000).filter(|ms| load(&mut circuit, *ms, false)).count();
        assert_eq!(went, 11, "ten open it, and 5 s later so does one probe");
    }
}
