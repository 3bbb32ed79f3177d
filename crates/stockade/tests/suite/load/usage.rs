//! Invalid arguments: the message states the remedy, and no request is sent.

use super::{FORMATS, load};
use crate::support::Sandbox;

const URL: &str = "http://127.0.0.1:1/";

#[track_caller]
fn refused(sandbox: &Sandbox, arguments: &[&str], words: &[&str]) {
    let output = load(sandbox, arguments);
    output.assert_refused(2, words);
    // One line; the argument parser's own errors add how to get help.
    let is_short = output.stderr.lines().count() == 1 || output.stderr.contains("try '--help'");
    assert!(output.stderr.starts_with("error: ") && is_short, "{arguments:?}: {}", output.stderr);
}

#[test]
fn target_and_amount_are_given_exactly_once() {
    let sandbox = Sandbox::new();
    sandbox.file("targets.txt", "GET http://127.0.0.1:1/\n");
    for (arguments, words) in [
        (&[][..], &["no URL: write one, such as http://localhost:8080/, or --targets FILE"][..]),
        (&["--rate", "5/s"], &["no URL: write one"]),
        (&[URL, "--rate", "5/s", "-c", "4"], &["'--rate <N/s>' cannot be used with '--connections <N>'"]),
        (&[URL, "--rate", "5/s", "--burst", "4"], &["'--rate <N/s>' cannot be used with '--burst <N>'"]),
        (&[URL, "--rate", "5/s", "--rate", "6/s"], &["'--rate <N/s>' cannot be used multiple times"]),
        (
            &[URL, "--rate", "5/s", "--capacity", "p99 < 5ms"],
            &["'--rate <N/s>' cannot be used with '--capacity <EXPR>'"],
        ),
        (
            &[URL, "--expect", "failed == 0", "--capacity", "p99 < 5ms"],
            &["'--expect <EXPR>' cannot be used with '--capacity <EXPR>'"],
        ),
        (&[URL, URL, "-c", "1"], &["unexpected argument"]),
        (&[URL, "--targets", "targets.txt", "-c", "1"], &["one URL or a file of them: remove one"]),
        (&["--targets", "targets.txt", "--urls", "urls.txt", "-c", "1"], &["cannot be used with"]),
        (&["--targets", "targets.txt", "-X", "PUT", "-c", "1"], &["a file of targets has its own"]),
        (&["--replay", "access.log"], &["write the URL of the server, such as http://localhost:8080"]),
        (&[URL, "--rate", "5/s", "--random"], &["--random needs --targets or --urls"]),
        (&[URL, "--speed", "2", "-c", "1"], &["--speed, --share, --input and --replay-hosts need --replay"]),
        (&[URL, "--replay-hosts", "-c", "1"], &["--input and --replay-hosts need --replay"]),
        (&[URL, "--replay", "keys.txt", "--input", "clff"], &["did you mean `clf`?"]),
        (&[URL, "--rate", "5/s", "--think", "5ms"], &["--think needs --connections"]),
        (&[URL, "--rate", "5/s", "--to", "9/s"], &["--precision need --capacity"]),
        (&[URL, "--burst", "5", "-d", "1s"], &["a burst has its own duration: remove --duration"]),
        (
            &[URL, "--burst", "5", "--warmup", "1s"],
            &["--warmup needs a load that starts with a rate or connections"],
        ),
        (&[URL, "-c", "1", "--arrivals", "poisson"], &["--arrivals needs --rate or --capacity"]),
        (&[URL, "-c", "1", "--max-in-flight", "5"], &["--max-in-flight needs a rate"]),
        (&[URL, "--max-in-flight", "5"], &["--max-in-flight needs a rate"]),
        (
            &[URL, "--replay", "access.log", "--speed", "2", "--rate", "5/s"],
            &["--speed is relative to the times of the log: remove it, or --rate, --connections or --burst"],
        ),
        (&[URL, "--replay", "access.log", "--capacity", "p99 < 5ms"], &["a log has its own rate"]),
        (&[URL, "-c", "1", "--http2", "--no-keepalive"], &["cannot be used with"]),
        (&[URL, "-c", "1", "--insecure", "--ca", "ca.pem"], &["cannot be used with"]),
        (&[URL, "-c", "1", "--timeot", "1s"], &["a similar argument exists: '--timeout'"]),
    ] {
        refused(&sandbox, arguments, words);
    }
}

