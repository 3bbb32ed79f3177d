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

/// How much is taken at once for a body of unknown length.
const SHARED_BYTES: usize = 16 << 10;

/// Up to so many pieces of a body are kept as they came.
const PIECES_MAX: usize = 4;

/// Pieces of a body, as they are kept: in memory of their own, which is just as large if their length is known.
pub struct Pieces {
    buffer: BytesMut,
    kept: Vec<Bytes>,
    bytes: usize,
}

impl Pieces {
    /// Of a body of so many bytes.
    #[must_use]
    pub fn new(length: Option<usize>) -> Self {
        Self { buffer: BytesMut::with_capacity(length.unwrap_or(0)), kept: Vec::new(), bytes: 0 }
    }

    /// As they came.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.kept.iter()
    }

    /// How many bytes have come.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One more; as it is kept.
    pub fn add(&mut self, piece: &[u8]) -> Bytes {
        self.bytes += piece.len();
        // Small ones of an unknown number share what is taken for them.
        if self.buffer.capacity() < piece.len() {
            self.buffer.reserve(piece.len().max(SHARED_BYTES));
        }
        self.buffer.extend_from_slice(piece);
        let kept = self.buffer.split().freeze();
        self.kept.push(kept.clone());
        kept
    }

    /// All of it.
    #[must_use]
    pub fn into_content(self) -> Content {
        let Self { kept: pieces, bytes, .. } = self;
        match pieces.len() {
            0 => Content::of(Bytes::new()),
            // Many small ones would each take room and time with every hit.
            more if more > PIECES_MAX => {
                let mut whole = Vec::with_capacity(bytes);
                pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
                Content::of(whole.into())
            }
            _ => Content::Whole(pieces.into()),
        }
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
            let kept = self.pieces.add(&data);
            return self.feed.push(kept);
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

/// All of a body of no more than so many bytes; `None`: it has more.
pub async fn limited(mut body: OriginBody, most: usize) -> io::Result<Option<Bytes>> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            if whole.len() + data.len() > most {
                return Ok(None);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(Some(whole.freeze()))
}
