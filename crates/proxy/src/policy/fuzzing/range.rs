//! Ranges compared with a naive reading.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header::RANGE};

use super::lines;
use crate::policy::range::{Multipart, PARTS_MAX, Parts, RangeSelection, parse_range, select_range};

/// The length of a body (2 bytes, or 8 after a 0xff), then a value of `Range`.
///
/// - The parts contain each byte that a naive reading selects, and no other.
/// - Parts are not empty, lie in the body and do not overlap.
/// - The length of a multipart body is that of its parts and their heads.
pub fn check(data: &[u8]) {
    let (length, value) = match data {
        [0xff, rest @ ..] => {
            let Some((length, value)) = rest.split_first_chunk() else { return };
            (u64::from_be_bytes(*length), value)
        }
        _ => {
            let Some((length, value)) = data.split_first_chunk() else { return };
            (u16::from_be_bytes(*length).into(), value)
        }
    };
    let selection = parse_range(value, length);
    match (&selection, naive(value, length)) {
        (RangeSelection::Whole, None) => {}
        (RangeSelection::Whole, Some(intervals)) => {
            assert_eq!(intervals, [(0, length)], "{}", value.escape_ascii());
        }
        (RangeSelection::Unsatisfiable, Some(intervals)) => {
            assert_eq!(intervals, [], "{}", value.escape_ascii());
        }
        (RangeSelection::Parts(parts), Some(intervals)) => {
            assert!(!intervals.is_empty());
            assert_eq!(union(parts.iter().map(|part| (part.start, part.end)).collect()), intervals);
            check_parts(parts, length);
        }
        (selection, naive) => panic!("{}: {selection:?}, naively {naive:?}", value.escape_ascii()),
    }
    if let Some(request) = lines(&RANGE, &[value]) {
        let selected = select_range(&Method::GET, &request, StatusCode::OK, &HeaderMap::new(), length);
        let trimmed = request[RANGE].as_bytes();
        assert_eq!(selected, parse_range(trimmed, length));
    }
}

fn check_parts(parts: &Parts, length: u64) {
    assert!(parts.len() <= PARTS_MAX);
    assert!(parts.iter().all(|part| part.start < part.end && part.end <= length), "{parts:?} of {length}");
    let bytes: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
    assert!(bytes <= u128::from(length), "a byte is sent twice: {parts:?} of {length}");
    let body = Multipart::new(parts, &HeaderMap::new(), length, 7);
    let around: usize = body.heads.iter().map(Bytes::len).sum::<usize>() + body.tail.len();
    assert_eq!(u128::from(body.length), (bytes + around as u128).min(u64::MAX.into()));
    for (part, head) in parts.iter().zip(&body.heads) {
        let stated = format!("Content-Range: bytes {}-{}/{length}\r\n\r\n", part.start, part.end - 1);
        assert!(head.ends_with(stated.as_bytes()));
    }
}

/// The selected intervals, sorted and joined; `None`: the field does not apply.
fn naive(value: &[u8], length: u64) -> Option<Vec<(u64, u64)>> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, set) = text.trim_ascii().split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let specs: Vec<&str> =
        set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty()).collect();
    if specs.is_empty() || specs.len() > PARTS_MAX {
        return None;
    }
    let mut intervals = Vec::new();
    for spec in specs {
        let (first, last) = spec.split_once('-')?;
        let number = |digits: &str| -> Option<u64> {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().unwrap_or(u64::MAX))
        };
        let (start, end) = match (first, last) {
            ("", suffix) => (length - number(suffix)?.min(length), length),
            (first, "") => (number(first)?, length),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return None;
                }
                (first, last.saturating_add(1).min(length))
            }
        };
        if start < end {
            intervals.push((start, end));
        }
    }
    Some(union(intervals))
}

/// Sorted intervals; those that overlap or touch are joined.
fn union(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals {
        match joined.last_mut() {
            Some(before) if start <= before.1 => before.1 = before.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}
