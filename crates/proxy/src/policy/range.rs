//! Range requests against a stored response (RFC 9110, 14).

use std::ops::Range;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE},
};
use smallvec::SmallVec;
use stockade_http::{byte_range, field::trim};

use super::{conditional::strong_match, date};

/// Requests for more parts get the whole response, as the standard allows for requests that look like an attack (RFC
/// 9110, 14.2).
pub const PARTS_MAX: usize = 16;

/// Byte ranges, none empty.
pub type Parts = SmallVec<[Range<u64>; 1]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeSelection {
    /// 200.
    Whole,
    /// 206. Several parts do not overlap, and have the order of the request.
    Parts(Parts),
    /// 416.
    Unsatisfiable,
}

/// Ranges apply to GET and to 200. Unreadable ranges, other units and an `If-Range` that does not match mean the whole
/// response.
#[must_use]
pub fn select_range(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &HeaderMap,
    length: u64,
) -> RangeSelection {
    let mut lines = request.get_all(RANGE).iter();
    let (Some(range), None) = (lines.next(), lines.next()) else { return RangeSelection::Whole };
    // A stored response with `Content-Range` is itself a part.
    if *method != Method::GET || status != StatusCode::OK || stored.contains_key(CONTENT_RANGE) {
        return RangeSelection::Whole;
    }
    if request.contains_key(IF_RANGE) && !if_range_matches(request, stored) {
        return RangeSelection::Whole;
    }
    parse_range(range.as_bytes(), length)
}

/// Parses a value of `Range`.
#[must_use]
pub fn parse_range(value: &[u8], length: u64) -> RangeSelection {
    let Some(specs) = byte_range::range_set(value) else { return RangeSelection::Whole };
    let mut parts = Parts::new();
    let mut count = 0;
    for spec in specs.split(|byte| *byte == b',').map(trim).filter(|spec| !spec.is_empty()) {
        count += 1;
        if count > PARTS_MAX {
            return RangeSelection::Whole;
        }
        match byte_range::parse_clamped(spec, length) {
            Ok(part) if part.is_empty() => {}
            Ok(part) => parts.push(part),
            Err(_) => return RangeSelection::Whole,
        }
    }
    match count {
        0 => RangeSelection::Whole,
        _ if parts.is_empty() => RangeSelection::Unsatisfiable,
        _ => merged(parts, length),
    }
}

/// Joins parts that overlap or touch, so that no byte is sent twice.
fn merged(mut parts: Parts, length: u64) -> RangeSelection {
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|part| part.start);
    let mut has_joined = false;
    let mut joined = Parts::new();
    for part in sorted {
        match joined.last_mut() {
            Some(before) if part.start <= before.end => {
                has_joined = true;
                before.end = before.end.max(part.end);
            }
            _ => joined.push(part),
        }
    }
    if has_joined {
        parts = joined;
    }
    if parts.len() == 1 && has_joined && parts[0] == (0..length) {
        RangeSelection::Whole
    } else {
        RangeSelection::Parts(parts)
    }
}

/// `If-Range` (RFC 9110, 13.1.5): the same strong entity tag, or the same strong date (8.8.2.2).
fn if_range_matches(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let mut lines = request.get_all(IF_RANGE).iter();
    let (Some(condition), None) = (lines.next(), lines.next()) else { return false };
    let condition = trim(condition.as_bytes());
    if condition.starts_with(b"\"") || condition.starts_with(b"W/") {
        return stored.get(ETAG).is_some_and(|tag| strong_match(tag.as_bytes(), condition));
    }
    let (Some(condition), Some(modified)) = (date::parse(condition), date::of(stored, &LAST_MODIFIED)) else {
        return false;
    };
    condition == modified && date::of(stored, &DATE).is_some_and(|date| modified < date)
}

#[must_use]
pub fn content_range(part: &Range<u64>, length: u64) -> HeaderValue {
    header(byte_range::content_range(part, length))
}

/// `Content-Range` of a 416.
#[must_use]
pub fn content_range_unsatisfiable(length: u64) -> HeaderValue {
    header(byte_range::content_range_unsatisfied(length))
}

/// `text` has digits and separators only, so it is always valid.
fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("bytes */*"))
}

/// A body of several parts (RFC 9110, 14.6): the head and the bytes of each part, then the tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    pub content_type: HeaderValue,
    /// In the order of the parts.
    pub heads: Vec<Bytes>,
    pub tail: Bytes,
    /// Of the whole body, in bytes.
    pub length: u64,
}

