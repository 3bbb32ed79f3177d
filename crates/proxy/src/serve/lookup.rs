//! GET and HEAD: looks the response up in the cache, and loads it if necessary.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::TryFutureExt;
use http::{Method, StatusCode};
use http_body_util::Empty;
use stockade_cache::{
    Answer, CacheMode, CallPermit, Error, Invalidation, Lifespan, Reason, RequestOptions, SourceTimeout,
    WithoutSource,
};
use stockade_model::{outcome::Outcome, time::Runtime};

use super::{
    context::RequestContext,
    fetch::{OriginFailure, freshened_by_head, is_failure, load},
    markers,
    passthrough::{CallAdmission, forward, forward_admitted, pass_through},
    reply::{NotServable, Reply, SelectedResponse, cache_status},
    runtime::{LocalRuntime, system_now},
    stored::{CacheEntry, EntryKey, LoadedEntry, StoredResponse},
};
use crate::policy::{
    accept::{Acceptance, RejectReason, acceptance},
    cache_status::{CacheStatus, Forward},
    conditional::{self, HeadEffect},
};
use stockade_http::frontend::ClientBody;

/// Lookups of one request: each variant found may lead to another key.
const LOOKUPS_MAX: usize = 4;

/// How often a waiting request takes part in the election of another leader, after an error that the leader's own request
/// may have caused: its headers, its credentials or its address.
const ELECTIONS_MAX: usize = 2;

/// A fresh response for a GET without directives. It never waits.
pub fn try_hit(context: &RequestContext) -> Option<Reply> {
    if context.method != Method::GET || !context.directives.is_empty() || context.is_loop() {
        return None;
    }
    let mut entry_key = EntryKey::from(context.key.clone());
    for _ in 0..LOOKUPS_MAX {
        let Some(answer) = context.route.cache.get_answer(&entry_key) else {
            entry_key = variant_key(context, &entry_key)?;
            continue;
        };
        let CacheEntry::Response(stored) = &answer.value else { return None };
        if !stored.may_answer(answer.outcome) {
            return None;
        }
        if stored.matches(&context.headers) {
            let cache_status = cache_status(&answer, stored, Forward::UriMiss);
            let reply = SelectedResponse { stored, resident: answer.age, cache_status }.reply(context).ok();
            if reply.is_some() {
                context.route.cache.record_request(&entry_key);
            }
            return reply;
        }
        entry_key.variant = Some(Arc::new(stored.vary.selecting(&context.headers)));
    }
    None
}

/// The key of the variant that a request selects, if the latest response of the URL is another one. That response may
/// have expired: its `Vary` still applies, and the request does not wait for the next load.
fn variant_key(context: &RequestContext, entry_key: &EntryKey) -> Option<EntryKey> {
    if entry_key.variant.is_some() {
        return None;
    }
    let CacheEntry::Response(latest) = context.route.cache.peek(entry_key)?.value else { return None };
    if latest.matches(&context.headers) {
        return None;
    }
    let variant = Some(Arc::new(latest.vary.selecting(&context.headers)));
    Some(EntryKey { key: entry_key.key.clone(), variant })
}

/// How the request's own directives change the lookup.
enum LookupPlan {
    Cache(CacheMode, Forward),
    /// The request accepts this stale response (`max-stale`).
    Stale(Arc<StoredResponse>, Duration),
    /// `only-if-cached`, and nothing suitable is stored.
    NotStored,
}

/// Why a request without a stored response is forwarded.
fn miss_reason(entry_key: &EntryKey) -> Forward {
    if entry_key.variant.is_some() { Forward::VaryMiss } else { Forward::UriMiss }
}

fn plan_lookup(context: &RequestContext, entry_key: &EntryKey) -> LookupPlan {
    let miss = miss_reason(entry_key);
    let directives = &context.directives;
    if directives.is_empty() {
        return LookupPlan::Cache(CacheMode::Default, miss);
    }
    let found = context.route.cache.peek(entry_key).and_then(|found| match found.value {
        CacheEntry::Response(stored) => {
            let may_be_stale = stored.is_shared && !found.is_fallback_only;
            Some((stored, found.age, may_be_stale))
        }
        CacheEntry::Uncacheable(_) | CacheEntry::OtherVariant(_) => None,
    });
    let Some((stored, resident, may_be_stale)) = found else {
        return if directives.only_if_cached {
            LookupPlan::NotStored
        } else {
            LookupPlan::Cache(CacheMode::Default, miss)
        };
    };
    let is_selected = stored.matches(&context.headers);
    let age = stored.freshness.age(resident);
    match acceptance(directives, &stored.freshness, age, stored.lifetime()) {
        Acceptance::Fresh => LookupPlan::Cache(CacheMode::Default, miss),
        // The variant is looked up under its own key.
        _ if !is_selected => LookupPlan::Cache(CacheMode::Default, miss),
        Acceptance::Stale if may_be_stale => LookupPlan::Stale(stored, resident),
        Acceptance::Stale | Acceptance::Rejected(_) if directives.only_if_cached => LookupPlan::NotStored,
        Acceptance::Stale | Acceptance::Rejected(RejectReason::Expired | RejectReason::MustValidate) => {
            LookupPlan::Cache(CacheMode::Default, Forward::Stale)
        }
        Acceptance::Rejected(_) => LookupPlan::Cache(CacheMode::Reload, Forward::Request),
    }
}

