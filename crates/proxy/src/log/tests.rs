//! Lines, from the request to whoever reads them.

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use http::Version;
use proptest::prelude::*;
use serde_json::{Value, json};
use stockade_model::outcome::Outcome;

use super::{escape::VALUE_BYTES_MAX, lines::BUFFER_BYTES_MAX, stamp::Stamp, *};
use crate::config::Format;

/// What is written, and what becomes of whoever writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Paper(Arc<(Mutex<Sheet>, Condvar)>);

#[derive(Debug, Default)]
struct Sheet {
    text: Vec<u8>,
    /// How many more bytes there is room for; `None`: for any.
    room: Option<usize>,
    /// Writers wait, as for a reader of a pipe.
    is_held: bool,
    /// How many writers wait.
    waiting: usize,
    refused: usize,
}

impl Paper {
    fn change(&self, change: impl FnOnce(&mut Sheet)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    /// Waits until it is so; a test that waits for ever is cut off here.
    fn until(&self, is_so: impl Fn(&Sheet) -> bool) -> String {
        let (sheet, changed) = &*self.0;
        let (sheet, timeout) = changed
            .wait_timeout_while(sheet.lock().unwrap(), Duration::from_secs(20), |sheet| !is_so(sheet))
            .unwrap();
        let text = String::from_utf8_lossy(&sheet.text).into_owned();
        assert!(!timeout.timed_out(), "it never came to be: {text}");
        text
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (sheet, changed) = &*self.0;
        let mut sheet = sheet.lock().unwrap();
        sheet.waiting += 1;
        changed.notify_all();
        let mut sheet = changed.wait_while(sheet, |sheet| sheet.is_held).unwrap();
        sheet.waiting -= 1;
        let fits = sheet.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if fits == 0 {
            sheet.refused += 1;
            changed.notify_all();
            return Err(io::ErrorKind::StorageFull.into());
        }
        sheet.text.extend_from_slice(&bytes[..fits]);
        sheet.room = sheet.room.map(|room| room - fits);
        changed.notify_all();
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn entry(target: &str) -> Entry<'_> {
    Entry {
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
        user_agent: Some(b"curl/8"),
        referer: None,
        is_cut: false,
    }
}

fn line(format: Format, entry: &Entry<'_>) -> String {
    let (mut line, mut stamp) = (Vec::new(), Stamp::NEW);
    match format {
        Format::Json => json::line(&mut line, &mut stamp, entry),
        Format::Combined => combined::line(&mut line, &mut stamp, entry),
    }
    String::from_utf8(line).expect("a line is UTF-8")
}

#[test]
fn a_line_of_json_has_every_field() {
    let failed = Entry {
        origin: Some(OriginAnswer { status: None, took: Duration::from_secs(2) }),
        referer: Some(b"https://a/"),
        is_cut: true,
        outcome: Outcome::Fallback,
        ..entry("/news/1?a=b")
    };
    let read: Value = serde_json::from_str(&line(Format::Json, &failed)).expect("JSON");
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
        "user_agent": "curl/8",
        "referer": "https://a/",
        "cut": true,
    });
    assert_eq!(read, expected);
    let plain: Value = serde_json::from_str(&line(Format::Json, &entry("/"))).expect("JSON");
    let keys: Vec<_> = plain.as_object().expect("an object").keys().cloned().collect();
    assert!(!keys.iter().any(|key| ["origin_status", "origin_ms", "referer", "cut"].contains(&&**key)));
}

#[test]
fn a_combined_line_is_apaches_and_more() {
    let answered = Entry {
        origin: Some(OriginAnswer { status: Some(503), took: Duration::from_micros(12_345) }),
        outcome: Outcome::Miss,
        ..entry("/a?b=\"c\"")
    };
    assert_eq!(
        line(Format::Combined, &answered),
        "192.0.2.7 - - [21/Nov/2026:20:30:00 +0000] \"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 1234 \"-\" \"curl/8\" miss 1.500 \
         503 12.345 \"example.org\" \"/news/*\" \"stockade; hit; ttl=9\" whole\n"
    );
    let cut =
        Entry { is_cut: true, sent_bytes: 0, route: "", user_agent: Some(b"\x1b[2J\xff\n"), ..entry("/") };
    assert_eq!(
        line(Format::Combined, &cut),
        "192.0.2.7 - - [21/Nov/2026:20:30:00 +0000] \"GET / HTTP/1.1\" 200 - \"-\" \"\\x1b[2J\\xff\\x0a\" hit 1.500 \
         - - \"example.org\" \"-\" \"stockade; hit; ttl=9\" cut\n"
    );
}

#[test]
fn long_values_are_cut() {
    let long = "x".repeat(1 << 20);
    let all = Entry {
        host: long.as_bytes(),
        user_agent: Some(long.as_bytes()),
        referer: Some(long.as_bytes()),
        cache_status: long.as_bytes(),
        ..entry(&long)
    };
    for format in [Format::Json, Format::Combined] {
        let line = line(format, &all);
        assert!(line.len() < 16 << 10, "{}", line.len());
        assert!(line.contains(&format!("{}...\"", "x".repeat(VALUE_BYTES_MAX))));
    }
}

