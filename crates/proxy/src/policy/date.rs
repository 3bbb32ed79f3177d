//! HTTP dates (RFC 9110, 5.6.7): three formats are read, one is written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::civil::DateTime;

const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
const DAYS: [&[u8]; 7] =
    [b"monday", b"tuesday", b"wednesday", b"thursday", b"friday", b"saturday", b"sunday"];

/// `None` for other formats, invalid days and dates before 1970. Letters may have either case, the day name may be
/// wrong, and two-digit years are 1970 to 2069.
#[must_use]
pub fn parse(value: &[u8]) -> Option<SystemTime> {
    let value = stockade_http::field::trim(value);
    let (day, rest) = split_day_name(value)?;
    let parts = match (day, rest) {
        // 06 Nov 1994 08:49:37 GMT
        (DayName::Short, [b',', b' ', d1, d2, b' ', m1, m2, m3, b' ', year @ ..]) if year.len() == 17 => {
            (number(&year[..4])?, [*m1, *m2, *m3], number(&[*d1, *d2])?, zoned(&year[4..])?)
        }
        // 06-Nov-94 08:49:37 GMT
        (DayName::Long, [b',', b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, rest @ ..]) => {
            let year = number(&[*y1, *y2])?;
            let year = if year < 70 { 2000 + year } else { 1900 + year };
            (year, [*m1, *m2, *m3], number(&[*d1, *d2])?, zoned(rest)?)
        }
        // Nov  6 08:49:37 1994
        (DayName::Short, [b' ', m1, m2, m3, b' ', d1, d2, rest @ ..]) if rest.len() == 14 => {
            let day = if *d1 == b' ' { number(&[*d2])? } else { number(&[*d1, *d2])? };
            let (time, year) = rest.split_at(9);
            (number(year.strip_prefix(b" ")?)?, [*m1, *m2, *m3], day, time)
        }
        _ => return None,
    };
    moment(parts)
}

/// The date of a field with exactly one line.
#[must_use]
pub fn of(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut lines = headers.get_all(name).into_iter();
    let first = lines.next()?;
    if lines.next().is_some() { None } else { parse(first.as_bytes()) }
}

/// Clamped to the years 1970 to 9999.
#[must_use]
pub fn format(moment: SystemTime) -> HeaderValue {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST);
    let text = httpdate::fmt_http_date(UNIX_EPOCH + since);
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

pub(crate) fn epoch_seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

enum DayName {
    Short,
    Long,
}

fn split_day_name(value: &[u8]) -> Option<(DayName, &[u8])> {
    let end = value.iter().position(|byte| !byte.is_ascii_alphabetic())?;
    let (name, rest) = value.split_at(end);
    if DAYS.iter().any(|day| name.eq_ignore_ascii_case(&day[..3])) {
        return Some((DayName::Short, rest));
    }
    DAYS.iter().any(|day| name.eq_ignore_ascii_case(day)).then_some((DayName::Long, rest))
}

/// ` 08:49:37` of ` 08:49:37 GMT`.
fn zoned(rest: &[u8]) -> Option<&[u8]> {
    let (time, zone) = rest.split_at_checked(9)?;
    zone.eq_ignore_ascii_case(b" GMT").then_some(time)
}

fn number(digits: &[u8]) -> Option<i16> {
    let number = stockade_http::field::parse_u64(digits)?;
    i16::try_from(number).ok()
}

fn moment((year, month, day, time): (i16, [u8; 3], i16, &[u8])) -> Option<SystemTime> {
    let &[b' ', h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let month = MONTHS.iter().position(|name| month.eq_ignore_ascii_case(*name))?;
    let small = |number: i16| i8::try_from(number).ok();
    let (hour, minute) = (small(number(&[h1, h2])?)?, small(number(&[m1, m2])?)?);
    let second = match small(number(&[s1, s2])?)? {
        // Leap second.
        60 => 59,
        second => second,
    };
    let date =
        DateTime::new(year, i8::try_from(month).ok()? + 1, small(day)?, hour, minute, second, 0).ok()?;
    // A difference: the timestamps of jiff end 26 hours before the last date, which means "never".
    let since = date.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs();
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(since).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "the type that `parse` returns")]
    fn at(seconds: u64) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// http-tests: `expires-parse`, and more.
    #[test]
    fn formats() {
        let august = at(2_544_400_878);
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", at(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", at(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", at(784_111_777)),
            (" Sun, 06 Nov 1994 08:49:37 GMT ", at(784_111_777)),
            ("Thu, 18 Aug 2050 02:01:18 GMT", august),
            ("Thursday, 18-Aug-50 02:01:18 GMT", august),
            ("THU, 18 Aug 2050 02:01:18 GMT", august),
            ("Thu, 18 AUG 2050 02:01:18 GMT", august),
            ("Thu, 18 Aug 2050 02:01:18 gMT", august),
            ("Fri, 18 Aug 2050 02:01:18 GMT", august),
            ("Thu Aug  8 02:01:18 2050", at(2_543_536_878)),
            ("Tue, 19 Jan 2038 14:14:08 GMT", at(2_147_523_248)),
            ("Sun, 21 Nov 2286 04:46:39 GMT", at(10_000_039_599)),
            ("Sat, 31 Dec 2016 23:59:60 GMT", at(1_483_228_799)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", at(253_402_300_799)),
            ("Thu, 18 Aug 2050 02:01:18 UTC", None),
            ("Thu, 18 Aug 2050 02:01:18 AEST", None),
            ("Thu, 18 Aug 50 02:01:18 GMT", None),
            ("Thu 18 Aug 2050 02:01:18 GMT", None),
            ("Thu, 18  Aug  2050 02:01:18 GMT", None),
            ("Thu, 18-Aug-2050 02:01:18 GMT", None),
            ("Thursday, 18-Aug-2050 02:01:18 GMT", None),
            ("Thu, 18 Aug 2050 02.01.18 GMT", None),
            ("Thu, 18 Aug 2050 2:01:18 GMT", None),
            ("Thu, 31 Feb 2050 02:01:18 GMT", None),
            ("Thu, 18 Aug 2050 24:01:18 GMT", None),
            ("Thu, 18 Aug 2050 02:01:61 GMT", None),
            ("Thu, 18 Aug 1950 02:01:18 GMT", None),
            ("Tag, 18 Aug 2050 02:01:18 GMT", None),
            ("0", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn formatting_clamps_to_representable_dates() {
        assert_eq!(format(UNIX_EPOCH - Duration::from_secs(9)), "Thu, 01 Jan 1970 00:00:00 GMT");
        let late = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(format(late), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn formatted_dates_parse_back(seconds in 0_u64..=253_402_300_799) {
            let moment = UNIX_EPOCH + Duration::from_secs(seconds);
            prop_assert_eq!(parse(format(moment).as_bytes()), Some(moment));
        }

        #[test]
        fn dates_that_httpdate_accepts_parse_alike(text in "(Sun|Mon|Sunday|Tue), ?[0-3][0-9][ -](Nov|Feb)[ -](19|20)?[0-9]{2} [012][0-9]:[0-5][0-9]:[0-5][0-9] GMT") {
            if let Ok(moment) = httpdate::parse_http_date(&text) {
                prop_assert_eq!(parse(text.as_bytes()), Some(moment));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(value: Vec<u8>) {
            let _ = parse(&value);
        }
    }
}
