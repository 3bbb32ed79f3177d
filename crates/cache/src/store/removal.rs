//! Entries that leave the store, and the listener that is told of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use smallvec::SmallVec;

/// The reason why an entry was removed: [`Builder::on_removal`](crate::Builder::on_removal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemovalReason {
    /// The limit was reached, and the policy chose it.
    Evicted,
    /// It was not to be served any more: it had expired or was idle. Stores find such entries one after the other, so this comes some time after the
    /// expiry. An expired entry may leave for another reason before.
    Expired,
    /// It was invalidated, or a newer value of its key was not stored.
    Invalidated,
    /// A newer value was stored for its key.
    Replaced,
}

/// Is called with each removed entry.
pub(crate) type RemovalFn<K, V> = Box<dyn Fn(&K, &V, RemovalReason) + Send + Sync>;

/// Removed entries. They are dropped after the lock is released.
pub(crate) type RemovedEntries<K, V> = SmallVec<[RemovedEntry<K, V>; 2]>;

/// An entry that is not stored any more.
#[derive(Debug)]
pub(crate) struct RemovedEntry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    /// In bytes, with a limit in bytes.
    pub(crate) weight: u32,
    /// `None`: it was not stored, as a younger value was.
    pub(crate) reason: Option<RemovalReason>,
}

/// Calls the listener. A panic of it ends here: the bytes of the entries are still to be released.
pub(crate) fn report<K, V>(listener: &RemovalFn<K, V>, removed: &[RemovedEntry<K, V>]) {
    for RemovedEntry { key, value, reason, .. } in removed {
        if let Some(reason) = *reason {
            // The panic hook has printed it.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(key, value, reason)));
        }
    }
}
