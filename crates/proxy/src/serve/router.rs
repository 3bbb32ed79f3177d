//! The active configuration: its routes, their origins, and the route of each request.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{HOST, SET_COOKIE},
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use stockade_cache::{InvalidStrategy, Limit};

use super::{
    client::RequestClient,
    counts::RouteMetrics,
    key_statistics::KeyStatistics,
    origin::{OriginClient, OriginOpenError},
    retention::{ReceivedHead, Retention, RetentionRules},
    stored::ResponseCache,
};
use crate::{
    admin::{BreakerStatus, RouteStats, Token},
    config::{self, Config, SetCookie},
    policy::{
        directives::ResponseDirectives,
        forwarded::InvalidHost,
        freshness::{Basis, Heuristics},
        key::CacheKey,
        storable::OperatorRules,
    },
};
use stockade_http::body_file::BodyFile;

/// Targeted fields that take precedence over `Cache-Control` (RFC 9213).
const TARGETS: [HeaderName; 1] = [HeaderName::from_static("cdn-cache-control")];

pub struct Route {
    pub config: config::RouteConfig,
    pub origin: Arc<OriginClient>,
    /// The cache under the route's strategy.
    pub cache: ResponseCache,
    /// The same entries for responses that are not shared: without coalescing. Its loads ask the breaker of `cache`.
    pub uncoalesced: ResponseCache,
    pub bodies: BodyStorage,
    pub counts: Arc<RouteMetrics>,
    /// Of all routes. `None`: its keys are not counted.
    pub keys: Option<Arc<KeyStatistics>>,
}

/// How the bodies of a route's responses are stored.
#[derive(Clone, Debug)]
pub struct BodyStorage {
    /// Larger bodies are not stored.
    pub bytes_max: usize,
    /// For large ones; `None`: they are on the heap.
    pub file: Option<Arc<BodyFile>>,
}

impl Route {
    /// A route over the entries of `root`.
    pub fn new(
        config: config::RouteConfig,
        origin: Arc<OriginClient>,
        root: &ResponseCache,
        bodies: BodyStorage,
        counts: Arc<RouteMetrics>,
        keys: Option<Arc<KeyStatistics>>,
    ) -> Result<Self, InvalidStrategy> {
        let independent = stockade_cache::Strategy {
            fetch: stockade_cache::Fetch::Independent,
            breaker: None,
            // There is no stale response to serve instead, and no waiters: the origin's own timeouts bound it.
            load: stockade_cache::LoadBounds {
                soft_timeout: None,
                deadline: config.strategy.load.deadline.max(origin.until_head()),
                ..config.strategy.load
            },
            ..config.strategy.clone()
        };
        let cache = root.view(&config.strategy, None)?;
        let uncoalesced = root.view(&independent, None)?;
        Ok(Self { config, origin, cache, uncoalesced, bodies, counts, keys })
    }

    #[must_use]
    pub fn stats(&self) -> RouteStats {
        let mut requests = self.cache.stats().requests();
        requests += self.uncoalesced.stats().requests();
        RouteStats {
            name: self.config.name.clone(),
            outcomes: self.counts.outcomes(),
            requests,
            breaker: self.breaker(),
            response_time: Some(self.counts.response().histogram()),
            wait_time: Some(self.counts.wait().histogram()),
            load_time: Some(self.counts.load().histogram()),
        }
    }

    /// `None`: it has no breaker.
    #[must_use]
    pub fn breaker(&self) -> Option<BreakerStatus> {
        self.cache.breaker_states().first().map(|(_, state)| (*state).into())
    }

    /// How long responses without a declared lifetime are fresh.
    #[must_use]
    pub fn heuristics(&self) -> Heuristics {
        if self.config.table.default_ttl.is_some() { Heuristics::OFF } else { Heuristics::default() }
    }

    /// How a response to a request for this key may be reused. `None`: not at all. If the route has a ttl of its own, a path that the
    /// origin may take for another route's has only the lifetime that the origin declares.
    #[must_use]
    pub fn retention(&self, key: &CacheKey, head: &ReceivedHead<'_>) -> Option<Retention> {
        let (route, is_http) = (&self.config, self.origin.is_http());
        let has_own_ttl = self.has_own_ttl(key);
        if !has_own_ttl && self.states_ttl() && head.freshness.basis != Basis::Origin {
            return None;
        }
        RetentionRules { route, is_http, has_own_ttl }.retention(head)
    }

