//! What is answered, once it is known which status and content: conditions, ranges and HEAD (RFC 9110). Pure.

use std::ops::Range;

use bytes::Bytes;
use headers::{
    ETag, HeaderMapExt, IfMatch, IfModifiedSince, IfNoneMatch, IfRange, IfUnmodifiedSince, LastModified,
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        CONTENT_RANGE, CONTENT_TYPE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE, RANGE,
    },
};

use crate::content::Rendition;

/// What goes out.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of its head.
    pub status: StatusCode,
    /// The rest of its head, without its length.
    pub head: HeaderMap,
    /// Its body; that which a GET would have had, where it was asked for the head alone.
    pub body: Bytes,
}

impl Answer {
    /// A text.
    #[must_use]
    pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        let mut head = HeaderMap::new();
        head.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Self { status, head, body: text.into() }
    }

    /// The answer of a route that was to give this status to a request.
    #[must_use]
    pub fn of(
        rendition: &Rendition,
        status: StatusCode,
        path: &str,
        method: &Method,
        asked: &HeaderMap,
    ) -> Self {
        let of_text =
            |status| Self { status, head: rendition.head_of(status).clone(), body: text_of(status, path) };
        if status != StatusCode::OK {
            return of_text(status);
        }
        let whole = || Self { status, head: rendition.head.clone(), body: rendition.body.clone() };
        if method == Method::POST {
            return whole();
        }
        if let Some(instead) = precondition(&rendition.head, asked) {
            return of_text(instead);
        }
        let length = rendition.body.len();
        match range(rendition, method, asked) {
            Wanted::Whole => whole(),
            Wanted::Part(part) => {
                let mut head = rendition.head.clone();
                let last = part.end - 1;
                insert(&mut head, format!("bytes {}-{last}/{length}", part.start));
                Self { status: StatusCode::PARTIAL_CONTENT, head, body: rendition.body.slice(part) }
            }
            Wanted::Unsatisfiable => {
                let mut answer = of_text(StatusCode::RANGE_NOT_SATISFIABLE);
                insert(&mut answer.head, format!("bytes */{length}"));
                answer
            }
        }
    }
}

/// The texts of `OriginSimulator`, by status.
#[must_use]
pub fn text_of(status: StatusCode, path: &str) -> Bytes {
    match status.as_u16() {
        204 | 304 => Bytes::new(),
        404 => Bytes::from_static(b"Not found"),
        406 if path == "/*" => NO_RECIPE.into(),
        406 => format!("Recipe not set at {path}, please POST a recipe for this route to /_admin/add_recipe")
            .into(),
        code => format!("Error {code}").into(),
    }
}

/// Whether answers of this status have neither a body nor a length of one (RFC 9110, 8.6).
#[must_use]
pub fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// What is told of recipes where there are none.
pub const NO_RECIPE: &str = "Recipe not set, please POST a recipe to /_admin/add_recipe";

fn insert(head: &mut HeaderMap, range: String) {
    if let Ok(range) = HeaderValue::try_from(range) {
        head.insert(CONTENT_RANGE, range);
    }
}

/// The status that a condition of the request turns the answer into, in the order of RFC 9110, 13.2.2.
fn precondition(head: &HeaderMap, asked: &HeaderMap) -> Option<StatusCode> {
    let is_asked = |name| asked.contains_key(name);
    if ![IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE].iter().any(is_asked) {
        return None;
    }
    let etag: Option<ETag> = head.typed_get();
    let modified = head.typed_get::<LastModified>().map(Into::into);
    let failed = if let Some(condition) = asked.typed_get::<IfMatch>() {
        !etag.as_ref().map_or(condition.is_any(), |etag| condition.precondition_passes(etag))
    } else {
        let condition = asked.typed_get::<IfUnmodifiedSince>();
        condition.zip(modified).is_some_and(|(condition, modified)| !condition.precondition_passes(modified))
    };
    if failed {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_unchanged = if let Some(condition) = asked.typed_get::<IfNoneMatch>() {
        match &etag {
            Some(etag) => !condition.precondition_passes(etag),
            None => condition == IfNoneMatch::any(),
        }
    } else {
        let condition = asked.typed_get::<IfModifiedSince>();
        condition.zip(modified).is_some_and(|(condition, modified)| !condition.is_modified(modified))
    };
    is_unchanged.then_some(StatusCode::NOT_MODIFIED)
}

/// How much of the body is wanted.
enum Wanted {
    Whole,
    Part(Range<usize>),
    Unsatisfiable,
}

/// One range is served; several, and what is no range, are answered with the whole, as RFC 9110, 14.2
/// lets a server do.
fn range(rendition: &Rendition, method: &Method, asked: &HeaderMap) -> Wanted {
    let Some(range) = asked.get(RANGE).filter(|_| method == Method::GET) else { return Wanted::Whole };
    let head = &rendition.head;
    let is_unchanged =
        |condition: IfRange| !condition.is_modified(head.typed_get().as_ref(), head.typed_get().as_ref());
    let holds = !asked.contains_key(IF_RANGE) || asked.typed_get().is_some_and(is_unchanged);
    let range = range.to_str().ok().filter(|_| holds);
    range.and_then(|range| single(range, rendition.body.len())).unwrap_or(Wanted::Whole)
}

/// Reads `bytes=0-9`, `bytes=5-` or `bytes=-5` of a body of so many bytes (RFC 9110, 14.1.2).
fn single(range: &str, length: usize) -> Option<Wanted> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        // More digits than fit are more than any body has.
        is_number.then(|| digits.parse().unwrap_or(usize::MAX))
    };
    let range = match (number(first), number(last)) {
        (Some(first), None) if last.is_empty() => first..length,
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(length),
        (None, Some(suffix)) if first.is_empty() => length.saturating_sub(suffix)..length,
        _ => return None,
    };
    let is_bytes = unit.eq_ignore_ascii_case("bytes");
    is_bytes.then_some(if range.is_empty() { Wanted::Unsatisfiable } else { Wanted::Part(range) })
}
