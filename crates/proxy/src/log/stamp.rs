//! Times, as lines have them. A second is written once for all lines of it.

use std::{
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;

/// The second that was written last.
#[derive(Debug)]
pub(super) struct Stamp {
    second: Option<u64>,
    /// `2026-11-21T20:30:00`
    rfc3339: String,
    /// `21/Nov/2026:20:30:00 +0000`
    common: String,
}

impl Stamp {
    /// No second yet.
    pub(super) const NEW: Self = Self { second: None, rfc3339: String::new(), common: String::new() };

    /// `2026-11-21T20:30:00.123Z` (RFC 3339).
    pub(super) fn rfc3339(&mut self, line: &mut Vec<u8>, time: SystemTime) {
        let since = self.turn_to(time);
        line.extend_from_slice(self.rfc3339.as_bytes());
        // Writing into memory does not fail.
        let _ = write!(line, ".{:03}Z", since.subsec_millis());
    }

    /// `21/Nov/2026:20:30:00 +0000`, as Apache has it, in UTC.
    pub(super) fn common(&mut self, line: &mut Vec<u8>, time: SystemTime) {
        self.turn_to(time);
        line.extend_from_slice(self.common.as_bytes());
    }

    fn turn_to(&mut self, time: SystemTime) -> Duration {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != Some(since.as_secs()) {
            let second = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            let at = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
            self.rfc3339 = at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
            self.common = at.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
            self.second = Some(since.as_secs());
        }
        since
    }
}

/// Milliseconds with three decimals: `12.345`.
pub(super) fn milliseconds(line: &mut Vec<u8>, took: Duration) {
    let micros = took.as_micros();
    let _ = write!(line, "{}.{:03}", micros / 1_000, micros % 1_000);
}
