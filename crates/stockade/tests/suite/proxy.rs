//! `stockade proxy` as its users run it: a process in front of an origin, in real bytes.

mod admin;
mod attacks;
mod dashboard;
mod documents;
mod exhaustion;
mod health;
mod hostile;
mod large_bodies;
mod life;
mod memory;
mod prometheus_server;
mod shadow;
mod snapshots;
mod telemetry;
mod usage;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::Value;
use stockade_model::proc::resident_bytes;

use crate::{
    running::{PATIENCE, Running, get},
    support::Sandbox,
};

/// The recipe of the origin in these tests.
const RECIPE: &str = r#"[
    {"route": "/news*", "body": "all is well", "stages": [{"at": 0}],
        "headers": {"cache-control": "max-age=3600", "surrogate-key": "news sport"}},
    {"route": "/weather*", "body": "rain", "stages": [{"at": 0}],
        "headers": {"cache-control": "max-age=3600", "surrogate-key": "weather"}},
    {"route": "/slow", "body": "at last", "headers": {"cache-control": "max-age=3600"},
        "stages": [{"at": 0, "latency": "2s"}]},
    {"route": "/own", "body": "for you", "headers": {"cache-control": "private"}, "stages": [{"at": 0}]}
]"#;

const MIB: usize = 1 << 20;

/// The bound of resident memory of docs/reference/proxy.md, in MiB: the limit and 15 %, 128 KiB for each connection of clients, 256 KiB for
/// each to an origin, and 50.
const fn memory_bound_mib(limit_mib: usize, client_connections: usize, origin_connections: usize) -> usize {
    limit_mib * 115 / 100 + client_connections / 8 + origin_connections / 4 + 50
}

/// The resident memory of a process in bytes.
fn resident(process: &Running) -> usize {
    let bytes = resident_bytes(process.id()).expect("on Linux");
    usize::try_from(bytes).expect("it is in memory")
}

/// A proxy without an access log, its admin listener, and its origin.
struct Setup {
    sandbox: Sandbox,
    proxy: Running,
    origin: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Setup {
    /// In front of an origin with [`RECIPE`].
    fn start(more: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
        let url = format!("http://{}", origin.listens("http"));
        let config = config_without_log(&sandbox, &url, "");
        let (proxy, address, admin) = start_proxy(&sandbox, &config, more);
        Self { sandbox, proxy, origin, address, admin }
    }

    fn get(&self, path: &str) -> Response {
        Response::of(&get(self.address, path))
    }

    fn post(&self, path: &str, body: &str) -> Response {
        admin_request(self.admin, "POST", path, body)
    }

    fn stats(&self) -> Value {
        stats(self.admin)
    }

    /// The origin's URL in the configuration file.
    fn origin_url(&self) -> String {
        let file = std::fs::read_to_string(self.sandbox.path().join("stockade.toml")).expect("it is there");
        let url = file.split("url = \"").nth(1).and_then(|rest| rest.split('"').next());
        url.expect("an origin").to_owned()
    }
}

/// Writes `stockade.toml` with this origin, no log, and `before` as further settings.
fn config_without_log(sandbox: &Sandbox, origin: &str, before: &str) -> String {
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n{before}\n[log]\nformat = \"none\"\n\n[[origin]]\nname = \"app\"\nurl = \"{origin}\"\n"
    );
    sandbox.file("stockade.toml", &text)
}

/// Starts a proxy with this configuration and returns it with its address and its admin address.
#[track_caller]
fn start_proxy(sandbox: &Sandbox, config: &str, more: &[&str]) -> (Running, SocketAddr, SocketAddr) {
    let arguments = [&["proxy", "--config", config, "--admin", "0"], more].concat();
    let proxy = Running::start(sandbox, &arguments, "");
    let (address, admin) = wait_until_serving(&proxy);
    (proxy, address, admin)
}

/// Waits until the proxy serves: its address and its admin address.
#[track_caller]
fn wait_until_serving(proxy: &Running) -> (SocketAddr, SocketAddr) {
    let (address, mut line) = (proxy.listens("http"), proxy.stderr_line());
    let expected = ["this process may have ", "large bodies are copied when they are sent: "];
    while let Some(warning) = line.strip_prefix("warning: ") {
        assert!(expected.iter().any(|start| warning.starts_with(start)), "{line}");
        line = proxy.stderr_line();
    }
    let admin = line.trim_end().strip_prefix("admin API (metrics, purge, reload): http://");
    let admin = admin.unwrap_or_else(|| panic!("{line}")).parse().expect("an address");
    assert!(proxy.stderr_line().contains("SIGHUP reloads the configuration"));
    (address, admin)
}

fn stats(admin: SocketAddr) -> Value {
    admin_request(admin, "GET", "/stats", "").json()
}

/// Polls until the condition holds, for at most [`PATIENCE`].
#[track_caller]
pub fn until(mut condition: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "bounds the wait for another process")]
    let (began, now) = (Instant::now(), Instant::now);
    while !condition() {
        assert!(now() - began < PATIENCE, "the condition does not hold after {PATIENCE:?}");
    }
}

/// Sends a request to the admin listener.
#[track_caller]
fn admin_request(admin: SocketAddr, method: &str, path: &str, body: &str) -> Response {
    let length = body.len();
    send_request(
        admin,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )
}

/// Sends a request given as text.
#[track_caller]
fn send_request(address: SocketAddr, request: &str) -> Response {
    let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
    tcp.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    tcp.write_all(request.as_bytes()).expect("a request is sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    Response::of(&answer)
}

/// A received response.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    #[track_caller]
    fn of(answer: &str) -> Self {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { decode_chunked(body) } else { body.to_owned() };
        Self { status: status.expect("a status"), head: head.to_owned(), body }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|it| it.eq_ignore_ascii_case(name));
        Some(self.head.lines().find(named)?.split_once(':')?.1.trim())
    }

    /// The `Cache-Status` header.
    #[track_caller]
    fn cache(&self) -> &str {
        self.header("cache-status").unwrap_or_else(|| panic!("no Cache-Status: {self:?}"))
    }

    /// The `detail` of `Cache-Status`.
    #[track_caller]
    fn outcome(&self) -> &str {
        self.cache().rsplit("detail=").next().expect("its last parameter")
    }

    #[track_caller]
    fn assert(&self, status: u16, body: &str, outcome: &str) {
        assert_eq!((self.status, self.body.as_str(), self.outcome()), (status, body, outcome), "{self:?}");
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Decodes a chunked body.
fn decode_chunked(mut chunked: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunked.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.push_str(&rest[..size]);
        chunked = rest[size..].trim_start_matches("\r\n");
    }
    body
}
