//! A load as the record of a run with one arm, so that every report, comparison, history and page of a run takes it.

use std::{collections::BTreeMap, time::Duration};

use stockade_model::{
    outcome::Outcomes,
    proc::own_resident_bytes,
    units::{format_count, milliseconds},
};

use stockade_record::{
    judge::LOAD_ARM,
    metrics::{Fold, Results},
    progress::{Measuring, RunObserver, RunProgress},
    record::{
        Arm, CacheFigures, Calls, Expectation, Extremes, HttpFigures, Hypothesis, Interval, LoadFigures,
        OpenFigures, Record, Role, Run, StatsProvider, Times, Usage, Verdict,
    },
    report,
    storage::{Recorder, StorageError},
};

use crate::{
    generator::{LoadProgress, LoadTest},
    plan::Plan,
    report::REPORT_OUTCOMES,
    summary::Summary,
    tally::Tally,
};

/// The record of a load in progress.
pub struct LoadRecord<'a> {
    record: Record,
    results: Results,
    fold: Fold,
    plan: Plan,
    /// Requests that ended, those of the warm-up too.
    ended: u64,
    /// False: agents send the load.
    is_sent_here: bool,
    observer: Box<dyn RunObserver + 'a>,
    /// `None`: the record is not kept, or could not be written.
    recorder: Option<Recorder>,
    failed: Option<StorageError>,
}

impl<'a> LoadRecord<'a> {
    /// `head`: the record without test and arm. `recorder`: the place of the record, if it is kept.
    #[must_use]
    pub fn start(
        load: &LoadTest,
        head: Record,
        is_sent_here: bool,
        recorder: Option<Recorder>,
        mut observer: Box<dyn RunObserver + 'a>,
    ) -> Self {
        let lasts = measured_time(&load.plan);
        let results = Results::default();
        let fold = results.fold(lasts);
        let record = Record {
            tests: vec![String::new()],
            arms: vec![Arm { name: LOAD_ARM.to_owned(), cache: None }],
            ..head
        };
        observer.on(&RunProgress::Begin { steps: 1 });
        let requests = load.plan.requests().filter(|_| lasts.is_none());
        let measuring = Measuring { test: "", arm: LOAD_ARM, repeat: 1, lasts, requests, stages: &[] };
        observer.on(&RunProgress::Measuring { measuring, record: &record, results: &results });
        let mut started = Self {
            record,
            results,
            fold,
            plan: load.plan.clone(),
            ended: 0,
            is_sent_here,
            observer,
            recorder,
            failed: None,
        };
        started.write(|recorder, record| recorder.checkpoint(record));
        started
    }

    /// Adds a second of the measured part.
    pub fn second(&mut self, progress: &LoadProgress<'_>) {
        let warmup = self.plan.warmup();
        let end = progress.elapsed().saturating_sub(warmup);
        self.ended += progress.tally.requests();
        let tally = progress.tally;
        if progress.is_warmup() || end.is_zero() {
            let left = warmup.saturating_sub(progress.elapsed());
            return self.observer.on(&RunProgress::WarmingUp { requests: tally.requests(), left });
        }
        let memory = self.is_sent_here.then(own_resident_bytes).flatten();
        let usage = memory.map(|rss_bytes| Usage { rss_bytes, cpu: progress.second.cpu.as_secs_f64() });
        let interval = Interval {
            arm: LOAD_ARM.to_owned(),
            repeat: 1,
            second: end.as_secs().saturating_sub(1),
            outcomes: tally.request_outcomes(),
            retries: Some(tally.retries),
            dropped: Some(progress.second.dropped),
            usage: usage.map(|usage| (Role::Load, usage)).into_iter().collect(),
            status_codes: tally.status_codes.clone(),
            errors: tally.failed_by_class().into_iter().collect(),
            times: tally.recorded_times(),
            ..Interval::default()
        };
        self.fold.add(&interval);
        self.write(|recorder, _| recorder.second(&interval).and_then(|()| recorder.flush()));
        let share = match (measured_time(&self.plan), self.plan.requests()) {
            (Some(lasts), _) => end.as_secs_f64() / lasts.as_secs_f64(),
            (None, Some(requests)) => self.ended as f64 / requests.max(1) as f64,
            (None, None) => 0.0,
        };
        let from = progress.elapsed().saturating_sub(Duration::from_secs(1));
        let asked = self.plan.expected_requests(from, progress.elapsed());
        self.observer.on(&RunProgress::Second { interval: &interval, share: share.min(1.0), asked });
    }