proptest! {
    /// Whatever is sent, it is one line, and every other field is what it was.
    #[test]
    fn nothing_that_is_sent_forges_a_line(sent in proptest::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,20}|[\"\\\\\n\r\t ]{0,20}") {
        let forged = Entry { host: &sent, user_agent: Some(&sent), referer: Some(text.as_bytes()), method: &text, ..entry(&text) };
        let json = line(Format::Json, &forged);
        let read: Value = serde_json::from_str(&json).expect("JSON");
        prop_assert_eq!(read["host"].as_str().unwrap(), String::from_utf8_lossy(&sent));
        prop_assert_eq!(read["url"].as_str().unwrap(), &text);
        prop_assert_eq!(&read["cache_status"], "stockade; hit; ttl=9");
        let combined = line(Format::Combined, &forged);
        // Quotation marks that nobody escaped are ours: two for each of six texts.
        let mut marks = 0;
        let mut is_escaped = false;
        for c in combined.chars() {
            marks += usize::from(c == '"' && !is_escaped);
            is_escaped = c == '\\' && !is_escaped;
        }
        prop_assert_eq!(marks, 12);
        for line in [json, combined] {
            prop_assert!(line.ends_with('\n') && !line.trim_end_matches('\n').contains(|c: char| c.is_control()));
        }
    }
}

/// Waits for the writer, which tells nobody.
fn until(is_so: impl Fn() -> bool) {
    let is_so = (0..100_000_000).any(|_| {
        thread::yield_now();
        is_so()
    });
    assert!(is_so, "it never came to be");
}

fn log(paper: &Paper) -> Log {
    Log::start_with(Format::Json, Target::Test(paper.clone())).expect("paper")
}

#[test]
fn lines_of_many_threads_are_written_whole_and_all_of_them_at_the_end() {
    let paper = Paper::default();
    let log = log(&paper);
    thread::scope(|scope| {
        for thread in 0..8 {
            let logger = log.logger();
            scope.spawn(move || {
                for n in 0..500 {
                    logger.record(&entry(&format!("/{thread}/{n}")));
                }
            });
        }
    });
    drop(log);
    let text = paper.until(|_| true);
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
fn a_line_is_written_soon_without_another() {
    let paper = Paper::default();
    let log = log(&paper);
    for n in 1..=3 {
        log.logger().record(&entry("/"));
        paper.until(|sheet| sheet.text.split(|byte| *byte == b'\n').count() == n + 1);
    }
}

#[test]
fn a_full_disk_drops_lines_counts_them_and_is_used_again() {
    let paper = Paper::default();
    let log = log(&paper);
    let whole = line(Format::Json, &entry("/1")).len();
    // One line, and a part of the next.
    paper.change(|sheet| sheet.room = Some(whole + 10));
    let logger = log.logger();
    for n in 1..=3 {
        logger.record(&entry(&format!("/{n}")));
    }
    paper.until(|sheet| sheet.refused > 0);
    // They may have been written at two times.
    until(|| log.dropped() >= 2);
    assert_eq!(log.dropped(), 2);
    paper.change(|sheet| sheet.room = None);
    logger.record(&entry("/4"));
    drop(log);
    let text = paper.until(|_| true);
    let urls: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str(line).map_or(Value::Null, |read: Value| read["url"].clone()))
        .collect();
    assert_eq!(urls, [json!("/1"), Value::Null, json!("/4")]);
}

#[test]
fn whoever_does_not_read_keeps_nobody_waiting() {
    let paper = Paper::default();
    paper.change(|sheet| sheet.is_held = true);
    let log = log(&paper);
    let logger = log.logger();
    logger.record(&entry("/first"));
    paper.until(|sheet| sheet.waiting > 0);
    let mut recorded = 1;
    while log.dropped() == 0 {
        logger.record(&entry("/more"));
        recorded += 1;
        assert!(recorded < BUFFER_BYTES_MAX / 100, "nothing is dropped");
    }
    let dropped = log.dropped();
    paper.change(|sheet| sheet.is_held = false);
    drop(log);
    let text = paper.until(|_| true);
    assert_eq!(text.lines().count() as u64, recorded as u64 - dropped);
    assert!(text.len() <= BUFFER_BYTES_MAX + (32 << 10), "{}", text.len());
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let settings = config::Log { format: Format::Combined, path: Some(path.clone()) };
    let log = Log::start(&settings).expect("a file");
    log.logger().record(&entry("/old"));
    fs::rename(&path, folder.path().join("access.log.1")).expect("it is there");
    log.reopen();
    until(|| path.exists());
    log.logger().record(&entry("/new"));
    // Where nobody can write it stays where it is.
    let nowhere = config::Log { format: Format::Json, path: Some(folder.path().join("none/access.log")) };
    log.change(&nowhere);
    drop(log);
    let old = fs::read_to_string(folder.path().join("access.log.1")).expect("the old one");
    let new = fs::read_to_string(&path).expect("the new one");
    assert_eq!((old.lines().count(), new.lines().count()), (1, 1));
    assert!(old.contains("GET /old ") && new.contains("GET /new "));
    let error = Log::start(&nowhere).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot write the access log to ") && error.contains("none/access.log"),
        "{error}"
    );
}
