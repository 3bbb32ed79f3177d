//! Lookups, stores and events in a tier that nodes share.

use std::{hash::Hash, num::NonZeroU64, sync::Arc, time::Duration};

use bytes::Bytes;
use stockade_model::time::{Runtime, Time, before};

use super::{
    Engine,
    loaded::{Loaded, LoadedFrom},
    loader::CacheMode,
};
use crate::{
    error::Error,
    freshness::{FreshnessState, RemoteTimes},
    invalidation::{Invalidation, InvalidationSeq},
    store::{NewValue, load_mark::LoadMark, shard::LookupResult},
    tier::{
        InvalidationTarget, Lease, LoadRight, RemoteLoad, SharedTier, TierEvent, TierQuery, TierReply,
        TierValue,
    },
};

/// The next step after a lookup in the shared tier.
pub(crate) enum TierDecision<V> {
    /// Serve this value.
    Serve(Loaded<V>),
    /// Serve this value, and load it anew on this node.
    ServeAndRefresh(Loaded<V>, Box<dyn Lease>),
    /// Load on this node.
    Load(LoadGrant<V>),
    /// The load of another node failed.
    Failed(Error),
}

/// The right to load a key on this node.
pub(crate) struct LoadGrant<V> {
    /// `None`: the tier is unavailable, and the value is not stored there.
    pub(crate) lease: Option<Box<dyn Lease>>,
    /// Served if the load fails.
    pub(crate) stale: Option<Loaded<V>>,
}

