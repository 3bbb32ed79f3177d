//! Invalid logs.

use std::io::{self, Read};

use super::*;

fn error_of(text: impl AsRef<[u8]>) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn tenth_of_the_lines_may_have_another_format() {
    let good = line("GET / HTTP/1.1");
    // As `tail -c` leaves it: the first line has lost its beginning.
    let log = read(["5:03 +0000] \"GET / HTTP/1.1\" 200 17\n", &good.repeat(9)].concat()).unwrap();
    assert_eq!((log.requests(), log.lines(), log.skipped().count(SkipReason::Malformed)), (9, 10, 1));
    assert_eq!(log.skipped().to_string(), "1 in another format");
    let named: Vec<_> = log.malformed().iter().map(ToString::to_string).collect();
    assert!(
        named.len() == 1 && named[0].starts_with("log:1: the line has no time in brackets: "),
        "{named:?}"
    );
    let error = error_of(good.repeat(20) + &"odd\n".repeat(3));
    assert!(error.starts_with("log:21: the line has no time in brackets"), "{error}");
    assert!(
        error.ends_with("; 3 of 23 lines are not in the format `clf`, more than 10 %: name another format"),
        "{error}"
    );
    // Blank lines do not count.
    assert!(read([&good.repeat(20), &*"\n".repeat(20), &"odd\n".repeat(3)].concat()).is_err());
    let log = read(good.repeat(90) + &"odd\n".repeat(10)).unwrap();
    assert_eq!((log.skipped().total(), log.malformed().len()), (10, 3));
}

#[test]
fn log_without_requests_is_refused() {
    assert_eq!(error_of(""), "the log has no line: name one with requests");
    let blank = LogReader::from_reader("log", &b"\n\n"[..], "clf".parse().ok()).unwrap();
    assert_eq!(AccessLog::read(blank, &base(), HostHeader::OfUrl).unwrap_err(), ReplayError::Empty);
    assert_eq!(error_of(line("-")), "the log has no request that can be replayed: 1 without a request");
}

#[test]
fn limits_end_the_reading() {
    let blank = io::repeat(b'\n').take(u64::MAX);
    let reader = LogReader::from_reader("log", blank, "clf".parse().ok()).unwrap();
    assert_eq!(
        AccessLog::read(reader, &base(), HostHeader::OfUrl).unwrap_err().to_string(),
        "log:20000001: there are more than 20,000,000 lines: name a part of the log, such as its first hour"
    );
    // One line of a trace is a million requests.
    let ranges = "0 1000000 0 0\n0 1000000 0 1\n".repeat(11);
    let reader = LogReader::from_reader("log", ranges.as_bytes(), Some("arc".parse().unwrap())).unwrap();
    assert_eq!(
        AccessLog::read(reader, &base(), HostHeader::OfUrl).unwrap_err(),
        ReplayError::TooManyRequests
    );
    // An endless log of different URLs.
    let mut number = 0;
    let endless = std::iter::repeat_with(|| {
        number += 1;
        line(&format!("GET /{number} HTTP/1.1")).into_bytes()
    });
    assert_eq!(
        AccessLog::read(
            LogReader::from_reader("log", Endless { lines: endless, rest: Vec::new() }, None).unwrap(),
            &base(),
            HostHeader::OfUrl
        )
        .unwrap_err(),
        ReplayError::TooManyUrls
    );
}

/// Lines without end.
struct Endless<I> {
    lines: I,
    rest: Vec<u8>,
}

impl<I: Iterator<Item = Vec<u8>>> Read for Endless<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.len() < buffer.len() {
            self.rest.extend(self.lines.next().unwrap());
        }
        let after = self.rest.split_off(buffer.len());
        buffer.copy_from_slice(&std::mem::replace(&mut self.rest, after));
        Ok(buffer.len())
    }
}

#[test]
fn invalid_speed_or_share_is_refused() {
    let log = read(line("GET / HTTP/1.1")).unwrap();
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = log.clone().at_speed(speed).unwrap_err().to_string();
        let message = "is not a speed: write a factor such as `2` or `0.5`";
        assert_eq!(error, format!("`{speed}` {message}"));
    }
    for share in [0.0, -1.0, 1.5, f64::NAN] {
        let error = log.clone().with_share(share, Seed(1)).unwrap_err().to_string();
        let message = "is not a share of the requests: write more than 0 and at most 1, such as `0.1`";
        assert_eq!(error, format!("`{share}` {message}"));
    }
}
