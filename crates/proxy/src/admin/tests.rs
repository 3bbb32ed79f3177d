//! The admin listener, with raw requests and responses.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use stockade_cache::Invalidation;
use stockade_http::server::ServerLimits;
use stockade_model::outcome::Outcomes;
use tokio::sync::Notify;

use stockade_cache::{GhostCounts, GhostStats, RequestStats, ShadowStats, StoreStats};
use stockade_record::telemetry::TimeHistogram;

use super::*;

/// A proxy that records the calls.
#[derive(Default)]
struct FakeControl {
    is_draining: AtomicBool,
    purges: Mutex<Vec<Purge>>,
    warmed: Mutex<Vec<String>>,
    warming: AtomicUsize,
    warming_most: AtomicUsize,
    /// Warming a URL that contains `hold` waits for this.
    held: Notify,
}

impl Control for FakeControl {
    fn stats(&self) -> ProxyStats {
        ProxyStats { is_draining: self.is_draining.load(Ordering::Relaxed), ..example() }
    }

    fn keys(&self) -> KeyStats {
        KeyStats::default()
    }

    fn purge(&self, purge: &Purge) -> PurgeResult {
        self.purges.lock().unwrap().push(purge.clone());
        let note = (purge.target == PurgeTarget::Tag("b".to_owned())).then(|| "no tags".to_owned());
        PurgeResult { entries: 7, note }
    }

    async fn warm(&self, url: Uri) -> WarmOutcome {
        let now = self.warming.fetch_add(1, Ordering::SeqCst) + 1;
        self.warming_most.fetch_max(now, Ordering::SeqCst);
        if url.path().contains("hold") {
            self.held.notified().await;
        }
        tokio::task::yield_now().await;
        self.warming.fetch_sub(1, Ordering::SeqCst);
        self.warmed.lock().unwrap().push(url.to_string());
        match url.path() {
            "/private" => WarmOutcome::NotStored(200),
            "/broken" => WarmOutcome::Failed("no route to host".to_owned()),
            _ => WarmOutcome::Stored,
        }
    }

    async fn reload(&self) -> Result<Vec<Change>, String> {
        if self.is_draining.load(Ordering::Relaxed) {
            return Err("stockade.toml:3:7: unknown key `lissen`".to_owned());
        }
        Ok(vec![Change { setting: "threads".to_owned(), needs_restart: true }])
    }

    fn config(&self) -> Value {
        json!({ "listen": ["127.0.0.1:8080"] })
    }
}

/// All kinds of figures, with names that need escapes in Prometheus' format.
fn example() -> ProxyStats {
    let times = TimeHistogram { bounds_seconds: vec![0.001, 0.1], counts: vec![3, 2, 1], sum_seconds: 1.25 };
    let route = RouteStats {
        name: "/a\"b\\c/*".to_owned(),
        outcomes: Outcomes { hit: 90, miss: 10, ..Outcomes::default() },
        requests: RequestStats { loads: 11, shared_hits: 2, ..RequestStats::default() },
        breaker: Some(BreakerStatus::HalfOpen),
        response_time: Some(times),
        ..RouteStats::default()
    };
    let server = ServerStats { address: "http://h:80".to_owned(), is_healthy: true };
    let origin =
        OriginStats { name: "app".to_owned(), servers: vec![server], requests: 11, ..OriginStats::default() };
    ProxyStats {
        uptime_seconds: 12.5,
        routes: vec![route, RouteStats { name: "/*".to_owned(), ..RouteStats::default() }],
        origins: vec![origin],
        store: StoreStats { bytes: Some(1_000), ..StoreStats::default() },
        shadow: Some(ShadowStats {
            sampled_share: 0.125,
            ghosts: vec![GhostStats {
                name: "2x size".to_owned(),
                hit_ratio_change: Some(0.021),
                total: GhostCounts { requests: 800, ..GhostCounts::default() },
                ..GhostStats::default()
            }],
            ..ShadowStats::default()
        }),
        resident_bytes: Some(1 << 20),
        ..ProxyStats::default()
    }
}

struct Running {
    admin: AdminServer,
    control: Arc<FakeControl>,
}

