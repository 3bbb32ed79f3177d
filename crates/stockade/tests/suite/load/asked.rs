//! What it asks for: targets, URLs, logs, keys, headers and bodies.

use std::{collections::BTreeSet, fs::File, io::Write};

use flate2::{Compression, write::GzEncoder};

use super::{
    Origin, assert_done, json, load, measure,
    stub::{Request, Stub, ok},
};
use crate::{running::Running, support::Sandbox};

/// A server that is well, whatever it is asked.
fn well() -> (Sandbox, Stub) {
    (Sandbox::new(), Stub::new(|_| ok("well")))
}

fn paths(asked: &[Request]) -> Vec<&str> {
    asked.iter().map(Request::path).collect()
}

#[test]
fn targets_are_asked_one_after_the_other() {
    let (sandbox, stub) = well();
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    sandbox.file("folder/news.json", "{\"news\": 1}");
    let text = format!(
        "GET {0}\nX-Team: web\n\n# creates one\nPOST {1}\nContent-Type: application/json\nContent-Length: 3\n@news.json\n",
        stub.url("/a"),
        stub.url("/b"),
    );
    sandbox.file("folder/targets.txt", &text);
    // A target's own header goes before that of the command line.
    let headers = ["-H", "X-Team: other", "-H", "X-More: 1"];
    let some = ["--targets", "folder/targets.txt", "-c", "1", "-n", "3"];
    let report = measure(&sandbox, &[&some[..], &headers].concat());
    assert_eq!((&report["requests"], &report["bytes_out"]["total"]), (&3.into(), &11.into()));
    let asked = stub.all();
    assert_eq!(paths(&asked), ["/a", "/b", "/a"]);
    assert_eq!((asked[0].header("x-team"), asked[0].header("x-more")), (vec!["web"], vec!["1"]));
    assert_eq!(
        (asked[1].header("x-team"), asked[1].header("content-type")),
        (vec!["other"], vec!["application/json"])
    );
    assert!(
        asked[1].head.starts_with("POST /b HTTP/1.1\r\n") && asked[1].body == "{\"news\": 1}",
        "{asked:?}"
    );

    // How long a body is is told once.
    assert_eq!(asked[1].header("content-length"), ["11"]);

    let line = format!("{{\"method\":\"PUT\",\"url\":\"{}\",\"body\":\"Rk9P\"}}\n", stub.url("/c"));
    sandbox.file("targets.json", &line);
    measure(&sandbox, &["--targets", "targets.json", "-c", "1", "-n", "1"]);
    let asked = stub.all();
    assert!(asked[0].head.starts_with("PUT /c ") && asked[0].body == "FOO", "{asked:?}");
}

#[test]
fn a_malformed_line_stops_it_before_anything_is_sent() {
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
        let said = load(&origin.sandbox, &[flag, name, "--rate", "100/s", "-n", "10"]);
        said.assert_refused(2, &[place, remedy]);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
    assert_eq!(origin.count()["total_requests"], 0);
}

