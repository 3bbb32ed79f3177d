//! Values of fields as text.

use std::{borrow::Cow, time::Duration};

use crate::logged::{Operation, SIZE_BYTES_MAX};

/// Why a line is bad.
pub(crate) type Problem = Cow<'static, str>;

/// The text with other bytes replaced. Most texts have none, and checking them is faster than looking for them.
pub(crate) fn lossy(text: &[u8]) -> Cow<'_, str> {
    str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed)
}

/// The text, unless it stands for a missing one.
pub(crate) fn known(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii();
    (!matches!(text, b"" | b"-")).then_some(text)
}

/// Digits alone.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    })
}

/// A size in bytes; `None` for `-` and an empty text.
pub(crate) fn size(text: &[u8]) -> Result<Option<u64>, Problem> {
    if matches!(text, b"" | b"-") {
        return Ok(None);
    }
    match number(text) {
        Some(bytes) => checked_size(bytes).map(Some),
        None => Err(Problem::from("the size is not a number of bytes")),
    }
}

pub(crate) fn checked_size(bytes: u64) -> Result<u64, Problem> {
    if bytes <= SIZE_BYTES_MAX { Ok(bytes) } else { Err(Problem::from("the size is larger than 1 PiB")) }
}

/// A status of three digits; `None` for others, such as `-` or nginx's `000`.
pub(crate) fn status(text: &[u8]) -> Option<u16> {
    let status = number(text).and_then(|number| u16::try_from(number).ok())?;
    (100..1_000).contains(&status).then_some(status)
}

/// A number that may have decimals, in nanoseconds, where one unit has `unit_ns` of them.
pub(crate) fn decimal_ns(text: &[u8], unit_ns: u64) -> Option<u64> {
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (whole, decimals) = (&text[..point], text.get(point + 1..));
    let mut nanos = number(whole)?.checked_mul(unit_ns)?;
    if let Some(decimals) = decimals {
        if decimals.is_empty() || !decimals.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut place = unit_ns;
        for digit in decimals.iter().map(|digit| u64::from(digit - b'0')) {
            place /= 10;
            nanos = nanos.checked_add(digit * place)?;
        }
    }
    Some(nanos)
}

/// A duration: a number that may have decimals. nginx lists the times of several upstreams, as in `0.1, 0.2 : -`: their sum.
pub(crate) fn duration(text: &[u8], unit_ns: u64) -> Option<Duration> {
    if let Some(nanos) = decimal_ns(text, unit_ns) {
        return Some(Duration::from_nanos(nanos));
    }
    let mut sum = None;
    for part in text.split(|byte| matches!(byte, b',' | b':')) {
        let part = part.trim_ascii();
        if part != b"-" {
            sum = Some(decimal_ns(part, unit_ns)?.checked_add(sum.unwrap_or(0))?);
        }
    }
    sum.map(Duration::from_nanos)
}

/// A duration with the unit that is written after it, as in `0.123s` or `30ms`, else with `unit_ns`.
pub(crate) fn duration_with_unit(text: &[u8], unit_ns: u64) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] =
        [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let with_unit = |(name, unit_ns): &(&str, u64)| Some((text.strip_suffix(name.as_bytes())?, *unit_ns));
    let (number, unit_ns) = UNITS.iter().find_map(with_unit).unwrap_or((text, unit_ns));
    duration(number, unit_ns)
}

/// True if the origin was not asked: `Hit`, `Redirect`, `FunctionGeneratedResponse` (`CloudFront`), `TCP_MEM_HIT`, `TCP_DENIED`,
/// `NONE` (Squid), `hit` (Cloudflare), but not `RefreshHit` or `TCP_REFRESH_UNMODIFIED`.
pub(crate) fn is_hit(cache_status: &[u8]) -> bool {
    let has = |word: &[u8]| cache_status.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    let others: [&[u8]; 4] = [b"denied", b"none", b"redirect", b"generated"];
    (has(b"hit") && !has(b"refresh")) || others.into_iter().any(has)
}

/// The caching of a response by a shared cache, as its origin declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredCaching {
    /// That of `s-maxage`, else of `max-age`.
    pub ttl: Option<Duration>,
    /// False: `no-store`, `no-cache` or `private`.
    pub is_shareable: bool,
}

impl DeclaredCaching {
    pub const UNKNOWN: Self = Self { ttl: None, is_shareable: true };
}

