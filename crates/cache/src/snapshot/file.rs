//! The snapshot of one cache in a file, with the invalidations that came after it.

use std::{
    fs::{self, File},
    hash::Hash,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use stockade_model::{private_file, time::Runtime};

use super::{
    RestoreError, Restored, Snapshots,
    journal::{self, Invalidated, Journal},
    wire::SnapshotReader,
};
use crate::{cache::Cache, locks::Lock};

/// Keeps the entries of one cache in a file: [`restore`](Self::restore) once at the start, [`write`](Self::write) from time to time.
///
/// Next to the file are journals, `FILE.invalidated.N`: invalidations and [inserts](crate::Cache::insert) since the snapshot, 9 bytes
/// and one write each, so that no value comes back that was invalidated or replaced, also after a `kill -9`. (Values of loads are not
/// recorded: after a crash an older one is served for the rest of its ttl. With a [mailbox](crate::Writer::Mailbox) an insert is
/// recorded when it is enqueued.) (After a loss of power the last seconds of a journal may be missing.) An entry that was
/// invalidated [softly](crate::Invalidation::Soft) is gone after a restart. After [`invalidate_if`](crate::Cache::invalidate_if), and after
/// four million records, nothing is restored until the next snapshot: [`is_outdated`](Self::is_outdated).
///
/// The files hold what the cache holds: only their owner can read them. No link is followed, neither to read nor to write, and files
/// that another user owns or may write are not restored.
///
/// ```
/// use std::time::SystemTime;
/// use stockade_cache::{Cache, Invalidation, RawCodec, SnapshotFile, Snapshots, Strategy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.snapshot");
/// let start = || -> Result<_, Box<dyn std::error::Error>> {
///     let cache: Cache<String, String> = Cache::new(Strategy::default())?;
///     let file = SnapshotFile::new(&path, Snapshots::new("users 1", RawCodec, RawCodec));
///     file.restore(&cache, SystemTime::now())?;
///     Ok((cache, file))
/// };
/// let (cache, file) = start()?;
/// cache.insert("7".to_owned(), "Ada Lovelace".to_owned());
/// cache.insert("8".to_owned(), "Grace Hopper".to_owned());
/// file.write(&cache, SystemTime::now())?;
/// cache.invalidate("8", Invalidation::Hard);
///
/// let (restarted, _file) = start()?;
/// assert_eq!(restarted.get("7").as_deref(), Some("Ada Lovelace"));
/// assert_eq!(restarted.get("8"), None);
/// # Ok(())
/// # }
/// ```
pub struct SnapshotFile<K, V> {
    path: PathBuf,
    snapshots: Snapshots<K, V>,
    /// Locked while a snapshot is written. `None`: nothing was restored or written yet.
    journal: Lock<Option<Arc<Journal>>>,
}

impl<K, V> SnapshotFile<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Reads and writes nothing yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, snapshots: Snapshots<K, V>) -> Self {
        Self { path: path.into(), snapshots, journal: Lock::new(None) }
    }

    /// Restores the entries that were not invalidated, and from now on records the invalidations of `cache`. A missing file has no entries.
    /// `now` is the time of day. Blocks its thread; the cache may be in use already.
    ///
    /// After an error of the file the cache can be used, and invalidations are recorded.
    pub fn restore<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        now: SystemTime,
    ) -> Result<Restored, RestoreError> {
        let store = cache.store();
        let earlier = journal::journal_numbers(&self.path)?;
        let mut journal = self.journal.lock();
        if journal.is_some() {
            return Err(RestoreError::SecondFile);
        }
        *journal = Some(self.begin_journal(cache, &earlier)?);
        drop(journal);
        let file = match private_file::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Restored::default()),
            opened => opened?,
        };
        let reader = SnapshotReader::begin(file, &self.snapshots.shape)?;
        let later = earlier.iter().filter(|number| **number >= reader.journal());
        let journals = later
            .map(|number| Invalidated::read(&journal::path(&self.path, *number)))
            .collect::<io::Result<Vec<_>>>()?;
        let is_invalidated =
            |key: &K, value: &V| journals.iter().any(|journal| journal.concerns(store, key, value));
        self.snapshots.read_with(cache, now, reader, is_invalidated)
    }

    /// Replaces the file by a snapshot of the present entries. Returns their number. Blocks its thread, and nothing else, as
    /// [`Snapshots::write`].
    ///
    /// The new file is complete under its name, or the old one stays: whatever happens, also to the machine. Until then it has the
    /// extension `new`.
    pub fn write<R: Runtime>(&self, cache: &Cache<K, V, R>, now: SystemTime) -> io::Result<u64> {
        let mut journal = self.journal.lock();
        let journal = match &mut *journal {
            Some(journal) => journal,
            none => none.insert(
                self.begin_journal(cache, &journal::journal_numbers(&self.path)?)
                    .map_err(io::Error::other)?,
            ),
        };
        let number = journal.number() + 1;
        journal.follow(number)?;
        let new = journal::next_to(&self.path, "new");
        let written = private_file::create(&new).and_then(|file| {
            let entries = self.snapshots.write_with(cache, now, number, &file)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            Ok(entries)
        });
        let entries = written.inspect_err(|_| {
            // The first error says more than that of the removal.
            drop(fs::remove_file(&new));
        })?;
        // The new name is on disk when its directory is.
        File::open(directory(&self.path))?.sync_all()?;
        for earlier in journal::journal_numbers(&self.path)?.into_iter().filter(|earlier| *earlier < number) {
            fs::remove_file(journal::path(&self.path, earlier))?;
        }
        Ok(entries)
    }

    /// True if a new snapshot is of use at once: everything was invalidated since the last one, or its journal is half full.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.journal.lock().as_ref().is_some_and(|journal| journal.is_outdated())
    }

    /// Begins the first journal of a cache, after those of earlier processes.
    fn begin_journal<R: Runtime>(
        &self,
        cache: &Cache<K, V, R>,
        earlier: &[u64],
    ) -> Result<Arc<Journal>, RestoreError> {
        let number = earlier.iter().max().map_or(0, |last| last + 1);
        let journal = Arc::new(Journal::new(&self.path, cache.store().hash_seeds()));
        journal.follow(number)?;
        let attached = Arc::clone(&journal);
        if !cache.store().attach_journal(Box::new(move |target| attached.write(target))) {
            fs::remove_file(journal::path(&self.path, number))?;
            return Err(RestoreError::SecondFile);
        }
        Ok(journal)
    }
}

pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl<K, V> std::fmt::Debug for SnapshotFile<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotFile").field("path", &self.path).finish_non_exhaustive()
    }
}
