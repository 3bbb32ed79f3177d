//! Byte ranges of requests and responses (RFC 9110, 14). Pure.

use std::ops::Range;

/// The ranges in a value of `Range`, still separated by commas. `None`: another unit than `bytes`, or no unit.
#[must_use]
pub fn range_set(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    let (unit, range_set) = value.split_at(value.iter().position(|byte| *byte == b'=')?);
    unit.eq_ignore_ascii_case(b"bytes").then_some(&range_set[1..])
}

/// A range specifier with a wrong syntax. A server ignores the whole field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRangeSpec;

/// Parses `first-last`, `first-` or `-suffix_length`, and clamps it to a body of `length` bytes. If the result is empty,
/// the range is not satisfiable.
pub fn parse_clamped(range_spec: &[u8], length: u64) -> Result<Range<u64>, InvalidRangeSpec> {
    let dash = range_spec.iter().position(|byte| *byte == b'-').ok_or(InvalidRangeSpec)?;
    match (&range_spec[..dash], &range_spec[dash + 1..]) {
        (b"", suffix) => Ok(length.saturating_sub(number(suffix)?)..length),
        (first, b"") => Ok(number(first)?.min(length)..length),
        (first, last) => match (number(first)?, number(last)?) {
            (first, last) if first <= last => Ok(first.min(length)..last.saturating_add(1).min(length)),
            _ => Err(InvalidRangeSpec),
        },
    }
}

/// `Content-Range` of a part of a body of `length` bytes.
#[must_use]
pub fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1))
}

/// `Content-Range` of a 416 response.
#[must_use]
pub fn content_range_unsatisfied(length: u64) -> String {
    format!("bytes */{length}")
}

/// A number that overflows is larger than any body.
fn number(digits: &[u8]) -> Result<u64, InvalidRangeSpec> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(digits).ok().filter(|_| is_number).ok_or(InvalidRangeSpec)?;
    Ok(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers_have_the_unit_bytes() {
        for (value, expected) in [
            ("bytes=0-1", Some("0-1")),
            (" Bytes=0-1,4- ", Some("0-1,4-")),
            ("bytes=", Some("")),
            ("bytes", None),
            ("bytes =0-1", None),
            ("lines=0-1", None),
        ] {
            assert_eq!(range_set(value.as_bytes()), expected.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn range_ends_with_the_body() {
        for (range_spec, expected) in [
            ("0-1", Some(0..2)),
            ("1-", Some(1..11)),
            ("-1", Some(10..11)),
            ("-100", Some(0..11)),
            ("5-99999999999999999999999999", Some(5..11)),
            ("5-18446744073709551615", Some(5..11)),
            ("10-10", Some(10..11)),
            ("11-", Some(11..11)),
            ("99999999999999999999999999-", Some(11..11)),
            ("-0", Some(11..11)),
            ("1-0", None),
            ("-", None),
            ("--1", None),
            ("x", None),
            ("+0-1", None),
            ("0 - 1", None),
        ] {
            assert_eq!(parse_clamped(range_spec.as_bytes(), 11).ok(), expected, "{range_spec}");
        }
        assert_eq!(parse_clamped(b"0-", 0), Ok(0..0));
    }

    #[test]
    fn content_range_names_the_last_byte() {
        assert_eq!(content_range(&(0..2), 11), "bytes 0-1/11");
        assert_eq!(content_range_unsatisfied(11), "bytes */11");
    }
}
