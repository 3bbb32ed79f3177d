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
use stockade_http::{
    locks::Lock,
    upstream::{
        UpstreamError,
        shares::{Client, ClientCounts, FairQueue},
    },
};

type BoxError = Box<dyn Error + Send + Sync>;

/// A body that is not longer is read whole first.
const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// The same for a body of unknown length: WSGI applications read it as empty. 1 MiB is the default of nginx's `client_max_body_size`.
const BUFFERED_BYTES_MAX_OF_UNKNOWN_LENGTH: usize = 1 << 20;

/// A request body whose beginning has been read.
pub struct Upload<B> {
    /// Read, and not sent yet: the buffered start, and the part with which the body was longer.
    read: VecDeque<Bytes>,
    /// `None`: all has been read.
    rest: Option<B>,
    _permit: Option<UploadPermit>,
    lease: BlockLease,
}

/// The uploads to an origin share half of its connections, and memory for long beginnings: 64 KiB for each connection.
pub struct UploadShare {
    slots: Arc<Lock<UploadSlots>>,
    /// Buffered blocks of [`BUFFERED_BYTES_MAX`] beyond the first of each upload.
    blocks: Arc<Lock<SharedUnits>>,
    queue_timeout: Duration,
}

/// A number of units that clients share.
struct SharedUnits {
    units_max: usize,
    units_taken: ClientCounts,
}

/// Blocks of one upload, until it is dropped.
struct BlockLease {
    of: Arc<Lock<SharedUnits>>,
    client: Client,
    blocks: usize,
}

struct UploadSlots {
    units: SharedUnits,
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

impl SharedUnits {
    fn new(units_max: usize) -> Self {
        Self { units_max, units_taken: ClientCounts::default() }
    }

    fn free(&self) -> usize {
        self.units_max - self.units_taken.total()
    }

    /// Takes a unit, if the client may have one more.
    fn try_take(&mut self, client: Client) -> bool {
        let may_take = self.units_taken.may_take(client, self.free());
        if may_take {
            self.units_taken.add(client);
        }
        may_take
    }
}

impl UploadSlots {
    /// The waiting client whose turn it is.
    fn next_client(&self) -> Option<Client> {
        self.queue.next(&self.units.units_taken, self.units.free())
    }

    fn try_take(&mut self, client: Client) -> bool {
        self.next_client().is_none() && self.units.try_take(client)
    }

    /// The next waiter, which gets a slot.
    fn grant_next(&mut self) -> Option<(oneshot::Sender<UploadPermit>, Client)> {
        let client = self.next_client()?;
        self.units.units_taken.add(client);
        self.queue.pop(client).map(|waiter| (waiter, client))
    }
}

impl BlockLease {
    /// Takes another block, if the client may have one.
    fn try_grow(&mut self) -> bool {
        let may_grow = self.of.lock().try_take(self.client);
        self.blocks += usize::from(may_grow);
        may_grow
    }

    /// Gives blocks beyond these back.
    fn shrink_to(&mut self, blocks: usize) {
        if self.blocks > blocks {
            let mut all = self.of.lock();
            (blocks..self.blocks).for_each(|_| all.units_taken.remove(self.client));
            self.blocks = blocks;
        }
    }
}

impl Drop for BlockLease {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let granted = {
            let mut slots = self.slots.lock();
            slots.units.units_taken.remove(self.client);
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
    /// `responses_max`: the requests that the origin takes at once; half of them may be uploads.
    #[must_use]
    pub fn new(
        connections_max: usize,
        responses_max: usize,
        waiting_max: usize,
        queue_timeout: Duration,
    ) -> Self {
        let slots = UploadSlots {
            units: SharedUnits::new(responses_max.div_ceil(2)),
            queue: FairQueue::new(waiting_max),
            last_id: 0,
        };
        let blocks = SharedUnits::new(connections_max);
        Self { slots: Arc::new(Lock::new(slots)), blocks: Arc::new(Lock::new(blocks)), queue_timeout }
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
        let lease = BlockLease { of: Arc::clone(&share.blocks), client, blocks: 0 };
        if body.is_end_stream() {
            return Ok(Self { read: VecDeque::new(), rest: None, _permit: None, lease });
        }
        let mut start = BodyStart::new(&body.size_hint(), lease);
        let more = loop {
            let Some(frame) = body.frame().await else {
                let (read, lease) = start.into_blocks();
                return Ok(Self { read, rest: None, _permit: None, lease });
            };
            let frame =
                frame.map_err(|error| UpstreamError::RequestBody { error: Arc::from(error.into()) })?;
            if let Ok(data) = frame.into_data()
                && let Err(more) = start.push(data)
            {
                break more;
            }
        };
        let permit = share.take(client).await?;
        let (mut read, lease) = start.into_blocks();
        read.push_back(more);
        Ok(Self { read, rest: Some(body), _permit: Some(permit), lease })
    }
}

/// The beginning of a body, in blocks: however small its parts are, it takes no more than its length and a block.
struct BodyStart {
    whole: VecDeque<Bytes>,
    last: BytesMut,
    bytes: usize,
    bytes_max: usize,
    lease: BlockLease,
}

impl BodyStart {
    fn new(length: &SizeHint, lease: BlockLease) -> Self {
        let announced = usize::try_from(length.lower()).unwrap_or(usize::MAX);
        let last = BytesMut::with_capacity(announced.min(BUFFERED_BYTES_MAX));
        let bytes_max = match length.exact() {
            Some(_) => BUFFERED_BYTES_MAX,
            None => BUFFERED_BYTES_MAX_OF_UNKNOWN_LENGTH,
        };
        Self { whole: VecDeque::new(), last, bytes: 0, bytes_max, lease }
    }

