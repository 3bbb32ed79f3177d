//! Durations and sizes as text, always with a unit.

use std::{fmt::Write, time::Duration};

/// A quantity could not be parsed. The message contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// A number without a unit is ambiguous.
    #[error("`{text}` has no unit: write `{text}{}` or `{text}{}`", .of.usual[0], .of.usual[1])]
    NoUnit {
        text: String,
        /// The expected quantity.
        of: &'static Quantity,
    },
    #[error("`{unit}` is not a unit of {}: use {}", .of.dimension, .of.choice)]
    UnknownUnit {
        /// The text after the number.
        unit: String,
        /// The expected quantity.
        of: &'static Quantity,
    },
    /// Not a number with a unit.
    #[error("`{text}` is not a {}: write a number and a unit, such as {}", .of.noun, .of.examples)]
    Malformed {
        text: String,
        /// The expected quantity.
        of: &'static Quantity,
    },
    /// Above the limit of the quantity.
    #[error("`{text}` is {} than a run can be", .of.too_much)]
    TooMuch {
        text: String,
        /// The expected quantity.
        of: &'static Quantity,
    },
}

/// A dimension with its units.
#[derive(Debug, PartialEq)]
pub struct Quantity {
    noun: &'static str,
    dimension: &'static str,
    choice: &'static str,
    examples: &'static str,
    too_much: &'static str,
    usual: [&'static str; 2],
    /// Names, and their size in the smallest unit.
    units: &'static [(&'static str, f64)],
}

impl Eq for Quantity {}

static DURATION: Quantity = Quantity {
    noun: "duration",
    dimension: "time",
    choice: "ns, us, ms, s, m, h or d",
    examples: "`250ms` or `1.5s`",
    too_much: "longer",
    usual: ["ms", "s"],
    units: &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3_600e9),
        ("d", 86_400e9),
    ],
};

static SIZE: Quantity = Quantity {
    noun: "size",
    dimension: "size",
    choice: "B, KiB, MiB, GiB, kB, MB or GB",
    examples: "`300KiB` or `256MiB`",
    too_much: "larger",
    usual: ["KiB", "MiB"],
    units: &[
        ("B", 1.0),
        ("KiB", 1_024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
    ],
};

impl Quantity {
    /// Parses a quantity and returns it in the smallest unit. Zero needs no unit.
    fn read(&'static self, text: &str) -> Result<u64, UnitError> {
        let text = text.trim();
        let malformed = || UnitError::Malformed { text: text.to_owned(), of: self };
        let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| malformed())?;
        let unit = unit.trim_start();
        if unit.is_empty() {
            let missing = UnitError::NoUnit { text: text.to_owned(), of: self };
            return if number == 0.0 { Ok(0) } else { Err(missing) };
        }
        let Some((_, scale)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let looks_like_a_unit = unit.chars().all(char::is_alphabetic);
            return Err(if looks_like_a_unit {
                UnitError::UnknownUnit { unit: unit.to_owned(), of: self }
            } else {
                malformed()
            });
        };
        let smallest = (number * scale).round();
        if smallest >= u64::MAX as f64 {
            return Err(UnitError::TooMuch { text: text.to_owned(), of: self });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above; digits have no sign"
        )]
        Ok(smallest as u64)
    }
}

/// Parses a duration such as `250ms`, `1.5s`, `2m` or `90us`. Zero needs no unit.
///
/// ```
/// use std::time::Duration;
/// use stockade_model::units::parse_duration;
///
/// assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
/// assert_eq!(
///     parse_duration("250").unwrap_err().to_string(),
///     "`250` has no unit: write `250ms` or `250s`",
/// );
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    DURATION.read(text).map(Duration::from_nanos)
}

/// Parses a size in bytes such as `300KiB` (1,024 bytes each), `256MiB` or `1GB` (1,000,000,000 bytes).
///
/// ```
/// use stockade_model::units::parse_size;
///
/// assert_eq!(parse_size("256MiB"), Ok(256 << 20));
/// assert_eq!(parse_size("4096").unwrap_err().to_string(), "`4096` has no unit: write `4096KiB` or `4096MiB`");
/// ```
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    SIZE.read(text)
}

