//! All entries of a cache, one after the other.

use std::{hash::Hash, vec};

use stockade_model::time::{Live, Runtime};

use crate::{
    cache::Cache,
    store::{StoredValue, listing::Listing, shard::EntryCopy},
};

/// The entries of a cache: [`Cache::entries`].
pub struct Entries<'a, K: Hash + Eq + Clone, V: Clone, R: Runtime = Live> {
    cache: &'a Cache<K, V, R>,
    listing: Listing,
    read: vec::IntoIter<(EntryCopy<K, V>, u8)>,
}

impl<K, V, R> Cache<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Copies of all entries, fresh or not, the next to be evicted first. Counts nothing, and is not a hit for the eviction policy.
    ///
    /// It blocks nothing: entries that are stored meanwhile may be missed, and one that is replaced comes once, old or new. It holds 8
    /// bytes for each entry. Stores wait while the policy lists one shard, some milliseconds for a hundred thousand entries.
    ///
    /// ```
    /// use stockade_cache::{Cache, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache: Cache<u64, &str> = Cache::new(Strategy::default())?;
    /// cache.insert(1, "one");
    /// cache.insert(2, "two");
    /// let long: Vec<u64> =
    ///     cache.entries().filter(|(_, stored)| stored.value.len() > 2).map(|(key, _)| key).collect();
    /// assert_eq!(long.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn entries(&self) -> Entries<'_, K, V, R> {
        Entries { cache: self, listing: Listing::new(self.store()), read: vec::IntoIter::default() }
    }
}

impl<K, V, R> Iterator for Entries<'_, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    type Item = (K, StoredValue<V>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let now = self.cache.runtime().coarse_now();
            if let Some((EntryCopy { key, value, life }, _)) = self.read.next() {
                return Some((key, StoredValue::new(value, &life, now)));
            }
            let mut read = Vec::new();
            self.listing.next(self.cache.store(), now, &mut read)?;
            self.read = read.into_iter();
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone, R: Runtime> std::fmt::Debug for Entries<'_, K, V, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}