/// Replies from the cache, or loads the response.
pub async fn serve_get(context: &Arc<RequestContext>, runtime: &LocalRuntime) -> Reply {
    let guard = context.abandon_guard();
    let reply = look_up_or_load(context, runtime).await;
    guard.disarm();
    reply
}

async fn look_up_or_load(context: &Arc<RequestContext>, runtime: &LocalRuntime) -> Reply {
    let mut entry_key = EntryKey::from(context.key.clone());
    let mut elections = 0;
    for _ in 0..LOOKUPS_MAX + ELECTIONS_MAX {
        if let Some(variant) = variant_key(context, &entry_key) {
            entry_key = variant;
        }
        let (mode, forward) = match plan_lookup(context, &entry_key) {
            LookupPlan::Cache(_, forward) if elections == 0 && is_known_unshared(context, &entry_key) => {
                return Box::pin(load_uncoalesced(context, entry_key, forward)).await;
            }
            LookupPlan::Cache(mode, forward) => (mode, forward),
            LookupPlan::Stale(stored, resident) => {
                let cache_status = CacheStatus::from_store(Outcome::Stale, stored.ttl_s(resident));
                let selected = SelectedResponse { stored: &stored, resident, cache_status };
                return reply_or_forward(context, &selected).await;
            }
            LookupPlan::NotStored => return not_stored(),
        };
        let (load_context, load_key) = (Arc::clone(context), entry_key.clone());
        context.route.origin.waiting_clients().join(&entry_key, context.bounded_client());
        let started = runtime.now();
        let options = RequestOptions { mode, client: context.client() };
        let answer = context
            .route
            .cache
            .get_streaming(entry_key.clone(), options, |reservation| {
                load(load_context, load_key, reservation).map_err(load_error)
            })
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            // A purge or an eviction removed the stale response during the wait, so that this request has to wait for a load.
            Err(Error::SoftTimeout { .. } | Error::Invalidated) => continue,
            // The client of the leader has too many requests, or has left.
            Err(Error::Load(failure)) if !context.has_loaded() && is_about_client(&*failure) => continue,
            Err(error) => return error_reply(context, &error, forward),
        };
        context.note_reason(&answer.reason);
        let stored = match &answer.value {
            CacheEntry::Response(stored) => stored,
            // The leader was identified in another way: this request may get another response.
            CacheEntry::Uncacheable(marker)
                if marker.identity.is_some_and(|identity| identity != context.identity()) =>
            {
                continue;
            }
            // The stored response has been shared: the leader may have been the exception.
            CacheEntry::Uncacheable(marker)
                if marker.is_about_request
                    && answer.outcome != Outcome::Miss
                    && elections < ELECTIONS_MAX =>
            {
                elections += 1;
                continue;
            }
            CacheEntry::Uncacheable(_) => {
                return Box::pin(load_uncoalesced(context, entry_key, forward)).await;
            }
            // The leader selects another response; this request selects the latest one.
            CacheEntry::OtherVariant(latest) if latest.matches(&context.headers) => continue,
            CacheEntry::OtherVariant(latest) => latest,
        };
        if stored.matches(&context.headers) {
            if !stored.may_answer(answer.outcome) {
                return Box::pin(load_uncoalesced(context, entry_key, forward)).await;
            }
            // An error response to a client that was not identified; identified ones may not share it.
            if answer.outcome == Outcome::Coalesced
                && stored.lifespan == Lifespan::NONE
                && !stored.status.is_success()
                && context.may_identify_user()
            {
                return Box::pin(load_uncoalesced(context, entry_key, forward)).await;
            }
            if answer.outcome == Outcome::Coalesced
                && stored.lifespan == Lifespan::NONE
                && may_be_about_request(stored.status)
                && elections < ELECTIONS_MAX
            {
                elections += 1;
                continue;
            }
            if mode == CacheMode::Reload
                && context.directives.no_cache
                && let Reason::Failed(error) = &answer.reason
            {
                return error_reply(context, error, forward);
            }
            if answer.outcome == Outcome::Coalesced {
                context.route.counts.wait().note(runtime.now() - started);
            }
            let cache_status = cache_status(&answer, stored, forward);
            let selected = SelectedResponse { stored, resident: answer.age, cache_status };
            return reply_or_forward(context, &selected).await;
        }
        entry_key.variant = Some(Arc::new(stored.vary.selecting(&context.headers)));
    }
    // Too many variants, elections or purges.
    let forward = miss_reason(&entry_key);
    Box::pin(load_uncoalesced(context, entry_key, forward)).await
}

