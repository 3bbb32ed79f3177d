//! The users of an audit: each has a connection of its own and sends one request.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response,
    header::{AsHeaderName, CONTENT_ENCODING, CONTENT_LENGTH, HOST, USER_AGENT},
};
use http_body_util::Full;
use stockade_http::{
    client::{AGENT, ClientError, Connector, HttpUrl, up_to},
    tls::{Trust, TrustError},
};
use stockade_model::time::{Live, Runtime, Time, before};
use tokio::net::TcpStream;

use crate::{
    stamp::{BodyFault, Stamp},
    truth::{Example, Truth, Violation},
};

/// The largest response that a user takes.
const RESPONSE_BYTES_MAX: usize = 96 << 20;
/// The time that a user waits, unless a test needs another.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Sends requests to the cache, and checks each response against the page that the origin sent.
pub(crate) struct Users {
    connector: Connector,
    host: HeaderValue,
    /// Scheme, host and port of the cache.
    origin: String,
    time: Live,
    truth: RefCell<Truth>,
}

/// A request that is not yet sent.
pub(crate) struct Ask<'a> {
    users: &'a Users,
    method: Method,
    path: String,
    headers: HeaderMap,
    patience: Duration,
}

/// A request as its user saw it.
#[derive(Clone, Debug)]
pub(crate) struct UserRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Without those that each request has.
    pub(crate) headers: HeaderMap,
    /// When it was sent, after its connection was made.
    pub(crate) sent: Time,
    /// From the request, or its failed connection, to the last byte or the failure.
    pub(crate) took: Duration,
    pub(crate) result: Result<Response<Bytes>, RequestFailure>,
}

/// A request without a whole response.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error("no response after {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Failed(String),
}

impl Users {
    pub(crate) fn new(url: &HttpUrl, time: Live) -> Result<Self, TrustError> {
        let tls = url.is_encrypted.then(|| Trust::Insecure.client_config()).transpose()?;
        let host = HeaderValue::from_str(&url.authority).unwrap_or(HeaderValue::from_static("localhost"));
        let connector = Connector::new(&url.host, url.port, tls);
        Ok(Self { connector, host, origin: url.origin(), time, truth: RefCell::default() })
    }

    /// A GET request for a path, with its query.
    pub(crate) fn ask(&self, path: &str) -> Ask<'_> {
        Ask {
            users: self,
            method: Method::GET,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            patience: PATIENCE,
        }
    }

    /// One user's GET request.
    pub(crate) async fn get(&self, path: &str) -> UserRequest {
        self.ask(path).send().await
    }

    /// Requests of this many users at once.
    pub(crate) async fn herd(&self, path: &str, users: usize, patience: Duration) -> Vec<UserRequest> {
        join_all((0..users).map(|_| self.ask(path).patience(patience).send())).await
    }

    pub(crate) async fn wait(&self, duration: Duration) {
        self.time.sleep_until(self.time.now() + duration).await;
    }

    /// Scheme, host and port of the cache.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn now(&self) -> Time {
        self.time.now()
    }

    /// A connection to the cache, without TLS.
    pub(crate) async fn tcp(&self) -> Result<TcpStream, ClientError> {
        self.connector.tcp().await
    }

    /// Counts a false answer, and keeps the first of its kind, unless its body was counted when it arrived. `rule`: where the rule
    /// stands, such as `RFC 9111, 3.5`.
    pub(crate) fn found(&self, violation: Violation, request: &UserRequest, rule: &'static str) {
        if request.body_fault().is_none() {
            self.count(violation, request, rule);
        }
    }

    fn count(&self, violation: Violation, request: &UserRequest, rule: &'static str) {
        self.truth.borrow_mut().add(violation, || request.example(rule));
    }

    /// The requests so far, and the false answers to them.
    pub(crate) fn truth(&self) -> Truth {
        self.truth.borrow().clone()
    }

    /// Counts the request, and its response as false if it has a broken page, whatever its test is about.
    fn check(&self, request: &UserRequest) {
        self.truth.borrow_mut().requests += 1;
        if let Some((violation, rule)) = request.body_fault() {
            self.count(violation, request, rule);
        }
    }
}

