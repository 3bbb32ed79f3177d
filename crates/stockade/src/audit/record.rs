//! The record of an audit: its report in JSON, with which later audits are compared.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use stockade_audit::EarlierAudit;
use stockade_record::storage::StorageError;

use crate::{exit::CommandError, run::default_directories};

/// Reads an earlier audit.
pub fn read(path: &Path) -> Result<EarlierAudit, CommandError> {
    let refused = |reason: String| CommandError::Usage(format!("{}: {reason}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    text.parse().map_err(|error: stockade_audit::NotAnAudit| refused(error.to_string()))
}

/// Writes a new file, `runs/audit/TIME.json`, and returns its path.
pub fn write(text: &str) -> Result<PathBuf, StorageError> {
    let candidates = default_directories(OsStr::new("audit")).map(|place| place.with_extension("json"));
    for path in candidates {
        if write_new(&path, text).map_err(|error| StorageError::Io { path: path.clone(), error })? {
            return Ok(path);
        }
    }
    unreachable!("numbers do not end")
}

/// False: there is a file already, or another audit is writing it.
fn write_new(path: &Path, text: &str) -> std::io::Result<bool> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
    let new = path.with_extension("json.new");
    let mut file = match File::create_new(&new) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        file => file?,
    };
    // The name belongs to this audit while `new` is there.
    let is_taken = path.exists();
    let written = if is_taken { Ok(()) } else { file.write_all(text.as_bytes()) };
    if is_taken || written.is_err() {
        let _ = fs::remove_file(&new);
        return written.map(|()| false);
    }
    fs::rename(&new, path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_another_audit_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs/audit/time.json");
        assert!(write_new(&path, "first").unwrap());
        assert!(!write_new(&path, "second").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let other = folder.path().join("runs/audit/other.json");
        File::create(other.with_extension("json.new")).unwrap();
        assert!(!write_new(&other, "third").unwrap(), "another audit is writing it");
    }

    #[test]
    fn refused_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let message = || read(&path).unwrap_err().to_string();
        assert!(message().contains("plan.json: No such file"), "{}", message());
        fs::write(&path, r#"{"schema":"stockade.plan/1"}"#).unwrap();
        assert!(message().contains("plan.json: not the record of an audit"), "{}", message());
    }
}
