//! The memory of a body that arrives and is to be stored: extents of the [`BodyFile`], or chunks on the heap.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::stored::StoredBody;
use stockade_http::body_file::{BodyFile, ExtentWriter};

/// Bodies on the heap are split into chunks of one size, so that the memory of one fits the next. Larger blocks of many sizes
/// leave gaps; how large these are depends on the allocator (bench/README.md).
pub const CHUNK_BYTES: usize = 64 << 10;

/// A finished chunk on the heap of more parts is joined: each part costs memory, and time with every hit.
const CHUNK_PARTS_MAX: usize = 2;

/// The largest extent for a body of unknown length, in bytes.
const EXTENT_BYTES_MAX: usize = 1 << 20;

/// A body copied into its own memory, which has the exact size if the length is known.
#[derive(Default)]
pub struct BodyChunks {
    length: Option<usize>,
    /// `None`: the body is on the heap.
    file: Option<Arc<BodyFile>>,
    /// Only the last one is filled.
    chunks: Vec<Chunk>,
    /// The parts that were added last.
    added: Vec<Bytes>,
    bytes: usize,
}

enum Chunk {
    Heap {
        /// Received, in order.
        parts: Vec<Bytes>,
        rest: BytesMut,
        room: usize,
    },
    File(ExtentWriter),
}

impl Chunk {
    fn room(&self) -> usize {
        match self {
            Self::Heap { room, .. } => *room,
            Self::File(writer) => writer.room(),
        }
    }
}

impl BodyChunks {
    /// `length` is the `Content-Length` in bytes.
    #[must_use]
    pub fn new(length: Option<usize>, file: Option<Arc<BodyFile>>) -> Self {
        let file = file.filter(|file| length.is_none_or(|length| length >= file.body_bytes_min()));
        Self { length, file, ..Self::default() }
    }

