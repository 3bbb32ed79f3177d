//! Which parts of a stored answer a request wants (RFC 9110, 14).

use std::ops::Range;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE},
};
use smallvec::SmallVec;

use super::{
    conditional::is_strongly,
    date,
    field::{position, trim},
};

/// More parts than that are not answered: the whole is, as the standard allows where a request looks like an attack
/// (RFC 9110, 14.2).
pub const PARTS_MOST: usize = 16;

/// The parts of an answer, in bytes, none of them empty.
pub type Parts = SmallVec<[Range<u64>; 1]>;

/// How much of an answer is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: 200.
    Whole,
    /// These parts: 206. One, or several that do not overlap, in the order in which they were asked for.
    Parts(Parts),
    /// Nothing that there is: 416.
    Unsatisfiable,
}

/// How much of a stored answer of `length` bytes is wanted.
///
/// Ranges are about GET and about 200. What cannot be read, is in another unit, or is about another state of the
/// answer (`If-Range`) means the whole.
#[must_use]
pub fn wanted(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    stored: &HeaderMap,
    length: u64,
) -> Wanted {
    let mut lines = request.get_all(RANGE).iter();
    let (Some(range), None) = (lines.next(), lines.next()) else { return Wanted::Whole };
    // An answer that says of which part it is has another meaning than its bytes.
    if *method != Method::GET || status != StatusCode::OK || stored.contains_key(CONTENT_RANGE) {
        return Wanted::Whole;
    }
    if request.contains_key(IF_RANGE) && !is_of_this_state(request, stored) {
        return Wanted::Whole;
    }
    parts(range.as_bytes(), length)
}

/// The parts that a value of `Range` means.
#[must_use]
pub fn parts(value: &[u8], length: u64) -> Wanted {
    let Some(specs) = in_bytes(value) else { return Wanted::Whole };
    let mut parts = Parts::new();
    let mut count = 0;
    for spec in specs.split(|byte| *byte == b',').map(trim).filter(|spec| !spec.is_empty()) {
        count += 1;
        if count > PARTS_MOST {
            return Wanted::Whole;
        }
        match part(spec, length) {
            Some(part) if part.is_empty() => {}
            Some(part) => parts.push(part),
            None => return Wanted::Whole,
        }
    }
    match count {
        0 => Wanted::Whole,
        _ if parts.is_empty() => Wanted::Unsatisfiable,
        _ => merged(parts, length),
    }
}

/// What stands behind `bytes=`.
fn in_bytes(value: &[u8]) -> Option<&[u8]> {
    let value = trim(value);
    let (unit, specs) = value.split_at(value.iter().position(|byte| *byte == b'=')?);
    unit.eq_ignore_ascii_case(b"bytes").then_some(&specs[1..])
}

/// `first-last`, `first-` or `-length of the end`; empty, if there is nothing of it.
fn part(spec: &[u8], length: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_at(spec.iter().position(|byte| *byte == b'-')?);
    let last = &last[1..];
    // A number too great to hold is past any end.
    let number = |digits: &[u8]| match position(digits) {
        None if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => Some(u64::MAX),
        number => number,
    };
    match (first, last) {
        (b"", suffix) => Some(length.saturating_sub(number(suffix)?)..length),
        (first, b"") => Some(number(first)?.min(length)..length),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first.min(length)..last.saturating_add(1).min(length))
        }
    }
}

/// Parts that overlap or touch become one, so that no byte is sent twice; the whole, if that is what remains.
fn merged(mut parts: Parts, length: u64) -> Wanted {
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|part| part.start);
    let mut has_met = false;
    let mut joined = Parts::new();
    for part in sorted {
        match joined.last_mut() {
            Some(before) if part.start <= before.end => {
                has_met = true;
                before.end = before.end.max(part.end);
            }
            _ => joined.push(part),
        }
    }
    if has_met {
        parts = joined;
    }
    if parts.len() == 1 && has_met && parts[0] == (0..length) { Wanted::Whole } else { Wanted::Parts(parts) }
}

/// `If-Range` (RFC 9110, 13.1.5): the same tag, strongly; or the same date, if it is a strong one (8.8.2.2).
fn is_of_this_state(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let mut lines = request.get_all(IF_RANGE).iter();
    let (Some(asked), None) = (lines.next(), lines.next()) else { return false };
    let asked = trim(asked.as_bytes());
    if asked.starts_with(b"\"") || asked.starts_with(b"W/") {
        return stored.get(ETAG).is_some_and(|tag| is_strongly(tag.as_bytes(), asked));
    }
    let (Some(asked), Some(modified)) = (date::read(asked), date::of(stored, &LAST_MODIFIED)) else {
        return false;
    };
    asked == modified && date::of(stored, &DATE).is_some_and(|date| modified < date)
}

/// `Content-Range` of a part.
#[must_use]
pub fn content_range(part: &Range<u64>, length: u64) -> HeaderValue {
    let last = part.end.saturating_sub(1);
    header(format!("bytes {}-{last}/{length}", part.start))
}

/// `Content-Range` of a 416.
#[must_use]
pub fn content_range_unsatisfiable(length: u64) -> HeaderValue {
    header(format!("bytes */{length}"))
}

