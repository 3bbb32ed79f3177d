//! Aggregates the seconds of one run as they arrive.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::record::{CacheContents, Interval, Role, Times, Usage};
use stockade_model::{outcome::Outcomes, units::milliseconds};

const NANOS_PER_S: u128 = 1_000_000_000;

/// A part of a run. A request belongs to the second in which it finishes, or to the last second of the load if it finishes
/// after that: windows that cover the load without a gap sum to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FigureWindow {
    /// Whole seconds since the start of the load.
    Seconds {
        /// Inclusive.
        from: u64,
        /// Exclusive.
        to: u64,
    },
    /// Up to and including the second of the cache's first reclaim; the whole run if the cache did not reclaim.
    UntilFirstReclaim,
    /// The seconds after the first reclaim.
    AfterFirstReclaim,
}

impl FigureWindow {
    /// The same part of a run that is `factor` times as long; at least one second.
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

    /// Its length in seconds; `None`: known only after the run.
    #[must_use]
    pub fn seconds(self) -> Option<u64> {
        match self {
            Self::Seconds { from, to } => Some(to - from),
            Self::UntilFirstReclaim | Self::AfterFirstReclaim => None,
        }
    }

    /// True if `second` belongs to it, in a load whose last second is `last`; `first_reclaim` is the second whose end showed
    /// the first reclaim.
    fn has(self, second: u64, last: u64, first_reclaim: Option<u64>) -> bool {
        let is_after = first_reclaim.is_some_and(|reclaim| second > reclaim);
        match self {
            Self::Seconds { from, to } => (from..to).contains(&second.min(last)),
            Self::UntilFirstReclaim => !is_after,
            Self::AfterFirstReclaim => is_after,
        }
    }
}

/// As in expressions: `10s..50s`, `after first reclaim`.
impl fmt::Display for FigureWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds { from, to } => write!(f, "{from}s..{to}s"),
            Self::UntilFirstReclaim => f.write_str("until first reclaim"),
            Self::AfterFirstReclaim => f.write_str("after first reclaim"),
        }
    }
}

/// Counts of a part of a run.
#[derive(Clone, Debug, Default)]
pub struct FoldPart {
    pub outcomes: Outcomes,
    pub times: Times,
    /// Fetches that reached the source.
    pub source_loads: Option<u64>,
    /// The most of them in one second.
    pub source_loads_per_s_max: Option<u64>,
    /// Attempts after a request's first.
    pub retries: Option<u64>,
    /// Requests that were not sent.
    pub dropped: Option<u64>,
    /// The age of the oldest answer.
    pub age_max_ms: Option<f64>,
    pub usage: BTreeMap<Role, ProcessUsage>,
    /// The most that the cache held.
    pub holds_max: Option<CacheContents>,
    pub disturbed: Option<DisturbedTimes>,
    /// The same for the seconds in which a process of the run was stopped.
    pub stopped: Option<DisturbedTimes>,
}

/// The times of a part of a run that was disturbed in some seconds.
#[derive(Clone, Debug)]
pub struct DisturbedTimes {
    /// The times of the other seconds.
    pub rest: Times,
    /// The number of disturbed seconds, without those after them.
    pub seconds: u64,
    /// The end of the last disturbed second.
    last_end: u64,
}

impl DisturbedTimes {
    /// Leaves a disturbed second out of the rest, and the second after it: its requests waited. `before`: the times of earlier seconds.
    fn add(of: &mut Option<Self>, before: &Times, interval: &Interval, is_disturbed: bool) {
        let second = interval.second;
        if is_disturbed {
            let disturbed = of.get_or_insert_with(|| Self { rest: before.clone(), seconds: 0, last_end: 0 });
            disturbed.seconds += 1;
            disturbed.last_end = second + 1;
        } else if let Some(disturbed) = of.as_mut().filter(|disturbed| second > disturbed.last_end) {
            disturbed.rest.merge(&interval.times);
        }
    }

