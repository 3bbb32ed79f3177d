//! `run --ui`, the page of a run while it goes on, and `ui`, the pages of records.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    browser::Browser,
    running::{PATIENCE, Running},
    support::Sandbox,
};

/// Two arms for two seconds each, over HTTP.
const EXPERIMENT: &str = r#"
title = "Two <arms>"
[target]
kind = "proxy"
[origin]
recipe = [{ route = "/*", random_content = "1kb", headers = { cache-control = "public, max-age=1" }, stages = [{ at = 0 }, { at = "1s", latency = "20ms" }] }]
[load]
rate = "50/s"
duration = "2s"
path = "/page"
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

/// A run whose page has an address.
fn start(sandbox: &Sandbox, address: &str) -> (Running, SocketAddr, String) {
    start_of(EXPERIMENT, sandbox, address)
}

fn start_of(experiment: &str, sandbox: &Sandbox, address: &str) -> (Running, SocketAddr, String) {
    let file = sandbox.file("two.toml", experiment);
    let run = Running::start(sandbox, &["run", &file, "--out", "record", "--ui", address], "");
    let line = run.stderr_line();
    let url = line.strip_prefix("page: http://").expect("the URL of the page").trim_end();
    let (address, path) = url.split_once('/').expect("a path");
    (run, address.parse().expect("an address"), format!("/{path}"))
}

/// Sends a request, and returns the head of the response and what follows.
fn request(address: SocketAddr, host: &str, method: &str, path: &str) -> (String, BufReader<TcpStream>) {
    let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
    tcp.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    write!(tcp, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("a request is sent");
    let (mut head, mut response) = (String::new(), BufReader::new(tcp));
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(response.read_line(&mut head).expect("a head"), 0, "{head}");
    }
    (head, response)
}

fn body(address: SocketAddr, path: &str) -> String {
    let (_, mut response) = request(address, "localhost", "GET", path);
    let mut body = String::new();
    response.read_to_string(&mut body).expect("a body");
    body
}

/// The type, number and data of each event up to the first of this type.
fn events_until(response: BufReader<TcpStream>, last: &str) -> Vec<(String, u64, Value)> {
    let mut events = Vec::new();
    let mut number = 0;
    let mut kind = String::new();
    for line in response.lines() {
        let line = line.expect("a line");
        match line.split_once(": ") {
            Some(("id", id)) => number = id.parse().expect("a number"),
            Some(("event", event)) => event.clone_into(&mut kind),
            Some(("data", data)) => {
                events.push((kind.clone(), number, serde_json::from_str(data).expect("JSON")));
                if kind == last {
                    return events;
                }
            }
            _ => {}
        }
    }
    panic!("no {last}: {events:?}");
}

