//! Conditions: of clients against stored answers, and of this cache against the origin (RFC 9110, 13; RFC 9111, 4.3).

use std::time::SystemTime;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        AGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
        IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, VARY, WARNING,
    },
};

use super::{date, directives::ResponseDirectives, field::listed, hop, vary::Vary};

/// What a client's conditions make of a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There are none, or they do not change it.
    Whole,
    /// 304: the client has it.
    NotModified,
    /// 412: what the client wants unchanged has changed, as far as is known here. Only the origin knows for certain
    /// (RFC 9110, 13.1.1), so a stored answer is validated before that is told.
    Failed,
}

/// Of a request against the answer that it would be given, in the order of RFC 9110, 13.2.2.
///
/// Conditions are about the answer to GET and HEAD, and about success: redirections and errors are given as they are.
#[must_use]
pub fn condition(method: &Method, request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> Condition {
    // To look at each name once is cheaper than to look for each.
    if !request.keys().any(|name| is_condition(name.as_str())) {
        return Condition::Whole;
    }
    if !status.is_success() || !matches!(*method, Method::GET | Method::HEAD) {
        return Condition::Whole;
    }
    let tag = stored.get(ETAG).map(HeaderValue::as_bytes);
    // Without `Last-Modified`, it has been like that at its date (RFC 9111, 4.3.2).
    let changed = || date::of(stored, &LAST_MODIFIED).or_else(|| date::of(stored, &DATE));
    if request.contains_key(IF_MATCH) {
        if !names(request, &IF_MATCH, |named| tag.is_some_and(|tag| is_strongly(tag, named))) {
            return Condition::Failed;
        }
    } else if let Some(since) = date::of(request, &IF_UNMODIFIED_SINCE)
        && date::of(stored, &LAST_MODIFIED).is_some_and(|changed| changed > since)
    {
        return Condition::Failed;
    }
    let is_had = if request.contains_key(IF_NONE_MATCH) {
        names(request, &IF_NONE_MATCH, |named| tag.is_some_and(|tag| is_weakly(tag, named)))
    } else {
        let since = date::of(request, &IF_MODIFIED_SINCE);
        since.is_some_and(|since| changed().is_some_and(|changed| changed <= since))
    };
    if is_had { Condition::NotModified } else { Condition::Whole }
}

fn is_condition(name: &str) -> bool {
    matches!(name, "if-none-match" | "if-modified-since" | "if-match" | "if-unmodified-since")
}

/// Whether a condition names it: by `*`, which is anything that there is, or by a tag.
fn names(request: &HeaderMap, field: &HeaderName, is_it: impl Fn(&[u8]) -> bool) -> bool {
    listed(request, field).any(|named| named == b"*" || is_it(named))
}

/// Weak comparison (RFC 9110, 8.8.3.2). Tags without quotes, which there should not be, are those bytes.
#[must_use]
pub fn is_weakly(one: &[u8], other: &[u8]) -> bool {
    opaque(one) == opaque(other)
}

/// Strong comparison: the same, and neither of them weak.
#[must_use]
pub fn is_strongly(one: &[u8], other: &[u8]) -> bool {
    one == other && !is_weak(one)
}

fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Makes the head of a stored answer that of a 304: what describes the content goes, the rest is what the client
/// stores (RFC 9110, 15.4.5). `Last-Modified` stays only where there is no tag.
pub fn to_not_modified(stored: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE, CONTENT_TYPE] {
        stored.remove(name);
    }
    if stored.contains_key(ETAG) {
        stored.remove(LAST_MODIFIED);
    }
}

/// Whether there is something to ask the origin by.
#[must_use]
pub fn has_validator(stored: &HeaderMap) -> bool {
    stored.contains_key(ETAG) || stored.contains_key(LAST_MODIFIED)
}

