//! The record that was started last, below a directory of records.

use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{RECORD, StorageError};

/// Levels of directories below the given one: `runs/NAME/TIME`. They also end a loop of symbolic links.
const LEVELS_MAX: u32 = 2;

/// The directory itself if it has a record, otherwise that of the record below it that was started last.
pub fn find_latest(directory: &Path) -> Result<PathBuf, StorageError> {
    // A record that cannot be read is an error of its reader.
    if directory.join(RECORD).symlink_metadata().is_ok() {
        return Ok(directory.to_owned());
    }
    let none = || StorageError::NoRecords { path: directory.to_owned() };
    let entries = fs::read_dir(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => none(),
        _ => StorageError::NoRecord { path: directory.join(RECORD), error },
    })?;
    let latest = records_below(entries.flatten(), LEVELS_MAX).into_iter().max();
    latest.map(|found| found.directory).ok_or_else(none)
}

/// Ordered by their start.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FoundRecord {
    started_at: Timestamp,
    /// Orders the records of a second.
    number: u32,
    directory: PathBuf,
}

/// The records in these directories, and below them. What cannot be read is no record.
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
