//! `--prometheus` and `--otlp`: figures of a run or a load for other systems.

use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    load::stub::{Request, Stub, answer, ok},
    running::{PATIENCE, Running, get},
    support::{ProgramOutput, Sandbox},
};

/// Two arms in virtual time.
const EXPERIMENT: &str = r#"
title = "A source"
repeat = 2
[target]
kind = "engine"
[origin]
source = "simulated:50"
latency = "20ms"
[cache]
ttl = "1s"
[load]
rate = "100/s"
duration = "3s"
[[arm]]
name = "none"
cache.strategy = "none"
[[arm]]
name = "stampede"
cache.strategy = "stampede"
[[hypothesis]]
text = "no request fails"
expect = ["success == 1"]
"#;

fn run(sandbox: &Sandbox, arguments: &[&str]) -> ProgramOutput {
    let file = sandbox.file("source.toml", EXPERIMENT);
    let mut command = sandbox.command();
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b").args(["run", &file]).args(arguments);
    ProgramOutput::of(command.output().expect("the program starts"))
}

/// The metrics of an export, after a check of its form.
fn metrics(request: &Request) -> Vec<Value> {
    assert!(request.head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{}", request.head);
    assert!(request.head.contains("\r\ncontent-type: application/json\r\n"), "{}", request.head);
    let export: Value = serde_json::from_str(&request.body).expect("JSON");
    let resource = &export["resourceMetrics"][0];
    let attributes = resource["resource"]["attributes"].as_array().expect("attributes");
    let named = |name: &str| attributes.iter().find(|attribute| attribute["key"] == name).is_some();
    for name in ["service.name", "service.version", "service.instance.id", "host.arch"] {
        assert!(named(name), "{name}: {attributes:?}");
    }
    resource["scopeMetrics"][0]["metrics"].as_array().expect("metrics").clone()
}

#[track_caller]
fn metric<'a>(metrics: &'a [Value], name: &str) -> &'a Value {
    let found = metrics.iter().find(|metric| metric["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {metrics:?}"))
}

fn attribute<'a>(point: &'a Value, name: &str) -> &'a Value {
    let attributes = point["attributes"].as_array().expect("attributes");
    attributes.iter().find(|attribute| attribute["key"] == name).map_or(&Value::Null, |found| &found["value"])
}

#[test]
fn run_sends_its_figures_at_the_end() {
    let collector = Stub::new(|_| ok("{}"));
    let output = run(&Sandbox::new(), &["--out", "record", "--otlp", &collector.url("")]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(!output.stderr.contains("warning"), "{}", output.stderr);
    let request = collector.next();
    assert!(request.head.contains("\r\napi-key: a b\r\n"), "{}", request.head);
    let metrics = metrics(&request);
    let requests = metric(&metrics, "stockade.load.requests");
    assert_eq!((&requests["unit"], &requests["sum"]["isMonotonic"]), (&"{request}".into(), &true.into()));
    assert_eq!(requests["sum"]["aggregationTemporality"], 2);
    let points = requests["sum"]["dataPoints"].as_array().expect("points");
    assert_eq!(points.len(), 4);
    for point in points {
        assert_eq!(point["asInt"], "300");
        assert_eq!(attribute(point, "test"), &Value::Null);
        assert!(
            ["none", "stampede"].contains(&attribute(point, "arm")["stringValue"].as_str().expect("an arm"))
        );
        assert!(["1", "2"].contains(&attribute(point, "repeat")["intValue"].as_str().expect("a repeat")));
        let [start, now] = ["startTimeUnixNano", "timeUnixNano"]
            .map(|name| point[name].as_str().expect("text").parse::<u64>().expect("nanoseconds"));
        assert!(start < now && start > 1_700_000_000_000_000_000, "{point}");
    }
    let times = metric(&metrics, "stockade.load.response_time");
    assert_eq!(times["unit"], "s");
    for point in times["histogram"]["dataPoints"].as_array().expect("points") {
        let (counts, bounds) = (&point["bucketCounts"], &point["explicitBounds"]);
        let counts = counts.as_array().expect("counts").iter().map(|count| count.as_str().expect("text"));
        let counts: Vec<u64> = counts.map(|count| count.parse().expect("a count")).collect();
        assert_eq!(counts.len(), bounds.as_array().expect("bounds").len() + 1);
        assert_eq!(
            (counts.iter().sum::<u64>().to_string().as_str(), &point["count"]),
            ("300", &"300".into())
        );
    }
    let verdicts = metric(&metrics, "stockade.run.hypotheses")["gauge"]["dataPoints"][0].clone();
    assert_eq!(verdicts["asInt"], "2");
}

#[test]
fn load_sends_metrics_with_the_names_of_the_conventions() {
    let (server, collector) = (Stub::new(|_| ok("hello")), Stub::new(|_| ok("{}")));
    let sandbox = Sandbox::new();
    let load = ["load", &server.url("/"), "-n", "20", "-c", "2", "--otlp", &collector.url("/v1/metrics")];
    let output = sandbox.stockade(&load);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let metrics = metrics(&collector.next());
    let duration = metric(&metrics, "http.client.request.duration");
    assert_eq!(
        (&duration["unit"], &duration["histogram"]["dataPoints"][0]["count"]),
        (&"s".into(), &"20".into())
    );
    let responses = &metric(&metrics, "stockade.load.responses")["sum"]["dataPoints"][0];
    assert_eq!(attribute(responses, "http.response.status_code")["intValue"], "200");
    assert_eq!(metric(&metrics, "process.cpu.time")["sum"]["isMonotonic"], true);
    assert_eq!(metric(&metrics, "process.memory.usage")["sum"]["isMonotonic"], false);
}

#[test]
fn collector_with_tls_is_checked() {
    let sandbox = Sandbox::new();
    let recipe = r#"{"body": "{}", "stages": [{"at": 0}]}"#;
    let origin = Running::origin(&sandbox, &["-", "--listen", "0", "--admin", "0", "--tls"], recipe);
    let collector = format!("https://{}", origin.listens("https"));
    let admin = origin.takes_recipes("http");
    let certificate = get(admin, "/_admin/certificate");
    let ca = sandbox.file("ca.pem", certificate.split_once("\r\n\r\n").expect("a body").1);
    let experiment = sandbox.file("source.toml", EXPERIMENT);
    for (trust, is_sent) in [(ca.as_str(), true), ("", false)] {
        let mut command = sandbox.command();
        command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", trust).args(["run", &experiment, "--otlp", &collector]);
        let output = ProgramOutput::of(command.output().expect("the program starts"));
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert_eq!(output.stderr.contains(": TLS failed: "), !is_sent, "{}", output.stderr);
        assert_eq!(output.stderr.contains("warning"), !is_sent, "{}", output.stderr);
    }
    let mut command = sandbox.command();
    command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", "gone.pem").args([
        "run",
        &experiment,
        "--otlp",
        &collector,
    ]);
    let refused = ProgramOutput::of(command.output().expect("the program starts"));
    refused.assert_refused(2, &["gone.pem", "name a file of certificates in PEM"]);
}