    /// The settings of this route for responses with this status.
    #[must_use]
    pub fn operator_rules(&self, key: &CacheKey, status: StatusCode) -> OperatorRules {
        OperatorRules {
            stores_cookies: self.config.table.set_cookie == SetCookie::Store,
            gives_lifetime: self.config.table.has_ttl_status(status) && self.has_own_ttl(key),
        }
    }

    /// False: it has none, or the origin may take the path for another route's.
    fn has_own_ttl(&self, key: &CacheKey) -> bool {
        self.states_ttl() && !key.is_ambiguous()
    }

    fn states_ttl(&self) -> bool {
        self.config.table.ttl.is_some() || self.config.table.default_ttl.is_some()
    }

    /// The directives of a response, as this route reads them.
    #[must_use]
    pub fn directives(&self, headers: &HeaderMap) -> ResponseDirectives {
        let mut directives = ResponseDirectives::read(headers, &TARGETS);
        if self.config.table.set_cookie == SetCookie::Strip && headers.contains_key(SET_COOKIE) {
            // As if the origin had asked for it: the client gets the field, the stored head does not have it.
            directives.no_cache.add(SET_COOKIE);
        }
        directives
    }

    /// The words of the tag fields.
    #[must_use]
    pub fn tags(&self, headers: &HeaderMap) -> Box<[Box<str>]> {
        let values = self.tag_headers().flat_map(|name| headers.get_all(name));
        let words = values.filter_map(|value| value.to_str().ok());
        let words = words.flat_map(|value| value.split([' ', ',', '\t'])).filter(|word| !word.is_empty());
        words.take(TAGS_MAX).map(Box::from).collect()
    }

    pub fn tag_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.config.table.tag_headers.iter().map(|header| &header.0)
    }
}

pub struct Router {
    pub config: Config,
    /// In the order of the configuration.
    pub routes: Vec<Arc<Route>>,
    /// In the order of the configuration.
    pub origins: Vec<Arc<OriginClient>>,
    /// Counts and logs requests that match no route.
    pub unrouted: Arc<Route>,
    pub keys: Arc<KeyStatistics>,
    /// The admin token, once the admin listener has started.
    pub(crate) purge_token: Arc<OnceLock<Arc<Token>>>,
}

/// No route serves a request. The messages are sent to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    #[error("this host is not served here")]
    UnknownHost,
    #[error("no route has this path")]
    NoRoute,
    #[error(transparent)]
    InvalidHost(#[from] InvalidHost),
}

