//! Merges the seconds of all workers.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, SystemTime},
};

use stockade_model::{time::Time, units::format_span};
use stockade_net::proc::{CpuTicks, own_resident_bytes};

use super::{
    LoadProgress, LoadStart, LoadTest, Observer,
    health::HealthMonitor,
    worker::{WorkerEvent, WorkerSecond},
};
use crate::{
    summary::{GeneratorHealth, SecondCounts, Summary},
    tally::Tally,
};

/// Merges the events of all workers into a summary, and reports progress.
pub(super) struct Collector {
    summary: Summary,
    warmup: Duration,
    /// By thread: the next second that it will send.
    next_seconds: Vec<u64>,
    /// The seconds that some thread has not sent yet, in order.
    open: VecDeque<PendingSecond>,
    /// The number of the first open second.
    first_open: u64,
    requests: u64,
    failed: u64,
    health: HealthMonitor,
    /// The ticks of the processors at the start.
    ticks_at_start: Option<CpuTicks>,
}

/// A second that some threads have sent.
#[derive(Default)]
struct PendingSecond {
    tally: Tally,
    is_warmup: bool,
    cpu: Duration,
}

impl Collector {
    pub(super) fn new(load: &LoadTest, threads: usize, clock_zero: SystemTime) -> Self {
        let summary = Summary {
            id: load.id.clone(),
            schedule: load.plan.to_string(),
            clock_zero,
            measured_from: Time::ZERO,
            schedule_end: Time::ZERO,
            measured: Tally::default(),
            warmup: (!load.plan.warmup().is_zero()).then(Tally::default),
            seconds: Vec::new(),
            dropped: 0,
            sent_after_end: 0,
            in_flight_at_end: 0,
            in_flight_max: 0,
            connections: 0,
            generator: GeneratorHealth::default(),
        };
        Self {
            summary,
            warmup: load.plan.warmup(),
            next_seconds: vec![0; threads],
            open: VecDeque::new(),
            first_open: 0,
            requests: 0,
            failed: 0,
            health: HealthMonitor::new(threads),
            ticks_at_start: CpuTicks::now(),
        }
    }

    pub(super) fn collect(&mut self, event: WorkerEvent, observer: &mut dyn Observer) -> io::Result<()> {
        match event {
            WorkerEvent::Start(start) => {
                self.summary.measured_from = start + self.warmup;
                observer.on_start(LoadStart {
                    clock_zero: self.summary.clock_zero,
                    measured_from: self.summary.measured_from,
                });
            }
            WorkerEvent::Samples(samples) => {
                return samples.iter().try_for_each(|sample| observer.on_sample(sample));
            }
            WorkerEvent::AllSent { plan_end, in_flight } => {
                self.summary.schedule_end = self.summary.schedule_end.max(plan_end);
                self.summary.in_flight_at_end += in_flight as u64;
            }
            WorkerEvent::Second(second) => {
                self.add_counts(&second);
                self.add_second(&second);
                self.next_seconds[second.thread] = second.second + 1;
                self.report_seconds(observer);
            }
            WorkerEvent::End(rest) => {
                self.add_counts(&rest);
                self.next_seconds[rest.thread] = u64::MAX;
                self.report_seconds(observer);
            }
        }
        Ok(())
    }

    fn add_counts(&mut self, added: &WorkerSecond) {
        let summary = &mut self.summary;
        summary.measured.merge(&added.measured);
        if let Some(warmup) = &mut summary.warmup {
            warmup.merge(&added.warmup);
        }
        for (second, counts) in &added.seconds {
            let second = usize::try_from(*second).unwrap_or(usize::MAX);
            if summary.seconds.len() <= second {
                summary.seconds.resize(second + 1, SecondCounts::default());
            }
            summary.seconds[second] += *counts;
        }
        summary.dropped += added.dropped;
        summary.sent_after_end += added.sent_after_end;
        summary.connections += added.connections_opened;
        self.health.record_thread(added.thread, added.cpu, added.sending, &added.lateness);
    }

    fn add_second(&mut self, added: &WorkerSecond) {
        let at = usize::try_from(added.second.saturating_sub(self.first_open)).unwrap_or_default();
        while self.open.len() <= at {
            self.open.push_back(PendingSecond::default());
        }
        let open = &mut self.open[at];
        open.cpu += added.cpu;
        open.is_warmup |= added.warmup.requests() > 0;
        open.tally.merge(&added.measured);
        open.tally.merge(&added.warmup);
    }

    /// Reports the seconds that all threads have sent.
    fn report_seconds(&mut self, observer: &mut dyn Observer) {
        while self.next_seconds.iter().all(|next| *next > self.first_open) {
            let Some(open) = self.open.pop_front() else { return };
            self.first_open += 1;
            self.requests += open.tally.requests();
            self.failed += open.tally.failed();
            self.health.record_second(open.cpu);
            self.health.record_resident(own_resident_bytes());
            observer.on_second(&LoadProgress {
                elapsed: Duration::from_secs(self.first_open),
                tally: &open.tally,
                is_warmup: open.is_warmup,
                requests: self.requests,
                failed: self.failed,
            });
        }
    }

    pub(super) fn finish(mut self, in_flight_max: usize, was_cancelled: bool) -> Summary {
        self.summary.in_flight_max = in_flight_max as u64;
        let seconds = (self.summary.schedule_end - self.summary.measured_from).as_secs();
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX).min(SECONDS_MAX);
        if self.summary.seconds.len() < seconds {
            // Seconds at the end without requests.
            self.summary.seconds.resize(seconds, SecondCounts::default());
        }
        self.health.record_resident(own_resident_bytes());
        let ticks = self.ticks_at_start.zip(CpuTicks::now());
        self.health.record_steal(ticks.and_then(|(start, now)| now.stolen_share_since(start)));
        self.summary.generator = self.health.judge(&self.summary);
        if was_cancelled {
            let until = self.summary.measured.end.max(Some(self.summary.schedule_end)).unwrap_or_default();
            let after = format_span(until - self.summary.measured_from);
            self.summary.generator.invalid_reasons.push(format!("interrupted after {after}"));
        }
        self.summary
    }
}

/// More than the longest load, 30 days.
const SECONDS_MAX: usize = 31 * 86_400;
