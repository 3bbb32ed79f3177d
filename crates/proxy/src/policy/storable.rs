//! Whether an answer may be stored, in a cache that many share (RFC 9111, 3).

use http::{
    HeaderMap, Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_LOCATION, EXPIRES, SET_COOKIE, VARY},
};
use thiserror::Error;

use super::{
    directives::{RequestDirectives, ResponseDirectives},
    freshness::is_heuristically_cacheable,
    key::Key,
    vary::Vary,
};

/// Why an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotStored {
    /// Answers to requests of this method are not for others.
    #[error("the method")]
    Method,
    /// A POST without its own `Content-Location` or without a lifetime (RFC 9110, 9.3.3).
    #[error("a POST that names no document of its own")]
    Post,
    /// An interim answer: the final one is still to come.
    #[error("an interim answer")]
    Interim,
    /// 206, or anything else that is a part of an answer.
    #[error("a part of an answer")]
    Partial,
    /// 304 where nothing had been asked about.
    #[error("304 to a request without a condition")]
    NotModified,
    /// The request's `no-store`.
    #[error("no-store of the request")]
    RequestNoStore,
    /// The answer's `no-store`.
    #[error("no-store")]
    NoStore,
    /// `must-understand`, and the status is not understood.
    #[error("must-understand, and an unknown status")]
    NotUnderstood,
    /// For one user.
    #[error("private")]
    Private,
    /// Asked with credentials, and the origin does not say that it is for others as well.
    #[error("asked with credentials")]
    Credentials,
    /// It sets a cookie, and the origin does not say that it is for others as well.
    #[error("it sets a cookie")]
    Cookie,
    /// `Vary: *`: it depends on more than the request.
    #[error("Vary: *")]
    VariesOnAnything,
    /// Answers of this status are stored only if the origin says for how long.
    #[error("the status, without a lifetime")]
    Status,
}

/// What is done with answers that set cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// They are for one user, unless the origin says `public` or `s-maxage` (or in a targeted field, a lifetime): a
    /// session that is handed to a stranger costs more than a miss. Stricter than the standard.
    #[default]
    Private,
    /// They are stored as any others, cookies and all (RFC 9111, 7.3).
    AsAny,
}

/// A request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// What was asked for.
    pub target: &'a Key,
    /// The request's head.
    pub request: &'a HeaderMap,
    /// The answer's status.
    pub status: StatusCode,
    /// The answer's head.
    pub response: &'a HeaderMap,
}

/// Whether the answer may be stored for others than who has asked. It is no partial one by its length: a body that
/// was cut is not stored, whatever is said here.
pub fn storable(
    exchange: &Exchange<'_>,
    asked: &RequestDirectives,
    said: &ResponseDirectives,
    set_cookie: SetCookie,
) -> Result<(), NotStored> {
    let Exchange { method, request, status, response, .. } = *exchange;
    let is_told = said.lifetime().is_some() || (!said.is_targeted && response.contains_key(EXPIRES));
    match *method {
        Method::GET => {}
        Method::POST if is_told && is_of_target(exchange) => {}
        Method::POST => return Err(NotStored::Post),
        _ => return Err(NotStored::Method),
    }
    match status {
        status if status.is_informational() => return Err(NotStored::Interim),
        StatusCode::PARTIAL_CONTENT => return Err(NotStored::Partial),
        StatusCode::NOT_MODIFIED => return Err(NotStored::NotModified),
        _ => {}
    }
    if asked.no_store {
        return Err(NotStored::RequestNoStore);
    }
    let is_understood = is_understood(status);
    if said.must_understand && !is_understood {
        return Err(NotStored::NotUnderstood);
    }
    if said.no_store && !said.must_understand {
        return Err(NotStored::NoStore);
    }
    if said.private.is_whole() {
        return Err(NotStored::Private);
    }
    let is_for_all = said.public || said.s_maxage.is_some();
    if request.contains_key(AUTHORIZATION) && !is_for_all && !said.must_revalidate {
        return Err(NotStored::Credentials);
    }
    let is_for_this_cache = said.is_targeted && said.max_age.is_some();
    let is_stripped =
        said.private.fields().contains(&SET_COOKIE) || said.no_cache.fields().contains(&SET_COOKIE);
    if set_cookie == SetCookie::Private
        && response.contains_key(SET_COOKIE)
        && !(is_for_all || is_for_this_cache || is_stripped)
    {
        return Err(NotStored::Cookie);
    }
    if response.contains_key(VARY) && Vary::of(response) == Vary::Any {
        return Err(NotStored::VariesOnAnything);
    }
    if !(is_told || said.public || is_heuristically_cacheable(status)) {
        return Err(NotStored::Status);
    }
    Ok(())
}

/// Whether the `Content-Location` of an answer is what was asked for.
fn is_of_target(exchange: &Exchange<'_>) -> bool {
    let mut lines = exchange.response.get_all(CONTENT_LOCATION).into_iter();
    let (Some(only), None) = (lines.next(), lines.next()) else { return false };
    only.to_str().ok().and_then(|reference| exchange.target.resolve(reference)).as_ref()
        == Some(exchange.target)
}

/// Whether it is known what the status asks of caches: those of RFC 9110, and of its well-known extensions.
#[must_use]
pub fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451 | 500..=505 | 511
    )
}
