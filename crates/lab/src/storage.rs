//! A record on disk: a directory with `record.json` and `intervals.jsonl`.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use stockade_model::record::{Interval, Record, SCHEMA};

/// A record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file system said no.
    #[error("{}: {error}", path.display())]
    Io {
        /// To what.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: not a Stockade record: {reason}", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    |error| StorageError::Io { path, error }
}

/// Writes intervals as they come, so that a run holds none of them and loses none of them.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    intervals: BufWriter<File>,
}

const RECORD: &str = "record.json";
const INTERVALS: &str = "intervals.jsonl";

impl Recorder {
    /// Makes the directory. One that holds a record already is not overwritten.
    pub fn create(directory: &Path) -> Result<Self, StorageError> {
        let record = directory.join(RECORD);
        if record.exists() {
            let error = io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a record already; name another directory",
            );
            return Err(StorageError::Io { path: record, error });
        }
        fs::create_dir_all(directory).map_err(io(directory))?;
        let path = directory.join(INTERVALS);
        let intervals = BufWriter::new(File::create(&path).map_err(io(&path))?);
        Ok(Self { directory: directory.to_owned(), intervals })
    }

    /// Adds a line.
    pub fn interval(&mut self, interval: &Interval) -> Result<(), StorageError> {
        let write = |to: &mut BufWriter<File>| -> io::Result<()> {
            serde_json::to_writer(&mut *to, interval)?;
            to.write_all(b"\n")
        };
        write(&mut self.intervals).map_err(io(&self.directory.join(INTERVALS)))
    }

    /// Writes what is only known at the end, and a rendered report beside it.
    pub fn finish(mut self, record: &Record, reports: &[(&str, String)]) -> Result<(), StorageError> {
        self.intervals.flush().map_err(io(&self.directory.join(INTERVALS)))?;
        let text = serde_json::to_string_pretty(record).map_err(io::Error::from);
        let text = text.map_err(io(&self.directory.join(RECORD)))?;
        for (name, text) in
            [(RECORD, &text)].into_iter().chain(reports.iter().map(|(name, text)| (*name, text)))
        {
            let path = self.directory.join(name);
            fs::write(&path, text).map_err(io(&path))?;
        }
        Ok(())
    }
}

/// Reads a record from its directory.
pub fn read(directory: &Path) -> Result<(Record, Vec<Interval>), StorageError> {
    let path = directory.join(RECORD);
    let text = fs::read_to_string(&path).map_err(io(&path))?;
    let broken = |path: &Path, reason: String| StorageError::Broken { path: path.to_owned(), reason };
    let version: Version = serde_json::from_str(&text).map_err(|error| broken(&path, error.to_string()))?;
    if version.schema != SCHEMA {
        return Err(broken(
            &path,
            format!("its schema is `{}`, and this program reads `{SCHEMA}`", version.schema),
        ));
    }
    let record = serde_json::from_str(&text).map_err(|error| broken(&path, error.to_string()))?;

    let path = directory.join(INTERVALS);
    let mut intervals = Vec::new();
    for (index, line) in BufReader::new(File::open(&path).map_err(io(&path))?).lines().enumerate() {
        let line = line.map_err(io(&path))?;
        let interval = serde_json::from_str(&line);
        intervals.push(interval.map_err(|error| broken(&path, format!("line {}: {error}", index + 1)))?);
    }
    Ok((record, intervals))
}

#[derive(serde::Deserialize)]
struct Version {
    schema: String,
}
