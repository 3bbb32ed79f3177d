//! `PURGE` on the addresses of clients, as Varnish and nginx have it.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderValue, StatusCode,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE},
};
use stockade_cache::Invalidation;
use stockade_model::outcome::Outcome;

use super::{
    context::RequestContext, passthrough::invalidate_url, reply::Reply, router::Router, stored::ResponseCache,
};
use crate::{
    admin::{PurgeResult, Token},
    policy::{cache_status::CacheStatus, key::CacheKey},
};

pub const PURGE: &str = "PURGE";

/// Purges all variants of the request's URL, or with `*` at its end all URLs with that prefix on its host. Both schemes
/// are purged: a client inside the network does not use TLS.
pub fn serve(context: &Arc<RequestContext>, router: &Router) -> Reply {
    if let Err(refusal) = authorise(context, router) {
        return refusal.reply(context);
    }
    let (key, cache) = (&context.key, &context.route.cache);
    let target = format!("//{}{}", key.authority(), key.path_and_query());
    let keys = ["http", "https"].map(|scheme| CacheKey::new(scheme, key.authority(), key.path_and_query()));
    let (kind, entries) = if target.ends_with('*') {
        ("prefix", purge_prefixes(cache, &keys))
    } else {
        ("url", keys.into_iter().map(|key| invalidate_url(cache, key, Invalidation::Hard)).sum())
    };
    let result = PurgeResult { entries, note: None };
    let shown = result.shown(kind, &target, Invalidation::Hard).to_string();
    let mut reply = Reply::text(StatusCode::OK, &shown, CacheStatus::unforwarded(Outcome::Bypass));
    reply.response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Each key ends in `*`.
fn purge_prefixes(cache: &ResponseCache, keys: &[CacheKey]) -> usize {
    let is_purged = |key: &str| keys.iter().any(|one| key.starts_with(one.as_str().trim_end_matches('*')));
    cache.invalidate_if(|entry_key, _| is_purged(entry_key.key.as_str()), Invalidation::Hard)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PurgeRefusal {
    /// There is no token, and no address may purge.
    Disabled,
    Forbidden,
}

fn authorise(context: &RequestContext, router: &Router) -> Result<(), PurgeRefusal> {
    let token = router.purge_token.get().filter(|token| token.is_set());
    let networks = router.config.admin.as_ref().map(|admin| admin.purge_from.as_slice()).unwrap_or_default();
    if token.is_none() && networks.is_empty() {
        return Err(PurgeRefusal::Disabled);
    }
    let authorization = context.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let has_token = |token: &Arc<Token>| authorization.is_some() && token.admits(authorization);
    let client = &context.client;
    let is_from = |address: IpAddr| networks.iter().any(|network| network.contains(address));
    // The address of a load balancer that names no client is the address of all its clients.
    if token.is_some_and(has_token) || client.is_bounded && is_from(client.address.ip()) {
        return Ok(());
    }
    Err(PurgeRefusal::Forbidden)
}

impl PurgeRefusal {
    fn reply(self, context: &RequestContext) -> Reply {
        let (status, text) = match self {
            Self::Disabled => (
                StatusCode::METHOD_NOT_ALLOWED,
                "PURGE is not enabled: set [admin] token_file or [admin] purge_from",
            ),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                "PURGE needs the admin token (Authorization: Bearer TOKEN) or an address of [admin] purge_from",
            ),
        };
        context.note_refusal(text);
        let mut reply = Reply::text(status, text, CacheStatus::unforwarded(Outcome::Error));
        if self == Self::Disabled {
            let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            reply.response.headers_mut().insert(ALLOW, allowed);
        }
        reply
    }
}
