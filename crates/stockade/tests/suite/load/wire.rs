//! The connections of a load: TLS, HTTP/2, sockets, redirects, retries and failures.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use serde_json::{Value, json};

use super::{
    Origin, load, measure,
    stub::{Stub, answer, ok},
};
use stockade_services::NginxServer;

use crate::support::Sandbox;

const WELL: &str = r#"{"body": "all is well", "stages": [{"at": 0, "latency": "10ms"}]}"#;
/// The output of `printf 'all is well' | sha256sum`.
const SHA256: &str = "f70579cce37a17bd1c4c4061b0beff0fbf58853a2f0c72a14f93c8f30c6b7cec";

/// The status codes and failures of a report.
fn ends(report: &Value) -> (Value, Value) {
    (report["status_codes"].clone(), report["stockade"]["failures"].clone())
}

#[test]
fn tls_trust_follows_the_options() {
    let origin = Origin::encrypted(WELL);
    let ca = origin.sandbox.file("ca.pem", &origin.page("certificate"));
    let some = ["-c", "2", "-n", "4"];
    let (answered, refused) = ((json!({"200": 4}), json!({})), (json!({"0": 4}), json!({"tls": 4})));
    for (trust, end) in [
        (&[][..], &refused),
        (&["--insecure"], &answered),
        (&["--ca", &ca], &answered),
        (&["--ca", &ca, "--http2"], &answered),
        (&["--http2"], &refused),
        (&["--insecure", "--no-keepalive"], &answered),
    ] {
        let report = origin.measure("/", &[&some, trust].concat());
        assert_eq!(&ends(&report), end, "{trust:?}: {report}");
    }
    assert_eq!(origin.count()["total_requests"], 16);
}

/// A stock nginx that asks its clients for a certificate, which is its own.
#[test]
fn client_certificate_is_shown_to_a_server_that_asks_for_one() {
    let settings = ["ssl_verify_client on", "ssl_client_certificate certificate.pem"];
    let nginx = NginxServer::with_tls(&settings).expect("nginx runs");
    std::fs::write(nginx.documents().join("a"), "well").expect("there is room");
    let certificate = nginx.certificate();
    let key = certificate.with_file_name("key.pem");
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().expect("a path"));
    let sandbox = Sandbox::new();
    let url = format!("{}/a", nginx.url().trim_end_matches('/'));
    let some = [&url, "--ca", certificate, "-c", "1", "-n", "4"];
    let measured = |more: &[&str]| measure(&sandbox, &[&some[..], more].concat())["status_codes"].clone();
    let shown = ["--cert", certificate, "--key", key];
    assert_eq!(measured(&shown), json!({"200": 4}));
    // "No required SSL certificate was sent".
    let output = load(&sandbox, &[&some[..], &["--format", "json"]].concat());
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((output.code, &report["status_codes"]), (1, &json!({"400": 4})), "{report}");
    for (cert, key, message) in [
        (
            certificate,
            certificate,
            "certificate.pem: it contains no private key; name a file with the private key of --cert",
        ),
        (key, key, "key.pem: it contains no certificate"),
        (certificate, "absent.pem", "absent.pem: "),
    ] {
        load(&sandbox, &[&some[..], &["--cert", cert, "--key", key]].concat()).assert_refused(2, &[message]);
    }
    load(&sandbox, &[&some[..], &["--cert", certificate]].concat()).assert_refused(2, &["--key <FILE>"]);
}

/// The name and the certificate of `localhost`, at an address that no name server knows.
#[test]
fn connections_follow_rules_of_addresses() {
    let origin = Origin::encrypted(WELL);
    let ca = origin.sandbox.file("ca.pem", &origin.page("certificate"));
    let port = origin.url("").rsplit(':').next().expect("a port").trim_end_matches('/').to_owned();
    let some = ["-c", "1", "-n", "2", "--ca", &ca];
    for (host, flag, rule) in [
        ("localhost", "--resolve", format!("localhost:{port}:127.0.0.1")),
        ("localhost:1", "--connect-to", format!("localhost:1:127.0.0.1:{port}")),
    ] {
        let url =
            if host.contains(':') { format!("https://{host}/") } else { format!("https://{host}:{port}/") };
        let report = measure(&origin.sandbox, &[&[url.as_str(), flag, &rule], &some[..]].concat());
        assert_eq!(report["status_codes"], json!({"200": 2}), "{flag} {rule}: {report}");
    }
    for (flag, rule, words) in [
        ("--resolve", "localhost:80", "write HOST:PORT:ADDR[,ADDR], such as `www.example:443:127.0.0.1`"),
        ("--connect-to", "localhost", "write HOST1:PORT1:HOST2:PORT2, such as"),
    ] {
        load(&origin.sandbox, &["http://localhost/", flag, rule]).assert_refused(2, &[words]);
    }
}