    /// Completes the record with its reports.
    ///
    /// # Errors
    /// The first one of its files. The load is not affected.
    pub fn finish(
        self,
        summary: &Summary,
        expectations: &[Expectation],
        verdict: Verdict,
        was_cancelled: bool,
    ) -> Result<(), StorageError> {
        let Self { mut record, mut results, fold, plan, recorder, failed, mut observer, .. } = self;
        let users = Some(plan.connections_max()).filter(|connections| *connections > 0);
        let run = summary.run_record(users);
        results.add(&run, fold);
        record.runs.push(run);
        record.interrupted = was_cancelled;
        record.in_progress = false;
        let hypotheses = expectations.iter().map(|expectation| Hypothesis {
            text: expectation.expr.clone(),
            verdict: expectation.verdict,
            expect: vec![expectation.clone()],
        });
        record.hypotheses = hypotheses.collect();
        record.verdict = verdict;
        let written = recorder.map_or(Ok(()), |recorder| report::write(&recorder, &record, &results));
        observer.on(&RunProgress::Finished { record: &record, results: &results });
        failed.map_or(written, Err)
    }

    /// Nothing is written after an error.
    fn write(&mut self, to_disk: impl FnOnce(&mut Recorder, &Record) -> Result<(), StorageError>) {
        let written = self.recorder.as_mut().map_or(Ok(()), |recorder| to_disk(recorder, &self.record));
        if let Err(error) = written {
            self.recorder = None;
            self.failed = Some(error);
        }
    }
}

/// Without the warm-up; `None`: the load ends with its requests.
fn measured_time(plan: &Plan) -> Option<Duration> {
    plan.duration().map(|lasts| lasts.saturating_sub(plan.warmup()))
}

impl Summary {
    /// The record of the measured part, whose cache reports nothing but the outcomes in its headers.
    pub(crate) fn run_record(&self, users: Option<usize>) -> Run {
        let tally = &self.measured;
        let duration = self.schedule_end - self.measured_from;
        let http = HttpFigures { users, stats_provider: StatsProvider::Unavailable, ..self.http_figures() };
        Run {
            test: String::new(),
            arm: LOAD_ARM.to_owned(),
            repeat: 1,
            load: LoadFigures::Open(self.open_figures(duration)),
            whole_ms_sum: None,
            outcomes: tally.request_outcomes(),
            bytes_in: tally.bytes_in,
            service_ms_sum: milliseconds(tally.service_sum()),
            stores_skipped: 0,
            stores_dropped: 0,
            episodes: 0,
            cache: CacheFigures::default(),
            counters: BTreeMap::new(),
            errors: tally.errors_by_class(),
            stages: Vec::new(),
            events: Vec::new(),
            http: Some(http),
        }
    }

    /// The figures of a load of this duration. Its documents, strategy and calls are those of a target.
    #[must_use]
    pub fn open_figures(&self, duration: Duration) -> OpenFigures {
        let tally = &self.measured;
        let response = &tally.times_of_successes.response;
        let extremes = response.min().zip(response.max());
        let extremes =
            extremes.map(|(min, max)| Extremes { min_ms: milliseconds(min), max_ms: milliseconds(max) });
        OpenFigures {
            strategy: String::new(),
            schedule: self.schedule.clone(),
            duration_ms: milliseconds(duration),
            documents: None,
            distinct_keys: None,
            finished_ms: milliseconds(tally.end.map_or(Duration::ZERO, |end| end - self.measured_from)),
            calls: Calls::default(),
            waiters: 0,
            response: extremes,
            retries: tally.retries,
            dropped: self.dropped,
            in_flight_max: usize::try_from(self.in_flight_max).unwrap_or(usize::MAX),
            source_concurrent_max: None,
            audit: tally.answers.audit(),
        }
    }

