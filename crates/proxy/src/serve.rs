//! Serves requests from the cache or the origin.
//!
//! ```text
//! request -> route, cache key
//!    |-- GET -----------> lookup: hit, stale, miss, coalesced, fallback ---- selected? --> reply
//!    |                       |                          `- other variant: lookup under its key
//!    |                       `- not shared: load without coalescing -------------> reply or pass through
//!    |-- GET, content --> origin -----------------------------------------------------> pass through
//!    |-- HEAD ----------> stored and fresh --------------------------------------------> reply
//!    `-- other methods -> origin; invalidates the URLs that it may change -----> pass through
//! ```
//!
//! All of them ask the route's breaker, except for the methods that [may not be
//! refused](crate::policy::invalidate::asks_breaker).
//!
//! A load ([`fetch`]) runs as its own task. [`receiver`] reads the origin's body into a [`spool`], from which all waiting
//! requests read along.

pub mod body_chunks;
pub mod client;
pub mod client_rates;
pub mod context;
pub mod counts;
pub mod entry_codec;
pub mod fetch;
pub mod fetched_body;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod key_statistics;
mod lookup;
mod markers;
pub mod origin;
mod passthrough;
mod purge_method;
pub mod receiver;
pub mod reply;
pub mod reply_body;
pub mod reply_record;
pub mod retention;
pub mod router;
pub mod runtime;
pub mod spool;
pub mod stored;
pub mod upload;
mod waiting_clients;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    header::RETRY_AFTER,
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use http_body::Body;
use http_body_util::BodyExt;
use stockade_cache::{RedisTier, SharedTier, Strategy};
use stockade_model::proc::memory_total_bytes;
use stockade_model::{outcome::Outcome, seed::Seed, time::Runtime};

use self::{
    client::RequestClient,
    client_rates::ClientRateLimiter,
    context::RequestContext,
    entry_codec::EntryCodec,
    lookup::{serve_get, serve_head, try_hit},
    passthrough::{forward, forward_unsafe, invalidate_url},
    reply::Reply,
    reply_body::ReplyBody,
    reply_record::{ReplyRecord, RequestStart},
    router::{Route, Router, RouterError, RoutingError},
    runtime::{LocalRuntime, system_now},
    stored::{CacheEntry, EntryKey, ResponseCache},
};
use crate::{
    admin::{Purge, PurgeResult, PurgeTarget, Token, WarmOutcome},
    config::Config,
    log::AccessLogger,
    policy::{
        cache_status::{CacheStatus, Forward},
        hop,
        key::CacheKey,
    },
};
use stockade_http::{
    body_file::BodyFile,
    frontend::{ClientBody, ConnectionInfo, Handler, HandlerResponse, RefusedRequest},
};

/// Clones share everything.
#[derive(Clone)]
pub struct Proxy {
    router: Arc<ArcSwap<Router>>,
    cache: ResponseCache,
    /// Or the reason why the file is missing.
    body_file: Result<Arc<BodyFile>, Arc<io::Error>>,
    runtime: LocalRuntime,
    rates: Arc<ClientRateLimiter>,
    /// Requests beyond the rate of their client.
    rate_refusals: Arc<AtomicU64>,
    log: Option<AccessLogger>,
}

impl Proxy {
    /// Database connections run on the caller's runtime.
    pub async fn open(config: Config, log: Option<AccessLogger>) -> Result<Self, RouterError> {
        let runtime = LocalRuntime::new();
        let strategy = Strategy {
            limit: Some(config.limit.clone()),
            ..Strategy::preset("none").unwrap_or_else(|_| unreachable!("the first preset"))
        };
        let limit_bytes = config.limit.bytes.or_else(|| usize::try_from(memory_total_bytes()?).ok());
        let body_file = BodyFile::open(limit_bytes.unwrap_or_default()).map_err(Arc::new);
        let (weighed, codec) = (body_file.clone().ok(), EntryCodec { body_file: body_file.clone().ok() });
        let builder = stockade_cache::Cache::builder(strategy)
            .weigh(move |key, entry| stored::weight(key, entry, weighed.as_deref()))
            .tags(stored::tags)
            .held(CacheEntry::is_held)
            .not_found(CacheEntry::is_not_found)
            .marker(|entry| !matches!(entry, CacheEntry::Response(_)))
            .lifespan(|entry: &CacheEntry| Some(entry.lifespan()));
        let builder = match &config.shared {
            Some(url) => {
                // Other nodes store values that are as large, and encode them with little more.
                let value_bytes_max = router::body_bytes_max(&config.limit) as u64;
                let redis = RedisTier::with_url(url.redis.clone().with_value_bytes_max(value_bytes_max));
                builder.shared_tier(SharedTier::with_memory(redis, codec.clone(), codec))
            }
            None => builder,
        };
        let builder = match &config.shadow {
            Some(shadow) => builder.shadow(shadow.shadow(&config.limit).map_err(RouterError::Shadow)?),
            None => builder,
        };
        let cache = builder.build_on(runtime.clone(), Seed::from_entropy()).map_err(RouterError::Limit)?;
        let router = Router::open(config, &cache, body_file.as_ref().ok(), None).await?;
        Ok(Self {
            router: Arc::new(ArcSwap::from_pointee(router)),
            cache,
            body_file,
            runtime,
            rates: Arc::default(),
            rate_refusals: Arc::default(),
            log,
        })
    }

