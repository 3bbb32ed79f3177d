//! Lines, from the record to the output.

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use http::Version;
use proptest::prelude::*;
use serde_json::{Value, json};
use stockade_model::outcome::Outcome;

use super::{
    buffers::BUFFER_BYTES_MAX,
    escape::VALUE_BYTES_MAX,
    format::{TimestampCache, append_combined, append_json},
    *,
};
use crate::config::LogFormat;

/// Far longer than any wait here takes on a slow machine.
const HANG_GUARD: Duration = Duration::from_mins(2);

/// An output that fills up or blocks on demand.
#[derive(Clone, Debug, Default)]
pub(super) struct TestOutput(Arc<(Mutex<OutputState>, Condvar)>);

#[derive(Debug, Default)]
struct OutputState {
    text: Vec<u8>,
    /// Bytes until it is full; `None`: never.
    capacity: Option<usize>,
    /// Writes wait, as on a pipe that nothing reads.
    is_blocked: bool,
    writes_waiting: usize,
    writes_failed: usize,
}

impl TestOutput {
    fn change(&self, change: impl FnOnce(&mut OutputState)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    /// Returns the text once `condition` holds; panics after the hang guard.
    fn wait_until(&self, condition: impl Fn(&OutputState) -> bool) -> String {
        let (state, changed) = &*self.0;
        let (state, timeout) =
            changed.wait_timeout_while(state.lock().unwrap(), HANG_GUARD, |state| !condition(state)).unwrap();
        let text = String::from_utf8_lossy(&state.text).into_owned();
        assert!(!timeout.timed_out(), "the condition never held: {text}");
        text
    }
}

impl Write for TestOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.writes_waiting += 1;
        changed.notify_all();
        let mut state = changed.wait_while(state, |state| state.is_blocked).unwrap();
        state.writes_waiting -= 1;
        let fits = state.capacity.map_or(bytes.len(), |capacity| capacity.min(bytes.len()));
        if fits == 0 {
            state.writes_failed += 1;
            changed.notify_all();
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.text.extend_from_slice(&bytes[..fits]);
        state.capacity = state.capacity.map(|capacity| capacity - fits);
        changed.notify_all();
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn record(target: &str) -> AccessRecord<'_> {
    AccessRecord {
        time: UNIX_EPOCH + Duration::from_millis(1_795_293_000_042),
        peer: SocketAddr::from(([192, 0, 2, 7], 4_711)),
        method: "GET",
        host: b"example.org",
        target,
        version: Version::HTTP_11,
        status: 200,
        sent_bytes: 1_234,
        took: Duration::from_micros(1_500),
        outcome: Outcome::Hit,
        cache_status: b"stockade; hit; ttl=9",
        route: "/news/*",
        origin: None,
        error: None,
        user_agent: Some(b"curl/8"),
        referer: None,
        is_truncated: false,
    }
}

fn line(format: LogFormat, record: &AccessRecord<'_>) -> String {
    let (mut line, mut times) = (Vec::new(), TimestampCache::EMPTY);
    match format {
        LogFormat::Json => append_json(&mut line, &mut times, record),
        LogFormat::Combined => append_combined(&mut line, &mut times, record),
        LogFormat::None => {}
    }
    String::from_utf8(line).expect("a line is UTF-8")
}

#[test]
fn json_lines_have_every_field() {
    let failed = AccessRecord {
        origin: Some(OriginResult { status: None, took: Duration::from_secs(2) }),
        error: Some("127.0.0.1:1: connection refused"),
        referer: Some(b"https://a/"),
        is_truncated: true,
        outcome: Outcome::Fallback,
        ..record("/news/1?a=b")
    };
    let read: Value = serde_json::from_str(&line(LogFormat::Json, &failed)).expect("JSON");
    let expected = json!({
        "time": "2026-11-21T20:30:00.042Z",
        "peer": "192.0.2.7:4711",
        "method": "GET",
        "host": "example.org",
        "url": "/news/1?a=b",
        "version": "HTTP/1.1",
        "status": 200,
        "bytes": 1_234,
        "ms": 1.5,
        "cache": "fallback",
        "cache_status": "stockade; hit; ttl=9",
        "route": "/news/*",
        "origin_status": null,
        "origin_ms": 2000.0,
        "error": "127.0.0.1:1: connection refused",
        "user_agent": "curl/8",
        "referer": "https://a/",
        "cut": true,
    });
    assert_eq!(read, expected);
    let plain: Value = serde_json::from_str(&line(LogFormat::Json, &record("/"))).expect("JSON");
    let keys: Vec<_> = plain.as_object().expect("an object").keys().cloned().collect();
    assert!(
        !keys.iter().any(|key| ["origin_status", "origin_ms", "error", "referer", "cut"].contains(&&**key))
    );
}

#[test]
fn combined_lines_extend_apaches_format() {
    let answered = AccessRecord {
        origin: Some(OriginResult { status: Some(503), took: Duration::from_micros(12_345) }),
        outcome: Outcome::Miss,
        ..record("/a?b=\"c\"")
    };
    assert_eq!(
        line(LogFormat::Combined, &answered),
        "192.0.2.7 - - [21/Nov/2026:20:30:00 +0000] \"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 1234 \"-\" \"curl/8\" miss 1.500 \
         503 12.345 \"example.org\" \"/news/*\" \"stockade; hit; ttl=9\" whole \"-\"\n"
    );
    let cut = AccessRecord {
        is_truncated: true,
        sent_bytes: 0,
        error: Some("the breaker is open"),
        route: "",
        user_agent: Some(b"\x1b[2J\xff\n"),
        ..record("/")
    };
    assert_eq!(
        line(LogFormat::Combined, &cut),
        "192.0.2.7 - - [21/Nov/2026:20:30:00 +0000] \"GET / HTTP/1.1\" 200 - \"-\" \"\\x1b[2J\\xff\\x0a\" hit 1.500 \
         - - \"example.org\" \"-\" \"stockade; hit; ttl=9\" cut \"the breaker is open\"\n"
    );
}

#[test]
fn long_values_are_truncated() {
    let long = "x".repeat(1 << 20);
    let all = AccessRecord {
        host: long.as_bytes(),
        user_agent: Some(long.as_bytes()),
        referer: Some(long.as_bytes()),
        error: Some(&long),
        cache_status: long.as_bytes(),
        ..record(&long)
    };
    for format in [LogFormat::Json, LogFormat::Combined] {
        let line = line(format, &all);
        assert!(line.len() < 16 << 10, "{}", line.len());
        assert!(line.contains(&format!("{}...\"", "x".repeat(VALUE_BYTES_MAX))));
    }
}

proptest! {
    /// Any values make one line, and leave the other fields unchanged.
    #[test]
    fn values_cannot_forge_lines_or_fields(sent in proptest::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,20}|[\"\\\\\n\r\t ]{0,20}") {
        let hostile = AccessRecord { host: &sent, user_agent: Some(&sent), referer: Some(text.as_bytes()), method: &text, error: Some(&text), ..record(&text) };
        let json = line(LogFormat::Json, &hostile);
        let read: Value = serde_json::from_str(&json).expect("JSON");
        prop_assert_eq!(read["host"].as_str().unwrap(), String::from_utf8_lossy(&sent));
        prop_assert_eq!(read["url"].as_str().unwrap(), &text);
        prop_assert_eq!(&read["cache_status"], "stockade; hit; ttl=9");
        let combined = line(LogFormat::Combined, &hostile);
        // Unescaped quotation marks are the format's: two for each of seven texts.
        let mut marks = 0;
        let mut is_escaped = false;
        for c in combined.chars() {
            marks += usize::from(c == '"' && !is_escaped);
            is_escaped = c == '\\' && !is_escaped;
        }
        prop_assert_eq!(marks, 14);
        for line in [json, combined] {
            prop_assert!(line.ends_with('\n') && !line.trim_end_matches('\n').contains(|c: char| c.is_control()));
        }
    }
}

/// Polls for what the writer does without an event; panics after the hang guard.
fn wait_until(condition: impl Fn() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a guard against hanging takes real time")]
    let now = std::time::Instant::now;
    let end = now() + HANG_GUARD;
    while !condition() {
        assert!(now() < end, "the condition never held");
        thread::yield_now();
    }
}

fn start_log(output: &TestOutput) -> AccessLogWriter {
    AccessLogWriter::start_with(LogFormat::Json, LogDestination::Test(output.clone())).expect("it opens")
}

#[test]
fn lines_of_many_threads_arrive_complete_and_in_order() {
    let output = TestOutput::default();
    let log = start_log(&output);
    thread::scope(|scope| {
        for thread in 0..8 {
            let logger = log.logger();
            scope.spawn(move || {
                for n in 0..500 {
                    logger.record(&record(&format!("/{thread}/{n}")));
                }
            });
        }
    });
    drop(log);
    let text = output.wait_until(|_| true);
    let mut next = [0; 8];
    for line in text.lines() {
        let read: Value = serde_json::from_str(line).expect("a whole line");
        let url = read["url"].as_str().unwrap();
        let (thread, n) = url[1..].split_once('/').unwrap();
        let thread: usize = thread.parse().unwrap();
        assert_eq!(n, next[thread].to_string());
        next[thread] += 1;
    }
    assert_eq!(next, [500; 8]);
}

#[test]
fn a_single_line_is_written_without_another() {
    let output = TestOutput::default();
    let log = start_log(&output);
    for n in 1..=3 {
        log.logger().record(&record("/"));
        output.wait_until(|state| state.text.split(|byte| *byte == b'\n').count() == n + 1);
    }
}

#[test]
fn a_full_disk_drops_and_counts_lines_then_recovers() {
    let output = TestOutput::default();
    let log = start_log(&output);
    let whole = line(LogFormat::Json, &record("/1")).len();
    // Room for one line and a part of the next.
    output.change(|state| state.capacity = Some(whole + 10));
    let logger = log.logger();
    for n in 1..=3 {
        logger.record(&record(&format!("/{n}")));
    }
    output.wait_until(|state| state.writes_failed > 0);
    // The lines may have been written in two batches.
    wait_until(|| log.dropped() >= 2);
    assert_eq!(log.dropped(), 2);
    output.change(|state| state.capacity = None);
    logger.record(&record("/4"));
    drop(log);
    let text = output.wait_until(|_| true);
    let urls: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str(line).map_or(Value::Null, |read: Value| read["url"].clone()))
        .collect();
    assert_eq!(urls, [json!("/1"), Value::Null, json!("/4")]);
}

