//! Apache's Combined Log Format, and what the cache did after it.

use std::io::Write;

use super::{
    entry::{Entry, version_name},
    escape,
    stamp::{Stamp, milliseconds},
};

/// Appends a line:
///
/// ```text
/// PEER - - [TIME] "METHOD TARGET VERSION" STATUS BYTES "REFERER" "USER-AGENT" OUTCOME MS ORIGIN-STATUS ORIGIN-MS "HOST" "ROUTE" "CACHE-STATUS" whole|cut
/// ```
///
/// Where there is nothing to tell stands `-`. Milliseconds have three decimals.
pub(super) fn line(line: &mut Vec<u8>, stamp: &mut Stamp, entry: &Entry<'_>) {
    // Writing into memory does not fail.
    let _ = write!(line, "{} - - [", entry.peer.ip());
    stamp.common(line, entry.time);
    line.extend_from_slice(b"] \"");
    escape::apache(line, entry.method.as_bytes());
    line.push(b' ');
    escape::apache(line, entry.target.as_bytes());
    let _ = write!(line, " {}\" {} ", version_name(entry.version), entry.status);
    match entry.sent_bytes {
        0 => line.push(b'-'),
        bytes => drop(write!(line, "{bytes}")),
    }
    quoted(line, entry.referer);
    quoted(line, entry.user_agent);
    let _ = write!(line, " {} ", entry.outcome.name());
    milliseconds(line, entry.took);
    match entry.origin {
        None => line.extend_from_slice(b" - -"),
        Some(origin) => {
            match origin.status {
                None => line.extend_from_slice(b" - "),
                Some(status) => drop(write!(line, " {status} ")),
            }
            milliseconds(line, origin.took);
        }
    }
    for value in [entry.host, entry.route.as_bytes(), entry.cache_status] {
        quoted(line, Some(value));
    }
    line.extend_from_slice(if entry.is_cut { b" cut\n" } else { b" whole\n" });
}

fn quoted(line: &mut Vec<u8>, value: Option<&[u8]>) {
    line.extend_from_slice(b" \"");
    escape::apache(line, value.filter(|value| !value.is_empty()).unwrap_or(b"-"));
    line.push(b'"');
}