#[test]
fn invalid_values_name_the_remedy() {
    let sandbox = Sandbox::new();
    for (option, value, words) in [
        ("--rate", "100", "write `100/s` or `100/m`"),
        ("--rate", "0/s", "write at least 1 request"),
        ("--rate", "fast", "write requests per period, such as `425/s`, `1000/m` or `5/100ms`"),
        ("--duration", "10", "write `10ms` or `10s`"),
        ("--duration", "10sec", "`sec` is not a unit of time: use ns, us, ms, s, m, h or d"),
        ("--timeout", "30", "write `30ms` or `30s`"),
        ("--warmup", "5", "write `5ms` or `5s`"),
        ("--drain", "5", "write `5ms` or `5s`"),
        ("--think", "5", "write `5ms` or `5s`"),
        ("--retry-backoff", "5", "write `5ms` or `5s`"),
        ("--retry-budget", "2", "write a number from 0 to 1, such as 0.1"),
        ("--arrivals", "poison", "write constant or poisson"),
        ("--keys", "zipf", "write `zipf:10000`"),
        ("--keys", "gauss:5", "use one of: zipf, uniform, scan"),
        ("--header", "nocolon", "write a name, a colon and a value, such as `X-Team: web`"),
        ("--header", "a b: c", "`a b` is not a name of a header"),
        ("--header", "Content-Length: 5", "content-length is for the connection to say"),
        ("--sha256", "abc", "write 64 hex digits, as sha256sum prints them"),
        ("--out", "all.txt", "FILE.json or FILE.csv"),
        (
            "--format",
            "xml",
            "[possible values: text, json, vegeta, vegeta-hist, hdrplot, hgrm, hlog, siege, siege-json, openmetrics, csv]",
        ),
        ("--format", "jsn", "a similar value exists: 'json'"),
        ("--format", "vegeta-hits", "a similar value exists: 'vegeta-hist'"),
        ("--buckets", "[1]", "write `1ms` or `1s`"),
        ("--buckets", "[2ms,1ms]", "do not ascend"),
        ("--capacity", "p99 < 50", "write `ms` or `s` behind it"),
        ("--capacity", "p99 50ms", "a comparison is missing: write <=, <, >=, >, == or !="),
        ("--expect", "p99 < 50", "write `ms` or `s` behind it"),
        ("--expect", "p99 < 50ms and", "a metric or a number is missing here"),
        ("--expect", "faild == 0", "did you mean `failed`?"),
        ("--capacity", "p101 < 5ms", "write one above 0 and at most 100, such as p99.9"),
        ("--capacity", "sucess > 0.9", "did you mean `success`?"),
        ("--connections", "0", "write how many, 1 or more, such as 64"),
        ("--max-in-flight", "0", "write how many, 1 or more, such as 64"),
        ("--burst", "x", "write how many, 1 or more, such as 1000"),
        ("--requests", "0", "write how many, 1 or more, such as 1000"),
        ("--method", "get", "write GET"),
        ("--method", "a b", "write a method, such as GET, POST or PURGE"),
        ("--precision", "x", "write a number above 0 and below 1, such as 0.05 for 5 %"),
        ("--threads", "30S", "For how long is `-d 30s`"),
        ("--redirects", "51", "write a number from 0 to 50"),
    ] {
        refused(&sandbox, &[URL, &format!("{option}={value}")], &[option, words]);
    }
}

