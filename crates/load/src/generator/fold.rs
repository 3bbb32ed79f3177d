//! The summary of a load, from its seconds.

use std::time::{Duration, SystemTime};

use stockade_model::{time::Time, units::format_span};

use super::{
    LoadProgress, LoadStart, LoadTest, Observer,
    seconds::{GeneratorEnd, GeneratorSecond, SECONDS_MAX},
};
use crate::{
    summary::{SecondCounts, Summary},
    tally::Tally,
};

/// Adds the seconds of a load to its summary, and reports its progress.
#[derive(Debug)]
pub struct SummaryFold {
    summary: Summary,
    warmup: Duration,
    requests: u64,
    failed: u64,
}

impl SummaryFold {
    /// A load before its start, by a clock whose zero is at this time of day.
    #[must_use]
    pub fn new(load: &LoadTest, clock_zero: SystemTime) -> Self {
        let summary = Summary {
            id: load.id.clone(),
            schedule: load.plan.to_string(),
            clock_zero,
            warmup: (!load.plan.warmup().is_zero()).then(Tally::default),
            ..Summary::of(Tally::default())
        };
        Self { summary, warmup: load.plan.warmup(), requests: 0, failed: 0 }
    }

    /// The load starts.
    pub fn start(&mut self, start: Time, observer: &mut dyn Observer) {
        let measured_from = start + self.warmup;
        let clock_zero = self.summary.clock_zero;
        self.summary.measured_from = measured_from;
        observer.on_start(LoadStart { clock_zero, measured_from });
    }

    /// One more second is complete. Seconds are added in order.
    pub fn second(&mut self, second: &GeneratorSecond, observer: &mut dyn Observer) {
        self.add(second);
        let mut tally = second.measured.clone();
        tally.merge(&second.warmup);
        self.requests += tally.requests();
        self.failed += tally.failed();
        observer.on_second(&LoadProgress {
            second,
            tally: &tally,
            requests: self.requests,
            failed: self.failed,
        });
    }

    /// Adds counts without reporting them: those after the last whole second.
    pub fn add(&mut self, rest: &GeneratorSecond) {
        let summary = &mut self.summary;
        summary.measured.merge(&rest.measured);
        if let Some(warmup) = &mut summary.warmup {
            warmup.merge(&rest.warmup);
        }
        for (second, counts) in &rest.seconds {
            let second = usize::try_from(*second).unwrap_or(usize::MAX);
            if summary.seconds.len() <= second {
                summary.seconds.resize(second + 1, SecondCounts::default());
            }
            summary.seconds[second] += *counts;
        }
        summary.dropped += rest.dropped;
        summary.held_back += rest.held_back;
        summary.sent_after_end += rest.sent_after_end;
        summary.connections += rest.connections;
    }

    /// The summary so far.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The summary of the whole load, to which the rest has been added.
    #[must_use]
    pub fn finish(self, end: &GeneratorEnd) -> Summary {
        let mut summary = self.summary;
        summary.schedule_end = end.schedule_end;
        summary.in_flight_at_end = end.in_flight_at_end;
        summary.in_flight_max = end.in_flight_max;
        let seconds = (summary.schedule_end - summary.measured_from).as_secs().min(SECONDS_MAX);
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX);
        if summary.seconds.len() < seconds {
            // Seconds at the end without requests.
            summary.seconds.resize(seconds, SecondCounts::default());
        }
        summary.generator = end.health.clone();
        if end.was_cancelled {
            let until = summary.measured.end.max(Some(summary.schedule_end)).unwrap_or_default();
            let after = format_span(until - summary.measured_from);
            summary.generator.invalid_reasons.push(format!("interrupted after {after}"));
        }
        summary
    }
}
