//! All threads' seconds, put together.

use std::{
    collections::VecDeque,
    fs, io,
    time::{Duration, SystemTime},
};

use rustix::param::page_size;
use stockade_model::{time::Time, units::format_span};

use super::{
    Begins, Load, Observer, Progress,
    worker::{Event, Tick},
};
use crate::{
    summary::{Generator, Second, Summary},
    tally::Tally,
    watch::Watched,
};

/// Puts together what threads tell.
pub(super) struct Collector {
    summary: Summary,
    warmup: Duration,
    /// By thread: the first second that it may still tell something of.
    telling: Vec<u64>,
    /// Seconds that some thread has still to tell, from the first of them on.
    open: VecDeque<Open>,
    /// Which second the first of them is.
    first: u64,
    requests: u64,
    failed: u64,
    watched: Watched,
    /// What the processors had done before.
    before: Option<Ticks>,
}

/// A second that some threads have told.
#[derive(Default)]
struct Open {
    tally: Tally,
    is_warmup: bool,
    cpu: Duration,
}

impl Collector {
    pub(super) fn new(load: &Load, threads: usize, clock_zero: SystemTime) -> Self {
        let summary = Summary {
            id: load.id.clone(),
            schedule: load.plan.to_string(),
            clock_zero,
            began: Time::ZERO,
            ended: Time::ZERO,
            measured: Tally::default(),
            warmup: (!load.plan.warmup().is_zero()).then(Tally::default),
            seconds: Vec::new(),
            dropped: 0,
            sent_after_end: 0,
            in_flight_at_end: 0,
            in_flight_max: 0,
            connections: 0,
            generator: Generator::default(),
        };
        Self {
            summary,
            warmup: load.plan.warmup(),
            telling: vec![0; threads],
            open: VecDeque::new(),
            first: 0,
            requests: 0,
            failed: 0,
            watched: Watched::new(threads),
            before: Ticks::now(),
        }
    }

    pub(super) fn take(&mut self, event: Event, observer: &mut dyn Observer) -> io::Result<()> {
        match event {
            Event::Begins(at) => {
                self.summary.began = at + self.warmup;
                observer.begins(Begins { clock_zero: self.summary.clock_zero, at: self.summary.began });
            }
            Event::Samples(samples) => {
                return samples.iter().try_for_each(|sample| observer.sample(sample));
            }
            Event::Sent { at, in_flight } => {
                self.summary.ended = self.summary.ended.max(at);
                self.summary.in_flight_at_end += in_flight as u64;
            }
            Event::Tick(tick) => self.tick(&tick, observer),
        }
        Ok(())
    }

    fn tick(&mut self, tick: &Tick, observer: &mut dyn Observer) {
        let summary = &mut self.summary;
        summary.measured.merge(&tick.measured);
        if let Some(warmup) = &mut summary.warmup {
            warmup.merge(&tick.warmup);
        }
        for (second, counts) in &tick.seconds {
            let second = usize::try_from(*second).unwrap_or(usize::MAX);
            if summary.seconds.len() <= second {
                summary.seconds.resize(second + 1, Second::default());
            }
            summary.seconds[second] += *counts;
        }
        summary.dropped += tick.dropped;
        summary.sent_after_end += tick.sent_after_end;
        summary.connections += tick.opened;
        self.watched.thread(tick.thread, tick.cpu, tick.lasted, &tick.lateness);
        self.complete(tick, observer);
    }

    fn complete(&mut self, tick: &Tick, observer: &mut dyn Observer) {
        let at = usize::try_from(tick.second.saturating_sub(self.first)).unwrap_or_default();
        while self.open.len() <= at {
            self.open.push_back(Open::default());
        }
        let open = &mut self.open[at];
        open.cpu += tick.cpu;
        open.is_warmup |= tick.warmup.requests() > 0;
        open.tally.merge(&tick.measured);
        open.tally.merge(&tick.warmup);
        self.telling[tick.thread] = if tick.is_last { u64::MAX } else { tick.second + 1 };
        while self.telling.iter().all(|second| *second > self.first) {
            let Some(open) = self.open.pop_front() else { return };
            self.first += 1;
            self.requests += open.tally.requests();
            self.failed += open.tally.failed();
            self.watched.second(open.cpu);
            self.watched.resident(resident());
            observer.second(&Progress {
                elapsed: Duration::from_secs(self.first),
                tally: &open.tally,
                is_warmup: open.is_warmup,
                requests: self.requests,
                failed: self.failed,
            });
        }
    }

    /// What it all came to, with the most requests that were under way at once.
    pub(super) fn summary(mut self, in_flight_max: usize, interrupted: bool) -> Summary {
        self.summary.in_flight_max = in_flight_max as u64;
        let seconds = (self.summary.ended - self.summary.began).as_secs();
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX).min(SECONDS_MAX);
        if self.summary.seconds.len() < seconds {
            // Seconds in which nothing happened are seconds, too.
            self.summary.seconds.resize(seconds, Second::default());
        }
        self.watched.resident(resident());
        self.watched.stolen(self.before.zip(Ticks::now()).and_then(|(before, now)| now.stolen_since(before)));
        self.summary.generator = self.watched.judge(&self.summary);
        if interrupted {
            let until = self.summary.measured.end.max(Some(self.summary.ended)).unwrap_or_default();
            let after = format_span(until - self.summary.began);
            self.summary.generator.reasons.push(format!("interrupted after {after}"));
        }
        self.summary
    }
}

/// How many bytes of this process are in memory, as Linux tells.
fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

/// How long this machine's processors have been whatever they were, as Linux tells.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    all: u64,
    /// Given to others by the host.
    stolen: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal, and what is in the first two once more.
    fn read(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.split_ascii_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    fn stolen_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.stolen.saturating_sub(before.stolen) as f64 / all as f64)
    }
}

/// No load is longer than 30 days.
const SECONDS_MAX: usize = 31 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_had_is_a_share_of_all() {
        let read = |stat: &str| Ticks::read(stat);
        let before = read("cpu  100 0 50 800 5 0 5 40 7 0\ncpu0 1 2 3").expect("ticks");
        let now = read("cpu  110 0 55 1660 5 0 10 160 9 0\n").expect("ticks");
        assert_eq!(before, Ticks { all: 1000, stolen: 40 });
        assert_eq!(now.stolen_since(before), Some(0.12));
        assert_eq!(now.stolen_since(now), None);
        assert_eq!((read(""), read("cpu 1 2 3 4 5 6 7"), read("cpu a 2 3 4 5 6 7 8")), (None, None, None));
    }
}
