//! The index of a directory of records: the mean figures of each, in one file next to them. It saves reading the records again, and may be
//! deleted at any time: a record is read where the index lacks it, or its files changed.

use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process,
    time::{Duration, SystemTime},
};

use crate::record::{ClockKind, Host, Record, Verdict};
use serde::{Deserialize, Serialize};

use crate::{
    compare::{is_estimated, load, settings},
    metrics::{Evidence, METRICS, Metric, Results},
    statistics::FIGURE_MIN,
    storage::{self, FoundRecord, StorageError},
};

const INDEX: &str = "history.jsonl";
const SCHEMA: &str = "stockade.history/2";

/// A record without its seconds and repeats.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexedRecord {
    /// Its directory, relative to that of the index.
    pub directory: PathBuf,
    files: FileStamps,
    pub experiment: String,
    /// In RFC 3339.
    pub started_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Version and commit of Stockade.
    pub stockade: String,
    pub host: Host,
    pub clock: ClockKind,
    /// The value of `--scale`.
    pub scale: f64,
    /// False: it is in progress, or was stopped before its end.
    pub is_complete: bool,
    pub verdict: Verdict,
    /// A hash of the settings of the experiment file.
    pub settings: u64,
    /// The measured tests and arms, in the order of the file.
    pub cells: Vec<IndexedCell>,
}

/// The figures of a test and arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexedCell {
    pub test: String,
    pub arm: String,
    /// The load in words.
    pub load: String,
    /// The mean of the valid repeats, by metric; geometric for times and memory.
    pub figures: BTreeMap<String, f64>,
}

/// Sizes and times of a record's files: a record with equal ones is not read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamps {
    record: FileStamp,
    intervals: FileStamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    bytes: u64,
    /// Since 1970, in nanoseconds.
    modified_ns: u128,
}

/// The first line. Another program may compute other figures.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    schema: String,
    program: Option<FileStamp>,
}

impl Head {
    fn current() -> Self {
        let program = env::current_exe().ok().and_then(|program| FileStamp::of(&program).ok());
        Self { schema: SCHEMA.to_owned(), program }
    }
}

/// The records below a directory.
#[derive(Debug)]
pub struct IndexedRecords {
    /// In the order of their starts.
    pub records: Vec<IndexedRecord>,
    /// The records that could not be read.
    pub unreadable: Vec<StorageError>,
    /// The index could not be written.
    pub unwritten: Option<StorageError>,
}

