//! The bytes of a snapshot. Numbers are little-endian.
//!
//! ```text
//! header:  "stockade", format (u32), time since the Unix epoch in ns (u64), number of the journal that follows (u64),
//!          length of the shape (u16), shape, crc32
//! block:   length of the records (u32), their number (u32), records, crc32 of all before
//! end:     0 (u32), 0 (u32), number of all records (u64), crc32
//! record:  lengths of key and value (u32 each), times (36 bytes), hits (u8), key, value
//! ```
//!
//! A block ends with the record that makes it reach [`BLOCK_BYTES`].

use std::{
    io::{self, ErrorKind, Read, Write},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use crc32fast::hash as crc32;

use super::RestoreError;
use crate::freshness::LifetimeRecord;

pub(super) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"stockade";
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of a record before its key.
const RECORD_HEAD: usize = 4 + 4 + 36 + 1;
/// Bytes of a block before its records.
const BLOCK_HEAD: usize = 8;
const CRC_BYTES: usize = 4;

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) life: LifetimeRecord,
    pub(super) hits: u8,
}

pub(super) struct SnapshotWriter<W> {
    to: W,
    /// The block so far, with its head.
    block: Vec<u8>,
    records: u32,
    records_total: u64,
}

impl<W: Write> SnapshotWriter<W> {
    pub(super) fn begin(mut to: W, shape: &str, written_at: Duration, journal: u64) -> io::Result<Self> {
        let too_long = |_| io::Error::new(ErrorKind::InvalidInput, "the shape has more than 64 KiB");
        let shape_length = u16::try_from(shape.len()).map_err(too_long)?;
        let mut header = Vec::new();
        header.put_slice(MAGIC);
        header.put_u32_le(VERSION);
        header.put_u64_le(u64::try_from(written_at.as_nanos()).unwrap_or(u64::MAX));
        header.put_u64_le(journal);
        header.put_u16_le(shape_length);
        header.put_slice(shape.as_bytes());
        header.put_u32_le(crc32(&header));
        to.write_all(&header)?;
        Ok(Self { to, block: vec![0; BLOCK_HEAD], records: 0, records_total: 0 })
    }

    /// Entries of more than 4 GiB are left out.
    pub(super) fn add(&mut self, record: Record) -> io::Result<()> {
        let Record { key, value, life, hits } = record;
        let (Ok(key_length), Ok(value_length)) = (u32::try_from(key.len()), u32::try_from(value.len()))
        else {
            return Ok(());
        };
        let records_bytes = self.block.len() - BLOCK_HEAD + RECORD_HEAD + key.len() + value.len();
        if u32::try_from(records_bytes).is_err() {
            if self.records == 0 {
                return Ok(());
            }
            self.write_block()?;
        }
        let LifetimeRecord { age_nanos, fresh_nanos, early_nanos, spans: [swr, stale, kept], spread_secs } =
            life;
        let block = &mut self.block;
        block.put_u32_le(key_length);
        block.put_u32_le(value_length);
        block.put_i64_le(age_nanos);
        block.put_u64_le(fresh_nanos);
        block.put_u64_le(early_nanos);
        block.put_u32_le(swr);
        block.put_u32_le(stale);
        block.put_u32_le(kept);
        block.put_f32_le(spread_secs);
        block.put_u8(hits);
        block.put_slice(&key);
        block.put_slice(&value);
        self.records += 1;
        if self.block.len() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.records > 0 {
            let length = self.block.len() - BLOCK_HEAD;
            self.block[..4].copy_from_slice(&u32::try_from(length).unwrap_or(0).to_le_bytes());
            self.block[4..BLOCK_HEAD].copy_from_slice(&self.records.to_le_bytes());
            self.records_total += u64::from(self.records);
            self.seal()?;
        }
        Ok(())
    }

    /// Writes the block with its checksum, and begins the next.
    fn seal(&mut self) -> io::Result<()> {
        self.block.put_u32_le(crc32(&self.block));
        self.to.write_all(&self.block)?;
        self.block.truncate(BLOCK_HEAD);
        // One large value does not keep its memory.
        self.block.shrink_to(2 * BLOCK_BYTES);
        self.block.fill(0);
        self.records = 0;
        Ok(())
    }

    /// Returns the number of all records.
    pub(super) fn end(mut self) -> io::Result<u64> {
        self.write_block()?;
        self.block.put_u64_le(self.records_total);
        self.seal()?;
        self.to.flush()?;
        Ok(self.records_total)
    }
}

pub(super) struct SnapshotReader<R> {
    from: R,
    written_at: Duration,
    journal: u64,
    block: Bytes,
    /// Records of the block that were not read yet.
    records: u32,
    records_read: u64,
    bytes_read: u64,
    has_ended: bool,
}

