//! The time formats of logs, in nanoseconds since 1970.

use jiff::{Timestamp, civil::DateTime, fmt::strtime, tz::TimeZone};

/// An example of the Common Log Format.
pub const COMMON: &str = "17/May/2015:10:05:03 +0000";

/// The year 5138 in seconds, and 1973 in milliseconds. Each smaller unit begins a thousand times higher.
const SECONDS_END: f64 = 1e11;

/// The zone of a minute that has none.
const NO_ZONE: &[u8] = b"?";

const SECOND_NS: u64 = 1_000_000_000;

/// The digits (`0`) and signs of two formats. A zero zone of RFC 3339 is `Z`, and decimals may precede it.
const COMMON_FORM: &[u8] = b"00/AAA/0000:00:00:00 +0000";
const RFC3339_FORM: &[u8] = b"0000-00-00T00:00:00";

/// Where the seconds of both forms begin.
const COMMON_SECONDS: usize = 18;
const RFC3339_SECONDS: usize = 17;

/// Parses times. Lines of one minute have the same text but for the seconds, so each minute is parsed once.
#[derive(Clone, Debug, Default)]
pub struct TimeParser {
    common: Minute,
    rfc3339: Minute,
    without_offset: u64,
}

/// The minute that was parsed last: its text before the seconds, its zone, and its start in nanoseconds since 1970.
#[derive(Clone, Debug, Default)]
struct Minute {
    text: [u8; COMMON_SECONDS],
    zone: [u8; 6],
    start: u64,
}

impl TimeParser {
    /// How many of the times that were read had no offset. They are taken as UTC.
    #[must_use]
    pub fn times_without_offset(&self) -> u64 {
        self.without_offset
    }

    /// Reads a time of the Common Log Format.
    pub fn parse_common(&mut self, text: &[u8]) -> Option<u64> {
        let (minute, rest) = text.split_at_checked(COMMON_SECONDS)?;
        let split = whole_seconds(rest).map(|(seconds, zone)| (seconds * SECOND_NS, zone));
        if let Some((offset, zone)) = split
            && self.common.is(minute, zone)
        {
            return Some(self.common.start + offset);
        }
        let at = parse_common(str::from_utf8(text).ok()?)?;
        if let Some((offset, zone)) = split
            && text.len() == COMMON_FORM.len()
            && has_form(text, COMMON_FORM)
        {
            self.common.set(minute, zone, at, offset);
        }
        Some(at)
    }

    /// Reads a time in any format of JSON lines, or returns the remedy. A date and a time without an offset are in UTC.
    pub fn parse_any(&mut self, text: &str) -> Result<u64, &'static str> {
        let text = text.trim();
        let split = text.as_bytes().split_at_checked(RFC3339_SECONDS);
        let split = split.and_then(|(minute, rest)| {
            let (offset, zone) = seconds_and_decimals(rest)?;
            let zone = if zone.is_empty() { NO_ZONE } else { zone };
            (has_form(text.as_bytes(), RFC3339_FORM) && zone.len() <= 6).then_some((minute, offset, zone))
        });
        if let Some((minute, offset, zone)) = split
            && self.rfc3339.is(minute, zone)
        {
            self.without_offset += u64::from(zone == NO_ZONE);
            return Ok(self.rfc3339.start + offset);
        }
        if let Ok(number) = text.parse::<f64>() {
            return from_unix_time(number);
        }
        let mut at = text.parse().ok().and_then(nanos);
        if at.is_none() {
            at = text.parse().ok().and_then(utc_nanos);
            self.without_offset += u64::from(at.is_some());
        }
        if let Some(at) = at {
            if let Some((minute, offset, zone)) = split {
                self.rfc3339.set(minute, zone, at, offset);
            }
            return Ok(at);
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let at = self.parse_common(bare.as_bytes());
        at.ok_or("log it as RFC 3339 with an offset (2015-05-17T10:05:03Z), or as seconds since 1970")
    }
}

impl Minute {
    fn is(&self, text: &[u8], zone: &[u8]) -> bool {
        // A zone is never empty, so that nothing equals the default.
        !zone.is_empty()
            && self.text[..text.len()] == *text
            && self.zone.starts_with(zone)
            && self.zone[zone.len()..].iter().all(|byte| *byte == 0)
    }

    /// Stores the minute of a time that is `offset` nanoseconds after its start, unless it started before 1970 or ends after the last
    /// nanosecond that a number has.
    fn set(&mut self, text: &[u8], zone: &[u8], at: u64, offset: u64) {
        let start = at.checked_sub(offset).filter(|start| start.checked_add(60 * SECOND_NS).is_some());
        if let Some(start) = start {
            *self = Self { start, ..Self::default() };
            self.text[..text.len()].copy_from_slice(text);
            self.zone[..zone.len()].copy_from_slice(zone);
        }
    }
}

pub(crate) fn has_form(text: &[u8], form: &[u8]) -> bool {
    let is_kind = |(byte, kind): (&u8, &u8)| match kind {
        b'0' => byte.is_ascii_digit(),
        b'A' => byte.is_ascii_alphabetic(),
        b'+' => matches!(byte, b'+' | b'-'),
        kind => byte == kind,
    };
    text.len() >= form.len() && text.iter().zip(form).all(is_kind)
}