/// Reads the records below `directory`, or the only one if it has a record itself. `rebuild` ignores the index; `progress` receives the
/// number of records that were read without it, and of all that have to be.
///
/// # Errors
/// [`StorageError::NoRecords`] if it has no records, and other errors of the directory. A record that cannot be read is left out.
pub fn read_records(
    directory: &Path,
    rebuild: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<IndexedRecords, StorageError> {
    if storage::has_record(directory) {
        let record = read_record(directory, PathBuf::new())?;
        return Ok(IndexedRecords { records: vec![record], unreadable: Vec::new(), unwritten: None });
    }
    let index = directory.join(INDEX);
    let mut known = if rebuild { HashMap::new() } else { read_index(&index) };
    let known_count = known.len();
    let mut current = |found: FoundRecord| {
        let relative = found.directory.strip_prefix(directory).unwrap_or(&found.directory).to_owned();
        let stamps = FileStamps::of(&found.directory).ok();
        let record = known.remove(&relative).filter(|record| Some(record.files) == stamps);
        (found.directory, relative, record)
    };
    let current: Vec<_> = storage::find_all(directory)?.into_iter().map(&mut current).collect();
    let outdated = current.iter().filter(|(.., record)| record.is_none()).count();
    let is_current = outdated == 0 && current.len() == known_count;
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    let mut read = 0;
    for (path, relative, record) in current {
        if let Some(record) = record {
            records.push(record);
            continue;
        }
        match read_record(&path, relative) {
            Ok(record) => records.push(record),
            Err(error) => unreadable.push(error),
        }
        read += 1;
        progress(read, outdated);
    }
    let unwritten = if is_current { None } else { write_index(&index, &records).err() };
    Ok(IndexedRecords { records, unreadable, unwritten })
}

fn read_record(path: &Path, directory: PathBuf) -> Result<IndexedRecord, StorageError> {
    // Before the files are read: a later change differs.
    let stamp = |error| StorageError::NoRecord { path: path.to_owned(), error };
    let files = FileStamps::of(path).map_err(stamp)?;
    let (record, results) = storage::read_figures(path)?;
    let mut settings_hash = DefaultHasher::new();
    settings(&record).for_each(|line| line.hash(&mut settings_hash));
    let cells = record.tests.iter().flat_map(|test| record.arms.iter().map(move |arm| (test, &arm.name)));
    let cells = cells.filter_map(|(test, arm)| cell(&record, &results, test, arm)).collect();
    Ok(IndexedRecord {
        directory,
        files,
        experiment: record.experiment,
        started_at: record.started_at,
        commit: record.commit,
        stockade: record.stockade,
        host: record.host,
        clock: record.clock,
        scale: record.scale,
        is_complete: !record.interrupted,
        verdict: record.verdict,
        settings: settings_hash.finish(),
        cells,
    })
}

/// `None`: not measured.
fn cell(record: &Record, results: &Results, test: &str, arm: &str) -> Option<IndexedCell> {
    let repeats = results.repeats(test, arm);
    let load = load(&repeats.first()?.run);
    let figures = METRICS.iter().filter_map(|metric| {
        let is_geometric = is_estimated(metric, record.clock);
        Some((metric.name.to_owned(), mean(&repeats, metric, is_geometric)?))
    });
    Some(IndexedCell { test: test.to_owned(), arm: arm.to_owned(), load, figures: figures.collect() })
}

fn mean(repeats: &[&Evidence], metric: &Metric, is_geometric: bool) -> Option<f64> {
    let valid = repeats.iter().filter(|evidence| evidence.is_valid(metric.is_timing));
    let figures: Vec<f64> = valid.filter_map(|evidence| evidence.figure(metric, None)).collect();
    let mean =
        |of: fn(f64) -> f64| figures.iter().map(|figure| of(*figure)).sum::<f64>() / figures.len() as f64;
    let mean = match figures[..] {
        [] => return None,
        // Exactly as measured.
        [one] => one,
        _ if is_geometric => mean(|figure| figure.max(FIGURE_MIN).ln()).exp(),
        _ => mean(|figure| figure),
    };
    mean.is_finite().then_some(mean)
}

impl FileStamps {
    fn of(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            record: FileStamp::of(&directory.join(storage::RECORD))?,
            intervals: FileStamp::of(&directory.join(storage::INTERVALS))?,
        })
    }
}

impl FileStamp {
    fn of(file: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let modified = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH);
        Ok(Self { bytes: metadata.len(), modified_ns: modified.unwrap_or(Duration::ZERO).as_nanos() })
    }
}

/// The records of the index, by directory. An index of another program and a broken line are ignored.
fn read_index(path: &Path) -> HashMap<PathBuf, IndexedRecord> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines();
    let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
    if head != Some(Head::current()) {
        return HashMap::new();
    }
    let records = lines.filter_map(|line| serde_json::from_str::<IndexedRecord>(line).ok());
    records.map(|record| (record.directory.clone(), record)).collect()
}

/// Replaces the index, so that a reader sees the old one or the new one.
fn write_index(path: &Path, records: &[IndexedRecord]) -> Result<(), StorageError> {
    let new = path.with_extension(format!("jsonl.{}", process::id()));
    let lines = || -> serde_json::Result<String> {
        let head = serde_json::to_string(&Head::current());
        let records = records.iter().map(serde_json::to_string);
        [head].into_iter().chain(records).map(|line| line.map(|line| line + "\n")).collect()
    };
    let written = lines().map_err(io::Error::from).and_then(|text| fs::write(&new, text));
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        StorageError::Io { path: path.to_owned(), error }
    })
}

/// A record without cells.
#[cfg(test)]
pub(super) fn test_record(started_at: &str) -> IndexedRecord {
    let stamp = FileStamp { bytes: 0, modified_ns: 0 };
    let host = Host { cpu: "cpu".to_owned(), cores: 2, memory_mib: 4_096, os: "Linux 6".to_owned() };
    IndexedRecord {
        directory: PathBuf::new(),
        files: FileStamps { record: stamp, intervals: stamp },
        experiment: "An experiment".to_owned(),
        started_at: started_at.to_owned(),
        commit: None,
        stockade: "0.1.0".to_owned(),
        host,
        clock: ClockKind::Live,
        scale: 1.0,
        is_complete: true,
        verdict: Verdict::Supported,
        settings: 0,
        cells: Vec::new(),
    }
}
