//! Changes a stored value by a function of it.

use std::{borrow::Borrow, hash::Hash, time::Duration};

use stockade_model::time::{Runtime, Time};

use super::{Engine, insertion::loaded};
use crate::{
    freshness::{Lifespan, Lifetime},
    invalidation::Invalidation,
    store::{NewValue, StoredValue, update::ObservedKey},
    tier::{InvalidationTarget, SharedTier},
};

/// A change of a stored value: [`Cache::update`](crate::Cache::update).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update<V> {
    /// Leaves the entry as it is.
    Keep,
    /// Stores this value, for the strategy's `ttl`.
    Store(V),
    /// Stores this value, with times of its own.
    StoreFor(V, Lifespan),
    /// Stores this value with the times of the fresh one, so that it expires when that would have expired. As [`Store`](Self::Store)
    /// without a fresh value, and where one of the two is a [not-found](crate::Builder::not_found).
    StoreInPlace(V),
    /// Removes the entry, as a [hard](Invalidation::Hard) invalidation of its key does.
    Remove,
}

/// The key was changed since it was observed.
struct Conflict;

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Returns the value that was kept or stored.
    pub(crate) fn update<Q>(
        &self,
        key: &Q,
        mut change: impl FnMut(Option<&StoredValue<V>>) -> Update<V>,
    ) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        loop {
            let now = self.runtime.coarse_now();
            let observed = self.store.observe(key, now);
            let timed = |value: V, own| {
                let life = self.lifetime_of(&value, own, now, Duration::ZERO);
                (Some(value), life)
            };
            let (value, life) = match change(observed.fresh.as_ref().map(|(stored, _)| stored)) {
                Update::Keep => return observed.fresh.map(|(stored, _)| stored.value),
                Update::Remove => (None, None),
                Update::Store(value) => timed(value, None),
                Update::StoreFor(value, lifespan) => timed(value, Some(lifespan)),
                Update::StoreInPlace(value) => match &observed.fresh {
                    // The times of a not-found are not those of a value.
                    Some((_, life)) if life.is_negative() == self.is_not_found(&value) => {
                        (Some(value), Some(*life))
                    }
                    _ => timed(value, None),
                },
            };
            let done = match value.zip(life) {
                Some((value, life)) => self.replace(key, &observed, value, life, now),
                None => self.remove_if_unchanged(key, &observed, now),
            };
            if let Ok(value) = done {
                return value;
            }
        }
    }

    fn replace<Q>(
        &self,
        key: &Q,
        observed: &ObservedKey<V>,
        value: V,
        life: Lifetime,
        now: Time,
    ) -> Result<Option<V>, Conflict>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        // The clock may be behind that of the stored value, which is older all the same.
        let life = Lifetime { loaded: life.loaded.max(observed.stamp.loaded), ..life };
        let new = NewValue {
            key: key.to_owned().into(),
            value: value.clone(),
            since: observed.since,
            took: Duration::ZERO,
        };
        let published = self.shared.is_some().then(|| (new.key.clone(), loaded(&new, Some(life), now)));
        if self.has_memory() {
            let Ok(permit) = self.store.reserve_for_store(&new.key, &value, None) else {
                return self.remove_if_unchanged(key, observed, now);
            };
            if self.store.replace(observed, new, &life, permit, now).ok_or(Conflict)? {
                // Later requests must not wait for a load that began before.
                self.coalescer.detach(key);
            }
            if let Some(target) = self.store.journal_target(key) {
                self.store.write_journal(target);
            }
        }
        if let Some((key, loaded)) = published {
            self.publish_write(&key, &loaded);
        }
        Ok(Some(value))
    }

    fn remove_if_unchanged<Q>(
        &self,
        key: &Q,
        observed: &ObservedKey<V>,
        now: Time,
    ) -> Result<Option<V>, Conflict>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        // Published first: after the removal no request on this node receives the tier's old value.
        let target =
            |shared: &SharedTier<K, V>| InvalidationTarget::Key(shared.keys.encode(&key.to_owned().into()));
        self.publish_invalidation(target, Invalidation::Hard);
        if !self.store.remove_if_unchanged(observed, key, now) {
            return Err(Conflict);
        }
        // Later requests must not wait for a load whose value is outdated.
        self.coalescer.detach(key);
        Ok(None)
    }
}
