//! Bodies on their way: whole, at a rate, or broken off.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use stockade_model::time::{Precise, Runtime, Time};

use crate::session::Visit;

/// How often a part of a body at a rate leaves.
const TICK: Duration = Duration::from_millis(10);
/// How long the beginning of an answer has to leave and arrive before all is reset: what is on its way goes with it.
pub(crate) const LINGER: Duration = Duration::from_millis(20);

/// A body as it leaves.
pub(crate) struct Body {
    way: Way,
    /// Whoever asked is inside until it has left, or nobody wants it any more.
    _visit: Option<Visit>,
}

enum Way {
    /// All at once, if it has not left yet.
    Whole(Option<Bytes>),
    Paced(Box<Paced>),
    /// A part; then an error, a little later, or an end as if that were all.
    Broken {
        part: Option<Bytes>,
        reset: Option<Turn>,
    },
}

/// A body at a rate.
struct Paced {
    left: Bytes,
    bytes_per_second: u64,
    time: Precise,
    /// When the part that leaves next has been earned.
    due: Time,
    turn: Turn,
}

type Turn = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The stream is to be reset.
#[derive(Debug, thiserror::Error)]
#[error("reset, as the recipe has it")]
pub(crate) struct Reset;

impl Body {
    /// All of it, as fast as it can.
    pub(crate) fn whole(body: Bytes, visit: Option<Visit>) -> Self {
        Self { way: Way::Whole(Some(body).filter(|body| !body.is_empty())), _visit: visit }
    }

    /// At so many bytes a second; one at least.
    pub(crate) fn paced(body: Bytes, bytes_per_second: u64, time: &Precise, visit: Option<Visit>) -> Self {
        let mut paced = Paced {
            left: body,
            bytes_per_second: bytes_per_second.max(1),
            time: time.clone(),
            due: time.now(),
            turn: Box::pin(async {}),
        };
        paced.wait();
        Self { way: Way::Paced(Box::new(paced)), _visit: visit }
    }

    /// A part of it, and then an error if it is to be reset.
    pub(crate) fn broken(part: Bytes, is_reset: bool, time: &Precise, visit: Option<Visit>) -> Self {
        let reset = is_reset.then(|| Box::pin(time.sleep_until(time.now() + LINGER)) as Turn);
        Self { way: Way::Broken { part: Some(part).filter(|part| !part.is_empty()), reset }, _visit: visit }
    }
}

impl Paced {
    /// How much leaves at once: what is earned in a tick.
    fn part(&self) -> usize {
        let ticks_a_second = 1_000 / TICK.as_millis();
        let part = u128::from(self.bytes_per_second) / ticks_a_second;
        usize::try_from(part.max(1)).unwrap_or(usize::MAX).min(self.left.len())
    }

    /// Until the next part has been earned. Who was slow to take the last one gets nothing faster for it.
    fn wait(&mut self) {
        let lasts = Duration::from_secs_f64(self.part() as f64 / self.bytes_per_second as f64);
        let late = self.time.now() > self.due + TICK;
        self.due = if late { self.time.now() } else { self.due } + lasts;
        self.turn = Box::pin(self.time.sleep_until(self.due));
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Reset;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        let part = match &mut self.way {
            Way::Whole(body) => body.take(),
            Way::Broken { part, reset } => match (part.take(), reset) {
                (None, Some(turn)) => {
                    ready!(turn.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(Reset)));
                }
                (part, _) => part,
            },
            Way::Paced(paced) if paced.left.is_empty() => None,
            Way::Paced(paced) => {
                ready!(paced.turn.as_mut().poll(cx));
                let part = paced.left.split_to(paced.part());
                paced.wait();
                Some(part)
            }
        };
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.way {
            Way::Whole(body) => body.is_none(),
            Way::Paced(paced) => paced.left.is_empty(),
            Way::Broken { part, reset } => part.is_none() && reset.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.way {
            Way::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            Way::Paced(paced) => SizeHint::with_exact(paced.left.len() as u64),
            Way::Broken { .. } => SizeHint::default(),
        }
    }
}