    /// True if the disturbed seconds are at most half of these: above that, it is how the machine is.
    pub(super) fn are_exceptions_in(&self, seconds: u64) -> bool {
        self.seconds * 2 <= seconds
    }
}

/// The resources that a process used in a part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// Maximum of resident memory.
    pub rss_max_bytes: u64,
    /// Resident memory in the last second.
    pub rss_last_bytes: u64,
    /// Cores, summed over the seconds.
    pub cpu_sum: f64,
    /// Cores in the busiest second.
    pub cpu_max: f64,
    pub seconds: u64,
}

impl ProcessUsage {
    fn add(&mut self, usage: Usage) {
        self.rss_max_bytes = self.rss_max_bytes.max(usage.rss_bytes);
        self.rss_last_bytes = usage.rss_bytes;
        self.cpu_sum += usage.cpu;
        self.cpu_max = self.cpu_max.max(usage.cpu);
        self.seconds += 1;
    }
}

impl FoldPart {
    fn add(&mut self, interval: &Interval) {
        let sum = |all: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *all.get_or_insert_default() += more;
            }
        };
        let disturbance = interval.disturbance;
        DisturbedTimes::add(&mut self.disturbed, &self.times, interval, disturbance.is_some());
        let is_stopped = disturbance.is_some_and(|disturbance| disturbance.stopped.is_some());
        DisturbedTimes::add(&mut self.stopped, &self.times, interval, is_stopped);
        self.outcomes += interval.outcomes;
        self.times.merge(&interval.times);
        sum(&mut self.source_loads, interval.source_loads);
        self.source_loads_per_s_max = self.source_loads_per_s_max.max(interval.source_loads);
        sum(&mut self.retries, interval.retries);
        sum(&mut self.dropped, interval.dropped);
        self.age_max_ms = self.age_max_ms.into_iter().chain(interval.age_max_ms).reduce(f64::max);
        for (role, usage) in &interval.usage {
            self.usage.entry(*role).or_default().add(*usage);
        }
        self.holds_max =
            self.holds_max.into_iter().chain(interval.holds).reduce(|most, holds| CacheContents {
                entries: most.entries.max(holds.entries),
                bytes: most.bytes.max(holds.bytes),
                reclaims: most.reclaims.max(holds.reclaims),
                waiters: most.waiters.max(holds.waiters),
            });
    }
}

/// One second of an open load with at least one event, for plots.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since the start of the load.
    pub second: u64,
    pub outcomes: Outcomes,
    /// Fetches that reached the source; `None`: nothing counts them.
    pub source_loads: Option<u64>,
    /// Requests that were due and not sent.
    pub dropped: u64,
    /// Of the answered requests.
    pub response_ms: Option<MomentTimes>,
    /// The answered requests by response time: a cell of [`HEAT_CELLS_PER_DECADE`], and its count.
    pub heat: Vec<(i16, u64)>,
    pub send_lag_p99_ms: Option<f64>,
    pub age_max_ms: Option<f64>,
    pub usage: BTreeMap<Role, Usage>,
    pub holds: Option<CacheContents>,
    pub is_disturbed: bool,
}

/// Percentiles of a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MomentTimes {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// Cell n has the times from 10^(n / this) milliseconds to the next cell.
pub const HEAT_CELLS_PER_DECADE: f64 = 8.0;

