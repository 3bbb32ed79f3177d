//! Conditional requests: of clients against stored responses, and of this cache to the origin (RFC 9110, 13; RFC 9111, 4.3).

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        AGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
        IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, VARY, WARNING,
    },
};
use stockade_http::field::listed;

use super::{date, directives::ResponseDirectives, hop, vary::Vary};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition, or it holds: the whole response.
    Whole,
    /// 304.
    NotModified,
    /// 412. Only the origin knows for certain (RFC 9110, 13.1.1), so the cache does not send it.
    Failed,
}

/// Evaluates a client's conditions in the order of RFC 9110, 13.2.2.
///
/// Conditions apply to GET and HEAD, and to successful responses.
#[must_use]
pub fn condition(method: &Method, request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> Condition {
    // One pass over the names is cheaper than one lookup per condition.
    if !request.keys().any(|name| is_condition(name.as_str())) {
        return Condition::Whole;
    }
    if !status.is_success() || !matches!(*method, Method::GET | Method::HEAD) {
        return Condition::Whole;
    }
    let tag = stored.get(ETAG).map(HeaderValue::as_bytes);
    // Without `Last-Modified`, `Date` stands for it (RFC 9111, 4.3.2).
    let changed = || date::of(stored, &LAST_MODIFIED).or_else(|| date::of(stored, &DATE));
    if request.contains_key(IF_MATCH) {
        if !lists_tag(request, &IF_MATCH, |listed_tag| tag.is_some_and(|tag| strong_match(tag, listed_tag))) {
            return Condition::Failed;
        }
    } else if let Some(since) = date::of(request, &IF_UNMODIFIED_SINCE)
        && date::of(stored, &LAST_MODIFIED).is_some_and(|changed| changed > since)
    {
        return Condition::Failed;
    }
    let is_current = if request.contains_key(IF_NONE_MATCH) {
        lists_tag(request, &IF_NONE_MATCH, |listed_tag| tag.is_some_and(|tag| weak_match(tag, listed_tag)))
    } else {
        let since = date::of(request, &IF_MODIFIED_SINCE);
        since.is_some_and(|since| changed().is_some_and(|changed| changed <= since))
    };
    if is_current { Condition::NotModified } else { Condition::Whole }
}

fn is_condition(name: &str) -> bool {
    matches!(name, "if-none-match" | "if-modified-since" | "if-match" | "if-unmodified-since")
}

/// True if a list of entity tags contains `*` or a matching tag.
fn lists_tag(request: &HeaderMap, field: &HeaderName, matches: impl Fn(&[u8]) -> bool) -> bool {
    listed(request, field).any(|tag| tag == b"*" || matches(tag))
}

/// Weak comparison (RFC 9110, 8.8.3.2). Tags without quotes are compared byte by byte.
#[must_use]
pub fn weak_match(one: &[u8], other: &[u8]) -> bool {
    opaque(one) == opaque(other)
}

/// Strong comparison: equal, and neither is weak.
#[must_use]
pub fn strong_match(one: &[u8], other: &[u8]) -> bool {
    one == other && !is_weak(one)
}

fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Turns the head of a stored response into that of a 304: removes the fields that describe the content (RFC 9110,
/// 15.4.5), and `Last-Modified` if there is an entity tag.
pub fn to_not_modified(stored: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE, CONTENT_TYPE] {
        stored.remove(name);
    }
    if stored.contains_key(ETAG) {
        stored.remove(LAST_MODIFIED);
    }
}

/// True if the origin can validate it.
#[must_use]
pub fn has_validator(stored: &HeaderMap) -> bool {
    stored.contains_key(ETAG) || stored.contains_key(LAST_MODIFIED)
}

/// The conditions of a validation request (RFC 9111, 4.3.1). [`hop::for_load`] has removed the client's own. Values are
/// sent as they were received.
pub fn conditional_request(stored: &HeaderMap) -> impl Iterator<Item = (HeaderName, HeaderValue)> + '_ {
    [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)].into_iter().filter_map(
        |(validator, condition)| {
            let mut lines = stored.get_all(validator).iter();
            // Two validators of a kind are ambiguous.
            let (Some(value), None) = (lines.next(), lines.next()) else { return None };
            (!value.is_empty()).then(|| (condition, value.clone()))
        },
    )
}

