//! Times of a run as times of day.

use std::{
    io::Write,
    time::{Duration, SystemTime},
};

use stockade_model::time::Time;

/// Formats times of a clock in RFC 3339, to the nanosecond.
///
/// It caches the text of the last second, since consecutive times are close.
#[derive(Clone, Debug)]
pub(super) struct TimestampFormatter {
    /// The clock's zero since 1970.
    zero: Duration,
    second: u64,
    text: String,
}

impl TimestampFormatter {
    /// `zero` is the time of day at the clock's zero; a time before 1970 counts as 1970.
    pub(super) fn new(zero: SystemTime) -> Self {
        let zero = zero.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { zero, second: u64::MAX, text: String::new() }
    }

    /// Since 1970.
    pub(super) fn since_epoch(&self, time: Time) -> Duration {
        self.zero + time.elapsed()
    }

    /// Appends `2026-03-09T07:25:03.000000042Z`, without trailing zeros.
    pub(super) fn push(&mut self, time: Time, out: &mut Vec<u8>) {
        let since = self.since_epoch(time);
        if since.as_secs() != self.second {
            self.second = since.as_secs();
            let second = i64::try_from(self.second).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
            self.text = second.unwrap_or(jiff::Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S").to_string();
        }
        out.extend_from_slice(self.text.as_bytes());
        match since.subsec_nanos() {
            0 => {}
            nanos => {
                write!(out, ".{nanos:09}").expect("a vector takes every byte");
                while out.last() == Some(&b'0') {
                    out.pop();
                }
            }
        }
        out.push(b'Z');
    }

    /// The same as a text of its own.
    pub(super) fn text(&mut self, time: Time) -> String {
        let mut out = Vec::new();
        self.push(time, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_to_the_nanosecond() {
        let mut clock = TimestampFormatter::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_773_041_103));
        for (nanos, text) in [
            (0, "2026-03-09T07:25:03Z"),
            (42, "2026-03-09T07:25:03.000000042Z"),
            (500_000_000, "2026-03-09T07:25:03.5Z"),
            (57_000_000_010, "2026-03-09T07:26:00.00000001Z"),
            (999_999_999, "2026-03-09T07:25:03.999999999Z"),
            (u64::MAX, "2610-09-28T06:59:36.709551615Z"),
        ] {
            assert_eq!(clock.text(Time::from_nanos(nanos)), text);
        }
        assert_eq!(
            TimestampFormatter::new(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).text(Time::ZERO),
            "1970-01-01T00:00:00Z"
        );
    }
}
