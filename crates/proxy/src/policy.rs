//! What HTTP says about caching (RFC 9110, 9111, 5861, 9211, 9213). Pure: heads and times in, decisions out.
//!
//! One file an idea. What can be understood in two ways has been refused ([`crate::front::head`]). [`key`] and [`vary`] say
//! what a request may be answered from; [`directives`] read what both sides ask, [`freshness`] and [`accept`] whether a stored answer will do;
//! [`conditional`] and [`range`] what of it is sent; [`storable`] whether a new one is stored, [`hop`] what of its head;
//! [`invalidate`] what a change makes of others; [`cache_status`] tells what was done.
//!
//! The public suite [http-tests/cache-tests](https://github.com/http-tests/cache-tests) is the acceptance test: the
//! values of its tests are the tables of these modules' tests.
//!
//! # What the shell does
//!
//! **A request comes** (the suite's `other`, `method`, `vary`, `pragma`, `cc-request`).
//! 1. [`crate::front::head::check`], or its status, and the connection is closed. [`hop::is_loop`]: 508.
//! 2. [`hop::strip`] the request, before anything else is read of it: what is forwarded is what was looked at.
//! 3. [`key::Key::of`]. From now on the key's path is the path: the origin is asked for that one.
//! 4. Neither GET nor HEAD: forwarded with its body. Of the answer, [`invalidate::invalidated`] keys go *before* the
//!    client has it.
//! 5. [`directives::RequestDirectives::read`]. `no-store` goes past the store, and its answer is not stored; what is
//!    stored stays.
//! 6. Find the [`vary::Vary`] of the key, then the answer by key and [`vary::Vary::selecting`]. Other variants stay. A
//!    HEAD is answered from what is stored for GET, without the body.
//!
//! **There is one.** [`accept::suits`], with its age ([`freshness::Freshness::age`]).
//! - `Yes`, `Stale`: it is given.
//! - `No(Expired)`: as the engine has it. Within `swr` it is given, and one request refreshes it in the background, with
//!   this request's fields; past it the origin is asked, and if that fails (no connection, no answer in time, 500, 502,
//!   503, 504) it is given within `sie`. Both are the origin's word where there is one, the strategy's otherwise; zero
//!   forbids (the suite's `stale`).
//! - `No(anything else)`: the origin is asked; `sie` holds here, too. One that [`freshness::Freshness::must_validate`] is
//!   never given without the origin's 304.
//! - `only-if-cached`: 504 instead of asking the origin, where a stored answer will not do or there is none.
//!
//! **It is given.** [`conditional::condition`] first: 304 with [`conditional::to_not_modified`]; 412 only after the origin has
//! been asked, so `Failed` means to validate first. Then [`range::wanted`]: 206 with [`range::content_range`] or
//! [`range::Multipart`], 416 with [`range::content_range_unsatisfiable`]. [`hop::set_age`] on all that was stored; `Date`,
//! `Expires` and the targeted fields stay as they were (the suite's `other`). Without `Accept-Ranges` of the origin's
//! none is added: ranges work all the same.
//!
//! **The origin is asked.** [`hop::for_load`], since the load is for everybody who waits; [`hop::add_via`]; and
//! [`conditional::conditional_request`] if something is stored, of the variant that was selected (the suite's
//! `conditional-etag-vary-headers`: the request's own fields go along). Whom the answer reaches, it reaches by the same
//! steps as a stored one: conditions and ranges of each client are about the whole answer. A HEAD that finds nothing fresh
//! goes to the origin as a HEAD, and is no load (the suite's `updateHead`): [`conditional::head_effect`] says what its
//! answer makes of what is stored; if it freshens that, [`conditional::freshen`], and the freshened head is the answer.
//!
//! **An answer comes.** Interim ones (1xx) are no answers; they are passed on where the server can send any, and never
//! stored (the suite's `interim`). Then, of the final one:
//! 1. [`hop::supply_date`], [`directives::ResponseDirectives::read`] (of the head as it came), [`hop::strip`].
//! 2. 304, where it was asked about a stored answer: [`conditional::is_about`]? Then [`conditional::freshen`] the stored head,
//!    read its directives and [`freshness::Freshness::of`] anew, and answer from it. It stays stored if it still is
//!    [`storable::storable`]: a 304 may make it private. Where cookies are private, `Set-Cookie` of a 304 is for who has
//!    asked, and is taken out before. If it is not about it: what was stored goes, and the origin is asked once more
//!    without a condition.
//! 3. [`storable::storable`]? Then [`hop::for_store`] a copy, [`freshness::Freshness::of`] and store it for
//!    [`freshness::Freshness::fresh_for`], if it may be given at some time or asked about, and its body came to its very
//!    end. A stored head without what `no-cache="..."` lists is for those who come later; who has asked is given all of it.
//! 4. A failure (500, 502, 503, 504) never takes the place of what may still be given within `sie`.
//! 5. It is not storable? What is stored stays (the suite's `cc-resp-no-store-old-new`), and the key is remembered as not to be
//!    waited for, so that nobody queues for answers that are not shared.
//! 6. [`freshness::Freshness::initial_age`] of a second or more is told in `Age` to who has asked, too (`other-age-delay`).
//!
//! **A partial answer** (206) is never asked for and never stored: what clients ask for in parts is loaded whole. What is
//! not shared, or too long to be stored, is the exception that the shell may make: it then forwards the client's own
//! range and conditions ([`hop::of_a_condition`]), and stores nothing of a 206, 304, 412 or 416.

pub mod accept;
pub mod cache_status;
pub mod conditional;
pub mod date;
pub mod directives;
mod field;
pub mod freshness;
pub mod hop;
pub mod invalidate;
pub mod key;
pub mod range;
pub mod storable;
#[cfg(test)]
mod testing;
pub mod vary;