#[test]
fn page_follows_a_run_to_its_saved_report() {
    let sandbox = Sandbox::new();
    let (run, address, _) = start(&sandbox, "0");
    let (head, stream) = request(address, &address.to_string(), "GET", "/events?after=0");
    assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
    // A reader that reads nothing.
    let (_, _slow) = request(address, "localhost", "GET", "/events?after=0");
    let events = events_until(stream, "end");
    let numbers: Vec<u64> = events.iter().map(|(_, number, _)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let seconds: Vec<&Value> =
        events.iter().filter(|(kind, ..)| kind == "second").map(|(.., data)| data).collect();
    // A reader that is late at the end of a measurement fetches the page instead.
    let points: Vec<_> = seconds.iter().filter_map(|second| second["point"]["at"].as_u64()).collect();
    assert!((1..=4).contains(&points.len()) && points.iter().all(|at| *at < 2), "{seconds:?}");
    let text = seconds[0]["text"].as_str().expect("text");
    assert!(text.starts_with("measurement ") && text.ends_with("s of 2s"), "{text}");
    let requests = seconds[0]["point"]["ys"][0][0].as_f64().expect("requests");
    assert!((1.0..=100.0).contains(&requests), "{requests}");

    let page = body(address, "/?end=1");
    let run = run.ended();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let saved = fs::read_to_string(sandbox.path().join("record/report.html")).expect("a report");
    assert_eq!(page, saved);
}

#[test]
fn page_is_for_this_machine_or_for_those_with_the_token() {
    let sandbox = Sandbox::new();
    let (run, address, _) = start(&sandbox, "127.0.0.1:0");
    let status = |host: &str, method: &str, path: &str| {
        let (head, _) = request(address, host, method, path);
        assert!(head.contains("content-security-policy: default-src 'none'; "), "{head}");
        head.split(' ').nth(1).expect("a status").parse::<u16>().expect("a status")
    };
    assert_eq!(status("localhost:1", "GET", "/"), 200);
    assert_eq!(status("[::1]:1", "HEAD", "/"), 200);
    assert_eq!(status("attacker.example", "GET", "/"), 403);
    assert_eq!(status("127.0.0.1.attacker.example:80", "GET", "/events"), 403);
    assert_eq!(status("127.0.0.1", "POST", "/"), 405);
    assert_eq!(status("127.0.0.1", "GET", "/record.json"), 404);
    assert_eq!(run.stopped_by(Signal::INT).code, 98);

    let sandbox = Sandbox::new();
    let (run, address, path) = start(&sandbox, "0.0.0.0:0");
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let status = |path: &str| request(address, "any.example", "GET", path).0[9..12].to_owned();
    assert!(path.starts_with("/?token=") && path.len() == 40, "{path}");
    assert_eq!(status(&path), "200");
    assert_eq!(status(&path.replace("/?", "/events?after=0&")), "200");
    assert_eq!(
        (status("/"), status("/?token="), status(&path[..39])),
        ("403".into(), "403".into(), "403".into())
    );
    assert_eq!(run.stopped_by(Signal::INT).code, 98);
}

#[test]
fn address_that_is_taken_is_an_error_before_the_run() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let sandbox = Sandbox::new();
    let file = sandbox.file("two.toml", EXPERIMENT);
    sandbox
        .stockade(&["run", &file, "--ui", &address])
        .assert_refused(1, &["cannot serve the page at", &address, "port 0"]);
}

#[test]
fn page_follows_a_load_to_its_end() {
    let sandbox = Sandbox::new();
    let recipe = r#"{"route": "/*", "random_content": "1kb", "stages": [{"at": 0}]}"#;
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], recipe);
    let url = format!("http://{}/page?key=secret", origin.listens("http"));
    let load = Running::start(
        &sandbox,
        &["load", &url, "--rate", "50/s", "-d", "2s", "--expect", "success == 1", "--ui", "0"],
        "",
    );
    let line = load.stderr_line();
    let address =
        line.trim().strip_prefix("page: http://").and_then(|url| url.strip_suffix('/')).expect("a URL");
    let address: SocketAddr = address.parse().expect("an address");
    let (_, stream) = request(address, "localhost", "GET", "/events?after=0");
    let events = events_until(stream, "end");
    let requests: Vec<f64> =
        events.iter().filter_map(|(.., data)| data["point"]["ys"][0][0].as_f64()).collect();
    assert!(!requests.is_empty() && requests.iter().all(|count| (1.0..=100.0).contains(count)), "{events:?}");
    let page = body(address, "/?end=1");
    assert!(!page.contains("secret") && page.contains("2s at 50/s, 127.0.0.1:"), "{page}");
    assert!(
        page.contains("class=\"badge supported\"") && page.contains("<code>success == 1</code>"),
        "{page}"
    );
    assert_eq!(load.ended().code, 0);
    sandbox
        .stockade(&["load", "http://127.0.0.1:1/", "--ui", "--capacity", "p99 < 50ms"])
        .assert_refused(2, &["--capacity"]);
}

#[test]
fn run_that_fails_ends_with_its_page() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("record")).expect("a folder");
    sandbox.file("record/record.json", "{}");
    let (run, ..) = start(&sandbox, "0");
    let run = run.ended();
    assert_eq!(run.code, 2, "{}", run.stderr);
}

