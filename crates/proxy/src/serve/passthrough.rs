//! Requests that go to the origin without a lookup, and their responses, which are passed through.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Response, StatusCode, Version, header::TRAILER};
use stockade_cache::{CallPermit, Error, Invalidation};
use stockade_model::outcome::Outcome;

use super::{
    context::{AnnouncedTrailers, RequestContext, pseudonym},
    fetch::is_failure,
    fetched_body::FetchedBody,
    origin::RequestBody,
    reply::Reply,
    reply_body::ReplyBody,
    router::Router,
    runtime::{LocalRuntime, system_now},
    stored::{ResponseCache, url_tag},
};
use crate::{
    config::UnsafeInvalidation,
    policy::{
        cache_status::{CacheStatus, Forward},
        hop,
        invalidate::{asks_breaker, invalidated},
        key::CacheKey,
    },
};
use stockade_http::{frontend::ClientBody, upstream::Requester};

/// Forwards the client's request as it is, unless the route's breaker refuses it.
pub async fn forward<B: RequestBody>(context: &Arc<RequestContext>, body: B, forward: Forward) -> Reply {
    match CallAdmission::of(context, &body).await {
        Ok(admission) => forward_admitted(context, body, forward, admission).await,
        Err(refused) => Reply::error(context, &refused, forward),
    }
}

/// The breaker's answer to a request that is not a load.
pub enum CallAdmission {
    Admitted(CallPermit<LocalRuntime>),
    /// The breaker does not apply, or the result of the request would be no evidence.
    Uncounted,
}

impl CallAdmission {
    pub async fn of<B: RequestBody>(context: &RequestContext, body: &B) -> Result<Self, Error> {
        if !asks_breaker(&context.method) {
            return Ok(Self::Uncounted);
        }
        let has_body = !body.is_end_stream();
        let permit = context.route.cache.admit_call(&context.key.clone().into(), context.client()).await?;
        // A client can take any time to send a body: its request must not hold the place of a probe.
        Ok(if has_body { Self::Uncounted } else { Self::Admitted(permit) })
    }
}

/// Forwards a request that the breaker has admitted, and tells it the result.
pub async fn forward_admitted<B: RequestBody>(
    context: &Arc<RequestContext>,
    body: B,
    forward: Forward,
    admission: CallAdmission,
) -> Reply {
    let request = context.origin_request(context.method.clone(), context.forward_headers(), body);
    let result = match request {
        Ok(request) => context.send(request, Requester::UNBOUNDED.others).await,
        Err(error) => Err(error),
    };
    if let CallAdmission::Admitted(permit) = admission {
        match &result {
            Ok(response) => permit.record_result(!is_failure(response.status())),
            Err(error) if !error.is_origin_fault() => drop(permit),
            Err(error) if error.is_timeout() => permit.record_timeout(),
            Err(_) => permit.record_result(false),
        }
    }
    let response = match result {
        Ok(mut response) => {
            hop::strip(response.headers_mut());
            response
        }
        Err(error) => {
            let status = error.status();
            // The text reveals nothing about the servers behind the proxy.
            let text = match status {
                StatusCode::GATEWAY_TIMEOUT => "the origin has not answered in time",
                StatusCode::PAYLOAD_TOO_LARGE => "the request's body is too large",
                StatusCode::REQUEST_TIMEOUT => "the request's body has not arrived in time",
                StatusCode::BAD_REQUEST => "the request cannot be forwarded",
                _ => "the origin cannot be reached",
            };
            return Reply::failure(status, text, CacheStatus::forwarded(Outcome::Error, forward));
        }
    };
    pass_through(response, CacheStatus::forwarded(Outcome::Bypass, forward))
}

/// Forwards a request that may change resources. The invalidation runs as its own task, so that it completes although the
/// client disconnects.
pub async fn forward_unsafe(
    context: &Arc<RequestContext>,
    body: ClientBody,
    router: &Arc<ArcSwap<Router>>,
) -> Reply {
    let (task_context, router) = (Arc::clone(context), Arc::clone(router));
    #[expect(clippy::disallowed_methods, reason = "on the current thread, which owns the connection")]
    let task = tokio::spawn(async move { forward_and_invalidate(&task_context, body, &router).await });
    task.await.unwrap_or_else(|_panic| {
        let cache_status = CacheStatus::forwarded(Outcome::Error, Forward::Method);
        Reply::text(StatusCode::BAD_GATEWAY, "the request has been aborted", cache_status)
    })
}

/// Invalidates before the client gets the response.
async fn forward_and_invalidate(
    context: &Arc<RequestContext>,
    body: ClientBody,
    router: &ArcSwap<Router>,
) -> Reply {
    let reply = forward(context, body, Forward::Method).await;
    let response = &reply.response;
    for key in invalidated(&context.method, &context.key, response.status(), response.headers()) {
        // The URL may belong to another route.
        let (router, cache) = (router.load(), &context.route.cache);
        let how = router.route_of(&key).map(|route| route.table.invalidate_on_unsafe).unwrap_or_default();
        let key = router.cache_key(key);
        match how {
            // RFC 9111, 4.4 has it validated before it is sent again; RFC 5861, 4 lets it answer if that fails, "regardless of other
            // freshness information". Otherwise any client that may send a POST could take away the fallback of a URL.
            UnsafeInvalidation::Fallback => drop(invalidate_url(cache, key, Invalidation::Fallback)),
            UnsafeInvalidation::Remove => drop(invalidate_url(cache, key, Invalidation::Hard)),
            UnsafeInvalidation::None => {}
        }
    }
    reply
}

/// The origin's response as a reply.
pub fn pass_through(response: Response<FetchedBody>, cache_status: CacheStatus) -> Reply {
    let mut response = response.map(|body| ReplyBody::Fetched(Box::new(body)));
    // That of this server (RFC 9110, 6.2): after an answer of HTTP/1.0 clients would close the connection.
    *response.version_mut() = Version::HTTP_11;
    hop::add_via(response.headers_mut(), Version::HTTP_11, pseudonym());
    hop::supply_date(response.headers_mut(), system_now());
    if let Some(AnnouncedTrailers(names)) = response.extensions_mut().remove() {
        response.headers_mut().insert(TRAILER, names);
    }
    Reply::new(response, cache_status)
}

/// Invalidates all variants of a URL, and returns their number.
pub fn invalidate_url(cache: &ResponseCache, key: CacheKey, mode: Invalidation) -> usize {
    let variants = cache.invalidate_tag(&url_tag(&key), mode);
    variants + usize::from(cache.invalidate(&key.into(), mode))
}
