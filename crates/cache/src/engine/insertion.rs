//! Stores values that did not come from a load.

use std::{hash::Hash, time::Duration};

use stockade_model::time::{Runtime, Time};

use super::{
    Engine,
    loaded::{Loaded, LoadedFrom},
    writer::Write,
};
use crate::{
    freshness::{Lifespan, Lifetime},
    store::{NewValue, StorePermit, StoreRejection},
};

/// The result of [`Cache::insert`](crate::Cache::insert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Insertion {
    /// The value is stored, or is in the writer's mailbox.
    Stored,
    /// The value is not stored, for this reason. The older value of its key has been removed.
    Rejected(StoreRejection),
    /// The value is not stored, and what was stored under its key has been removed: the value is a
    /// [not-found](crate::Builder::not_found) and the strategy has no `negative_ttl`, or its
    /// [lifespan](crate::Builder::lifespan) is zero.
    NotCacheable,
}

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// `own` is the lifespan of the value, if it has one of its own.
    pub(crate) fn insert(&self, new: NewValue<K, V>, own: Option<Lifespan>) -> Insertion {
        let at = self.runtime.coarse_now();
        let life = self.lifetime_of(&new.value, own, at, Duration::ZERO);
        if self.shared.is_some() {
            self.publish_write(&new.key, &loaded(&new, life, at));
            if !self.has_memory() {
                return if life.is_some() { Insertion::Stored } else { Insertion::NotCacheable };
            }
        }
        let Some(life) = life else {
            self.remove(&new.key);
            return Insertion::NotCacheable;
        };
        let permit = match self.store.reserve_for_store(&new.key, &new.value, None) {
            Ok(permit) => permit,
            Err(refused) => {
                self.remove(&new.key);
                return Insertion::Rejected(refused);
            }
        };
        if !self.writer.is_direct() {
            return self.send_to_writer(&new, life, permit, at);
        }
        // Most writes meet no load at all.
        let key = (!self.pending_work.is_idle()).then(|| new.key.clone());
        if self.store.write_value(new, &life, permit, at) {
            match key {
                Some(key) => self.coalescer.detach(&key),
                // Its load has begun in between.
                None => self.coalescer.detach_all(),
            }
        }
        Insertion::Stored
    }

    /// Removes what a written value replaces that is not stored. Later requests must not wait for a load that began before.
    fn remove(&self, key: &K) {
        if self.store.remove(key) {
            self.coalescer.detach(key);
        }
    }

    #[cold]
    fn send_to_writer(
        &self,
        new: &NewValue<K, V>,
        life: Lifetime,
        permit: StorePermit,
        at: Time,
    ) -> Insertion {
        let mark = self.store.begin_write(&new.key);
        self.coalescer.detach(&new.key);
        let write = Write {
            mark,
            key: new.key.clone(),
            loaded: loaded(new, Some(life), at),
            claim: None,
            key_guard: None,
            permit: Some(permit),
            pending_work: self.pending_work.start(),
        };
        if self.writer.store_async(write) {
            return Insertion::Stored;
        }
        self.remove(&new.key);
        Insertion::Rejected(StoreRejection::MailboxFull)
    }
}

pub(super) fn loaded<K, V: Clone>(new: &NewValue<K, V>, life: Option<Lifetime>, at: Time) -> Loaded<V> {
    let &NewValue { ref value, since, took, .. } = new;
    Loaded { value: value.clone(), life, at, took, since, via: LoadedFrom::Load }
}
