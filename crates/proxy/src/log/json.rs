//! One JSON object a line. `stockade load --replay` reads it.

use std::io::Write;

use super::{
    entry::{Entry, version_name},
    escape,
    stamp::{Stamp, milliseconds},
};

/// Appends `{"time":"...","peer":"...",...}` and the end of the line.
pub(super) fn line(line: &mut Vec<u8>, stamp: &mut Stamp, entry: &Entry<'_>) {
    line.extend_from_slice(br#"{"time":""#);
    stamp.rfc3339(line, entry.time);
    // Writing into memory does not fail.
    let _ = write!(line, r#"","peer":"{}","method":""#, entry.peer);
    escape::json(line, entry.method.as_bytes());
    text(line, "host", entry.host);
    text(line, "url", entry.target.as_bytes());
    let (version, status, bytes) = (version_name(entry.version), entry.status, entry.sent_bytes);
    let _ = write!(line, r#"","version":"{version}","status":{status},"bytes":{bytes},"ms":"#);
    milliseconds(line, entry.took);
    let _ = write!(line, r#","cache":"{}"#, entry.outcome.name());
    text(line, "cache_status", entry.cache_status);
    text(line, "route", entry.route.as_bytes());
    line.push(b'"');
    if let Some(origin) = entry.origin {
        match origin.status {
            Some(status) => drop(write!(line, r#","origin_status":{status}"#)),
            None => line.extend_from_slice(br#","origin_status":null"#),
        }
        line.extend_from_slice(br#","origin_ms":"#);
        milliseconds(line, origin.took);
    }
    for (name, value) in [("user_agent", entry.user_agent), ("referer", entry.referer)] {
        if let Some(value) = value {
            let _ = write!(line, r#","{name}":""#);
            escape::json(line, value);
            line.push(b'"');
        }
    }
    if entry.is_cut {
        line.extend_from_slice(br#","cut":true"#);
    }
    line.extend_from_slice(b"}\n");
}

/// Ends the text before it, and begins another, which is left open.
fn text(line: &mut Vec<u8>, name: &str, value: &[u8]) {
    line.extend_from_slice(br#"",""#);
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(br#"":""#);
    escape::json(line, value);
}
