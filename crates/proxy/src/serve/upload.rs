//! The body of a request on its way to an origin. Its start is buffered before it takes a connection, and only a share of the
//! connections takes longer bodies: clients that send slowly do not hold those that misses need.

use std::{
    error::Error,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use stockade_model::time::{Runtime, before};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{fetched_body::prefixed_size_hint, origin::RequestBody, runtime::LocalRuntime};
use crate::upstream::UpstreamError;

type BoxError = Box<dyn Error + Send + Sync>;

/// A body that is not longer is read whole first.
const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// A request body, of which the beginning has been read.
pub struct Upload<B> {
    /// `None` once it has been taken.
    prefix: Option<Bytes>,
    /// `None`: the prefix is the whole body.
    rest: Option<B>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The connections of an origin that uploads may take at the same time: half of them.
pub struct UploadShare {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
    queue_timeout: Duration,
}

/// Counts a waiting upload.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl UploadShare {
    #[must_use]
    pub fn new(connections_max: usize, waiting_max: usize, queue_timeout: Duration) -> Self {
        let share = connections_max.div_ceil(2).min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(share));
        Self { free, waiting: AtomicUsize::new(0), waiting_max, queue_timeout }
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    async fn take(&self) -> Result<OwnedSemaphorePermit, UpstreamError> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(permit);
        }
        let waiting = self.waiting.fetch_add(1, Relaxed);
        let _waiting = Waiting(&self.waiting);
        if waiting >= self.waiting_max {
            return Err(UpstreamError::Overloaded { waiting });
        }
        let runtime = LocalRuntime::new();
        let free = Arc::clone(&self.free).acquire_owned();
        let taken = before(&runtime, runtime.now() + self.queue_timeout, free).await;
        // The semaphore is never closed.
        taken.and_then(Result::ok).ok_or(UpstreamError::QueueTimeout { after: self.queue_timeout })
    }
}

impl<B: RequestBody> Upload<B> {
    /// Reads the beginning of `body`; if that is not all, waits for a connection of the share.
    pub async fn begin(mut body: B, share: &UploadShare) -> Result<Self, UpstreamError> {
        if body.is_end_stream() {
            return Ok(Self { prefix: None, rest: None, _permit: None });
        }
        let mut buffered = BytesMut::new();
        while buffered.len() <= BUFFERED_BYTES_MAX {
            let Some(frame) = body.frame().await else {
                let whole = (!buffered.is_empty()).then(|| buffered.freeze());
                return Ok(Self { prefix: whole, rest: None, _permit: None });
            };
            let frame =
                frame.map_err(|error| UpstreamError::RequestBody { error: Arc::from(error.into()) })?;
            if let Ok(data) = frame.into_data() {
                buffered.extend_from_slice(&data);
            }
        }
        let permit = share.take().await?;
        Ok(Self { prefix: Some(buffered.freeze()), rest: Some(body), _permit: Some(permit) })
    }
}

impl<B: RequestBody> Body for Upload<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(prefix) = this.prefix.take().filter(|prefix| !prefix.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        match &mut this.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx).map_err(Into::into),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        prefixed_size_hint(self.prefix.as_ref(), &rest)
    }
}
