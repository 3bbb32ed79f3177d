//! Moves of shares away from agents that cannot hold theirs. Pure.

use std::{num::NonZeroU32, time::Duration};

/// Weights are multiplied by it at first, so that a share can become smaller.
const SCALE: u32 = 16;
/// An agent that was late in this number of seconds in a row cannot hold its share.
const LATE_SECONDS: u32 = 2;
/// An agent is much later than another one whose send lag is below this share of its own.
const OTHERS_LAG_MAX: f64 = 0.25;
/// The seconds after a move that are not judged: the new shares begin in the second or third of them.
const SETTLING_SECONDS: u64 = 4;

/// The send lag of an agent in a second, at the 99th percentile, and the one that a valid load may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecondLag {
    pub(crate) p99: Duration,
    pub(crate) allowed: Duration,
}

/// The weights of the agents of one load, as they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rebalance {
    weights: Vec<NonZeroU32>,
    /// The seconds in a row in which each agent was late.
    late: Vec<u32>,
    /// The first second that is judged.
    judged_from: u64,
}

impl Rebalance {
    pub(crate) fn new(weights: &[NonZeroU32]) -> Self {
        let scaled =
            weights.iter().map(|weight| weight.saturating_mul(NonZeroU32::MIN.saturating_add(SCALE - 1)));
        Self { weights: scaled.collect(), late: vec![0; weights.len()], judged_from: 0 }
    }

    /// One more second, with the lag of each agent in it. Returns new weights if shares move: those of late agents are halved. Where
    /// all are about as late, as on a machine that they share, another agent cannot help.
    pub(crate) fn second(&mut self, second: u64, lags: &[SecondLag]) -> Option<&[NonZeroU32]> {
        if second < self.judged_from {
            return None;
        }
        let least = lags.iter().map(|lag| lag.p99).min().unwrap_or_default();
        for (late, SecondLag { p99, allowed }) in self.late.iter_mut().zip(lags) {
            let is_late = p99 > allowed && p99.mul_f64(OTHERS_LAG_MAX) > least;
            *late = if is_late { *late + 1 } else { 0 };
        }
        let cannot_hold = |late: &u32| *late >= LATE_SECONDS;
        let is_light = |weight: &NonZeroU32| weight.get() == 1;
        let moving =
            self.late.iter().zip(&self.weights).any(|(late, weight)| cannot_hold(late) && !is_light(weight));
        if !moving {
            return None;
        }
        for (weight, late) in self.weights.iter_mut().zip(&self.late) {
            if cannot_hold(late) {
                *weight = NonZeroU32::new(weight.get() / 2).unwrap_or(NonZeroU32::MIN);
            }
        }
        self.late.fill(0);
        self.judged_from = second + SETTLING_SECONDS;
        Some(&self.weights)
    }

    /// The part of all requests that each agent has.
    pub(crate) fn parts(&self) -> impl Iterator<Item = f64> {
        let all: u64 = self.weights.iter().map(|weight| u64::from(weight.get())).sum();
        self.weights.iter().map(move |weight| f64::from(weight.get()) / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> SecondLag {
        SecondLag { p99: Duration::from_millis(ms), allowed: Duration::from_millis(10) }
    }

    fn weights(weights: &[u32]) -> Vec<NonZeroU32> {
        weights.iter().map(|weight| (*weight).try_into().unwrap()).collect()
    }

    #[test]
    fn share_of_an_agent_that_stays_late_is_halved() {
        let mut rebalance = Rebalance::new(&weights(&[1, 1]));
        assert_eq!(rebalance.second(0, &[ms(90), ms(4)]), None, "one late second is not enough");
        assert_eq!(rebalance.second(1, &[ms(3), ms(2)]), None);
        assert_eq!(rebalance.second(2, &[ms(90), ms(4)]), None);
        assert_eq!(rebalance.second(3, &[ms(90), ms(4)]), Some(&weights(&[8, 16])[..]));
        let parts: Vec<_> = rebalance.parts().collect();
        assert_eq!(parts, [8.0 / 24.0, 16.0 / 24.0]);
        // The new shares have not begun yet.
        for second in 4..7 {
            assert_eq!(rebalance.second(second, &[ms(90), ms(4)]), None);
        }
        assert_eq!(rebalance.second(7, &[ms(90), ms(4)]), None);
        assert_eq!(rebalance.second(8, &[ms(90), ms(4)]), Some(&weights(&[4, 16])[..]));
    }

    #[test]
    fn nothing_moves_if_all_are_late_or_the_share_is_the_smallest() {
        let mut rebalance = Rebalance::new(&weights(&[1, 1]));
        for second in 0..9 {
            assert_eq!(rebalance.second(second, &[ms(90), ms(40)]), None);
            assert_eq!(
                rebalance.second(second, &[ms(11), ms(9)]),
                None,
                "late by 1 ms, and not later than others"
            );
            assert_eq!(rebalance.second(second, &[ms(9), ms(1)]), None, "not late");
        }
        let mut moves = 0;
        let mut rebalance = Rebalance::new(&weights(&[1, 1]));
        for second in 0..99 {
            moves += u32::from(rebalance.second(second, &[ms(90), ms(4)]).is_some());
        }
        assert_eq!(moves, 4, "16, 8, 4, 2, 1");
    }
}
