//! Responses that are not shared: what is remembered of them, so that requests for them do not wait for each other, and what they
//! leave of an older response.
//!
//! One rejected request must not take a page away from the others. So a marker is about requests of one identity, and an older
//! response stays as a fallback.

use http::StatusCode;
use stockade_cache::{Invalidation, StoredValue};

use super::{
    context::RequestContext,
    stored::{CacheEntry, EntryKey, LoadedEntry, RequestIdentity, UncacheableMarker, UncacheableReason},
};
use crate::policy::{
    invalidate::{EffectOnExpired, effect_on_expired},
    storable::NotStorable,
};

/// The reason for which responses of this URL to requests like this one are known not to be shared.
#[must_use]
pub fn known_reason(context: &RequestContext, entry_key: &EntryKey) -> Option<UncacheableReason> {
    let cache = &context.route.cache;
    let found = cache.peek(entry_key);
    match found {
        Some(StoredValue { value: CacheEntry::Uncacheable(marker), .. }) => return Some(marker.reason),
        // Its successor may be shared again.
        Some(StoredValue { value: CacheEntry::Response(_), is_fallback_only: false, .. }) => return None,
        _ => {}
    }
    let found = cache.peek(&EntryKey::marker(&entry_key.key, context.identity()))?;
    match found.value {
        CacheEntry::Uncacheable(marker) => Some(marker.reason),
        CacheEntry::Response(_) | CacheEntry::OtherVariant(_) => None,
    }
}

/// The marker that a response with this status is not shared. It is stored unless the reason lies in this request, or another
/// response is stored that has been shared.
#[must_use]
pub fn remember(
    context: &RequestContext,
    entry_key: &EntryKey,
    status: StatusCode,
    reason: UncacheableReason,
) -> LoadedEntry {
    let identity = context.identity();
    let marker = UncacheableMarker { identity: Some(identity), ..UncacheableMarker::new(reason) };
    let stored = stored_response(context, entry_key);
    let is_fresh = |stored: &StoredValue<CacheEntry>| !stored.fresh_for.is_zero();
    if reason == NotStorable::RequestNoStore.into() || stored.as_ref().is_some_and(is_fresh) {
        return LoadedEntry::transient(marker.transient());
    }
    if reason == UncacheableReason::TooLarge {
        return LoadedEntry::complete(UncacheableMarker::new(reason).stored());
    }
    let store_of_kind = |marker: UncacheableMarker| {
        let marker_key = EntryKey::marker(&entry_key.key, identity);
        if context.route.cache.peek(&marker_key).is_none() {
            context.route.cache.insert(marker_key, marker.stored());
        }
    };
    match stored {
        None if identity == RequestIdentity::Anonymous => {
            LoadedEntry::complete(UncacheableMarker::new(reason).stored())
        }
        None => {
            store_of_kind(marker);
            LoadedEntry::transient(marker.transient())
        }
        Some(stored) => {
            // A second one in a row, and no error that the request may have caused.
            if stored.is_fallback_only && status.is_success() {
                store_of_kind(marker);
            }
            outdate(context, entry_key, effect_on_expired(status, false));
            LoadedEntry::transient(UncacheableMarker { is_about_request: true, ..marker }.transient())
        }
    }
}

/// The marker of an error response without a lifetime, for the waiting requests.
#[must_use]
pub fn of_error(context: &RequestContext, entry_key: &EntryKey, reason: UncacheableReason) -> LoadedEntry {
    let is_about_request = stored_response(context, entry_key).is_some();
    let identity = Some(context.identity());
    let marker = UncacheableMarker { identity, is_about_request, ..UncacheableMarker::new(reason) };
    LoadedEntry::transient(marker.transient())
}

/// Applies the effect of a response that is not stored to the one that is, if that has expired.
pub fn outdate(context: &RequestContext, entry_key: &EntryKey, effect: EffectOnExpired) {
    let stored = stored_response(context, entry_key).filter(|stored| stored.fresh_for.is_zero());
    let Some(stored) = stored else { return };
    match effect {
        EffectOnExpired::Nothing => {}
        EffectOnExpired::FallbackOnly if stored.is_fallback_only => {}
        EffectOnExpired::FallbackOnly => drop(context.route.cache.restrict_to_fallback(entry_key)),
        EffectOnExpired::Removes => drop(context.route.cache.invalidate(entry_key, Invalidation::Hard)),
    }
}

fn stored_response(context: &RequestContext, entry_key: &EntryKey) -> Option<StoredValue<CacheEntry>> {
    context.route.cache.peek(entry_key).filter(|found| matches!(found.value, CacheEntry::Response(_)))
}