/// True if a 304 is about the stored response (RFC 9111, 4.3.4). If not, the response has to be fetched whole.
///
/// Origins that compress on the way out make the tag of the 200 weak (nginx, Django) or append `-gzip` to it (Apache), name more
/// fields in its `Vary`, and send the 304 without either. The request has named one response only, by its tag. So tags are
/// compared weakly, which is how the origin has compared them (RFC 9110, 13.1.2), a `Vary` of some of the fields is not another
/// response, and an equal `Last-Modified` outweighs another tag, if it is a strong validator.
#[must_use]
pub fn is_about_stored(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    if not_modified.contains_key(VARY) && !Vary::of(stored).includes(&Vary::of(not_modified)) {
        // It would have another key.
        return false;
    }
    let modified = (date::of(not_modified, &LAST_MODIFIED), date::of(stored, &LAST_MODIFIED));
    let tags = (not_modified.get(ETAG), stored.get(ETAG));
    match (tags.0.map(HeaderValue::as_bytes), tags.1.map(HeaderValue::as_bytes)) {
        (Some(new), Some(old)) if weak_match(new, old) => true,
        (Some(new), None) if is_weak(new) => modified.0.is_none_or(|new| modified.1 == Some(new)),
        (Some(_), _) => modified.0.is_some() && modified.0 == modified.1 && has_strong_date(stored),
        // The request named one response only, so the 304 is about it unless the dates differ.
        (None, old) => match modified {
            (Some(new), Some(old)) => new == old,
            (Some(_), None) => old.is_some(),
            (None, _) => true,
        },
    }
}

/// True if `Last-Modified` is a strong validator: a later change has another date (RFC 9110, 8.8.2.2).
fn has_strong_date(stored: &HeaderMap) -> bool {
    let (modified, sent) = (date::of(stored, &LAST_MODIFIED), date::of(stored, &DATE));
    matches!((modified, sent), (Some(modified), Some(sent)) if modified + STRONG_DATE_MIN <= sent)
}

/// Dates have whole seconds.
const STRONG_DATE_MIN: Duration = Duration::from_secs(1);

/// Updates a stored head with the fields of a 304 (RFC 9111, 3.2). Fields that describe the stored bytes stay, and so
/// do `Vary` and an entity tag: that of the 304 may be the one of the bytes before compression. Date and age start again. `directives` are those of the 304.
///
/// The caller checks [`is_about_stored`] first, and recomputes the freshness from the updated head afterwards.
pub fn freshen(
    stored: &mut HeaderMap,
    not_modified: &HeaderMap,
    directives: &ResponseDirectives,
    received: SystemTime,
) {
    const CONTENT_FIELDS: [HeaderName; 4] = [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, VARY];
    let mut new = not_modified.clone();
    hop::for_store(&mut new, directives);
    for name in CONTENT_FIELDS {
        new.remove(name);
    }
    if stored.contains_key(ETAG) {
        new.remove(ETAG);
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

/// The effect of a response to HEAD on the stored response to GET (RFC 9111, 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// It describes the same response: [`freshen`] with its fields.
    Freshens,
    /// It describes another response: the stored one is stale.
    Invalidates,
    /// Not a 200, or not storable.
    Nothing,
}

/// `length` is that of the stored body in bytes.
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
    let declared_length = head
        .get(CONTENT_LENGTH)
        .map(|value| stockade_http::field::parse_u64(value.as_bytes()) == Some(length));
    let is_same = same(ETAG)
        && same(LAST_MODIFIED)
        && same(CONTENT_ENCODING)
        && declared_length.is_none_or(|is_equal| is_equal);
    if is_same && is_about_stored(stored, head) { HeadEffect::Freshens } else { HeadEffect::Invalidates }
}

#[cfg(test)]
mod tests;
