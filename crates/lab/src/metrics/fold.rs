//! The seconds of one run, put together as they come in.

use std::{collections::BTreeMap, fmt};

use stockade_model::{
    outcome::Outcomes,
    record::{Holds, Interval, Role, Times, Usage},
    units::milliseconds,
};

/// Some seconds of a run. Requests are in the second in which they finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// Whole seconds since the load began.
    Seconds {
        /// The first one.
        from: u64,
        /// The second after the last.
        to: u64,
    },
    /// Until the cache cleared room for the first time, that second included; all of them if it never did.
    UntilFirstReclaim,
    /// The seconds after that.
    AfterFirstReclaim,
}

impl Window {
    /// The same part of a run that takes `factor` times as long: a second at least.
    #[must_use]
    pub fn stretched(self, factor: f64) -> Self {
        let Self::Seconds { from, to } = self else { return self };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates, and a factor is above 0"
        )]
        let scaled = |second: u64| (second as f64 * factor).round() as u64;
        let from = scaled(from);
        Self::Seconds { from, to: scaled(to).max(from + 1) }
    }

    /// How many seconds it has, where that is known before the run.
    #[must_use]
    pub fn seconds(self) -> Option<u64> {
        match self {
            Self::Seconds { from, to } => Some(to - from),
            Self::UntilFirstReclaim | Self::AfterFirstReclaim => None,
        }
    }

    /// Whether this second is in it, the first reclaim having been seen at the end of that one.
    fn has(self, second: u64, first_reclaim: Option<u64>) -> bool {
        let is_after = first_reclaim.is_some_and(|reclaim| second > reclaim);
        match self {
            Self::Seconds { from, to } => (from..to).contains(&second),
            Self::UntilFirstReclaim => !is_after,
            Self::AfterFirstReclaim => is_after,
        }
    }
}

/// As it is written in expressions: `10s..50s`, `after first reclaim`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds { from, to } => write!(f, "{from}s..{to}s"),
            Self::UntilFirstReclaim => f.write_str("until first reclaim"),
            Self::AfterFirstReclaim => f.write_str("after first reclaim"),
        }
    }
}

/// What was counted in some seconds of a run.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// How the requests were answered.
    pub outcomes: Outcomes,
    /// How long they took.
    pub times: Times,
    /// Fetches at the source's door.
    pub source_loads: Option<u64>,
    /// Attempts after a request's first.
    pub retries: Option<u64>,
    /// Requests that were not sent.
    pub dropped: Option<u64>,
    /// The age of the oldest answer.
    pub age_max_ms: Option<f64>,
    /// What processes used.
    pub usage: BTreeMap<Role, Used>,
    /// The most that the cache held.
    pub holds_max: Option<Holds>,
}

/// What a process used in some seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Bytes of it in memory, at most.
    pub rss_max_bytes: u64,
    /// The same at the end.
    pub rss_last_bytes: u64,
    /// Cores' worth of processor time, of all seconds together.
    pub cpu_sum: f64,
    /// The same in the second with the most.
    pub cpu_max: f64,
    /// How many seconds there were.
    pub seconds: u64,
}

impl Used {
    fn add(&mut self, usage: Usage) {
        self.rss_max_bytes = self.rss_max_bytes.max(usage.rss_bytes);
        self.rss_last_bytes = usage.rss_bytes;
        self.cpu_sum += usage.cpu;
        self.cpu_max = self.cpu_max.max(usage.cpu);
        self.seconds += 1;
    }
}

