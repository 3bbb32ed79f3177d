//! Receives the body of a response from the origin: into the spool for its readers, and into memory for the store.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use stockade_model::time::yield_now;
use tokio::sync::oneshot;

use super::{
    fetched_body::FetchedBody,
    spool::SpoolWriter,
    stored::{Reservation, StoredBody, allocated_bytes},
};

/// Yields to other tasks while a small body may be about to arrive.
const YIELDS_MAX: usize = 3;

/// Stored bodies are split into chunks of one size, so that the memory of one fits the next. Larger blocks of many sizes
/// leave gaps; how large these are depends on the allocator (bench/README.md).
pub const CHUNK_BYTES: usize = 64 << 10;

/// A finished chunk of more parts is joined: each part costs memory, and time with every hit.
const CHUNK_PARTS_MAX: usize = 2;

/// A body copied into its own memory, which has the exact size if the length is known.
pub struct BodyChunks {
    /// Unused rest of the chunk being filled.
    chunk: BytesMut,
    length: Option<usize>,
    /// No part spans two chunks.
    parts: Vec<Bytes>,
    bytes: usize,
}

impl BodyChunks {
    /// `length` is the `Content-Length` in bytes.
    #[must_use]
    pub fn new(length: Option<usize>) -> Self {
        Self { chunk: BytesMut::new(), length, parts: Vec::new(), bytes: 0 }
    }

    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        self.parts.iter()
    }

    /// Bytes received so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `data`, and returns the copies.
    pub fn add(&mut self, mut data: &[u8]) -> &[Bytes] {
        let parts_before = self.parts.len();
        while !data.is_empty() {
            if self.bytes.is_multiple_of(CHUNK_BYTES) {
                // The connection refuses a body longer than its declared length.
                let left = self.length.and_then(|length| length.checked_sub(self.bytes));
                let size = left.filter(|left| *left > 0).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                self.chunk = BytesMut::with_capacity(size);
            }
            let (part, rest) = data.split_at(data.len().min(CHUNK_BYTES - self.bytes % CHUNK_BYTES));
            self.bytes += part.len();
            self.chunk.extend_from_slice(part);
            self.parts.push(self.chunk.split().freeze());
            data = rest;
        }
        &self.parts[parts_before..]
    }

    #[must_use]
    pub fn into_body(self) -> StoredBody {
        let Self { length, parts, bytes, .. } = self;
        let mut chunks: Vec<Bytes> = Vec::with_capacity(parts.len());
        let (mut rest, mut start) = (&parts[..], 0);
        while !rest.is_empty() {
            let chunk_bytes = CHUNK_BYTES.min(bytes - start);
            let mut taken_bytes = 0;
            let of_chunk = rest.iter().take_while(|part| {
                taken_bytes += part.len();
                taken_bytes <= chunk_bytes
            });
            let (of_chunk, others) = rest.split_at(of_chunk.count());
            // The last chunk of a body of unknown length has more capacity than it needs.
            let is_exact = chunk_bytes == CHUNK_BYTES || length == Some(bytes);
            if of_chunk.len() <= CHUNK_PARTS_MAX && is_exact {
                chunks.extend_from_slice(of_chunk);
            } else {
                chunks.push(of_chunk.concat().into());
            }
            (rest, start) = (others, start + chunk_bytes);
        }
        StoredBody::Whole(chunks.into())
    }

    /// Reads what has already arrived, without waiting; true: the body has ended.
    pub async fn read_available(&mut self, body: &mut FetchedBody) -> io::Result<bool> {
        for _ in 0..YIELDS_MAX {
            while let Some(frame) = body.frame().now_or_never() {
                match frame {
                    None => return Ok(true),
                    Some(frame) => {
                        if let Ok(data) = frame?.into_data() {
                            self.add(&data);
                        }
                    }
                }
            }
            yield_now().await;
        }
        Ok(false)
    }
}

/// Runs as its own task, so that the readers get the whole body even if the load is cancelled.
pub struct BodyReceiver {
    pub body: FetchedBody,
    pub writer: SpoolWriter,
    pub chunks: BodyChunks,
    /// The reservation of the response beside its body, in bytes.
    pub overhead_bytes: usize,
    /// `None`: the body is not to be stored.
    pub target: Option<StoreTarget>,
}

/// The load that stores the body.
pub struct StoreTarget {
    pub reservation: Reservation,
    /// Of the response with its overhead.
    pub bytes_max: usize,
    pub result: oneshot::Sender<io::Result<ReceivedBody>>,
}

/// The outcome of receiving a body that was to be stored. In the last two cases its readers still get the rest.
pub enum ReceivedBody {
    Whole(StoredBody, Reservation),
    TooLarge(Reservation),
    /// The cache has no bytes left to reserve.
    NoRoom(Reservation),
}