/// The warning has the reason, and the run its own exit code.
#[test]
fn collector_without_an_answer_fails_nothing() {
    let endless = { answer("200 OK", "", &"x".repeat(100_000)) };
    let later = Stub::new(|_| answer("503 Service Unavailable", "Retry-After: 86400\r\n", "busy\u{1b}[2J"));
    let elsewhere = Stub::new(|_| answer("302 Found", "Location: http://127.0.0.1:1/\r\n", ""));
    let large = Stub::new(move |_| endless.clone());
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = format!("http://{}", silent.local_addr().expect("its address"));
    for (url, reason) in [
        ("http://127.0.0.1:1", "Connection refused"),
        (&later.url(""), "it answered 503 Service Unavailable: busy\u{fffd}[2J;"),
        (&elsewhere.url(""), "redirects are not followed, write the last URL"),
        (&large.url(""), "its answer is too long"),
        (&silent, "no answer within 5 s"),
    ] {
        let output = run(&Sandbox::new(), &["--out", "record", "--otlp", url]);
        assert_eq!(output.code, 0, "{url}: {}", output.stderr);
        let warnings: Vec<_> = output.stderr.lines().filter(|line| line.starts_with("warning")).collect();
        let [warning] = warnings[..] else { panic!("{}", output.stderr) };
        assert!(warning.contains(reason) && warning.contains("Is a collector there"), "{warning}");
    }
}

#[test]
fn figures_are_served_while_the_load_continues() {
    let server = Stub::new(|_| ok("hello"));
    let sandbox = Sandbox::new();
    let url = server.url("/");
    let load = ["load", &url, "--rate", "50/s", "-d", "1m", "--prometheus", "0"];
    let load = Running::start(&sandbox, &load, "");
    let line = load.stderr_line();
    let address: SocketAddr = line
        .strip_prefix("metrics: http://")
        .and_then(|line| line.strip_suffix("/metrics\n")?.parse().ok())
        .unwrap_or_else(|| panic!("{line}"));
    assert!(address.ip().is_loopback());
    // More idle connections than it serves at once: each of them ends after seconds.
    let idle: Vec<_> = (0..20).map(|_| TcpStream::connect_timeout(&address, PATIENCE)).collect();
    let page = loop {
        let page = get(address, "/metrics");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        if page.contains("stockade_load_requests_total ") {
            break page;
        }
    };
    drop(idle);
    assert!(page.contains("\nhttp_client_request_duration_seconds_bucket{le=\"+Inf\"} "), "{page}");
    assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
    assert_eq!(load.stopped_by(Signal::INT).code, 98);
}

#[test]
fn wrong_addresses_are_refused_before_the_run() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("its address").to_string();
    let refused = run(&sandbox, &["--out", "record", "--prometheus", &taken]);
    refused.assert_refused(1, &["cannot serve metrics at", &taken, "choose another address"]);
    assert!(!sandbox.path().join("record").exists());
    run(&sandbox, &["--prometheus", "x"]).assert_refused(2, &["write a port or an address"]);
    run(&sandbox, &["--otlp", "localhost:4318"]).assert_refused(2, &["write the URL of a collector"]);
    let mut command = sandbox.command();
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "hush").args([
        "load",
        "http://127.0.0.1:1",
        "--otlp",
        "http://a",
    ]);
    let output = ProgramOutput::of(command.output().expect("the program starts"));
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("OTEL_EXPORTER_OTLP_HEADERS") && !output.stderr.contains("hush"));
}

#[test]
fn report_of_a_record_is_openmetrics() {
    let sandbox = Sandbox::new();
    assert_eq!(run(&sandbox, &["--out", "record"]).code, 0);
    let text = sandbox.stockade(&["report", "record", "--format", "openmetrics"]).stdout;
    for line in [
        "# TYPE stockade_load_requests counter\n",
        "stockade_load_requests_total{arm=\"none\",repeat=\"1\"} 300\n",
        "stockade_load_response_time_seconds_bucket{arm=\"none\",repeat=\"1\",le=\"+Inf\"} 300\n",
        "# UNIT stockade_load_response_time_seconds seconds\n",
        "stockade_run_hypotheses{verdict=\"supported\"} 2\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"), "{text}");
}
