//! The entries of a cache in a file, so that a restarted service does not begin with an empty cache.

mod file;
mod journal;
mod wire;

use std::{
    hash::Hash,
    io::{self, Read, Write},
    time::{Duration, SystemTime},
};

use stockade_model::time::Runtime;

pub use self::file::SnapshotFile;
use self::wire::{Record, SnapshotReader, SnapshotWriter};
use crate::{
    cache::Cache,
    codec::Codec,
    freshness::LifetimeRecord,
    store::{NewValue, listing::Listing},
};

/// Writes the entries of a cache, and reads them again.
///
/// A snapshot has the keys and values, their times, and the order of the eviction policy. Entries keep the times with which
/// they were stored; the time between snapshot and restore counts. It has no counters, breakers and loads in flight. Invalidations that
/// come after a snapshot are in the journal of a [`SnapshotFile`]; with any other writer and reader they are lost.
pub struct Snapshots<K, V> {
    shape: String,
    keys: Box<dyn Codec<K>>,
    values: Box<dyn Codec<V>>,
}

/// The entries of a snapshot that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Entries that are stored now.
    pub entries: u64,
    /// Entries that expired meanwhile, and are gone.
    pub expired: u64,
    /// Entries that were invalidated after the snapshot ([`SnapshotFile`]), or whose keys have a younger value.
    pub invalidated: u64,
    /// Entries that could not be decoded, or for which the limit had no room.
    pub refused: u64,
}

/// Why a snapshot was not read, or not to its end. Entries that were read before are right, and stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It cannot be read.
    #[error("the snapshot cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It begins with other bytes.
    #[error("this is not a snapshot of a cache")]
    NotASnapshot,
    /// It was written by another version of this crate.
    #[error("the snapshot has format {found}; this version reads format {}", wire::VERSION)]
    Version {
        /// The format of the snapshot.
        found: u32,
    },
    /// It was written with another [shape](Snapshots::new).
    #[error("the snapshot is of `{found}`, and `{expected}` is expected")]
    Shape {
        /// The shape in the snapshot.
        found: String,
        /// The shape that was asked for.
        expected: String,
    },
    /// A checksum is wrong.
    #[error("the snapshot is damaged after {after_bytes} bytes")]
    Damaged {
        /// Bytes that are undamaged.
        after_bytes: u64,
    },
    /// The cache has another file already.
    #[error("the cache has another snapshot file already")]
    SecondFile,
    /// Its end is missing.
    #[error("the snapshot ends after {after_bytes} bytes, before its last entry")]
    Truncated {
        /// Bytes of whole blocks.
        after_bytes: u64,
    },
}

impl<K, V> Snapshots<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// `shape` names what keys and values encode, with a version: a snapshot of another shape is refused. It has at most 64 KiB.
    #[must_use]
    pub fn new(shape: impl Into<String>, keys: impl Codec<K>, values: impl Codec<V>) -> Self {
        Self { shape: shape.into(), keys: Box::new(keys), values: Box::new(values) }
    }

    /// Writes all entries of `cache`, in blocks of some 256 KiB. Returns their number. `now` is the time of day.
    ///
    /// Blocks its thread, and nothing else: lookups go on, and stores wait at most while the policy lists one shard. Entries that
    /// are stored meanwhile may be missed.
    pub fn write<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        to: impl Write,
    ) -> io::Result<u64> {
        self.write_with(cache, now, 0, to)
    }

    /// `journal` is the number of the journal that follows.
    fn write_with<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        journal: u64,
        to: impl Write,
    ) -> io::Result<u64> {
        let (store, runtime) = (cache.store(), cache.runtime());
        let moment = runtime.now();
        let mut writer = SnapshotWriter::begin(to, &self.shape, since_epoch(now), journal)?;
        let (mut listing, mut entries) = (Listing::new(store), Vec::new());
        while listing.next(store, runtime.coarse_now(), &mut entries).is_some() {
            for (entry, hits) in &entries {
                let (key, value) = (self.keys.encode(&entry.key), self.values.encode(&entry.value));
                let life = LifetimeRecord::new(&entry.life, moment);
                writer.add(Record { key, value, life, hits: *hits })?;
            }
        }
        writer.end()
    }

    /// Stores the entries of a snapshot in `cache`, unless it has younger ones or they are invalidated meanwhile. `now` is the time of day;
    /// if it is before that of the snapshot, no time has passed.
    ///
    /// It takes at most twice the memory of the largest entry and 256 KiB, in addition to the cache.
    pub fn read<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        from: impl Read,
    ) -> Result<Restored, RestoreError> {
        self.read_with(cache, now, SnapshotReader::begin(from, &self.shape)?, |_, _| false)
    }

    fn read_with<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        mut reader: SnapshotReader<impl Read>,
        is_invalidated: impl Fn(&K, &V) -> bool,
    ) -> Result<Restored, RestoreError> {
        let (store, runtime) = (cache.store(), cache.runtime());
        let _kept = store.keep_invalidated_keys();
        let since = store.invalidation_seq();
        let passed = since_epoch(now).saturating_sub(reader.written_at());
        let moment = runtime.now().back(passed);
        let mut restored = Restored::default();
        while let Some(record) = reader.next()? {
            let (life, now) = (record.life.resume(moment), runtime.coarse_now());
            if now >= life.kept_until() {
                restored.expired += 1;
                continue;
            }
            let decoded = self.keys.decode(record.key).zip(self.values.decode(record.value));
            let Some((key, value)) = decoded else {
                restored.refused += 1;
                continue;
            };
            if is_invalidated(&key, &value) {
                restored.invalidated += 1;
                continue;
            }
            let Ok(permit) = store.reserve_for_store(&key, &value, None) else {
                restored.refused += 1;
                continue;
            };
            let hits_of = (record.hits > 0).then(|| key.clone());
            if !store.restore(NewValue { key, value, since, took: Duration::ZERO }, &life, permit, now) {
                restored.invalidated += 1;
                continue;
            }
            if let Some(key) = hits_of {
                store.add_hits(&key, record.hits);
            }
            restored.entries += 1;
        }
        Ok(restored)
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl<K, V> std::fmt::Debug for Snapshots<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshots").field("shape", &self.shape).finish_non_exhaustive()
    }
}
