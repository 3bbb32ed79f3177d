//! The pages of an audit's origin.

use std::time::Duration;

use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE, SET_COOKIE},
};
use stockade_http::byte_range;
use stockade_origin::{ResponseEnding, ScriptedResponse};

use crate::{case::OriginRequest, stamp::Stamp};

/// The bytes of a page, unless a case needs others.
const PAGE_BYTES: usize = 4_096;

/// A response with a stamped body.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    stamp: Stamp,
    response: ScriptedResponse,
    etag: Option<String>,
    has_ranges: bool,
    request: OriginRequest,
}

impl Page {
    /// The page of this load, with status 200.
    pub(crate) fn of(request: &OriginRequest) -> Self {
        let path = request.path().to_owned();
        Self {
            stamp: Stamp { path, load: request.number, bytes: PAGE_BYTES, ..Stamp::default() },
            response: ScriptedResponse::ok(""),
            etag: None,
            has_ranges: false,
            request: request.clone(),
        }
    }

    pub(crate) fn cache_control(self, value: &str) -> Self {
        self.field(CACHE_CONTROL, value)
    }

    /// Adds a field.
    pub(crate) fn field(mut self, name: impl TryInto<HeaderName>, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (name.try_into(), HeaderValue::from_str(value)) {
            self.response.headers.append(name, value);
        }
        self
    }

    /// From the request to the first byte.
    pub(crate) fn after(mut self, latency: Duration) -> Self {
        self.response.latency = latency;
        self
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.response.status = status;
        self
    }

    pub(crate) fn ending(mut self, ending: ResponseEnding) -> Self {
        self.response.ending = ending;
        self
    }

    pub(crate) fn bytes(mut self, bytes: usize) -> Self {
        self.stamp.bytes = bytes;
        self
    }

    /// The page is this user's.
    pub(crate) fn owner(mut self, owner: &str) -> Self {
        owner.clone_into(&mut self.stamp.owner);
        self
    }

    pub(crate) fn variant(mut self, variant: &str) -> Self {
        variant.clone_into(&mut self.stamp.variant);
        self
    }

    /// The page has this entity tag, with its quotes. A request whose `If-None-Match` has it gets 304.
    pub(crate) fn etag(mut self, etag: &str) -> Self {
        self.etag = Some(etag.to_owned());
        self.field(ETAG, etag)
    }

    /// `Range` and `If-Range` are followed.
    pub(crate) fn ranges(mut self) -> Self {
        self.has_ranges = true;
        self.field(ACCEPT_RANGES, "bytes")
    }

    /// `Set-Cookie` with this value.
    pub(crate) fn set_cookie(self, value: &str) -> Self {
        self.field(SET_COOKIE, value)
    }

    /// The response to the request.
    pub(crate) fn response(self) -> ScriptedResponse {
        let Self { stamp, mut response, etag, has_ranges, request } = self;
        let tags = request.field(IF_NONE_MATCH).unwrap_or_default();
        let has_tag = |etag: &String| tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag);
        if response.status == StatusCode::OK && etag.as_ref().is_some_and(has_tag) {
            response.status = StatusCode::NOT_MODIFIED;
            return response;
        }
        response.body = stamp.body();
        let is_range_valid = request.field(IF_RANGE).is_none_or(|tag| etag.as_deref() == Some(tag));
        let range = request.field(RANGE).filter(|_| {
            has_ranges && is_range_valid && request.method == Method::GET && response.status == StatusCode::OK
        });
        let length = response.body.len() as u64;
        let part = range
            .and_then(|range| byte_range::range_set(range.as_bytes()))
            .and_then(|spec| byte_range::parse_clamped(spec, length).ok());
        if let Some(part) = part {
            response.status = StatusCode::PARTIAL_CONTENT;
            if let Ok(value) = HeaderValue::try_from(byte_range::content_range(&part, length)) {
                response.headers.insert(CONTENT_RANGE, value);
            }
            let [start, end] = [part.start, part.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            response.body = response.body.slice(start..end);
        }
        response
    }
}

impl From<Page> for ScriptedResponse {
    fn from(page: Page) -> Self {
        page.response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fields: &[(&'static str, &str)]) -> ScriptedResponse {
        let mut request = OriginRequest::of("/case/page");
        for (name, value) in fields {
            request.headers.insert(*name, value.parse().unwrap());
        }
        Page::of(&request).etag("\"a\"").ranges().bytes(1_000).response()
    }

    #[test]
    fn conditions_and_ranges_are_followed() {
        for (fields, status, bytes) in [
            (&[][..], 200, 1_000),
            (&[("if-none-match", "\"b\", W/\"a\"")], 304, 0),
            (&[("if-none-match", "\"b\"")], 200, 1_000),
            (&[("range", "bytes=10-19")], 206, 10),
            (&[("range", "bytes=10-19"), ("if-range", "\"a\"")], 206, 10),
            (&[("range", "bytes=10-19"), ("if-range", "\"b\"")], 200, 1_000),
        ] {
            let response = asked(fields);
            assert_eq!((response.status.as_u16(), response.body.len()), (status, bytes), "{fields:?}");
        }
        assert_eq!(asked(&[("range", "bytes=10-19")]).headers[CONTENT_RANGE], "bytes 10-19/1000");
    }
}
