//! A request inside the proxy: its head, its route, and what is for this client alone.

use std::{
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version,
    header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, MAX_FORWARDS, VIA},
    request::Parts,
};
use http_body::Body;
use http_body_util::Empty;
use smallvec::SmallVec;
use stockade_cache::{Error, Reason};
use stockade_model::seed::Seed;

use super::{
    client::RequestClient,
    fetched_body::FetchedBody,
    origin::{OriginError, RequestBody},
    router::Route,
    runtime::system_now,
    stored::RequestIdentity,
};
use crate::{
    config::ClientDirectives,
    log::OriginResult,
    policy::{
        directives::{RequestDirectives, ResponseDirectives},
        forwarded::{self, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO},
        hop,
        key::CacheKey,
        override_field::{Override, override_of},
    },
};
use stockade_http::upstream::{
    Requester, UpstreamError,
    shares::{Client, Clients},
};

/// The `Trailer` field of a response that is passed on to a client which takes trailers: an extension of the response.
#[derive(Clone)]
pub struct AnnouncedTrailers(pub HeaderValue);

/// This process's unique name in `Via`; a request that already carries it is in a loop.
pub fn pseudonym() -> &'static str {
    static PSEUDONYM: OnceLock<String> = OnceLock::new();
    PSEUDONYM.get_or_init(|| format!("stockade-{:08x}", Seed::from_entropy().0 >> 32))
}

/// Joins the `Cookie` lines into which HTTP/2 clients may split the field (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    if lines.nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(mut joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        joined.set_sensitive(true);
        headers.insert(COOKIE, joined);
    }
}

pub struct RequestContext {
    pub method: Method,
    pub version: Version,
    /// Without hop-by-hop and override fields, and with `X-Forwarded-For`.
    pub headers: HeaderMap,
    pub key: CacheKey,
    /// Empty if the route ignores them.
    pub directives: RequestDirectives,
    pub client: RequestClient,
    pub route: Arc<Route>,
    takes_trailers: bool,
    /// Its client left before there was a reply.
    is_abandoned: AtomicBool,
    /// It has led a load.
    has_loaded: AtomicBool,
    private: Mutex<PrivateParts>,
}

/// Marks a request as abandoned if it is dropped before there is a reply.
pub struct AbandonGuard<'a>(Option<&'a RequestContext>);

/// Parts of the origin's response for this client alone. Boxed, because most requests do not have them.
#[derive(Default)]
struct PrivateParts {
    response: Option<Box<Response<FetchedBody>>>,
    is_replied: bool,
    /// Fields that are not stored with a shared response.
    fields: Option<Box<HeaderMap>>,
    /// For the access log.
    origin: Option<OriginResult>,
    /// For the access log.
    error: Option<Box<str>>,
}

impl RequestContext {
    /// `head` has been validated by the frontend.
    #[must_use]
    pub fn new(head: Parts, key: CacheKey, client: RequestClient, route: Arc<Route>) -> Self {
        let Parts { method, version, mut headers, .. } = head;
        let takes_trailers = hop::takes_trailers(&headers);
        hop::strip(&mut headers);
        // First of all: `Vary` selects by the fields that the origin sees.
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let is_removed = |name: &str| match override_of(name) {
            Some(Override::Method) => is_read,
            other => other.is_some(),
        };
        // One pass over the names is cheaper than a lookup of each listed name.
        let removed: SmallVec<[HeaderName; 4]> =
            headers.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
        removed.iter().for_each(|name| drop(headers.remove(name)));
        join_cookies(&mut headers);
        // A response may vary on it.
        headers.insert(X_FORWARDED_FOR, forwarded::addresses_field(&client.addresses));
        let directives = match route.config.table.client_directives {
            ClientDirectives::Obey => RequestDirectives::read(&headers),
            ClientDirectives::Ignore => RequestDirectives::default(),
        };
        let private = Mutex::default();
        let (is_abandoned, has_loaded) = (AtomicBool::new(false), AtomicBool::new(false));
        Self {
            method,
            version,
            headers,
            key,
            directives,
            client,
            route,
            takes_trailers,
            is_abandoned,
            has_loaded,
            private,
        }
    }