#[test]
fn live_page_shows_the_saved_figures_at_the_end_in_chromium() {
    let sandbox = Sandbox::new();
    let browser = Browser::start();
    // Its events need the token, too.
    let longer = EXPERIMENT.replace("duration = \"2s\"", "duration = \"5s\"");
    let (run, address, path) = start_of(&longer, &sandbox, "0.0.0.0:0");
    browser.visit(&format!("http://127.0.0.1:{}{path}", address.port()));
    browser.run(
        "return (async () => {
            const chart = () => document.querySelector('#now figure[data-plot]')?.chart;
            while (document.getElementById('now') && !chart()) await new Promise((next) => setTimeout(next, 20));
        })()",
    );
    browser.picture("live");
    // Seconds of the current measurement in its first plot, while the run goes on.
    let seen = browser.run(
        "return (async () => {
            let most = 0;
            while (document.getElementById('now')) {
                const figure = document.querySelector('#now figure[data-plot]');
                if (figure?.chart) most = Math.max(most, ...figure.plot.lines.map((line) => line.ys.length));
                await new Promise((next) => setTimeout(next, 20));
            }
            return most;
        })()",
    );
    assert!(seen.as_u64() >= Some(1), "points of a live plot: {seen}");
    let figures =
        "return [document.title, ...[...document.querySelectorAll('main h1, main h2, main .found, main td')]
        .filter((element) => !element.closest('.u-legend')).map((element) => element.innerText)]";
    let live = browser.run(figures);
    let run = run.ended();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    browser.open(&sandbox.path().join("record/report.html"));
    let saved = browser.run(figures);
    assert!(saved.as_array().expect("texts").len() > 10 && live == saved, "{live}\n{saved}");
    assert_eq!(browser.console(), [""; 0]);
}

/// One with a known end and one without, both for longer than it takes to look at the page.
#[test]
fn live_page_of_a_load_draws_while_it_runs_in_chromium() {
    let sandbox = Sandbox::new();
    let recipe = r#"{"route": "/*", "random_content": "1kb", "stages": [{"at": 0, "latency": "50ms"}]}"#;
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], recipe);
    let url = format!("http://{}/page", origin.listens("http"));
    let browser = Browser::start();
    for (name, load) in
        [("live-load", ["--rate", "40/s", "-d", "2m"]), ("live-requests", ["-c", "2", "-n", "5000"])]
    {
        let load = Running::start(&sandbox, &[&["load", &url, "--ui", "0"][..], &load].concat(), "");
        let line = load.stderr_line();
        browser.visit(line.trim().strip_prefix("page: ").expect("a URL"));
        // The first plot has two seconds of this load, and so has its canvas.
        let shown = browser.run(
            "return (async () => {
                const figure = () => document.querySelector('#now figure[data-plot]');
                const points = () => Math.max(0, ...(figure()?.plot.lines ?? []).map((line) => line.ys.length));
                while (points() < 3) await new Promise((next) => setTimeout(next, 20));
                while (!figure()?.chart) await new Promise(requestAnimationFrame);
                for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
                return figure().chart.series.slice(1).map((line) => [line.label, line.show]);
            })()",
        );
        browser.picture(name);
        assert_eq!(shown.to_string(), r#"[["load requests",true]]"#, "{name}");
        let pixels = browser.coloured_pixels("#now figure[data-plot='0']");
        assert!(pixels.len() == 1 && pixels[0] > 20, "{name}: {pixels:?}");
        let load = load.stopped_by(Signal::INT);
        assert_eq!(load.code, 98, "{}{}", load.stdout, load.stderr);
    }
    assert_eq!(browser.console(), [""; 0]);
}

/// Two arms in virtual time.
const SIMULATED: &str = r#"
title = "A `source`"
[target]
kind = "engine"
[origin]
source = "simulated:50"
latency = "20ms"
[cache]
ttl = "1s"
[load]
rate = "100/s"
duration = "10s"
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

/// The pages of two records; the later one has another `ttl`.
fn browse(sandbox: &Sandbox) -> (Running, SocketAddr) {
    browse_with(sandbox, &SIMULATED.replace("1s\"\n[load]", "3s\"\n[load]"))
}

