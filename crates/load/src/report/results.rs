//! Vegeta's encodings of results: lines of JSON, and CSV.
//!
//! The timestamp of a result is the due time, its latency the response time. Bodies and headers are omitted.

use std::{fmt::Display, io::Write};

use super::{
    encoder::{RunHeader, SampleEncoder},
    timestamp::TimestampFormatter,
};
use crate::{sample::Sample, tally::status_text};
use stockade_record::report::go_format;

/// The values that both encodings share.
struct ResultRow<'a> {
    code: u16,
    bytes_in: u64,
    /// Empty for a success.
    error: String,
    method: &'a str,
    /// The parts of the URL: scheme, `://`, authority, path and query.
    url: [&'a str; 4],
}

/// Passes the row of a sample to `write`.
fn with_row<'a, T>(head: &'a RunHeader, sample: &'a Sample, write: impl FnOnce(&ResultRow<'_>) -> T) -> T {
    let spec = head.traffic.request(sample.number);
    let template = spec.template;
    let authority = template.url.authority().map_or("", |authority| authority.as_str());
    let (code, bytes_in, error) = match &sample.result {
        Ok(response) if sample.is_success() => (response.status, response.bytes, String::new()),
        Ok(response) => (response.status, response.bytes, status_text(response.status)),
        Err(failure) => (0, 0, failure.to_string()),
    };
    let url = [template.url.scheme_str().unwrap_or("http"), "://", authority, &spec.path];
    write(&ResultRow { code, bytes_in, error, method: template.method.as_str(), url })
}

fn push(out: &mut Vec<u8>, value: impl Display) {
    write!(out, "{value}").expect("a vector takes every byte");
}

/// One line of JSON per sample: `vegeta encode --to json`.
#[derive(Clone, Debug)]
pub struct JsonEncoder {
    head: RunHeader,
    clock: TimestampFormatter,
    /// The run's id as JSON.
    attack: Vec<u8>,
    /// A buffer.
    url: String,
}

impl JsonEncoder {
    /// An encoder for this run.
    #[must_use]
    pub fn new(head: &RunHeader) -> Self {
        let mut attack = Vec::new();
        go_format::push_json(&head.id, &mut attack);
        Self {
            clock: TimestampFormatter::new(head.clock_zero),
            head: head.clone(),
            attack,
            url: String::new(),
        }
    }
}

impl SampleEncoder for JsonEncoder {
    fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let Self { head, clock, attack, url } = self;
        with_row(head, sample, |row| {
            out.extend_from_slice(b"{\"attack\":");
            out.extend_from_slice(attack);
            push(out, format_args!(",\"seq\":{},\"code\":{},\"timestamp\":\"", sample.number, row.code));
            clock.push(sample.timing.scheduled, out);
            push(
                out,
                format_args!(
                    "\",\"latency\":{},\"bytes_out\":{},\"bytes_in\":{},\"error\":",
                    go_format::nanos(sample.timing.response_time()),
                    sample.bytes_out,
                    row.bytes_in,
                ),
            );
            go_format::push_json(&row.error, out);
            out.extend_from_slice(b",\"body\":\"\",\"method\":");
            go_format::push_json(&row.method, out);
            out.extend_from_slice(b",\"url\":");
            url.clear();
            row.url.iter().for_each(|part| url.push_str(part));
            go_format::push_json(&url, out);
            out.extend_from_slice(b",\"headers\":null}\n");
        });
    }
}

/// Twelve columns per sample, without a heading: `vegeta encode --to csv`.
#[derive(Clone, Debug)]
pub struct CsvEncoder {
    head: RunHeader,
    clock: TimestampFormatter,
    url: String,
}

impl CsvEncoder {
    /// An encoder for this run.
    #[must_use]
    pub fn new(head: &RunHeader) -> Self {
        Self { clock: TimestampFormatter::new(head.clock_zero), head: head.clone(), url: String::new() }
    }
}

impl SampleEncoder for CsvEncoder {
    fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let Self { head, clock, url } = self;
        with_row(head, sample, |row| {
            push(
                out,
                format_args!(
                    "{},{},{},{},{},",
                    clock.since_epoch(sample.timing.scheduled).as_nanos(),
                    row.code,
                    go_format::nanos(sample.timing.response_time()),
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

/// Quotes fields as Go's `encoding/csv`.
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
