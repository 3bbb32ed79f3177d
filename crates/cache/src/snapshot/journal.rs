//! Invalidations after a snapshot, in a file each: an entry that was invalidated must not come back with a restart.
//!
//! ```text
//! header: "stkdinva", format (u32), seeds of the hashes of keys and of tags (u64 each), check (u64)
//! record: 0 all, 1 key, 2 tag (u8), hash (u64)
//! ```
//!
//! A record is written after its entries were removed and before the call that removed them returns. So a snapshot that
//! copied one of them began before, and this journal or a later one follows it.

use std::{
    fs::{self, File},
    hash::{BuildHasher, Hash},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use bytes::{Buf, BufMut};
use foldhash::quality::FixedState;
use hashbrown::HashSet;
use stockade_model::{private_file, seed::Seed};

use crate::{invalidation::TargetHash, locks::Lock, store::Store};

const MAGIC: &[u8; 8] = b"stkdinva";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 3 * 8;
const RECORD_BYTES: usize = 1 + 8;
/// Beyond as many records, of one snapshot, all entries count as invalidated.
const RECORDS_MAX: usize = 1 << 22;

/// The journal that is being written.
pub(super) struct Journal {
    /// The snapshot that it follows.
    snapshot: PathBuf,
    seeds: [Seed; 2],
    state: Lock<JournalState>,
}

#[derive(Default)]
struct JournalState {
    number: u64,
    /// `None`: it has failed, or says that everything is invalidated.
    file: Option<File>,
    records: usize,
    is_all: bool,
}

impl Journal {
    /// The first is begun by [`follow`](Self::follow).
    pub(super) fn new(snapshot: &Path, seeds: [Seed; 2]) -> Self {
        Self { snapshot: snapshot.to_owned(), seeds, state: Lock::default() }
    }

    /// Begins the journal with this number.
    pub(super) fn follow(&self, number: u64) -> io::Result<()> {
        let mut file = private_file::create(&path(&self.snapshot, number))?;
        let [keys, tags] = self.seeds;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.put_slice(MAGIC);
        header.put_u32_le(VERSION);
        header.put_u64_le(keys.0);
        header.put_u64_le(tags.0);
        header.put_u64_le(check(keys, tags));
        file.write_all(&header)?;
        *self.state.lock() = JournalState { number, file: Some(file), records: 0, is_all: false };
        Ok(())
    }

    pub(super) fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// True if everything in the snapshot is invalidated, or soon will be.
    pub(super) fn is_outdated(&self) -> bool {
        let state = self.state.lock();
        state.is_all || state.records > RECORDS_MAX / 2
    }

    /// If it cannot be written, the snapshot is removed: better a cold start than an entry that was invalidated.
    pub(super) fn write(&self, target: TargetHash) {
        let mut state = self.state.lock();
        if state.is_all {
            return;
        }
        state.records += 1;
        let target = if state.records > RECORDS_MAX { TargetHash::All } else { target };
        state.is_all = target == TargetHash::All;
        let written = state.file.as_mut().map_or(Ok(()), |file| file.write_all(&record(target)));
        if let Err(error) = written {
            (state.file, state.is_all) = (None, true);
            let removed = fs::remove_file(&self.snapshot);
            tracing::error!(%error, ?removed, "an invalidation cannot be recorded: the snapshot of the cache is removed");
        }
    }
}

fn record(target: TargetHash) -> [u8; RECORD_BYTES] {
    let (kind, hash) = match target {
        TargetHash::All => (0, 0),
        TargetHash::Key(hash) => (1, hash),
        TargetHash::Tag(hash) => (2, hash),
    };
    let mut record = [0; RECORD_BYTES];
    record[0] = kind;
    record[1..].copy_from_slice(&u64::to_le_bytes(hash));
    record
}

/// Differs if another version of the hash function gives other hashes.
fn check(keys: Seed, tags: Seed) -> u64 {
    FixedState::with_seed(keys.0).hash_one("stockade") ^ FixedState::with_seed(tags.0).hash_one(7_u64)
}

pub(super) fn path(snapshot: &Path, number: u64) -> PathBuf {
    next_to(snapshot, &format!("invalidated.{number}"))
}

/// The path of a snapshot with one more extension.
pub(super) fn next_to(snapshot: &Path, extension: &str) -> PathBuf {
    let mut name = snapshot.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(extension);
    snapshot.with_file_name(name)
}

/// The numbers of the journals next to a snapshot.
pub(super) fn journal_numbers(snapshot: &Path) -> io::Result<Vec<u64>> {
    let Some(name) = snapshot.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let mut numbers = Vec::new();
    for file in fs::read_dir(super::file::directory(snapshot))? {
        let file = file?.file_name();
        let number = file.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix(".invalidated."));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(numbers)
}

/// The invalidations of one journal.
pub(super) struct Invalidated {
    is_all: bool,
    key_hasher: FixedState,
    keys: HashSet<u64, FixedState>,
    tag_hasher: FixedState,
    tags: HashSet<u64, FixedState>,
}

impl Invalidated {
    /// A journal that is damaged, or of another version, invalidates everything.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let bytes_max = (HEADER_BYTES + (RECORDS_MAX + 1) * RECORD_BYTES) as u64;
        private_file::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
        let mut invalidated = Self {
            is_all: true,
            key_hasher: FixedState::default(),
            keys: HashSet::default(),
            tag_hasher: FixedState::default(),
            tags: HashSet::default(),
        };
        let Some((mut header, records)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Ok(invalidated);
        };
        if !header.starts_with(MAGIC) {
            return Ok(invalidated);
        }
        header.advance(MAGIC.len());
        let (version, keys, tags) =
            (header.get_u32_le(), Seed(header.get_u64_le()), Seed(header.get_u64_le()));
        if version != VERSION || header.get_u64_le() != check(keys, tags) {
            return Ok(invalidated);
        }
        invalidated.key_hasher = FixedState::with_seed(keys.0);
        invalidated.tag_hasher = FixedState::with_seed(tags.0);
        invalidated.is_all = false;
        // A last record that is not complete is of a call that did not return.
        for record in records.chunks_exact(RECORD_BYTES) {
            let hash = (&record[1..]).get_u64_le();
            match record[0] {
                1 => drop(invalidated.keys.insert(hash)),
                2 => drop(invalidated.tags.insert(hash)),
                _ => invalidated.is_all = true,
            }
        }
        Ok(invalidated)
    }

    pub(super) fn concerns<K: Hash + Eq + Clone, V: Clone>(
        &self,
        store: &Store<K, V>,
        key: &K,
        value: &V,
    ) -> bool {
        self.is_all
            || !self.keys.is_empty() && self.keys.contains(&self.key_hasher.hash_one(key))
            || !self.tags.is_empty()
                && store
                    .tag_names(key, value)
                    .iter()
                    .any(|tag| self.tags.contains(&self.tag_hasher.hash_one(tag.as_str())))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use stockade_model::{seed::Seed, time::Virtual};

    use super::*;
    use crate::{Cache, Invalidation, Strategy, Update};

    /// A snapshot that copies the old value began before the record, so that its journal has it.
    #[test]
    fn records_follow_the_change() {
        let strategy = Strategy::preset("stampede").expect("a preset");
        let cache: Cache<u8, u32, Virtual> = Cache::builder(strategy)
            .tags(|_, _, tag| tag("all"))
            .build_on(Virtual::new(), Seed(1))
            .expect("a valid strategy");
        let (watched, seen) = (cache.clone(), Arc::<Lock<Vec<Option<u32>>>>::default());
        let recorded = Arc::clone(&seen);
        assert!(cache.store().attach_journal(Box::new(move |_| recorded.lock().push(watched.get(&1)))));
        cache.insert(1, 10);
        cache.insert(1, 11);
        cache.invalidate(&1, Invalidation::Hard);
        cache.insert(1, 12);
        cache.invalidate_tag("all", Invalidation::Hard);
        cache.insert(1, 13);
        cache.invalidate_all(Invalidation::Hard);
        cache.update(&1, |_| Update::Store(14));
        cache.update(&1, |_| Update::Remove);
        let expected = [Some(10), Some(11), None, Some(12), None, Some(13), None, Some(14), None];
        assert_eq!(*seen.lock(), expected);
    }
}