/// The pages of a record and of this one.
fn browse_with(sandbox: &Sandbox, second: &str) -> (Running, SocketAddr) {
    for (name, text) in [("first", SIMULATED), ("second", second)] {
        let file = sandbox.file(&format!("{name}.toml"), text);
        let run = sandbox.stockade(&["run", &file, "--out", &format!("records/{name}")]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    serve_records(sandbox, "records")
}

fn serve_records(sandbox: &Sandbox, directory: &str) -> (Running, SocketAddr) {
    let ui = Running::start(sandbox, &["ui", directory, "--listen", "0"], "");
    let url = ui.stdout_line();
    let address = url.trim().strip_prefix("http://").and_then(|url| url.strip_suffix('/')).expect("a URL");
    let address = address.parse().expect("an address");
    (ui, address)
}

/// The names of the records in their list.
fn ids(list: &str) -> Vec<&str> {
    list.match_indices("name=\"r\" value=\"").map(|(at, found)| &list[at + found.len()..][..16]).collect()
}

#[test]
fn records_are_shown_alone_and_together() {
    let sandbox = Sandbox::new();
    let (ui, address) = browse(&sandbox);
    let list = body(address, "/");
    assert!(list.contains("A <code>source</code>"), "{list}");
    let ids = ids(&list);
    assert_eq!(ids.len(), 2, "{list}");
    let report = sandbox.stockade(&["report", "records/second", "--format", "html"]).stdout;
    let of = |path: &str| body(address, path);
    assert_eq!(of(&format!("/record?r={}", ids[0])), report, "the last one is the first");
    // In the order of their starts, whatever was chosen first.
    let overlay = of(&format!("/overlay?r={}&r={}", ids[0], ids[1]));
    for text in ["A: none", "B: stampede", "A to B", "hit_ratio", "4 better", "+ ttl = &quot;3s&quot;"] {
        assert!(overlay.contains(text), "{text}: {overlay}");
    }
    assert!(of("/history").contains("<h1>History</h1>"));
    let status = |path: &str| request(address, "localhost", "GET", path).0[9..12].to_owned();
    for path in
        ["/record", "/record?r=../second", "/overlay?r=0&r=1", "/records/second/record.json", "/..%2f"]
    {
        assert_eq!(status(path), "404", "{path}");
    }
    assert_eq!((status("/overlay?r=0"), status("/overlay")), ("400".to_owned(), "400".to_owned()));
    let (head, _) = request(address, "attacker.example", "GET", "/");
    assert!(head.contains(" 403 "), "{head}");
    assert_eq!(ui.stopped_by(Signal::INT).code, 0);

    sandbox.stockade(&["ui", "nothing"]).assert_refused(1, &["nothing"]);
}

#[test]
fn records_are_chosen_and_laid_over_one_another_in_chromium() {
    let sandbox = Sandbox::new();
    let (_ui, address) = browse(&sandbox);
    let browser = Browser::start();
    browser.visit(&format!("http://{address}/"));
    let hidden = "const filter = document.getElementById('filter'); filter.value = 'records-of-nobody';
        filter.dispatchEvent(new Event('input')); const rows = [...document.querySelectorAll('tbody tr')];
        const hidden = rows.filter((row) => row.hidden).length; filter.value = 'second SOURCE';
        filter.dispatchEvent(new Event('input')); return [hidden, rows.filter((row) => row.hidden).length]";
    assert_eq!(browser.run(hidden).to_string(), "[2,1]");
    browser.picture("records");
    assert_eq!(browser.run("return document.getElementById('overlay').disabled"), true);
    browser.run("document.querySelectorAll('[name=r]').forEach((box) => box.click()); document.getElementById('overlay').click()");
    let lines = "return (async () => {
            let figure;
            do {
                await new Promise(requestAnimationFrame);
                figure = document.querySelector('main figure[data-plot]');
                figure?.scrollIntoView();
            } while (!figure?.chart);
            return figure.chart.series.slice(1).map((line) => line.label);
        })()";
    let lines = browser.run(lines).to_string();
    browser.picture("overlay");
    for line in ["A: none requests", "B: none requests", "B: stampede source loads"] {
        assert!(lines.contains(line), "{line}: {lines}");
    }
    assert_eq!(browser.console(), [""; 0]);
}