    #[must_use]
    pub fn abandon_guard(&self) -> AbandonGuard<'_> {
        AbandonGuard(Some(self))
    }

    /// True if the client left before there was a reply.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Relaxed)
    }

    pub fn note_load(&self) {
        self.has_loaded.store(true, Relaxed);
    }

    /// True if the request has started a load. The answer may be another's.
    #[must_use]
    pub fn has_loaded(&self) -> bool {
        self.has_loaded.load(Relaxed)
    }

    #[must_use]
    pub fn identity(&self) -> RequestIdentity {
        if self.headers.contains_key(AUTHORIZATION) {
            RequestIdentity::Credentials
        } else if self.headers.contains_key(COOKIE) {
            RequestIdentity::Cookie
        } else {
            RequestIdentity::Anonymous
        }
    }

    /// True if the origin may recognise the user: by credentials or a cookie.
    #[must_use]
    pub fn may_identify_user(&self) -> bool {
        self.identity() != RequestIdentity::Anonymous
    }

    /// Keeps a response for this client alone, unless the client has already been replied to.
    pub fn set_private_response(&self, response: Response<FetchedBody>) {
        let mut private = self.private();
        if !private.is_replied {
            private.response = Some(Box::new(response));
        }
    }

    /// Drops an unused private response, and with it the connection to the origin.
    pub fn mark_replied(&self) {
        let mut private = self.private();
        private.is_replied = true;
        let _unused = private.response.take();
    }

    pub fn take_private_response(&self) -> Option<Response<FetchedBody>> {
        self.private().response.take().map(|response| *response)
    }

    /// The origin's result, and why it was not asked or did not respond.
    #[must_use]
    pub fn take_result(&self) -> (Option<OriginResult>, Option<Box<str>>) {
        let mut private = self.private();
        (private.origin, private.error.take())
    }

    /// Keeps the error of a failed load for the access log.
    pub fn note_reason(&self, reason: &Reason) {
        if let Reason::Failed(error) = reason {
            self.note_error(error);
        }
    }

    /// Keeps the reason of a refusal for the access log.
    pub fn note_refusal(&self, reason: &str) {
        self.private().error = Some(reason.into());
    }

    /// Keeps the error for the access log.
    pub fn note_error(&self, error: &Error) {
        let text = match error {
            Error::Load(failure) => failure.to_string(),
            error => error.to_string(),
        };
        self.private().error = Some(text.into());
    }

    /// Keeps the fields that `no-cache="..."` and `private="..."` exclude from the stored response.
    pub fn keep_private_fields(&self, directives: &ResponseDirectives, headers: &HeaderMap) {
        directives
            .no_cache
            .fields()
            .iter()
            .chain(directives.private.fields())
            .for_each(|name| self.keep_private_field(name, headers));
    }

    pub fn keep_private_field(&self, name: &HeaderName, headers: &HeaderMap) {
        let mut private = self.private();
        let fields = private.fields.get_or_insert_default();
        fields.remove(name);
        for value in headers.get_all(name) {
            fields.append(name, value.clone());
        }
    }

    pub fn take_private_fields(&self) -> HeaderMap {
        self.private().fields.take().map(|fields| *fields).unwrap_or_default()
    }

    fn private(&self) -> MutexGuard<'_, PrivateParts> {
        self.private.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The header fields that the origin is sent.
    #[must_use]
    pub fn forward_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        hop::add_via(&mut headers, self.version, pseudonym());
        if self.method == Method::OPTIONS
            && let Some(left) = hop::forwards_left(&headers)
        {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
        }
        if let Ok(host) = HeaderValue::from_str(self.key.authority()) {
            headers.insert(HOST, host.clone());
            headers.insert(X_FORWARDED_HOST, host);
        }
        let scheme = if self.client.is_tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        headers
    }

    /// The request of a load: an unconditional GET for the whole representation.
    pub fn load_request(&self) -> Result<Request<Empty<Bytes>>, OriginError> {
        let mut headers = self.forward_headers();
        hop::for_load(&mut headers);
        // The body of a GET is not part of the key, so it is not sent.
        let content_fields: Vec<_> =
            headers.keys().filter(|name| name.as_str().starts_with("content-")).cloned().collect();
        content_fields.iter().for_each(|name| drop(headers.remove(name)));
        self.origin_request(Method::GET, headers, Empty::new())
    }

    /// A request for the URL of the cache key. The error is a key whose target cannot be sent.
    pub fn origin_request<B: Body>(
        &self,
        method: Method,
        mut headers: HeaderMap,
        body: B,
    ) -> Result<Request<B>, OriginError> {
        // The frontend has met the expectation. An origin that answers it with a final status may leave the body unread on the
        // connection, and one that expects a body which is not sent takes the next request for it.
        headers.remove(EXPECT);
        if body.is_end_stream() && headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0") {
            headers.remove(CONTENT_LENGTH);
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // The key normalises the target; the origin has to see the same spelling.
        let target: Result<Uri, _> = self.key.path_and_query().parse();
        *request.uri_mut() = target
            .map_err(|error| UpstreamError::Unsendable { reason: format!("the target: {error}").into() })?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Sends a request to the route's origin; records its time for metrics, and its result for the log. `others` returns
    /// the other clients that wait for the response ([`Requester::others`]).
    pub async fn send<B: RequestBody>(
        &self,
        request: Request<B>,
        others: &(dyn Fn() -> Option<Clients> + Send + Sync),
    ) -> Result<Response<FetchedBody>, OriginError> {
        let started = system_now();
        let requester = Requester { client: self.bounded_client(), others };
        let mut result = self.route.origin.send(request, &requester).await;
        if let Ok(response) = &mut result
            && self.takes_trailers
            && let Some(names) = hop::announced_trailers(response.headers())
        {
            response.extensions_mut().insert(AnnouncedTrailers(names));
        }
        let status = result.as_ref().ok().map(|response| response.status().as_u16());
        let ended_at = system_now();
        let took = ended_at.duration_since(started).unwrap_or_default();
        self.route.counts.load().note(took);
        if let Some(keys) = &self.route.keys {
            keys.note_load(&self.key, took, status, ended_at);
        }
        let error = result.as_ref().err().map(|error| error.to_string().into());
        let mut private = self.private();
        (private.origin, private.error) = (Some(OriginResult { status, took }), error);
        drop(private);
        result
    }

    /// The client as the breaker counts it.
    #[must_use]
    pub fn client(&self) -> Option<NonZeroU64> {
        Some(self.client.network.number())
    }

    /// The client whose share of connections to origins the request takes.
    #[must_use]
    pub fn bounded_client(&self) -> Client {
        self.client().filter(|_| self.client.is_bounded)
    }

    #[must_use]
    pub fn is_loop(&self) -> bool {
        self.headers.contains_key(VIA) && hop::is_loop(&self.headers, pseudonym())
    }
}

impl AbandonGuard<'_> {
    /// There is a reply.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            context.is_abandoned.store(true, Relaxed);
        }
    }
}
