//! Responses in any split.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use super::reader::ResponseReader;
use crate::{
    client::response::{CompletedResponse, ExpectedBody},
    sample::{FailureClass, RequestFailure},
};

/// Inputs are smaller than the bound on heads, which depends on reads.
const INPUT_BYTES_MAX: usize = 4_096;

/// The request's properties and the length of uneven reads in the first byte, then a response.
///
/// - A response is complete at the same byte however it is split, and is the same response.
/// - It is no longer than the bytes that were received, and has a status.
/// - A response that is cut before that byte is not complete, unless its body ends with the connection.
/// - Failures have the same class, but for a malformed head that does not end.
pub fn check(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    if bytes.len() > INPUT_BYTES_MAX {
        return;
    }
    let expected = ExpectedBody {
        is_head: first & 1 == 1,
        decodes: first & 2 == 2,
        digest: None,
        is_strict: false,
        is_checked: true,
    };
    let step = usize::from(first >> 2) + 2;
    let (end, exact) = read(expected, bytes, 1);
    let received = &bytes[..end];
    match &exact {
        Ok(completed) => {
            let response = &completed.response;
            assert!((100..=999).contains(&response.status), "{response:?}");
            assert!(response.wire_bytes <= received.len() as u64);
            for step in [step, INPUT_BYTES_MAX] {
                let (_, other) = read(expected, received, step);
                assert_eq!(other.as_ref(), Ok(completed), "in reads of {step} bytes");
            }
            let ends_with_connection = end == bytes.len() && is_until_close(expected, bytes);
            if !ends_with_connection {
                let (_, cut) = read(expected, &received[..end - 1], INPUT_BYTES_MAX);
                assert!(cut.is_err(), "complete a byte too soon");
                let followed = [received, b"x"].concat();
                let (_, followed) = read(expected, &followed, INPUT_BYTES_MAX);
                assert_eq!(followed.map_err(|failure| failure.class), Err(FailureClass::Malformed));
            }
        }
        Err(failure) => {
            for step in [step, INPUT_BYTES_MAX] {
                // Only the bytes up to the failure: others may have faults of their own.
                let (_, other) = read(expected, received, step);
                let class = other.expect_err("it fails in single bytes").class;
                let is_endless_head = failure.class == FailureClass::Truncated
                    && matches!(class, FailureClass::Malformed | FailureClass::HeadTooLarge);
                assert!(
                    class == failure.class || is_endless_head,
                    "{failure} and {class:?} in reads of {step} bytes"
                );
            }
        }
    }
}

/// The status and the length of the body of a response that arrives byte by byte; `None`: it is refused.
#[must_use]
pub fn response(is_head: bool, bytes: &[u8]) -> Option<(u16, u64)> {
    let expected = ExpectedBody { is_head, decodes: false, digest: None, is_strict: false, is_checked: true };
    let (_, completed) = read(expected, bytes, 1);
    completed.ok().map(|completed| (completed.response.status, completed.response.wire_bytes))
}

/// Returns how many bytes were read, and the result.
fn read(
    expected: ExpectedBody,
    bytes: &[u8],
    step: usize,
) -> (usize, Result<CompletedResponse, RequestFailure>) {
    let (mut reader, mut at) = (ResponseReader::new(expected), 0);
    for part in bytes.chunks(step) {
        at += part.len();
        match reader.push(part) {
            Ok(None) => {}
            Ok(Some(completed)) => return (at, Ok(completed)),
            Err(failure) => return (at, Err(failure)),
        }
        assert!(reader.has_data() || at < bytes.len() || is_interim(bytes), "bytes were forgotten");
    }
    (at, reader.close())
}

/// Interim responses leave nothing behind.
fn is_interim(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|window| window == b" 1")
}

fn is_until_close(expected: ExpectedBody, bytes: &[u8]) -> bool {
    let mut reader = ResponseReader::new(expected);
    matches!(reader.push(bytes), Ok(None)) && reader.ends_with_connection()
}
