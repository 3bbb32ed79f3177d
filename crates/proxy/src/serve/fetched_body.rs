//! The body of an origin's response.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use stockade_http::upstream::UpstreamBody;

use crate::policy::hop;

#[derive(Debug)]
pub enum FetchedBody {
    Http(UpstreamBody, UnreadMark),
    Document(Full<Bytes>),
    Prefixed(Box<PrefixedBody>),
}

/// Counts a body whose next frame is not asked for: it holds a connection to its origin for a client that does not read.
#[derive(Debug)]
pub struct UnreadMark {
    unread: Arc<AtomicUsize>,
    is_set: bool,
}

impl UnreadMark {
    #[must_use]
    pub fn new(unread: &Arc<AtomicUsize>) -> Self {
        Self { unread: Arc::clone(unread), is_set: false }
    }

    fn set(&mut self, is_unread: bool) {
        match (self.is_set, is_unread) {
            (false, true) => drop(self.unread.fetch_add(1, Relaxed)),
            (true, false) => drop(self.unread.fetch_sub(1, Relaxed)),
            _ => {}
        }
        self.is_set = is_unread;
    }
}

impl Drop for UnreadMark {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A body whose prefix has already been read.
#[derive(Debug)]
pub struct PrefixedBody {
    /// `None` once it has been returned.
    prefix: Option<Bytes>,
    rest: FetchedBody,
}

impl FetchedBody {
    /// Puts back what has been read of this body.
    #[must_use]
    pub fn with_prefix(self, prefix: Bytes) -> Self {
        Self::Prefixed(Box::new(PrefixedBody { prefix: Some(prefix), rest: self }))
    }
}

/// Trailers without the fields that are not passed on.
fn with_allowed_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => {
            let allowed = trailers.iter().filter(|(name, _)| hop::is_allowed_in_trailers(name));
            Frame::trailers(allowed.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Err(frame) => frame,
    }
}

impl Body for FetchedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Http(body, mark) => {
                mark.set(false);
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                mark.set(matches!(frame, Some(Ok(_))) && !body.is_end_stream());
                Poll::Ready(frame.map(|frame| frame.map(with_allowed_trailers).map_err(io::Error::other)))
            }
            Self::Document(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Prefixed(body) => match body.prefix.take() {
                Some(prefix) => Poll::Ready(Some(Ok(Frame::data(prefix)))),
                None => Pin::new(&mut body.rest).poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body, _) => body.is_end_stream(),
            Self::Document(body) => body.is_end_stream(),
            Self::Prefixed(body) => body.prefix.is_none() && body.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body, _) => body.size_hint(),
            Self::Document(body) => body.size_hint(),
            Self::Prefixed(body) => prefixed_size_hint(body.prefix.as_ref(), &body.rest.size_hint()),
        }
    }
}

/// The size of a body whose `prefix` has already been read.
#[must_use]
pub fn prefixed_size_hint<'a>(prefix: impl IntoIterator<Item = &'a Bytes>, rest: &SizeHint) -> SizeHint {
    let prefix_bytes = prefix.into_iter().map(|part| part.len() as u64).sum();
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(prefix_bytes));
    if let Some(upper) = rest.upper() {
        hint.set_upper(upper.saturating_add(prefix_bytes));
    }
    hint
}