impl BodyReceiver {
    pub async fn run(mut self) {
        loop {
            if self.target.is_none() && !self.writer.wait_for_room().await {
                return;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.push(data);
                    }
                }
                Some(Err(error)) => {
                    drop(self.writer);
                    if let Some(target) = self.target {
                        let _ = target.result.send(Err(error));
                    }
                    return;
                }
                None => break,
            }
        }
        self.writer.complete();
        if let Some(StoreTarget { reservation, result, .. }) = self.target {
            // The load may have been cancelled.
            let _ = result.send(Ok(ReceivedBody::Whole(self.chunks.into_body(), reservation)));
        }
    }

    fn push(&mut self, data: Bytes) {
        let Some(target) = &mut self.target else { return self.writer.push(data) };
        let bytes = self.overhead_bytes + allocated_bytes(self.chunks.bytes() + data.len());
        let is_too_large = bytes > target.bytes_max;
        if !is_too_large && !target.result.is_closed() && target.reservation.grow_to(bytes) {
            return self.chunks.add(&data).iter().for_each(|part| self.writer.push(part.clone()));
        }
        if let Some(StoreTarget { reservation, result, .. }) = self.target.take() {
            let _ = result.send(Ok(if is_too_large {
                ReceivedBody::TooLarge(reservation)
            } else {
                ReceivedBody::NoRoom(reservation)
            }));
        }
        self.chunks = BodyChunks::new(None);
        self.writer.push(data);
        self.writer.stop_retaining();
    }
}

pub enum LimitedBody {
    Whole(Bytes),
    /// Longer than the limit: the complete body, still to be read.
    TooLong(FetchedBody),
}

/// Reads a body of at most `bytes_max` bytes.
pub async fn read_limited(mut body: FetchedBody, bytes_max: usize) -> io::Result<LimitedBody> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
            if bytes.len() > bytes_max {
                return Ok(LimitedBody::TooLong(body.with_prefix(bytes.freeze())));
            }
        }
    }
    Ok(LimitedBody::Whole(bytes.freeze()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored_chunks(chunks: BodyChunks) -> Vec<Bytes> {
        let StoredBody::Whole(chunks) = chunks.into_body() else { panic!("the body is whole") };
        chunks.to_vec()
    }

    #[test]
    fn body_is_stored_in_chunks_of_64_kib() {
        for (length, step, is_length_known, expected) in [
            (0, 1, true, vec![]),
            (1_024, 1_024, true, vec![1_024]),
            (1_024, 400, true, vec![1_024]),
            (1_024, 512, true, vec![512, 512]),
            (1_024, 512, false, vec![1_024]),
            (CHUNK_BYTES, CHUNK_BYTES, false, vec![CHUNK_BYTES]),
            (CHUNK_BYTES + 1, CHUNK_BYTES + 1, true, vec![CHUNK_BYTES, 1]),
            (3 * CHUNK_BYTES, 8_000, true, vec![CHUNK_BYTES; 3]),
            (2 * CHUNK_BYTES + 9, 2 * CHUNK_BYTES + 9, false, vec![CHUNK_BYTES, CHUNK_BYTES, 9]),
        ] {
            let body = vec![b'x'; length];
            let mut chunks = BodyChunks::new(is_length_known.then_some(length));
            body.chunks(step).for_each(|part| drop(chunks.add(part).to_vec()));
            let lengths: Vec<_> = stored_chunks(chunks).iter().map(Bytes::len).collect();
            assert_eq!(lengths, expected, "{length} in steps of {step}");
        }
    }

    proptest! {
        /// Any declared length and any split: the same bytes, in few chunks.
        #[test]
        fn stored_bytes_equal_received_bytes(
            steps in prop::collection::vec(0_usize..100_000, 0..12), declared in prop::option::of(0_usize..400_000),
        ) {
            let body: Vec<u8> = (0..=250).cycle().take(steps.iter().sum()).collect();
            let mut chunks = BodyChunks::new(declared);
            let (mut rest, mut pushed) = (&body[..], Vec::new());
            for step in steps {
                let (part, others) = rest.split_at(step);
                chunks.add(part).iter().for_each(|kept| pushed.extend_from_slice(kept));
                rest = others;
            }
            prop_assert_eq!(&pushed, &body);
            prop_assert_eq!(chunks.bytes(), body.len());
            let kept = stored_chunks(chunks);
            prop_assert!(kept.len() <= CHUNK_PARTS_MAX * body.len().div_ceil(CHUNK_BYTES));
            prop_assert!(kept.iter().all(|part| !part.is_empty() && part.len() <= CHUNK_BYTES));
            prop_assert_eq!(kept.concat(), body);
        }
    }
}
