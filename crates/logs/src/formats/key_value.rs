//! Traces of key-value caches, of Twitter and of Meta.

use std::time::Duration;

use memchr::{memchr, memchr_iter, memrchr};

use super::{LineParser, Parsed, Visit};
use crate::{
    format::FormatKind,
    logged::{LoggedKey, LoggedRequest, Operation},
    value::{self, Problem, number},
};

/// The traces of Twitter's caches.
pub(crate) const TWITTER: FormatKind = FormatKind {
    is_guessed: true,
    ..FormatKind::trace(
        "twitter",
        "time,key,key size,value size,client,operation,TTL: twitter/cache-trace",
        || Box::new(TwitterLines),
    )
};

/// The kvcache traces of `CacheLib`.
pub(crate) const META: FormatKind =
    FormatKind::trace("meta", "key,op,size,op_count,... with a header: kvcache traces of CacheLib", || {
        Box::new(MetaLines::default())
    });

const SECOND_NS: u64 = 1_000_000_000;

/// `timestamp,key,key size,value size,client,operation,TTL`, as in <https://github.com/twitter/cache-trace>: seconds and bytes.
/// A key may have commas. The size is that of the value; 0 for a read means that it was not found.
#[derive(Debug)]
pub(crate) struct TwitterLines;

impl LineParser for TwitterLines {
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        const FORM: &str = "the line is not `timestamp,key,key size,value size,client,operation,TTL`";
        let first = memchr(b',', line).ok_or(FORM)?;
        let (time, mut rest) = (&line[..first], &line[first + 1..]);
        let mut last = || {
            let at = memrchr(b',', rest)?;
            let word = &rest[at + 1..];
            rest = &rest[..at];
            Some(word)
        };
        let (Some(ttl), Some(operation), Some(_client), Some(value_bytes), Some(_key_bytes)) =
            (last(), last(), last(), last(), last())
        else {
            return Err(FORM.into());
        };
        let operation = value::operation(operation).ok_or("the operation is not one of Twitter's")?;
        let at_ns = value::decimal_ns(time, SECOND_NS).ok_or("the timestamp is not a number of seconds")?;
        let ttl = number(ttl.trim_ascii_end()).ok_or("the TTL is not a number of seconds")?;
        visit(LoggedRequest {
            at_ns: Some(at_ns),
            operation,
            bytes: known_size(value_bytes, operation)?,
            ttl: (ttl > 0).then(|| Duration::from_secs(ttl)),
            ..LoggedRequest::read(LoggedKey::Text(rest))
        });
        Ok(Parsed::Requests)
    }
}

/// A read of 0 bytes found nothing: the size is not known.
fn known_size(bytes: &[u8], operation: Operation) -> Result<Option<u64>, Problem> {
    Ok(value::size(bytes)?.filter(|bytes| *bytes > 0 || operation != Operation::Read))
}

/// The most requests that a line stands for.
const OP_COUNT_MAX: u32 = 1_000_000;

/// The columns of `CacheLib`'s traces: <https://cachelib.org/docs/Cache_Library_User_Guides/Cachebench_FB_HW_eval>.
const META_COLUMNS: [&str; 6] = ["key", "op", "size", "op_count", "op_time", "ttl"];
const KEY: usize = 0;
const OP: usize = 1;
const SIZE: usize = 2;
const OP_COUNT: usize = 3;
const OP_TIME: usize = 4;
const TTL: usize = 5;

/// Columns by the names of a header; without one `key,op,size,op_count,key_size`.
#[derive(Debug)]
pub(crate) struct MetaLines {
    /// Where each of the columns is.
    positions: [Option<usize>; META_COLUMNS.len()],
}

impl Default for MetaLines {
    fn default() -> Self {
        Self { positions: [Some(0), Some(1), Some(2), Some(3), None, None] }
    }
}

/// True if a line is a header with key and operation.
pub(crate) fn is_meta_header(line: &[u8]) -> bool {
    let positions = header_positions(line);
    positions[KEY].is_some() && positions[OP].is_some()
}

fn header_positions(line: &[u8]) -> [Option<usize>; META_COLUMNS.len()] {
    META_COLUMNS.map(|column| {
        line.split(|byte| *byte == b',').position(|name| name.trim_ascii() == column.as_bytes())
    })
}

impl LineParser for MetaLines {
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let mut columns = [None; META_COLUMNS.len()];
        let ends = memchr_iter(b',', line).chain([line.len()]);
        let mut start = 0;
        for (position, end) in ends.enumerate() {
            if let Some(column) = self.positions.iter().position(|place| *place == Some(position)) {
                columns[column] = Some(&line[start..end]);
            }
            start = end + 1;
        }
        let (Some(key), Some(op)) = (columns[KEY], columns[OP]) else {
            return Err("the line has no key and operation: Meta's traces have `key,op,size,op_count`".into());
        };
        let Some(operation) = value::operation(op) else {
            if is_meta_header(line) {
                self.positions = header_positions(line);
                return Ok(Parsed::Comment);
            }
            return Err("the operation is not one of Meta's".into());
        };
        let text = |column: usize| columns[column].map(<[u8]>::trim_ascii).filter(|text| !text.is_empty());
        let count = text(OP_COUNT).map_or(Some(1), number).and_then(|count| u32::try_from(count).ok());
        let at_ns = match text(OP_TIME) {
            Some(time) => {
                Some(value::decimal_ns(time, SECOND_NS).ok_or("`op_time` is not a number of seconds")?)
            }
            None => None,
        };
        visit(LoggedRequest {
            at_ns,
            operation,
            bytes: known_size(text(SIZE).unwrap_or_default(), operation)?,
            ttl: text(TTL).and_then(number).filter(|ttl| *ttl > 0).map(Duration::from_secs),
            repeats: count
                .filter(|count| (1..=OP_COUNT_MAX).contains(count))
                .ok_or("`op_count` is not a number from 1 to 1,000,000")?,
            ..LoggedRequest::read(LoggedKey::Text(key))
        });
        Ok(Parsed::Requests)
    }
}
