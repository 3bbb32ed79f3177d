//! Several inputs, bad lines and limits.

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use stockade_logs::{Input, LogError, LogReader};

use super::{compressed::gzip, shown, try_read};

#[test]
fn several_files_are_read_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        Input::from(path)
    };
    let inputs = [
        file("0.csv", b""),
        file("1.csv", b"time,key\n5,a\n6,b\n"),
        file("2.csv.gz", &gzip(b"key,time\nc,3\n")),
        // Only the first part of a table that was split has its header.
        file("3.csv", b"d,4"),
    ];
    let reader = LogReader::open(&inputs, None).unwrap();
    assert_eq!(reader.format().to_string(), "csv:time=time,key=key");
    let mut requests = Vec::new();
    let summary = reader.for_each(|request| requests.push(shown(&request))).unwrap();
    assert_eq!(requests, ["@5 read a", "@6 read b", "@3 read c", "@4 read d"]);
    assert_eq!((summary.lines, summary.requests, summary.time_reversals), (6, 4, 1));
    assert_eq!(summary.bytes_read, 17 + 13 + 3);
}

#[test]
fn missing_inputs_are_refused_before_reading() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: PathBuf| LogReader::open(&[path.into()], "keys".parse().ok()).unwrap_err().to_string();
    let path = folder.path().to_owned();
    assert_eq!(open(path.clone()), format!("{}: it is a folder: name a file", path.display()));
    let path = path.join("log");
    assert_eq!(
        open(path.clone()),
        format!("{}: cannot read it: No such file or directory (os error 2)", path.display())
    );
    assert_eq!(LogReader::open(&[], None).unwrap_err(), LogError::NoInput);
    assert_eq!(Input::from(PathBuf::from("-")), Input::StandardInput);
}

#[test]
fn tenth_of_the_lines_may_be_bad() {
    let good = "7\n";
    let (requests, summary) = try_read(good.repeat(90) + &"odd\n\n".repeat(10), Some("lirs")).unwrap();
    assert_eq!((requests.len(), summary.lines, summary.bad_lines), (90, 110, 10));
    let named: Vec<_> = summary.first_bad.iter().map(ToString::to_string).collect();
    assert_eq!(named, [91, 93, 95].map(|line| format!("log:{line}: the line is not a block number")));
    let error = try_read(good.repeat(8) + "odd\n\n\n", Some("lirs")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "log:9: the line is not a block number; 1 of 9 lines are not in the format `lirs`, more than 10 %: name another format"
    );
}

#[test]
fn endless_input_in_another_format_is_refused_early() {
    // Lines.
    let error =
        LogReader::from_reader("log", endless(b"odd\n"), "lirs".parse().ok()).unwrap().for_each(|_| {});
    assert!(matches!(error, Err(LogError::TooManyBadLines { bad: 10_000, lines: 10_000, .. })), "{error:?}");
    // Lines that are too long.
    let long = [vec![b'1'; 70_000], b"\n".to_vec()].concat();
    let error = LogReader::from_reader("log", endless(&long), "lirs".parse().ok()).unwrap().for_each(|_| {});
    let Err(LogError::TooManyBadLines { first, lines, .. }) = error else { panic!("{error:?}") };
    assert_eq!(first.to_string(), "log:1: the line has more than 64 KiB");
    assert!(lines < 2_100, "{lines}");
    // One line.
    let error = LogReader::from_reader("log", endless(b"1"), "lirs".parse().ok()).unwrap().for_each(|_| {});
    assert_eq!(
        error.unwrap_err().to_string(),
        "log:1: the line has no end within 64 MiB: it is not the text of a log"
    );
}

#[test]
fn long_line_is_skipped() {
    let text =
        ["1\n".repeat(20).as_bytes(), &vec![b'2'; 300_000], b"\n3\n", &vec![b'4'; 65_535], b"\n5"].concat();
    let (requests, summary) = try_read(&text, Some("keys")).unwrap();
    assert_eq!((requests.len(), summary.lines, summary.bad_lines), (23, 24, 1));
    assert_eq!(summary.first_bad[0].to_string(), "log:21: the line has more than 64 KiB");
    assert_eq!((&*requests[20], &*requests[22], requests[21].len()), ("read 3", "read 5", 65_540));
    assert_eq!(summary.bytes_read, text.len() as u64);
}

#[test]
fn zeros_before_a_line_are_skipped() {
    // A file that was truncated while its writer went on has a hole.
    let line = "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
    for zeros in [1, 24, 32 << 10, 300_000] {
        let zeros = vec![0; zeros];
        let log = [&zeros, line.as_bytes(), line.as_bytes(), &zeros, line.as_bytes(), &zeros].concat();
        let (requests, summary) = try_read(&log, None).unwrap();
        assert_eq!((requests.len(), summary.lines, summary.bad_lines), (3, 3, 0));
        assert_eq!((&*summary.format.to_string(), summary.bytes_read), ("clf", log.len() as u64));
    }
}

#[test]
fn comments_may_be_anywhere() {
    let line = "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
    for (log, format) in [
        (format!("# a log\n{line}#\n{line}"), "clf"),
        ("# a trace\ntime,key\n1,a\n# more\n2,b\n".to_owned(), "csv:time=time,key=key"),
        ("1\n# more\n2\n".to_owned(), "lirs"),
    ] {
        let (requests, summary) = try_read(&log, None).unwrap();
        assert_eq!((requests.len(), summary.bad_lines), (2, 0), "{log}");
        assert_eq!(summary.format.to_string(), format);
    }
    assert_eq!(try_read("#a\nb\n", Some("keys")).unwrap().0, ["read #a", "read b"]);
}

#[test]
fn times_far_from_the_others_are_left_out() {
    let line = |day: &str| format!("a - - [{day}:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n");
    let good = line("17/May/2015").repeat(10);
    for day in ["01/Jan/1970", "31/Dec/2099"] {
        let (requests, summary) = try_read(line(day) + &good + &line(day) + &good, None).unwrap();
        assert_eq!((requests.len(), summary.requests, summary.bad_lines), (20, 20, 2));
        assert!(requests.iter().all(|request| request.starts_with("@1431857103 ")), "{requests:?}");
        assert_eq!(summary.time_reversals, 0);
        let message = "the time is more than a year from those of the lines around it";
        assert_eq!(summary.first_bad.iter().map(|bad| &*bad.message).collect::<Vec<_>>(), [message; 2]);
    }
    // Files of other years are concatenated, compressed or not.
    let (requests, summary) = try_read(good.repeat(10) + &line("17/May/2019").repeat(100), None).unwrap();
    assert_eq!((requests.len(), summary.bad_lines), (191, 9));
}

#[test]
fn times_that_go_back_are_counted() {
    let (_, summary) = try_read("5,a\n5,b\n3,c\n4,d\n1,e\n", Some("csv:time=0,key=1")).unwrap();
    assert_eq!(summary.time_reversals, 2);
}

/// The same bytes again and again.
fn endless(bytes: &[u8]) -> impl Read {
    struct Endless(Vec<u8>, usize);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *buffer {
                *byte = self.0[self.1];
                self.1 = (self.1 + 1) % self.0.len();
            }
            Ok(buffer.len())
        }
    }
    Endless(bytes.to_vec(), 0)
}
