//! An `HdrHistogram` interval log: one line per second, with the response times of the requests that ended in it.

use std::{io::Write, mem};

use stockade_model::units::milliseconds;
use stockade_record::histogram::Histogram;

use super::{
    encoder::{RunHeader, SampleEncoder},
    timestamp::TimestampFormatter,
};
use crate::sample::Sample;

/// Two seconds are open at once, since samples arrive in no order. A later sample counts in the older of them.
#[derive(Clone, Debug)]
pub struct HistogramLog {
    head: RunHeader,
    /// The second of the run that `older` covers.
    second: u64,
    older: Histogram,
    newer: Histogram,
}

impl HistogramLog {
    /// A log of this run.
    #[must_use]
    pub fn new(head: &RunHeader) -> Self {
        Self { head: head.clone(), second: 0, older: Histogram::new(), newer: Histogram::new() }
    }

    /// Writes the older second.
    fn write_second(&mut self, out: &mut Vec<u8>) {
        let times = mem::replace(&mut self.older, mem::take(&mut self.newer));
        let (max_ms, second) = (milliseconds(times.max().unwrap_or_default()), self.second);
        writeln!(out, "{second}.000,1.000,{max_ms:.3},{}", times.compressed())
            .expect("a vector takes every byte");
        self.second += 1;
    }
}

impl SampleEncoder for HistogramLog {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut clock = TimestampFormatter::new(self.head.clock_zero);
        let (since, day) =
            (clock.since_epoch(self.head.measured_from).as_secs_f64(), clock.text(self.head.measured_from));
        let heading = format!(
            "#[Histogram log format version 1.3]\n\
             #[StartTime: {since:.3} (seconds since epoch), {day}]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        );
        out.extend_from_slice(heading.as_bytes());
    }

    fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let second = (sample.timing.finished - self.head.measured_from).as_secs();
        while second > self.second + 1 {
            self.write_second(out);
        }
        let times = if second > self.second { &mut self.newer } else { &mut self.older };
        times.record(sample.timing.response_time());
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        while self.older.count() + self.newer.count() > 0 {
            self.write_second(out);
        }
    }
}
