//! A body that is still arriving, and those who read along.
//!
//! Whoever receives it [pushes](Arriving::push) pieces, readers take them at their own pace. As long as it is to be
//! stored all pieces are kept, so that who comes late begins at the beginning. When it turns out to be too large
//! for that it [flows](Arriving::flow): pieces go when the slowest reader has them, nobody may join any more, and
//! whoever receives it waits for the slowest.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

/// How many bytes of a body that flows may wait for the slowest reader.
const WINDOW_BYTES: usize = 1 << 20;

/// A body on its way.
#[derive(Debug)]
pub struct Arriving {
    /// How long it says that it will be.
    length: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    /// How many pieces have gone.
    gone: usize,
    /// Of the pieces that are there.
    bytes: usize,
    end: Option<End>,
    flows: bool,
    /// By number; `None`: it has left.
    readers: Vec<Option<Place>>,
    /// Whoever receives it, if it waits for readers.
    receiver: Option<Waker>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
}

/// Where a reader is.
#[derive(Debug)]
struct Place {
    /// The number of its next piece.
    next: usize,
    waker: Option<Waker>,
}

impl Arriving {
    /// Of which nothing has come yet.
    #[must_use]
    pub fn new(length: Option<u64>) -> Arc<Self> {
        Arc::new(Self { length, state: Mutex::default() })
    }

    /// How long it says that it will be, in bytes.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Reads along, from the beginning; `None`: that has gone.
    #[must_use]
    pub fn read(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.lock();
        if state.gone > 0 {
            return None;
        }
        let place = Some(Place { next: 0, waker: None });
        let vacant = state.readers.iter().position(Option::is_none);
        let number = vacant.unwrap_or(state.readers.len());
        match vacant {
            Some(number) => state.readers[number] = place,
            None => state.readers.push(place),
        }
        Some(Reader { of: Arc::clone(self), number })
    }

    /// More has come.
    pub fn push(&self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.bytes += piece.len();
        state.pieces.push_back(piece);
        state.wake_readers();
    }

    /// From now on pieces go when all readers have them.
    pub fn flow(&self) {
        let mut state = self.lock();
        state.flows = true;
        state.let_go();
    }

    /// Waits until there is room for more; false: nobody reads it any more.
    pub async fn room(&self) -> bool {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            if !state.readers.iter().any(Option::is_some) {
                return Poll::Ready(false);
            }
            if state.bytes < WINDOW_BYTES {
                return Poll::Ready(true);
            }
            state.receiver = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// All of it has come: its pieces, unless they have gone.
    pub fn complete(&self) -> Vec<Bytes> {
        let mut state = self.lock();
        state.end = Some(End::Whole);
        state.wake_readers();
        state.pieces.iter().cloned().collect()
    }

    /// No more will come, unless it is [complete](Self::complete).
    pub fn cut(&self) {
        let mut state = self.lock();
        state.end.get_or_insert(End::Cut);
        state.wake_readers();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_readers(&mut self) {
        for place in self.readers.iter_mut().flatten() {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    /// Lets go of what all readers have.
    fn let_go(&mut self) {
        if !self.flows {
            return;
        }
        let slowest = self.readers.iter().flatten().map(|place| place.next).min();
        let slowest = slowest.unwrap_or(self.gone + self.pieces.len());
        while self.gone < slowest {
            let Some(piece) = self.pieces.pop_front() else { break };
            self.bytes -= piece.len();
            self.gone += 1;
        }
        if let Some(receiver) = self.receiver.take() {
            receiver.wake();
        }
    }
}

/// Somebody who reads along.
#[derive(Debug)]
pub struct Reader {
    of: Arc<Arriving>,
    number: usize,
}

impl Reader {
    /// The next piece; `None`: that was all.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut state = self.of.lock();
        let State { pieces, gone, end, readers, .. } = &mut *state;
        let Some(place) = &mut readers[self.number] else { return Poll::Ready(None) };
        if let Some(piece) = pieces.get(place.next - *gone) {
            place.next += 1;
            let piece = piece.clone();
            state.let_go();
            return Poll::Ready(Some(Ok(piece)));
        }
        match end {
            Some(End::Whole) => Poll::Ready(None),
            Some(End::Cut) => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        state.readers[self.number] = None;
        state.let_go();
        if let Some(receiver) = state.receiver.take() {
            receiver.wake();
        }
    }
}
