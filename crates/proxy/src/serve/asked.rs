//! A request, as the cache sees it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version,
    header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, VIA},
    request::Parts,
};
use http_body::Body;
use http_body_util::Empty;
use smallvec::SmallVec;
use stockade_model::seed::Seed;

use super::{origin::OriginBody, routes::Route};
use crate::{
    front::Peer,
    log::OriginAnswer,
    policy::{
        directives::{RequestDirectives, ResponseDirectives},
        hop,
        key::Key,
    },
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// By these, origins and their frameworks can be told another host, path or scheme than those that an answer is known
/// by. Who may say so fills the place of a path with the answer to another one, for everybody ("Practical Web Cache
/// Poisoning", Kettle, 2018), or has the answer to a POST outdate another one. What has to be told of them, this proxy
/// tells.
const OF_ANOTHER_TARGET: [&str; 19] = [
    "x-forwarded-host",
    "x-forwarded-proto",
    "forwarded",
    "front-end-https",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-host",
    "x-http-host-override",
    "x-original-host",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
    "x-url-scheme",
];

/// By these, another method. They are told of requests that change something, as forms of browsers do that know no PUT.
const OF_ANOTHER_METHOD: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// What this proxy calls itself in `Via`: no other does, so that a request which comes again has gone in a circle.
pub fn pseudonym() -> &'static str {
    static DRAWN: OnceLock<String> = OnceLock::new();
    DRAWN.get_or_init(|| format!("stockade-{:08x}", Seed::from_entropy().0 >> 32))
}

/// A request, its route, and an answer that is for nobody else.
pub struct Asked {
    /// What it is.
    pub method: Method,
    /// In which version it came.
    pub version: Version,
    /// Its head, without what was about its connection, and with who asks.
    pub headers: HeaderMap,
    /// What it asks for.
    pub key: Key,
    /// What it says about caching.
    pub directives: RequestDirectives,
    /// Who asks.
    pub peer: Peer,
    /// What is done for it.
    pub route: Arc<Route>,
    own: Mutex<Own>,
}

/// What is for nobody else than who has asked.
///
/// Most requests have none of it, and pay for little room.
#[derive(Default)]
struct Own {
    answer: Option<Box<Response<OriginBody>>>,
    is_answered: bool,
    /// Of an answer that is for others otherwise.
    fields: Option<Box<HeaderMap>>,
    /// What the origin said to it.
    origin: Option<OriginAnswer>,
}

impl Asked {
    /// Of a request's head, which has been checked.
    #[must_use]
    pub fn new(head: Parts, key: Key, peer: Peer, route: Arc<Route>) -> Self {
        let Parts { method, version, mut headers, .. } = head;
        hop::strip(&mut headers);
        // Before anything is looked for: what an answer depends on is what the origin is asked.
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let is_theirs = |name: &str| {
            // CGI and WSGI make one variable of `X-Host` and `X_Host`.
            name.contains('_')
                || OF_ANOTHER_TARGET.contains(&name)
                || is_read && OF_ANOTHER_METHOD.contains(&name)
        };
        // To look at each name once is cheaper than to look for each.
        let told: SmallVec<[HeaderName; 4]> =
            headers.keys().filter(|name| is_theirs(name.as_str())).cloned().collect();
        told.iter().for_each(|name| drop(headers.remove(name)));
        // An answer may depend on it.
        if let Ok(address) = HeaderValue::from_str(&peer.address.ip().to_string()) {
            headers.insert(X_FORWARDED_FOR, address);
        }
        let directives = RequestDirectives::read(&headers);
        Self { method, version, headers, key, directives, peer, route, own: Mutex::default() }
    }

    /// Whether it says who asks.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        self.headers.contains_key(AUTHORIZATION)
    }

    /// Whether the origin may know who asks.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.has_credentials() || self.headers.contains_key(COOKIE)
    }

    /// Keeps an answer for who has asked, unless that is late.
    pub fn keep_own(&self, answer: Response<OriginBody>) {
        let mut own = self.own();
        if !own.is_answered {
            own.answer = Some(Box::new(answer));
        }
    }

    /// It has been answered: what else comes for it is let go, and the connection that it comes by.
    pub fn set_answered(&self) {
        let mut own = self.own();
        own.is_answered = true;
        let _late = own.answer.take();
    }

    /// The answer that is for nobody else.
    pub fn take_own(&self) -> Option<Response<OriginBody>> {
        self.own().answer.take().map(|answer| *answer)
    }

    /// Keeps what the origin said to it, for the log.
    pub fn note_origin(&self, answer: OriginAnswer) {
        self.own().origin = Some(answer);
    }

    /// What the origin said to it, if it was asked.
    #[must_use]
    pub fn origin_answer(&self) -> Option<OriginAnswer> {
        self.own().origin
    }

    /// Keeps the fields of an answer that are not stored with it.
    pub fn keep_fields(&self, said: &ResponseDirectives, headers: &HeaderMap) {
        said.no_cache
            .fields()
            .iter()
            .chain(said.private.fields())
            .for_each(|name| self.keep_field(name, headers));
    }

    /// Keeps one field of an answer for who has asked.
    pub fn keep_field(&self, name: &HeaderName, headers: &HeaderMap) {
        let mut own = self.own();
        let fields = own.fields.get_or_insert_default();
        fields.remove(name);
        for value in headers.get_all(name) {
            fields.append(name, value.clone());
        }
    }

    /// The fields that are for nobody else.
    pub fn take_fields(&self) -> HeaderMap {
        self.own().fields.take().map(|fields| *fields).unwrap_or_default()
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head that the origin is sent, as the client has it.
    #[must_use]
    pub fn forwarded(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        hop::add_via(&mut headers, self.version, pseudonym());
        if let Ok(host) = HeaderValue::from_str(self.key.authority()) {
            headers.insert(HOST, host.clone());
            headers.insert(X_FORWARDED_HOST, host);
        }
        let scheme = if self.peer.is_tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        headers
    }

    /// The request that a load sends: for the whole answer, in whatever state it is.
    #[must_use]
    pub fn for_load(&self) -> Request<Empty<Bytes>> {
        let mut headers = self.forwarded();
        hop::for_load(&mut headers);
        // A body that a GET had is not sent along: nobody else's had it.
        let of_body: Vec<_> =
            headers.keys().filter(|name| name.as_str().starts_with("content-")).cloned().collect();
        of_body.iter().for_each(|name| drop(headers.remove(name)));
        self.request(Method::GET, headers, Empty::new())
    }

    /// A request for the same, of this head and body.
    pub fn request<B: Body>(&self, method: Method, mut headers: HeaderMap, body: B) -> Request<B> {
        if body.is_end_stream() {
            // Whoever says that more follows takes the next request on its connection for that.
            headers.remove(EXPECT);
            if headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0") {
                headers.remove(CONTENT_LENGTH);
            }
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // The key is one for all who mean the same; so the origin has to be asked for just that.
        *request.uri_mut() = self.key.path_and_query().parse().unwrap_or_else(|_| Uri::from_static("/"));
        *request.headers_mut() = headers;
        request
    }

    /// Whether it has been here before.
    #[must_use]
    pub fn is_loop(&self) -> bool {
        self.headers.contains_key(VIA) && hop::is_loop(&self.headers, pseudonym())
    }
}
