//! The body of a response that is still arriving, shared by all requests that read it.
//!
//! The receiver [pushes](SpoolWriter::push) chunks; each reader takes them at its own pace. While the body may still be
//! stored, the spool retains all chunks, so a late reader starts at the first byte. After
//! [`stop_retaining`](SpoolWriter::stop_retaining) (the body is too large to store) the spool drops chunks that every
//! reader has taken, accepts no more readers, and the receiver waits for the slowest one.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use slab::Slab;
use stockade_http::locks::Lock;

/// Without retention, the receiver waits while this many bytes are unread.
const WINDOW_BYTES_MAX: usize = 128 << 10;

/// Chunks below this total stay although every reader has them: coalesced requests may be about to join.
const RETAINED_BYTES_MIN: usize = WINDOW_BYTES_MAX / 2;

/// Creates readers. Once it is dropped, no reader can join.
#[derive(Debug)]
pub struct Spool(Arc<SpoolShared>);

/// The receiver's end. Dropped before [`complete`](Self::complete): the body is truncated.
#[derive(Debug)]
pub struct SpoolWriter(Arc<SpoolShared>);

#[derive(Debug)]
struct SpoolShared {
    /// `Content-Length`.
    content_length: Option<u64>,
    state: Lock<SpoolState>,
}

#[derive(Debug, Default)]
struct SpoolState {
    chunks: VecDeque<SpoolChunk>,
    /// Count of chunks dropped from the front.
    discarded: usize,
    /// Total of `chunks`.
    bytes: usize,
    end: Option<SpoolEnd>,
    discards_read_chunks: bool,
    /// A reader has joined, or none can any more; the first chunk stays until then.
    is_joined: bool,
    readers: Slab<ReaderPosition>,
    /// Wakes the receiver when it waits for readers.
    receiver: Option<Waker>,
}

#[derive(Debug)]
struct SpoolChunk {
    bytes: Bytes,
    unread_by: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpoolEnd {
    Complete,
    Truncated,
}

#[derive(Debug)]
struct ReaderPosition {
    /// Index of the next chunk, counted from the start of the body.
    next: usize,
    waker: Option<Waker>,
}

impl Spool {
    #[must_use]
    pub fn new(content_length: Option<u64>) -> (Arc<Self>, SpoolWriter) {
        let shared = Arc::new(SpoolShared { content_length, state: Lock::default() });
        (Arc::new(Self(Arc::clone(&shared))), SpoolWriter(shared))
    }

    /// `Content-Length`, in bytes.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.0.content_length
    }

    /// A reader from the first byte; `None`: that has been discarded.
    #[must_use]
    pub fn reader(&self) -> Option<SpoolReader> {
        let mut state = self.0.state.lock();
        if state.discarded > 0 {
            return None;
        }
        state.is_joined = true;
        let number = state.readers.insert(ReaderPosition { next: 0, waker: None });
        state.chunks.iter_mut().for_each(|chunk| chunk.unread_by += 1);
        Some(SpoolReader { shared: Arc::clone(&self.0), number })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_joined = true;
        state.discard_read_chunks();
    }
}

