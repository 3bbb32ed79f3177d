//! The copy of a response that an unsafe request has invalidated.
//!
//! RFC 9111, 4.4 has the response validated before it is sent again. So it is removed, and the next request loads: neither
//! a stale period nor a soft timeout brings it back while the origin answers. Only if that load fails, within the
//! response's stale-if-error period, its copy is sent: RFC 5861, 4 allows that "regardless of other freshness information".
//! Otherwise any client that may send a POST could take away the fallback of a URL, and with the next failure the URL.
//!
//! Only the latest response of a URL has a copy, not its other variants.

use std::{sync::Arc, time::Duration};

use stockade_cache::{Answer, Error, Invalidation, Lifespan, Reason, StoredValue};
use stockade_model::outcome::Outcome;

use super::{
    context::RequestContext,
    passthrough::invalidate_url,
    reply::{Reply, SelectedResponse, cache_status},
    stored::{CacheEntry, EntryKey, ResponseCache, StoredResponse},
};
use crate::policy::{cache_status::Forward, key::CacheKey};

/// Invalidates all variants of a URL, and keeps a copy of its latest response.
pub fn invalidate_to_copy(cache: &ResponseCache, key: CacheKey) {
    let copy_key = EntryKey::fallback_copy(&key);
    // After an earlier invalidation without a load there is only its copy.
    let sources = [EntryKey::from(key.clone()), copy_key.clone()];
    let copy = sources.iter().find_map(|entry_key| copy_of(&cache.peek(entry_key)?));
    invalidate_url(cache, key, Invalidation::Hard);
    if let Some(copy) = copy {
        cache.insert(copy_key, CacheEntry::Response(Arc::new(copy)));
    }
}

/// `None`: it may not be sent when a load fails.
fn copy_of(found: &StoredValue<CacheEntry>) -> Option<StoredResponse> {
    let CacheEntry::Response(stored) = &found.value else { return None };
    if stored.lifespan.sie.is_zero() || found.servable_for.is_zero() {
        return None;
    }
    let mut copy = stored.with_body(stored.body.clone());
    copy.freshness.initial_age = stored.freshness.age(found.age);
    copy.lifespan = Lifespan { sie: found.servable_for, ..Lifespan::NONE };
    Some(copy)
}

/// The copy as the reply to a request whose load has failed.
#[must_use]
pub fn reply(context: &RequestContext, error: &Error, forward: Forward) -> Option<Reply> {
    // A request with directives wants more than any answer.
    if !context.directives.is_empty() {
        return None;
    }
    let (stored, age) = find(context)?;
    let answer = Answer { value: (), outcome: Outcome::Fallback, age, reason: Reason::Failed(error.clone()) };
    let cache_status = cache_status(&answer, &stored, forward);
    SelectedResponse { stored: &stored, resident: age, cache_status }.reply(context).ok()
}

/// Removes the copy that the request would have been sent, since a newer response has been loaded.
pub fn remove(context: &RequestContext) {
    if find(context).is_some() {
        context.route.cache.invalidate(&EntryKey::fallback_copy(&context.key), Invalidation::Hard);
    }
}

fn find(context: &RequestContext) -> Option<(Arc<StoredResponse>, Duration)> {
    let found = context.route.cache.peek(&EntryKey::fallback_copy(&context.key))?;
    let CacheEntry::Response(stored) = found.value else { return None };
    (stored.matches(&context.headers) && !found.servable_for.is_zero()).then_some((stored, found.age))
}
