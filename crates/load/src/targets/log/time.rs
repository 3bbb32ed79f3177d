//! The time formats of logs, in nanoseconds since 1970.

use jiff::{Timestamp, fmt::strtime};

/// An example of the Common Log Format.
pub(super) const COMMON: &str = "17/May/2015:10:05:03 +0000";

/// The year 5138: larger numbers are in milliseconds or smaller units.
const SECONDS_END: f64 = 1e11;

/// Reads a time of the Common Log Format.
pub(super) fn parse_common(text: &str) -> Option<u64> {
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    nanos(time.to_timestamp().ok()?)
}

/// Reads a time in any format of JSON lines, or returns the remedy.
pub(super) fn parse_any(text: &str) -> Result<u64, &'static str> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return from_seconds(number);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let time = text.parse().ok().and_then(nanos).or_else(|| parse_common(bare));
    time.ok_or("log it as RFC 3339 with an offset (2015-05-17T10:05:03Z), or as seconds since 1970")
}

/// Rounds to microseconds, the precision of a float.
pub(super) fn from_seconds(seconds: f64) -> Result<u64, &'static str> {
    if !(0.0..SECONDS_END).contains(&seconds) {
        return Err("log it in seconds since 1970, with decimals for less");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let micros = (seconds * 1e6).round() as u64;
    micros.checked_mul(1_000).ok_or("log a time before the year 2554")
}

fn nanos(time: Timestamp) -> Option<u64> {
    time.as_nanosecond().try_into().ok()
}