impl SpoolWriter {
    pub fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.0.state.lock();
        state.bytes += bytes.len();
        let unread_by = state.readers.len();
        state.chunks.push_back(SpoolChunk { bytes, unread_by });
        state.wake_readers();
    }

    /// From now on the spool drops chunks that every reader has taken.
    pub fn stop_retaining(&self) {
        let mut state = self.0.state.lock();
        state.discards_read_chunks = true;
        state.discard_read_chunks();
    }

    /// Waits until less than a window is unread; false: no reader is left, and none can join.
    pub async fn wait_for_room(&self) -> bool {
        std::future::poll_fn(|cx| {
            let mut state = self.0.state.lock();
            if state.is_joined && state.readers.is_empty() {
                return Poll::Ready(false);
            }
            if state.bytes < WINDOW_BYTES_MAX {
                return Poll::Ready(true);
            }
            state.receiver = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Marks the body as whole.
    pub fn complete(self) {
        let mut state = self.0.state.lock();
        state.end = Some(SpoolEnd::Complete);
        state.wake_readers();
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.end.get_or_insert(SpoolEnd::Truncated);
        state.wake_readers();
    }
}

impl SpoolState {
    fn wake_readers(&mut self) {
        for (_, position) in &mut self.readers {
            if let Some(waker) = position.waker.take() {
                waker.wake();
            }
        }
    }

    fn discard_read_chunks(&mut self) {
        if !self.discards_read_chunks || !self.is_joined {
            return;
        }
        while self.bytes > RETAINED_BYTES_MIN
            && let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.unread_by == 0)
        {
            self.bytes -= chunk.bytes.len();
            self.discarded += 1;
        }
        if let Some(receiver) = self.receiver.take() {
            receiver.wake();
        }
    }
}

#[derive(Debug)]
pub struct SpoolReader {
    shared: Arc<SpoolShared>,
    number: usize,
}

impl SpoolReader {
    /// The next chunk; `None`: the body is complete.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut state = self.shared.state.lock();
        let SpoolState { chunks, discarded, end, readers, .. } = &mut *state;
        let Some(position) = readers.get_mut(self.number) else { return Poll::Ready(None) };
        if let Some(chunk) = chunks.get_mut(position.next - *discarded) {
            position.next += 1;
            chunk.unread_by -= 1;
            let (bytes, is_read_by_all) = (chunk.bytes.clone(), chunk.unread_by == 0);
            if is_read_by_all {
                state.discard_read_chunks();
            }
            return Poll::Ready(Some(Ok(bytes)));
        }
        match end {
            Some(SpoolEnd::Complete) => Poll::Ready(None),
            Some(SpoolEnd::Truncated) => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            None => {
                position.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for SpoolReader {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let Some(position) = state.readers.try_remove(self.number) else { return };
        let first_unread = position.next - state.discarded;
        state.chunks.iter_mut().skip(first_unread).for_each(|chunk| chunk.unread_by -= 1);
        state.discard_read_chunks();
        // This may have been the last reader.
        if let Some(receiver) = state.receiver.take() {
            receiver.wake();
        }
    }
}

#[cfg(test)]
mod explored;
#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::poll_fn};

    use super::*;

    fn read(reader: &mut SpoolReader) -> Poll<Option<io::Result<Bytes>>> {
        poll_fn(|cx| reader.poll_next(cx)).now_or_never().map_or(Poll::Pending, Poll::Ready)
    }

    fn text(reader: &mut SpoolReader) -> String {
        let mut text = String::new();
        while let Poll::Ready(Some(Ok(chunk))) = read(reader) {
            text.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
        text
    }

    #[test]
    fn late_reader_starts_at_the_first_byte() {
        let (spool, writer) = Spool::new(None);
        let mut early = spool.reader().expect("nothing is discarded");
        assert!(read(&mut early).is_pending());
        writer.push("one ".into());
        assert_eq!(text(&mut early), "one ");
        writer.push("two".into());
        let mut late = spool.reader().expect("nothing is discarded");
        writer.complete();
        assert_eq!((text(&mut early), text(&mut late)), ("two".into(), "one two".into()));
        assert!(matches!(read(&mut late), Poll::Ready(None)));
    }

    #[test]
    fn truncation_is_an_error_after_the_last_chunk() {
        let (spool, writer) = Spool::new(Some(10));
        let mut reader = spool.reader().expect("nothing is discarded");
        writer.push("half".into());
        drop(writer);
        assert_eq!(text(&mut reader), "half");
        assert!(matches!(read(&mut reader), Poll::Ready(Some(Err(_)))));
    }

    #[test]
    fn without_retention_the_slowest_reader_holds_back_the_receiver_and_none_joins() {
        let (spool, writer) = Spool::new(None);
        let (mut fast, mut slow) = (spool.reader().expect("a reader"), spool.reader().expect("a reader"));
        writer.push(vec![0; WINDOW_BYTES_MAX].into());
        writer.stop_retaining();
        assert!(spool.reader().is_some(), "nothing is discarded yet");
        assert!(matches!(read(&mut fast), Poll::Ready(Some(Ok(_)))));
        assert!(writer.wait_for_room().now_or_never().is_none(), "the slow reader has everything to read");
        assert!(matches!(read(&mut slow), Poll::Ready(Some(Ok(_)))));
        assert_eq!(writer.wait_for_room().now_or_never(), Some(true));
        assert!(spool.reader().is_none(), "the first chunk is discarded");
        writer.push("more".into());
        drop(slow);
        assert_eq!(text(&mut fast), "more");
        assert!(spool.0.state.lock().bytes <= RETAINED_BYTES_MIN);
        drop(fast);
        assert_eq!(writer.wait_for_room().now_or_never(), Some(false), "no reader is left");
        let (spool, writer) = Spool::new(None);
        writer.stop_retaining();
        assert_eq!(writer.wait_for_room().now_or_never(), Some(true), "a reader may still join");
        drop(spool);
        assert_eq!(writer.wait_for_room().now_or_never(), Some(false), "no reader can join");
    }

    #[test]
    fn ten_thousand_readers_join_and_leave() {
        let (spool, writer) = Spool::new(None);
        writer.push("a".into());
        let mut readers: Vec<_> = (0..10_000).filter_map(|_| spool.reader()).collect();
        writer.push("b".into());
        assert!(readers.iter_mut().all(|reader| text(reader) == "ab"));
        readers.drain(..5_000);
        writer.stop_retaining();
        writer.push(vec![b'c'; WINDOW_BYTES_MAX].into());
        assert!(readers.iter_mut().all(|reader| matches!(read(reader), Poll::Ready(Some(Ok(_))))));
        let state = spool.0.state.lock();
        assert_eq!((state.bytes, state.discarded), (0, 3));
    }
}