/// What to add to a request so that the origin may answer 304 (RFC 9111, 4.3.1), once the client's own conditions are
/// gone ([`hop::for_load`]). Values are sent as they were received.
pub fn conditional_request(stored: &HeaderMap) -> impl Iterator<Item = (HeaderName, HeaderValue)> + '_ {
    [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)].into_iter().filter_map(
        |(validator, condition)| {
            let mut lines = stored.get_all(validator).iter();
            // Two validators are none.
            let (Some(value), None) = (lines.next(), lines.next()) else { return None };
            (!value.is_empty()).then(|| (condition, value.clone()))
        },
    )
}

/// Whether a 304 of the origin is about the stored answer that it was asked about (RFC 9111, 4.3.4). If it is not, the
/// answer has to be fetched whole.
#[must_use]
pub fn is_about(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    if not_modified.contains_key(VARY) && Vary::of(not_modified) != Vary::of(stored) {
        // It would have to be stored elsewhere.
        return false;
    }
    let tags = (not_modified.get(ETAG), stored.get(ETAG));
    match (tags.0.map(HeaderValue::as_bytes), tags.1.map(HeaderValue::as_bytes)) {
        (Some(new), Some(old)) if is_weak(new) => is_weakly(new, old),
        (Some(new), Some(old)) => is_strongly(new, old),
        (Some(new), None) if !is_weak(new) => false,
        // The only one that was asked about; unless its date says otherwise.
        _ => match (date::of(not_modified, &LAST_MODIFIED), date::of(stored, &LAST_MODIFIED)) {
            (Some(new), Some(old)) => new == old,
            (Some(_), None) => stored.contains_key(ETAG),
            (None, _) => true,
        },
    }
}

/// Takes over what a 304 of the origin says (RFC 9111, 3.2): each of its fields takes the place of those of that name.
/// What describes the bytes that are stored stays: their length, their coding, their range; and so does `Vary`.
/// Its date and its age count from now on. `said` are the directives of the 304 alone.
///
/// To be called when [`is_about`] has said so. The lifetime is worked out afterwards, of the stored head as it has
/// become.
pub fn freshen(
    stored: &mut HeaderMap,
    not_modified: &HeaderMap,
    said: &ResponseDirectives,
    received: SystemTime,
) {
    const OF_THE_BYTES: [HeaderName; 4] = [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, VARY];
    let mut new = not_modified.clone();
    hop::for_store(&mut new, said);
    for name in OF_THE_BYTES {
        new.remove(name);
    }
    hop::supply_date(&mut new, received);
    stored.remove(AGE);
    stored.remove(WARNING);
    for name in new.keys() {
        stored.remove(name);
    }
    for (name, value) in &new {
        stored.append(name, value.clone());
    }
}

/// What the answer to a HEAD that the origin was asked makes of the stored answer to GET (RFC 9111, 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// It is about the same: [`freshen`] with its fields.
    Freshens,
    /// It is about something else: what is stored is stale from now on.
    Invalidates,
    /// It says nothing about it: not a 200, or not one that may be stored.
    Nothing,
}

/// See [`HeadEffect`]. `length` is that of the stored body, in bytes.
#[must_use]
pub fn head_effect(
    stored_status: StatusCode,
    stored: &HeaderMap,
    length: u64,
    status: StatusCode,
    head: &HeaderMap,
) -> HeadEffect {
    if status != StatusCode::OK || stored_status != StatusCode::OK {
        return HeadEffect::Nothing;
    }
    let same = |name: HeaderName| match (head.get(&name), stored.get(&name)) {
        (Some(new), Some(old)) => new == old,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let told = head.get(CONTENT_LENGTH).map(|told| super::field::position(told.as_bytes()) == Some(length));
    let is_same = same(ETAG) && same(LAST_MODIFIED) && same(CONTENT_ENCODING) && told.unwrap_or(true);
    if is_same && is_about(stored, head) { HeadEffect::Freshens } else { HeadEffect::Invalidates }
}

#[cfg(test)]
mod tests;
