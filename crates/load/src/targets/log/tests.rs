//! Logs, written by hand or generated from a seed.

mod errors;

use std::{collections::BTreeMap, io::Write};

use flate2::{Compression, write::GzEncoder};
use http::header;
use proptest::prelude::*;

use super::*;

fn base() -> BaseUrl {
    "http://h:8080/v2".parse().unwrap()
}

fn read(text: impl AsRef<[u8]>) -> Result<AccessLog, ReplayError> {
    AccessLog::read(LogReader::from_reader("log", text.as_ref(), None)?, &base(), HostHeader::OfUrl)
}

/// The same with the hosts of the log.
fn read_hosts(name: &str, text: impl AsRef<[u8]>) -> Result<AccessLog, ReplayError> {
    AccessLog::read(LogReader::from_reader(name, text.as_ref(), None)?, &base(), HostHeader::Logged)
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

/// Every log of a vendor that `plan` reads is replayed: the requests are those of the reader.
#[test]
fn logs_of_all_vendors_are_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../logs/tests/suite/fixtures");
    let mut logs = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let input = [LogInput::from(path.clone())];
        let (mut reads, mut other, mut times) = (0, 0, Vec::new());
        let summary = LogReader::open(&input, None).unwrap();
        let summary = summary.for_each(|request| match request.key {
            stockade_logs::LoggedKey::Url { method: "GET" | "HEAD", .. } => {
                reads += 1;
                times.extend(request.at_ns);
            }
            _ => other += 1,
        });
        let reader = LogReader::open(&input, None).unwrap();
        let log = AccessLog::read(reader, &base(), HostHeader::OfUrl).unwrap();
        let skipped = |reason| log.skipped().count(reason);
        let name = path.display();
        assert_eq!(
            (log.requests() as u64 + skipped(SkipReason::Url), skipped(SkipReason::Method)),
            (reads, other),
            "{name}"
        );
        assert_eq!(skipped(SkipReason::Malformed), summary.unwrap().bad_lines, "{name}");
        let span = times.iter().max().unwrap() - times.iter().min().unwrap();
        // Requests of one second are spread over it.
        assert!(
            log.duration().as_nanos().abs_diff(span.into()) < 1_000_000_000,
            "{name}: {:?}",
            log.duration()
        );
        logs += 1;
    }
    assert!(logs >= 20, "{logs}");
}

#[test]
fn keys_of_traces_are_paths() {
    let text = "0.5,set,/w\n1.5,get,/a?b\n2.5,get,user 7%\n3.5,get,http://a.example/c\n";
    let read = |format: &str, text: &[u8]| {
        let format = format.parse().unwrap();
        AccessLog::read(
            LogReader::from_reader("log", text, Some(format)).unwrap(),
            &base(),
            HostHeader::OfUrl,
        )
        .unwrap()
    };
    let log = read("csv:time=0,operation=1,key=2", text.as_bytes());
    assert_eq!(lines(&log), ["@0 GET /a?b", "@1 GET /user%207%25", "@2 GET /c"]);
    assert_eq!(log.skipped().to_string(), "1 with a method other than GET and HEAD");
    // Without times, the log has an order, and no pace.
    let log = read("keys", b"/b\n/a\n/b\n");
    assert_eq!(lines(&log), ["@0 GET /b", "@0 GET /a", "@0 GET /b"]);
    assert_eq!(log.with_times().unwrap_err(), ReplayError::NoTimes);
    // Ranges of blocks.
    assert_eq!(lines(&read("arc", b"7 2 0 0\n")), ["@0 GET /7", "@0 GET /8"]);
}

#[test]
fn hosts_are_sent_where_asked() {
    let json = |host: &str, path: &str| {
        format!("{{\"ts\":1431857103.5,\"method\":\"GET\",\"host\":\"{host}\",\"url\":\"{path}\"}}\n")
    };
    let text =
        [("A.example:80", "/x"), ("b.example:8080", "/x"), ("a.example", "/x"), ("-", "/x"), ("a b", "/x")]
            .map(|(host, path)| json(host, path))
            .concat();
    let hosts = |log: &AccessLog| -> Vec<String> {
        let host = |template: &RequestTemplate| template.headers.get(header::HOST).cloned();
        let text =
            |host: Option<HeaderValue>| host.map_or("-".to_owned(), |host| host.to_str().unwrap().to_owned());
        log.templates().iter().map(|template| text(host(template))).collect()
    };
    let log = read_hosts("log", &text).unwrap();
    assert_eq!(hosts(&log), ["a.example", "b.example:8080", "-"]);
    assert_eq!((log.requests(), log.without_host()), (4, 1));
    assert_eq!(log.skipped().to_string(), "1 with a URL that cannot be sent");
    // Connections go to the base URL.
    assert!(log.templates().iter().all(|template| template.url == "http://h:8080/v2/x"));
    let log = read(&text).unwrap();
    assert_eq!((hosts(&log), log.requests(), log.without_host()), (vec!["-".to_owned()], 5, 0));
    // Before the client, in an absolute URL, and nowhere.
    let vhost = "v.example:443 192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 17\n";
    assert_eq!(hosts(&read_hosts("log", vhost).unwrap()), ["v.example"]);
    assert_eq!(hosts(&read_hosts("log", line("GET http://u.example/a HTTP/1.1")).unwrap()), ["u.example"]);
    assert_eq!(read_hosts("log", line("GET /a HTTP/1.1")).unwrap_err(), ReplayError::NoHosts);
}

