//! The stored pages: the variants of each key, with a limit of memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};

use super::rules::{Freshness, combined};

const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory of a page in addition to its key, fields and body.
const PAGE_OVERHEAD_BYTES: usize = 512;

/// The values of the fields that choose a variant.
pub type Selection = Vec<(HeaderName, Option<String>)>;

pub fn selection(fields: &[HeaderName], request: &HeaderMap) -> Selection {
    fields.iter().map(|name| (name.clone(), combined(request, name))).collect()
}

pub struct StoredPage {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub selection: Selection,
    pub freshness: Freshness,
}

impl StoredPage {
    pub fn is_selected_by(&self, request: &HeaderMap) -> bool {
        self.selection.iter().all(|(name, value)| combined(request, name) == *value)
    }

    fn bytes(&self, key: &str) -> usize {
        let fields: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        key.len() + fields + self.body.len() + PAGE_OVERHEAD_BYTES
    }
}

struct Entry {
    page: Arc<StoredPage>,
    /// Its place in the order of use.
    used: u64,
}

#[derive(Default)]
pub struct Store {
    /// The newest variant is the last.
    pages: HashMap<String, Vec<Entry>>,
    /// Keys, the least recently used variant first.
    order: BTreeMap<u64, String>,
    uses: u64,
    bytes: usize,
}

impl Store {
    pub fn find(&mut self, key: &str, request: &HeaderMap) -> Option<Arc<StoredPage>> {
        let entry =
            self.pages.get_mut(key)?.iter_mut().rev().find(|entry| entry.page.is_selected_by(request))?;
        self.uses += 1;
        self.order.remove(&entry.used);
        self.order.insert(self.uses, key.to_owned());
        entry.used = self.uses;
        Some(entry.page.clone())
    }

    pub fn first(&self, key: &str) -> Option<&Arc<StoredPage>> {
        self.pages.get(key)?.first().map(|entry| &entry.page)
    }

    /// The values that choose the variant of a request, as far as the newest response names the fields.
    pub fn selection(&self, key: &str, request: &HeaderMap) -> Selection {
        let newest = self.pages.get(key).and_then(|entries| entries.last());
        let fields: Vec<_> = newest
            .into_iter()
            .flat_map(|entry| entry.page.selection.iter().map(|(name, _)| name.clone()))
            .collect();
        selection(&fields, request)
    }

    /// Stores a page in place of the variants that its request selects.
    pub fn insert(&mut self, key: &str, request: &HeaderMap, page: Arc<StoredPage>) {
        self.remove_if(key, |old| old.is_selected_by(request));
        self.uses += 1;
        self.bytes += page.bytes(key);
        self.order.insert(self.uses, key.to_owned());
        self.pages.entry(key.to_owned()).or_default().push(Entry { page, used: self.uses });
        while self.bytes > BYTES_MAX
            && let Some((used, key)) = self.order.pop_first()
        {
            self.remove_entries(&key, |entry| entry.used == used);
        }
    }

    pub fn remove_if(&mut self, key: &str, is_removed: impl Fn(&StoredPage) -> bool) {
        self.remove_entries(key, |entry| is_removed(&entry.page));
    }

    fn remove_entries(&mut self, key: &str, is_removed: impl Fn(&Entry) -> bool) {
        let Some(entries) = self.pages.get_mut(key) else { return };
        for entry in entries.extract_if(.., |entry| is_removed(entry)) {
            self.bytes -= entry.page.bytes(key);
            self.order.remove(&entry.used);
        }
        if entries.is_empty() {
            self.pages.remove(key);
        }
    }
}