#[test]
fn certificate_of_another_authority_is_refused() {
    let (origin, other) = (Origin::encrypted(WELL), Origin::encrypted(WELL));
    let ca = origin.sandbox.file("ca.pem", &other.page("certificate"));
    let report = origin.measure("/", &["-c", "1", "-n", "1", "--ca", &ca]);
    assert_eq!(ends(&report), (json!({"0": 1}), json!({"tls": 1})), "{report}");
}

#[test]
fn users_have_one_connection_each_and_rates_open_as_needed() {
    let origin = Origin::new(WELL);
    let connections = |options: &[&str]| {
        let report = origin.measure("/", &[&["-n", "20", "--threads", "1"], options].concat());
        assert_eq!(ends(&report), (json!({"200": 20}), json!({})), "{options:?}");
        report["stockade"]["connections"].as_u64().expect("a count")
    };
    assert_eq!(connections(&["-c", "4"]), 4);
    assert_eq!(connections(&["-c", "4", "--http2"]), 4);
    assert_eq!(connections(&["-c", "4", "--no-keepalive"]), 20);
    // Over HTTP/2 the requests of a rate share a connection.
    assert_eq!(connections(&["--rate", "400/s", "--http2"]), 1);
    assert!(connections(&["--rate", "400/s"]) > 1);
}

#[test]
fn http2_does_not_fall_back_to_http1() {
    let stub = Stub::new(|_| ok("well"));
    let report =
        measure(&Sandbox::new(), &[&stub.url("/"), "-c", "1", "-n", "2", "--http2", "--timeout", "5s"]);
    assert_eq!(
        (&report["status_codes"]["0"], &report["stockade"]["failed"]),
        (&2.into(), &2.into()),
        "{report}"
    );
}

#[test]
fn unix_socket_takes_the_connections_of_all_urls() {
    let sandbox = Sandbox::new();
    let path = sandbox.path().join("socket");
    let stub = Stub::at(&path, |_| ok("well"));
    let report = measure(&sandbox, &["http://nowhere.invalid/a", "-c", "2", "-n", "6", "--unix", "socket"]);
    assert_eq!(ends(&report), (json!({"200": 6}), json!({})));
    let requests = stub.all();
    assert_eq!(requests.len(), 6);
    assert!(
        requests
            .iter()
            .all(|request| request.path() == "/a" && request.header("host") == ["nowhere.invalid"])
    );

    let report = measure(&sandbox, &["http://nowhere.invalid/a", "-c", "1", "-n", "2", "--unix", "none"]);
    assert_eq!(ends(&report), (json!({"0": 2}), json!({"unreachable": 2})));
}

/// Redirects `/1` to `/2` and `/2` to `/3`, which answers 200.
fn redirecting_server() -> Stub {
    Stub::new(|request| match request.path() {
        "/1" => answer("302 Found", "Location: /2\r\n", "over there"),
        "/2" => answer("307 Temporary Redirect", "Location: 3\r\n", ""),
        _ => ok("all is well"),
    })
}

#[test]
fn redirects_are_followed_up_to_the_limit() {
    for (most, status, failures, requests) in [
        ("0", "302", json!({}), 1),
        ("1", "0", json!({"redirects": 1}), 2),
        ("2", "200", json!({}), 3),
        ("10", "200", json!({}), 3),
    ] {
        let stub = redirecting_server();
        let report = measure(&Sandbox::new(), &[&stub.url("/1"), "-c", "1", "-n", "1", "--redirects", most]);
        let success = u64::from(failures == json!({}));
        assert_eq!(ends(&report), (json!({status: 1}), failures), "{most}");
        assert_eq!((&report["success"], stub.all().len()), (&success.into(), requests), "{most}");
    }
}

#[test]
fn digest_is_of_the_final_response_and_credentials_stay_with_their_host() {
    let stub = redirecting_server();
    let url = stub.url("/1");
    let follow = ["-c", "1", "-n", "1", "--redirects", "2", "--sha256", SHA256];
    let report = measure(&Sandbox::new(), &[&[url.as_str()], &follow[..]].concat());
    assert_eq!(ends(&report), (json!({"200": 1}), json!({})), "{report}");

    let other = Stub::new(|_| ok("all is well"));
    let location = format!("Location: {}\r\n", other.url("/there"));
    let stub = Stub::new(move |_| answer("302 Found", &location, ""));
    let secret = [
        "-c",
        "1",
        "-n",
        "1",
        "--redirects",
        "2",
        "-H",
        "Authorization: Basic c2VzYW1l",
        "-H",
        "X-Team: web",
    ];
    measure(&Sandbox::new(), &[&[stub.url("/").as_str()], &secret[..]].concat());
    assert_eq!(stub.next().header("authorization"), ["Basic c2VzYW1l"]);
    let there = other.next();
    assert_eq!((there.path(), there.header("x-team")), ("/there", vec!["web"]));
    assert!(there.header("authorization").is_empty(), "{there:?}");
}

