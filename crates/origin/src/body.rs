//! Bodies on their way: whole, at a rate, or broken off.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use stockade_model::time::{Precise, Runtime, Time};

/// How often a part of a body at a rate leaves.
const TICK: Duration = Duration::from_millis(10);

/// A body as it leaves.
pub enum Body {
    /// All of it, if it has not left yet.
    Whole(Option<Bytes>),
    /// So many bytes a second.
    Paced(Box<Paced>),
    /// The first part of one that breaks off.
    Broken {
        /// What leaves, if it has not yet.
        part: Option<Bytes>,
        /// Whether it ends in an error, not as if it were whole.
        is_reset: bool,
    },
}

/// A body at a rate: each part has left when so many bytes of that rate would have.
pub struct Paced {
    left: Bytes,
    sent: u64,
    bytes_per_second: u64,
    time: Precise,
    began: Time,
    turn: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The connection is to be reset.
#[derive(Debug, thiserror::Error)]
#[error("reset, as the recipe has it")]
pub struct Reset;

impl Body {
    /// All of it, as fast as it can.
    #[must_use]
    pub fn whole(body: Bytes) -> Self {
        Self::Whole(Some(body).filter(|body| !body.is_empty()))
    }

    /// At so many bytes a second; one at least.
    #[must_use]
    pub fn paced(body: Bytes, bytes_per_second: u64, time: &Precise) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        let mut paced = Paced {
            left: body,
            sent: 0,
            bytes_per_second,
            time: time.clone(),
            began: time.now(),
            turn: Box::pin(async {}),
        };
        paced.wait();
        Self::Paced(Box::new(paced))
    }
}

impl Paced {
    /// How much leaves at once.
    fn part(&self) -> usize {
        let part = self.bytes_per_second * u64::try_from(TICK.as_millis()).unwrap_or(1) / 1_000;
        usize::try_from(part.max(1)).unwrap_or(usize::MAX).min(self.left.len())
    }

    /// Until the next part has been earned.
    fn wait(&mut self) {
        let earned = self.sent + self.part() as u64;
        let lasts = Duration::from_secs_f64(earned as f64 / self.bytes_per_second as f64);
        self.turn = Box::pin(self.time.sleep_until(self.began + lasts));
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Reset;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        let part = match &mut *self {
            Self::Whole(body) => body.take(),
            Self::Broken { part, is_reset } => match part.take() {
                None if *is_reset => return Poll::Ready(Some(Err(Reset))),
                part => part,
            },
            Self::Paced(paced) if paced.left.is_empty() => None,
            Self::Paced(paced) => {
                std::task::ready!(paced.turn.as_mut().poll(cx));
                let part = paced.left.split_to(paced.part());
                paced.sent += part.len() as u64;
                paced.wait();
                Some(part)
            }
        };
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_none(),
            Self::Paced(paced) => paced.left.is_empty(),
            Self::Broken { part, is_reset } => part.is_none() && !is_reset,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            Self::Paced(paced) => SizeHint::with_exact(paced.left.len() as u64),
            Self::Broken { .. } => SizeHint::default(),
        }
    }
}