/// Formats a long duration: from two minutes on in hours, minutes and whole seconds, such as `3m24s`, `20m` or `29d`;
/// below, like [`format_duration`].
#[must_use]
pub fn format_span(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds < 120 {
        return format_duration(span);
    }
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let mut text = String::new();
    for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, "{count}{unit}");
    }
    text
}

/// Formats a count with thousands separators: `127,696`.
#[must_use]
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Formats a size in bytes: whole bytes, else three significant digits, such as `402 B` or `1.50 KiB`.
#[must_use]
pub fn format_size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= if unit == 0 { 1_024.0 } else { 999.5 } && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1_024.0, unit + 1);
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Formats a size in bytes exactly, in the largest unit that divides it, such as `512MiB`. [`parse_size`] reads it.
#[must_use]
pub fn format_exact_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let unit = if bytes == 0 { 0 } else { (bytes.trailing_zeros() / 10).min(3) as usize };
    format!("{}{}", bytes >> (10 * unit), UNITS[unit])
}

/// An exact duration in the largest of s, ms and ns, as files write it: `90s`, `1500ms`.
#[must_use]
pub fn format_exact_duration(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_nanos()) {
        (seconds, 0) => format!("{seconds}s"),
        (_, nanos) if nanos % 1_000_000 == 0 => format!("{}ms", duration.as_millis()),
        _ => format!("{}ns", duration.as_nanos()),
    }
}

/// Parses a share in percent, from `0%` to `1000%`, such as `5%` for 0.05.
#[must_use]
pub fn parse_percent(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=1_000.0).contains(&percent).then_some(percent / 100.0)
}

/// Formats a duration with three significant digits and a suitable unit: `1.5s`, `7.04ms`, `90us`,
/// and `0`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    if duration.is_zero() {
        return "0".to_owned();
    }
    let nanos = duration.as_nanos() as f64;
    let (unit, scale) = match nanos {
        n if n < 999.5 => ("ns", 1.0),
        n if n < 999_500.0 => ("us", 1e3),
        n if n < 999_500_000.0 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let value = nanos / scale;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let mut text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    let _ = write!(text, "{unit}");
    text
}

/// A duration times `factor`, at most 584 years.
#[must_use]
pub fn stretched(time: Duration, factor: f64) -> Duration {
    let longest = Duration::from_nanos(u64::MAX);
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(longest).min(longest)
}

/// Milliseconds, as in reports and the JSON contract.
#[must_use]
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

/// `None` where `whole` is 0.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The bytes of some requests' bodies, as reports give them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ByteFigures {
    pub total: u64,
    /// Per request; absent without requests.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub mean: Option<f64>,
}

impl ByteFigures {
    #[must_use]
    pub fn of(total: u64, requests: u64) -> Self {
        Self { total, mean: ratio(total, requests) }
    }
}

/// Formats milliseconds like [`format_duration`], also if they are negative, infinite or not a number.
#[must_use]
pub fn format_milliseconds(milliseconds: f64) -> String {
    match Duration::try_from_secs_f64(milliseconds.abs() / 1e3) {
        Ok(duration) if milliseconds < 0.0 => format!("-{}", format_duration(duration)),
        Ok(duration) => format_duration(duration),
        Err(_) => format!("{milliseconds:e}ms"),
    }
}

/// Deserializes a duration from text, for `#[serde(deserialize_with = "...")]`. A number is accepted too, so that the
/// error can name the missing unit.
#[cfg(feature = "serde")]
pub mod text {
    use std::{
        fmt::{self, Display},
        marker::PhantomData,
        str::FromStr,
        time::Duration,
    };

    use serde::{Deserializer, de::Error};

    /// Parses like [`super::parse_duration`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        super::parse_duration(&written(from)?).map_err(Error::custom)
    }

    /// The text as written. A number is accepted too, so that the parser's error can name the
    /// missing unit.
    pub fn written<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        parsed(from)
    }

    /// Parses the [`written`] text, within the deserializer: its error has the place of the value, in a list too.
    pub fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<T, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<T: FromStr<Err: Display>> serde::de::Visitor<'_> for Visitor<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, such as \"250ms\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
                self.visit_str(&number.to_string())
            }
        }
        from.deserialize_any(Visitor(PhantomData))
    }

    /// The same for a name, which `5` would be, too: only a string is accepted.
    pub fn name<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<T, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<T: FromStr<Err: Display>> serde::de::Visitor<'_> for Visitor<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_str(Visitor(PhantomData))
    }
}

