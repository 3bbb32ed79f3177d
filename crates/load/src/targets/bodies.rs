//! Files that targets name as their bodies.

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use stockade_model::message::shown;

use super::open_file;

/// Reads each file once, however many templates use it.
pub(super) struct BodyFiles<'a> {
    folder: &'a Path,
    files: BTreeMap<PathBuf, Bytes>,
    bytes: u64,
}

/// The most bytes of all bodies together, since they stay in memory.
pub const BODY_BYTES_MAX: u64 = 256 << 20;

/// The content of one file, or an error with its remedy.
pub fn read_body(folder: &Path, name: &Path) -> Result<Bytes, String> {
    BodyFiles::in_folder(folder).read(name)
}

impl<'a> BodyFiles<'a> {
    /// Resolves names in a folder.
    pub fn in_folder(folder: &'a Path) -> Self {
        Self { folder, files: BTreeMap::new(), bytes: 0 }
    }

    /// The content of a file, or an error with its remedy.
    pub fn read(&mut self, name: impl AsRef<Path>) -> Result<Bytes, String> {
        let path = self.folder.join(name);
        if let Some(bytes) = self.files.get(&path) {
            return Ok(bytes.clone());
        }
        let error = |message: String| format!("the body `{}`: {message}", shown(&path.display().to_string()));
        let mut bytes = Vec::new();
        let file = open_file(&path).map_err(error)?;
        let left = BODY_BYTES_MAX - self.bytes;
        file.take(left + 1).read_to_end(&mut bytes).map_err(|io| error(format!("cannot read it: {io}")))?;
        if bytes.len() as u64 > left {
            return Err(error(
                "all bodies together have more than 256 MiB: send smaller ones, or fewer".to_owned(),
            ));
        }
        self.bytes += bytes.len() as u64;
        let bytes = Bytes::from(bytes);
        self.files.insert(path, bytes.clone());
        Ok(bytes)
    }
}