impl Moment {
    /// `None`: not of an open load, which alone counts requests that were not sent.
    pub(crate) fn of(interval: &Interval) -> Option<Self> {
        let dropped = interval.dropped?;
        let Times { response, send_lag, .. } = &interval.times;
        let at = |quantile: f64| response.quantile(quantile).map(milliseconds);
        let response_ms = || {
            let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(at);
            let max = response.max().map(milliseconds);
            Some(MomentTimes { p50: p50?, p90: p90?, p99: p99?, p999: p999?, max: max? })
        };
        let mut heat: Vec<(i16, u64)> = Vec::new();
        for (time, count) in response.cells() {
            #[expect(clippy::cast_possible_truncation, reason = "logarithms of durations are small")]
            let cell = (milliseconds(time).log10() * HEAT_CELLS_PER_DECADE).floor().max(-48.0) as i16;
            match heat.last_mut() {
                Some((last, sum)) if *last == cell => *sum += count,
                _ => heat.push((cell, count)),
            }
        }
        Some(Self {
            second: interval.second,
            outcomes: interval.outcomes,
            source_loads: interval.source_loads,
            dropped,
            response_ms: response_ms(),
            heat,
            send_lag_p99_ms: send_lag.quantile(0.99).map(milliseconds),
            age_max_ms: interval.age_max_ms,
            usage: interval.usage.clone(),
            holds: interval.holds,
            is_disturbed: interval.disturbance.is_some(),
        })
    }
}

/// A part of a run, and its seconds in batches.
#[derive(Clone, Debug, Default)]
pub(super) struct Batched {
    pub(super) whole: FoldPart,
    /// Up to [`Batched::COUNT`] parts of equal length, in order; empty if it is shorter than two seconds or of unknown length.
    pub(super) batches: Vec<FoldPart>,
    /// Its first second.
    from: u64,
    /// Its length; 0: unknown.
    pub(super) seconds: u64,
}

impl Batched {
    /// Enough for a standard error, and few enough that neighbours are hardly correlated.
    pub(super) const COUNT: usize = 10;

    fn new(seconds: std::ops::Range<u64>) -> Self {
        let length = seconds.end.saturating_sub(seconds.start);
        let count = usize::try_from(length).unwrap_or(usize::MAX).min(Self::COUNT);
        let batches = vec![FoldPart::default(); if count < 2 { 0 } else { count }];
        Self { whole: FoldPart::default(), batches, from: seconds.start, seconds: length }
    }

    fn add(&mut self, second: u64, interval: &Interval) {
        self.whole.add(interval);
        let Some(last) = self.batches.len().checked_sub(1) else { return };
        let at = second.saturating_sub(self.from).saturating_mul(self.batches.len() as u64) / self.seconds;
        self.batches[usize::try_from(at).unwrap_or(last).min(last)].add(interval);
    }
}

/// The seconds of a run so far: the total, each window, and a few numbers for each second.
#[derive(Clone, Debug)]
pub struct Fold {
    pub(super) whole: Batched,
    pub(super) windows: Vec<(FigureWindow, Batched)>,
    first_reclaim: Option<u64>,
    /// The last second in which requests are due.
    last: u64,
    pub(super) moments: Vec<Moment>,
    /// True: no plots are wanted.
    is_without_moments: bool,
}

impl Fold {
    /// `duration`: how long requests are due; `None`: all at once.
    #[must_use]
    pub fn new(windows: &[FigureWindow], duration: Option<Duration>) -> Self {
        let seconds = duration
            .map(|duration| u64::try_from(duration.as_nanos().div_ceil(NANOS_PER_S)).unwrap_or(u64::MAX));
        let of_window = |window: &FigureWindow| match (*window, seconds) {
            (FigureWindow::Seconds { from, to }, Some(seconds)) => Batched::new(from..to.min(seconds)),
            _ => Batched::default(),
        };
        Self {
            whole: Batched::new(0..seconds.unwrap_or_default()),
            windows: windows.iter().map(|window| (*window, of_window(window))).collect(),
            first_reclaim: None,
            last: seconds.unwrap_or(u64::MAX).saturating_sub(1),
            moments: Vec::new(),
            is_without_moments: false,
        }
    }

    pub(super) fn without_moments(self) -> Self {
        Self { is_without_moments: true, ..self }
    }

