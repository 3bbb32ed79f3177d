//! The time of day, and real time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The current time, RFC 3339 in UTC, in seconds.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a record says when it was made")]
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time of day, to compare it with that of another process on this machine.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the other process has no other clock in common")]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Real time, for processes and budgets.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "processes and budgets use real time")]
pub fn instant() -> Instant {
    Instant::now()
}