impl RoutingError {
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::InvalidHost(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl Router {
    /// Unchanged routes and origins of `previous` are reused, with their counts, connections and breakers.
    pub async fn open(
        config: Config,
        root: &ResponseCache,
        body_file: Option<&Arc<BodyFile>>,
        previous: Option<&Self>,
    ) -> Result<Self, RouterError> {
        let mut origins = Vec::new();
        for origin in &config.origins {
            let unchanged = previous.and_then(|previous| {
                let index = previous.config.origins.iter().position(|old| old == origin)?;
                Some(Arc::clone(&previous.origins[index]))
            });
            origins.push(match unchanged {
                Some(origin) => origin,
                None => Arc::new(OriginClient::open(origin).await?),
            });
        }
        let keys = previous.map(|previous| Arc::clone(&previous.keys)).unwrap_or_default();
        let mut routes = Vec::new();
        for route in &config.routes {
            let origin = &origins[route.origin];
            let unchanged = previous.and_then(|previous| {
                let is_same = |old: &&Arc<Route>| Arc::ptr_eq(&old.origin, origin) && old.config == *route;
                previous.routes.iter().find(is_same)
            });
            routes.push(match unchanged {
                Some(route) => Arc::clone(route),
                None => {
                    let same_name = previous.and_then(|previous| {
                        previous.routes.iter().find(|old| old.config.name == route.name)
                    });
                    let counts = same_name.map(|old| Arc::clone(&old.counts)).unwrap_or_default();
                    let bodies =
                        BodyStorage { bytes_max: body_bytes_max(&config.limit), file: body_file.cloned() };
                    let (origin, keys) = (Arc::clone(origin), Some(Arc::clone(&keys)));
                    let opened = Route::new(route.clone(), origin, root, bodies, counts, keys);
                    let strategy_error = |error| RouterError::Strategy { route: route.name.clone(), error };
                    Arc::new(opened.map_err(strategy_error)?)
                }
            });
        }
        let unrouted = match previous {
            Some(previous) => Arc::clone(&previous.unrouted),
            None => {
                let route = config::RouteConfig { name: String::new(), ..config.routes[0].clone() };
                let bodies = BodyStorage { bytes_max: 0, file: None };
                let route = Route::new(route, Arc::clone(&origins[0]), root, bodies, Arc::default(), None);
                Arc::new(route.map_err(RouterError::Limit)?)
            }
        };
        let purge_token = previous.map(|previous| Arc::clone(&previous.purge_token)).unwrap_or_default();
        Ok(Self { config, routes, origins, unrouted, keys, purge_token })
    }

    /// The key always belongs to the request, also if no route does.
    pub fn resolve(
        &self,
        head: &Parts,
        client: &RequestClient,
    ) -> (CacheKey, Result<Arc<Route>, RoutingError>) {
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let own = head.uri.authority().map(Authority::as_str).or(host).unwrap_or_default();
        let (authority, validity) = match &client.forwarded_host {
            None => (own, Ok(())),
            Some(Ok(forwarded)) => (forwarded.as_str(), Ok(())),
            Some(Err(invalid)) => (own, Err(*invalid)),
        };
        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let scheme = if client.is_tls { "https" } else { "http" };
        // Routes match the normalised path, which is also what the origin is sent.
        let key = CacheKey::new(scheme, authority, target);
        if let Err(invalid) = validity {
            return (key, Err(invalid.into()));
        }
        if !self.config.has_host(authority) {
            return (key, Err(RoutingError::UnknownHost));
        }
        let Some(route) = self.config.route(authority, key.path()) else {
            return (key, Err(RoutingError::NoRoute));
        };
        let index = self.config.routes.iter().position(|one| std::ptr::eq(one, route)).unwrap_or_default();
        (route_key(route, key), Ok(Arc::clone(&self.routes[index])))
    }

    /// The cache key of a URL, without the query parameters that its route ignores.
    #[must_use]
    pub fn cache_key(&self, key: CacheKey) -> CacheKey {
        match self.route_of(&key) {
            Some(route) => route_key(route, key),
            None => key,
        }
    }

    /// Why a purge of a tag may have matched nothing.
    #[must_use]
    pub fn unmatched_tag_reason(&self) -> String {
        let headers = self.config.routes.iter().flat_map(|route| &route.table.tag_headers);
        let headers: BTreeSet<&str> = headers.map(|header| header.0.as_str()).collect();
        if headers.is_empty() {
            return "no route has tags: set tag_headers, such as [\"surrogate-key\"], in a [[route]]"
                .to_owned();
        }
        let headers: Vec<&str> = headers.into_iter().collect();
        format!("no stored response has this tag in {}", headers.join(", "))
    }

    #[must_use]
    pub fn route_of(&self, key: &CacheKey) -> Option<&config::RouteConfig> {
        self.config.route(key.authority(), key.path())
    }
}

fn route_key(route: &config::RouteConfig, key: CacheKey) -> CacheKey {
    match route.cache_target(key.path_and_query()) {
        Cow::Borrowed(_) => key,
        Cow::Owned(target) => CacheKey::new(key.scheme(), key.authority(), &target),
    }
}

/// The largest body that is stored, in bytes.
#[must_use]
pub fn body_bytes_max(limit: &Limit) -> usize {
    const DEFAULT: usize = 1 << 20;
    match (limit.max_object, limit.bytes) {
        (Some(bytes_max), _) => bytes_max,
        (None, Some(bytes)) => DEFAULT.min(bytes / 16),
        (None, None) => DEFAULT,
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    #[error("limit: {0}")]
    Limit(InvalidStrategy),
    #[error("shadow: {0}")]
    Shadow(String),
    #[error("route {route}: {error}")]
    Strategy { route: String, error: InvalidStrategy },
    #[error(transparent)]
    Origin(#[from] OriginOpenError),
}

/// Tags of one response; the rest are ignored.
const TAGS_MAX: usize = 256;
