//! The body of an answer, from the origin to everybody who reads along, and into the store.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use stockade_model::time::yield_now;
use tokio::sync::oneshot;

use super::{
    arriving::Feed,
    origin::OriginBody,
    stored::{Content, Room, held},
};

/// How often others have their turn while a small body may be on its way.
const TURNS: usize = 3;

/// Bodies are kept in chunks of so many bytes: what one of them leaves is what the next one needs. Larger ones of
/// many sizes leave gaps behind; how large these are depends on the allocator (bench/README.md).
pub const CHUNK: usize = 64 << 10;

/// A chunk that came in more parts than that is put together when all of it is there: each of them takes room, and
/// time with every hit.
const PARTS_MAX: usize = 2;

/// Pieces of a body, as they are kept: in memory of their own, which is just as large if their length is known.
pub struct Pieces {
    /// What is left of the chunk that is being filled.
    chunk: BytesMut,
    length: Option<usize>,
    /// None of them is of two chunks.
    parts: Vec<Bytes>,
    bytes: usize,
}

impl Pieces {
    /// Of a body of so many bytes.
    #[must_use]
    pub fn new(length: Option<usize>) -> Self {
        Self { chunk: BytesMut::new(), length, parts: Vec::new(), bytes: 0 }
    }

    /// As they came, but for the ends of chunks.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.parts.iter()
    }

    /// How many bytes have come.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// More of it; as it is kept.
    pub fn add(&mut self, mut more: &[u8]) -> &[Bytes] {
        let known = self.parts.len();
        while !more.is_empty() {
            if self.bytes.is_multiple_of(CHUNK) {
                // One that is longer than it said is cut off elsewhere.
                let left = self.length.and_then(|length| length.checked_sub(self.bytes));
                self.chunk =
                    BytesMut::with_capacity(left.filter(|left| *left > 0).unwrap_or(CHUNK).min(CHUNK));
            }
            let (part, rest) = more.split_at(more.len().min(CHUNK - self.bytes % CHUNK));
            self.bytes += part.len();
            self.chunk.extend_from_slice(part);
            self.parts.push(self.chunk.split().freeze());
            more = rest;
        }
        &self.parts[known..]
    }

    /// All of it.
    #[must_use]
    pub fn into_content(self) -> Content {
        let Self { length, parts: pieces, bytes, .. } = self;
        let mut kept: Vec<Bytes> = Vec::with_capacity(pieces.len());
        let (mut rest, mut begun) = (&pieces[..], 0);
        while !rest.is_empty() {
            let chunk = CHUNK.min(bytes - begun);
            let mut length_of = 0;
            let parts = rest.iter().take_while(|part| {
                length_of += part.len();
                length_of <= chunk
            });
            let (parts, others) = rest.split_at(parts.count());
            // A chunk that is not full, because nobody knew where it would end, has room that it does not need.
            let is_exact = chunk == CHUNK || length == Some(bytes);
            if parts.len() <= PARTS_MAX && is_exact {
                kept.extend_from_slice(parts);
            } else {
                kept.push(parts.concat().into());
            }
            (rest, begun) = (others, begun + chunk);
        }
        Content::Whole(kept.into())
    }

    /// Takes what has come already, without waiting for more; true: that was all.
    pub async fn take_what_is_there(&mut self, body: &mut OriginBody) -> io::Result<bool> {
        for _ in 0..TURNS {
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

/// A body on its way into the store: in a task of its own, so that those who read along have all of it whatever
/// becomes of the load.
pub struct Receiver {
    /// What comes.
    pub body: OriginBody,
    /// Where it goes: whoever reads along is told, whatever ends the receiving.
    pub feed: Feed,
    /// What has come.
    pub pieces: Pieces,
    /// How much room the rest of its answer has.
    pub beside: usize,
    /// How much room there is for more, and who is waiting for all of it; `None`: it is not to be stored.
    pub storing: Option<Storing>,
}

/// What is needed to store a body.
pub struct Storing {
    /// What it takes counts.
    pub room: Room,
    /// How many bytes it may have.
    pub object_max: usize,
    /// Who stores it.
    pub store: oneshot::Sender<io::Result<Received>>,
}

/// A body that has come, or will not be stored.
pub enum Received {
    /// All of it.
    Whole(Content, Room),
    /// It goes on, and is too large to be stored.
    TooLarge(Room),
    /// It goes on, and there is no room to store it.
    NoRoom(Room),
}

impl Receiver {
    /// Receives it to its end.
    pub async fn run(mut self) {
        loop {
            if self.storing.is_none() && !self.feed.room().await {
                return;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.take(data);
                    }
                }
                Some(Err(error)) => {
                    drop(self.feed);
                    if let Some(storing) = self.storing {
                        let _ = storing.store.send(Err(error));
                    }
                    return;
                }
                None => break,
            }
        }
        self.feed.complete();
        if let Some(Storing { room, store, .. }) = self.storing {
            // Whoever was to store it may have given up.
            let _ = store.send(Ok(Received::Whole(self.pieces.into_content(), room)));
        }
    }

    fn take(&mut self, data: Bytes) {
        let Some(storing) = &mut self.storing else { return self.feed.push(data) };
        let bytes = self.pieces.bytes() + data.len();
        let is_too_large = bytes > storing.object_max;
        if !is_too_large && !storing.store.is_closed() && storing.room.grow(self.beside + held(bytes)) {
            return self.pieces.add(&data).iter().for_each(|kept| self.feed.push(kept.clone()));
        }
        if let Some(Storing { room, store, .. }) = self.storing.take() {
            let _ =
                store.send(Ok(if is_too_large { Received::TooLarge(room) } else { Received::NoRoom(room) }));
        }
        self.pieces = Pieces::new(None);
        self.feed.push(data);
        self.feed.flow();
    }
}

