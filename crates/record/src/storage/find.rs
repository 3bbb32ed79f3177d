//! The records below a directory.

use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{RECORD, StorageError};

/// Levels of directories below the given one: `runs/NAME/TIME`. They also end a loop of symbolic links.
const LEVELS_MAX: u32 = 2;

/// The directory of a record, ordered by the record's start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundRecord {
    started_at: Timestamp,
    /// Orders the records of a second.
    number: u32,
    pub directory: PathBuf,
}

/// The directory itself if it has a record, otherwise that of the record below it that was started last.
pub fn find_latest(directory: &Path) -> Result<PathBuf, StorageError> {
    // A record that cannot be read is an error of its reader.
    if has_record(directory) {
        return Ok(directory.to_owned());
    }
    let found = find_all(directory)?;
    found.into_iter().next_back().map(|found| found.directory).ok_or_else(|| none(directory))
}

/// The records below a directory, in the order of their starts; one at least.
pub fn find_all(directory: &Path) -> Result<Vec<FoundRecord>, StorageError> {
    let entries = fs::read_dir(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => none(directory),
        _ => StorageError::NoRecord { path: directory.join(RECORD), error },
    })?;
    let mut found = records_below(entries.flatten(), LEVELS_MAX);
    found.sort();
    if found.is_empty() { Err(none(directory)) } else { Ok(found) }
}

/// True if the directory is that of a record.
#[must_use]
pub fn has_record(directory: &Path) -> bool {
    directory.join(RECORD).symlink_metadata().is_ok()
}

fn none(directory: &Path) -> StorageError {
    StorageError::NoRecords { path: directory.to_owned() }
}

/// The records in these directories, and below them. Unreadable directories are left out.
fn records_below(entries: impl Iterator<Item = DirEntry>, levels: u32) -> Vec<FoundRecord> {
    let mut found = Vec::new();
    for directory in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        if let Some(started_at) = start_of(&directory) {
            found.push(FoundRecord { started_at, number: number(&directory), directory });
        } else if levels > 1
            && let Ok(entries) = fs::read_dir(&directory)
        {
            found.extend(records_below(entries.flatten(), levels - 1));
        }
    }
    found
}

/// The start of the record in a directory. A pipe or a device with the name of a record is not opened.
fn start_of(directory: &Path) -> Option<Timestamp> {
    let path = directory.join(RECORD);
    let text = path.is_file().then(|| fs::read(&path).ok())??;
    let start: Start = serde_json::from_slice(&text).ok()?;
    start.started_at.parse().ok()
}

/// The number of a run among those that started in its second: 2 for `2020-05-05T10-00-00Z-2`.
fn number(directory: &Path) -> u32 {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once("Z-").and_then(|(_, number)| number.parse().ok()).unwrap_or(1)
}

#[derive(serde::Deserialize)]
struct Start {
    started_at: String,
}