fn settings() -> config::AdminConfig {
    config::AdminConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        token_file: None,
        hosts: vec!["ours.example".parse().unwrap()],
        purge_from: Vec::new(),
    }
}

fn start() -> Running {
    start_with(AdminLimits::default())
}

fn start_with(limits: AdminLimits) -> Running {
    let control = Arc::new(FakeControl::default());
    let admin =
        AdminServer::start_with(&settings(), Arc::clone(&control), limits).expect("the listener starts");
    Running { admin, control }
}

/// Few connections, and one time for heads and bodies.
fn limits(connections_max: u32, time_max: Duration) -> AdminLimits {
    let limits = AdminLimits::default();
    let server = ServerLimits { connections_max, head_time_max: time_max, ..limits.server };
    AdminLimits { server, body: time_max, ..limits }
}

/// A response: its status, its raw head and its body.
struct RawResponse {
    status: u16,
    head: String,
    body: String,
}

impl Running {
    fn connect(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.admin.address()).expect("the listener starts");
        tcp.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        tcp
    }

    /// Sends raw bytes and reads to the end.
    fn raw(&self, bytes: &[u8]) -> RawResponse {
        let mut tcp = self.connect();
        // The server may close the connection before it has read everything.
        let _ = tcp.write_all(bytes);
        let mut text = Vec::new();
        let _ = tcp.read_to_end(&mut text);
        let text = String::from_utf8(text).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body =
            if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        RawResponse { status, head: head.to_owned(), body }
    }

    fn request(&self, line: &str, headers: &str, body: &str) -> RawResponse {
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let length = body.len();
        self.raw(
            format!("{line} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
                .as_bytes(),
        )
    }

    fn get(&self, path: &str) -> RawResponse {
        self.request(&format!("GET {path}"), "", "")
    }

    fn post(&self, path: &str, body: &str) -> RawResponse {
        self.request(&format!("POST {path}"), "", body)
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}

fn read(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn all_paths_respond() {
    let running = start();
    let pages = ["/", "/healthz", "/readyz", "/stats", "/metrics", "/keys", "/config"];
    for path in pages {
        let response = running.get(path);
        assert_eq!(response.status, 200, "{path}");
        for header in ["cache-control: no-store", "x-content-type-options: nosniff", "x-frame-options: DENY"]
        {
            assert!(response.head.contains(header), "{path}: {}", response.head);
        }
    }
    let stats = read(&running.get("/stats").body);
    assert_eq!(stats["routes"][0]["outcomes"]["hit"], 90);
    assert_eq!(
        (&stats["routes"][0]["breaker"], &stats["entries_limit"]),
        (&json!("half-open"), &Value::Null)
    );
    assert_eq!(read(&running.get("/config").body), running.control.config());
    let head = running.request("HEAD /stats", "", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    running.control.is_draining.store(true, Ordering::Relaxed);
    assert_eq!((running.get("/healthz").status, running.get("/readyz").status), (200, 503));
    let lost = running.get("/metrix");
    assert_eq!((lost.status, lost.body.as_str()), (404, "there is no such page: did you mean `/metrics`?\n"));
    for (line, allowed) in
        [("GET /purge", "allow: POST"), ("POST /stats", "allow: GET"), ("DELETE /reload", "allow: POST")]
    {
        let response = running.request(line, "", "");
        assert!(response.status == 405 && response.head.contains(allowed), "{line}: {}", response.head);
    }
}

#[test]
fn purge_requests_reach_the_proxy() {
    let running = start();
    for (path, answer) in [
        (
            "/purge?url=http://h/a",
            json!({ "purged": 7, "kind": "url", "target": "http://h/a", "soft": false }),
        ),
        (
            "/purge?tag=b&soft",
            json!({ "purged": 7, "kind": "tag", "target": "b", "soft": true, "note": "no tags" }),
        ),
        ("/purge?prefix=/a/", json!({ "purged": 7, "kind": "prefix", "target": "/a/", "soft": false })),
        ("/purge_all", json!({ "purged": 7, "kind": "all", "target": "*", "soft": false })),
    ] {
        let response = running.post(path, "");
        assert_eq!((response.status, read(&response.body)), (200, answer), "{path}");
    }
    for path in ["/purge", "/purge?url=a", "/purge?tag=a&prefix=http://h/", "/purge_all?tag=a"] {
        let response = running.post(path, "");
        assert_eq!(response.status, 400, "{path}");
        assert!(read(&response.body)["error"].is_string());
    }
    let purges = running.control.purges.lock().unwrap().clone();
    let purge = |target, mode| Purge { target, mode };
    let expected = [
        purge(PurgeTarget::Url("http://h/a".parse().unwrap()), Invalidation::Hard),
        purge(PurgeTarget::Tag("b".to_owned()), Invalidation::Soft),
        purge(PurgeTarget::PathPrefix("/a/".to_owned()), Invalidation::Hard),
        purge(PurgeTarget::All, Invalidation::Hard),
    ];
    assert_eq!(purges, expected);
}

#[test]
fn missing_token_and_unknown_host_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    std::fs::write(&path, "open-sesame-open-sesame").expect("written");
    let control = Arc::new(FakeControl::default());
    let with_token = config::AdminConfig { token_file: Some(path.clone()), ..settings() };
    let admin = AdminServer::start(&with_token, Arc::clone(&control)).expect("the listener starts");
    let running = Running { admin, control };
    let bearer = "Authorization: Bearer open-sesame-open-sesame\r\n";
    for (line, headers, status) in [
        ("GET /stats", "", 401),
        ("GET /", "", 401),
        ("GET /nowhere", "", 401),
        ("POST /purge_all", "Authorization: Bearer open-sesame-open-sesam\r\n", 401),
        ("GET /healthz", "", 200),
        ("GET /readyz", "Host: 10.0.0.1:1\r\n", 200),
        ("GET /stats", bearer, 200),
        // anybody:open-sesame-open-sesame
        ("GET /", "Authorization: Basic YW55Ym9keTpvcGVuLXNlc2FtZS1vcGVuLXNlc2FtZQ==\r\n", 200),
        // A valid token does not admit an unknown host.
        ("GET /stats", "Host: evil.example\r\nAuthorization: Bearer open-sesame-open-sesame\r\n", 421),
        ("GET /stats", "Host: ours.example:80\r\nAuthorization: Bearer open-sesame-open-sesame\r\n", 200),
        (
            "POST /purge_all",
            "Origin: http://evil.example\r\nAuthorization: Bearer open-sesame-open-sesame\r\n",
            403,
        ),
    ] {
        assert_eq!(running.request(line, headers, "").status, status, "{line} {headers}");
    }
    assert!(running.request("GET /stats", "", "").head.contains("www-authenticate: Basic realm="));
    assert!(running.control.purges.lock().unwrap().is_empty());

    // A reload reads the token again; an invalid one leaves the old one.
    std::fs::write(&path, "another-token-of-ours").expect("written");
    assert_eq!(running.request("POST /reload", bearer, "").status, 200);
    assert_eq!(running.request("POST /reload", bearer, "").status, 401);
    let another = "Authorization: Bearer another-token-of-ours\r\n";
    std::fs::write(&path, "").expect("written");
    let response = running.request("POST /reload", another, "");
    assert!(response.status == 422 && response.body.contains("holds no token"), "{}", response.body);
    assert_eq!(running.request("GET /stats", another, "").status, 200);

    let away = config::AdminConfig { listen: "0.0.0.0:0".parse().unwrap(), ..settings() };
    let error = AdminServer::start(&away, Arc::new(FakeControl::default())).unwrap_err();
    assert!(matches!(error, AdminStartError::Open(_)), "{error}");
    let missing = config::AdminConfig { token_file: Some(folder.path().join("none")), ..settings() };
    let error = AdminServer::start(&missing, Arc::new(FakeControl::default())).unwrap_err();
    assert!(error.to_string().starts_with("cannot read the token in "), "{error}");
    let taken = config::AdminConfig { listen: config::SocketAddress(running.admin.address()), ..settings() };
    let error = AdminServer::start(&taken, Arc::new(FakeControl::default())).unwrap_err();
    assert!(matches!(error, AdminStartError::Listen { .. }), "{error}");
}

#[test]
fn list_is_warmed_after_the_purge() {
    let running = start();
    let list: String = (0..100).map(|n| format!("http://h/{n}")).collect::<Vec<_>>().join("\n")
        + "\n# not these\nhttp://h/private\nhttp://h/broken\n";
    let response = running.post("/purge_all?soft", &list);
    let lines: Vec<Value> = response.body.lines().map(read).collect();
    assert!(response.head.contains("application/x-ndjson"), "{}", response.head);
    assert_eq!(lines.first(), Some(&json!({ "purged": 7, "kind": "all", "target": "*", "soft": true })));
    let last = json!({
        "done": 102, "of": 102, "stored": 100, "not_stored": 1, "failed": 1,
        "not_stored_or_failed": [
            { "url": "http://h/private", "status": 200 },
            { "url": "http://h/broken", "error": "no route to host" },
        ],
    });
    let mut progress = lines.last().expect("a last line").clone();
    // They are in the order of their responses.
    let named = progress["not_stored_or_failed"].as_array_mut().expect("a list");
    named.sort_by_key(|one| one["url"] == "http://h/broken");
    assert_eq!(progress, last);
    assert_eq!(running.control.warmed.lock().unwrap().len(), 102);
    assert!(running.control.warming_most.load(Ordering::SeqCst) <= 8);

    // An invalid list purges nothing.
    for (path, body, status) in [
        ("/purge_all", "news\n".to_owned(), 400),
        ("/warm", String::new(), 400),
        ("/warm", "http://h/\n".repeat(10_001), 400),
        ("/warm", "x".repeat((1 << 20) + 1), 413),
    ] {
        let response = running.post(path, &body);
        assert_eq!(response.status, status, "{}", response.body);
    }
    assert_eq!(running.control.purges.lock().unwrap().len(), 1);
    assert_eq!(running.raw(b"POST /warm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n\xff\xff").status, 400);
}

#[test]
fn one_list_is_warmed_at_a_time_and_ends_with_its_client() {
    let running = start();
    let list = "http://h/hold\n".repeat(20);
    let head =
        format!("POST /warm HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{list}", list.len());
    let mut first = running.connect();
    first.write_all(head.as_bytes()).expect("sent");
    let mut reader = BufReader::new(first.try_clone().expect("a handle"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a head");
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    // It reports its progress after a second.
    while !line.starts_with('{') {
        line.clear();
        reader.read_line(&mut line).expect("a line");
    }
    assert_eq!(read(&line)["done"], 0);
    assert_eq!(running.post("/warm", "http://h/\n").status, 409);
    // A disconnect ends the warming; then another list is accepted.
    first.shutdown(Shutdown::Both).expect("shut");
    let is_free = (0..10_000).any(|_| running.post("/warm", "http://h/\n").status == 200);
    assert!(is_free);
    assert_eq!(*running.control.warmed.lock().unwrap(), ["http://h/"]);
}

#[test]
fn reload_reports_its_changes() {
    let running = start();
    let response = running.post("/reload", "");
    let changes = json!({ "changes": [{ "setting": "threads", "needs_restart": true }] });
    assert_eq!((response.status, read(&response.body)), (200, changes));
    running.control.is_draining.store(true, Ordering::Relaxed);
    let response = running.post("/reload", "");
    assert_eq!(
        (response.status, read(&response.body)["error"].as_str()),
        (422, Some("stockade.toml:3:7: unknown key `lissen`"))
    );
}

#[test]
fn slow_large_and_malformed_requests_are_cut_off() {
    let short = Duration::from_millis(50);
    let running = start_with(limits(2, short));
    // Each of these reads until the server has closed the connection.
    assert_eq!(running.raw(b"GET /stats HT").body, "");
    assert_eq!(running.raw(b"").body, "");
    let kept = running.raw(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((kept.status, kept.body.as_str()), (200, "ok\n"));
    assert_eq!(
        running.raw(b"POST /warm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhttp").status,
        408
    );
    let large = format!("GET /stats HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    assert!([0, 400, 431].contains(&running.raw(large.as_bytes()).status));
    assert_eq!(running.raw(b"\x16\x03\x01\x02\x00").status, 400);
}

#[test]
fn clients_that_send_nothing_or_half_a_body_do_not_keep_others_out() {
    // No timeout frees a connection here.
    let never = Duration::from_hours(1);
    let running = start_with(limits(4, never));
    for sent in
        ["", "GET /stats HT", "POST /warm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhttp"]
    {
        let silent: Vec<_> = (0..8)
            .map(|_| {
                let mut tcp = running.connect();
                tcp.write_all(sent.as_bytes()).expect("the listener reads");
                tcp
            })
            .collect();
        assert_eq!(running.get("/healthz").status, 200, "{sent:?}");
        drop(silent);
    }
}

/// Parses the text format as strictly as Prometheus.
fn samples(text: &str) -> BTreeMap<String, String> {
    assert!(text.ends_with('\n'));
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut helped, mut current, mut samples) = (BTreeSet::new(), "", BTreeMap::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help");
            assert!(is_name(name) && !help.is_empty() && helped.insert(name), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind) && helped.contains(name), "{line}");
            assert!(kind != "counter" || name.ends_with("_total"), "{line}");
            assert!(families.insert(name, kind).is_none(), "{line}");
            current = name;
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            let family = match families[current] {
                "histogram" => ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)),
                _ => Some(name),
            };
            // The samples of a family are adjacent.
            assert!(is_name(name) && family == Some(current), "{line}");
            if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
                let mut rest =
                    labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("braces");
                while !rest.is_empty() {
                    let (label, after) = rest.split_once("=\"").expect("a label");
                    assert!(is_name(label), "{line}");
                    let mut is_escaped = false;
                    let end = after.find(|c: char| {
                        let is_end = c == '"' && !is_escaped;
                        is_escaped = c == '\\' && !is_escaped;
                        is_end
                    });
                    rest = after[end.expect("a closing quotation mark") + 1..].trim_start_matches(',');
                }
            }
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(series.to_owned(), value.to_owned()).is_none(), "{line}: a duplicate");
        }
    }
    samples
}