/// A line has as many points as its record has seconds, and nothing is drawn after them.
#[test]
fn line_of_an_overlay_ends_with_its_record_in_chromium() {
    let sandbox = Sandbox::new();
    let shorter = SIMULATED.replace("duration = \"10s\"", "duration = \"5s\"");
    let (_ui, address) = browse_with(&sandbox, &shorter);
    let list = body(address, "/");
    let ids = ids(&list);
    let browser = Browser::start();
    browser.visit(&format!("http://{address}/overlay?r={}&r={}", ids[0], ids[1]));
    let drawn = browser.drawn_plots("main figure[data-plot]");
    browser.picture_of_all("overlay-of-lengths");
    assert!(drawn.len() >= 5 && drawn.iter().all(|(pixels, _)| *pixels > 20), "{drawn:?}");
    assert!(drawn[0].1.starts_with("seconds0:04"), "{drawn:?}");
    // The later record is B, with the arms of index 2 and 3.
    let points = browser.run(
        "const { plot } = document.querySelector('main figure[data-plot]');
         return [plot.xs.length, ...plot.lines.map((line) => [line.arm < 2, line.ys.length].join(' '))].sort()",
    );
    assert_eq!(
        points.to_string(),
        r#"[10,"false 5","false 5","false 5","false 5","true 10","true 10","true 10","true 10"]"#
    );
    // With A out of view, nothing is left of the right half.
    let halves = browser.run(
        "return (async () => {
            document.querySelectorAll('[data-arm=\"0\"], [data-arm=\"1\"]').forEach((box) => box.click());
            for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
            const { ctx: { canvas }, bbox } = document.querySelector('main figure[data-plot]').chart;
            // Chromium advises against reading a canvas twice that is drawn by the graphics card.
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            const coloured = (from, to) => {
                const { data } = copy.getImageData(bbox.left + bbox.width * from, bbox.top, bbox.width * (to - from), bbox.height);
                let count = 0;
                for (let at = 0; at < data.length; at += 4) {
                    const part = [...data.subarray(at, at + 3)];
                    if (data[at + 3] > 0 && Math.max(...part) - Math.min(...part) > 30) count += 1;
                }
                return count;
            };
            return [coloured(0, 0.5) > 20, coloured(0.5, 1)];
        })()",
    );
    assert_eq!(halves.to_string(), "[true,0]");
    assert_eq!(browser.console(), [""; 0]);
}

/// While the second arm is measured: its own page, the list of records, and the page of its record.
#[test]
fn run_that_goes_on_is_in_progress_on_every_page_in_chromium() {
    let sandbox = Sandbox::new();
    let longer = EXPERIMENT.replace("duration = \"2s\"", "duration = \"8s\"");
    let (run, address, path) = start_of(&longer, &sandbox, "0");
    let browser = Browser::start();
    browser.visit(&format!("http://{address}{path}"));
    let badges = "[...document.querySelectorAll('main .badge')].map((badge) => badge.innerText)";
    let live = browser.run(&format!(
        "return (async () => {{
            while (!document.querySelector('main td')) await new Promise(requestAnimationFrame);
            return [Boolean(document.getElementById('now')), ...{badges}];
        }})()"
    ));
    assert_eq!(live.to_string(), r#"[true,"in progress","open"]"#);
    let text = browser.run("return document.querySelector('main').innerText");
    let text = text.as_str().expect("text");
    assert!(text.contains("So far: 1 of 1 inconclusive.") && !text.contains("interrupted"), "{text}");
    browser.run(
        "return (async () => {
            const points = (figure) => Math.max(0, ...figure.plot.lines.filter((line) => line.ys.length < 8).map((line) => line.ys.length));
            const figure = () => document.querySelector('#now figure[data-plot]');
            while (!figure()?.plot || points(figure()) < 3) await new Promise(requestAnimationFrame);
        })()",
    );
    let drawn = browser.drawn_plots("figure[data-plot]");
    browser.picture_of_all("live-all");
    assert!(drawn.len() >= 10 && drawn.iter().all(|(pixels, _)| *pixels > 10), "{drawn:?}");
    for (_, legend) in &drawn {
        assert!(!legend.contains("seconds") || legend.contains("0:0"), "{legend}");
    }
    // Its last second, which the arm before has as well.
    let (_, current) = drawn[0].1.split_once("stampede requests").expect("the measured arm");
    assert!(current.starts_with(|c: char| c.is_ascii_digit()), "{drawn:?}");
    let (ui, records) = serve_records(&sandbox, ".");
    let shows = |words: &str, verdict: &str| {
        let list = body(records, "/");
        let record = body(records, &format!("/record?r={}", ids(&list)[0]));
        assert!(list.contains(&format!("<span class=\"note\">{words}</span>")), "{list}");
        assert!(record.contains(&format!("<span class=\"badge {verdict}\">{verdict}</span>")), "{record}");
    };
    shows("in progress", "in progress");
    let json = sandbox.stockade(&["report", "record", "--format", "json"]).stdout;
    assert!(json.contains("\"interrupted\":false,\"in_progress\":true"), "{json}");
    assert_eq!(run.stopped_by(Signal::INT).code, 98);
    shows("not complete", "interrupted");
    drop(ui);
    assert_eq!(browser.console(), [""; 0]);
}
