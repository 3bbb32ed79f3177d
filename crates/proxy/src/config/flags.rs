//! Flags, alone or overriding a file.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use stockade_cache::{Builder, Cache, InvalidStrategy, Limit, Strategy, heap_bytes};
use stockade_source::secrets::masked_message;

use super::{
    AdminConfig, OriginTable, SnapshotConfig,
    file::ConfigFile,
    value::{OriginAddress, SocketAddress},
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--origin URL`: replaces the URL of the only origin of a file.
    pub origin: Option<String>,
    /// `--listen ADDR`, repeatable.
    pub listen: Vec<SocketAddr>,
    /// `--admin ADDR`.
    pub admin: Option<SocketAddr>,
    /// `--admin-token-file PATH`.
    pub token_file: Option<PathBuf>,
    /// `--strategy NAME`: replaces the name in `[cache]`; the other keys there still apply.
    pub strategy: Option<String>,
    /// `--max-entries N`.
    pub max_entries: Option<usize>,
    /// `--max-bytes SIZE`, in bytes.
    pub max_bytes: Option<usize>,
    /// `--reclaim F`: a fraction of the limit.
    pub reclaim: Option<f64>,
    /// `--snapshot FILE`.
    pub snapshot: Option<PathBuf>,
    /// `--shadow`: ghosts with the settings of `[shadow]`, or the default ones.
    pub shadow: bool,
}

/// Shows no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FlagError(String);

impl FlagError {
    pub(super) fn new(message: impl AsRef<str>) -> Self {
        Self(masked_message(message.as_ref()))
    }
}

impl Flags {
    /// All flags but those of the limit, which apply to the resolved limit.
    pub(super) fn override_file(&self, file: &mut ConfigFile) -> Result<(), FlagError> {
        if let Some(url) = &self.origin {
            file.origin = vec![with_url(std::mem::take(&mut file.origin), url)?];
        }
        if !self.listen.is_empty() {
            file.listen = Some(self.listen.iter().copied().map(SocketAddress).collect());
        }
        if let Some(listen) = self.admin.map(SocketAddress) {
            let new = AdminConfig { listen, token_file: None, hosts: Vec::new(), purge_from: Vec::new() };
            file.admin.get_or_insert(new).listen = listen;
        }
        // Flags are relative to the working directory, not to the file's folder.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if let Some(path) = &self.token_file {
            let Some(admin) = &mut file.admin else {
                return Err(FlagError::new("--admin-token-file requires --admin"));
            };
            admin.token_file = Some(absolute(path));
        }
        if let Some(path) = self.snapshot.as_ref().map(absolute) {
            let new = SnapshotConfig { path: path.clone(), every: SnapshotConfig::every() };
            file.snapshot.get_or_insert(new).path = path;
        }
        if self.shadow {
            file.shadow.get_or_insert_default();
        }
        if let Some(name) = &self.strategy {
            let unknown = |error| FlagError::new(format!("--strategy: {error}"));
            file.cache.get_or_insert_default().set_preset(name).map_err(unknown)?;
        }
        Ok(())
    }

    /// A flag for entries leaves bytes as they are, and vice versa.
    pub(super) fn limit(&self, limit: &mut Limit) -> Result<(), FlagError> {
        if self.max_entries.is_none() && self.max_bytes.is_none() && self.reclaim.is_none() {
            return Ok(());
        }
        limit.entries = self.max_entries.or(limit.entries);
        limit.bytes = self.max_bytes.or(limit.bytes);
        limit.reclaim = self.reclaim.unwrap_or(limit.reclaim);
        if self.max_bytes.is_some() {
            limit.max_object =
                limit.max_object.filter(|object| limit.bytes.is_none_or(|bytes| *object <= bytes));
        }
        let check = if limit.is_zero() { Err(InvalidStrategy::ZERO_LIMIT) } else { cache_of(limit).check() };
        check.map_err(|error| FlagError::new(format!("--max-entries, --max-bytes, --reclaim: {error}")))
    }
}

/// A cache with this limit, to be checked.
pub(super) fn cache_of(limit: &Limit) -> Builder<Arc<str>, Bytes> {
    let none = Strategy::preset("none").expect("a preset");
    Cache::builder(Strategy { limit: Some(limit.clone()), ..none }).weigh(heap_bytes)
}

/// The only origin with another URL.
fn with_url(mut origins: Vec<OriginTable>, url: &str) -> Result<OriginTable, FlagError> {
    if origins.len() > 1 {
        let message = format!("--origin: the file has {} origins: change their URLs there", origins.len());
        return Err(FlagError::new(message));
    }
    let url: OriginAddress = url.parse().map_err(|error: String| FlagError::new(error))?;
    Ok(OriginTable { url: Some(url), urls: None, ..origins.pop().unwrap_or_default() })
}