fn is_about_client(failure: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    failure.downcast_ref::<OriginFailure>().is_some_and(OriginFailure::is_about_client)
}

/// True for errors that another request for the same URL may not get. 404 and 410 are about the URL.
fn may_be_about_request(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// True if this request would wait for a response that it must not share.
fn is_known_unshared(context: &RequestContext, entry_key: &EntryKey) -> bool {
    match context.route.cache.peek(entry_key) {
        Some(found) => match found.value {
            CacheEntry::Response(stored) if !stored.is_shared => stored.matches(&context.headers),
            CacheEntry::Response(_) if found.is_fallback_only => {
                markers::known_reason(context, entry_key).is_some()
            }
            _ => false,
        },
        None => markers::known_reason(context, entry_key).is_some(),
    }
}

/// Loads a response for this request alone. It is stored if it is storable.
async fn load_uncoalesced(context: &Arc<RequestContext>, entry_key: EntryKey, forward: Forward) -> Reply {
    if let Some(private) = context.take_private_response() {
        return pass_through(private, CacheStatus::forwarded(Outcome::Miss, forward));
    }
    let entry_key = variant_key(context, &entry_key).unwrap_or(entry_key);
    let permit = match context.route.cache.admit_call(&entry_key, context.client()).await {
        Ok(permit) => permit,
        Err(refused) => return error_reply(context, &refused, forward),
    };
    let (load_context, load_key) = (Arc::clone(context), entry_key.clone());
    let answer = context
        .route
        .uncoalesced
        .get_streaming(entry_key.clone(), CacheMode::Reload, |reservation| {
            counted(permit, load(load_context, load_key, reservation))
        })
        .await;
    match answer {
        Ok(Answer { value: CacheEntry::Response(stored), outcome, age, reason })
            if stored.matches(&context.headers) =>
        {
            match reason {
                Reason::Failed(error) if context.directives.no_cache => error_reply(context, &error, forward),
                reason => {
                    context.note_reason(&reason);
                    let answer = Answer { value: (), outcome, age, reason };
                    let cache_status = cache_status(&answer, &stored, forward);
                    let selected = SelectedResponse { stored: &stored, resident: age, cache_status };
                    reply_or_forward(context, &selected).await
                }
            }
        }
        Ok(Answer { reason: Reason::Failed(error), .. }) | Err(error) => {
            error_reply(context, &error, forward)
        }
        // A concurrent load has just stored another variant under the URL.
        Ok(Answer { value: CacheEntry::OtherVariant(_), .. }) => {
            Box::pin(load_uncoalesced(context, entry_key, forward)).await
        }
        Ok(_) => match context.take_private_response() {
            Some(private) => pass_through(private, CacheStatus::forwarded(Outcome::Miss, forward)),
            None => error_reply(context, &Error::LeaderLost, forward),
        },
    }
}

/// Runs a load, and tells the breaker its result. A load that is dropped has passed its deadline.
async fn counted<F>(permit: CallPermit<LocalRuntime>, load: F) -> Result<LoadedEntry, OriginFailure>
where
    F: Future<Output = Result<LoadedEntry, OriginFailure>>,
{
    let mut permit = PendingPermit(Some(permit));
    let result = load.await;
    if let Some(permit) = permit.0.take() {
        match &result {
            Ok(loaded) if !loaded.is_from_source => drop(permit),
            Ok(loaded) => permit.record_result(!loaded.is_failure),
            Err(failure) if !failure.is_origin_fault() => drop(permit),
            Err(failure) if failure.is_timeout() => permit.record_timeout(),
            Err(_) => permit.record_result(false),
        }
    }
    result
}

/// Tells the cache which failures its breaker counts.
fn load_error(failure: OriginFailure) -> Box<dyn std::error::Error + Send + Sync> {
    match failure.is_origin_fault() {
        false => WithoutSource(failure.into()).into(),
        true if failure.is_timeout() => SourceTimeout(failure.into()).into(),
        true => failure.into(),
    }
}

/// Records that the origin has not answered in time if it is dropped.
struct PendingPermit(Option<CallPermit<LocalRuntime>>);

impl Drop for PendingPermit {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.record_timeout();
        }
    }
}

/// The origin's error response to this request alone; otherwise the proxy's own.
fn error_reply(context: &RequestContext, error: &Error, forward: Forward) -> Reply {
    match context.take_private_response() {
        Some(private) => pass_through(private, CacheStatus::forwarded(Outcome::Error, forward)),
        None => Reply::error(context, error, forward),
    }
}

