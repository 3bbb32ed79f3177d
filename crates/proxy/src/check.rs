//! `--check`: the files that a valid configuration names. It listens nowhere, connects to nothing and writes nothing.

use std::{fmt, fs::OpenOptions, io, path::Path};

use rustix::fs::{Access, access};
use stockade_http::frontend::{CertificateFiles, ServerCertificate};
use stockade_model::private_file::NotPrivate;

use crate::{
    admin::{Token, TokenError},
    config::{Config, LogConfig, SnapshotConfig},
    serve::origin::OriginClient,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// The proxy would not start.
    pub problems: Vec<Problem>,
    /// The proxy would start.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place in the file: `[tls]`, `[[origin]] app`.
    pub setting: String,
    /// The cause, and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.message)
    }
}

/// Finds every problem, not the first one only.
///
/// # Panics
/// Outside a tokio runtime.
#[must_use]
pub fn check(config: &Config) -> CheckResult {
    let mut result = CheckResult::default();
    let mut note = |setting: &str, error: Option<String>| {
        result.problems.extend(error.map(|message| Problem { setting: setting.to_owned(), message }));
    };
    note("[tls]", certificate_error(config));
    note("[log] path", log_error(&config.log));
    note("[snapshot] path", config.snapshot.as_ref().and_then(snapshot_error));
    for origin in &config.origins {
        let error = OriginClient::check(origin).err().map(|error| error.reason);
        note(&format!("[[origin]] {}", origin.name), error);
    }
    match token_warning(config) {
        Ok(warning) => result.warnings.extend(warning),
        Err(error) => note("[admin] token_file", Some(error.to_string())),
    }
    result.warnings.extend(shadow_warning(config));
    result
}

/// That nothing can read the figures of the ghosts.
pub(crate) fn shadow_warning(config: &Config) -> Option<String> {
    let is_unread = config.shadow.is_some() && config.admin.is_none();
    is_unread.then(|| {
        "nothing shows the figures of the ghosts (--shadow): add an admin listener (--admin)".to_owned()
    })
}

fn certificate_error(config: &Config) -> Option<String> {
    let tls = config.tls.as_ref()?;
    let files = CertificateFiles { certificates: tls.cert.clone(), key: tls.key.clone() };
    ServerCertificate::load(&files).err().map(|error| error.to_string())
}

fn token_warning(config: &Config) -> Result<Option<String>, TokenError> {
    let file = config.admin.as_ref().and_then(|admin| admin.token_file.as_deref());
    Token::read_with_warning(file).map(|(_, warning)| warning)
}

fn snapshot_error(snapshot: &SnapshotConfig) -> Option<String> {
    let path = &snapshot.path;
    if path.is_symlink() {
        return Some(format!("cannot keep the snapshot at {}: {}", path.display(), NotPrivate::Link));
    }
    // Snapshots replace the file, so that its folder has to be writable, too.
    let error = writable(path).and_then(|()| writable(&path.with_added_extension("new"))).err()?;
    Some(format!("cannot write the snapshot to {}: {error}", path.display()))
}

fn log_error(log: &LogConfig) -> Option<String> {
    let path = log.path.as_deref().filter(|_| log.is_on())?;
    let error = writable(path).err()?;
    Some(format!("cannot write the access log to {}: {error}", path.display()))
}

/// Opens the file without creating it; if the file is missing, its folder must allow to create it.
fn writable(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(access(folder.unwrap_or(Path::new(".")), Access::WRITE_OK)?)
        }
        opened => opened.map(drop),
    }
}
