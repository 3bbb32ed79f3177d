//! Invalid logs.

use std::io;

use super::*;

fn error_of(text: impl AsRef<[u8]>) -> String {
    read(text).unwrap_err().to_string()
}

/// The end of the message about one line of two.
const HALF: &str = "1 of 2 lines have another format, more than 10 %";

#[test]
fn malformed_line_is_reported_with_its_number() {
    let sample = "the lines of a log have the form `host - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17`, or are JSON";
    let time = "[17/May/2015:10:05:03 +0000]";
    for (line, what) in [
        ("secret", "the line has no time in brackets"),
        ("a - - [17/May/2015:10:05:03]", "the line has no time in brackets"),
        ("a - - [32/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1", "the line has no time in brackets"),
        ("a - - [17/May/1915:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1", "the line has no time in brackets"),
        (
            &format!("a - {time} \"GET / HTTP/1.1\" 200 1"),
            "the line has fewer than three words before its time",
        ),
        (&format!("a - - {time} GET / 200 1"), "the line has no request in quotation marks after its time"),
        (
            &format!("a - - {time} \"GET / HTTP/1.1\\\" 200 1"),
            "the line's request has no closing quotation mark",
        ),
        (&format!("a - - {time} \"GET / HTTP/1.1\""), "the line has no status and size after its request"),
        (
            &format!("a - - {time} \"GET / HTTP/1.1\" 200"),
            "the line has no status and size after its request",
        ),
        (
            &format!("a - - {time} \"GET / HTTP/1.1\" OK 1"),
            "the line has no status and size after its request",
        ),
    ] {
        let text = super::line("GET / HTTP/1.1") + "\n" + line;
        assert_eq!(error_of(text), format!("log:3: {what}: {sample}; {HALF}"), "{line}");
    }
}

#[test]
fn missing_json_field_is_reported() {
    let no_json = "on: in nginx, write `log_format NAME escape=json ...`";
    for (line, message) in [
        (r#"{"ts":1,"request":"GET /\x22 HTTP/1.1"}"#, &format!("the line is not JSON from column 26 {no_json}")),
        ("{", &format!("the line is not JSON from column 1 {no_json}")),
        (
            "{}",
            &"the line has no time: log it as one of StartUTC, StartLocal, msec, ts, time_iso8601, time_local, @timestamp, timestamp, time".to_owned(),
        ),
        (
            r#"{"ts":1}"#,
            &"the line has no method: log it as one of request_method, RequestMethod, request.method, http.request.method, method".to_owned(),
        ),
        (
            r#"{"ts":1,"method":"GET"}"#,
            &"the line has no URL: log it as one of request_uri, RequestPath, request.uri, url.original, uri, url, path".to_owned(),
        ),
        (r#"{"ts":1,"method":"GET","url":1}"#, &"`url` is not a string: log it in quotation marks".to_owned()),
        (
            r#"{"ts":-1,"method":"GET","url":"/"}"#,
            &"`ts` is not a time, but `-1`: log it in seconds since 1970, with decimals for less".to_owned(),
        ),
        (
            r#"{"ts":true,"method":"GET","url":"/"}"#,
            &"`ts` is not a time, but `true`: log it in seconds since 1970, with decimals for less".to_owned(),
        ),
        (
            r#"{"time":"17 May 2015","method":"GET","url":"/"}"#,
            &"`time` is not a time, but `\"17 May 2015\"`: log it as RFC 3339 with an offset (2015-05-17T10:05:03Z), or as seconds since 1970".to_owned(),
        ),
        (
            r#"{"ts":99999999999,"method":"GET","url":"/"}"#,
            &"`ts` is not a time, but `99999999999`: log a time before the year 2554".to_owned(),
        ),
    ] {
        let text = format!("{{\"ts\":1,\"request\":\"GET / HTTP/1.1\"}}\n{line}");
        assert_eq!(error_of(text), format!("log:2: {message}; {HALF}"), "{line}");
    }
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
    let error = error_of(good.repeat(8) + "odd\n");
    assert!(error.starts_with("log:9: the line has no time in brackets"), "{error}");
    assert!(error.ends_with("; 1 of 9 lines have another format, more than 10 %"), "{error}");
    // Blank lines are no lines.
    assert!(read([&good.repeat(8), &*"\n".repeat(9), "odd"].concat()).is_err());
    let log = read(good.repeat(90) + &"odd\n".repeat(10)).unwrap();
    assert_eq!((log.skipped().total(), log.malformed().len()), (10, 3));
}

#[test]
fn lines_of_both_formats_are_read() {
    let json = "{\"ts\":1431857103,\"request\":\"GET /j HTTP/1.1\"}\n";
    assert_eq!(read(line("GET /c HTTP/1.1") + json).unwrap().requests(), 2);
}

#[test]
fn log_without_requests_is_refused() {
    assert_eq!(error_of(""), "log: there is no line in it: name a log with requests");
    assert_eq!(error_of(packed(b"\n\n")), "log: there is no line in it: name a log with requests");
    assert_eq!(
        error_of(line("-")),
        "log: there is no request in it that can be replayed: 1 without a request"
    );
}

#[test]
fn damaged_gzip_is_reported_with_its_line() {
    let bytes = packed(line("GET / HTTP/1.1").as_bytes());
    let remedy = "the gzip is damaged, check it with `gzip -t`";
    assert_eq!(
        error_of(&bytes[..bytes.len() - 1]),
        format!("log:2: cannot read on from here (unexpected end of file): {remedy}")
    );
    assert_eq!(
        error_of(&bytes[..2]),
        format!("log:1: cannot read on from here (unexpected end of file): {remedy}")
    );
    assert_eq!(
        error_of([&bytes[..], b"x"].concat()),
        format!("log:2: cannot read on from here (unexpected end of file): {remedy}")
    );
}

#[test]
fn excessive_input_is_refused_without_storing_it() {
    assert_eq!(error_of("a".repeat(70_000)), "log:1: the line has more than 64 KiB: leave it out");
    // Expands to a thousand times its size.
    let bomb = packed(&vec![b'a'; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(error_of(bomb), "log:1: the line has more than 64 KiB: leave it out");
    let blank = io::repeat(b'\n').take(u64::MAX);
    assert_eq!(
        AccessLog::read("log", blank, &base()).unwrap_err().to_string(),
        "log:20000001: there are more than 20,000,000 lines: replay a part of the log, such as its first hour"
    );
}

#[test]
fn missing_or_special_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let open_error = || AccessLog::open(&path, &base()).unwrap_err().to_string();
    assert_eq!(
        open_error(),
        format!("{}: cannot read it: No such file or directory (os error 2)", path.display())
    );
    std::fs::create_dir(&path).unwrap();
    assert_eq!(open_error(), format!("{}: it is not a regular file: name one", path.display()));
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, line("GET / HTTP/1.1")).unwrap();
    assert_eq!(AccessLog::open(&path, &base()).unwrap().requests(), 1);
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