    /// The figures of a load over HTTP, with the reasons against them.
    ///
    /// Lateness is a part of the response times, and known: it is a note, since each claim is judged with it.
    #[must_use]
    pub fn http_figures(&self) -> HttpFigures {
        let (tally, generator) = (&self.measured, &self.generator);
        let late = generator.late.clone();
        let is_other = |reason: &&String| Some(*reason) != late.as_ref();
        let invalid: Vec<_> = generator.invalid_reasons.iter().filter(is_other).cloned().collect();
        let of_times = generator.time_reason_count.saturating_sub(usize::from(late.is_some()));
        let notes = [
            late.clone(),
            note_of_unknown_freshness(tally.hits_of_unknown_freshness),
            note_of_unreported(&tally.request_outcomes()),
        ];
        HttpFigures {
            agents: self.agents.clone(),
            status_codes: tally.status_codes.clone(),
            connections: self.connections,
            in_flight_at_end: self.in_flight_at_end,
            sent_after_end: self.sent_after_end,
            attack_ms: milliseconds(self.attack_duration()),
            wait_ms: milliseconds(self.wait_duration()),
            wire_bytes_in: tally.wire_bytes_in,
            steal: generator.steal,
            hits_of_unknown_freshness: tally.hits_of_unknown_freshness,
            late,
            has_invalid_counts: invalid.len() > of_times,
            invalid,
            notes: notes.into_iter().flatten().collect(),
            ..HttpFigures::default()
        }
    }
}

impl Tally {
    /// Times of successes, and the send lag of all requests.
    #[must_use]
    pub fn recorded_times(&self) -> Times {
        Times { send_lag: self.times.send_lag.clone(), ..self.times_of_successes.clone() }
    }

    /// The outcomes of all requests. Requests without a successful response are errors.
    #[must_use]
    pub fn request_outcomes(&self) -> Outcomes {
        let failed = self.requests() - self.successes;
        // A cache may report a miss with a status of 503: the request is an error, and counts once.
        let reported = Outcomes { error: 0, unreported: 0, ..self.outcomes_of_successes };
        let unreported = self.successes.saturating_sub(reported.requests());
        Outcomes { error: failed, unreported, ..reported }
    }

    /// The sum of the service times of all requests, failed ones included.
    #[must_use]
    pub fn service_sum(&self) -> Duration {
        self.response_sum.saturating_sub(self.send_lag_sum)
    }

    /// Failed requests by the name of the class of their failure, or by their status.
    #[must_use]
    pub fn errors_by_class(&self) -> BTreeMap<String, u64> {
        let failures = self.failures.iter().map(|(class, count)| ((*class).to_owned(), *count));
        failures.chain(self.failed_by_status()).collect()
    }
}

/// The answers without an outcome, and how to have it.
fn note_of_unreported(outcomes: &Outcomes) -> Option<String> {
    (outcomes.unreported > 0).then(|| {
        format!(
            "{} of {} answers do not state what a cache did, so their outcomes are absent; {REPORT_OUTCOMES}",
            format_count(outcomes.unreported),
            format_count(outcomes.requests() - outcomes.error),
        )
    })
}

/// Why freshness is absent from the figures.
fn note_of_unknown_freshness(hits: u64) -> Option<String> {
    (hits > 0).then(|| {
        format!(
            "{} hits may be stale: their responses have no `Cache-Status` with `ttl`, no `X-Cache-Status`, and no `X-Cache` with \
             `Age` and `max-age`; hits and hit ratio are absent",
            format_count(hits)
        )
    })
}