async fn reply_or_forward(context: &Arc<RequestContext>, selected: &SelectedResponse<'_>) -> Reply {
    match selected.reply(context) {
        Ok(reply) => reply,
        Err(NotServable::BodyDiscarded | NotServable::Condition) => {
            Box::pin(forward(context, Empty::new(), Forward::Bypass)).await
        }
    }
}

/// The reply to `only-if-cached`.
fn not_stored() -> Reply {
    let cache_status = CacheStatus::unforwarded(Outcome::Error);
    Reply::text(StatusCode::GATEWAY_TIMEOUT, "it is not stored here", cache_status)
}

/// Replies from a stored and fresh response; otherwise forwards the HEAD, whose response may freshen the stored one.
pub async fn serve_head(context: &Arc<RequestContext>, body: ClientBody) -> Reply {
    let mut entry_key = EntryKey::from(context.key.clone());
    let mut found = context.route.cache.peek(&entry_key);
    if let Some(CacheEntry::Response(stored)) = found.as_ref().map(|found| &found.value)
        && !stored.matches(&context.headers)
    {
        entry_key.variant = Some(Arc::new(stored.vary.selecting(&context.headers)));
        found = context.route.cache.peek(&entry_key);
    }
    let Some((stored, found)) = found.and_then(|found| match &found.value {
        CacheEntry::Response(stored) => Some((Arc::clone(stored), found)),
        CacheEntry::Uncacheable(_) | CacheEntry::OtherVariant(_) => None,
    }) else {
        if context.directives.only_if_cached {
            return not_stored();
        }
        return forward(context, body, Forward::UriMiss).await;
    };
    let resident = found.age;
    let age = stored.freshness.age(resident);
    let acceptance = acceptance(&context.directives, &stored.freshness, age, stored.lifetime());
    let is_accepted = match acceptance {
        Acceptance::Fresh => !found.fresh_for.is_zero(),
        Acceptance::Stale => !found.is_fallback_only,
        Acceptance::Rejected(_) => false,
    };
    if is_accepted && stored.is_shared {
        let outcome = if acceptance == Acceptance::Fresh { Outcome::Hit } else { Outcome::Stale };
        let cache_status = CacheStatus::from_store(outcome, stored.ttl_s(resident));
        let selected = SelectedResponse { stored: &stored, resident, cache_status };
        return reply_or_forward(context, &selected).await;
    }
    if context.directives.only_if_cached {
        return not_stored();
    }
    let started = system_now();
    let reply = match CallAdmission::of(context, &body).await {
        Ok(admission) => Ok(forward_admitted(context, body, Forward::Stale, admission).await),
        Err(refused) => Err(refused),
    };
    let has_failed = reply.as_ref().map_or(true, |reply| is_failure(reply.response.status()));
    if has_failed && let Some((stored, resident)) = fallback(context, &entry_key) {
        let cache_status = CacheStatus::from_store(Outcome::Fallback, stored.ttl_s(resident).min(-1));
        let selected = SelectedResponse { stored: &stored, resident, cache_status };
        return reply_or_forward(context, &selected).await;
    }
    let reply = match reply {
        Ok(reply) => reply,
        Err(refused) => return Reply::error(context, &refused, Forward::Stale),
    };
    let (response, length) = (&reply.response, stored.body.length().unwrap_or(0));
    let effect = conditional::head_effect(
        stored.status,
        &stored.headers,
        length,
        response.status(),
        response.headers(),
    );
    match effect {
        // A response to HEAD does not make one user's page everybody's.
        HeadEffect::Freshens if !stored.is_shared => {}
        HeadEffect::Freshens => {
            // Only if the entry has not been purged or replaced meanwhile.
            let is_still_stored = context.route.cache.peek(&entry_key).is_some_and(|found| {
                matches!(found.value, CacheEntry::Response(current) if Arc::ptr_eq(&current, &stored))
            });
            let entry = freshened_by_head(context, &entry_key, &stored, response.headers(), started);
            if let Some(entry) = entry.filter(|_| is_still_stored) {
                context.route.cache.insert(entry_key, entry);
            }
        }
        HeadEffect::Invalidates => {
            context.route.cache.invalidate(&entry_key, Invalidation::Soft);
        }
        HeadEffect::Nothing => {}
    }
    reply
}

/// The stored response that answers a request which the origin has not, and how long it has been stored.
fn fallback(context: &RequestContext, entry_key: &EntryKey) -> Option<(Arc<StoredResponse>, Duration)> {
    let found = context.route.cache.peek(entry_key)?;
    let CacheEntry::Response(stored) = found.value else { return None };
    let may_answer = context.directives.is_empty() && !found.servable_for.is_zero();
    (may_answer && stored.matches(&context.headers)).then_some((stored, found.age))
}