/// 0 of two zeros.
#[must_use]
pub fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (11.3, "11 B"),
            (1_006.0, "1006 B"),
            (1_536.0, "1.50 KiB"),
            (99_900.0, "97.6 KiB"),
            (1_023.0 * 1_024.0, "1.00 MiB"),
            (3e15, "2728 TiB"),
        ] {
            assert_eq!(format_size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn exact_durations_are_read_back() {
        for (nanos, text) in
            [(0, "0s"), (90_000_000_000, "90s"), (1_500_000_000, "1500ms"), (1_500, "1500ns")]
        {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(format_exact_duration(duration), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
    }

    #[test]
    fn exact_sizes_are_read_back() {
        for (bytes, text) in
            [(0, "0B"), (1, "1B"), (1_536, "1536B"), (512 << 20, "512MiB"), (3 << 40, "3072GiB")]
        {
            assert_eq!(format_exact_size(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }

    #[test]
    fn reads_every_unit() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("7ns", 7),
            ("90us", 90_000),
            ("90µs", 90_000),
            ("1.5ms", 1_500_000),
            ("2 s", 2_000_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1d", 86_400_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn errors_name_the_remedy() {
        for (text, message) in [
            ("250", "`250` has no unit: write `250ms` or `250s`"),
            ("5 minutes", "`minutes` is not a unit of time: use ns, us, ms, s, m, h or d"),
            ("", "`` is not a duration: write a number and a unit, such as `250ms` or `1.5s`"),
            ("-5ms", "`-5ms` is not a duration: write a number and a unit, such as `250ms` or `1.5s`"),
            ("1.2.3s", "`1.2.3s` is not a duration: write a number and a unit, such as `250ms` or `1.5s`"),
            (
                "1ms..2ms",
                "`1ms..2ms` is not a duration: write a number and a unit, such as `250ms` or `1.5s`",
            ),
            ("99999999999d", "`99999999999d` is longer than a run can be"),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn sizes_are_parsed_and_errors_name_the_remedy() {
        for (text, bytes) in
            [("0", 0), ("7B", 7), ("1.5KiB", 1_536), ("300 KiB", 307_200), ("1GB", 1_000_000_000)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, message) in [
            ("64k", "`k` is not a unit of size: use B, KiB, MiB, GiB, kB, MB or GB"),
            ("much", "`much` is not a size: write a number and a unit, such as `300KiB` or `256MiB`"),
            ("99999999999GiB", "`99999999999GiB` is larger than a run can be"),
        ] {
            assert_eq!(parse_size(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn durations_have_three_digits_and_a_suitable_unit() {
        for (nanos, text) in [
            (0, "0"),
            (999, "999ns"),
            (1_000, "1us"),
            (90_400, "90.4us"),
            (999_700, "1ms"),
            (7_037_000, "7.04ms"),
            (1_500_000_000, "1.5s"),
            (120_000_000_000, "120s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn long_durations_and_counts_are_formatted_readably() {
        let span = |seconds| format_span(Duration::from_secs(seconds));
        let spans = [span(60), span(119), span(204), span(1_200), span(3_605), span(29 * 86_400)];
        assert_eq!(spans, ["60s", "119s", "3m24s", "20m", "1h5s", "29d"]);
        assert_eq!(
            [0, 999, 1_000, 127_696, 1_000_000].map(format_count),
            ["0", "999", "1,000", "127,696", "1,000,000"]
        );
    }

    #[test]
    fn negative_and_non_finite_milliseconds_are_formatted() {
        let written = [-4.0, 0.0, 31.25, 1e300, f64::INFINITY, f64::NAN].map(format_milliseconds);
        assert_eq!(written[..3], ["-4ms", "0", "31.2ms"]);
        assert!(written[3].ends_with("ms") && written[4..] == ["infms", "NaNms"]);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,12}") {
            let _ = (parse_duration(&text), parse_size(&text));
        }

        #[test]
        fn formatted_text_parses_again(nanos in 0..u64::MAX / 2) {
            let duration = Duration::from_nanos(nanos);
            let read = parse_duration(&format_duration(duration)).unwrap();
            let off = read.abs_diff(duration).as_nanos() as f64;
            prop_assert!(off <= duration.as_nanos() as f64 * 0.006, "{duration:?} read back as {read:?}");
        }
    }
}