#[test]
fn a_blocked_output_does_not_block_requests() {
    let output = TestOutput::default();
    output.change(|state| state.is_blocked = true);
    let log = start_log(&output);
    let logger = log.logger();
    logger.record(&record("/first"));
    output.wait_until(|state| state.writes_waiting > 0);
    let mut recorded = 1;
    while log.dropped() == 0 {
        logger.record(&record("/more"));
        recorded += 1;
        assert!(recorded < BUFFER_BYTES_MAX / 100, "no line was dropped");
    }
    let dropped = log.dropped();
    output.change(|state| state.is_blocked = false);
    drop(log);
    let text = output.wait_until(|_| true);
    assert_eq!(text.lines().count() as u64, recorded as u64 - dropped);
    assert!(text.len() <= BUFFER_BYTES_MAX + (32 << 10), "{}", text.len());
}

#[test]
fn reopen_creates_a_file_that_was_moved_away() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("access.log");
    let config =
        config::LogConfig { format: LogFormat::Combined, path: Some(path.clone()), mask_query: Vec::new() };
    let log = AccessLogWriter::start(&config).expect("a writable file");
    log.logger().record(&record("/old"));
    fs::rename(&path, folder.path().join("access.log.1")).expect("the file exists");
    log.reopen();
    wait_until(|| path.exists());
    let mode = fs::metadata(&path).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o137, 0, "other users cannot read URLs: {mode:o}");
    log.logger().record(&record("/new"));
    // A path that cannot be opened leaves the log where it is.
    let unwritable = config::LogConfig {
        format: LogFormat::Json,
        path: Some(folder.path().join("none/access.log")),
        mask_query: Vec::new(),
    };
    log.reconfigure(&unwritable);
    drop(log);
    let old = fs::read_to_string(folder.path().join("access.log.1")).expect("the old file");
    let new = fs::read_to_string(&path).expect("the new file");
    assert_eq!((old.lines().count(), new.lines().count()), (1, 1));
    assert!(old.contains("GET /old ") && new.contains("GET /new "));
    let error = AccessLogWriter::start(&unwritable).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot write the access log to ") && error.contains("none/access.log"),
        "{error}"
    );
}
