//! An HTTP client for sources with bounded connections, timeouts and bounded bodies.
//!
//! It follows no redirects and requests no compression: a document has the bytes of the response.

mod error;

use std::{
    collections::VecDeque,
    fmt, panic,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT},
};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::ServerName;
use serde_json::Value;
use stockade_http::{
    client::{AGENT, ClientError, Connection, Connector, up_to},
    location::redact,
    tls::Trust,
};
use stockade_model::{
    message::is_unprintable,
    source::SourceError,
    time::{Live, Runtime, Time, before},
};
use tokio::{
    sync::{Semaphore, oneshot},
    task::spawn_blocking,
};

use crate::{
    OpenError,
    remote::{Remote, within},
};
use error::{explain, trust_error};

/// Encodes all characters of an id except the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Idle time of a connection. Network devices that drop idle connections silently wait longer.
const IDLE_MAX: Duration = Duration::from_secs(50);

const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Limit of a server's text in a message.
const MESSAGE_CHARS_MAX: usize = 200;

/// An HTTP server in a URL.
#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    host: String,
    port: u16,
    /// `None`: no TLS.
    trust: Option<Trust>,
    /// Sent with each request.
    headers: HeaderMap,
}

impl HttpServer {
    /// Parses the one host and the port of a URL, and its setting `ca`.
    pub(crate) fn parse(remote: &Remote, is_tls: bool, default_port: u16) -> Result<Self, OpenError> {
        let wrong = || remote.invalid("write one host, or HOST:PORT with a port from 1 to 65535");
        let uri: Uri = format!("http://{}/", remote.hosts()).parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let port = match remote.hosts().strip_prefix(host) {
            Some("") => default_port,
            Some(port) => port.trim_start_matches(':').parse().map_err(|_| wrong())?,
            None => return Err(wrong()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let trust = match (is_tls, remote.setting("ca")) {
            (true, _) if ServerName::try_from(host.as_str()).is_err() => {
                return Err(remote.invalid("a certificate cannot have the name of its host"));
            }
            (true, Some("")) => return Err(remote.invalid("`ca` names no file")),
            (true, ca) => Some(ca.map_or(Trust::System, |ca| Trust::File(PathBuf::from(ca)))),
            (false, None) => None,
            (false, Some(_)) => return Err(remote.invalid("`ca` is for a server with TLS")),
        };
        Ok(Self { host, port, trust, headers: headers(remote)? })
    }
}

/// A client of one server. It connects on demand and keeps connections.
///
/// A request that waits for a permit can be cancelled. A request with a permit runs to its end in a task, also after its
/// caller is dropped: a connection is made even if callers have a shorter timeout, and a server that still works on
/// cancelled requests gets no more concurrent requests than the limit.
pub(crate) struct HttpClient {
    pool: Arc<HttpPool>,
    permits: Arc<Semaphore>,
}

/// The connections of one client.
struct HttpPool {
    /// URL without secrets.
    name: String,
    clock: Live,
    timeout: Duration,
    headers: HeaderMap,
    host: String,
    connector: Connector,
    /// At most one for each permit. The last one was used last.
    idle: Mutex<VecDeque<IdleHttpConnection>>,
}

struct IdleHttpConnection {
    connection: Connection,
    since: Time,
}

struct HttpRequest {
    method: Method,
    uri: Uri,
    json: Bytes,
}

pub(crate) type HttpResponse = Response<Bytes>;

impl HttpClient {
    /// Uses the runtime of the caller. Does not connect.
    pub(crate) async fn new(remote: &Remote, server: &HttpServer) -> Result<Self, OpenError> {
        let HttpServer { host, port, trust, .. } = server.clone();
        let tls = match trust {
            Some(trust) => {
                let config = spawn_blocking(move || trust.client_config()).await;
                let config = config.unwrap_or_else(|lost| panic::resume_unwind(lost.into_panic()));
                Some(config.map_err(|error| remote.unusable(trust_error(&error)))?)
            }
            None => None,
        };
        let pool = HttpPool {
            name: remote.to_string(),
            clock: Live::new(),
            timeout: remote.timeout()?,
            headers: server.headers.clone(),
            connector: Connector::new(&host, port, tls),
            host,
            idle: Mutex::default(),
        };
        Ok(Self { pool: Arc::new(pool), permits: Arc::new(Semaphore::new(remote.connections()?)) })
    }

    /// Connects, and keeps the connection for the first request.
    #[cfg(feature = "http")]
    pub(crate) async fn connect(&self) -> Result<(), SourceError> {
        let connection = self.pool.connect().await?;
        self.pool.put_idle(connection);
        Ok(())
    }

    pub(crate) async fn get(&self, target: &str) -> Result<HttpResponse, SourceError> {
        self.send(Method::GET, target, Bytes::new()).await
    }

    /// Sends JSON; no body if it is empty.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        json: Bytes,
    ) -> Result<HttpResponse, SourceError> {
        let pool = &self.pool;
        let until = pool.clock.now() + pool.timeout;
        let request = HttpRequest { method, uri: target.parse().map_err(|error| pool.failed(error))?, json };
        let response = before(&pool.clock, until, async {
            let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
            let (sender, receiver) = oneshot::channel();
            let task_pool = Arc::clone(pool);
            pool.clock.spawn(async move {
                let response = task_pool.exchange(&request, until, &sender).await;
                drop(permit);
                // An error means that the caller was dropped.
                let _ = sender.send(response);
            });
            receiver.await.ok()
        });
        match response.await {
            Some(Some(response)) => response,
            Some(None) => Err(pool.failed("the runtime that it was opened on has ended")),
            None => Err(pool.timed_out()),
        }
    }

    /// The error of an unexpected response.
    pub(crate) fn failed(&self, reason: impl fmt::Display) -> SourceError {
        self.pool.failed(reason)
    }
}

impl HttpPool {
    async fn exchange(
        &self,
        request: &HttpRequest,
        until: Time,
        sender: &oneshot::Sender<Result<HttpResponse, SourceError>>,
    ) -> Result<HttpResponse, SourceError> {
        loop {
            let mut connection = match self.take_idle().await {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            if sender.is_closed() {
                self.put_idle(connection);
                return Err(self.timed_out());
            }
            match before(
                &self.clock,
                until,
                connection.exchange(self.message(request), up_to(BODY_BYTES_MAX)),
            )
            .await
            {
                Some(Ok(response)) => {
                    self.put_idle(connection);
                    return Ok(response);
                }
                // The server closed an idle connection at the same moment.
                Some(Err(ClientError::NoReply(_)))
                    if connection.is_used() && request.method.is_idempotent() => {}
                Some(Err(error)) => return Err(self.failed(explain(&error, &self.host))),
                None => return Err(self.timed_out()),
            }
        }
    }

    /// Connecting may take the whole timeout, independent of the wait for the permit.
    async fn connect(&self) -> Result<Connection, SourceError> {
        match before(&self.clock, self.clock.now() + self.timeout, self.connector.connect()).await {
            Some(connection) => connection.map_err(|error| self.failed(explain(&error, &self.host))),
            None => Err(self.timed_out()),
        }
    }

    /// A kept connection that is still open, as far as this side knows.
    async fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let oldest = self.clock.now().back(IDLE_MAX);
                while idle.front().is_some_and(|idle| idle.since < oldest) {
                    idle.pop_front();
                }
                idle.pop_back()?.connection
            };
            if connection.is_idle().await {
                return Some(connection);
            }
        }
    }

    fn put_idle(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push_back(IdleHttpConnection { connection, since: self.clock.now() });
    }

    fn message(&self, request: &HttpRequest) -> Request<Full<Bytes>> {
        let mut message = Request::new(Full::new(request.json.clone()));
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = request.uri.clone();
        message.headers_mut().clone_from(&self.headers);
        if !request.json.is_empty() {
            message.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        message
    }

    fn failed(&self, reason: impl fmt::Display) -> SourceError {
        SourceError::Failed { source_name: self.name.clone(), reason: reason.to_string() }
    }

    fn timed_out(&self) -> SourceError {
        SourceError::TimedOut { source_name: self.name.clone(), after: self.timeout }
    }
}

