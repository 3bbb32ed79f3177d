//! A body that is still arriving, and those who read along.
//!
//! Whoever receives it [pushes](Feed::push) pieces, readers take them at their own pace. As long as it is to be
//! stored all pieces are kept, so that who comes late begins at the beginning. When it turns out to be too large
//! for that it [flows](Feed::flow): from the first reader on pieces go when the slowest has them, nobody may join any
//! more, and whoever receives it waits for the slowest.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use slab::Slab;

/// How many bytes of a body that flows may wait for the slowest reader.
const WINDOW_BYTES: usize = 1 << 20;

/// So many bytes are kept although all readers have them: others who waited for it are about to join.
const KEPT_BYTES: usize = WINDOW_BYTES / 2;

/// A body on its way, for those who may read along. Dropped, nobody may any more who does not yet.
#[derive(Debug)]
pub struct Arriving(Arc<Shared>);

/// Where whoever receives it puts it. Dropped, no more of it will come.
#[derive(Debug)]
pub struct Feed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How long it says that it will be.
    length: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Piece>,
    /// How many pieces have gone.
    gone: usize,
    /// Of the pieces that are there.
    bytes: usize,
    end: Option<End>,
    flows: bool,
    /// Somebody has read it, or nobody will: until then its beginning is kept.
    is_met: bool,
    /// By number.
    readers: Slab<Place>,
    /// Whoever receives it, if it waits for readers.
    receiver: Option<Waker>,
}

/// A piece, and how many have not read it yet.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    unread: usize,
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
    /// Of which nothing has come yet; `length` is in bytes, if it says how many there will be.
    #[must_use]
    pub fn new(length: Option<u64>) -> (Arc<Self>, Feed) {
        let shared = Arc::new(Shared { length, state: Mutex::default() });
        (Arc::new(Self(Arc::clone(&shared))), Feed(shared))
    }

    /// How long it says that it will be, in bytes.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.0.length
    }

    /// Reads along, from the beginning; `None`: that has gone.
    #[must_use]
    pub fn read(&self) -> Option<Reader> {
        let mut state = self.0.lock();
        if state.gone > 0 {
            return None;
        }
        state.is_met = true;
        let number = state.readers.insert(Place { next: 0, waker: None });
        state.pieces.iter_mut().for_each(|piece| piece.unread += 1);
        Some(Reader { of: Arc::clone(&self.0), number })
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_met = true;
        state.let_go();
    }
}

impl Feed {
    /// More has come.
    pub fn push(&self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        let mut state = self.0.lock();
        state.bytes += piece.len();
        let unread = state.readers.len();
        state.pieces.push_back(Piece { bytes: piece, unread });
        state.wake_readers();
    }

    /// From now on pieces go when all readers have them.
    pub fn flow(&self) {
        let mut state = self.0.lock();
        state.flows = true;
        state.let_go();
    }

