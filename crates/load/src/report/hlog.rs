//! A log of intervals, as the tools of HDR histograms read it: a line a second, with all response times of the requests that
//! ended in it.

use std::{io::Write, mem};

use stockade_model::{histogram::Histogram, units::milliseconds};

use super::{Head, Stream, clock::Clock};
use crate::sample::Sample;

/// Two seconds are open at once: samples may come in another order than they ended in. What comes later still is
/// counted in the older of them.
#[derive(Clone, Debug)]
pub struct Hlog {
    head: Head,
    /// Which second of the run the older one is.
    second: u64,
    older: Histogram,
    newer: Histogram,
}

impl Hlog {
    /// Of this run.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        Self { head: head.clone(), second: 0, older: Histogram::new(), newer: Histogram::new() }
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let times = mem::replace(&mut self.older, mem::take(&mut self.newer));
        let (max_ms, second) = (milliseconds(times.max().unwrap_or_default()), self.second);
        writeln!(out, "{second}.000,1.000,{max_ms:.3},{}", times.compressed())
            .expect("a vector takes every byte");
        self.second += 1;
    }
}

impl Stream for Hlog {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut clock = Clock::new(self.head.clock_zero);
        let (since, day) = (clock.since_epoch(self.head.began).as_secs_f64(), clock.text(self.head.began));
        let heading = format!(
            "#[Histogram log format version 1.3]\n\
             #[StartTime: {since:.3} (seconds since epoch), {day}]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        );
        out.extend_from_slice(heading.as_bytes());
    }

    fn sample(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let second = (sample.finished - self.head.began).as_secs();
        while second > self.second + 1 {
            self.close(out);
        }
        let times = if second > self.second { &mut self.newer } else { &mut self.older };
        times.record(sample.response_time());
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        while self.older.count() + self.newer.count() > 0 {
            self.close(out);
        }
    }
}
