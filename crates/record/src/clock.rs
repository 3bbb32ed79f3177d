//! The time of day, and real time.

use std::time::Instant;

/// The current time, RFC 3339 in UTC, in seconds.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a record says when it was made")]
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Real time, for processes and budgets.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "processes and budgets use real time")]
pub fn instant() -> Instant {
    Instant::now()
}