    /// Waits until there is room for more; false: nobody reads it any more, and nobody will.
    pub async fn room(&self) -> bool {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.is_met && state.readers.is_empty() {
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

    /// All of it has come.
    pub fn complete(self) {
        let mut state = self.0.lock();
        state.end = Some(End::Whole);
        state.wake_readers();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.end.get_or_insert(End::Cut);
        state.wake_readers();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_readers(&mut self) {
        for (_, place) in &mut self.readers {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    /// Lets go of what all readers have.
    fn let_go(&mut self) {
        if !self.flows || !self.is_met {
            return;
        }
        while self.bytes > KEPT_BYTES
            && let Some(piece) = self.pieces.pop_front_if(|piece| piece.unread == 0)
        {
            self.bytes -= piece.bytes.len();
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
    of: Arc<Shared>,
    number: usize,
}

impl Reader {
    /// The next piece; `None`: that was all.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut state = self.of.lock();
        let State { pieces, gone, end, readers, .. } = &mut *state;
        let Some(place) = readers.get_mut(self.number) else { return Poll::Ready(None) };
        if let Some(piece) = pieces.get_mut(place.next - *gone) {
            place.next += 1;
            piece.unread -= 1;
            let (bytes, is_done) = (piece.bytes.clone(), piece.unread == 0);
            if is_done {
                state.let_go();
            }
            return Poll::Ready(Some(Ok(bytes)));
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
        let Some(place) = state.readers.try_remove(self.number) else { return };
        let unread = place.next - state.gone;
        state.pieces.iter_mut().skip(unread).for_each(|piece| piece.unread -= 1);
        state.let_go();
        // Nobody may be left to wait for.
        if let Some(receiver) = state.receiver.take() {
            receiver.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::poll_fn};

    use super::*;

    fn read(reader: &mut Reader) -> Poll<Option<io::Result<Bytes>>> {
        poll_fn(|cx| reader.poll_next(cx)).now_or_never().map_or(Poll::Pending, Poll::Ready)
    }

    fn text(reader: &mut Reader) -> String {
        let mut text = String::new();
        while let Poll::Ready(Some(Ok(piece))) = read(reader) {
            text.push_str(std::str::from_utf8(&piece).expect("text"));
        }
        text
    }

    #[test]
    fn who_comes_late_begins_at_the_beginning() {
        let (arriving, feed) = Arriving::new(None);
        let mut early = arriving.read().expect("nothing has gone");
        assert!(read(&mut early).is_pending());
        feed.push("one ".into());
        assert_eq!(text(&mut early), "one ");
        feed.push("two".into());
        let mut late = arriving.read().expect("nothing has gone");
        feed.complete();
        assert_eq!((text(&mut early), text(&mut late)), ("two".into(), "one two".into()));
        assert!(matches!(read(&mut late), Poll::Ready(None)));
    }

    #[test]
    fn a_cut_is_told_after_what_had_come() {
        let (arriving, feed) = Arriving::new(Some(10));
        let mut reader = arriving.read().expect("nothing has gone");
        feed.push("half".into());
        drop(feed);
        assert_eq!(text(&mut reader), "half");
        assert!(matches!(read(&mut reader), Poll::Ready(Some(Err(_)))));
    }

    #[test]
    fn what_flows_is_held_for_the_slowest_and_nobody_joins() {
        let (arriving, feed) = Arriving::new(None);
        let (mut fast, mut slow) = (arriving.read().expect("a reader"), arriving.read().expect("a reader"));
        feed.push(vec![0; WINDOW_BYTES].into());
        feed.flow();
        assert!(arriving.read().is_some(), "nothing has gone yet");
        assert!(matches!(read(&mut fast), Poll::Ready(Some(Ok(_)))));
        assert!(feed.room().now_or_never().is_none(), "the slow one has all of it to read");
        assert!(matches!(read(&mut slow), Poll::Ready(Some(Ok(_)))));
        assert_eq!(feed.room().now_or_never(), Some(true));
        assert!(arriving.read().is_none(), "the beginning has gone");
        feed.push("more".into());
        drop(slow);
        assert_eq!(text(&mut fast), "more");
        assert!(arriving.0.lock().bytes <= KEPT_BYTES);
        drop(fast);
        assert_eq!(feed.room().now_or_never(), Some(false), "nobody reads it");
        let (arriving, feed) = Arriving::new(None);
        feed.flow();
        assert_eq!(feed.room().now_or_never(), Some(true), "somebody may yet");
        drop(arriving);
        assert_eq!(feed.room().now_or_never(), Some(false), "nobody will");
    }

    #[test]
    fn ten_thousand_come_and_go() {
        let (arriving, feed) = Arriving::new(None);
        feed.push("a".into());
        let mut readers: Vec<_> = (0..10_000).filter_map(|_| arriving.read()).collect();
        feed.push("b".into());
        assert!(readers.iter_mut().all(|reader| text(reader) == "ab"));
        readers.drain(..5_000);
        feed.flow();
        feed.push(vec![b'c'; WINDOW_BYTES].into());
        assert!(readers.iter_mut().all(|reader| matches!(read(reader), Poll::Ready(Some(Ok(_))))));
        let state = arriving.0.lock();
        assert_eq!((state.bytes, state.gone), (0, 3));
    }
}
