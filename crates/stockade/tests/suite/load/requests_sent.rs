//! The requests that a load sends: targets, URLs, logs, keys, headers and bodies.

use std::{collections::BTreeSet, fs::File, io::Write};

use flate2::{Compression, write::GzEncoder};

use super::{
    Origin, assert_done, json, load, measure,
    stub::{Request, Stub, ok},
};
use crate::{running::Running, support::Sandbox};

/// A server that answers every request with 200.
fn ok_server() -> (Sandbox, Stub) {
    (Sandbox::new(), Stub::new(|_| ok("well")))
}

fn paths(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(Request::path).collect()
}

#[test]
fn targets_are_requested_in_order() {
    let (sandbox, stub) = ok_server();
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    sandbox.file("folder/news.json", "{\"news\": 1}");
    let text = format!(
        "GET {0}\nX-Team: web\n\n# creates one\nPOST {1}\nContent-Type: application/json\nContent-Length: 3\n@news.json\n",
        stub.url("/a"),
        stub.url("/b"),
    );
    sandbox.file("folder/targets.txt", &text);
    // A target's own header overrides that of the command line.
    let headers = ["-H", "X-Team: other", "-H", "X-More: 1"];
    let some = ["--targets", "folder/targets.txt", "-c", "1", "-n", "3"];
    let report = measure(&sandbox, &[&some[..], &headers].concat());
    assert_eq!((&report["requests"], &report["bytes_out"]["total"]), (&3.into(), &11.into()));
    let requests = stub.all();
    assert_eq!(paths(&requests), ["/a", "/b", "/a"]);
    assert_eq!((requests[0].header("x-team"), requests[0].header("x-more")), (vec!["web"], vec!["1"]));
    assert_eq!(
        (requests[1].header("x-team"), requests[1].header("content-type")),
        (vec!["other"], vec!["application/json"])
    );
    assert!(
        requests[1].head.starts_with("POST /b HTTP/1.1\r\n") && requests[1].body == "{\"news\": 1}",
        "{requests:?}"
    );

    // `Content-Length` is sent once.
    assert_eq!(requests[1].header("content-length"), ["11"]);

    let line = format!("{{\"method\":\"PUT\",\"url\":\"{}\",\"body\":\"Rk9P\"}}\n", stub.url("/c"));
    sandbox.file("targets.json", &line);
    measure(&sandbox, &["--targets", "targets.json", "-c", "1", "-n", "1"]);
    let requests = stub.all();
    assert!(requests[0].head.starts_with("PUT /c ") && requests[0].body == "FOO", "{requests:?}");
}

