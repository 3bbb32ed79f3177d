//! A load without an experiment as a record of one arm, so that its page is that of a run.

use std::time::Duration;

use stockade_load::{
    generator::{LoadProgress, LoadTest},
    summary::Summary,
};
use stockade_record::{
    events::{Measuring, RunEvent, RunObserver},
    metrics::{Fold, Results},
    record::{Arm, Expectation, HttpFigures, Hypothesis, Interval, Record, StatsProvider, Verdict},
};

use super::{
    measure::{http_figures, measurement},
    sampler::{CacheReadings, outcomes, times},
};
use crate::run::{record_of_one, run_record};

const ARM: &str = "load";

/// The seconds of a load, and its observer.
pub struct LoadRecord {
    record: Record,
    results: Results,
    fold: Fold,
    /// Without the warm-up; `None`: it ends with its requests.
    lasts: Option<Duration>,
    /// With the warm-up; `None`: unknown.
    requests: Option<u64>,
    sent: u64,
    warmup: Duration,
    observer: Box<dyn RunObserver>,
}

impl LoadRecord {
    /// `title`: of the page.
    #[must_use]
    pub fn start(load: &LoadTest, title: &str, mut observer: Box<dyn RunObserver>) -> Self {
        let warmup = load.plan.warmup();
        let lasts = load.plan.duration().map(|lasts| lasts.saturating_sub(warmup));
        let results = Results::default();
        let fold = results.fold(lasts);
        let record = Record {
            tests: vec![String::new()],
            arms: vec![Arm { name: ARM.to_owned(), cache: None }],
            ..record_of_one(title, load.seed)
        };
        observer.on(&RunEvent::Begin { steps: 1 });
        let measuring = Measuring { test: "", arm: ARM, repeat: 1, lasts, stages: &[] };
        observer.on(&RunEvent::Measuring { measuring, record: &record, results: &results });
        let requests = load.plan.requests();
        Self { record, results, fold, lasts, requests, sent: 0, warmup, observer }
    }

    /// Adds a second of the measured part.
    pub fn second(&mut self, progress: &LoadProgress<'_>) {
        let end = progress.elapsed().saturating_sub(self.warmup);
        self.sent += progress.tally.requests();
        if progress.is_warmup() || end.is_zero() {
            return;
        }
        let tally = progress.tally;
        let interval = Interval {
            arm: ARM.to_owned(),
            repeat: 1,
            second: end.as_secs().saturating_sub(1),
            outcomes: outcomes(tally),
            source_loads: Some(0),
            retries: Some(tally.retries),
            times: times(tally),
            ..Interval::default()
        };
        self.fold.add(&interval);
        let share = match (self.lasts, self.requests) {
            (Some(lasts), _) => end.as_secs_f64() / lasts.as_secs_f64(),
            (None, Some(requests)) => self.sent as f64 / requests.max(1) as f64,
            (None, None) => 0.0,
        };
        self.observer.on(&RunEvent::Second { interval: &interval, share: share.min(1.0) });
    }

    /// The record of the finished load goes to the observer.
    pub fn finish(
        mut self,
        summary: &Summary,
        expectations: &[Expectation],
        verdict: Verdict,
        was_cancelled: bool,
    ) {
        let duration = summary.schedule_end - summary.measured_from;
        let http = HttpFigures {
            stats_provider: StatsProvider::Unavailable,
            invalid: summary.generator.invalid_reasons.clone(),
            ..http_figures(summary)
        };
        let measured = measurement(
            String::new(),
            duration,
            summary,
            &CacheReadings::default(),
            summary.schedule.clone(),
            http,
        );
        let run = run_record(("", ARM), 1, Vec::new(), measured);
        self.results.add(&run, self.fold);
        let record = &mut self.record;
        record.runs.push(run);
        record.interrupted = was_cancelled;
        record.in_progress = false;
        record.hypotheses = expectations
            .iter()
            .map(|expectation| Hypothesis {
                text: expectation.expr.clone(),
                verdict: expectation.verdict,
                expect: vec![expectation.clone()],
            })
            .collect();
        record.verdict = verdict;
        self.observer.on(&RunEvent::Finished { record, results: &self.results });
    }
}
