//! Merges the seconds of all workers.

use std::{io, time::SystemTime};

use stockade_model::proc::{CpuTicks, own_resident_bytes};
use stockade_model::time::Time;

use super::{
    LoadTest, Observer,
    fold::SummaryFold,
    health::HealthMonitor,
    seconds::{GeneratorEnd, GeneratorSecond, SecondMerger},
    worker::{WorkerEvent, WorkerSecond},
};
use crate::summary::{GeneratorHealth, Summary};

/// Merges the events of all workers into a summary, and reports progress.
pub(super) struct Collector {
    fold: SummaryFold,
    merger: SecondMerger,
    rest: GeneratorSecond,
    schedule_end: Time,
    in_flight_at_end: u64,
    health: HealthMonitor,
    /// The ticks of the processors at the start.
    ticks_at_start: Option<CpuTicks>,
}

impl Collector {
    pub(super) fn new(load: &LoadTest, threads: usize, clock_zero: SystemTime) -> Self {
        Self {
            fold: SummaryFold::new(load, clock_zero),
            merger: SecondMerger::new(threads),
            rest: GeneratorSecond::default(),
            schedule_end: Time::ZERO,
            in_flight_at_end: 0,
            health: HealthMonitor::new(threads, load.in_flight_limit()),
            ticks_at_start: CpuTicks::now(),
        }
    }

    pub(super) fn collect(&mut self, event: WorkerEvent, observer: &mut dyn Observer) -> io::Result<()> {
        match event {
            WorkerEvent::Start(start) => self.fold.start(start, observer),
            WorkerEvent::Samples(samples) => {
                return samples.iter().try_for_each(|sample| observer.on_sample(sample));
            }
            WorkerEvent::AllSent { plan_end, in_flight } => {
                self.schedule_end = self.schedule_end.max(plan_end);
                self.in_flight_at_end += in_flight as u64;
            }
            WorkerEvent::Second(second) => {
                self.record_health(&second);
                self.merger.add(second.thread, &second.counts);
                self.report_seconds(observer);
            }
            WorkerEvent::End(rest) => {
                self.record_health(&rest);
                self.rest.merge(&rest.counts);
                self.merger.end(rest.thread);
                self.report_seconds(observer);
            }
        }
        Ok(())
    }

    fn record_health(&mut self, second: &WorkerSecond) {
        self.health.record_thread(second.thread, second.counts.cpu, second.sending, &second.lateness);
    }

    /// Reports the seconds that all threads have sent.
    fn report_seconds(&mut self, observer: &mut dyn Observer) {
        while let Some(second) = self.merger.next_complete() {
            self.health.record_second(second.cpu);
            self.health.record_resident(own_resident_bytes());
            self.fold.second(&second, observer);
        }
    }

    pub(super) fn finish(mut self, in_flight_max: usize, was_cancelled: bool) -> (Summary, GeneratorEnd) {
        self.fold.add(&self.rest);
        let mut end = GeneratorEnd {
            rest: self.rest,
            schedule_end: self.schedule_end,
            in_flight_at_end: self.in_flight_at_end,
            in_flight_max: in_flight_max as u64,
            health: GeneratorHealth::default(),
            was_cancelled,
        };
        self.health.record_resident(own_resident_bytes());
        let ticks = self.ticks_at_start.zip(CpuTicks::now());
        self.health.record_steal(ticks.and_then(|(start, now)| now.stolen_share_since(start)));
        end.health = self.health.judge(self.fold.summary());
        let summary = self.fold.finish(&end);
        (summary, end)
    }
}
