//! The traffic of a log: requests and bytes by bots, routes, hosts, types and statuses, counted while it is read.
//!
//! All requests count, also those that no cache answers. Memory is bounded, whatever the log: `traffic::top` says how, and by how much
//! a count may be too low.

mod bots;
mod top;

use hashbrown::HashTable;
use memchr::{memchr, memchr2, memrchr};
use stockade_logs::{LoggedKey, LoggedRequest};

pub use self::top::Count;
use self::top::Top;

/// The groups of each kind that are kept.
const GROUPS_MAX: usize = 20;
/// The user agents whose result is remembered.
const AGENTS_MAX: usize = 4_096;
/// A longer end of a name is not that of a file.
const EXTENSION_BYTES_MAX: usize = 5;

/// The traffic of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// All requests.
    pub all: Count,
    /// Those by bots, and the bots with the most; `None`: no request has a user agent.
    pub bots: Option<(Count, Vec<TrafficGroup>)>,
    /// By the first segment of the path.
    pub routes: Vec<TrafficGroup>,
    /// By host, where the log has it.
    pub hosts: Vec<TrafficGroup>,
    /// By the type of the response, else the ending of the path.
    pub types: Vec<TrafficGroup>,
    /// By the first digit of the status, where the log has it.
    pub statuses: Vec<TrafficGroup>,
    /// The number of requests by which a count is too low at most.
    pub too_low_by: u64,
}

/// The requests of one bot, route, host, type or status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficGroup {
    /// Such as `/assets/*`.
    pub name: String,
    /// Its requests.
    pub count: Count,
}

impl Traffic {
    /// The share of the requests that bots send, as far as they say so; 0 without user agents.
    #[must_use]
    pub fn bots_share(&self) -> f64 {
        match &self.bots {
            Some((bots, _)) if self.all.requests > 0 => bots.requests as f64 / self.all.requests as f64,
            _ => 0.0,
        }
    }
}

/// Counts the requests of a log.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounter {
    all: Count,
    bots: Count,
    agents: Agents,
    names: Top,
    routes: Top,
    hosts: Top,
    types: Top,
    /// By the first digit; 0: none.
    statuses: [Count; 10],
}

impl TrafficCounter {
    /// Counts a request. Returns true if a bot sent it.
    pub fn add(&mut self, request: &LoggedRequest<'_>) -> bool {
        let requests = u64::from(request.repeats);
        let count = Count { requests, bytes: request.bytes.unwrap_or(0).saturating_mul(requests) };
        self.all.add(count);
        self.statuses[usize::from(request.status.unwrap_or(0) / 100) % 10].add(count);
        if let LoggedKey::Url { host, url, .. } = request.key {
            let (host, path) = split_url(host, url);
            self.routes.add(route(path), count);
            if let Some(host) = host {
                self.hosts.add(host.as_bytes(), count);
            }
            self.types.add(request.content_type.map_or_else(|| extension(path), media_type), count);
        }
        let bot = request.user_agent.and_then(|agent| self.agents.bot_name(agent));
        if let Some(name) = bot {
            self.bots.add(count);
            self.names.add(name.as_bytes(), count);
        }
        bot.is_some()
    }

    /// True if a request had a user agent.
    pub fn has_agents(&self) -> bool {
        self.agents.any
    }

    pub fn finish(self) -> Traffic {
        let mut too_low_by = 0;
        let mut groups = |top: Top| {
            let (names, error) = top.finish();
            too_low_by = too_low_by.max(error);
            let group = |(name, count)| TrafficGroup { name, count };
            names.into_iter().take(GROUPS_MAX).map(group).collect::<Vec<_>>()
        };
        let (names, mut routes) = (groups(self.names), groups(self.routes));
        routes.iter_mut().for_each(|route| route.name = route_name(&route.name));
        let (hosts, types) = (groups(self.hosts), groups(self.types));
        let statuses = self.statuses.iter().enumerate().skip(1).filter(|(_, count)| count.requests > 0);
        let statuses =
            statuses.map(|(digit, count)| TrafficGroup { name: format!("{digit}xx"), count: *count });
        Traffic {
            all: self.all,
            bots: self.agents.any.then_some((self.bots, names)),
            routes,
            hosts,
            types,
            statuses: statuses.collect(),
            too_low_by,
        }
    }
}

/// The bots among the user agents: a log has few of them, and each comes often.
#[derive(Debug, Default)]
struct Agents {
    known: HashTable<(u64, Option<Box<str>>)>,
    any: bool,
}

impl Agents {
    fn bot_name(&mut self, agent: &[u8]) -> Option<&str> {
        self.any = true;
        let hash = top::hash_of(agent);
        if self.known.len() >= AGENTS_MAX {
            self.known.clear();
        }
        let known = self.known.entry(hash, |known| known.0 == hash, |known| known.0);
        known.or_insert_with(|| (hash, bots::bot_name(agent).map(Into::into))).into_mut().1.as_deref()
    }
}

/// Host and path, also of an absolute URL.
fn split_url<'a>(host: Option<&'a str>, url: &'a str) -> (Option<&'a str>, &'a [u8]) {
    let path = &url[..memchr2(b'?', b'#', url.as_bytes()).unwrap_or(url.len())];
    // Most URLs are a path.
    match Some(path).filter(|path| !path.starts_with('/')).and_then(|path| path.split_once("://")) {
        Some((_, rest)) => {
            let (of_url, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (host.or(Some(of_url)), path.as_bytes())
        }
        None => (host, path.as_bytes()),
    }
}