impl Multipart {
    /// `length` is that of the stored body. `boundary` has to be random, so that no content contains it.
    #[must_use]
    pub fn new(parts: &Parts, stored: &HeaderMap, length: u64, boundary: u128) -> Self {
        let boundary = format!("{boundary:032x}");
        let heads: Vec<Bytes> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| {
                let mut head = Vec::with_capacity(160);
                head.extend_from_slice(if at == 0 { b"--" } else { b"\r\n--" });
                head.extend_from_slice(boundary.as_bytes());
                if let Some(content_type) = stored.get(CONTENT_TYPE) {
                    head.extend_from_slice(b"\r\nContent-Type: ");
                    head.extend_from_slice(content_type.as_bytes());
                }
                head.extend_from_slice(b"\r\nContent-Range: ");
                head.extend_from_slice(content_range(part, length).as_bytes());
                head.extend_from_slice(b"\r\n\r\n");
                head.into()
            })
            .collect();
        let tail = Bytes::from(format!("\r\n--{boundary}--\r\n"));
        let lengths = parts.iter().map(|part| part.end - part.start);
        let around = heads.iter().chain([&tail]).map(|bytes| bytes.len() as u64);
        Self {
            content_type: header(format!("multipart/byteranges; boundary={boundary}")),
            length: lengths.chain(around).fold(0, u64::saturating_add),
            heads,
            tail,
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "one part is a list of parts as well")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::testing::{Lines, head};

    const THEN: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
    const LATER: &str = "Thu, 02 Jan 2020 00:00:00 GMT";

    fn some(parts: &[Range<u64>]) -> RangeSelection {
        RangeSelection::Parts(parts.iter().cloned().collect())
    }

    /// http-tests: `partial`, of a response of eleven bytes; and edge cases of the standard.
    #[test]
    fn range_values() {
        for (value, expected) in [
            ("bytes=0-1", some(&[0..2])),
            ("bytes=1-", some(&[1..11])),
            ("bytes=-1", some(&[10..11])),
            ("bytes=-100", some(&[0..11])),
            ("bytes=0-", some(&[0..11])),
            ("Bytes=5-100", some(&[5..11])),
            ("bytes=5-99999999999999999999999999", some(&[5..11])),
            ("bytes=10-10", some(&[10..11])),
            ("bytes=11-", RangeSelection::Unsatisfiable),
            ("bytes=99999999999999999999999999-", RangeSelection::Unsatisfiable),
            ("bytes=-0", RangeSelection::Unsatisfiable),
            ("bytes=11-,-0", RangeSelection::Unsatisfiable),
            ("bytes=11-,0-0", some(&[0..1])),
            ("bytes=0-1, 4-5", some(&[0..2, 4..6])),
            ("bytes=4-5,0-1", some(&[4..6, 0..2])),
            ("bytes=0-4,2-6", some(&[0..7])),
            ("bytes=4-5,0-3,8-8", some(&[0..6, 8..9])),
            ("bytes=0-5,6-", RangeSelection::Whole),
            ("bytes= 0-1", some(&[0..2])),
            ("bytes=,0-1,", some(&[0..2])),
            ("bytes=", RangeSelection::Whole),
            ("bytes", RangeSelection::Whole),
            ("bytes=1-0", RangeSelection::Whole),
            ("bytes=0-1,x", RangeSelection::Whole),
            ("bytes=--1", RangeSelection::Whole),
            ("bytes=-", RangeSelection::Whole),
            ("bytes=0 - 1", RangeSelection::Whole),
            ("bytes=+0-1", RangeSelection::Whole),
            ("bytes =0-1", RangeSelection::Whole),
            ("lines=0-1", RangeSelection::Whole),
        ] {
            assert_eq!(parse_range(value.as_bytes(), 11), expected, "{value}");
        }
        assert_eq!(parse_range(b"bytes=0-", 0), RangeSelection::Unsatisfiable);
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert_eq!(parse_range(many(PARTS_MAX).as_bytes(), 11), some(&[0..1]));
        assert_eq!(parse_range(many(PARTS_MAX + 1).as_bytes(), 11), RangeSelection::Whole);
    }

