//! Field values (RFC 9110, 5.6): lists, quoted strings, numbers.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// Larger numbers of seconds are clamped to this (RFC 9111, 1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;

#[must_use]
pub fn trim(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(first) = value.iter().position(|byte| !is_space(byte)) else { return &[] };
    let last = value.iter().rposition(|byte| !is_space(byte)).unwrap_or(first);
    &value[first..=last]
}

/// The non-empty elements of a list, separated by commas outside quotes. After an unterminated quote, quotes are ordinary
/// characters, so that it hides nothing.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: Option<&'a [u8]>,
    quotes_are_special: bool,
}

#[must_use]
pub fn elements(value: &[u8]) -> Elements<'_> {
    Elements { rest: Some(value), quotes_are_special: true }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.rest?;
            let end = self.first_end(rest);
            self.rest = rest.get(end + 1..);
            let element = trim(&rest[..end]);
            if !element.is_empty() {
                return Some(element);
            }
        }
    }
}

impl Elements<'_> {
    fn first_end(&mut self, value: &[u8]) -> usize {
        let mut at = 0;
        while let Some(byte) = value.get(at) {
            match byte {
                b',' => return at,
                b'"' if self.quotes_are_special => match quoted_length(&value[at..]) {
                    Some(length) => at += length,
                    None => self.quotes_are_special = false,
                },
                _ => at += 1,
            }
        }
        value.len()
    }
}

/// The length of the leading quoted string including its quotes; `None` if it is unterminated.
#[must_use]
pub fn quoted_length(value: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match value.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The elements of all lines of a field.
pub fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    headers.get_all(name).into_iter().flat_map(|line| elements(line.as_bytes()))
}

/// The content of one quoted string without escapes; any other value as it is.
#[must_use]
pub fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', within @ .., b'"'] if !within.iter().any(|byte| matches!(byte, b'"' | b'\\')) => within,
        whole => whole,
    }
}

/// Digits only, clamped to [`SECONDS_MAX`] (RFC 9111, 1.2.2).
#[must_use]
pub fn seconds(digits: &[u8]) -> Option<Duration> {
    if digits.is_empty() {
        return None;
    }
    let mut sum = 0_u64;
    for digit in digits {
        let digit = char::from(*digit).to_digit(10)?;
        sum = (sum * 10 + u64::from(digit)).min(SECONDS_MAX);
    }
    Some(Duration::from_secs(sum))
}

/// Digits only, at most `u64::MAX`.
#[must_use]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(char::from(*digit).to_digit(10)?.into())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(value: &str) -> Vec<String> {
        elements(value.as_bytes()).map(|element| String::from_utf8_lossy(element).into_owned()).collect()
    }

    #[test]
    fn lists() {
        for (value, parts) in [
            ("", &[][..]),
            (" , ,", &[]),
            ("a,b", &["a", "b"]),
            (" a\t, b ", &["a", "b"]),
            ("a=\"x, y\", b", &["a=\"x, y\"", "b"]),
            ("a=\"x\\\", y\", b", &["a=\"x\\\", y\"", "b"]),
            ("a=\"x, b", &["a=\"x", "b"]),
            ("\"\\", &["\"\\"]),
            ("a=\"x, b=\"y, z", &["a=\"x, b=\"y", "z"]),
        ] {
            assert_eq!(split(value), parts, "{value}");
        }
    }

    #[test]
    fn numbers() {
        for (digits, expected) in [
            ("", None),
            ("0", Some(0)),
            ("003600", Some(3600)),
            ("3600.0", None),
            ("-1", None),
            ("+1", None),
            ("1a", None),
            ("'1'", None),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", Some(SECONDS_MAX)),
            ("99999999999999999999999999", Some(SECONDS_MAX)),
        ] {
            assert_eq!(seconds(digits.as_bytes()), expected.map(Duration::from_secs), "{digits}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }

    proptest! {
        #[test]
        fn without_quotes_equals_a_split_at_commas(value in "[a-z=, \t]{0,40}") {
            let naive: Vec<String> = value
                .split(',')
                .map(|part| part.trim_matches([' ', '\t']).to_owned())
                .filter(|part| !part.is_empty())
                .collect();
            prop_assert_eq!(split(&value), naive);
        }

        #[test]
        fn elements_are_parts_of_the_value(value: Vec<u8>) {
            let parts: usize = elements(&value).map(<[u8]>::len).sum();
            prop_assert!(parts <= value.len());
        }

        #[test]
        fn splitting_an_element_yields_itself(value in "[a-z=,\" \\\\]{0,40}") {
            for element in elements(value.as_bytes()) {
                let again: Vec<_> = elements(element).collect();
                prop_assert_eq!(again, vec![element]);
            }
        }
    }
}
