//! The choice among policies by their ghosts: [`Policy::AUTO`]. Pure: it gets counts and returns a policy.
//!
//! The ghosts of all candidates see the same sampled requests. For each candidate a sum grows by the misses that it has
//! fewer than the active policy, and falls by those that it has more, but not below 0 (a CUSUM chart: Page, "Continuous
//! inspection schemes", Biometrika 41, 1954). The candidate whose sum passes a threshold becomes the active policy, and all
//! sums start at 0. A policy finds its entries among those that another one kept, so a change costs about as many misses as there are entries
//! to be replaced: the threshold grows with the number of entries.
//!
//! The constants are those with the fewest misses over the traces of decision 028.

use crate::{limit::Limit, policy::Policy};

/// Sampled requests between two comparisons.
const INTERVAL: u64 = 16;
/// Sampled misses that a candidate has to be ahead, at least.
const MISSES_AHEAD: f64 = 48.0;
/// The same as a share of the entries that its ghost holds.
const ENTRIES_AHEAD: f64 = 0.4;
/// The advantage that does not count, as a share of the sampled requests.
const ADVANTAGE_MIN: f64 = 0.002;
/// Sampled requests between two changes, at least.
const REQUESTS_MIN: u64 = 512;

/// The candidates. A cache starts with the first one.
pub(super) fn candidates(limit: &Limit) -> &'static [&'static Policy] {
    // Without rewrites lrw is FIFO: no cache is much worse than one of those.
    const BY_ENTRIES: [&Policy; 5] = [Policy::S3_FIFO, Policy::SIEVE, Policy::LRU, Policy::LFU, Policy::LRW];
    const BY_BYTES: [&Policy; 5] = [Policy::GDSF, Policy::S3_FIFO, Policy::SIEVE, Policy::LRU, Policy::LRW];
    if limit.bytes.is_some() { &BY_BYTES } else { &BY_ENTRIES }
}

#[derive(Debug)]
pub(super) struct PolicyChoice {
    candidates: Vec<Candidate>,
    active: usize,
    since_comparison: u64,
    since_change: u64,
    changes: u64,
}

#[derive(Debug)]
struct Candidate {
    policy: &'static Policy,
    /// The number of its ghost.
    ghost: usize,
    /// The loads of its ghost at the last comparison.
    loads: u64,
    /// Sampled misses that it is ahead of the active policy.
    ahead: f64,
}

impl PolicyChoice {
    /// Each candidate with the number of its ghost. The first one is active.
    pub(super) fn new(candidates: impl IntoIterator<Item = (&'static Policy, usize)>) -> Self {
        let candidate = |(policy, ghost)| Candidate { policy, ghost, loads: 0, ahead: 0.0 };
        Self {
            candidates: candidates.into_iter().map(candidate).collect(),
            active: 0,
            since_comparison: 0,
            since_change: 0,
            changes: 0,
        }
    }

    pub(super) fn active(&self) -> &'static Policy {
        self.candidates[self.active].policy
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// A sampled request was counted; it stands for `weight` requests. `ghost` returns the loads of a ghost, and the entries
    /// that it holds. Returns the policy to change to.
    pub(super) fn request(
        &mut self,
        weight: u64,
        ghost: impl Fn(usize) -> (u64, usize),
    ) -> Option<&'static Policy> {
        self.since_comparison += 1;
        self.since_change += 1;
        if self.since_comparison < INTERVAL {
            return None;
        }
        self.since_comparison = 0;
        self.compare(weight, |number| ghost(number).0);
        let ahead = |candidate: &usize| self.candidates[*candidate].ahead;
        let best = (0..self.candidates.len()).max_by(|a, b| ahead(a).total_cmp(&ahead(b)))?;
        let (_, entries) = ghost(self.candidates[best].ghost);
        let threshold = MISSES_AHEAD.max(ENTRIES_AHEAD * entries as f64);
        if ahead(&best) < threshold || self.since_change < REQUESTS_MIN {
            return None;
        }
        self.active = best;
        self.changes += 1;
        self.since_change = 0;
        self.candidates.iter_mut().for_each(|candidate| candidate.ahead = 0.0);
        Some(self.active())
    }

    fn compare(&mut self, weight: u64, loads: impl Fn(usize) -> u64) {
        let misses = |candidate: &mut Candidate| {
            let loads = loads(candidate.ghost);
            (loads - std::mem::replace(&mut candidate.loads, loads)) as f64 / weight as f64
        };
        let of_active = misses(&mut self.candidates[self.active]);
        for (number, candidate) in self.candidates.iter_mut().enumerate() {
            if number != self.active {
                let ahead = of_active - misses(candidate) - ADVANTAGE_MIN * INTERVAL as f64;
                candidate.ahead = (candidate.ahead + ahead).max(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests until the second candidate is chosen, at most 100,000. Of each 1,000 requests the active policy misses
    /// `active` and the second candidate `other`; the third misses all.
    fn requests_until_change(active: u64, other: u64, weight: u64, entries: usize) -> Option<u64> {
        let mut choice = PolicyChoice::new([(Policy::SIEVE, 1), (Policy::LRU, 4), (Policy::LFU, 2)]);
        (1..100_000).find(|request| {
            let misses = |of_thousand: u64| request * of_thousand / 1_000 * weight;
            let loads = |ghost: usize| match ghost {
                1 => misses(active),
                4 => misses(other),
                2 => misses(1_000),
                _ => panic!("ghost {ghost} is not a candidate"),
            };
            let chosen = choice.request(weight, |ghost| (loads(ghost), entries));
            assert!(chosen.is_none_or(|policy| policy == Policy::LRU && choice.active() == policy));
            chosen.is_some()
        })
    }

    #[test]
    fn policy_changes_after_enough_misses() {
        for (active, other, weight, entries, expected) in [
            // 98 of 1,000 count: 48 misses after 490 requests, and the interval ends at 512.
            (200, 100, 1, 10, Some(512)),
            // The same at any number of requests for each sampled one.
            (200, 100, 64, 10, Some(512)),
            // 400 misses.
            (200, 100, 1, 1_000, Some(4_096)),
            // As good, or not enough better.
            (100, 100, 1, 10, None),
            (100, 99, 1, 10, None),
            (100, 200, 1, 10, None),
        ] {
            let requests = requests_until_change(active, other, weight, entries);
            assert_eq!(requests, expected, "{active} {other} {weight} {entries}");
        }
    }

    #[test]
    fn changes_are_bounded_and_start_over() {
        let mut choice = PolicyChoice::new([(Policy::SIEVE, 0), (Policy::LRU, 1)]);
        let mut loads = [0, 0];
        let mut changes = Vec::new();
        for request in 1..=4_096_u64 {
            // The active policy misses always.
            loads[usize::from(choice.active() == Policy::LRU)] += 1;
            if choice.request(1, |ghost| (loads[ghost], 10)).is_some() {
                changes.push(request);
            }
        }
        assert_eq!(changes, [512, 1_024, 1_536, 2_048, 2_560, 3_072, 3_584, 4_096]);
        assert_eq!(choice.changes(), 8);
    }
}
