//! Pages in a browser: of a run in progress, and of records.

mod browse;
mod live;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use stockade_http::{
    guard,
    server::{self, ServerLimits, WhenFull},
};
use stockade_model::seed::Seed;

pub use self::{browse::ui, live::LiveUi};

/// A connection has one request, which may be for the changes of a page.
const LIMITS: ServerLimits = ServerLimits {
    connections_max: 32,
    connection_time_max: Duration::from_mins(1),
    head_time_max: Duration::from_secs(2),
    is_keep_alive: false,
    when_full: WhenFull::Wait,
};
/// Headers of every response. No header may pass on the URL, which has the token.
const HEADERS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
];
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Pages cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum UiError {
    #[error("cannot serve the page at {address}: {error}; choose another address, or port 0 for a free one")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot serve the page: {0}")]
    Serve(io::Error),
}

/// Access to the pages: without a token on a loopback address, with the token on others.
#[derive(Clone)]
struct Access {
    token: Option<Arc<str>>,
}

impl Access {
    fn of(address: SocketAddr) -> Self {
        let token =
            || ["high", "low"].map(|half| format!("{:016x}", Seed::from_entropy().child(half).0)).concat();
        Self { token: (!address.ip().is_loopback()).then(|| token().into()) }
    }

    /// The query with the token; empty if none is needed.
    fn query(&self) -> String {
        self.token.as_ref().map(|token| format!("token={token}")).unwrap_or_default()
    }

    /// The URL of the first page.
    fn url(&self, address: SocketAddr) -> String {
        let query = self.query();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("http://{address}/{mark}{query}")
    }

    /// The refusal of a request without access.
    fn refusal<R, B: From<Bytes>>(&self, request: &Request<R>) -> Option<Response<B>> {
        let is_allowed = match &self.token {
            Some(token) => parameter(request, "token")
                .is_some_and(|shown| guard::is_token(shown.as_bytes(), token.as_bytes())),
            None => guard::admit(request, &[], false).is_ok(),
        };
        if !is_allowed {
            let text = "this page needs the token that the command printed, or an address of this machine as its host\n";
            return Some(server::text(StatusCode::FORBIDDEN, text));
        }
        server::refused_method(request.method(), &Method::GET)
    }
}

/// Adds the headers that every response has.
fn harden(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The values of a parameter of the query, which is not decoded: tokens and numbers need no escapes.
fn parameters<'r, B>(request: &'r Request<B>, name: &'static str) -> impl Iterator<Item = &'r str> {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(move |(of, _)| *of == name).map(|(_, value)| value)
}

fn parameter<'r, B>(request: &'r Request<B>, name: &'static str) -> Option<&'r str> {
    parameters(request, name).next()
}