impl Ask<'_> {
    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Adds a field. `host` replaces that of the URL.
    pub(crate) fn field(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }

    /// The user gives up, and closes the connection, after this time.
    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(crate) async fn send(self) -> UserRequest {
        let Self { users, method, path, headers, patience } = self;
        let called = users.time.now();
        let sent = Cell::new(called);
        let exchange = async {
            let mut request = Request::new(Full::new(Bytes::new()));
            *request.method_mut() = method.clone();
            *request.uri_mut() =
                path.parse().map_err(|_| RequestFailure::Failed(format!("`{path}` is not a path")))?;
            request.headers_mut().insert(HOST, users.host.clone());
            request.headers_mut().insert(USER_AGENT, AGENT);
            // RFC 9110, 8.6: some caches refuse these methods without it.
            if [Method::POST, Method::PUT].contains(&method) {
                request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            request.headers_mut().extend(headers.clone());
            let failed = |error: ClientError| RequestFailure::Failed(error.to_string());
            let mut connection = users.connector.connect().await.map_err(failed)?;
            sent.set(users.time.now());
            connection.exchange(request, up_to(RESPONSE_BYTES_MAX)).await.map_err(failed)
        };
        let result = before(&users.time, called + patience, exchange).await;
        let result = result.unwrap_or(Err(RequestFailure::TimedOut(patience)));
        let sent = sent.get();
        let request = UserRequest { method, path, headers, sent, took: users.time.now() - sent, result };
        users.check(&request);
        request
    }
}

impl UserRequest {
    /// True for a whole response with status 200.
    pub(crate) fn is_ok(&self) -> bool {
        self.status() == Some(200)
    }

    /// The status of a whole response.
    pub(crate) fn status(&self) -> Option<u16> {
        self.result.as_ref().ok().map(|response| response.status().as_u16())
    }

    /// The first value of a field of the response.
    pub(crate) fn field(&self, name: impl AsHeaderName) -> Option<&str> {
        self.result.as_ref().ok()?.headers().get(name)?.to_str().ok()
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.result.as_ref().map_or(&[], |response| response.body())
    }

    /// The page in the response, whole and unchanged.
    pub(crate) fn page(&self) -> Result<Stamp, BodyFault> {
        Stamp::of(self.body())
    }

    /// The fault of a body that has to be a whole page without a content coding.
    fn body_fault(&self) -> Option<(Violation, &'static str)> {
        if !self.is_ok() || self.method != Method::GET || self.field(CONTENT_ENCODING).is_some() {
            return None;
        }
        match self.page() {
            Ok(_) | Err(BodyFault::NotStamped) => None,
            Err(BodyFault::Truncated { .. }) => Some((Violation::Truncated, "RFC 9112, 8")),
            Err(BodyFault::Corrupt) => Some((Violation::WrongBody, "RFC 9111, 4")),
        }
    }

    /// The load whose page it got.
    pub(crate) fn load(&self) -> Option<usize> {
        self.page().ok().map(|page| page.load)
    }

    /// When the last byte arrived, or the request failed.
    pub(crate) fn ended(&self) -> Time {
        self.sent + self.took
    }

    /// The status or the failure: `status 503`, `no response after 10s`.
    pub(crate) fn outcome(&self) -> String {
        match &self.result {
            Ok(response) => format!("status {}", response.status().as_u16()),
            Err(error) => error.to_string(),
        }
    }

    fn example(&self, rule: &'static str) -> Example {
        let mut request = format!("{} {}", self.method, self.path);
        for (name, value) in &self.headers {
            let _ = write!(request, ", {name}: {}", String::from_utf8_lossy(value.as_bytes()));
        }
        let mut response = self.outcome();
        for name in ["age", "cache-control", "content-length", "content-range", "etag", "vary"] {
            if let Some(value) = self.field(name) {
                let _ = write!(response, ", {name}: {value}");
            }
        }
        let _ = match self.page() {
            Ok(Stamp { load, owner, variant, .. }) => {
                write!(
                    response,
                    "; page of load {load}{}{}",
                    named(" owner", &owner),
                    named(" variant", &variant)
                )
            }
            Err(fault) => write!(response, "; {fault}"),
        };
        Example { request, answer: response, rule: rule.to_owned() }
    }
}

/// `NAME VALUE`; empty without a value.
fn named(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(",{name} {value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, body: Bytes, coding: Option<&'static str>) -> UserRequest {
        let mut response = Response::new(body);
        let coding = coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding)));
        response.headers_mut().extend(coding);
        let (path, headers, sent, took) = ("/a".to_owned(), HeaderMap::new(), Time::ZERO, Duration::ZERO);
        UserRequest { method, path, headers, sent, took, result: Ok(response) }
    }

    #[test]
    fn broken_bodies_are_faults_of_plain_pages_alone() {
        let page = Stamp { path: "/a".to_owned(), bytes: 1_000, ..Stamp::default() }.body();
        let part = page.slice(..500);
        let fault = |method, body: &Bytes, coding| {
            request(method, body.clone(), coding).body_fault().map(|(violation, _)| violation)
        };
        assert_eq!(fault(Method::GET, &page, None), None);
        assert_eq!(fault(Method::GET, &part, None), Some(Violation::Truncated));
        assert_eq!(fault(Method::GET, &[&page[..], b"x"].concat().into(), None), Some(Violation::WrongBody));
        assert_eq!(fault(Method::HEAD, &part, None), None);
        assert_eq!(fault(Method::GET, &part, Some("gzip")), None);
        assert_eq!(fault(Method::GET, &Bytes::from_static(b"an error of the cache"), None), None);
    }
}
