//! The thread that keeps the entries of the cache in a file.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use stockade_cache::{RestoreError, Restored, SnapshotFile, Snapshots};

use crate::{
    config::SnapshotConfig,
    serve::{
        entry_codec::EntryCodec,
        runtime::system_now,
        stored::{CacheEntry, EntryKey, ResponseCache},
    },
};

/// Names what an entry consists of: with another, a snapshot is not read.
const SHAPE: &str = "stockade proxy 1";

/// How soon a new snapshot follows a purge that outdates the last one as a whole.
const OUTDATED_EVERY: Duration = Duration::from_secs(1);

/// Writes snapshots until it is [ended](Self::end).
#[derive(Debug)]
pub struct SnapshotThread {
    /// Dropped at the end.
    end: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl SnapshotThread {
    /// Restores the entries of the file and then writes it from time to time, in a thread of its own: the cache can be used at once.
    /// `note` receives what a person should know.
    pub fn start(
        config: SnapshotConfig,
        cache: ResponseCache,
        codec: EntryCodec,
        note: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let file = SnapshotFile::new(&config.path, Snapshots::new(SHAPE, codec.clone(), codec));
        let run = move || {
            note(&restored(&config, file.restore(&cache, system_now())));
            keep(&config, &cache, &file, &ended, &note);
        };
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(run)?;
        Ok(Self { end, thread })
    }

    /// Writes a last snapshot.
    pub fn end(self) {
        drop(self.end);
        // A panic of the thread has been printed.
        drop(self.thread.join());
    }
}

fn restored(config: &SnapshotConfig, restored: Result<Restored, RestoreError>) -> String {
    let path = config.path.display();
    match restored {
        Ok(Restored { entries, expired, invalidated, refused, .. }) => format!(
            "{path}: {entries} responses restored; {expired} had expired, {invalidated} were purged, {refused} have no room"
        ),
        Err(error) => format!("{path}: {error}; the cache starts without it"),
    }
}

/// Writes the file at intervals while entries change, and once more at the end.
fn keep(
    config: &SnapshotConfig,
    cache: &ResponseCache,
    file: &SnapshotFile<EntryKey, CacheEntry>,
    ended: &mpsc::Receiver<()>,
    note: &impl Fn(&str),
) {
    let (mut written_stores, mut waited) = (None, Duration::ZERO);
    let mut has_failed = false;
    loop {
        let wait = OUTDATED_EVERY.min(config.every.0);
        let is_end = ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        waited += wait;
        let stores = cache.stats().stores;
        let is_due = waited >= config.every.0 && written_stores != Some(stores);
        if is_end || is_due || file.is_outdated() {
            match file.write(cache, system_now()) {
                Ok(_) => {
                    (written_stores, waited, has_failed) = (Some(stores), Duration::ZERO, false);
                }
                Err(error) => {
                    if !has_failed {
                        note(&format!("{}: no snapshot was written: {error}", config.path.display()));
                    }
                    has_failed = true;
                    waited = Duration::ZERO;
                }
            }
        }
        if is_end {
            return;
        }
    }
}