impl Default for DeclaredCaching {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Reads the value of `Cache-Control`.
pub(crate) fn declared_caching(cache_control: &str) -> DeclaredCaching {
    let (mut max_age, mut shared, mut is_shareable) = (None, None, true);
    for directive in cache_control.split(',') {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        let seconds = || number(value.trim().trim_matches('"').as_bytes()).map(Duration::from_secs);
        match name.trim() {
            name if name.eq_ignore_ascii_case("max-age") => max_age = max_age.or_else(seconds),
            name if name.eq_ignore_ascii_case("s-maxage") => shared = shared.or_else(seconds),
            name if ["no-store", "no-cache", "private"].iter().any(|no| name.eq_ignore_ascii_case(no)) => {
                is_shareable = false;
            }
            _ => {}
        }
    }
    DeclaredCaching { ttl: shared.or(max_age), is_shareable }
}

/// The operation of a trace, in any case.
pub(crate) fn operation(text: &[u8]) -> Option<Operation> {
    const NAMES: [(&str, Operation); 25] = [
        ("get", Operation::Read),
        ("gets", Operation::Read),
        ("get_lease", Operation::Read),
        ("read", Operation::Read),
        ("r", Operation::Read),
        ("head", Operation::Read),
        ("set", Operation::Write),
        ("set_lease", Operation::Write),
        ("set_tail", Operation::Write),
        ("add", Operation::Write),
        ("replace", Operation::Write),
        ("cas", Operation::Write),
        ("append", Operation::Write),
        ("prepend", Operation::Write),
        ("incr", Operation::Write),
        ("decr", Operation::Write),
        ("touch", Operation::Write),
        ("put", Operation::Write),
        ("post", Operation::Write),
        ("patch", Operation::Write),
        ("write", Operation::Write),
        ("w", Operation::Write),
        ("delete", Operation::Delete),
        ("del", Operation::Delete),
        ("remove", Operation::Delete),
    ];
    let known = NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes()))?;
    Some(known.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_become_nanoseconds() {
        for (text, unit, nanos) in [
            ("1431857103.123", 1_000_000_000, Some(1_431_857_103_123_000_000)),
            ("0.000000001", 1_000_000_000, Some(1)),
            ("0.0000000019", 1_000_000_000, Some(1)),
            ("1.5", 1_000_000, Some(1_500_000)),
            ("7", 1, Some(7)),
            ("7.9", 1, Some(7)),
            ("18446744073", 1_000_000_000, Some(18_446_744_073_000_000_000)),
            ("18446744074", 1_000_000_000, None),
            ("1.", 1, None),
            (".5", 1, None),
            ("-1", 1, None),
            ("1e3", 1, None),
            ("", 1, None),
        ] {
            assert_eq!(decimal_ns(text.as_bytes(), unit), nanos, "{text}");
        }
    }

    #[test]
    fn durations_of_several_upstreams_are_added() {
        for (text, millis) in [
            ("0.003", Some(3)),
            ("0.001, 0.002", Some(3)),
            ("0.001 : 0.002", Some(3)),
            ("0.001, -", Some(1)),
            ("-", None),
            ("", None),
            ("fast", None),
        ] {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(duration(text.as_bytes(), 1_000_000_000), expected, "{text}");
        }
    }

    #[test]
    fn declared_caching_is_that_of_a_shared_cache() {
        for (text, seconds, is_shareable) in [
            ("max-age=60", Some(60), true),
            ("public, Max-Age=\"60\"", Some(60), true),
            ("max-age=60, s-maxage=5", Some(5), true),
            ("max-age=0", Some(0), true),
            ("no-store, max-age=60", Some(60), false),
            ("Private", None, false),
            ("no-cache", None, false),
            ("private=\"set-cookie\", max-age=60", Some(60), false),
            ("public", None, true),
            ("max-age=soon", None, true),
            ("-", None, true),
        ] {
            let expected = DeclaredCaching { ttl: seconds.map(Duration::from_secs), is_shareable };
            assert_eq!(declared_caching(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(size(b"1125899906842624"), Ok(Some(SIZE_BYTES_MAX)));
        for (text, message) in [
            ("1125899906842625", "the size is larger than 1 PiB"),
            ("-1", "the size is not a number of bytes"),
            ("99999999999999999999", "the size is not a number of bytes"),
        ] {
            assert_eq!(size(text.as_bytes()).unwrap_err(), message);
        }
    }
}
