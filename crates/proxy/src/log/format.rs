//! The two formats of a line: JSON, and Apache's Combined Log Format with more fields.

use std::{
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::Version;
use jiff::Timestamp;

use super::{escape, record::AccessRecord};

/// Appends `{"time":"...","peer":"...",...}` and a newline. `stockade load --replay` reads it.
pub(super) fn append_json(line: &mut Vec<u8>, times: &mut TimestampCache, record: &AccessRecord<'_>) {
    line.extend_from_slice(br#"{"time":""#);
    times.append_rfc3339(line, record.time);
    // Writes into memory do not fail.
    let _ = write!(line, r#"","peer":"{}","method":""#, record.peer);
    escape::append_json(line, record.method.as_bytes());
    append_text_field(line, "host", record.host);
    append_text_field(line, "url", record.target.as_bytes());
    let (version, status, bytes) = (version_name(record.version), record.status, record.sent_bytes);
    let _ = write!(line, r#"","version":"{version}","status":{status},"bytes":{bytes},"ms":"#);
    append_milliseconds(line, record.took);
    let _ = write!(line, r#","cache":"{}"#, record.outcome.name());
    append_text_field(line, "cache_status", record.cache_status);
    append_text_field(line, "route", record.route.as_bytes());
    line.push(b'"');
    if let Some(origin) = record.origin {
        match origin.status {
            Some(status) => drop(write!(line, r#","origin_status":{status}"#)),
            None => line.extend_from_slice(br#","origin_status":null"#),
        }
        line.extend_from_slice(br#","origin_ms":"#);
        append_milliseconds(line, origin.took);
    }
    let texts = [
        ("error", record.error.map(str::as_bytes)),
        ("user_agent", record.user_agent),
        ("referer", record.referer),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            let _ = write!(line, r#","{name}":""#);
            escape::append_json(line, value);
            line.push(b'"');
        }
    }
    if record.is_truncated {
        line.extend_from_slice(br#","cut":true"#);
    }
    line.extend_from_slice(b"}\n");
}

/// Closes the string before it and begins another, which stays open.
fn append_text_field(line: &mut Vec<u8>, name: &str, value: &[u8]) {
    line.extend_from_slice(br#"",""#);
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(br#"":""#);
    escape::append_json(line, value);
}

/// Appends a line:
///
/// ```text
/// PEER - - [TIME] "METHOD TARGET VERSION" STATUS BYTES "REFERER" "USER-AGENT" OUTCOME MS ORIGIN-STATUS ORIGIN-MS "HOST" "ROUTE" "CACHE-STATUS" whole|cut "ERROR"
/// ```
///
/// `-` stands for an absent value. Milliseconds have three decimals.
pub(super) fn append_combined(line: &mut Vec<u8>, times: &mut TimestampCache, record: &AccessRecord<'_>) {
    // Writes into memory do not fail.
    let _ = write!(line, "{} - - [", record.peer.ip());
    times.append_common(line, record.time);
    line.extend_from_slice(b"] \"");
    escape::append_apache(line, record.method.as_bytes());
    line.push(b' ');
    escape::append_apache(line, record.target.as_bytes());
    let _ = write!(line, " {}\" {} ", version_name(record.version), record.status);
    match record.sent_bytes {
        0 => line.push(b'-'),
        bytes => drop(write!(line, "{bytes}")),
    }
    append_quoted(line, record.referer);
    append_quoted(line, record.user_agent);
    let _ = write!(line, " {} ", record.outcome.name());
    append_milliseconds(line, record.took);
    match record.origin {
        None => line.extend_from_slice(b" - -"),
        Some(origin) => {
            match origin.status {
                None => line.extend_from_slice(b" - "),
                Some(status) => drop(write!(line, " {status} ")),
            }
            append_milliseconds(line, origin.took);
        }
    }
    for value in [record.host, record.route.as_bytes(), record.cache_status] {
        append_quoted(line, Some(value));
    }
    line.extend_from_slice(if record.is_truncated { b" cut" } else { b" whole" });
    append_quoted(line, record.error.map(str::as_bytes));
    line.push(b'\n');
}

fn append_quoted(line: &mut Vec<u8>, value: Option<&[u8]>) {
    line.extend_from_slice(b" \"");
    escape::append_apache(line, value.filter(|value| !value.is_empty()).unwrap_or(b"-"));
    line.push(b'"');
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Three decimals: `12.345`.
fn append_milliseconds(line: &mut Vec<u8>, duration: Duration) {
    let micros = duration.as_micros();
    let _ = write!(line, "{}.{:03}", micros / 1_000, micros % 1_000);
}

/// Formats each second once, for all lines of that second.
#[derive(Debug)]
pub(super) struct TimestampCache {
    second: Option<u64>,
    /// `2026-11-21T20:30:00`
    rfc3339: String,
    /// `21/Nov/2026:20:30:00 +0000`
    common: String,
}

impl TimestampCache {
    pub(super) const EMPTY: Self = Self { second: None, rfc3339: String::new(), common: String::new() };

    /// `2026-11-21T20:30:00.123Z` (RFC 3339).
    fn append_rfc3339(&mut self, line: &mut Vec<u8>, time: SystemTime) {
        let since_epoch = self.update(time);
        line.extend_from_slice(self.rfc3339.as_bytes());
        let _ = write!(line, ".{:03}Z", since_epoch.subsec_millis());
    }

    /// `21/Nov/2026:20:30:00 +0000`, as Apache writes it, in UTC.
    fn append_common(&mut self, line: &mut Vec<u8>, time: SystemTime) {
        self.update(time);
        line.extend_from_slice(self.common.as_bytes());
    }

    fn update(&mut self, time: SystemTime) -> Duration {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != Some(since_epoch.as_secs()) {
            let second = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
            let timestamp = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
            self.rfc3339 = timestamp.strftime("%Y-%m-%dT%H:%M:%S").to_string();
            self.common = timestamp.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
            self.second = Some(since_epoch.as_secs());
        }
        since_epoch
    }
}
