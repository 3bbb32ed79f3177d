//! Bodies that targets name by their files.

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::open;
use crate::target::shown;

/// Every one of them is read once, however many targets have it.
pub(super) struct Bodies<'a> {
    folder: &'a Path,
    read: BTreeMap<PathBuf, Bytes>,
    bytes: u64,
}

/// So large are all of them together: they stay in memory.
const BYTES_MAX: u64 = 256 << 20;

impl<'a> Bodies<'a> {
    /// Those that are named from a folder on.
    pub fn below(folder: &'a Path) -> Self {
        Self { folder, read: BTreeMap::new(), bytes: 0 }
    }

    /// What is in one, or what to do about it.
    pub fn read(&mut self, name: &str) -> Result<Bytes, String> {
        let path = self.folder.join(name);
        if let Some(bytes) = self.read.get(&path) {
            return Ok(bytes.clone());
        }
        let wrong = |message: String| format!("the body `{}`: {message}", shown(&path.display().to_string()));
        let mut bytes = Vec::new();
        let file = open(&path).map_err(wrong)?;
        let left = BYTES_MAX - self.bytes;
        file.take(left + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(format!("cannot read it: {error}")))?;
        if bytes.len() as u64 > left {
            return Err(wrong("all bodies have more than 256 MiB: send smaller ones, or fewer".to_owned()));
        }
        self.bytes += bytes.len() as u64;
        let bytes = Bytes::from(bytes);
        self.read.insert(path, bytes.clone());
        Ok(bytes)
    }
}