    /// Error: there is no room for these bytes, the next of the body.
    fn push(&mut self, mut data: Bytes) -> Result<(), Bytes> {
        if self.bytes + data.len() > self.bytes_max {
            return Err(data);
        }
        while self.last.len() + data.len() > BUFFERED_BYTES_MAX {
            if !self.lease.try_grow() {
                return Err(data);
            }
            let part = data.split_to(BUFFERED_BYTES_MAX - self.last.len());
            self.bytes += part.len();
            self.last.extend_from_slice(&part);
            let next = BytesMut::with_capacity(BUFFERED_BYTES_MAX);
            self.whole.push_back(std::mem::replace(&mut self.last, next).freeze());
        }
        self.bytes += data.len();
        self.last.extend_from_slice(&data);
        Ok(())
    }

    fn into_blocks(mut self) -> (VecDeque<Bytes>, BlockLease) {
        self.whole.push_back(self.last.freeze());
        (self.whole, self.lease)
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
            this.lease.shrink_to(this.read.len());
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use futures_util::{FutureExt, stream};
    use http_body_util::{Full, StreamBody};

    use super::*;

    const A: Client = NonZeroU64::new(1);
    const B: Client = NonZeroU64::new(2);

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + at / 251).to_le_bytes()[0]).collect()
    }

    fn share(connections: usize) -> UploadShare {
        UploadShare::new(connections, connections, 0, Duration::ZERO)
    }

    /// Of unknown length, in parts of this size.
    async fn begin(
        bytes: usize,
        part: usize,
        share: &UploadShare,
        client: Client,
    ) -> Upload<impl RequestBody> {
        let parts: Vec<_> = content(bytes)
            .chunks(part)
            .map(|part| Ok::<_, std::io::Error>(Frame::data(Bytes::copy_from_slice(part))))
            .collect();
        let body = StreamBody::new(stream::iter(parts));
        Upload::begin(body, share, client).await.expect("a beginning")
    }

    async fn read(upload: Upload<impl RequestBody>) -> Vec<u8> {
        upload.collect().await.expect("a body").to_bytes().into()
    }

    #[tokio::test]
    async fn body_of_unknown_length_is_read_up_to_a_mebibyte_and_gets_its_length() {
        let share = share(256);
        for part in [1_000, BUFFERED_BYTES_MAX, 1 << 20, 3 << 20] {
            for bytes in [1, BUFFERED_BYTES_MAX, BUFFERED_BYTES_MAX + 1, 1 << 20, (1 << 20) + 1] {
                let upload = begin(bytes, part, &share, A).await;
                let expected = (bytes <= 1 << 20).then_some(bytes as u64);
                assert_eq!(upload.size_hint().exact(), expected, "{bytes} in parts of {part}");
                assert!(read(upload).await == content(bytes), "{bytes} in parts of {part}");
            }
        }
        assert_eq!(share.blocks.lock().units_taken.total(), 0);
        let body = Full::new(Bytes::from(content(BUFFERED_BYTES_MAX + 1)));
        let upload = Upload::begin(body, &share, A).await.expect("a beginning");
        assert!(upload.rest.is_some(), "one of known length need not be read");
    }

    #[tokio::test]
    async fn buffered_blocks_have_a_bound_that_clients_share() {
        let share = share(64);
        let mut uploads = Vec::new();
        for _ in 0..8 {
            uploads.push(begin(1 << 20, 1 << 16, &share, A).await);
        }
        // Three quarters: three whole ones, and a part of the fourth.
        assert_eq!(share.blocks.lock().units_taken.count(A), 48);
        assert_eq!(uploads.iter().filter(|upload| upload.size_hint().exact().is_some()).count(), 3);
        let of_b = begin(10 * BUFFERED_BYTES_MAX, 1 << 16, &share, B).await;
        assert!(of_b.size_hint().exact().is_some(), "there is room for another client");
        drop(of_b);
        for upload in uploads {
            assert!(read(upload).await == content(1 << 20), "those without room are whole, too");
        }
        assert_eq!(share.blocks.lock().units_taken.total(), 0);
    }

    #[test]
    fn small_parts_take_no_more_than_their_bytes() {
        let share = share(4);
        let upload = begin(10_000, 1, &share, A).now_or_never().expect("all is there");
        assert_eq!(upload.read.len(), 1);
    }
}