#[test]
fn urls_are_sieges() {
    let (sandbox, stub) = well();
    let text = format!("HOST = {}\n$(HOST)/a\nhttp://${{HOST}}/b POST title=one\n", stub.address);
    sandbox.file("urls.txt", &text);
    measure(&sandbox, &["--urls", "urls.txt", "-c", "1", "-n", "4"]);
    let asked = stub.all();
    assert_eq!(paths(&asked), ["/a", "/b", "/a", "/b"]);
    assert_eq!(
        (asked[1].body.as_str(), asked[1].header("content-type")),
        ("title=one", vec!["application/x-www-form-urlencoded"])
    );

    let text: String = (0..20).map(|n| stub.url(&format!("/{n}\n"))).collect();
    sandbox.file("urls.txt", &text);
    let at_random = |seed: &str| {
        measure(&sandbox, &["--urls", "urls.txt", "--random", "--seed", seed, "-c", "1", "-n", "40"]);
        let asked = stub.all();
        asked.iter().map(|asked| asked.path().to_owned()).collect::<Vec<_>>()
    };
    let first = at_random("1");
    assert_eq!(first, at_random("1"));
    assert_ne!(first, at_random("2"));
    assert!(first.iter().collect::<BTreeSet<_>>().len() > 10, "{first:?}");
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
fn a_log_is_replayed_at_its_pace_or_at_another() {
    let (sandbox, stub) = well();
    log(&sandbox);
    let replay = ["--replay", "access.log.gz", "--speed", "20", "--format", "json"];
    let url = stub.url("/v2/");
    let run = |more: &[&str]| {
        let said = load(&sandbox, &[&[url.as_str()], &replay[..], more].concat());
        let (left_out, rest) = said.stderr.split_once('\n').expect("a line");
        assert_eq!(left_out, "left out of the log: 1 with a method other than GET and HEAD");
        assert!(
            [0, 98].contains(&said.code)
                && rest.lines().all(|line| line.starts_with("INVALID: the generator ")),
            "{said:?}"
        );
        (json(&said), stub.all())
    };
    let (report, asked) = run(&[]);
    // 59 gaps of 50 ms, twenty times as fast.
    assert_eq!((&report["requests"], &report["duration"]), (&60.into(), &147_500_000.into()));
    assert_eq!(report["stockade"]["schedule"], "60 replayed in 148ms");
    let replayed: BTreeSet<_> = paths(&asked).into_iter().map(str::to_owned).collect();
    assert_eq!((asked.len(), replayed.len(), replayed.contains("/v2/59?a")), (60, 60, true));
    assert!(asked.iter().all(|asked| asked.header("user-agent")[0].starts_with("stockade/")), "{asked:?}");

    let share = |seed: &str| {
        let (report, asked) = run(&["--share", "0.5", "--seed", seed]);
        let paths: BTreeSet<_> = asked.iter().map(|asked| asked.path().to_owned()).collect();
        assert_eq!(report["requests"], paths.len());
        paths
    };
    let some = share("1");
    assert!((15..45).contains(&some.len()) && some.is_subset(&replayed), "{some:?}");
    assert_eq!(some, share("1"));
    assert_ne!(some, share("2"));
    // The first second's, and no more.
    let (report, _) = run(&["--duration", "50ms"]);
    assert_eq!(report["requests"], 20);
}

#[test]
fn keys_are_drawn_and_caches_missed() {
    let (sandbox, stub) = well();
    let run = |url: &str, more: &[&str]| {
        measure(&sandbox, &[&[url, "-c", "1", "-n", "100"], more].concat());
        stub.all().iter().map(|asked| asked.path().to_owned()).collect::<Vec<_>>()
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
fn headers_methods_and_bodies_are_sent_as_they_were_typed() {
    let (sandbox, stub) = well();
    sandbox.file("body.txt", "a body");
    let url = stub.url("/a");
    let asked = |more: &[&str]| {
        measure(&sandbox, &[&[url.as_str(), "-c", "1", "-n", "1"], more].concat());
        stub.next()
    };
    let plain = asked(&[]);
    assert!(plain.head.starts_with("GET /a HTTP/1.1\r\n"), "{plain:?}");
    assert_eq!(
        (plain.header("host"), plain.header("accept-encoding")),
        (vec![stub.address.to_string().as_str()], vec!["gzip"])
    );
    let headers = asked(&[
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
    let posted = asked(&["--body", "body.txt"]);
    assert!(posted.head.starts_with("POST ") && posted.body == "a body", "{posted:?}");
    assert_eq!(posted.header("content-length"), ["6"]);
    let put = asked(&["--body", "body.txt", "--method", "PUT", "--no-keepalive"]);
    assert!(put.head.starts_with("PUT ") && put.header("connection") == ["close"], "{put:?}");
    assert!(asked(&["-X", "DELETE"]).head.starts_with("DELETE "));

    let piped = ["load", &url, "-c", "1", "-n", "1", "--body", "-"];
    assert_done(&Running::start(&sandbox, &piped, "from a pipe").ended());
    assert_eq!(stub.next().body, "from a pipe");
}

#[test]
fn what_caches_say_is_counted() {
    let sandbox = Sandbox::new();
    let stub = Stub::new(|request| {
        let said = match request.path() {
            "/0" => "Cache-Status: stockade; fwd=uri-miss; detail=miss\r\n",
            "/1" => "X-Cache: HIT\r\n",
            _ => "Age: 7\r\n",
        };
        super::stub::answer("200 OK", said, "")
    });
    let report = measure(&sandbox, &[&stub.url("/{key}"), "--keys", "scan:3", "-c", "1", "-n", "9"]);
    let outcomes = &report["stockade"]["outcomes"];
    assert_eq!((&outcomes["hit"], &outcomes["miss"]), (&6.into(), &3.into()), "{report}");
    let hits = report["stockade"]["hit_ratio"].as_f64().unwrap();
    assert!((hits * 9.0 - 6.0).abs() < 1e-9, "{hits}");
}
