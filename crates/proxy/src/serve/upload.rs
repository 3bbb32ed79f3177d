//! The body of a request on its way to an origin. Its start is buffered before it takes a connection, and only a share of the
//! connections takes longer bodies: clients that send slowly do not hold those that misses need.

use std::{
    collections::VecDeque,
    error::Error,
    iter,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use stockade_model::time::{Runtime, before};
use tokio::sync::oneshot;

use super::{fetched_body::prefixed_size_hint, origin::RequestBody, runtime::LocalRuntime};
use crate::{
    locks::Lock,
    upstream::{
        UpstreamError,
        shares::{Client, ClientCounts, FairQueue},
    },
};

type BoxError = Box<dyn Error + Send + Sync>;

/// A body that is not longer is read whole first.
const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// A request body, of which the beginning has been read.
pub struct Upload<B> {
    /// Read, and not sent yet: the buffered start, and the part with which the body was longer.
    read: VecDeque<Bytes>,
    /// `None`: all has been read.
    rest: Option<B>,
    _permit: Option<UploadPermit>,
}

/// The connections of an origin that uploads may take at the same time, which clients share: half of them.
pub struct UploadShare {
    slots: Arc<Lock<UploadSlots>>,
    queue_timeout: Duration,
}

struct UploadSlots {
    max: usize,
    taken: ClientCounts,
    /// A dropped sender has given up its place.
    queue: FairQueue<oneshot::Sender<UploadPermit>>,
    last_id: u64,
}

/// One of the slots, until it is dropped.
struct UploadPermit {
    slots: Arc<Lock<UploadSlots>>,
    client: Client,
}

/// Removes a waiting upload when dropped.
struct UploadWaiter<'a> {
    slots: &'a Lock<UploadSlots>,
    id: u64,
}

impl UploadSlots {
    fn free(&self) -> usize {
        self.max - self.taken.total()
    }

    fn try_take(&mut self, client: Client) -> bool {
        let free = self.free();
        let is_next = self.queue.next(&self.taken, free).is_none() && self.taken.may_take(client, free);
        if is_next {
            self.taken.add(client);
        }
        is_next
    }

    /// The next waiter, which gets a slot.
    fn grant_next(&mut self) -> Option<(oneshot::Sender<UploadPermit>, Client)> {
        let client = self.queue.next(&self.taken, self.free())?;
        self.taken.add(client);
        self.queue.pop(client).map(|waiter| (waiter, client))
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let granted = {
            let mut slots = self.slots.lock();
            slots.taken.remove(self.client);
            iter::from_fn(|| slots.grant_next()).collect::<Vec<_>>()
        };
        for (waiter, client) in granted {
            // If the waiter has left, its permit is dropped here.
            drop(waiter.send(Self { slots: Arc::clone(&self.slots), client }));
        }
    }
}

impl Drop for UploadWaiter<'_> {
    fn drop(&mut self) {
        let waiter = self.slots.lock().queue.remove(self.id);
        drop(waiter);
    }
}

impl UploadShare {
    #[must_use]
    pub fn new(connections_max: usize, waiting_max: usize, queue_timeout: Duration) -> Self {
        let slots = UploadSlots {
            max: connections_max.div_ceil(2),
            taken: ClientCounts::default(),
            queue: FairQueue::new(waiting_max),
            last_id: 0,
        };
        Self { slots: Arc::new(Lock::new(slots)), queue_timeout }
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.slots.lock().queue.len()
    }

    async fn take(&self, client: Client) -> Result<UploadPermit, UpstreamError> {
        let (waiter, granted) = {
            let mut slots = self.slots.lock();
            if slots.try_take(client) {
                return Ok(UploadPermit { slots: Arc::clone(&self.slots), client });
            }
            let (sender, granted) = oneshot::channel();
            slots.last_id += 1;
            let id = slots.last_id;
            let queued = slots.queue.push(id, client, sender);
            let waiting = slots.queue.len();
            drop(slots);
            drop(queued.map_err(|_| UpstreamError::Overloaded { waiting })?);
            (UploadWaiter { slots: &self.slots, id }, granted)
        };
        let runtime = LocalRuntime::new();
        let result = before(&runtime, runtime.now() + self.queue_timeout, granted).await;
        drop(waiter);
        match result {
            Some(Ok(permit)) => Ok(permit),
            Some(Err(_)) => Err(UpstreamError::Overloaded { waiting: self.waiting() }),
            None => Err(UpstreamError::QueueTimeout { after: self.queue_timeout }),
        }
    }
}

impl<B: RequestBody> Upload<B> {
    /// Reads the beginning of `body`; if that is not all, waits for a connection of the share.
    pub async fn begin(mut body: B, share: &UploadShare, client: Client) -> Result<Self, UpstreamError> {
        if body.is_end_stream() {
            return Ok(Self { read: VecDeque::new(), rest: None, _permit: None });
        }
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let mut start = BytesMut::with_capacity(announced.min(BUFFERED_BYTES_MAX));
        let more = loop {
            let Some(frame) = body.frame().await else {
                return Ok(Self { read: [start.freeze()].into(), rest: None, _permit: None });
            };
            let frame =
                frame.map_err(|error| UpstreamError::RequestBody { error: Arc::from(error.into()) })?;
            match frame.into_data() {
                Ok(data) if start.len() + data.len() > BUFFERED_BYTES_MAX => break data,
                Ok(data) => start.extend_from_slice(&data),
                Err(_) => {}
            }
        };
        let permit = share.take(client).await?;
        Ok(Self { read: [start.freeze(), more].into(), rest: Some(body), _permit: Some(permit) })
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
        while let Some(read) = this.read.pop_front() {
            if !read.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(read))));
            }
        }
        match &mut this.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx).map_err(Into::into),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.iter().all(Bytes::is_empty) && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        prefixed_size_hint(&self.read, &rest)
    }
}
