//! Response bodies: whole, at a rate, or breaking off.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use stockade_model::time::{Precise, Runtime, Time};

use crate::connection_state::OpenRequestGuard;

/// Interval between two chunks of a body at a rate.
const CHUNK_INTERVAL: Duration = Duration::from_millis(10);
/// Time for the start of a broken response to arrive. A reset discards what is still on its way.
pub(crate) const RESET_DELAY: Duration = Duration::from_millis(20);

pub(crate) struct OriginBody {
    kind: BodyKind,
    /// Keeps the request open until the body has been sent or dropped.
    _request: Option<OpenRequestGuard>,
}

enum BodyKind {
    /// `None`: it has been sent.
    Whole(Option<Bytes>),
    Paced(Box<PacedBody>),
    /// Sends `start`, waits for `reset` and fails. Without `reset`, the body ends normally.
    Broken {
        start: Option<Bytes>,
        reset: Option<Sleep>,
    },
}

struct PacedBody {
    rest: Bytes,
    bytes_per_second: u64,
    time: Precise,
    /// Time of the next chunk.
    due: Time,
    sleep: Sleep,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells hyper to reset the stream.
#[derive(Debug, thiserror::Error)]
#[error("the recipe resets this stream")]
pub(crate) struct StreamReset;

impl OriginBody {
    pub(crate) fn whole(body: Bytes, request: Option<OpenRequestGuard>) -> Self {
        Self { kind: BodyKind::Whole(Some(body).filter(|body| !body.is_empty())), _request: request }
    }

    /// A rate of 0 counts as 1 byte per second.
    pub(crate) fn paced(
        body: Bytes,
        bytes_per_second: u64,
        time: &Precise,
        request: Option<OpenRequestGuard>,
    ) -> Self {
        let mut paced = PacedBody {
            rest: body,
            bytes_per_second: bytes_per_second.max(1),
            time: time.clone(),
            due: time.now(),
            sleep: Box::pin(async {}),
        };
        paced.schedule_chunk();
        Self { kind: BodyKind::Paced(Box::new(paced)), _request: request }
    }

    pub(crate) fn broken(
        start: Bytes,
        is_reset: bool,
        time: &Precise,
        request: Option<OpenRequestGuard>,
    ) -> Self {
        let reset = is_reset.then(|| Box::pin(time.sleep_until(time.now() + RESET_DELAY)) as Sleep);
        let start = Some(start).filter(|start| !start.is_empty());
        Self { kind: BodyKind::Broken { start, reset }, _request: request }
    }
}

impl PacedBody {
    /// Size of the next chunk: what the rate allows in one interval.
    fn chunk_bytes(&self) -> usize {
        let chunks_per_second = 1_000 / CHUNK_INTERVAL.as_millis();
        let bytes = u128::from(self.bytes_per_second) / chunks_per_second;
        usize::try_from(bytes.max(1)).unwrap_or(usize::MAX).min(self.rest.len())
    }

    /// Sets the time of the next chunk. A client that took the last chunk late does not get the next one sooner.
    fn schedule_chunk(&mut self) {
        let duration = Duration::from_secs_f64(self.chunk_bytes() as f64 / self.bytes_per_second as f64);
        let is_late = self.time.now() > self.due + CHUNK_INTERVAL;
        self.due = if is_late { self.time.now() } else { self.due } + duration;
        self.sleep = Box::pin(self.time.sleep_until(self.due));
    }
}

impl http_body::Body for OriginBody {
    type Data = Bytes;
    type Error = StreamReset;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamReset>>> {
        let chunk = match &mut self.kind {
            BodyKind::Whole(body) => body.take(),
            BodyKind::Broken { start, reset } => match (start.take(), reset) {
                (None, Some(sleep)) => {
                    ready!(sleep.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(StreamReset)));
                }
                (start, _) => start,
            },
            BodyKind::Paced(paced) if paced.rest.is_empty() => None,
            BodyKind::Paced(paced) => {
                ready!(paced.sleep.as_mut().poll(cx));
                let chunk = paced.rest.split_to(paced.chunk_bytes());
                paced.schedule_chunk();
                Some(chunk)
            }
        };
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Whole(body) => body.is_none(),
            BodyKind::Paced(paced) => paced.rest.is_empty(),
            BodyKind::Broken { start, reset } => start.is_none() && reset.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            BodyKind::Paced(paced) => SizeHint::with_exact(paced.rest.len() as u64),
            BodyKind::Broken { .. } => SizeHint::default(),
        }
    }
}