/// A body that was to be had in one piece.
pub enum Limited {
    /// All of it.
    Whole(Bytes),
    /// It is longer than that: all of it, as it comes.
    Longer(OriginBody),
}

/// All of a body of no more than so many bytes.
pub async fn limited(mut body: OriginBody, most: usize) -> io::Result<Limited> {
    let mut come = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            come.extend_from_slice(&data);
            if come.len() > most {
                return Ok(Limited::Longer(body.behind(come.freeze())));
            }
        }
    }
    Ok(Limited::Whole(come.freeze()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(pieces: Pieces) -> Vec<Bytes> {
        let Content::Whole(pieces) = pieces.into_content() else { panic!("it has not come") };
        pieces.to_vec()
    }

    #[test]
    fn a_body_is_kept_in_chunks() {
        for (length, step, is_known, expected) in [
            (0, 1, true, vec![]),
            (1_024, 1_024, true, vec![1_024]),
            (1_024, 400, true, vec![1_024]),
            (1_024, 512, true, vec![512, 512]),
            (1_024, 512, false, vec![1_024]),
            (CHUNK, CHUNK, false, vec![CHUNK]),
            (CHUNK + 1, CHUNK + 1, true, vec![CHUNK, 1]),
            (3 * CHUNK, 8_000, true, vec![CHUNK; 3]),
            (2 * CHUNK + 9, 2 * CHUNK + 9, false, vec![CHUNK, CHUNK, 9]),
        ] {
            let body = vec![b'x'; length];
            let mut pieces = Pieces::new(is_known.then_some(length));
            body.chunks(step).for_each(|piece| drop(pieces.add(piece).to_vec()));
            let lengths: Vec<_> = content(pieces).iter().map(Bytes::len).collect();
            assert_eq!(lengths, expected, "{length} in steps of {step}");
        }
    }

    proptest! {
        /// Whatever it said of its length, and however it came: it is what came, in few pieces.
        #[test]
        fn nothing_is_lost(
            steps in prop::collection::vec(0_usize..100_000, 0..12), said in prop::option::of(0_usize..400_000),
        ) {
            let body: Vec<u8> = (0..=250).cycle().take(steps.iter().sum()).collect();
            let mut pieces = Pieces::new(said);
            let (mut rest, mut told) = (&body[..], Vec::new());
            for step in steps {
                let (piece, others) = rest.split_at(step);
                pieces.add(piece).iter().for_each(|kept| told.extend_from_slice(kept));
                rest = others;
            }
            prop_assert_eq!(&told, &body);
            prop_assert_eq!(pieces.bytes(), body.len());
            let kept = content(pieces);
            prop_assert!(kept.len() <= PARTS_MAX * body.len().div_ceil(CHUNK));
            prop_assert!(kept.iter().all(|piece| !piece.is_empty() && piece.len() <= CHUNK));
            prop_assert_eq!(kept.concat(), body);
        }
    }
}