    pub fn add(&mut self, interval: &Interval) {
        let second = interval.second.min(self.last);
        self.whole.add(second, interval);
        if self.first_reclaim.is_none() && interval.holds.is_some_and(|holds| holds.reclaims > 0) {
            self.first_reclaim = Some(interval.second);
        }
        for (window, part) in &mut self.windows {
            if window.has(interval.second, self.last, self.first_reclaim) {
                part.add(second, interval);
            }
        }
        if !self.is_without_moments {
            self.moments.extend(Moment::of(interval));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_open_loads_may_lack_source_loads() {
        let moment =
            |source_loads, dropped| Moment::of(&Interval { source_loads, dropped, ..Interval::default() });
        let counts = moment(None, Some(2)).map(|moment| (moment.source_loads, moment.dropped));
        assert_eq!(counts, Some((None, 2)));
        assert_eq!(moment(Some(3), None), None);
    }

    #[test]
    fn windows_are_half_open_and_scale_with_the_run() {
        let window = FigureWindow::Seconds { from: 10, to: 50 };
        let has = |second| window.has(second, 99, None);
        assert_eq!((has(9), has(10), has(49), has(50)), (false, true, true, false));
        assert_eq!(window.stretched(0.1), FigureWindow::Seconds { from: 1, to: 5 });
        assert_eq!(window.stretched(0.001), FigureWindow::Seconds { from: 0, to: 1 });
        assert_eq!(window.to_string(), "10s..50s");
    }

    #[test]
    fn requests_that_finish_after_the_load_are_in_its_last_second() {
        let windows = [(0, 2), (2, 5), (0, 4), (5, 9)].map(|(from, to)| FigureWindow::Seconds { from, to });
        for (millis, expected) in
            [(5_000, [2, 5, 4, 0]), (4_001, [2, 5, 4, 0]), (4_000, [2, 5, 7, 0]), (9_000, [2, 3, 4, 2])]
        {
            let mut fold = Fold::new(&windows, Some(Duration::from_millis(millis)));
            for second in 0..7 {
                let outcomes = Outcomes { hit: 1, ..Outcomes::default() };
                fold.add(&Interval { second, outcomes, ..Interval::default() });
            }
            let counts: Vec<_> = fold.windows.iter().map(|(_, part)| part.whole.outcomes.hit).collect();
            assert_eq!(counts, expected, "{millis} ms");
        }
    }

    #[test]
    fn seconds_are_in_batches_of_equal_length() {
        let window = FigureWindow::Seconds { from: 20, to: 23 };
        let mut fold = Fold::new(&[window], Some(Duration::from_millis(24_500)));
        for second in 0..30 {
            let outcomes = Outcomes { hit: 1, ..Outcomes::default() };
            fold.add(&Interval { second, outcomes, ..Interval::default() });
        }
        let counts =
            |batched: &Batched| batched.batches.iter().map(|batch| batch.outcomes.hit).collect::<Vec<_>>();
        // Requests that finish after the load are in its last second.
        assert_eq!(counts(&fold.whole), [3, 2, 3, 2, 3, 2, 3, 2, 3, 7]);
        assert_eq!(counts(&fold.windows[0].1), [1, 1, 1]);
        assert_eq!(counts(&Fold::new(&[], Some(Duration::from_millis(900))).whole), [0; 0]);
        assert_eq!(counts(&Fold::new(&[], None).whole), [0; 0]);
    }

    #[test]
    fn first_reclaim_divides_a_run() {
        let holds = [(40, 0), (90, 0), (60, 1), (85, 1), (95, 2)];
        let mut fold = Fold::new(&[FigureWindow::UntilFirstReclaim, FigureWindow::AfterFirstReclaim], None);
        for (second, (entries, reclaims)) in (0..).zip(holds) {
            let holds = Some(CacheContents { entries, bytes: None, reclaims, waiters: 0 });
            fold.add(&Interval { second, holds, ..Interval::default() });
        }
        let most: Vec<_> =
            fold.windows.iter().map(|(_, part)| part.whole.holds_max.unwrap().entries).collect();
        assert_eq!(most, [90, 95]);
        assert!(
            !FigureWindow::AfterFirstReclaim.has(7, 9, None)
                && FigureWindow::UntilFirstReclaim.has(7, 9, None)
        );
    }
}
