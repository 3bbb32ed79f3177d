//! `oracleGeneral`, the binary traces of libCacheSim: <https://github.com/1a1a11a/libCacheSim>.

use crate::{
    format::{Content, FormatKind},
    logged::{LoggedKey, LoggedRequest},
    value::Problem,
};

pub(crate) const ORACLE_GENERAL: FormatKind = FormatKind {
    name: "oracle-general",
    summary: "binary trace of libCacheSim, 24 bytes a request",
    is_access_log: false,
    is_forward: false,
    is_guessed: false,
    is_free_text: false,
    content: Content::Records,
};

/// Packed and little-endian: `u32` seconds, `u64` object, `u32` bytes, `i64` number of the next request for it (-1: none).
pub(crate) const RECORD_BYTES: usize = 24;

const SECOND_NS: u64 = 1_000_000_000;

/// Reads a record, which may be the shorter rest of a file.
pub(crate) fn parse(record: &[u8]) -> Result<LoggedRequest<'static>, Problem> {
    let Some((record, [])) = record.split_first_chunk::<RECORD_BYTES>() else {
        return Err(format!("the record ends after {} of {RECORD_BYTES} bytes", record.len()).into());
    };
    let [seconds, object, bytes] = [0..4, 4..12, 12..16].map(|range: std::ops::Range<usize>| {
        record[range].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    });
    Ok(LoggedRequest {
        at_ns: Some(seconds * SECOND_NS),
        bytes: Some(bytes),
        ..LoggedRequest::read(LoggedKey::Number(object))
    })
}