/// The first segment of a path, with the slashes around it. That of a number or an id is `*`.
pub(crate) fn route(path: &[u8]) -> &[u8] {
    let start = usize::from(path.starts_with(b"/"));
    let end = memchr(b'/', &path[start..]).map_or(path.len(), |end| start + end);
    match &path[start..end] {
        b"" if end == path.len() => b"/",
        segment if is_id(segment) => b"/*",
        _ => &path[..path.len().min(end + 1)],
    }
}

/// A [`route`] as it is shown: `/assets/*` for all paths below `/assets/`, and `/about`.
fn route_name(route: &str) -> String {
    let slash = if route.starts_with('/') { "" } else { "/" };
    let rest = if route.len() > 1 && route.ends_with('/') { "*" } else { "" };
    format!("{slash}{route}{rest}")
}

/// True for numbers, and for texts of at least eight hexadecimal digits and hyphens, one of them a decimal digit.
fn is_id(segment: &[u8]) -> bool {
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    let has_digit = segment.iter().any(u8::is_ascii_digit);
    has_digit && (segment.iter().all(u8::is_ascii_digit) || segment.len() >= 8 && segment.iter().all(is_hex))
}

/// `text/html` of `text/html; charset=utf-8`.
fn media_type(content_type: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b';' | b' ' | b',' | b'%');
    &content_type[..content_type.iter().position(is_end).unwrap_or(content_type.len())]
}

/// `.css`, or `no ending`.
fn extension(path: &[u8]) -> &[u8] {
    let from = path.len().saturating_sub(EXTENSION_BYTES_MAX + 1);
    let Some(dot) = memrchr(b'.', &path[from..]) else { return b"no ending" };
    let name = &path[from + dot..];
    let end = &name[1..];
    let is_ending = (1..=EXTENSION_BYTES_MAX).contains(&end.len())
        && end.iter().all(u8::is_ascii_alphanumeric)
        && !end.iter().all(u8::is_ascii_digit);
    if is_ending { name } else { b"no ending" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_fold_numbers_and_ids() {
        for (url, folded, ending) in [
            ("/", "/", "no ending"),
            ("/about", "/about", "no ending"),
            ("/assets/app.js?v=1.2", "/assets/*", ".js"),
            ("/assets/", "/assets/*", "no ending"),
            ("/42", "/*", "no ending"),
            ("/42/edit.html", "/*", ".html"),
            ("/3f2504e0-4f89-11d3-9a0c-0305e82c3301/a", "/*", "no ending"),
            ("/deadbeef", "/deadbeef", "no ending"),
            ("/v1.25", "/v1.25", "no ending"),
            ("/a.b/c", "/a.b/*", "no ending"),
            ("https://example.org/img/a.png#b", "/img/*", ".png"),
            ("https://example.org", "/", "no ending"),
            ("*", "/*", "no ending"),
        ] {
            let (_, path) = split_url(None, url);
            let found = route_name(&String::from_utf8_lossy(route(path)));
            assert_eq!((&*found, extension(path)), (folded, ending.as_bytes()), "{url}");
        }
    }

    #[test]
    fn traffic_is_counted_by_bot_route_host_type_and_status() {
        let mut counter = TrafficCounter::default();
        let url = |host, url| LoggedKey::Url { method: "GET", host, url };
        let request = |key, status, bytes| LoggedRequest {
            status: Some(status),
            bytes: Some(bytes),
            ..LoggedRequest::read(key)
        };
        let bot = LoggedRequest {
            user_agent: Some(b"ExampleBot/1.0"),
            content_type: Some(b"text/html; charset=utf-8"),
            repeats: 2,
            ..request(url(Some("b"), "/blog/1"), 200, 10)
        };
        let person = LoggedRequest {
            user_agent: Some(b"Mozilla/5.0 (X11)"),
            ..request(url(Some("a"), "/a.css"), 404, 1)
        };
        assert!(!counter.has_agents());
        assert!(!counter.add(&LoggedRequest { user_agent: None, ..person }));
        assert!(!counter.add(&person) && counter.add(&bot) && !counter.add(&person) && counter.add(&bot));
        assert!(!counter.add(&LoggedRequest::read(LoggedKey::Number(7))));
        let traffic = counter.finish();
        let count = |requests, bytes| Count { requests, bytes };
        let group = |name: &str, requests, bytes| TrafficGroup {
            name: name.to_owned(),
            count: count(requests, bytes),
        };
        assert_eq!(traffic.all, count(8, 43));
        assert_eq!(traffic.bots, Some((count(4, 40), vec![group("ExampleBot", 4, 40)])));
        assert_eq!(traffic.routes, [group("/blog/*", 4, 40), group("/a.css", 3, 3)]);
        assert_eq!(traffic.hosts, [group("b", 4, 40), group("a", 3, 3)]);
        assert_eq!(traffic.types, [group("text/html", 4, 40), group(".css", 3, 3)]);
        assert_eq!(traffic.statuses, [group("2xx", 4, 40), group("4xx", 3, 3)]);
        assert!((traffic.bots_share() - 0.5).abs() < f64::EPSILON);
        assert_eq!(TrafficCounter::default().finish().bots, None);
    }
}