    /// False if `bytes` more bytes do not fit into the memory of large bodies, and are not to be stored.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        // The extent of a body of known length has been allocated with its first bytes.
        let is_allocated = self.length.is_some() && self.bytes > 0;
        is_allocated || self.file.as_ref().is_none_or(|file| file.has_room(bytes))
    }

    /// All that has been received.
    pub fn parts(&self) -> impl Iterator<Item = Bytes> {
        self.chunks.iter().flat_map(|chunk| match chunk {
            Chunk::Heap { parts, .. } => parts.clone(),
            Chunk::File(writer) => vec![writer.filled()],
        })
    }

    /// Bytes received so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `data`, and returns the copies.
    pub fn add(&mut self, mut data: &[u8]) -> &[Bytes] {
        self.added.clear();
        if self.length.is_none() {
            self.move_to_file(data.len());
        }
        while !data.is_empty() {
            let room = match self.chunks.last() {
                Some(chunk) if chunk.room() > 0 => chunk.room(),
                _ => self.begin_chunk(data.len()),
            };
            let (part, rest) = data.split_at(data.len().min(room));
            if let Some(copy) = self.append(part) {
                self.bytes += part.len();
                self.added.push(copy);
                data = rest;
            }
        }
        &self.added
    }

    /// Adds `part` to the last chunk. `None`: it is full now, since the file takes no more.
    fn append(&mut self, part: &[u8]) -> Option<Bytes> {
        match self.chunks.last_mut()? {
            Chunk::Heap { parts, rest, room } => {
                rest.extend_from_slice(part);
                *room -= part.len();
                let copy = rest.split().freeze();
                parts.push(copy.clone());
                Some(copy)
            }
            Chunk::File(writer) => match writer.append(part) {
                Ok(copy) => Some(copy),
                Err(_) => {
                    self.file = None;
                    self.begin_chunk(part.len());
                    None
                }
            },
        }
    }

    /// Begins a chunk before `data` bytes are added, and returns its room.
    fn begin_chunk(&mut self, data: usize) -> usize {
        // The connection refuses a body longer than its declared length.
        let left = self.length.and_then(|length| length.checked_sub(self.bytes)).filter(|left| *left > 0);
        let extent_bytes = left.unwrap_or(self.bytes.max(data).clamp(CHUNK_BYTES, EXTENT_BYTES_MAX));
        // Of a body of unknown length, the start may be all.
        let is_large =
            |file: &&Arc<BodyFile>| self.length.is_some() || self.bytes.max(data) >= file.body_bytes_min();
        let writer = self.file.as_ref().filter(is_large).and_then(|file| file.allocate(extent_bytes));
        let chunk = match writer {
            Some(writer) => Chunk::File(writer),
            None => {
                let room = left.unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                Chunk::Heap { parts: Vec::new(), rest: BytesMut::with_capacity(room), room }
            }
        };
        let room = chunk.room();
        self.chunks.push(chunk);
        room
    }

    /// Moves the start of a body of unknown length to the file, if `data` more bytes make it large.
    fn move_to_file(&mut self, data: usize) {
        let Some(file) = &self.file else { return };
        let is_small = |bytes: usize| bytes < file.body_bytes_min();
        if self.bytes == 0 || !is_small(self.bytes) || is_small(self.bytes + data) {
            return;
        }
        let Some(mut writer) = file.allocate(self.bytes.max(CHUNK_BYTES)) else { return };
        let parts: Vec<Bytes> = self.parts().collect();
        if parts.iter().all(|part| writer.append(part).is_ok()) {
            self.chunks = vec![Chunk::File(writer)];
        } else {
            self.file = None;
        }
    }

    #[must_use]
    pub fn into_body(self) -> StoredBody {
        let mut body: Vec<Bytes> = Vec::with_capacity(self.chunks.len());
        for chunk in self.chunks {
            match chunk {
                // Spare capacity would be kept in memory.
                Chunk::Heap { parts, room: 0, .. } if parts.len() <= CHUNK_PARTS_MAX => body.extend(parts),
                Chunk::Heap { parts, .. } => body.push(parts.concat().into()),
                Chunk::File(writer) => body.push(writer.finish()),
            }
        }
        body.retain(|chunk| !chunk.is_empty());
        StoredBody::Whole(body.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use stockade_http::body_file::SENDFILE_BYTES_MIN;

    fn stored_chunks(chunks: BodyChunks) -> Vec<Bytes> {
        let StoredBody::Whole(chunks) = chunks.into_body() else { panic!("the body is whole") };
        chunks.to_vec()
    }

    #[test]
    fn body_on_the_heap_is_stored_in_chunks_of_64_kib() {
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
            let mut chunks = BodyChunks::new(is_length_known.then_some(length), None);
            body.chunks(step).for_each(|part| drop(chunks.add(part).to_vec()));
            let lengths: Vec<_> = stored_chunks(chunks).iter().map(Bytes::len).collect();
            assert_eq!(lengths, expected, "{length} in steps of {step}");
        }
    }

    #[test]
    fn large_body_is_in_the_file_and_a_small_one_on_the_heap() {
        const MIN: usize = SENDFILE_BYTES_MIN;
        let file = BodyFile::open(1 << 30).expect("a file");
        for (length, step, is_length_known, expected) in [
            (MIN - 1, 1_000, true, None),
            (MIN - 1, 1_000, false, None),
            (MIN, MIN, true, Some(vec![MIN])),
            (MIN, MIN, false, Some(vec![MIN])),
            (MIN, 1_000, false, Some(vec![MIN])),
            (5 * CHUNK_BYTES + 1, 1_000, true, Some(vec![5 * CHUNK_BYTES + 1])),
            (
                5 * CHUNK_BYTES,
                1_000,
                false,
                Some(vec![CHUNK_BYTES, CHUNK_BYTES, 2 * CHUNK_BYTES, CHUNK_BYTES]),
            ),
            (4 << 20, 8_000, true, Some(vec![4 << 20])),
        ] {
            let body = vec![b'x'; length];
            let mut chunks = BodyChunks::new(is_length_known.then_some(length), Some(Arc::clone(&file)));
            body.chunks(step).for_each(|part| drop(chunks.add(part).to_vec()));
            let stored = stored_chunks(chunks);
            let is_in_file = stored.iter().all(|chunk| file.offset_of(chunk).is_some());
            let lengths = is_in_file.then(|| stored.iter().map(Bytes::len).collect::<Vec<_>>());
            assert_eq!(lengths, expected, "{length} in steps of {step}");
        }
    }

    #[test]
    fn file_that_takes_no_more_is_replaced_by_the_heap() {
        for declared in [None, Some(200_000)] {
            let file = BodyFile::open(0).expect("a file");
            let body: Vec<u8> = (0..=250).cycle().take(200_000).collect();
            let mut chunks = BodyChunks::new(declared, Some(Arc::clone(&file)));
            let mut added = chunks.add(&body[..50_000]).concat();
            file.refuse_writes().expect("it can be sealed");
            body[50_000..].chunks(30_000).for_each(|part| added.extend(chunks.add(part).concat()));
            assert_eq!(added, body);
            let stored = stored_chunks(chunks);
            assert!(file.offset_of(&stored[0]).is_some() && file.offset_of(&stored[1]).is_none());
            assert_eq!(stored.concat(), body);
        }
    }

    proptest! {
        /// Any declared length and any split, with a file and without: the same bytes, in few chunks.
        #[test]
        fn stored_bytes_equal_received_bytes(
            steps in prop::collection::vec(0_usize..100_000, 0..12), declared in prop::option::of(0_usize..400_000),
            has_file in any::<bool>(),
        ) {
            let body: Vec<u8> = (0..=250).cycle().take(steps.iter().sum()).collect();
            let file = has_file.then(|| BodyFile::open(0).expect("a file"));
            let mut chunks = BodyChunks::new(declared, file.clone());
            let (mut rest, mut pushed) = (&body[..], Vec::new());
            for step in steps {
                let (part, others) = rest.split_at(step);
                chunks.add(part).iter().for_each(|kept| pushed.extend_from_slice(kept));
                rest = others;
            }
            prop_assert_eq!(&pushed, &body);
            prop_assert_eq!(chunks.parts().collect::<Vec<_>>().concat(), &body[..]);
            prop_assert_eq!(chunks.bytes(), body.len());
            let kept = stored_chunks(chunks);
            // A body longer than declared begins one chunk more.
            prop_assert!(kept.len() <= CHUNK_PARTS_MAX * (body.len().div_ceil(CHUNK_BYTES) + 1));
            let is_on_heap = |part: &Bytes| file.as_ref().is_none_or(|file| file.offset_of(part).is_none());
            prop_assert!(kept.iter().all(|part| !part.is_empty() && (part.len() <= CHUNK_BYTES || !is_on_heap(part))));
            prop_assert_eq!(kept.concat(), body);
            drop(kept);
            // The bound of spare pages.
            let resident_bytes = file.map(|file| file.resident_bytes().expect("its size"));
            prop_assert!(resident_bytes.unwrap_or(0) <= 512 << 10);
        }
    }
}