#[test]
fn impossible_loads_are_refused_before_any_request() {
    let sandbox = Sandbox::new();
    sandbox.file("no.pem", "no certificate");
    sandbox.file("empty.txt", "# none\n");
    sandbox.file("keys.txt", "/a\n");
    for (arguments, words) in [
        (&[URL, "--rate", "5/s", "-d", "0"][..], &["the load has no requests: write a longer time"][..]),
        (&[URL, "--rate", "5/s", "-d", "60d"], &["longer than 30 days: write a shorter time"]),
        (&[URL, "-c", "1", "--timeout", "0"], &["--timeout", "a timeout of zero fails every request"]),
        (
            &[URL, "-c", "1", "--keys", "scan:5"],
            &["write `{key}` into a path or a query, or remove `--keys scan:5`"],
        ),
        (&["http://a/{key}", "-c", "1"], &["add some, as in `--keys zipf:10000`"]),
        (&["http://a/{key:x}", "--keys", "scan:5", "-c", "1"], &["write `{key}`, or `{key:08}`"]),
        (&[URL, "-c", "1", "--ca", "absent.pem"], &["absent.pem: ", "No such file"]),
        (
            &[URL, "-c", "1", "--ca", "no.pem"],
            &["no.pem: it contains no certificate; name a file of certificates in PEM"],
        ),
        (&[URL, "-c", "1", "--body", "absent"], &["cannot read absent: No such file"]),
        (&[URL, "-c", "1", "--out", "absent/all.json"], &["cannot write absent/all.json: No such file"]),
        (&["--targets", "absent.txt", "-c", "1"], &["absent.txt: cannot read it: No such file"]),
        (
            &["--targets", "empty.txt", "-c", "1"],
            &["empty.txt: there is no target in it: write one such as `GET"],
        ),
        (
            &["--urls", "empty.txt", "-c", "1"],
            &["empty.txt: there is no target in it: write one URL per line"],
        ),
        (&[URL, "--replay", "keys.txt", "--input", "keys"], &["the log has no times", "by a rate"]),
        (&[URL, "--replay", "empty.txt"], &["empty.txt: its format cannot be told"]),
        (&[URL, "--capacity", "p99 < 5ms", "--from", "9/s", "--to", "5/s"], &["write the lower one first"]),
        (&[URL, "--capacity", "p99 < 5ms", "--precision", "2"], &["such as 0.05 for 5 %"]),
        (
            &[URL, "--capacity", "p99 < 5ms", "--format", "siege"],
            &["--capacity has --format text or json, not siege"],
        ),
        (&[URL, "--capacity", "p99 < 5ms", "--out", "all.json"], &["remove --out"]),
        (&[URL, "-c", "1000000"], &["1000000 connections need as many"]),
    ] {
        refused(&sandbox, arguments, words);
    }
}

#[test]
fn url_is_absolute_and_has_no_password() {
    let sandbox = Sandbox::new();
    for (url, words) in [
        ("localhost:8080/a", "write `http://localhost:8080/a`"),
        ("//localhost/a", "write `http://localhost/a`"),
        ("http:/localhost/a", "write `http://localhost/a`"),
        ("ftp://localhost/", "write `http://` or `https://` before the host"),
        ("http:///a", "write one before the path, as in `http://localhost:8080/`"),
        ("http://:80/", "write one before the path"),
        ("http://localhost:0/", "write one from 1 to 65535, or remove the `:`"),
        ("http://localhost:99999/", "write one from 1 to 65535"),
        ("http://localhost/a b", "write `%20`"),
        ("http://ada:sesame@localhost/", "send a header `Authorization: Basic ...`"),
    ] {
        let output = load(&sandbox, &[url, "--rate", "5/s"]);
        output.assert_refused(2, &[words]);
        assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
    }
    // The value of a header is never printed.
    let output = load(&sandbox, &[URL, "-c", "1", "-H", "Authorization\u{1}: sesame"]);
    assert_eq!(output.code, 2);
    assert!(!output.stdout.contains("sesame"));
}

#[test]
fn help_lists_every_format() {
    let output = load(&Sandbox::new(), &["--help"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for format in FORMATS {
        assert!(output.stdout.contains(&format!("\n  {format} ")), "{format}: {}", output.stdout);
    }
}