#[test]
fn malformed_line_is_refused_before_any_request() {
    let origin = Origin::new(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let url = origin.url("/");
    for (flag, name, text, place, remedy) in [
        ("--targets", "targets.txt", format!("GET {url}\n\nget {url}\n"), "targets.txt:3: ", "write `GET`"),
        (
            "--targets",
            "targets.json",
            format!("{{\"method\":\"GET\",\"url\":\"{url}\"}}\n\n{{\"url\":3}}\n"),
            "targets.json:3: ",
            "write one object per line",
        ),
        (
            "--urls",
            "urls.txt",
            format!("{url}\n# more\n{url} $(HOST)\n"),
            "urls.txt:3: ",
            "there is no variable `HOST`",
        ),
    ] {
        origin.sandbox.file(name, &text);
        let output = load(&origin.sandbox, &[flag, name, "--rate", "100/s", "-n", "10"]);
        output.assert_refused(2, &[place, remedy]);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    assert_eq!(origin.count()["total_requests"], 0);
}

#[test]
fn urls_file_has_the_format_of_siege() {
    let (sandbox, stub) = ok_server();
    let text = format!("HOST = {}\n$(HOST)/a\nhttp://${{HOST}}/b POST title=one\n", stub.address);
    sandbox.file("urls.txt", &text);
    measure(&sandbox, &["--urls", "urls.txt", "-c", "1", "-n", "4"]);
    let requests = stub.all();
    assert_eq!(paths(&requests), ["/a", "/b", "/a", "/b"]);
    assert_eq!(
        (requests[1].body.as_str(), requests[1].header("content-type")),
        ("title=one", vec!["application/x-www-form-urlencoded"])
    );

    let text: String = (0..20).map(|n| stub.url(&format!("/{n}\n"))).collect();
    sandbox.file("urls.txt", &text);
    let at_random = |seed: &str| {
        measure(&sandbox, &["--urls", "urls.txt", "--random", "--seed", seed, "-c", "1", "-n", "40"]);
        let requests = stub.all();
        requests.iter().map(|request| request.path().to_owned()).collect::<Vec<_>>()
    };
    let first = at_random("1");
    assert_eq!(first, at_random("1"));
    assert_ne!(first, at_random("2"));
    assert!(first.iter().collect::<BTreeSet<_>>().len() > 10, "{first:?}");
}

#[test]
fn targets_and_urls_are_read_from_standard_input() {
    let (sandbox, stub) = ok_server();
    sandbox.file("body.txt", "FOO");
    let (a, b) = (stub.url("/a"), stub.url("/b"));
    for (option, text) in [
        ("--targets", format!("GET {a}\n\nPOST {b}\n@body.txt\n")),
        ("--urls", format!("{a}\n{b} POST FOO\n")),
    ] {
        let arguments = ["load", option, "-", "-c", "1", "-n", "2"];
        assert_done(&Running::start(&sandbox, &arguments, &text).ended());
        let requests = stub.all();
        assert_eq!((paths(&requests), requests[1].body.as_str()), (vec!["/a", "/b"], "FOO"), "{option}");
    }
    let output = Running::start(&sandbox, &["load", "--targets", "-", "-c", "1"], "get /\n").ended();
    output.assert_refused(2, &["standard input:1: `get` is not a method: write `GET`"]);
}

#[test]
fn odd_lines_of_a_log_are_left_out_and_named() {
    let (sandbox, stub) = ok_server();
    let line = "ada - - [17/May/2015:10:05:00 +0000] \"GET / HTTP/1.1\" 200 17\n";
    sandbox.file("access.log", &(line.repeat(19) + "-- rotated --\n"));
    let url = stub.url("/");
    let output = load(&sandbox, &[&url, "--replay", "access.log", "-c", "1", "-n", "19"]);
    let said: Vec<_> = output.stderr.lines().collect();
    assert_eq!((output.code, said[0]), (0, "left out of the log: 1 in another format"), "{output:?}");
    assert!(said[1].starts_with("left out: access.log:20: the line has no time in brackets"), "{output:?}");
    assert_eq!(stub.all().len(), 19);

    sandbox.file("access.log", &(line.repeat(20) + &"-- rotated --\n".repeat(3)));
    let output = load(&sandbox, &[&url, "--replay", "access.log"]);
    let lines = "; 3 of 23 lines are not in the format `clf`, more than 10 %: name another format";
    output.assert_refused(2, &["access.log:21: ", lines]);
}

/// Twenty requests in each of three seconds, and one that cannot be replayed.
fn log(sandbox: &Sandbox) {
    let file = File::create(sandbox.path().join("access.log.gz")).unwrap();
    let mut log = GzEncoder::new(file, Compression::fast());
    for n in 0..60 {
        let second = n / 20;
        writeln!(
            log,
            "ada - - [17/May/2015:10:05:0{second} +0000] \"GET /{n}?a HTTP/1.1\" 200 17 \"-\" \"curl\""
        )
        .unwrap();
    }
    writeln!(log, "ada - - [17/May/2015:10:05:01 +0000] \"POST /form HTTP/1.1\" 200 17").unwrap();
    log.finish().unwrap();
}

#[test]
fn log_is_replayed_at_a_speed_and_a_share() {
    let (sandbox, stub) = ok_server();
    log(&sandbox);
    let replay = ["--replay", "access.log.gz", "--speed", "20", "--format", "json"];
    let url = stub.url("/v2/");
    let run = |more: &[&str]| {
        let output = load(&sandbox, &[&[url.as_str()], &replay[..], more].concat());
        let (left_out, rest) = output.stderr.split_once('\n').expect("a line");
        assert_eq!(left_out, "left out of the log: 1 with a method other than GET and HEAD");
        assert!(
            [0, 98].contains(&output.code)
                && rest.lines().all(|line| line.starts_with("INVALID: the generator ")),
            "{output:?}"
        );
        (json(&output), stub.all())
    };
    let (report, requests) = run(&[]);
    // 59 gaps of 50 ms, twenty times as fast.
    assert_eq!((&report["requests"], &report["duration"]), (&60.into(), &147_500_000.into()));
    assert_eq!(report["stockade"]["schedule"], "60 replayed in 148ms");
    let replayed: BTreeSet<_> = paths(&requests).into_iter().map(str::to_owned).collect();
    assert_eq!((requests.len(), replayed.len(), replayed.contains("/v2/59?a")), (60, 60, true));
    assert!(
        requests.iter().all(|request| request.header("user-agent")[0].starts_with("stockade/")),
        "{requests:?}"
    );

    let share = |seed: &str| {
        let (report, requests) = run(&["--share", "0.5", "--seed", seed]);
        let paths: BTreeSet<_> = requests.iter().map(|request| request.path().to_owned()).collect();
        assert_eq!(report["requests"], paths.len());
        paths
    };
    let some = share("1");
    assert!((15..45).contains(&some.len()) && some.is_subset(&replayed), "{some:?}");
    assert_eq!(some, share("1"));
    assert_ne!(some, share("2"));
    // Only the requests of the first second.
    let (report, _) = run(&["--duration", "50ms"]);
    assert_eq!(report["requests"], 20);
}

/// The connections go to the URL, whatever the lines say.
#[test]
fn hosts_of_a_log_are_sent_where_asked() {
    let (sandbox, stub) = ok_server();
    let line = |host: &str, path: &str| {
        format!(
            "{{\"msec\":1431857103.5,\"request_method\":\"GET\",\"http_host\":\"{host}\",\"request_uri\":\"{path}\"}}\n"
        )
    };
    let text = [line("A.example:80", "/a"), line("b.example:8080", "/b"), line("-", "/c")].concat();
    let url = stub.url("");
    let own = url.strip_prefix("http://").unwrap();
    let run = |more: &[&str]| {
        let arguments = [&["load", &url, "--replay", "-", "-c", "1", "-n", "3"], more].concat();
        let output = Running::start(&sandbox, &arguments, &text).ended();
        assert_eq!(output.code, 0, "{}", output.stderr);
        let requests = stub.all();
        let of = |request: &Request| format!("{} {}", request.header("host")[0], request.path());
        (requests.iter().map(of).collect::<Vec<_>>(), output.stderr)
    };
    let (requests, stderr) = run(&["--replay-hosts"]);
    assert_eq!(requests, ["a.example /a", "b.example:8080 /b", &format!("{own} /c")]);
    assert!(stderr.contains("without a host in the log, and sent with that of the URL: 1"), "{stderr}");
    let (requests, _) = run(&[]);
    assert_eq!(requests, ["/a", "/b", "/c"].map(|path| format!("{own} {path}")));
}

#[test]
fn several_logs_of_a_named_format_are_one() {
    let (sandbox, stub) = ok_server();
    let line = |second: u32, path: &str| format!("{path} 200 [17/May/2015:10:05:0{second} +0000] GET\n");
    sandbox.file("new.log", &(line(2, "/c") + &line(4, "/e")));
    sandbox.file("old.log", &(line(3, "/d") + &line(1, "/b") + &line(0, "/a")));
    let format = "$request_uri $status [$time_local] $request_method";
    let url = stub.url("");
    let logs = ["--replay", "new.log", "--replay", "old.log", "--input", format];
    let report = measure(&sandbox, &[&[url.as_str()], &logs[..], &["-c", "1", "-n", "5"]].concat());
    assert_eq!(report["requests"], 5);
    assert_eq!(paths(&stub.all()), ["/a", "/b", "/c", "/d", "/e"]);
}

#[test]
fn keys_follow_their_distribution_and_cache_bust_makes_urls_unique() {
    let (sandbox, stub) = ok_server();
    let run = |url: &str, more: &[&str]| {
        measure(&sandbox, &[&[url, "-c", "1", "-n", "100"], more].concat());
        stub.all().iter().map(|request| request.path().to_owned()).collect::<Vec<_>>()
    };
    let scanned = run(&stub.url("/{key:04}"), &["--keys", "scan:40"]);
    assert_eq!(
        (scanned[0].as_str(), scanned[39].as_str(), scanned[40].as_str()),
        ("/0000", "/0039", "/0000")
    );
    let drawn = run(&stub.url("/a?id={key}"), &["--keys", "zipf:1000"]);
    let hot = drawn.iter().filter(|path| *path == "/a?id=0").count();
    let other: BTreeSet<_> = drawn.iter().collect();
    assert!((2..60).contains(&hot) && other.len() > 20, "{drawn:?}");
    assert_eq!(drawn, run(&stub.url("/a?id={key}"), &["--keys", "zipf:1000"]));

    for (path, begins) in [("/a", "/a?stockade="), ("/a?b", "/a?b&stockade=")] {
        let busting = run(&stub.url(path), &["--cache-bust"]);
        let different: BTreeSet<_> = busting.iter().collect();
        assert_eq!((busting.len(), different.len()), (100, 100));
        assert!(busting.iter().all(|path| path.starts_with(begins)), "{busting:?}");
        let other_run = run(&stub.url(path), &["--cache-bust"]);
        assert!(other_run.iter().all(|path| !different.contains(path)), "{other_run:?}");
    }
}

#[test]
fn headers_methods_and_bodies_of_the_command_line_are_sent() {
    let (sandbox, stub) = ok_server();
    sandbox.file("body.txt", "a body");
    let url = stub.url("/a");
    let send_one = |more: &[&str]| {
        measure(&sandbox, &[&[url.as_str(), "-c", "1", "-n", "1"], more].concat());
        stub.next()
    };
    let plain = send_one(&[]);
    assert!(plain.head.starts_with("GET /a HTTP/1.1\r\n"), "{plain:?}");
    assert_eq!(
        (plain.header("host"), plain.header("accept-encoding")),
        (vec![stub.address.to_string().as_str()], vec!["gzip"])
    );
    let headers = send_one(&[
        "-H",
        "Host: news.example",
        "--header",
        "X-Team: web",
        "-H",
        "X-Team:infra",
        "-H",
        "Accept-Encoding: br",
    ]);
    assert_eq!(
        (headers.header("host"), headers.header("accept-encoding")),
        (vec!["news.example"], vec!["br"])
    );
    assert_eq!(headers.header("x-team"), ["web", "infra"]);
    let posted = send_one(&["--body", "body.txt"]);
    assert!(posted.head.starts_with("POST ") && posted.body == "a body", "{posted:?}");
    assert_eq!(posted.header("content-length"), ["6"]);
    let put = send_one(&["--body", "body.txt", "--method", "PUT", "--no-keepalive"]);
    assert!(put.head.starts_with("PUT ") && put.header("connection") == ["close"], "{put:?}");
    assert!(send_one(&["-X", "DELETE"]).head.starts_with("DELETE "));

    let piped = ["load", &url, "-c", "1", "-n", "1", "--body", "-"];
    assert_done(&Running::start(&sandbox, &piped, "from a pipe").ended());
    assert_eq!(stub.next().body, "from a pipe");
}

#[test]
fn outcomes_in_cache_headers_are_counted() {
    let sandbox = Sandbox::new();
    let stub = Stub::new(|request| {
        let header = match request.path() {
            "/0" => "Cache-Status: stockade; fwd=uri-miss; detail=miss\r\n",
            "/1" => "X-Cache: HIT\r\nAge: 3\r\nCache-Control: max-age=9\r\n",
            "/2" => "X-Cache: HIT\r\nAge: 9\r\nCache-Control: max-age=9\r\n",
            _ => "Age: 7\r\n",
        };
        super::stub::answer("200 OK", header, "")
    });
    let report = measure(&sandbox, &[&stub.url("/{key}"), "--keys", "scan:3", "-c", "1", "-n", "9"]);
    let outcomes = &report["stockade"]["outcomes"];
    let counts = ["hit", "stale", "miss"].map(|outcome| &outcomes[outcome]);
    assert!(counts.into_iter().all(|count| count == 3), "{report}");
    let hits = report["stockade"]["hit_ratio"].as_f64().unwrap();
    assert!((hits * 9.0 - 3.0).abs() < 1e-9, "{hits}");
    // `Age` alone does not tell a hit from a stale answer.
    let report = measure(&sandbox, &[&stub.url("/{key}"), "--keys", "scan:4", "-c", "1", "-n", "4"]);
    assert_eq!(report["stockade"]["hits_of_unknown_freshness"], 1);
    assert!(report["stockade"]["hit_ratio"].is_null(), "{report}");
}