    /// Applies a new configuration. Entries, and unchanged routes and origins, stay.
    pub async fn reload(&self, config: Config) -> Result<(), RouterError> {
        let previous = self.router.load_full();
        let router = Router::open(config, &self.cache, self.body_file.as_ref().ok(), Some(&previous)).await?;
        self.router.store(Arc::new(router));
        Ok(())
    }

    #[must_use]
    pub fn router(&self) -> Arc<Router> {
        self.router.load_full()
    }

    /// Requests a URL as a client would, and waits until its response is stored.
    pub async fn warm(&self, url: Uri) -> WarmOutcome {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let peer =
            ConnectionInfo { remote: loopback, local: loopback, is_tls: url.scheme_str() == Some("https") };
        let (head, ()) = Request::get(url).body(()).unwrap_or_default().into_parts();
        let router = self.router.load();
        let client = RequestClient::new(&HeaderMap::new(), peer, &router.config);
        let client = RequestClient { is_bounded: false, ..client };
        let (key, route) = router.resolve(&head, &client);
        let route = match route {
            Ok(route) => route,
            Err(error) => return WarmOutcome::NotStored(error.status().as_u16()),
        };
        let context = Arc::new(RequestContext::new(head, key.clone(), client, route));
        let reply = serve_get(&context, &self.runtime).await;
        let status = reply.response.status();
        if let Err(error) = reply.response.into_body().collect().await {
            return WarmOutcome::Failed(error.to_string());
        }
        // Readers get the last bytes before the entry is stored.
        let entry_key = EntryKey::from(key);
        self.cache.wait_for_load(&entry_key).await;
        match self.cache.peek(&entry_key).map(|found| found.value) {
            Some(CacheEntry::Response(_)) => WarmOutcome::Stored,
            _ if status.is_server_error() => WarmOutcome::Failed(status.to_string()),
            _ => WarmOutcome::NotStored(status.as_u16()),
        }
    }

    /// Returns the number of purged entries.
    #[must_use]
    pub fn purge(&self, purge: &Purge) -> usize {
        let Purge { target, mode } = purge;
        let key = |uri: &Uri| {
            let authority = uri.authority().map_or("", Authority::as_str);
            CacheKey::new(
                uri.scheme_str().unwrap_or("http"),
                authority,
                uri.path_and_query().map_or("/", PathAndQuery::as_str),
            )
        };
        match target {
            PurgeTarget::Url(url) => {
                let key = key(url);
                let router = self.router.load();
                invalidate_url(&self.cache, router.cache_key(key), *mode)
            }
            PurgeTarget::Prefix(prefix) => {
                let prefix = prefix.parse().map(|url| key(&url).to_string()).unwrap_or(prefix.clone());
                self.cache.invalidate_if(|entry_key, _| entry_key.key.as_str().starts_with(&prefix), *mode)
            }
            PurgeTarget::PathPrefix(prefix) => {
                let prefix = CacheKey::new("http", "any", prefix);
                self.cache.invalidate_if(
                    |entry_key, _| entry_key.key.path_and_query().starts_with(prefix.path_and_query()),
                    *mode,
                )
            }
            PurgeTarget::Tag(tag) => self.cache.invalidate_tag(tag, *mode),
            PurgeTarget::All => self.cache.invalidate_all(*mode),
        }
    }

    /// Purges, and says why a tag matched nothing.
    #[must_use]
    pub fn purge_with_note(&self, purge: &Purge) -> PurgeResult {
        let entries = self.purge(purge);
        let is_unknown_tag = entries == 0 && matches!(purge.target, PurgeTarget::Tag(_));
        PurgeResult { entries, note: is_unknown_tag.then(|| self.router.load().unmatched_tag_reason()) }
    }

    /// `PURGE` requests with this token are admitted.
    pub(crate) fn set_purge_token(&self, token: Arc<Token>) {
        // Set once, after the start of the admin listener.
        let _ = self.router.load().purge_token.set(token);
    }

