//! HTTP's rules for caching (RFC 9110, 9111, 5861, 9211, 9213). Pure: header fields and times in, decisions out.
//!
//! | module | decides |
//! |---|---|
//! | [`host`](stockade_http::host), [`key`], [`vary`] | the stored response that a request selects |
//! | [`directives`], [`freshness`], [`accept`] | if that response may answer the request |
//! | [`conditional`], [`range`] | the status and the part of it to send |
//! | [`storable`], [`hop`] | if a new response is stored, and its stored fields |
//! | [`override_field`] | the request fields that are dropped, because the key does not have them |
//! | [`invalidate`] | the stored responses that an unsafe method invalidates |
//! | [`cache_status`] | the `Cache-Status` field of the reply |
//!
//! The frontend has already refused ambiguous requests ([`stockade_http::frontend::head`]). The tests' tables are the values of the
//! public suite [http-tests/cache-tests](https://github.com/http-tests/cache-tests).
//!
//! # How the shell applies it
//!
//! **A request arrives** (suite: `other`, `method`, `vary`, `pragma`, `cc-request`).
//! 1. [`stockade_http::frontend::head::check`] rejects it and closes the connection, or passes. [`hop::is_loop`]: 508.
//! 2. [`hop::strip`] the request before anything else is read from it: the origin gets the head that the cache has examined.
//! 3. [`key::CacheKey::new`]. From here on the key's path replaces the client's, also towards the origin.
//! 4. Other methods than GET and HEAD: forwarded with the body. The [`invalidate::invalidated`] keys are removed *before*
//!    the client gets the response. Whatever is forwarded asks the breaker, if the method
//!    [does so](invalidate::asks_breaker).
//! 5. [`directives::RequestDirectives::read`], unless the route ignores them. `no-store` bypasses the store; stored
//!    responses stay.
//! 6. Find the [`vary::Vary`] of the key, then the response by key and [`vary::Vary::selecting`]. Other variants stay. HEAD
//!    gets the head of the response stored for GET.
//!
//! **A response is stored.** [`accept::acceptance`] with its age ([`freshness::Freshness::age`]).
//! - `Yes`, `Stale`: it is the reply.
//! - `No(Expired)`: the strategy decides. Within `swr` it is the reply, and one request refreshes it in the background. Later
//!   it is loaded, and if the load fails (no connection, timeout, 500, 502, 503, 504) it is the reply within `sie`. Both
//!   periods come from the origin if it declares them, otherwise from the strategy; zero forbids (suite: `stale`).
//! - `No(other)`: it is loaded; `sie` applies as well. A response that [`freshness::Freshness::must_validate`] is never used
//!   without a 304.
//! - `only-if-cached`: 504 instead of a load.
//!
//! **It is the reply.** First [`conditional::condition`]: 304 with [`conditional::to_not_modified`]; on `Failed` the request is
//! forwarded, since only the origin may send 412. Then [`range::select_range`]: 206 with [`range::content_range`] or
//! [`range::Multipart`], 416 with [`range::content_range_unsatisfiable`]. [`hop::set_age`] on all stored responses; `Date`,
//! `Expires` and the targeted fields stay as they were (suite: `other`). No `Accept-Ranges` is added.
//!
//! **It is loaded.** [`hop::for_load`], because the load serves all waiting requests; [`hop::add_via`]; and
//! [`conditional::conditional_request`] if the selected variant is stored (suite: `conditional-etag-vary-headers`). Each
//! client's own conditions and ranges then apply to the whole response. A HEAD without a fresh response goes to the origin
//! as a HEAD, and is not a load (suite: `updateHead`): [`conditional::head_effect`] is its effect on the stored
//! one; [`conditional::freshen`] updates it.
//!
//! **A response arrives.** Interim ones (1xx) are never stored (suite: `interim`). For the final one:
//! 1. [`hop::supply_date`], [`directives::ResponseDirectives::read`], [`hop::strip`].
//! 2. 304 to a validation: if [`conditional::is_about_stored`], [`conditional::freshen`] the stored head and compute directives
//!    and [`freshness::Freshness::new`] again. It stays stored if it is still [`storable::storable`]: a 304 may make it
//!    private. If the 304 is about another response, the request is repeated without conditions.
//! 3. If [`storable::storable`]: [`hop::for_store`] on a copy of the head, [`freshness::Freshness::new`], and store it for
//!    [`freshness::Freshness::fresh_for`], once its body is complete. This client also gets the fields that
//!    `no-cache="..."` excludes from the stored head.
//! 4. A failure (500, 502, 503, 504) never replaces a response that may still be served within `sie`.
//! 5. Otherwise a stored response stays (suite: `cc-resp-no-store-old-new`), and a marker prevents that requests for this
//!    key wait for each other.
//! 6. A [`freshness::Freshness::initial_age`] of a second or more is in `Age` of this reply, too (suite: `other-age-delay`).
//!
//! **Partial responses** (206) are neither requested nor stored: ranges are cut from the whole response. For responses that
//! are not shared or too large, the shell forwards the client's own range and conditions ([`hop::condition_fields`]), and
//! stores no 206, 304, 412 or 416.

pub mod accept;
pub mod cache_status;
pub mod conditional;
pub mod date;
pub mod directives;
pub mod forwarded;
pub mod freshness;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod hop;
pub mod invalidate;
pub mod key;
pub mod override_field;
pub mod range;
pub mod storable;
#[cfg(test)]
mod testing;
pub mod vary;
