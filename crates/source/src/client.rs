//! An HTTP client for sources: so many connections and no more, every answer in its time, its body bounded.
//!
//! Redirects are not followed, and compression is not asked for: what is fetched is what is there.

mod connection;
mod tls;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri,
    body::Bytes,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use stockade_model::{
    source::SourceError,
    time::{Live, Runtime, Time, before},
};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    OpenError,
    remote::{Remote, within},
};
use connection::{Connection, Connector};
pub(crate) use tls::Trust;

/// What an id is in a path: all but the unreserved characters of RFC 3986 is encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How long a connection may rest. What forgets one in between, without a word, waits longer.
const REST_MAX: Duration = Duration::from_secs(50);

/// How much of a server's own words is shown.
const WORDS_MAX: usize = 200;

/// A server of HTTP, as a URL names it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    host: String,
    port: u16,
    /// None: no TLS.
    trust: Option<Trust>,
    /// What every request has.
    headers: HeaderMap,
}

impl Server {
    /// Reads the host and the port of a URL, which has no other hosts. `ca` is a setting of ours.
    pub(crate) fn read(remote: &Remote, is_tls: bool, default_port: u16) -> Result<Self, OpenError> {
        let wrong = || remote.wrong("write one host, or HOST:PORT with a port from 1 to 65535");
        let uri: Uri = format!("http://{}/", remote.hosts()).parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let port = match remote.hosts().strip_prefix(host) {
            Some("") => default_port,
            Some(port) => port.trim_start_matches(':').parse().map_err(|_| wrong())?,
            None => return Err(wrong()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let trust = match (is_tls, remote.setting("ca")) {
            (true, ca) => Some(Trust::read(remote, &host, ca)?),
            (false, None) => None,
            (false, Some(_)) => return Err(remote.wrong("`ca` is for a server with TLS")),
        };
        Ok(Self { host, port, trust, headers: headers(remote)? })
    }
}

/// Asks one server. Connections are made when they are needed, and kept.
///
/// Whoever waits for a turn may give up. Whoever has one connects and asks to the end, even where nobody waits for
/// the answer any more: connections are made although clients give up sooner than that takes, and a server that
/// works for those who have left is not given more to do than it may have.
pub(crate) struct Client {
    desk: Arc<Desk>,
    turns: Arc<Semaphore>,
}

/// What a turn needs.
struct Desk {
    /// Where the server is, without secrets.
    name: String,
    clock: Live,
    timeout: Duration,
    headers: HeaderMap,
    connector: Connector,
    /// No more than there are turns. The one that was of use last is last.
    resting: Mutex<VecDeque<Resting>>,
}

/// A connection that nobody uses.
struct Resting {
    connection: Connection,
    since: Time,
}

/// What is asked.
struct Ask {
    method: Method,
    uri: Uri,
    json: Bytes,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    location: Option<String>,
}

impl Client {
    /// On the runtime of the caller. Nobody has been asked yet.
    pub(crate) async fn new(remote: &Remote, server: &Server) -> Result<Self, OpenError> {
        let connector = Connector::new(server).await.map_err(|reason| remote.unusable(reason))?;
        let desk = Desk {
            name: remote.to_string(),
            clock: Live::new(),
            timeout: remote.timeout()?,
            headers: server.headers.clone(),
            connector,
            resting: Mutex::default(),
        };
        Ok(Self { desk: Arc::new(desk), turns: Arc::new(Semaphore::new(remote.connections()?)) })
    }

    /// Connects, and keeps the connection for whoever asks first.
    pub(crate) async fn reach(&self) -> Result<(), SourceError> {
        let connection = self.desk.connect().await?;
        self.desk.rest(connection);
        Ok(())
    }

    /// Gets what is there.
    pub(crate) async fn get(&self, target: &str) -> Result<Answer, SourceError> {
        self.send(Method::GET, target, Bytes::new()).await
    }

    /// Sends JSON; nothing, if that is empty.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        json: Bytes,
    ) -> Result<Answer, SourceError> {
        let desk = &self.desk;
        let until = desk.clock.now() + desk.timeout;
        let ask = Ask { method, uri: target.parse().map_err(|error| desk.failed(error))?, json };
        let answer = before(&desk.clock, until, async {
            let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
            let (tell, told) = oneshot::channel();
            let theirs = Arc::clone(desk);
            desk.clock.spawn(async move {
                let answer = theirs.serve(&ask, until, &tell).await;
                drop(turn);
                // Nobody may wait for it any more.
                let _ = tell.send(answer);
            });
            told.await.ok()
        });
        match answer.await {
            Some(Some(answer)) => answer,
            Some(None) => Err(desk.failed("the runtime that it was opened on has ended")),
            None => Err(desk.late()),
        }
    }

    /// An answer that is no good.
    pub(crate) fn failed(&self, reason: impl fmt::Display) -> SourceError {
        self.desk.failed(reason)
    }
}

impl Desk {
    async fn serve(
        &self,
        ask: &Ask,
        until: Time,
        tell: &oneshot::Sender<Result<Answer, SourceError>>,
    ) -> Result<Answer, SourceError> {
        loop {
            let mut connection = match self.rested().await {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            if tell.is_closed() {
                self.rest(connection);
                return Err(self.late());
            }
            match before(&self.clock, until, connection.exchange(self.request(ask))).await {
                Some(Ok((head, body))) => {
                    self.rest(connection);
                    let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
                    return Ok(Answer { status: head.status, body, location: location.map(str::to_owned) });
                }
                // A server may close a connection that rests at any time: this came too late.
                Some(Err(error))
                    if error.is_unanswered && connection.is_used() && ask.method.is_idempotent() => {}
                Some(Err(error)) => return Err(self.failed(error.reason)),
                None => return Err(self.late()),
            }
        }
    }

    /// Connecting is given the whole time, however late the turn came.
    async fn connect(&self) -> Result<Connection, SourceError> {
        match before(&self.clock, self.clock.now() + self.timeout, self.connector.connect()).await {
            Some(connection) => connection.map_err(|reason| self.failed(reason)),
            None => Err(self.late()),
        }
    }

    /// A connection that was of use before and is still open, as far as one can know.
    async fn rested(&self) -> Option<Connection> {
        loop {
            let mut connection = {
                let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
                let oldest = self.clock.now().back(REST_MAX);
                while resting.front().is_some_and(|resting| resting.since < oldest) {
                    resting.pop_front();
                }
                resting.pop_back()?.connection
            };
            if connection.is_at_rest().await {
                return Some(connection);
            }
        }
    }

    fn rest(&self, connection: Connection) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        resting.push_back(Resting { connection, since: self.clock.now() });
    }