/// Cause and remedy of a response that is neither a document nor "not found".
pub(crate) fn error_message(response: &HttpResponse) -> String {
    let status = response.status();
    let reason = reason(response).map(|reason| format!(" ({reason})")).unwrap_or_default();
    match status {
        StatusCode::UNAUTHORIZED => {
            format!("{status}{reason}: check the user and the password in the URL, user:password@host")
        }
        StatusCode::FORBIDDEN => format!("{status}{reason}: check what this user may do there"),
        _ if status.is_redirection() => {
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            match location {
                Some(location) => {
                    format!("{status}, to {}: name that place instead", shortened(&redact(location)))
                }
                None => format!("{status}: name the place itself"),
            }
        }
        _ => format!("it answers {status}{reason}"),
    }
}

/// `reason` of a body in JSON, as CouchDB has it.
pub(crate) fn reason(response: &HttpResponse) -> Option<String> {
    let response: Value = serde_json::from_slice(response.body()).ok()?;
    let reason = response.get("reason")?.as_str()?;
    Some(shortened(reason))
}

/// A server's text, for a message.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !is_unprintable(*c)).take(MESSAGE_CHARS_MAX).collect()
}

/// An id as one segment of a path. `None`: servers treat it as a folder.
pub(crate) fn segment(id: &str) -> Option<String> {
    (!matches!(id, "." | "..")).then(|| utf8_percent_encode(id, SEGMENT).to_string())
}

pub(crate) fn open_error(remote: &Remote, error: SourceError) -> OpenError {
    match error {
        SourceError::Failed { reason, .. } => remote.unusable(reason),
        SourceError::TimedOut { after, .. } => {
            remote.unusable(format!("{}: check host and port, or give it more with timeout=", within(after)))
        }
    }
}

/// Equality of JSON values: a server may reorder members and write numbers in another form.
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

fn headers(remote: &Remote) -> Result<HeaderMap, OpenError> {
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(remote.hosts());
    headers.insert(HOST, host.map_err(|_| remote.invalid("its host has characters that no host has"))?);
    headers.insert(USER_AGENT, AGENT);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if remote.has_credentials() {
        let wrong = || remote.invalid("its user or its password is not UTF-8");
        let (user, password) = remote.credentials().ok_or_else(wrong)?;
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        let mut basic = HeaderValue::from_str(&basic).map_err(|_| wrong())?;
        basic.set_sensitive(true);
        headers.insert(AUTHORIZATION, basic);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_compared_by_value() {
        let stored = json!({ "a": 1, "b": [9_007_199_254_740_992_u64, null, "x"] });
        let written = json!({ "b": [9_007_199_254_740_993_u64, null, "x"], "a": 1.0 });
        assert!(is_same_value(&stored, &written));
        for other in [json!({ "a": 1 }), json!({ "a": 2, "b": [] }), json!([]), json!({ "a": 1, "c": [] })] {
            assert!(!is_same_value(&stored, &other), "{other}");
        }
    }

    #[test]
    fn id_is_one_segment_of_a_path() {
        assert_eq!(segment("a/b c?ü~.-_").as_deref(), Some("a%2Fb%20c%3F%C3%BC~.-_"));
        assert_eq!((segment("."), segment("..")), (None, None));
    }
}
