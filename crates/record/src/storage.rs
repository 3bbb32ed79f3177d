//! A record on disk: a directory with `record.json` and `intervals.jsonl`.

mod find;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::record::{Interval, Record, Run, SCHEMA};

use crate::{
    metrics::{FigureWindow, Results},
    reference,
};

pub use find::{FoundRecord, find_all, find_latest, has_record};

/// A record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("cannot make the directory {} for the record: {error}; name another with --out", path.display())]
    Create { path: PathBuf, error: io::Error },
    /// The directory already has a record.
    #[error("{}: there is a record already; name another directory", path.display())]
    Taken { path: PathBuf },
    #[error("{}: {error}; name the directory of one run, such as runs/stampede/2026-01-31T10-00-00Z", path.display())]
    NoRecord { path: PathBuf, error: io::Error },
    /// A directory has no records.
    #[error("{}: no record.json in it, or in the two levels of directories below it; \
     run an experiment first, or name the directory of one run, such as runs/stampede/2026-01-31T10-00-00Z", path.display())]
    NoRecords { path: PathBuf },
    /// A file is not valid.
    #[error("{}: not a Stockade record: {reason}", path.display())]
    Broken { path: PathBuf, reason: String },
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    |error| StorageError::Io { path, error }
}

/// Writes a record during a run. However the run ends, the disk has a valid record up to the last checkpoint:
/// `record.json` is replaced at each checkpoint, intervals are flushed run by run.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    intervals: BufWriter<File>,
}

pub(crate) const RECORD: &str = "record.json";
pub(crate) const INTERVALS: &str = "intervals.jsonl";

impl Recorder {
    /// Creates the directory. An existing record is not overwritten.
    pub fn create(directory: &Path) -> Result<Self, StorageError> {
        let record = directory.join(RECORD);
        if record.exists() {
            return Err(StorageError::Taken { path: record });
        }
        let create = |error| StorageError::Create { path: directory.to_owned(), error };
        fs::create_dir_all(directory).map_err(create)?;
        let path = directory.join(INTERVALS);
        let file = File::create(&path).map_err(io(&path))?;
        // The lock shows readers that the run goes on; it ends with the process. A file system may have no locks.
        let _ = file.try_lock();
        let intervals = BufWriter::new(file);
        Ok(Self { directory: directory.to_owned(), intervals })
    }

    /// Appends a second of the current run.
    pub fn second(&mut self, interval: &Interval) -> Result<(), StorageError> {
        let written = serde_json::to_writer(&mut self.intervals, interval).map_err(io::Error::from);
        let written = written.and_then(|()| self.intervals.write_all(b"\n"));
        written.map_err(io(&self.directory.join(INTERVALS)))
    }

    /// Flushes the seconds of a finished run.
    pub fn flush(&mut self) -> Result<(), StorageError> {
        self.intervals.flush().map_err(io(&self.directory.join(INTERVALS)))
    }

    /// Replaces the record on disk.
    pub fn checkpoint(&self, record: &Record) -> Result<(), StorageError> {
        let path = self.directory.join(RECORD);
        let new = self.directory.join("record.json.new");
        let text = serde_json::to_string_pretty(record).map_err(|error| io(&path)(error.into()))?;
        fs::write(&new, text).map_err(io(&new))?;
        fs::rename(&new, &path).map_err(io(&path))
    }

    /// Writes a report next to the record. `path` is relative, with at most one directory, which is made.
    pub fn report(&self, path: &str, text: &str) -> Result<(), StorageError> {
        let path = self.directory.join(path);
        let directory = path.parent().unwrap_or(&self.directory);
        fs::create_dir_all(directory).map_err(io(directory))?;
        fs::write(&path, text).map_err(io(&path))
    }
}

/// True if a process writes this record now.
#[must_use]
pub fn is_in_progress(directory: &Path) -> bool {
    let lock = File::open(directory.join(INTERVALS)).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

/// Reads a record from its directory and folds its intervals.
pub fn read(directory: &Path) -> Result<(Record, Results), StorageError> {
    read_into(directory, Results::watching)
}

/// The same without the moments that plots are made of.
pub fn read_figures(directory: &Path) -> Result<(Record, Results), StorageError> {
    read_into(directory, |windows| Results::watching(windows).without_moments())
}

fn read_into(
    directory: &Path,
    results: impl Fn(Vec<FigureWindow>) -> Results,
) -> Result<(Record, Results), StorageError> {
    let path = directory.join(RECORD);
    let text =
        fs::read_to_string(&path).map_err(|error| StorageError::NoRecord { path: path.clone(), error })?;
    let broken = |path: &Path, reason: String| StorageError::Broken { path: path.to_owned(), reason };
    let version: Version = serde_json::from_str(&text).map_err(|error| broken(&path, error.to_string()))?;
    if version.schema != SCHEMA {
        let reason = format!("its schema is `{}`, and this program reads `{SCHEMA}`", version.schema);
        return Err(broken(&path, reason));
    }
    let mut record: Record = serde_json::from_str(&text).map_err(|error| broken(&path, error.to_string()))?;
    record.in_progress = record.interrupted && is_in_progress(directory);

    let path = directory.join(INTERVALS);
    let mut lines = BufReader::new(File::open(&path).map_err(io(&path))?).lines().enumerate().peekable();
    let is_cut = ends_within_a_line(&path).map_err(io(&path))?;
    let mut results = results(windows(&record));
    // Intervals stand in the order of the runs. A killed process leaves seconds of a run without a record, and
    // a partial line.
    for run in &record.runs {
        let mut fold = results.fold(run.load.duration());
        let mut seconds = 0;
        while let Some((index, line)) =
            lines.next_if(|(_, line)| !line.as_ref().is_ok_and(|line| belongs_to_another(line, run)))
        {
            let line = line.map_err(io(&path))?;
            match serde_json::from_str::<Interval>(&line) {
                Ok(interval) => fold.add(&interval),
                Err(_) if is_cut && lines.peek().is_none() => break,
                Err(error) => return Err(broken(&path, format!("line {}: {error}", index + 1))),
            }
            seconds += 1;
        }
        if seconds == 0 && run.outcomes.requests() > 0 {
            return Err(broken(
                &path,
                format!("the seconds of {} {}, repeat {} are missing", run.test, run.arm, run.repeat),
            ));
        }
        results.add(run, fold);
    }
    Ok((record, results))
}

/// The windows of published figures.
fn windows(record: &Record) -> Vec<FigureWindow> {
    let windows: BTreeSet<_> =
        reference::figures(record).into_iter().filter_map(|(selector, _)| selector.window).collect();
    windows.into_iter().collect()
}

/// True if the last line is incomplete.
fn ends_within_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// True if a line belongs to another run; an unreadable line counts as this run's, which reports the error.
fn belongs_to_another(line: &str, run: &Run) -> bool {
    serde_json::from_str::<IntervalKey<'_>>(line).is_ok_and(|key| {
        (key.test.as_ref(), key.arm.as_ref(), key.repeat) != (&run.test, &run.arm, run.repeat)
    })
}

#[derive(serde::Deserialize)]
struct IntervalKey<'a> {
    #[serde(borrow)]
    test: Cow<'a, str>,
    #[serde(borrow)]
    arm: Cow<'a, str>,
    repeat: u32,
}

#[derive(serde::Deserialize)]
struct Version {
    schema: String,
}