/// The clock of a machine that boots without one, or that is set wrong, and a line that grew over many.
#[test]
fn bad_line_neither_ends_nor_stretches_a_replay() {
    let line = |time: &str| format!("a - - [{time} +0000] \"GET /a HTTP/1.1\" 200 17\n");
    let good = |second: u32| line(&format!("17/May/2015:10:05:{second:02}"));
    let long = format!("{}{}\n", line("17/May/2015:10:05:03").trim_end(), "x".repeat(65 << 10));
    for bad in [line("01/Jan/1970:00:00:07"), line("17/May/2099:10:05:03"), long] {
        for at in [0, 7, 20] {
            let mut all: Vec<_> = (0..20).map(good).collect();
            all.insert(at, bad.clone());
            let log = read(all.concat()).unwrap();
            assert_eq!((log.requests(), log.duration()), (20, Duration::from_secs(19)));
            assert_eq!(log.skipped().to_string(), "1 in another format");
            assert_eq!(log.malformed()[0].line, at as u64 + 1);
        }
    }
}

#[test]
fn several_files_are_one_log_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let line = |second: u32, path: &str| {
        format!("a - - [17/May/2015:10:05:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 1\n")
    };
    let texts = [line(7, "/d") + &line(9, "/e"), line(3, "/a") + &line(8, "/f"), line(4, "/b")];
    let inputs: Vec<LogInput> = texts
        .iter()
        .zip(["1.log", "2.log.gz", "3.log"])
        .map(|(text, name)| {
            let path = folder.path().join(name);
            let bytes = if name.contains("gz") { packed(text.as_bytes()) } else { text.clone().into_bytes() };
            std::fs::write(&path, bytes).unwrap();
            path.into()
        })
        .collect();
    let log = AccessLog::read(LogReader::open(&inputs, None).unwrap(), &base(), HostHeader::OfUrl).unwrap();
    assert_eq!(lines(&log), ["@0 GET /a", "@1 GET /b", "@4 GET /d", "@5 GET /f", "@6 GET /e"]);
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
        let due = log.due_times_within(Duration::from_secs(secs)).unwrap();
        due.iter().map(Duration::as_millis).collect::<Vec<_>>()
    };
    let three = log(&["1.5", "2.5", "5.5"]);
    assert_eq!(due(&three, 4), [0, 1_000]);
    assert_eq!(due(&three, 13), [0, 1_000, 4_000, 6_000, 7_000, 10_000, 12_000]);
    assert_eq!(due(&log(&["1.5"]), 13), [0]);
    assert_eq!(
        three.due_times_within(Duration::from_secs(u64::MAX)).unwrap_err(),
        ReplayError::TooManyRounds
    );
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

/// `GET` and `HEAD`, or all but CONNECT; each method has a template of its own.
#[test]
fn other_methods_are_replayed_where_they_are_wanted() {
    let line =
        |method: &str| format!("ada - - [17/May/2015:10:05:03 +0000] \"{method} /a HTTP/1.1\" 200 17\n");
    let text = ["GET", "POST", "HEAD", "POST", "DELETE", "CONNECT"].map(line).concat();
    let methods = |methods| {
        let reader = LogReader::from_reader("log", text.as_bytes(), None).unwrap();
        let log =
            AccessLog::read(reader, &base(), ReplayOptions { methods, ..ReplayOptions::default() }).unwrap();
        let methods: Vec<_> = log.templates().iter().map(|template| template.method.to_string()).collect();
        (methods.join(" "), log.requests(), log.skipped().count(SkipReason::Method))
    };
    assert_eq!(methods(ReplayedMethods::Reads), ("GET HEAD".to_owned(), 2, 4));
    assert_eq!(methods(ReplayedMethods::All), ("GET POST HEAD DELETE".to_owned(), 5, 1));
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