/// Two digits below 60, and the text after them.
fn whole_seconds(text: &[u8]) -> Option<(u64, &[u8])> {
    let (&[tens, ones], rest) = text.split_first_chunk()?;
    let is_second = matches!(tens, b'0'..=b'5') && ones.is_ascii_digit();
    is_second.then(|| (u64::from(tens - b'0') * 10 + u64::from(ones - b'0'), rest))
}

/// Seconds with up to nine decimals in nanoseconds, and the zone after them.
fn seconds_and_decimals(text: &[u8]) -> Option<(u64, &[u8])> {
    let (seconds, rest) = whole_seconds(text)?;
    let Some(rest) = rest.strip_prefix(b".") else { return Some((seconds * SECOND_NS, rest)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (decimals, zone) = rest.split_at(digits);
    if !(1..=9).contains(&digits) {
        return None;
    }
    let fold = |value, place| value * 10 + decimals.get(place).map_or(0, |digit| u64::from(digit - b'0'));
    Some((seconds * SECOND_NS + (0..9).fold(0, fold), zone))
}

fn parse_common(text: &str) -> Option<u64> {
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    nanos(time.to_timestamp().ok()?)
}

/// Reads a number since 1970, whose size says whether it is in seconds, milliseconds, microseconds or nanoseconds. Rounds to
/// microseconds, the precision of a float.
pub fn from_unix_time(number: f64) -> Result<u64, &'static str> {
    let mut seconds = number;
    for _unit in ["ms", "us", "ns"] {
        if seconds >= SECONDS_END {
            seconds /= 1e3;
        }
    }
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

fn utc_nanos(time: DateTime) -> Option<u64> {
    nanos(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(text: &str) -> Option<u64> {
        text.parse().ok().and_then(nanos).or_else(|| text.parse().ok().and_then(utc_nanos))
    }

    #[test]
    fn numbers_say_their_unit_by_their_size() {
        let mut times = TimeParser::default();
        for number in ["1431857103.25", "1431857103250", "1431857103250000", "1431857103250000000"] {
            assert_eq!(times.parse_any(number), Ok(1_431_857_103_250_000_000), "{number}");
        }
        assert!(
            times.parse_any("-1").is_err()
                && times.parse_any("1e20").is_err()
                && times.parse_any("nan").is_err()
        );
        assert_eq!(times.times_without_offset(), 0);
    }

    #[test]
    fn times_without_offset_are_utc_and_counted() {
        let mut times = TimeParser::default();
        for text in ["2015-05-17T10:05:03", "2015-05-17 10:05:03", "2015-05-17T10:05:03.000"] {
            assert_eq!(times.parse_any(text), Ok(1_431_857_103_000_000_000), "{text}");
        }
        assert_eq!(times.parse_any("2015-05-17T10:05:03Z"), Ok(1_431_857_103_000_000_000));
        assert_eq!(times.times_without_offset(), 3);
    }

    #[test]
    fn a_parsed_minute_gives_the_other_times_of_the_minute() {
        let mut times = TimeParser::default();
        for text in [
            "17/May/2015:10:05:03 +0000",
            "17/May/2015:10:05:59 +0000",
            "17/May/2015:10:05:60 +0000",
            "17/May/2015:10:05:03 +0100",
            "17/May/2015:10:05:03",
            "17/May/2015:10:05:03 +01000",
            "17/may/2015:10:05:04 +0100",
            "01/Jan/1970:00:00:30 +0000",
            "01/Jan/1970:00:00:10 +0000",
            "01/Jan/1970:00:59:30 +0100",
            "21/Jul/2554:23:34:00 +0000",
            "21/Jul/2554:23:34:59 +0000",
        ] {
            assert_eq!(times.parse_common(text.as_bytes()), parse_common(text), "{text}");
        }
        for text in [
            "2015-05-17T10:05:03Z",
            "2015-05-17T10:05:04.5Z",
            "2015-05-17T10:05:04.123456789Z",
            "2015-05-17T10:05:04.1234567891Z",
            "2015-05-17T10:05:04.Z",
            "2015-05-17T10:05:60Z",
            "2015-05-17T10:05:03",
            "2015-05-17T10:05:05.25",
            "2015-05-17 10:05:06",
            "2015-05-17T10:05:03+02:00",
            "2015-05-17T10:05:03+0200",
            "2015-05-17T10:05:04+02:00",
            "2015-05-17T10:05:04+02",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00Z",
            "2554-07-21T23:34:00Z",
            "2554-07-21T23:34:59Z",
        ] {
            assert_eq!(times.parse_any(text).ok(), naive(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsed_minutes_do_not_change_a_time(
            common in prop::collection::vec("(17/May/2015:10:05:|01/Jan/1970:00:00:)[0-6][0-9] [+-]0[01][03]0", 1..8),
            rfc3339 in prop::collection::vec("2015-05-17T10:05:[0-6][0-9](\\.[0-9]{0,10})?(Z|z|[+-]0[01](:?00)?)?", 1..8),
        ) {
            let mut times = TimeParser::default();
            for text in common {
                prop_assert_eq!(times.parse_common(text.as_bytes()), parse_common(&text), "{}", text);
            }
            for text in rfc3339 {
                prop_assert_eq!(times.parse_any(&text).ok(), naive(&text), "{}", text);
            }
        }
    }
}
