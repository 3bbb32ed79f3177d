//! Bytes that a load reserves for a value while it receives it.

use std::{hash::Hash, sync::Arc};

use super::{Store, budget::ReservedBytes};

/// Bytes under the [limit](crate::Limit::bytes) that the load of
/// [`Cache::get_streaming`](crate::Cache::get_streaming) reserves for the value it receives. Dropping it gives the
/// bytes back.
pub struct Reservation<K: Hash + Eq + Clone, V: Clone> {
    store: Arc<Store<K, V>>,
    key: K,
    bytes: Option<ReservedBytes>,
}

impl<K: Hash + Eq + Clone, V: Clone> Reservation<K, V> {
    pub(crate) fn new(store: &Arc<Store<K, V>>, key: &K) -> Self {
        Self { store: Arc::clone(store), key: key.clone(), bytes: None }
    }

    /// Sets the reservation to `bytes` in total, and evicts entries where that is necessary. Returns false, and
    /// the value cannot be stored, if `bytes` exceeds [`max_object`](crate::Limit::max_object) or if nothing is
    /// left to evict. Without a limit in bytes it returns true.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        self.store.grow_to(&self.key, &mut self.bytes, bytes)
    }

    pub(crate) fn into_bytes(self) -> Option<ReservedBytes> {
        self.bytes
    }
}

impl<K: Hash + Eq + Clone, V: Clone> std::fmt::Debug for Reservation<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
