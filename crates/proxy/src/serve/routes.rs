//! The routes in force: which requests go where, and what is done for them.

use std::{borrow::Cow, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::HOST,
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use stockade_cache::{InvalidStrategy, Lifespan, Limit, Stats};
use stockade_model::outcome::Outcome;

use super::{counts::Counts, give::Given, origin::Origin, stored::Cache};
use crate::{
    admin::{Refreshes, RouteStats},
    config::{self, Config},
    front::Peer,
    policy::{
        cache_status::{CacheStatus, Forward},
        conditional::has_validator,
        directives::ResponseDirectives,
        freshness::{Basis, Freshness, Heuristics},
        key::Key,
    },
};

/// A route in force.
pub struct Route {
    /// What the configuration says.
    pub config: config::Route,
    /// Who is asked.
    pub origin: Arc<Origin>,
    /// The cache under the route's strategy.
    pub cache: Cache,
    /// The same entries for who asks alone, because answers are not shared: nobody waits, and no breaker.
    pub unshared: Cache,
    /// How many bytes a body may have that is stored.
    pub object_max: usize,
    /// What it has done.
    pub counts: Arc<Counts>,
}

impl Route {
    /// Over the entries of `root`.
    pub fn new(
        config: config::Route,
        origin: Arc<Origin>,
        root: &Cache,
        object_max: usize,
        counts: Arc<Counts>,
    ) -> Result<Self, InvalidStrategy> {
        let alone = stockade_cache::Strategy {
            fetch: stockade_cache::Fetch::Independent,
            breaker: None,
            // There is nothing else that could be given sooner.
            load: stockade_cache::Load { soft_timeout: None, ..config.strategy.load },
            ..config.strategy.clone()
        };
        let cache = root.view(&config.strategy, None)?;
        let unshared = root.view(&alone, None)?;
        Ok(Self { config, origin, cache, unshared, object_max, counts })
    }

    /// How it goes.
    #[must_use]
    pub fn stats(&self) -> RouteStats {
        let (shared, alone) = (self.cache.stats(), self.unshared.stats());
        let both = |count: fn(&Stats) -> u64| count(&shared) + count(&alone);
        let ended = both(|stats| stats.loads_answered) + both(|stats| stats.loads_failed);
        RouteStats {
            name: self.config.name.clone(),
            outcomes: self.counts.outcomes(),
            loads: both(|stats| stats.loads),
            loads_failed: both(|stats| stats.loads_failed),
            loads_refused: both(|stats| stats.loads_refused),
            loads_rejected: both(|stats| stats.loads_rejected),
            loads_in_flight: both(|stats| stats.loads).saturating_sub(ended),
            waiters: both(|stats| stats.waiters),
            refreshes: Refreshes {
                early: shared.refreshes_early,
                xfetch: shared.refreshes_xfetch,
                swr: shared.refreshes_swr,
                probe: shared.probes,
            },
            breaker: self.cache.breakers().first().map(|(_, state)| (*state).into()),
            response_time: Some(self.counts.response().histogram()),
            wait_time: Some(self.counts.wait().histogram()),
            load_time: Some(self.counts.load().histogram()),
        }
    }

    /// How answers are aged of which the origin says nothing.
    #[must_use]
    pub fn heuristics(&self) -> Heuristics {
        if self.config.ttl_default.is_some() { Heuristics::OFF } else { Heuristics::default() }
    }

    /// How long an answer is good for here. `None`: it is of no use to anybody else.
    #[must_use]
    pub fn lifespan(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        said: &ResponseDirectives,
        freshness: &Freshness,
    ) -> Option<Lifespan> {
        let config::Route { strategy, ttl, ttl_default, .. } = &self.config;
        let is_not_found = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
        let unsaid = || match freshness.basis {
            Basis::Origin => None,
            _ if is_not_found => strategy.negative_ttl,
            _ if status.is_success() || status.is_redirection() => {
                ttl_default.or_else(|| (!self.origin.is_http()).then_some(strategy.ttl).flatten())
            }
            _ => None,
        };
        let ttl = match ttl {
            _ if freshness.must_validate => Duration::ZERO,
            Some(ttl) if !is_not_found => *ttl,
            _ => unsaid().unwrap_or_else(|| freshness.fresh_for()),
        };
        if ttl.is_zero() && !self.is_for_others(said, freshness) {
            return None;
        }
        let mut lifespan = Lifespan { ttl, ..Lifespan::NONE };
        let forbids_stale = !freshness.may_be_stale || freshness.must_validate;
        if !is_not_found {
            lifespan.swr = freshness.swr.unwrap_or(if forbids_stale { Duration::ZERO } else { strategy.swr });
            lifespan.sie = freshness.sie.unwrap_or(if forbids_stale { Duration::ZERO } else { strategy.sie });
            if has_validator(headers) {
                lifespan.keep = KEPT_TO_BE_VALIDATED;
            }
        }
        (lifespan != Lifespan::NONE).then_some(lifespan)
    }

    /// Whether somebody says that others may be given an answer at all: the origin, by how long it is fresh or may be
    /// stale, by `public`, or by `no-cache`, since then it is asked each time; the route; or a database, which does not
    /// know who asks. What says nothing may be what one user sees, known by a cookie.
    fn is_for_others(&self, said: &ResponseDirectives, freshness: &Freshness) -> bool {
        let config::Route { ttl, ttl_default, .. } = &self.config;
        let by_route = ttl.is_some() || ttl_default.is_some() || !self.origin.is_http();
        let is_fresh_for_long = freshness.basis == Basis::Origin || !freshness.lifetime.is_zero();
        let stale_for = [freshness.swr, freshness.sie];
        let may_be_stale = stale_for.into_iter().flatten().any(|told| !told.is_zero());
        by_route || is_fresh_for_long || may_be_stale || said.public || freshness.must_validate
    }

    /// What an answer can be purged by: the words of its headers for that.
    #[must_use]
    pub fn tags(&self, headers: &HeaderMap) -> Box<[Box<str>]> {
        let values = self.config.tag_headers.iter().flat_map(|name| headers.get_all(name));
        let words = values.filter_map(|value| value.to_str().ok());
        let words = words.flat_map(|value| value.split([' ', ',', '\t'])).filter(|word| !word.is_empty());
        words.take(TAGS_MOST).map(Box::from).collect()
    }

    /// Headers that are for this cache alone.
    #[must_use]
    pub fn tag_headers(&self) -> &[HeaderName] {
        &self.config.tag_headers
    }
}

/// What is asked for where there is no route, and what is told instead.
pub type Refused = Box<(Key, Given)>;

/// All routes in force.
pub struct Rules {
    /// What the configuration says.
    pub config: Config,
    /// As it has them.
    pub routes: Vec<Arc<Route>>,
    /// As it has them.
    pub origins: Vec<Arc<Origin>>,
    /// Of requests that no route has: for counts and the log.
    pub nowhere: Arc<Route>,
}

impl Rules {
    /// Opens what they need. Routes and origins that have not changed stay as they are, with what they have counted,
    /// their connections and their breakers.
    pub async fn open(config: Config, root: &Cache, before: Option<&Self>) -> Result<Self, RulesError> {
        let mut origins = Vec::new();
        for told in &config.origins {
            let unchanged = before.and_then(|before| {
                let at = before.config.origins.iter().position(|old| old == told)?;
                Some(Arc::clone(&before.origins[at]))
            });
            origins.push(match unchanged {
                Some(origin) => origin,
                None => Arc::new(Origin::open(told).await?),
            });
        }
        let mut routes = Vec::new();
        for told in &config.routes {
            let origin = &origins[told.origin];
            let unchanged = before.and_then(|before| {
                let is_it =
                    |old: &&Arc<Route>| Arc::ptr_eq(&old.origin, origin) && old.config.says_the_same(told);
                before.routes.iter().find(is_it)
            });
            routes.push(match unchanged {
                Some(route) => Arc::clone(route),
                None => {
                    let was = before
                        .and_then(|before| before.routes.iter().find(|old| old.config.name == told.name));
                    let counts = was.map(|was| Arc::clone(&was.counts)).unwrap_or_default();
                    let route =
                        Route::new(told.clone(), Arc::clone(origin), root, object_max(&config.limit), counts);
                    Arc::new(route.map_err(|error| RulesError::Strategy { route: told.name.clone(), error })?)
                }
            });
        }
        let nowhere = match before {
            Some(before) => Arc::clone(&before.nowhere),
            None => {
                let told = config::Route { name: String::new(), ..config.routes[0].clone() };
                let route = Route::new(told, Arc::clone(&origins[0]), root, 0, Arc::default());
                Arc::new(route.map_err(RulesError::Limit)?)
            }
        };
        Ok(Self { config, routes, origins, nowhere })
    }

    /// The route of a request, and what it asks for there.
    pub fn find(&self, head: &Parts, peer: Peer) -> Result<(Key, Arc<Route>), Refused> {
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let authority = head.uri.authority().map(Authority::as_str).or(host).unwrap_or_default();
        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let refused = |status, words| {
            Given::words(
                status,
                words,
                CacheStatus { forward: None, ..CacheStatus::forwarded(Outcome::Error, Forward::Bypass) },
            )
        };
        let scheme = if peer.is_tls { "https" } else { "http" };
        // What routes are told apart by is what the origin is asked for, not another spelling of it.
        let key = Key::of(scheme, authority, target);
        if !self.config.has_host(authority) {
            return Err(Box::new((
                key,
                refused(StatusCode::MISDIRECTED_REQUEST, "this host is not served here"),
            )));
        }
        let Some(route) = self.config.route(authority, key.path()) else {
            return Err(Box::new((key, refused(StatusCode::NOT_FOUND, "no route has this path"))));
        };
        let at = self.config.routes.iter().position(|one| std::ptr::eq(one, route)).unwrap_or_default();
        Ok((known_by(route, key), Arc::clone(&self.routes[at])))
    }
}

impl Rules {
    /// What an answer is known by whose URL this is: some parameters may make no difference.
    #[must_use]
    pub fn known_by(&self, key: Key) -> Key {
        match self.config.route(key.authority(), key.path()) {
            Some(route) => known_by(route, key),
            None => key,
        }
    }
}

fn known_by(route: &config::Route, key: Key) -> Key {
    match route.asked(key.path_and_query()) {
        Cow::Borrowed(_) => key,
        Cow::Owned(asked) => Key::of(key.scheme(), key.authority(), &asked),
    }
}

/// How large a body may be that is stored: a limit that counts entries alone does not say.
fn object_max(limit: &Limit) -> usize {
    const USUAL: usize = 1 << 20;
    match (limit.max_object, limit.bytes) {
        (Some(most), _) => most,
        (None, Some(bytes)) => USUAL.min(bytes / 16),
        (None, None) => USUAL,
    }
}

/// Routes cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// Nothing could be held.
    #[error("limit: {0}")]
    Limit(InvalidStrategy),
    /// There can be no cache with a strategy.
    #[error("route {route}: {error}")]
    Strategy {
        /// Whose.
        route: String,
        /// Why.
        error: InvalidStrategy,
    },
    /// An origin cannot be asked.
    #[error("origin {origin}: {reason}")]
    Origin {
        /// Which.
        origin: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// How long an answer is kept that has expired, so that its origin can be asked whether it has changed.
const KEPT_TO_BE_VALIDATED: Duration = Duration::from_mins(10);

/// More tags of one answer are not looked at.
const TAGS_MOST: usize = 256;
