//! Times as logs have them, in nanoseconds since 1970.

use jiff::{Timestamp, fmt::strtime};

/// As in `[17/May/2015:10:05:03 +0000]`, without the brackets.
pub(super) const COMMON: &str = "17/May/2015:10:05:03 +0000";

/// Seconds from here on would be after the year 5138: they are milliseconds or less.
const SECONDS_MAX: f64 = 1e11;

/// Reads a time of the Common Log Format.
pub(super) fn common(text: &str) -> Option<u64> {
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    nanos(time.to_timestamp().ok()?)
}

/// Reads a time in whatever way JSON has it; else what to write instead.
pub(super) fn any(text: &str) -> Result<u64, &'static str> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return seconds(number);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let time = text.parse().ok().and_then(nanos).or_else(|| common(bare));
    time.ok_or("log it as RFC 3339 with an offset (2015-05-17T10:05:03Z), or as seconds since 1970")
}

/// Seconds since 1970, to the microsecond: floating point tells no more.
pub(super) fn seconds(seconds: f64) -> Result<u64, &'static str> {
    if !(0.0..SECONDS_MAX).contains(&seconds) {
        return Err("log it in seconds since 1970, with decimals for less");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let micros = (seconds * 1e6).round() as u64;
    micros.checked_mul(1_000).ok_or("log a time before the year 2554")
}

fn nanos(time: Timestamp) -> Option<u64> {
    time.as_nanosecond().try_into().ok()
}
