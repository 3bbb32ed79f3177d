//! Responses of known status and content: conditions, ranges and HEAD (RFC 9110). Pure.

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
use stockade_http::byte_range;

use crate::content::Representation;

/// A response whose body is in memory.
#[derive(Clone, Debug)]
pub(crate) struct BufferedResponse {
    pub(crate) status: StatusCode,
    /// Without `Content-Length`.
    pub(crate) headers: HeaderMap,
    /// For a HEAD request, the body that a GET request would get.
    pub(crate) body: Bytes,
}

impl BufferedResponse {
    pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Self { status, headers, body: text.into() }
    }

    /// The response of a route whose stage has this status. Conditions and ranges may change a 200.
    pub(crate) fn for_request(
        representation: &Representation,
        status: StatusCode,
        path: &str,
        method: &Method,
        request_headers: &HeaderMap,
    ) -> Self {
        let with_text = |status| Self {
            status,
            headers: representation.headers_for(status).clone(),
            body: status_text(status, path),
        };
        if status != StatusCode::OK {
            return with_text(status);
        }
        let whole =
            || Self { status, headers: representation.headers.clone(), body: representation.body.clone() };
        if method == Method::POST {
            return whole();
        }
        if let Some(status) = evaluate_conditions(&representation.headers, request_headers) {
            return with_text(status);
        }
        let length = representation.body.len() as u64;
        match select_range(representation, method, request_headers) {
            SelectedRange::Whole => whole(),
            SelectedRange::Part(range) => {
                let mut headers = representation.headers.clone();
                insert_content_range(&mut headers, byte_range::content_range(&range, length));
                let [start, end] =
                    [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
                let body = representation.body.slice(start..end);
                Self { status: StatusCode::PARTIAL_CONTENT, headers, body }
            }
            SelectedRange::Unsatisfiable => {
                let mut response = with_text(StatusCode::RANGE_NOT_SATISFIABLE);
                insert_content_range(&mut response.headers, byte_range::content_range_unsatisfied(length));
                response
            }
        }
    }
}

/// The body of a status other than 200, as in `OriginSimulator`.
pub(crate) fn status_text(status: StatusCode, path: &str) -> Bytes {
    match status.as_u16() {
        204 | 304 => Bytes::new(),
        404 => Bytes::from_static(b"Not found"),
        406 if path == "/*" => NO_RECIPE.into(),
        406 => format!("Recipe not set at {path}, please POST a recipe for this route to /_admin/add_recipe")
            .into(),
        code => format!("Error {code}").into(),
    }
}

/// True if responses of this status have neither a body nor a `Content-Length` (RFC 9110, 8.6).
pub(crate) fn is_without_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Text of `OriginSimulator` where no recipe is in force.
pub(crate) const NO_RECIPE: &str = "Recipe not set, please POST a recipe to /_admin/add_recipe";

fn insert_content_range(headers: &mut HeaderMap, range: String) {
    if let Ok(range) = HeaderValue::try_from(range) {
        headers.insert(CONTENT_RANGE, range);
    }
}

/// The status that a condition of the request turns a 200 into, in the order of RFC 9110, 13.2.2.
fn evaluate_conditions(headers: &HeaderMap, request: &HeaderMap) -> Option<StatusCode> {
    let is_present = |name| request.contains_key(name);
    if ![IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE].iter().any(is_present) {
        return None;
    }
    let etag: Option<ETag> = headers.typed_get();
    let modified = headers.typed_get::<LastModified>().map(Into::into);
    let is_failed = if let Some(condition) = request.typed_get::<IfMatch>() {
        !etag.as_ref().map_or(condition.is_any(), |etag| condition.precondition_passes(etag))
    } else {
        let condition = request.typed_get::<IfUnmodifiedSince>();
        condition.zip(modified).is_some_and(|(condition, modified)| !condition.precondition_passes(modified))
    };
    if is_failed {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_unchanged = if let Some(condition) = request.typed_get::<IfNoneMatch>() {
        match &etag {
            Some(etag) => !condition.precondition_passes(etag),
            None => condition == IfNoneMatch::any(),
        }
    } else {
        let condition = request.typed_get::<IfModifiedSince>();
        condition.zip(modified).is_some_and(|(condition, modified)| !condition.is_modified(modified))
    };
    is_unchanged.then_some(StatusCode::NOT_MODIFIED)
}

enum SelectedRange {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

/// A single range is honoured. Several ranges and invalid ones select the whole body, which RFC 9110, 14.2 allows.
fn select_range(representation: &Representation, method: &Method, request: &HeaderMap) -> SelectedRange {
    let range = request.get(RANGE).filter(|_| method == Method::GET);
    let Some(range) = range else { return SelectedRange::Whole };
    let headers = &representation.headers;
    let is_unchanged = |condition: IfRange| {
        !condition.is_modified(headers.typed_get().as_ref(), headers.typed_get().as_ref())
    };
    let is_valid = !request.contains_key(IF_RANGE) || request.typed_get().is_some_and(is_unchanged);
    let specifier = byte_range::range_set(range.as_bytes()).filter(|_| is_valid);
    let length = representation.body.len() as u64;
    match specifier.map(|specifier| byte_range::parse_clamped(specifier.trim_ascii(), length)) {
        None | Some(Err(_)) => SelectedRange::Whole,
        Some(Ok(range)) if range.is_empty() => SelectedRange::Unsatisfiable,
        Some(Ok(range)) => SelectedRange::Part(range),
    }
}