    /// The fill of the fuller bound on slow clients: held memory of the cache, or unread responses of one origin. From 0 to 1.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        let router = self.router.load();
        let of_origins = router.routes.iter().map(|route| route.origin.unread_share());
        of_origins.fold(self.cache.held_fill(), f64::max)
    }

    /// The memory of large bodies, or the reason why they are on the heap.
    pub fn body_file(&self) -> Result<&Arc<BodyFile>, &io::Error> {
        self.body_file.as_ref().map_err(|error| &**error)
    }

    #[must_use]
    pub fn cache(&self) -> &ResponseCache {
        &self.cache
    }

    /// Requests beyond the rate of their client, refused with 429.
    #[must_use]
    pub fn rate_refusals(&self) -> u64 {
        self.rate_refusals.load(Relaxed)
    }

    /// The route of a request, or the refusal of one beyond the rate of its client.
    fn route(
        &self,
        router: &Router,
        head: &Parts,
        client: &RequestClient,
    ) -> (CacheKey, Result<Arc<Route>, Reply>) {
        let (key, route) = router.resolve(head, client);
        if let Some(rate) = router.config.bounds.client_rate().filter(|_| client.is_bounded)
            && let Err(wait) = self.rates.admit(client.network, self.runtime.now(), rate)
        {
            self.rate_refusals.fetch_add(1, Relaxed);
            return (key, Err(too_many_requests(wait)));
        }
        (key, route.map_err(routing_error_reply))
    }
}

impl Handler for Proxy {
    type Body = ReplyBody;
    type Record = ReplyRecord;

    fn handle(
        &self,
        request: Request<ClientBody>,
        peer: ConnectionInfo,
    ) -> HandlerResponse<ReplyBody, ReplyRecord> {
        let log = self.log.as_ref().map(|logger| (system_now(), logger.clone()));
        let start = RequestStart { runtime: self.runtime.clone(), at: self.runtime.now(), log };
        let (head, body) = request.into_parts();
        let router = self.router.load();
        let client = RequestClient::new(&head.headers, peer, &router.config);
        let (key, route) = self.route(&router, &head, &client);
        let (context, ready) = match route {
            Ok(route) => {
                let context = Arc::new(RequestContext::new(head, key, client, route));
                let hit = if body.is_end_stream() { try_hit(&context) } else { None };
                (context, hit)
            }
            Err(refusal) => {
                let context = RequestContext::new(head, key, client, Arc::clone(&router.unrouted));
                (Arc::new(context), Some(refusal))
            }
        };
        drop(router);
        if let Some(reply) = ready {
            let (response, record) = complete(reply, context, start);
            return HandlerResponse::Ready(response, record);
        }
        let router = Arc::clone(&self.router);
        HandlerResponse::Pending(Box::pin(async move {
            let reply = serve(&context, body, &start.runtime, &router).await;
            context.mark_replied();
            complete(reply, context, start)
        }))
    }

    fn note_refusal(&self, refused: &RefusedRequest<'_>, peer: ConnectionInfo) {
        if let Some(logger) = &self.log {
            reply_record::log_refusal(logger, refused, peer, &self.router.load().config);
        }
    }
}

/// The response without the fields that the route hides, set by the origin or by the proxy.
fn complete(
    mut reply: Reply,
    context: Arc<RequestContext>,
    start: RequestStart,
) -> (Response<ReplyBody>, ReplyRecord) {
    for hidden in &context.route.config.table.hide_headers {
        reply.response.headers_mut().remove(&hidden.0);
    }
    ReplyRecord::new(reply, context, start)
}

fn routing_error_reply(error: RoutingError) -> Reply {
    refusal(error.status(), &error.to_string())
}

/// RFC 6585, 4.
fn too_many_requests(wait: Duration) -> Reply {
    let mut reply = refusal(StatusCode::TOO_MANY_REQUESTS, "this client sends too many requests");
    let seconds = wait.as_nanos().div_ceil(1_000_000_000);
    reply.response.headers_mut().insert(RETRY_AFTER, u64::try_from(seconds).unwrap_or(u64::MAX).into());
    reply
}

/// A reply without a lookup.
fn refusal(status: StatusCode, text: &str) -> Reply {
    Reply::text(status, text, CacheStatus::unforwarded(Outcome::Error))
}

async fn serve(
    context: &Arc<RequestContext>,
    mut body: ClientBody,
    runtime: &LocalRuntime,
    router: &Arc<ArcSwap<Router>>,
) -> Reply {
    if context.is_loop() {
        return refusal(StatusCode::LOOP_DETECTED, "this request has been here before");
    }
    if context.method == Method::OPTIONS && hop::forwards_left(&context.headers) == Some(0) {
        let cache_status = CacheStatus::unforwarded(Outcome::Bypass);
        return Reply::text(StatusCode::OK, "the request may not be forwarded", cache_status);
    }
    match context.method {
        // Content is not part of the key. Origins that read it answer by it; others take it for the next request.
        Method::GET if context.directives.no_store || body.has_content().await => {
            forward(context, body, Forward::Bypass).await
        }
        Method::GET => serve_get(context, runtime).await,
        Method::HEAD => serve_head(context, body).await,
        _ if context.method.as_str() == purge_method::PURGE => purge_method::serve(context, &router.load()),
        _ => forward_unsafe(context, body, router).await,
    }
}
