//! The entries of a cache in a file, so that a restarted service does not begin with an empty cache.

mod wire;

use std::{
    fs::{self, File},
    hash::Hash,
    io::{self, Read, Write},
    path::Path,
    time::{Duration, SystemTime},
};

use stockade_model::time::Runtime;

use self::wire::{Record, SnapshotReader, SnapshotWriter};
use crate::{
    cache::Cache,
    codec::Codec,
    freshness::LifetimeRecord,
    store::{StoreUpdate, listing::Listing},
};

/// Writes the entries of a cache, and reads them again.
///
/// A snapshot has the keys and values, their times, and the order of the eviction policy. Entries keep the times with which
/// they were stored; the time between snapshot and restore counts. It has no counters, breakers and loads in flight, **and no
/// invalidations that came after it**: after an invalidation, take a new snapshot or remove the old one.
///
/// ```
/// use std::time::SystemTime;
/// use stockade_cache::{Cache, RawCodec, Snapshots, Strategy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.snapshot");
/// let snapshots = Snapshots::new("users 1", RawCodec, RawCodec);
/// let cache: Cache<String, String> = Cache::new(Strategy::preset("stampede")?)?;
/// cache.insert("7".to_owned(), "Ada Lovelace".to_owned());
/// snapshots.write_file(&cache, SystemTime::now(), &path)?;
///
/// let restarted: Cache<String, String> = Cache::new(Strategy::preset("stampede")?)?;
/// let restored = snapshots.read_file(&restarted, SystemTime::now(), &path)?;
/// assert_eq!(restored.entries, 1);
/// assert_eq!(restarted.get("7").as_deref(), Some("Ada Lovelace"));
/// # Ok(())
/// # }
/// ```
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
    #[error("this is no snapshot of a cache")]
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
        let (store, runtime) = (cache.store(), cache.runtime());
        let moment = runtime.now();
        let mut writer = SnapshotWriter::begin(to, &self.shape, since_epoch(now))?;
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

    /// As [`write`](Self::write), to a file. It is complete under its name, or the old one stays: whatever happens, also to the machine.
    /// Until then it has the extension `new`.
    pub fn write_file<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        path: &Path,
    ) -> io::Result<u64> {
        let new = path.with_added_extension("new");
        let written = File::create(&new).and_then(|file| {
            let entries = self.write(cache, now, &file)?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            Ok(entries)
        });
        match written {
            Ok(entries) => {
                // The new name is on disk when its directory is.
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
                Ok(entries)
            }
            Err(error) => {
                // The first error says more than that of the removal.
                drop(fs::remove_file(&new));
                Err(error)
            }
        }
    }

    /// Stores the entries of a snapshot in `cache`, unless it has younger ones or they are invalidated meanwhile. `now` is the time of day;
    /// if it is before that of the snapshot, no time has passed.
    ///
    /// Memory is bounded by twice the largest entry and 256 KiB, beside the cache.
    pub fn read<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        from: impl Read,
    ) -> Result<Restored, RestoreError> {
        let (store, runtime) = (cache.store(), cache.runtime());
        let since = store.invalidation_seq();
        let mut reader = SnapshotReader::begin(from, &self.shape)?;
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
            let Ok(permit) = store.reserve_for_store(&key, &value, None) else {
                restored.refused += 1;
                continue;
            };
            let hits_of = (record.hits > 0).then(|| key.clone());
            let took = Duration::ZERO;
            store.update(StoreUpdate { key, value, since, took, entry: Some((life, permit)) }, now);
            if let Some(key) = hits_of {
                store.add_hits(&key, record.hits);
            }
            restored.entries += 1;
        }
        Ok(restored)
    }

    /// As [`read`](Self::read), from a file.
    pub fn read_file<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
        path: &Path,
    ) -> Result<Restored, RestoreError> {
        self.read(cache, now, File::open(path)?)
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