/// Never fails: digits and separators.
fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("bytes */*"))
}

/// Several parts in one body (RFC 9110, 14.6): for each its head, then its bytes; then the tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// `Content-Type` of the answer.
    pub content_type: HeaderValue,
    /// The heads, in the order of the parts.
    pub heads: Vec<Bytes>,
    /// What follows the last part.
    pub tail: Bytes,
    /// The length of it all, in bytes.
    pub length: u64,
}

impl Multipart {
    /// Of an answer of so many bytes. `boundary` is drawn by chance, so that nobody can write it into content
    /// beforehand.
    #[must_use]
    pub fn of(parts: &Parts, stored: &HeaderMap, length: u64, boundary: u128) -> Self {
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

    fn some(parts: &[Range<u64>]) -> Wanted {
        Wanted::Parts(parts.iter().cloned().collect())
    }

    /// The suite's `partial`, of an answer of eleven bytes; and the standard's corners.
    #[test]
    fn table() {
        for (value, expected) in [
            ("bytes=0-1", some(&[0..2])),
            ("bytes=1-", some(&[1..11])),
            ("bytes=-1", some(&[10..11])),
            ("bytes=-100", some(&[0..11])),
            ("bytes=0-", some(&[0..11])),
            ("Bytes=5-100", some(&[5..11])),
            ("bytes=5-99999999999999999999999999", some(&[5..11])),
            ("bytes=10-10", some(&[10..11])),
            ("bytes=11-", Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=11-,-0", Wanted::Unsatisfiable),
            ("bytes=11-,0-0", some(&[0..1])),
            ("bytes=0-1, 4-5", some(&[0..2, 4..6])),
            ("bytes=4-5,0-1", some(&[4..6, 0..2])),
            ("bytes=0-4,2-6", some(&[0..7])),
            ("bytes=4-5,0-3,8-8", some(&[0..6, 8..9])),
            ("bytes=0-5,6-", Wanted::Whole),
            ("bytes= 0-1", some(&[0..2])),
            ("bytes=,0-1,", some(&[0..2])),
            ("bytes=", Wanted::Whole),
            ("bytes", Wanted::Whole),
            ("bytes=1-0", Wanted::Whole),
            ("bytes=0-1,x", Wanted::Whole),
            ("bytes=--1", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=0 - 1", Wanted::Whole),
            ("bytes=+0-1", Wanted::Whole),
            ("bytes =0-1", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
        ] {
            assert_eq!(parts(value.as_bytes(), 11), expected, "{value}");
        }
        assert_eq!(parts(b"bytes=0-", 0), Wanted::Unsatisfiable);
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert_eq!(parts(many(PARTS_MOST).as_bytes(), 11), some(&[0..1]));
        assert_eq!(parts(many(PARTS_MOST + 1).as_bytes(), 11), Wanted::Whole);
    }

    #[test]
    fn of_which_state() {
        let tagged = [("etag", "\"a\""), ("last-modified", THEN), ("date", LATER)];
        let is_part = |stored: Lines<'_>, asked: Lines<'_>| {
            let request = head(&[asked, &[("range", "bytes=0-0")]].concat());
            wanted(&Method::GET, &request, StatusCode::OK, &head(stored), 11) != Wanted::Whole
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
            assert_eq!(wanted(&method, &range, status, &HeaderMap::new(), 11), Wanted::Whole);
        }
    }

    #[test]
    fn what_is_told_of_parts() {
        assert_eq!(content_range(&(0..2), 11), "bytes 0-1/11");
        assert_eq!(content_range_unsatisfiable(11), "bytes */11");
        let parts: Parts = [0..2, 4..6].into_iter().collect();
        let body = Multipart::of(&parts, &head(&[("content-type", "text/plain")]), 11, 0xab);
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
        /// Which bytes are sent: those that some range names, each once.
        #[test]
        fn as_a_naive_model(length in 0_u64..40, specs in prop::collection::vec((0_u64..50, 0_u64..50, 0..3_u8), 1..6)) {
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
            let sent: Vec<u64> = match parts(format!("bytes={}", text.join(",")).as_bytes(), length) {
                Wanted::Whole => (0..length).collect(),
                Wanted::Parts(parts) => {
                    prop_assert!(parts.iter().all(|part| !part.is_empty()));
                    let mut sent: Vec<u64> = parts.into_iter().flatten().collect();
                    sent.sort_unstable();
                    sent
                }
                Wanted::Unsatisfiable => Vec::new(),
            };
            let expected: Vec<u64> = (0..length).filter(|at| named[usize::try_from(*at).unwrap()]).collect();
            prop_assert_eq!(sent, expected);
        }

        #[test]
        fn any_value_is_read(value in "(bytes=)?[0-9,= x-]{0,40}", length: u64, condition in "[ -~]{0,20}") {
            let request = head(&[("range", &value), ("if-range", &condition)]);
            let _ = wanted(&Method::GET, &request, StatusCode::OK, &head(&[("etag", &condition)]), length);
            if let Wanted::Parts(parts) = parts(value.as_bytes(), length) {
                prop_assert!(parts.len() <= PARTS_MOST);
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                let _ = Multipart::of(&parts, &HeaderMap::new(), length, 7);
            }
        }
    }
}