impl<R: Read> SnapshotReader<R> {
    pub(super) fn begin(from: R, shape: &str) -> Result<Self, RestoreError> {
        let mut reader = Self {
            from,
            written_at: Duration::ZERO,
            journal: 0,
            block: Bytes::new(),
            records: 0,
            records_read: 0,
            bytes_read: 0,
            has_ended: false,
        };
        let mut header = Vec::new();
        reader.read(&mut header, MAGIC.len() + 4)?;
        if !header.starts_with(MAGIC) {
            return Err(RestoreError::NotASnapshot);
        }
        let found = (&header[MAGIC.len()..]).get_u32_le();
        if found != VERSION {
            return Err(RestoreError::Version { found });
        }
        reader.read(&mut header, 18)?;
        let mut rest = &header[header.len() - 18..];
        let (nanos, journal, shape_length) = (rest.get_u64_le(), rest.get_u64_le(), rest.get_u16_le());
        reader.read(&mut header, usize::from(shape_length))?;
        let found = header[header.len() - usize::from(shape_length)..].to_vec();
        reader.check(&mut header)?;
        if found != shape.as_bytes() {
            let found = String::from_utf8_lossy(&found).into_owned();
            return Err(RestoreError::Shape { found, expected: shape.to_owned() });
        }
        (reader.written_at, reader.journal) = (Duration::from_nanos(nanos), journal);
        Ok(reader)
    }

    /// When the snapshot was written, since the Unix epoch.
    pub(super) fn written_at(&self) -> Duration {
        self.written_at
    }

    /// The number of the first journal whose invalidations came after the snapshot began.
    pub(super) fn journal(&self) -> u64 {
        self.journal
    }

    /// The next record; `None`: that was the last.
    pub(super) fn next(&mut self) -> Result<Option<Record>, RestoreError> {
        while self.records == 0 {
            if self.has_ended {
                return Ok(None);
            }
            self.read_block()?;
        }
        self.records -= 1;
        self.records_read += 1;
        self.record().map(Some).ok_or(RestoreError::Damaged { after_bytes: self.bytes_read })
    }

    fn read_block(&mut self) -> Result<(), RestoreError> {
        let mut block = Vec::new();
        self.read(&mut block, BLOCK_HEAD)?;
        let mut head = &block[..];
        let (length, records) = (head.get_u32_le() as usize, head.get_u32_le());
        if records == 0 {
            self.read(&mut block, 8)?;
            self.check(&mut block)?;
            self.has_ended = (&block[BLOCK_HEAD..]).get_u64_le() == self.records_read;
            return if self.has_ended { Ok(()) } else { Err(self.damaged()) };
        }
        self.read(&mut block, length)?;
        self.check(&mut block)?;
        self.block = Bytes::from(block).split_off(BLOCK_HEAD);
        self.records = records;
        Ok(())
    }

    /// Appends as many bytes. A length that is wrong takes no more memory than there are bytes to read.
    fn read(&mut self, to: &mut Vec<u8>, bytes: usize) -> Result<(), RestoreError> {
        to.try_reserve(bytes.min(2 * BLOCK_BYTES)).map_err(io::Error::from)?;
        let read = (&mut self.from).take(bytes as u64).read_to_end(to)?;
        if read < bytes { Err(RestoreError::Truncated { after_bytes: self.bytes_read }) } else { Ok(()) }
    }

    /// Reads the checksum of these bytes.
    fn check(&mut self, bytes: &mut Vec<u8>) -> Result<(), RestoreError> {
        let length = bytes.len();
        self.read(bytes, CRC_BYTES)?;
        if (&bytes[length..]).get_u32_le() != crc32(&bytes[..length]) {
            return Err(self.damaged());
        }
        bytes.truncate(length);
        self.bytes_read += (length + CRC_BYTES) as u64;
        Ok(())
    }

    fn damaged(&self) -> RestoreError {
        RestoreError::Damaged { after_bytes: self.bytes_read }
    }

    /// The next record of the block; `None`: it is shorter than it says.
    fn record(&mut self) -> Option<Record> {
        let block = &mut self.block;
        let key_length = block.try_get_u32_le().ok()? as usize;
        let value_length = block.try_get_u32_le().ok()? as usize;
        let life = LifetimeRecord {
            age_nanos: block.try_get_i64_le().ok()?,
            fresh_nanos: block.try_get_u64_le().ok()?,
            early_nanos: block.try_get_u64_le().ok()?,
            spans: [block.try_get_u32_le().ok()?, block.try_get_u32_le().ok()?, block.try_get_u32_le().ok()?],
            spread_secs: block.try_get_f32_le().ok()?,
        };
        let hits = block.try_get_u8().ok()?;
        // Copies: a slice would keep the whole block in memory.
        let mut take = |length| {
            let bytes = block.get(..length).map(Bytes::copy_from_slice)?;
            block.advance(length);
            Some(bytes)
        };
        Some(Record { key: take(key_length)?, value: take(value_length)?, life, hits })
    }
}