    fn request(&self, ask: &Ask) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(ask.json.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.uri.clone();
        request.headers_mut().clone_from(&self.headers);
        if !ask.json.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request
    }

    fn failed(&self, reason: impl fmt::Display) -> SourceError {
        SourceError::Failed { source_name: self.name.clone(), reason: reason.to_string() }
    }

    fn late(&self) -> SourceError {
        SourceError::TimedOut { source_name: self.name.clone(), after: self.timeout }
    }
}

impl Answer {
    /// What is wrong with an answer that is neither what was asked for nor "not found", and what to do about it.
    pub(crate) fn complaint(&self) -> String {
        let status = self.status;
        let said = self.said().map(|said| format!(" ({said})")).unwrap_or_default();
        match status {
            StatusCode::UNAUTHORIZED => {
                format!("{status}{said}: check the user and the password in the URL, user:password@host")
            }
            StatusCode::FORBIDDEN => format!("{status}{said}: check what this user may do there"),
            _ if status.is_redirection() => match self.location.as_deref() {
                Some(location) => {
                    format!("{status}, to {}: name that place instead", without_secrets(location))
                }
                None => format!("{status}: name the place itself"),
            },
            _ => format!("it answers {status}{said}"),
        }
    }

    /// The reason that a CouchDB gives, and others that answer alike.
    pub(crate) fn said(&self) -> Option<String> {
        let answer: Value = serde_json::from_slice(&self.body).ok()?;
        let reason = answer.get("reason")?.as_str()?;
        Some(reason.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect())
    }
}

/// Percent-encodes an id as one segment of a path. None: a server would take it for a folder.
pub(crate) fn segment(id: &str) -> Option<String> {
    (!matches!(id, "." | "..")).then(|| utf8_percent_encode(id, SEGMENT).to_string())
}

/// What could not be opened, or filled.
pub(crate) fn unopened(remote: &Remote, error: SourceError) -> OpenError {
    match error {
        SourceError::Failed { reason, .. } => remote.unusable(reason),
        SourceError::TimedOut { after, .. } => {
            remote.unusable(format!("{}: check host and port, or give it more with timeout=", within(after)))
        }
    }
}

/// Whether two documents are the same: byte for byte, or as JSON. Who reads JSON and writes it again may
/// order members and write numbers as they like.
pub(crate) fn is_same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| is_same_value(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, left)| right.get(name).is_some_and(|right| is_same_value(left, right)))
        }
        _ => left == right,
    }
}

/// What every request has.
fn headers(remote: &Remote) -> Result<HeaderMap, OpenError> {
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(remote.hosts());
    headers.insert(HOST, host.map_err(|_| remote.wrong("its host has characters that no host has"))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("stockade/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if remote.has_credentials() {
        let wrong = || remote.wrong("its user or its password is no UTF-8");
        let (user, password) = remote.credentials().ok_or_else(wrong)?;
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        let mut basic = HeaderValue::from_str(&basic).map_err(|_| wrong())?;
        basic.set_sensitive(true);
        headers.insert(AUTHORIZATION, basic);
    }
    Ok(headers)
}

/// The place of a redirect. Its parameters may be keys.
fn without_secrets(location: &str) -> String {
    let place = location.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = place.split_once("//").unwrap_or(("", place));
    let slashes = if scheme.is_empty() && !place.starts_with("//") { "" } else { "//" };
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    format!("{scheme}{slashes}{rest}").chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redirects_are_told_without_secrets() {
        for (location, expected) in [
            ("https://ada:secret@host/docs/a?key=secret", "https://host/docs/a"),
            ("//host/a#secret", "//host/a"),
            ("/login?next=a//b", "/login"),
            ("a/b", "a/b"),
        ] {
            assert_eq!(without_secrets(location), expected);
        }
    }

    #[test]
    fn json_is_compared_as_values() {
        let stored = json!({ "a": 1, "b": [9_007_199_254_740_992_u64, null, "x"] });
        let written = json!({ "b": [9_007_199_254_740_993_u64, null, "x"], "a": 1.0 });
        assert!(is_same_value(&stored, &written));
        for other in [json!({ "a": 1 }), json!({ "a": 2, "b": [] }), json!([]), json!({ "a": 1, "c": [] })] {
            assert!(!is_same_value(&stored, &other), "{other}");
        }
    }

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        assert_eq!(segment("a/b c?ü~.-_").as_deref(), Some("a%2Fb%20c%3F%C3%BC~.-_"));
        assert_eq!((segment("."), segment("..")), (None, None));
    }
}