impl<V> LoadGrant<V> {
    /// The right without a tier.
    pub(crate) const LOCAL: Self = Self { lease: None, stale: None };
}

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// True if this node stores values in memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.has_memory)
    }

    /// Looks a key up in the shared tier, and waits if another node loads it. `is_alone`: another load of this node may have the lock, and this
    /// one does not wait for it.
    pub(crate) async fn look_up_in_tier(
        &self,
        shared: &SharedTier<K, V>,
        key: &K,
        mode: CacheMode,
        client: Option<NonZeroU64>,
        is_alone: bool,
        deadline: Time,
    ) -> TierDecision<V> {
        let Ok(_permit) = shared.lookups.try_acquire() else {
            self.counters.shared_failures.increment();
            return TierDecision::Load(LoadGrant::LOCAL);
        };
        let (name, started_at) = (shared.keys.encode(key), self.runtime.now());
        let younger_than = match mode {
            CacheMode::Default => self.younger_than(key),
            // Every value in the tier was stored before this request.
            CacheMode::Reload => Some(Duration::ZERO),
        };
        let wants_lock = !is_alone && self.coalesces() && self.may_load(key, client);
        let mut query = TierQuery { younger_than, waited: None, wants_lock };
        // Memory has served the stale value already, or the request rejects it: it waits for the node that refreshes
        // it.
        let is_refresh = mode == CacheMode::Reload || self.has_memory() && self.is_stored(key);
        let mut grant = LoadGrant::LOCAL;
        loop {
            let (since, requested_at) = (self.store.invalidation_seq(), self.runtime.coarse_now());
            let mark = self.store.begin_load(key);
            let Ok(reply) = shared.tier.lookup(&name, query).await else {
                self.counters.shared_failures.increment();
                return TierDecision::Load(grant);
            };
            let via = if query.waited.is_some() { LoadedFrom::OtherNode } else { LoadedFrom::Shared };
            let (stale, right) = match reply {
                TierReply::Found(stored) => {
                    let is_awaited = matches!(via, LoadedFrom::OtherNode);
                    let was_fresh =
                        |loaded: &Loaded<V>| loaded.life.is_some_and(|life| requested_at < life.expires);
                    match self.decode_tier_value(shared, key, &stored, (since, mark), via) {
                        Some(loaded) if is_awaited || was_fresh(&loaded) => {
                            return self.serve_found(shared, &name, loaded, &stored).await;
                        }
                        // The value cannot be decoded, or is stale by the strategy of this node. Look for another.
                        taken => {
                            let stale = taken.map(|loaded| Loaded { via: LoadedFrom::Stale, ..loaded });
                            grant.stale = grant.stale.or(stale);
                        }
                    }
                    if query.younger_than == Some(Duration::ZERO) {
                        return TierDecision::Load(grant);
                    }
                    query = TierQuery { younger_than: Some(Duration::ZERO), waited: None, ..query };
                    continue;
                }
                TierReply::NotFound { stale, right } => (stale, right),
            };
            // A value read before a wait may have been invalidated since.
            grant.stale = stale.and_then(|stored| {
                self.decode_tier_value(shared, key, &stored, (since, mark), LoadedFrom::Stale)
            });
            let may_serve = |stale: &Loaded<V>| self.is_revalidatable(stale) && !is_refresh;
            match right {
                LoadRight::Granted(lease) => {
                    self.counters.shared_misses.increment();
                    return match grant.stale {
                        Some(stale) if may_serve(&stale) => TierDecision::ServeAndRefresh(stale, lease),
                        stale => TierDecision::Load(LoadGrant { lease: Some(lease), stale }),
                    };
                }
                LoadRight::HeldElsewhere { lease_remaining, outcome } => {
                    if let Some(stale) = grant.stale.take_if(|stale| may_serve(stale)) {
                        return TierDecision::Serve(stale);
                    }
                    self.counters.shared_waits.increment();
                    let now = self.runtime.now();
                    if now >= deadline {
                        return self.fall_back(grant, self.deadline_error());
                    }
                    match before(&self.runtime, (now + lease_remaining).min(deadline), outcome).await {
                        Some(RemoteLoad::Failed(reason)) => {
                            return self.fall_back(grant, Error::OtherNode { reason: reason.into() });
                        }
                        Some(RemoteLoad::NotShared) => return TierDecision::Load(grant),
                        Some(RemoteLoad::Stored | RemoteLoad::Released) | None => {}
                    }
                    query.waited = Some(self.runtime.now() - started_at);
                }
            }
        }
    }

    /// Ends a wait without a value: with a stale one if there is one.
    fn fall_back(&self, grant: LoadGrant<V>, error: Error) -> TierDecision<V> {
        match grant.stale.and_then(|stale| self.as_fallback(stale, &error)) {
            Some(stale) => TierDecision::Serve(stale),
            None => TierDecision::Failed(error),
        }
    }

    /// Serves a value found in the tier. Without memory this node also decides here whether to refresh it.
    async fn serve_found(
        &self,
        shared: &SharedTier<K, V>,
        name: &Bytes,
        loaded: Loaded<V>,
        stored: &TierValue,
    ) -> TierDecision<V> {
        self.counters.shared_hits.increment();
        let now = self.runtime.coarse_now();
        let is_chosen = !shared.has_memory
            && loaded.life.as_ref().is_some_and(|life| {
                let state =
                    self.lifetimes.state(life, now, || (self.runtime.now(), self.random.exponential()));
                state == FreshnessState::Refresh
            });
        if !is_chosen {
            return TierDecision::Serve(loaded);
        }
        let query =
            TierQuery { younger_than: Some(stored.age / 2), waited: None, wants_lock: self.coalesces() };
        match shared.tier.lookup(name, query).await {
            Ok(TierReply::NotFound { right: LoadRight::Granted(lease), .. }) => {
                self.counters.refreshes(self.strategy.refresh).increment();
                if self.coalesces() {
                    TierDecision::ServeAndRefresh(loaded, lease)
                } else {
                    // As in the paper: the request that was chosen to refresh waits for the load.
                    TierDecision::Load(LoadGrant { lease: Some(lease), stale: Some(loaded) })
                }
            }
            // Another node refreshes it, or has done so.
            _ => TierDecision::Serve(loaded),
        }
    }

    /// Converts a value of the tier; `None`: it cannot be decoded, or is gone.
    fn decode_tier_value(
        &self,
        shared: &SharedTier<K, V>,
        key: &K,
        stored: &TierValue,
        (since, mark): (InvalidationSeq, LoadMark<K, V>),
        via: LoadedFrom,
    ) -> Option<Loaded<V>> {
        let now = self.runtime.coarse_now();
        let value = shared.values.decode(stored.body.clone())?;
        let &TierValue { age, load_duration, fresh_for, is_negative, .. } = stored;
        let times = RemoteTimes { age, load_duration, fresh_for, is_negative };
        let life = self.lifetimes.resume(self.own_lifespan(&value), now, times);
        // A value that was waited for answers even if it is gone: it was loaded after the request started.
        let is_gone = now >= life.gone();
        if is_gone && !matches!(via, LoadedFrom::OtherNode) {
            return None;
        }
        let loaded = Loaded {
            value,
            life: Some(life),
            at: now.back(stored.age),
            took: stored.load_duration,
            since,
            via,
        };
        if self.has_memory() && !is_gone {
            self.store_locally(key, &loaded, mark, now);
        }
        Some(loaded)
    }

    /// Stores a value of the tier in memory, unless memory has a newer one.
    fn store_locally(&self, key: &K, loaded: &Loaded<V>, mark: LoadMark<K, V>, now: Time) {
        let here = match self.store.look_again(key, now) {
            LookupResult::Fresh { loaded, .. } => Some(loaded),
            LookupResult::Aged(aged) => Some(aged.life.loaded),
            LookupResult::Missing { .. } => None,
        };
        if here.is_some_and(|here| here >= loaded.at) {
            return;
        }
        if let Some(life) = loaded.life
            && let Ok(permit) = self.store.reserve_for_store(key, &loaded.value, None)
        {
            let (key, value, since, took) = (key.clone(), loaded.value.clone(), loaded.since, loaded.took);
            let _is_stored =
                self.store.insert(NewValue { key, value, since, took }, &life, mark, permit, now);
        }
    }

    fn is_stored(&self, key: &K) -> bool {
        matches!(
            self.store.look_again(key, self.runtime.coarse_now()),
            LookupResult::Aged(_) | LookupResult::Fresh { .. }
        )
    }

    /// The age below which a value of the tier replaces the one in memory: half of that one's age. No clock error
    /// makes the same value look so young.
    fn younger_than(&self, key: &K) -> Option<Duration> {
        let now = self.runtime.coarse_now();
        match self.store.look_again(key, now) {
            LookupResult::Aged(aged) if now < aged.life.expires => Some((now - aged.life.loaded) / 2),
            _ => None,
        }
    }

    /// True if a stale value may be served while it is refreshed.
    fn is_revalidatable(&self, stale: &Loaded<V>) -> bool {
        let now = self.runtime.coarse_now();
        let state = |life| self.lifetimes.state(life, now, || (now, 0.0));
        stale
            .life
            .as_ref()
            .is_some_and(|life| matches!(state(life), FreshnessState::Stale | FreshnessState::Fresh))
    }

    /// Releases the lock, stores the loaded value in the tier and wakes the waiting nodes.
    pub(crate) async fn complete_lease(
        &self,
        lease: Box<dyn Lease>,
        key: &K,
        result: Result<&Loaded<V>, &Error>,
    ) {
        let Some(shared) = &self.shared else { return };
        let result = match result {
            Ok(loaded) => {
                self.counters.shared_stores.increment();
                Ok(self.to_tier_value(shared, key, loaded))
            }
            // The load did not start here. It may on another node.
            Err(Error::BreakerOpen | Error::Overloaded { .. } | Error::QueueTimeout { .. }) => return,
            Err(error) => Err(error.to_string()),
        };
        lease.complete(result).await;
    }

    /// A stale value that replaces a failed load; `None`: it is gone.
    pub(crate) fn as_fallback(&self, stale: Loaded<V>, error: &Error) -> Option<Loaded<V>> {
        let now = self.runtime.coarse_now();
        let life = stale.life.filter(|life| now < life.gone())?;
        let via = if now < life.expires { LoadedFrom::Shared } else { LoadedFrom::Fallback(error.clone()) };
        Some(Loaded { via, ..stale })
    }

    /// Converts a value for the tier.
    fn to_tier_value(&self, shared: &SharedTier<K, V>, key: &K, loaded: &Loaded<V>) -> TierValue {
        let fresh_for = match &loaded.life {
            Some(life) if life.expires == Time::NEVER => None,
            Some(life) => Some(life.expires - life.loaded),
            None => Some(Duration::ZERO),
        };
        let is_negative = loaded.life.is_none_or(|life| life.is_negative());
        TierValue {
            body: shared.values.encode(&loaded.value),
            age: self.runtime.now() - loaded.at,
            load_duration: loaded.took,
            fresh_for,
            stale_for: loaded.life.map(|life| life.stale_for()).unwrap_or_default(),
            is_negative,
            tags: self.store.tag_names(key, &loaded.value),
        }
    }

    /// Publishes an invalidation to the other nodes.
    pub(crate) fn publish_invalidation(
        &self,
        what: impl FnOnce(&SharedTier<K, V>) -> InvalidationTarget,
        how: Invalidation,
    ) {
        if let Some(shared) = &self.shared {
            shared.tier.publish(TierEvent::Invalidated(what(shared), how));
        }
    }

    /// Publishes a value that was inserted without a load.
    pub(crate) fn publish_write(&self, key: &K, loaded: &Loaded<V>) {
        if let Some(shared) = &self.shared {
            let name = shared.keys.encode(key);
            shared.tier.publish(match loaded.life {
                Some(_) => TierEvent::Written(name, self.to_tier_value(shared, key, loaded)),
                None => TierEvent::Invalidated(InvalidationTarget::Key(name), Invalidation::Hard),
            });
        }
    }

    /// Applies the events of other nodes from now on, until the cache is dropped.
    pub(crate) fn subscribe_to_tier(self: &Arc<Self>) {
        let Some(shared) = &self.shared else { return };
        let engine = Arc::downgrade(self);
        shared.tier.subscribe(Box::new(move |event| {
            if let Some(engine) = engine.upgrade() {
                engine.apply_event(event);
            }
        }));
    }

    /// Applies an event of another node.
    fn apply_event(&self, event: TierEvent) {
        let Some(shared) = &self.shared else { return };
        match event {
            TierEvent::Invalidated(InvalidationTarget::Key(name), how) => {
                if let Some(key) = shared.keys.decode(name) {
                    self.invalidate(&key, how);
                }
            }
            TierEvent::Written(name, _) => {
                if let Some(key) = shared.keys.decode(name) {
                    self.invalidate(&key, Invalidation::Hard);
                }
            }
            TierEvent::Invalidated(InvalidationTarget::Tag(tag), how) => drop(self.invalidate_tag(&tag, how)),
            TierEvent::Invalidated(InvalidationTarget::All, how) => drop(self.invalidate_all(how)),
        }
    }
}
