//! Responses of the admin listener.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS},
};
use http_body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use stockade_http::server;
use tokio::sync::mpsc;

pub(super) type AdminResponse = Response<AdminBody>;

/// A response body: complete, or streamed by line.
pub(super) enum AdminBody {
    Whole(Option<Bytes>),
    Lines(mpsc::Receiver<Bytes>),
}

impl From<Bytes> for AdminBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => lines.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}

pub(super) fn error(status: StatusCode, message: &str) -> AdminResponse {
    json(status, &json!({ "error": message }))
}

pub(super) fn json(status: StatusCode, value: &Value) -> AdminResponse {
    of_type(status, "application/json", format!("{value:#}\n"))
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> AdminResponse {
    safe(server::text(status, text))
}

pub(super) fn of_type(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> AdminResponse {
    let mut response = self::text(status, text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response that is not cached, framed, read by other sites or sniffed for another type.
pub(super) fn safe(mut response: AdminResponse) -> AdminResponse {
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
