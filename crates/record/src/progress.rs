//! The progress of a run or a load, for live views, pages and exporters.

use std::time::Duration;

use crate::{
    metrics::Results,
    record::{Interval, OriginStage, Record},
};

/// Follows a run.
pub trait RunObserver {
    fn on(&mut self, progress: &RunProgress<'_>);
}

/// A step of a run, or one more second of it.
#[derive(Clone, Copy, Debug)]
pub enum RunProgress<'a> {
    /// `steps` checks or measurements follow.
    Begin { steps: usize },
    /// The next setup that is started once, before any load.
    Checking { test: &'a str, arm: &'a str },
    /// The record so far, between measurements and at most once a second.
    Record { record: &'a Record, results: &'a Results },
    /// The next measurement, and the record before it.
    Measuring { measuring: Measuring<'a>, record: &'a Record, results: &'a Results },
    /// One more second before the measured part: its requests do not count. `left`: until the measured part.
    WarmingUp { requests: u64, left: Duration },
    /// One more second of the measurement is on disk. `share`: the finished part of it, from 0 to 1. `asked`: the requests that were due
    /// in it, if known.
    Second { interval: &'a Interval, share: f64, asked: Option<f64> },
    /// Another repeat follows, since `open_comparisons` comparisons are open.
    Continuing { steps: usize, open_comparisons: usize },
    /// The record is complete and on disk.
    Finished { record: &'a Record, results: &'a Results },
}

/// A measurement that begins.
#[derive(Clone, Copy, Debug)]
pub struct Measuring<'a> {
    pub test: &'a str,
    pub arm: &'a str,
    pub repeat: u32,
    /// `None`: a burst, or it ends with its requests.
    pub lasts: Option<Duration>,
    /// The requests with which it ends; `None`: a burst, or it ends after its time.
    pub requests: Option<u64>,
    /// Of its origin, by a schedule.
    pub stages: &'a [OriginStage],
}

/// Every observer, in order.
impl RunObserver for Vec<Box<dyn RunObserver + '_>> {
    fn on(&mut self, progress: &RunProgress<'_>) {
        self.iter_mut().for_each(|observer| observer.on(progress));
    }
}
