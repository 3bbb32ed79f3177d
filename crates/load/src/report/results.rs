//! Every sample in an encoding that Vegeta reads: as lines of JSON, and as CSV.
//!
//! A result begins when its request was due, and takes its response time. Bodies and headers are left out.

use std::{fmt::Display, io::Write};

use super::{Head, Stream, clock::Clock, go};
use crate::{sample::Sample, tally::status_text};

/// What both encodings write.
struct Row<'a> {
    code: u16,
    bytes_in: u64,
    /// Empty: it succeeded.
    error: String,
    method: &'a str,
    /// Scheme and host, then path and query.
    url: [&'a str; 4],
}

/// Hands on what `head` says of a sample.
fn row<'a, T>(head: &'a Head, sample: &'a Sample, write: impl FnOnce(&Row<'_>) -> T) -> T {
    let asked = head.traffic.nth(sample.number);
    let target = asked.target;
    let authority = target.url.authority().map_or("", |authority| authority.as_str());
    let (code, bytes_in, error) = match &sample.ended {
        Ok(answer) if sample.is_success() => (answer.status, answer.bytes, String::new()),
        Ok(answer) => (answer.status, answer.bytes, status_text(answer.status)),
        Err(failure) => (0, 0, failure.to_string()),
    };
    let url = [target.url.scheme_str().unwrap_or("http"), "://", authority, &asked.path];
    write(&Row { code, bytes_in, error, method: target.method.as_str(), url })
}

fn push(out: &mut Vec<u8>, value: impl Display) {
    write!(out, "{value}").expect("a vector takes every byte");
}

/// A line of JSON a sample: `vegeta encode --to json`.
#[derive(Clone, Debug)]
pub struct Json {
    head: Head,
    clock: Clock,
    /// The run's id, and a URL that is under way.
    attack: Vec<u8>,
    url: String,
}

impl Json {
    /// Of this run.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        let mut attack = Vec::new();
        go::push_json(&head.id, &mut attack);
        Self { clock: Clock::new(head.clock_zero), head: head.clone(), attack, url: String::new() }
    }
}

impl Stream for Json {
    fn sample(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let Self { head, clock, attack, url } = self;
        row(head, sample, |row| {
            out.extend_from_slice(b"{\"attack\":");
            out.extend_from_slice(attack);
            push(out, format_args!(",\"seq\":{},\"code\":{},\"timestamp\":\"", sample.number, row.code));
            clock.push(sample.scheduled, out);
            push(
                out,
                format_args!(
                    "\",\"latency\":{},\"bytes_out\":{},\"bytes_in\":{},\"error\":",
                    go::nanos(sample.response_time()),
                    sample.bytes_out,
                    row.bytes_in,
                ),
            );
            go::push_json(&row.error, out);
            out.extend_from_slice(b",\"body\":\"\",\"method\":");
            go::push_json(&row.method, out);
            out.extend_from_slice(b",\"url\":");
            url.clear();
            row.url.iter().for_each(|part| url.push_str(part));
            go::push_json(&url, out);
            out.extend_from_slice(b",\"headers\":null}\n");
        });
    }
}

/// Twelve columns a sample, without a heading: `vegeta encode --to csv`.
#[derive(Clone, Debug)]
pub struct Csv {
    head: Head,
    clock: Clock,
    url: String,
}

impl Csv {
    /// Of this run.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        Self { clock: Clock::new(head.clock_zero), head: head.clone(), url: String::new() }
    }
}

impl Stream for Csv {
    fn sample(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let Self { head, clock, url } = self;
        row(head, sample, |row| {
            push(
                out,
                format_args!(
                    "{},{},{},{},{},",
                    clock.since_epoch(sample.scheduled).as_nanos(),
                    row.code,
                    go::nanos(sample.response_time()),
                    sample.bytes_out,
                    row.bytes_in,
                ),
            );
            push_field(&row.error, out);
            out.extend_from_slice(b",,");
            push_field(&head.id, out);
            push(out, format_args!(",{},{},", sample.number, row.method));
            url.clear();
            row.url.iter().for_each(|part| url.push_str(part));
            push_field(url, out);
            out.extend_from_slice(b",\n");
        });
    }
}

/// In quotes where Go's `encoding/csv` would have them.
fn push_field(text: &str, out: &mut Vec<u8>) {
    let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    let quoted =
        text == r"\." || text.starts_with(char::is_whitespace) || text.as_bytes().iter().any(special);
    if !quoted {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    for byte in text.bytes() {
        out.extend_from_slice(if byte == b'"' { b"\"\"" } else { std::slice::from_ref(&byte) });
    }
    out.push(b'"');
}