#[test]
fn metrics_are_valid_prometheus_text() {
    let running = start();
    let response = running.get("/metrics");
    assert!(
        response.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{}",
        response.head
    );
    let samples = samples(&response.body);
    let of = |series: &str| {
        samples.get(series).unwrap_or_else(|| panic!("no {series} in {}", response.body)).as_str()
    };
    let route = r#"route="/a\"b\\c/*""#;
    assert_eq!(of(&format!("stockade_requests_total{{{route},outcome=\"hit\"}}")), "90");
    assert_eq!(of("stockade_requests_total{route=\"/*\",outcome=\"hit\"}"), "0");
    assert_eq!(of(&format!("stockade_shared_total{{{route},what=\"hit\"}}")), "2");
    assert_eq!(of(&format!("stockade_breaker_state{{{route}}}")), "2");
    assert!(!samples.contains_key("stockade_breaker_state{route=\"/*\"}"));
    let bucket = |le: &str| of(&format!("stockade_response_seconds_bucket{{{route},le=\"{le}\"}}"));
    assert_eq!([bucket("0.001"), bucket("0.1"), bucket("+Inf")], ["3", "5", "6"]);
    assert_eq!(of(&format!("stockade_response_seconds_count{{{route}}}")), "6");
    assert_eq!(of(&format!("stockade_response_seconds_sum{{{route}}}")), "1.25");
    assert_eq!(of("stockade_upstream_healthy{origin=\"app\",server=\"http://h:80\"}"), "1");
    assert_eq!((of("stockade_bytes"), of("process_resident_memory_bytes")), ("1000", "1048576"));
    assert!(!samples.contains_key("stockade_entries_limit"));
    assert_eq!(of("stockade_shadow_sampled_share"), "0.125");
    assert_eq!(of("stockade_ghost_hit_ratio_change{ghost=\"2x size\"}"), "0.021");
    assert_eq!(of("stockade_ghost_requests_total{ghost=\"2x size\"}"), "800");
    assert!(!samples.contains_key("stockade_ghost_loads_ratio{ghost=\"2x size\"}"));
    // A proxy without routes and origins has valid metrics, too.
    self::samples(&metrics::text(&ProxyStats::default()));
}