impl Part {
    fn add(&mut self, interval: &Interval) {
        let sum = |all: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *all.get_or_insert_default() += more;
            }
        };
        self.outcomes += interval.outcomes;
        self.times.merge(&interval.times);
        sum(&mut self.source_loads, interval.source_loads);
        sum(&mut self.retries, interval.retries);
        sum(&mut self.dropped, interval.dropped);
        self.age_max_ms = self.age_max_ms.into_iter().chain(interval.age_max_ms).reduce(f64::max);
        for (role, usage) in &interval.usage {
            self.usage.entry(*role).or_default().add(*usage);
        }
        self.holds_max = self.holds_max.into_iter().chain(interval.holds).reduce(|most, holds| Holds {
            entries: most.entries.max(holds.entries),
            bytes: most.bytes.max(holds.bytes),
            reclaims: most.reclaims.max(holds.reclaims),
            waiters: most.waiters.max(holds.waiters),
        });
    }
}

/// One second of an open load in which something happened, as plots show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since the load began.
    pub second: u64,
    /// Requests answered in it.
    pub answered: u64,
    /// Requests that failed in it.
    pub failed: u64,
    /// Requests answered with something stale.
    pub stale: u64,
    /// Fetches at the source's door.
    pub source_loads: u64,
    /// 99 % of the answered took no longer.
    pub p99_ms: Option<f64>,
    /// What processes used.
    pub usage: BTreeMap<Role, Usage>,
    /// What the cache held.
    pub holds: Option<Holds>,
}

/// A run's seconds so far: all together, those of each window, and each as a few numbers.
#[derive(Clone, Debug)]
pub struct Fold {
    pub(super) whole: Part,
    pub(super) windows: Vec<(Window, Part)>,
    first_reclaim: Option<u64>,
    pub(super) moments: Vec<Moment>,
}

impl Fold {
    /// Of no seconds yet.
    #[must_use]
    pub fn new(windows: &[Window]) -> Self {
        Self {
            whole: Part::default(),
            windows: windows.iter().map(|window| (*window, Part::default())).collect(),
            first_reclaim: None,
            moments: Vec::new(),
        }
    }

    /// Adds the next second.
    pub fn add(&mut self, interval: &Interval) {
        self.whole.add(interval);
        if self.first_reclaim.is_none() && interval.holds.is_some_and(|holds| holds.reclaims > 0) {
            self.first_reclaim = Some(interval.second);
        }
        for (window, part) in &mut self.windows {
            if window.has(interval.second, self.first_reclaim) {
                part.add(interval);
            }
        }
        // Only an open load tells what its source had to bear in a second.
        if let Some(source_loads) = interval.source_loads {
            self.moments.push(Moment {
                second: interval.second,
                answered: interval.outcomes.requests() - interval.outcomes.error,
                failed: interval.outcomes.error,
                stale: interval.outcomes.stale + interval.outcomes.fallback,
                source_loads,
                p99_ms: interval.times.response.quantile(0.99).map(milliseconds),
                usage: interval.usage.clone(),
                holds: interval.holds,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_half_open_and_stretches_with_the_run() {
        let window = Window::Seconds { from: 10, to: 50 };
        let has = |second| window.has(second, None);
        assert_eq!((has(9), has(10), has(49), has(50)), (false, true, true, false));
        assert_eq!(window.stretched(0.1), Window::Seconds { from: 1, to: 5 });
        assert_eq!(window.stretched(0.001), Window::Seconds { from: 0, to: 1 });
        assert_eq!(window.to_string(), "10s..50s");
    }

    #[test]
    fn the_first_reclaim_parts_a_run() {
        let holds = [(40, 0), (90, 0), (60, 1), (85, 1), (95, 2)];
        let mut fold = Fold::new(&[Window::UntilFirstReclaim, Window::AfterFirstReclaim]);
        for (second, (entries, reclaims)) in (0..).zip(holds) {
            let holds = Some(Holds { entries, bytes: None, reclaims, waiters: 0 });
            fold.add(&Interval { second, holds, ..Interval::default() });
        }
        let most: Vec<_> = fold.windows.iter().map(|(_, part)| part.holds_max.unwrap().entries).collect();
        assert_eq!(most, [90, 95]);
        assert!(!Window::AfterFirstReclaim.has(7, None) && Window::UntilFirstReclaim.has(7, None));
    }
}
