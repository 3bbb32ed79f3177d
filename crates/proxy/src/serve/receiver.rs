//! Receives the body of a response from the origin: into the spool for its readers, and into memory for the store.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use stockade_model::time::yield_now;
use tokio::sync::oneshot;

use super::{
    body_chunks::BodyChunks,
    fetched_body::FetchedBody,
    spool::SpoolWriter,
    stored::{Reservation, StoredBody, allocated_bytes},
};

/// Yields to other tasks while a small body may be about to arrive.
const YIELDS_MAX: usize = 3;

/// Reads what has already arrived, without waiting; true: the body has ended.
pub async fn read_available(chunks: &mut BodyChunks, body: &mut FetchedBody) -> io::Result<bool> {
    for _ in 0..YIELDS_MAX {
        while let Some(frame) = body.frame().now_or_never() {
            match frame {
                None => return Ok(true),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        chunks.add(&data);
                    }
                }
            }
        }
        yield_now().await;
    }
    Ok(false)
}

/// Runs as its own task, so that the readers get the whole body even if the load is cancelled.
pub struct BodyReceiver {
    pub body: FetchedBody,
    pub writer: SpoolWriter,
    pub chunks: BodyChunks,
    /// The reservation of the response without its body, in bytes.
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
        let has_room = || self.chunks.has_room(data.len());
        if !is_too_large && !target.result.is_closed() && has_room() && target.reservation.grow_to(bytes) {
            return self.chunks.add(&data).iter().for_each(|part| self.writer.push(part.clone()));
        }
        if let Some(StoreTarget { reservation, result, .. }) = self.target.take() {
            let _ = result.send(Ok(if is_too_large {
                ReceivedBody::TooLarge(reservation)
            } else {
                ReceivedBody::NoRoom(reservation)
            }));
        }
        self.chunks = BodyChunks::default();
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
