//! Files for one user alone: the snapshot of a cache has the answers of others, settings have passwords.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

/// The mode of a new file.
const OWNER_ONLY: u32 = 0o600;
/// The bit of a mode with which every user may write.
const OTHERS_WRITE: u32 = 0o002;

/// Another user may have chosen the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPrivate {
    #[error("it is a link: write the path of the file itself")]
    Link,
    #[error("it is not a file")]
    NoFile,
    #[error("it belongs to another user: remove it, or change its owner")]
    OtherOwner,
    #[error("every user may write it: remove it, or change its mode to 600")]
    Writable,
}

impl From<NotPrivate> for io::Error {
    fn from(reason: NotPrivate) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, reason)
    }
}

/// Creates a file that only its owner can read and write. It replaces the file or link that has the name; a link is not followed.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path),
    }
}

/// Opens a file to read it, if its content is from this user or from root: an error has the [`NotPrivate`]. It never waits, also not
/// for the writer of a pipe.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => NotPrivate::Link.into(),
        _ => error,
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(NotPrivate::NoFile.into());
    }
    if ![0, geteuid().as_raw()].contains(&about.uid()) {
        return Err(NotPrivate::OtherOwner.into());
    }
    if about.mode() & OTHERS_WRITE != 0 {
        return Err(NotPrivate::Writable.into());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::fs::{PermissionsExt, chown, symlink},
        process::Command,
    };

    use super::*;

    fn refusal(path: &Path) -> NotPrivate {
        let error = open(path).expect_err("it is refused");
        *error.get_ref().and_then(|reason| reason.downcast_ref()).unwrap_or_else(|| panic!("{error}"))
    }

    #[test]
    fn created_file_is_its_owners_and_replaces_what_has_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("new"), folder.path().join("victim"));
        fs::write(&victim, "untouched").unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o170_777;
        for before in ["nothing", "file", "link", "dangling link"] {
            match before {
                "file" => {
                    fs::write(&path, "longer than the new content").unwrap();
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
                }
                "link" => symlink(&victim, &path).unwrap(),
                "dangling link" => symlink(folder.path().join("created"), &path).unwrap(),
                _ => {}
            }
            create(&path).unwrap().write_all(b"new").unwrap();
            assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o100_600, b"new".to_vec()), "{before}");
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert!(!folder.path().join("created").exists());
        assert!(create(folder.path()).is_err());
    }

    #[test]
    fn files_that_others_may_have_written_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create(&path("mine")).unwrap();
        assert!(open(&path("mine")).is_ok());
        assert_eq!(open(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        symlink(path("mine"), path("link")).unwrap();
        assert_eq!(refusal(&path("link")), NotPrivate::Link);
        assert_eq!(refusal(folder.path()), NotPrivate::NoFile);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        assert_eq!(refusal(&path("pipe")), NotPrivate::NoFile);
        fs::set_permissions(path("mine"), fs::Permissions::from_mode(0o602)).unwrap();
        assert_eq!(refusal(&path("mine")), NotPrivate::Writable);
        fs::set_permissions(path("mine"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(open(&path("mine")).is_ok());
        // Only root can give a file away.
        if chown(path("mine"), Some(65_534), None).is_ok() {
            assert_eq!(refusal(&path("mine")), NotPrivate::OtherOwner);
        }
    }
}
