//! Flags, alone or laid over a file.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use stockade_cache::{
    Builder, Cache, Limit, Strategy, heap_bytes,
    spec::{CacheTable, written::Text},
};
use stockade_source::secrets::masked_message;
use toml::Spanned;

use super::file::{Address, AdminTable, File, OriginTable};

/// What can be said without a file. What is said goes before what the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--origin URL`: where answers come from, in place of the only origin of a file.
    pub origin: Option<String>,
    /// `--listen ADDR`, as often as wanted.
    pub listen: Vec<SocketAddr>,
    /// `--admin ADDR`.
    pub admin: Option<SocketAddr>,
    /// `--admin-token-file PATH`.
    pub token_file: Option<PathBuf>,
    /// `--strategy NAME`: in place of the one in `[cache]`, whose other axes stay as they are written there.
    pub strategy: Option<String>,
    /// `--max-entries N`.
    pub max_entries: Option<usize>,
    /// `--max-bytes SIZE`, in bytes.
    pub max_bytes: Option<usize>,
    /// `--reclaim F`: a share of the limit, 0 to 1.
    pub reclaim: Option<f64>,
}

/// A flag makes no sense. No secret is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FlagError(String);

impl FlagError {
    pub(super) fn new(message: impl AsRef<str>) -> Self {
        Self(masked_message(message.as_ref()))
    }
}

impl Flags {
    /// Everything but the limit, which has to be known before a part of it is changed.
    pub(super) fn lay_over(&self, file: &mut File) -> Result<(), FlagError> {
        let unwritten = |address| Spanned::new(0..0, Text(Address(address)));
        if let Some(url) = &self.origin {
            file.origin = vec![with_url(std::mem::take(&mut file.origin), url)?];
        }
        if !self.listen.is_empty() {
            let listen = self.listen.iter().map(|address| Spanned::new(0..0, address.to_string()));
            file.listen = Some(Spanned::new(0..0, listen.collect()));
        }
        if let Some(listen) = self.admin {
            match &mut file.admin {
                Some(admin) => admin.listen = unwritten(listen),
                none => {
                    *none =
                        Some(AdminTable { listen: unwritten(listen), token_file: None, hosts: Vec::new() });
                }
            }
        }
        if let Some(path) = &self.token_file {
            let Some(admin) = &mut file.admin else {
                return Err(FlagError::new("--admin-token-file: there is no --admin that needs it"));
            };
            // The file is named from where the program is, not from where its configuration is.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            admin.token_file = Some(path);
        }
        if let Some(name) = &self.strategy {
            let unknown = |error| FlagError::new(format!("--strategy: {error}"));
            match &mut file.cache {
                Some(cache) => cache.get_mut().set_preset(name).map_err(unknown)?,
                none => {
                    let mut cache = CacheTable::default();
                    cache.set_preset(name).map_err(unknown)?;
                    *none = Some(Spanned::new(0..0, cache));
                }
            }
        }
        Ok(())
    }

    /// Entries and bytes: one that is given leaves the other as it is, usual or written.
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
        let none = Strategy::preset("none").expect("it is a preset");
        let strategy = Strategy { limit: Some(limit.clone()), ..none };
        let cache: Builder<Arc<str>, Bytes> = Cache::builder(strategy).weigh(heap_bytes);
        let wrong = |error| FlagError::new(format!("--max-entries, --max-bytes, --reclaim: {error}"));
        cache.check().map_err(wrong)
    }
}

/// The only origin, elsewhere.
fn with_url(mut origins: Vec<Spanned<OriginTable>>, url: &str) -> Result<Spanned<OriginTable>, FlagError> {
    if origins.len() > 1 {
        let message = format!("--origin: the file has {} origins: change their URLs there", origins.len());
        return Err(FlagError::new(message));
    }
    let mut origin = origins.pop().unwrap_or_else(|| Spanned::new(0..0, OriginTable::default()));
    let table = origin.get_mut();
    table.urls = None;
    table.url = Some(Spanned::new(0..0, url.to_owned()));
    Ok(origin)
}