#[test]
fn failures_are_retried_and_counted() {
    let times = AtomicU32::new(0);
    let stub = Stub::new(move |_| match times.fetch_add(1, SeqCst) {
        0 | 1 => answer("503 Service Unavailable", "", "later"),
        _ => ok("well"),
    });
    let once = ["-c", "1", "-n", "3", "--retries", "2", "--retry-backoff", "1ms"];
    let report = measure(&Sandbox::new(), &[&[stub.url("/").as_str()], &once[..]].concat());
    assert_eq!((ends(&report), &report["stockade"]["retries"]), ((json!({"200": 3}), json!({})), &2.into()));
    assert_eq!(stub.all().len(), 5);
}

#[test]
fn retry_budget_bounds_retries() {
    // A budget of 0.1 has 10 retries at the start and gains 0.1 with each request; a budget of 0 has none.
    for (budget, expected) in [("0.1", 14..=15), ("0", 0..=0)] {
        let stub = Stub::new(|_| answer("503 Service Unavailable", "", ""));
        let many =
            ["-c", "2", "-n", "50", "--retries", "9", "--retry-backoff", "0", "--retry-budget", budget];
        let report = measure(&Sandbox::new(), &[&[stub.url("/").as_str()], &many[..]].concat());
        assert_eq!(report["status_codes"], json!({"503": 50}));
        let retries = report["stockade"]["retries"].as_u64().unwrap();
        assert!(expected.contains(&retries) && stub.all().len() as u64 == 50 + retries, "{report}");
    }
}

#[test]
fn body_digests_are_checked_after_decoding() {
    let packed = r#"{"body": "all is well", "headers": {"content-encoding": "gzip"}, "stages": [{"at": 0, "latency": "10ms"}]}"#;
    let some = ["-c", "1", "-n", "2", "--sha256"];
    for recipe in [WELL, packed] {
        let origin = Origin::new(recipe);
        let report = origin.measure("/", &[&some[..], &[SHA256]].concat());
        assert_eq!(ends(&report), (json!({"200": 2}), json!({})), "{recipe}");
        assert_eq!(report["bytes_in"]["total"], 22, "{recipe}");
        let wire_bytes = report["stockade"]["wire_bytes_in"]["total"].as_u64().unwrap();
        assert_eq!(wire_bytes == 22, recipe == WELL, "{wire_bytes}");
        let report = origin.measure("/", &[&some[..], &[&SHA256.replace('0', "1")]].concat());
        assert_eq!(ends(&report), (json!({"0": 2}), json!({"digest": 2})), "{recipe}");
    }
}

#[test]
fn silent_server_times_out() {
    let recipe = r#"{"body": "b", "stages": [{"at": 0, "fault": "silent"}]}"#;
    let origin = Origin::new(recipe);
    for http in [&[][..], &["--http2"]] {
        let report = origin.measure("/", &[&["-c", "2", "-n", "4", "--timeout", "50ms"], http].concat());
        assert_eq!(ends(&report), (json!({"0": 4}), json!({"timeout": 4})), "{http:?}");
        let [least, most] = ["min", "max"].map(|key| report["latencies"][key].as_u64().unwrap());
        assert!(least >= 50_000_000 && most < 5_000_000_000, "{report}");
    }
    // At the end, requests in flight are awaited for `--drain`.
    let report = origin.measure("/", &["--burst", "3", "--timeout", "1m", "--drain", "50ms"]);
    assert_eq!(ends(&report), (json!({"0": 3}), json!({"cut_off": 3})));
    assert_eq!(report["stockade"]["in_flight_at_end"], 3);
}

#[test]
fn refused_connections_and_unknown_hosts_have_different_classes() {
    let sandbox = Sandbox::new();
    // A label of a name has at most 63 letters (RFC 1035, 2.3.4), so no DNS server receives this one.
    let host = format!("http://{}.invalid/", "a".repeat(64));
    for (url, class) in [("http://127.0.0.1:1/", "refused"), (host.as_str(), "dns")] {
        let report = measure(&sandbox, &[url, "-c", "1", "-n", "2"]);
        assert_eq!(ends(&report), (json!({"0": 2}), json!({class: 2})), "{report}");
        let output = load(&sandbox, &[url, "-c", "1", "-n", "1"]);
        assert!(output.stdout.contains("answers     none: 1"), "{output:?}");
    }
}

#[test]
fn server_faults_have_their_own_classes() {
    for (answer, class) in [
        ("SSH-2.0-OpenSSH_9.6\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nplain", "encoding"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n1", "malformed"),
    ] {
        let stub = Stub::new(|_| answer.as_bytes().to_vec());
        let report = measure(&Sandbox::new(), &[&stub.url("/"), "-c", "1", "-n", "2"]);
        assert_eq!(ends(&report), (json!({"0": 2}), json!({class: 2})), "{answer}");
    }
    let stub = Stub::new(|_| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(300_000)).into_bytes());
    let report = measure(&Sandbox::new(), &[&stub.url("/"), "-c", "1", "-n", "1"]);
    assert_eq!(ends(&report), (json!({"0": 1}), json!({"head_too_large": 1})));
}
