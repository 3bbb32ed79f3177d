//! Go's formats of durations, columns and JSON, which readers of Vegeta's output expect.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Go's zero time, which Vegeta writes for a missing time.
pub const NO_TIME: &str = "0001-01-01T00:00:00Z";

const UNITS: [u64; 6] = [3_600_000_000_000, 60_000_000_000, 1_000_000_000, 1_000_000, 1_000, 1];

/// Nanoseconds, at most 584 years.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The text of Go's `time.Duration`: `1m30s`, `145.082ms`, `90.4µs`, `0s`.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let nanos = nanos(duration);
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(nanos, 3) + "µs",
        1_000_000..1_000_000_000 => decimal(nanos, 6) + "ms",
        _ => {
            let (hours, minutes) = (nanos / UNITS[0], nanos / UNITS[1] % 60);
            let seconds = decimal(nanos % UNITS[1], 9) + "s";
            match (hours, minutes) {
                (0, 0) => seconds,
                (0, _) => format!("{minutes}m{seconds}"),
                _ => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

/// The same, rounded to the unit below the leading one, as in Vegeta's text.
#[must_use]
pub fn rounded(time: Duration) -> String {
    let nanos = nanos(time);
    let below = UNITS.windows(2).find(|units| nanos >= units[0]).map_or(1, |units| units[1]);
    duration(Duration::from_nanos(nanos.saturating_add(below / 2) / below * below))
}

/// `count` units of 10^-`places`, without trailing zeros.
fn decimal(count: u64, places: usize) -> String {
    let one = 10_u64.pow(u32::try_from(places).unwrap_or_default());
    let text = format!("{}.{:0places$}", count / one, count % one);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Aligns columns as Go's `text/tabwriter` with a padding of two; the last column is not padded.
#[must_use]
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default() + 2;
    let widths: [usize; N] = std::array::from_fn(|column| if column + 1 < N { width(column) } else { 0 });
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}");
        }
        text.push('\n');
    }
    text
}

/// Appends JSON as Go's `encoding/json`.
///
/// # Panics
/// If the value cannot be serialised.
pub fn push_json(value: &impl Serialize, out: &mut Vec<u8>) {
    value
        .serialize(&mut Serializer::with_formatter(out, GoJsonFormatter))
        .expect("a vector takes every byte");
}

/// One line; floats have an exponent below 1e-6 and from 1e21; HTML characters are escaped.
struct GoJsonFormatter;

impl Formatter for GoJsonFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        match value.abs() {
            1e21.. => write!(to, "{}", format!("{value:e}").replace('e', "e+")),
            size if size < 1e-6 && size != 0.0 => write!(to, "{value:e}"),
            _ => write!(to, "{value}"),
        }
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        let unwanted = |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some(at) = rest.find(unwanted) {
            let c = rest[at..].chars().next().unwrap_or_default();
            to.write_all(&rest.as_bytes()[..at])?;
            write!(to, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        to.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_format_of_go() {
        for (nanos, exact, rough) in [
            (0, "0s", "0s"),
            (1, "1ns", "1ns"),
            (999, "999ns", "999ns"),
            (1_000, "1µs", "1µs"),
            (90_400, "90.4µs", "90.4µs"),
            (999_999, "999.999µs", "999.999µs"),
            (1_000_000, "1ms", "1ms"),
            (1_100_499, "1.100499ms", "1.1ms"),
            (145_082_500, "145.0825ms", "145.083ms"),
            (999_999_500, "999.9995ms", "1s"),
            (1_000_000_001, "1.000000001s", "1s"),
            (59_999_500_000, "59.9995s", "1m0s"),
            (60_000_000_000, "1m0s", "1m0s"),
            (90_500_000_000, "1m30.5s", "1m31s"),
            (3_600_000_000_000, "1h0m0s", "1h0m0s"),
            (5_430_000_000_000, "1h30m30s", "1h31m0s"),
            (100 * 3_600_000_000_000, "100h0m0s", "100h0m0s"),
        ] {
            let time = Duration::from_nanos(nanos);
            assert_eq!((duration(time).as_str(), rounded(time).as_str()), (exact, rough), "{nanos}");
        }
    }

    #[test]
    fn json_has_the_format_of_go() {
        for (value, json) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (12_345_678_901_234_567_890.0, "12345678901234567000"),
            (1e21, "1e+21"),
            (424.991_833_1, "424.9918331"),
        ] {
            let mut out = Vec::new();
            push_json(&value, &mut out);
            assert_eq!(str::from_utf8(&out), Ok(json));
        }
        let mut out = Vec::new();
        push_json(&"<a href=\"x\">&\n\u{1}é\u{2028}", &mut out);
        assert_eq!(str::from_utf8(&out), Ok(r#""\u003ca href=\"x\"\u003e\u0026\n\u0001é\u2028""#));
    }

    #[test]
    fn columns_are_padded_by_two_characters() {
        let rows = [["µs", "", "x"], ["abc", "12", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "µs       x\nabc  12  \n");
        assert_eq!(columns(&[["a", "", "b"].map(str::to_owned)]), "a    b\n");
    }
}
