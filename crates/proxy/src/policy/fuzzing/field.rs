//! Lists, quoted strings and numbers compared with naive readings.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use stockade_http::field::{self, SECONDS_MAX, elements, listed, quoted_length, seconds, trim, unquoted};

use std::time::Duration;

/// A field value.
///
/// - Elements are non-empty, trimmed, and in order; only commas and white space lie between them.
/// - A comma inside an element is inside a quoted string.
/// - No value hides an element that follows it.
/// - Numbers are those of the standard library, clamped.
pub fn check(data: &[u8]) {
    let list: Vec<&[u8]> = elements(data).collect();
    let mut end = 0;
    for element in &list {
        assert!(!element.is_empty() && trim(element) == *element);
        let start = data[end..].windows(element.len()).position(|window| window.as_ptr() == element.as_ptr());
        let start = end + start.expect("an element is a part of the value");
        assert!(data[end..start].iter().all(|byte| b", \t".contains(byte)));
        end = start + element.len();
        let first = element.iter().position(|byte| *byte == b',');
        assert!(first.is_none_or(|comma| element[..comma].contains(&b'"')), "a comma outside quotes");
    }
    assert!(data[end..].iter().all(|byte| b", \t".contains(byte)));
    if !data.contains(&b'"') {
        let naive: Vec<&[u8]> =
            data.split(|byte| *byte == b',').map(trim).filter(|element| !element.is_empty()).collect();
        assert_eq!(list, naive);
    }

    let followed = [data, b",no-store"].concat();
    assert_eq!(elements(&followed).last(), Some(&b"no-store"[..]), "{}", data.escape_ascii());
    let name = http::header::CACHE_CONTROL;
    if let Some(headers) = super::lines(&name, &[data, b"no-store"]) {
        assert_eq!(listed(&headers, &name).last(), Some(&b"no-store"[..]));
    }

    if data.first() == Some(&b'"') {
        let length = quoted_length(data);
        assert!(length.is_none_or(|length| length >= 2 && data[length - 1] == b'"'));
        let content = unquoted(data);
        assert!(
            content.len() == data.len() || length == Some(data.len()) && content == &data[1..data.len() - 1]
        );
    }
    let naive = std::str::from_utf8(data).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let naive = naive.filter(|text| !text.is_empty());
    let as_seconds = naive.map(|text| text.parse().unwrap_or(u64::MAX).min(SECONDS_MAX));
    assert_eq!(seconds(data), as_seconds.map(Duration::from_secs));
    assert_eq!(field::parse_u64(data), naive.and_then(|text| text.parse().ok()));
}