    #[test]
    fn if_range_selects_whole_or_part() {
        let tagged = [("etag", "\"a\""), ("last-modified", THEN), ("date", LATER)];
        let is_part = |stored: Lines<'_>, fields: Lines<'_>| {
            let request = head(&[fields, &[("range", "bytes=0-0")]].concat());
            select_range(&Method::GET, &request, StatusCode::OK, &head(stored), 11) != RangeSelection::Whole
        };
        assert!(is_part(&tagged, &[]));
        for (condition, expected) in [
            ("\"a\"", true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            (THEN, true),
            (LATER, false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(is_part(&tagged, &[("if-range", condition)]), expected, "{condition}");
        }
        // A date that is that of the answer itself may be of two states.
        assert!(!is_part(&[("last-modified", THEN), ("date", THEN)], &[("if-range", THEN)]));
        assert!(!is_part(&[("last-modified", THEN)], &[("if-range", THEN)]));
        assert!(!is_part(&[("etag", "W/\"a\"")], &[("if-range", "W/\"a\"")]));
        assert!(!is_part(&tagged, &[("if-range", "\"a\""), ("if-range", "\"a\"")]));
        assert!(!is_part(&tagged, &[("range", "bytes=0-0")]));
        assert!(!is_part(&[("content-range", "bytes 0-9/10")], &[]));
        let range = head(&[("range", "bytes=0-0")]);
        for (method, status) in
            [(Method::HEAD, 200), (Method::POST, 200), (Method::GET, 404), (Method::GET, 204)]
        {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(select_range(&method, &range, status, &HeaderMap::new(), 11), RangeSelection::Whole);
        }
    }

    #[test]
    fn content_range_and_multipart_format() {
        assert_eq!(content_range(&(0..2), 11), "bytes 0-1/11");
        assert_eq!(content_range_unsatisfiable(11), "bytes */11");
        let parts: Parts = [0..2, 4..6].into_iter().collect();
        let body = Multipart::new(&parts, &head(&[("content-type", "text/plain")]), 11, 0xab);
        let boundary = "000000000000000000000000000000ab";
        assert_eq!(body.content_type, format!("multipart/byteranges; boundary={boundary}"));
        let whole = [&body.heads[0][..], b"01", &body.heads[1], b"45", &body.tail].concat();
        let expected = format!(
            "--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/11\r\n\r\n01\
             \r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 4-5/11\r\n\r\n45\
             \r\n--{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(whole).unwrap(), expected);
        assert_eq!(body.length, expected.len() as u64);
    }

    proptest! {
        /// Each byte of some requested range is sent exactly once.
        #[test]
        fn ranges_equal_a_naive_model(length in 0_u64..40, specs in prop::collection::vec((0_u64..50, 0_u64..50, 0..3_u8), 1..6)) {
            let mut named = vec![false; usize::try_from(length).unwrap()];
            let mut text = Vec::new();
            for (first, last, kind) in &specs {
                let (spec, range) = match kind {
                    0 => (format!("{first}-"), *first..length),
                    1 => (format!("-{first}"), length.saturating_sub(*first)..length),
                    _ => (format!("{first}-{}", first + last), *first..length.min(first + last + 1)),
                };
                text.push(spec);
                range.for_each(|at| named[usize::try_from(at).unwrap()] = true);
            }
            let sent: Vec<u64> = match parse_range(format!("bytes={}", text.join(",")).as_bytes(), length) {
                RangeSelection::Whole => (0..length).collect(),
                RangeSelection::Parts(parts) => {
                    prop_assert!(parts.iter().all(|part| !part.is_empty()));
                    let mut sent: Vec<u64> = parts.into_iter().flatten().collect();
                    sent.sort_unstable();
                    sent
                }
                RangeSelection::Unsatisfiable => Vec::new(),
            };
            let expected: Vec<u64> = (0..length).filter(|at| named[usize::try_from(*at).unwrap()]).collect();
            prop_assert_eq!(sent, expected);
        }

        #[test]
        fn arbitrary_values_do_not_panic(value in "(bytes=)?[0-9,= x-]{0,40}", length: u64, condition in "[ -~]{0,20}") {
            let request = head(&[("range", &value), ("if-range", &condition)]);
            let _ = select_range(&Method::GET, &request, StatusCode::OK, &head(&[("etag", &condition)]), length);
            if let RangeSelection::Parts(parts) = parse_range(value.as_bytes(), length) {
                prop_assert!(parts.len() <= PARTS_MAX);
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                let _ = Multipart::new(&parts, &HeaderMap::new(), length, 7);
            }
        }
    }
}
