//! Logs, written by hand or generated from a seed.

mod errors;

use std::{collections::BTreeMap, io::Write};

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;

use super::*;

fn base() -> BaseUrl {
    "http://h:8080/v2".parse().unwrap()
}

fn read(text: impl AsRef<[u8]>) -> Result<AccessLog, TargetFileError> {
    AccessLog::read("log", text.as_ref(), &base())
}

/// `@1.5 GET /path`: the due time of each request in seconds, its method and its path.
fn lines(log: &AccessLog) -> Vec<String> {
    let RequestOrder::Listed(order) = log.order() else { panic!("{:?}", log.order()) };
    let line = |(due, index): (&Duration, &u32)| {
        let target = &log.templates()[*index as usize];
        let url = target.url.to_string();
        format!("@{} {} {}", due.as_secs_f64(), target.method, url.strip_prefix("http://h:8080/v2").unwrap())
    };
    log.due_times().iter().zip(order.iter()).map(line).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A line with this request.
fn line(request: &str) -> String {
    format!("a - - [17/May/2015:10:05:03 +0000] \"{request}\" 200 17\n")
}

#[test]
fn formats_that_start_like_the_common_log_format_are_parsed() {
    let time = "[17/May/2015:10:05:03 +0000]";
    for text in [
        &format!("1.2.3.4 - - {time} \"GET /a HTTP/1.1\" 200 17"),
        &format!("\u{feff}\r\n::1 - ada {time} \"GET /a HTTP/2.0\" 304 -\r\n\n"),
        &format!(
            "a.example:443 1.2.3.4 - ada lovelace {time} \"GET /a HTTP/1.1\" 200 17 \"-\" \"curl/8 \\\"[x]\\\"\""
        ),
        &format!(
            "1.2.3.4 - [ada] {time} \"GET /a HTTP/1.0\" 200 17 \"http://b/?\" \"Mozilla/5.0\" 12 \"x\" 3ms"
        ),
        &format!("- - - {time} \"GET /a HTTP/1.1\" - -"),
        &format!("1.2.3.4 - - {time} \"GET http://other/a HTTP/1.1\" 200 17"),
        &format!("1.2.3.4 - - {time} \"GET /a#top HTTP/1.1\" 200 17"),
    ] {
        assert_eq!(lines(&read(text).unwrap()), ["@0 GET /a"], "{text}");
    }
}

#[test]
fn json_fields_have_many_names() {
    for line in [
        r#"{"time":"2015-05-17T10:05:03Z","method":"GET","url":"http://a/a?b=c"}"#,
        r#"{"time_local":"17/May/2015:10:05:03 +0000","request":"GET /a?b=c HTTP/1.1","status":"200"}"#,
        r#"{"msec":"1431857103.123","request_method":"GET","request_uri":"/a?b=c","uri":"/index"}"#,
        r#"{"time_iso8601":"2015-05-17T12:05:03+02:00","request_method":"GET","uri":"/a","args":"b=c"}"#,
        r#"{"@timestamp":1431857103,"http":{"request":{"method":"GET"}},"url":{"original":"/a?b=c"}}"#,
        r#"{"@timestamp":1431857103.25,"http.request.method":"GET","url.original":"/a?b=c"}"#,
        r#"{"level":"info","ts":1431857103.9,"msg":"handled request","request":{"method":"GET","host":"a","uri":"/a?b=c"}}"#,
        r#"{"StartUTC":"2015-05-17T10:05:03.1Z","time":"2015-05-17T10:05:09Z","RequestMethod":"GET","RequestPath":"/a?b=c"}"#,
        r#"{"timestamp":"[17/May/2015:10:05:03 +0000]","method":"GET","path":"/a?b=c","args":"x=y"}"#,
        r#"{"time":null,"ts":1,"method":"GET","path":"/a?b=c"}"#,
    ] {
        assert_eq!(lines(&read(line).unwrap()), ["@0 GET /a?b=c"], "{line}");
    }
}

#[test]
fn time_formats_are_equivalent() {
    let line = |time: &str| format!("{{\"time\":{time},\"method\":\"GET\",\"path\":\"/\"}}\n");
    let times = [
        "1431857103",
        "\"1431857103\"",
        "1431857103.000000",
        "\"2015-05-17T10:05:03Z\"",
        "\"2015-05-17T05:35:03.000-04:30\"",
        "\"17/May/2015:12:05:03 +0200\"",
    ];
    let log = read(times.map(line).concat() + &line("1431857103.000001")).unwrap();
    assert_eq!(log.due_times()[..6], [Duration::ZERO; 6]);
    assert_eq!(log.due_times()[6], Duration::from_micros(1));
}

#[test]
fn skipped_lines_are_counted_by_reason() {
    for (request, reason) in [
        ("POST /a HTTP/1.1", SkipReason::Method),
        ("CONNECT a:443 HTTP/1.1", SkipReason::Method),
        ("OPTIONS * HTTP/1.1", SkipReason::Method),
        ("PRI * HTTP/2.0", SkipReason::Method),
        ("-", SkipReason::NoRequest),
        ("", SkipReason::NoRequest),
        ("GET /", SkipReason::NoRequest),
        ("GET /a b HTTP/1.1", SkipReason::NoRequest),
        ("get / HTTP/1.1", SkipReason::NoRequest),
        (r"\x16\x03\x01\x02\x00\x01", SkipReason::NoRequest),
        (r"\x16\x03 \x01 HTTP/1.1", SkipReason::NoRequest),
        ("SSH-2.0-OpenSSH_9", SkipReason::NoRequest),
        ("GET * HTTP/1.1", SkipReason::Url),
        ("GET a/b HTTP/1.1", SkipReason::Url),
        ("GET ftp://a/b HTTP/1.1", SkipReason::Url),
        (r"GET /\x16 HTTP/1.1", SkipReason::Url),
        (r"GET /\xff HTTP/1.1", SkipReason::Url),
        (r"GET /a\tb HTTP/1.1", SkipReason::Url),
        ("GET /<a> HTTP/1.1", SkipReason::Url),
    ] {
        let log = read(line("GET / HTTP/1.1") + &line(request)).unwrap();
        let counts = SkipReason::ALL.map(|reason| log.skipped().count(reason));
        assert_eq!(counts, SkipReason::ALL.map(|other| u64::from(other == reason)), "{request}");
        assert_eq!((log.lines(), log.requests()), (2, 1), "{request}");
    }
    let lines = ["GET / HTTP/1.1", "-", "PUT / HTTP/1.1", "-"].map(line).concat();
    assert_eq!(
        read(lines).unwrap().skipped().to_string(),
        "1 with a method other than GET and HEAD, 2 without a request"
    );
    assert_eq!(read(line("GET / HTTP/1.1")).unwrap().skipped().to_string(), "none");
    // In JSON, too.
    for (line, reason) in [
        (r#"{"ts":1,"request":"-"}"#, SkipReason::NoRequest),
        (r#"{"ts":1,"method":"","url":""}"#, SkipReason::NoRequest),
        (r#"{"ts":1,"method":"GET","url":"-"}"#, SkipReason::NoRequest),
        (r#"{"ts":1,"method":"POST","url":"/"}"#, SkipReason::Method),
        (r#"{"ts":1,"method":"GET","url":"/\u0001"}"#, SkipReason::Url),
    ] {
        let log = read(format!("{line}\n{{\"ts\":1,\"method\":\"GET\",\"url\":\"/\"}}")).unwrap();
        assert_eq!(log.skipped().count(reason), 1, "{line}");
    }
}

#[test]
fn escapes_are_decoded() {
    for (request, path) in [
        ("GET http://a HTTP/1.1", "/"),
        ("GET HTTPS://a?b HTTP/1.1", "/?b"),
        ("GET //a//b HTTP/1.1", "//a//b"),
        ("GET /%7e?a=%20 HTTP/1.1", "/%7e?a=%20"),
        (r#"GET /a\"b HTTP/1.1"#, "/a\"b"),
        (r"GET /a\\b HTTP/1.1", "/a\\b"),
        (r"GET /a\x22b HTTP/1.1", "/a\"b"),
        (r"GET /\xC3\xA9 HTTP/1.1", "/é"),
        ("GET /é HTTP/1.1", "/é"),
        // Paths of a log have no placeholders.
        ("GET /{key}/{key:2} HTTP/1.1", "/%7Bkey}/%7Bkey:2}"),
    ] {
        assert_eq!(lines(&read(line(request)).unwrap()), [format!("@0 GET {path}")], "{request}");
    }
}

#[test]
fn requests_are_sorted_and_whole_seconds_are_spread() {
    let line = |second: u32, path: &str| {
        format!("a - - [17/May/2015:10:05:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 1\n")
    };
    let text =
        [line(5, "/e"), line(3, "/b"), line(5, "/f"), line(3, "/a"), line(5, "/b"), line(5, "/g")].concat();
    let log = read(&text).unwrap();
    let sorted = ["@0 GET /b", "@0.5 GET /a", "@2 GET /e", "@2.25 GET /f", "@2.5 GET /b", "@2.75 GET /g"];
    assert_eq!(lines(&log), sorted);
    assert_eq!((log.templates().len(), log.duration()), (5, Duration::from_millis(2_750)));
    // Two concatenated gzip members.
    let (first, second) = text.split_at(text.find('\n').unwrap() + 1);
    let members = [packed(first.as_bytes()), packed(second.as_bytes())].concat();
    assert_eq!(lines(&read(members).unwrap()), sorted);
}

#[test]
fn fractional_times_are_not_spread() {
    let line = |time: &str, path: &str| format!("{{\"ts\":{time},\"method\":\"GET\",\"url\":\"{path}\"}}\n");
    let text = [line("2", "/b"), line("2", "/a"), line("3.5", "/c"), line("1", "/d")].concat();
    assert_eq!(lines(&read(text).unwrap()), ["@0 GET /d", "@1 GET /b", "@1 GET /a", "@2.5 GET /c"]);
}

#[test]
fn head_and_get_have_separate_templates() {
    let text = ["GET /a HTTP/1.1", "HEAD /a HTTP/1.1", "GET /a HTTP/1.1", "GET http://x/a HTTP/1.1"]
        .map(line)
        .concat();
    let log = read(text).unwrap();
    assert_eq!(
        log.templates().iter().map(|target| target.method.as_str()).collect::<Vec<_>>(),
        ["GET", "HEAD"]
    );
    assert!(log.templates().iter().all(|target| target.headers.is_empty() && target.body.is_empty()));
}

#[test]
fn short_log_repeats() {
    let line = |at: &str| format!("{{\"ts\":{at},\"method\":\"GET\",\"url\":\"/\"}}\n");
    let log = |ats: &[&str]| read(ats.iter().map(|at| line(at)).collect::<String>()).unwrap();
    let due = |log: &AccessLog, secs| {
        let due = log.due_times_for(Duration::from_secs(secs)).unwrap();
        due.iter().map(Duration::as_millis).collect::<Vec<_>>()
    };
    let three = log(&["1.5", "2.5", "5.5"]);
    assert_eq!(due(&three, 4), [0, 1_000]);
    assert_eq!(due(&three, 13), [0, 1_000, 4_000, 6_000, 7_000, 10_000, 12_000]);
    assert_eq!(due(&log(&["1.5"]), 13), [0]);
    assert_eq!(three.due_times_for(Duration::from_secs(u64::MAX)).unwrap_err(), ReplayError::TooMany);
}

#[test]
fn speed_and_share_apply_to_all_requests() {
    let line = |n: u32| format!("{{\"ts\":{}.5,\"method\":\"GET\",\"url\":\"/{n}\"}}\n", n + 1);
    let log = read((0..10_000).map(line).collect::<String>()).unwrap();
    let millis =
        |log: &AccessLog| log.due_times().iter().take(3).map(Duration::as_millis).collect::<Vec<_>>();
    assert_eq!(millis(&log.clone().at_speed(4.0).unwrap()), [0, 250, 500]);
    assert_eq!(millis(&log.clone().at_speed(0.1).unwrap()), [0, 10_000, 20_000]);
    assert_eq!(log.clone().at_speed(1e-300).unwrap().duration(), Duration::from_nanos(u64::MAX));

    let share = |share: f64, seed: u64| lines(&log.clone().with_share(share, Seed(seed)).unwrap());
    let (tenth, half) = (share(0.1, 1), share(0.5, 1));
    // A tenth of 10,000, and five standard deviations.
    assert!((850..1_150).contains(&tenth.len()), "{}", tenth.len());
    assert!(tenth.iter().all(|request| half.contains(request)));
    assert_eq!(tenth, share(0.1, 1));
    assert_ne!(tenth, share(0.1, 2));
    assert_eq!(share(1.0, 1).len(), 10_000);
    assert_eq!(log.clone().with_share(1e-300, Seed(1)).unwrap().duration(), Duration::ZERO);
}

/// A generated request: its time in microseconds, true for HEAD, and its path.
type Made = (u64, bool, String);

/// The expected replay of a log, computed naively.
fn expected(made: &[Made], is_whole: bool) -> Vec<String> {
    let mut sorted: Vec<&Made> = made.iter().collect();
    sorted.sort_by_key(|(at, ..)| *at);
    let first = sorted[0].0;
    let mut seen = BTreeMap::new();
    let line = |(at, is_head, path): &Made| {
        let since = Duration::from_micros(at - first);
        let of_second = made.iter().filter(|(other, ..)| other == at).count();
        let nth: &mut usize = seen.entry(*at).or_default();
        let within = if is_whole { 1_000_000_000 * *nth / of_second } else { 0 };
        *nth += 1;
        let due = since + Duration::from_nanos(within as u64);
        format!("@{} {} {path}", due.as_secs_f64(), if *is_head { "HEAD" } else { "GET" })
    };
    sorted.into_iter().map(line).collect()
}

fn as_common(made: &[Made]) -> String {
    let line = |(at, is_head, path): &Made| {
        let time = jiff::Timestamp::from_microsecond(i64::try_from(*at).unwrap()).unwrap();
        let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
        format!(
            "h a - - [{time}] \"{} {path} HTTP/1.1\" 200 - \"-\" \"x\"\n",
            if *is_head { "HEAD" } else { "GET" }
        )
    };
    made.iter().map(line).collect()
}

fn as_json(made: &[Made]) -> String {
    let line = |(at, is_head, path): &Made| {
        let method = if *is_head { "HEAD" } else { "GET" };
        let ts = format!("{}.{:06}", at / 1_000_000, at % 1_000_000);
        format!("{{\"ts\":{ts},\"request\":{{\"method\":\"{method}\",\"uri\":\"{path}\"}}}}\n")
    };
    made.iter().map(line).collect()
}

/// Requests of a few seconds.
fn made() -> impl Strategy<Value = Vec<Made>> {
    let time = 1_431_857_103_000_000..1_431_857_107_000_000_u64;
    prop::collection::vec((time, any::<bool>(), "/[a-c]{0,2}(\\?[a-z=&]{0,3})?"), 1..30)
}

proptest! {
    #[test]
    fn generated_logs_are_parsed(made in made()) {
        let whole: Vec<Made> =
            made.iter().map(|(at, is_head, path)| (at / 1_000_000 * 1_000_000, *is_head, path.clone())).collect();
        prop_assert_eq!(lines(&read(as_common(&whole)).unwrap()), expected(&whole, true));
        prop_assert_eq!(lines(&read(packed(as_json(&whole).as_bytes())).unwrap()), expected(&whole, true));
        let is_whole = made.iter().all(|(at, ..)| at % 1_000_000 == 0);
        prop_assert_eq!(lines(&read(as_json(&made)).unwrap()), expected(&made, is_whole));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
        let _ = (read(&bytes), read(text));
        let _ = read([&[0x1f, 0x8b][..], &bytes].concat());
        let _ = read(packed(&bytes));
    }

    #[test]
    fn arbitrary_lines_do_not_panic(
        common in "(\\[17/May/2015:10:05:03 \\+0000\\]|\"GET |/a| HTTP/1.1\"|\\\\(x[0-9a-f])?|[ a-z\"\\[\\]é-]| 200 17|\n){0,30}",
        json in "\\{(\"(ts|time|method|request|url|uri|args)\"[:,]|[0-9]{1,12}|\"(GET|/a|-|1.5e9)\"|[{}:,.-]|null){0,20}",
    ) {
        let _ = (read(common), read(json));
    }

    #[test]
    fn mutated_logs_do_not_panic(
        made in made(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut: prop::sample::Index,
    ) {
        let (common, json) = (as_common(&made), as_json(&made));
        for bytes in [packed(common.as_bytes()), common.into_bytes(), json.into_bytes()] {
            let mut changed = bytes.clone();
            for (index, byte) in &changes {
                let at = index.index(changed.len());
                changed[at] = *byte;
            }
            let _ = (read(changed), read(&bytes[..cut.index(bytes.len())]));
        }
    }
}
