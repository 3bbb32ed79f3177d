//! `stockade proxy` as its users run it: a process in front of an origin, in real bytes.

mod admin;
mod documents;
mod life;
mod strain;
mod told;
mod usage;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::Value;

use crate::{
    running::{PATIENCE, Running, get},
    support::Sandbox,
};

/// What the origin of these tests serves.
const RECIPE: &str = r#"[
    {"route": "/news*", "body": "all is well", "stages": [{"at": 0}],
        "headers": {"cache-control": "max-age=3600", "surrogate-key": "news sport"}},
    {"route": "/weather*", "body": "rain", "stages": [{"at": 0}],
        "headers": {"cache-control": "max-age=3600", "surrogate-key": "weather"}},
    {"route": "/slow", "body": "at last", "headers": {"cache-control": "max-age=3600"},
        "stages": [{"at": 0, "latency": "2s"}]},
    {"route": "/own", "body": "for you", "headers": {"cache-control": "private"}, "stages": [{"at": 0}]}
]"#;

/// A proxy that says nothing of each request, its admin's listener, and its origin.
struct Proxied {
    sandbox: Sandbox,
    proxy: Running,
    origin: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Proxied {
    /// In front of an origin with [`RECIPE`].
    fn start(more: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
        let url = format!("http://{}", origin.listens("http"));
        let config = silent(&sandbox, &url, "");
        let (proxy, address, admin) = started(&sandbox, &config, more);
        Self { sandbox, proxy, origin, address, admin }
    }

    fn get(&self, path: &str) -> Got {
        Got::of(&get(self.address, path))
    }

    fn post(&self, path: &str, body: &str) -> Got {
        of_admin(self.admin, "POST", path, body)
    }

    fn stats(&self) -> Value {
        stats(self.admin)
    }

    /// Where its origin is, as the file has it.
    fn origin_url(&self) -> String {
        let file = std::fs::read_to_string(self.sandbox.path().join("stockade.toml")).expect("it is there");
        let url = file.split("url = \"").nth(1).and_then(|rest| rest.split('"').next());
        url.expect("an origin").to_owned()
    }
}

/// Writes `stockade.toml`: no log, this origin, and whatever else there is to be said before it.
fn silent(sandbox: &Sandbox, origin: &str, before: &str) -> String {
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n{before}\n[log]\nformat = \"none\"\n\n[[origin]]\nname = \"app\"\nurl = \"{origin}\"\n"
    );
    sandbox.file("stockade.toml", &text)
}

/// A proxy with this configuration that has begun to serve; where, and where whoever runs it comes in.
#[track_caller]
fn started(sandbox: &Sandbox, config: &str, more: &[&str]) -> (Running, SocketAddr, SocketAddr) {
    let arguments = [&["proxy", "--config", config, "--admin", "0"], more].concat();
    let proxy = Running::start(sandbox, &arguments, "");
    let (address, admin) = serves(&proxy);
    (proxy, address, admin)
}

/// Waits until it serves; where, and where whoever runs it comes in.
#[track_caller]
fn serves(proxy: &Running) -> (SocketAddr, SocketAddr) {
    let (address, line) = (proxy.listens("http"), proxy.says());
    let admin = line.trim_end().strip_prefix("admin API (metrics, purge, reload): http://");
    let admin = admin.unwrap_or_else(|| panic!("{line}")).parse().expect("an address");
    assert!(proxy.says().contains("SIGHUP reloads the configuration"));
    (address, admin)
}

fn stats(admin: SocketAddr) -> Value {
    of_admin(admin, "GET", "/stats", "").json()
}

/// Asks again until it is so; nobody waits longer than [`PATIENCE`].
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a process that never does it is not waited for for ever")]
    let (began, now) = (Instant::now(), Instant::now);
    while !is_so() {
        assert!(now() - began < PATIENCE, "it is not so after {PATIENCE:?}");
    }
}

/// What the admin's listener answers.
#[track_caller]
fn of_admin(admin: SocketAddr, method: &str, path: &str, body: &str) -> Got {
    let length = body.len();
    talk(
        admin,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )
}

/// The answer to a whole request, head and all.
#[track_caller]
fn talk(address: SocketAddr, request: &str) -> Got {
    let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect("somebody listens");
    tcp.set_read_timeout(Some(PATIENCE)).expect("it is longer than nothing");
    tcp.write_all(request.as_bytes()).expect("a request is sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    Got::of(&answer)
}

/// An answer.
#[derive(Debug)]
struct Got {
    status: u16,
    head: String,
    body: String,
}

impl Got {
    #[track_caller]
    fn of(answer: &str) -> Self {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { joined(body) } else { body.to_owned() };
        Self { status: status.expect("a status"), head: head.to_owned(), body }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|it| it.eq_ignore_ascii_case(name));
        Some(self.head.lines().find(named)?.split_once(':')?.1.trim())
    }

    /// What the cache says that it did.
    #[track_caller]
    fn cache(&self) -> &str {
        self.header("cache-status").unwrap_or_else(|| panic!("no Cache-Status: {self:?}"))
    }

    /// What it did, in one word.
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

/// A body without the lengths of its chunks.
fn joined(mut chunked: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunked.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.push_str(&rest[..size]);
        chunked = rest[size..].trim_start_matches("\r\n");
    }
    body
}
