//! The engine's side of a shared tier: asked before a load begins, told what it brought.

use std::{hash::Hash, sync::Arc, time::Duration};

use bytes::Bytes;
use stockade_model::time::{Runtime, Time, before};
use tokio::sync::Semaphore;

use crate::{
    answer::Error,
    cache::{Inner, Wish},
    invalidations::Moment,
    life::State,
    load::{Loaded, Via},
    shard::{Found, Invalidation},
    store::Publication,
    strategy::Fetch,
    tier::{Asked, Codec, Ended, Kept, Lease, Note, Settled, Tier, Turn, Want, What},
};

/// A [`Tier`] that a cache shares with others of its kind, and how its keys and values become bytes.
///
/// Loads of one key are coalesced over all nodes, where the strategy coalesces at all: one of them has the
/// key's lock, the others wait for its answer. What is invalidated on one node is on all.
pub struct Shared<K, V> {
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) keys: Box<dyn Codec<K>>,
    pub(crate) values: Box<dyn Codec<V>>,
    pub(crate) is_alone: bool,
    turns: Semaphore,
}

/// How many keys a node asks the tier for at once. The others are loaded without it.
const ASKED_AT_ONCE: usize = 10_000;

impl<K, V> Shared<K, V> {
    /// Under the memory of this node, which answers what it can.
    pub fn under(tier: Arc<dyn Tier>, keys: impl Codec<K>, values: impl Codec<V>) -> Self {
        let (keys, values, turns) = (Box::new(keys), Box::new(values), Semaphore::new(ASKED_AT_ONCE));
        Self { tier, keys, values, is_alone: false, turns }
    }

    /// In place of the memory of this node: every lookup asks the tier, once for all who ask at the same time.
    pub fn alone(tier: Arc<dyn Tier>, keys: impl Codec<K>, values: impl Codec<V>) -> Self {
        Self { is_alone: true, ..Self::under(tier, keys, values) }
    }
}

/// What the shared tier had to say before a load.
pub(crate) enum Consulted<V> {
    /// An answer.
    Answered(Loaded<V>),
    /// An answer, and this node is to load it anew.
    Refresh(Loaded<V>, Box<dyn Lease>),
    /// This node is to load.
    Load(Turned<V>),
    /// The load failed on another node.
    Failed(Error),
}

/// A load whose turn it is.
pub(crate) struct Turned<V> {
    /// None: the tier is not there, and nothing is to be stored in it.
    pub(crate) lease: Option<Box<dyn Lease>>,
    /// What may serve if the load fails.
    pub(crate) stale: Option<Loaded<V>>,
}

impl<V> Turned<V> {
    /// There is no tier.
    pub(crate) const LOCAL: Self = Self { lease: None, stale: None };
}

impl<K, V, R> Inner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Whether the memory of this node stores anything.
    pub(crate) fn has_memory(&self) -> bool {
        !self.shared.as_ref().is_some_and(|shared| shared.is_alone)
    }

    /// Asks the shared tier for a key, and waits for the node that loads it.
    pub(crate) async fn consult(
        &self,
        shared: &Shared<K, V>,
        key: &K,
        wish: Wish,
        deadline: Time,
    ) -> Consulted<V> {
        let Ok(_turn) = shared.turns.try_acquire() else {
            self.counters.shared_failures.increment();
            return Consulted::Load(Turned::LOCAL);
        };
        let (name, came) = (shared.keys.encode(key), self.runtime.now());
        let younger_than = match wish {
            Wish::Stored => self.younger_than(key),
            // What is there was stored before.
            Wish::Anew => Some(Duration::ZERO),
        };
        let mut want = Want { younger_than, waited: None, locks: self.may_lead(key) };
        // It has been served from here, or is not wanted: who refreshes it waits for whoever does.
        let is_refresh = wish == Wish::Anew || self.has_memory() && self.is_stored(key);
        let mut turned = Turned::LOCAL;
        loop {
            let (since, asked_at) = (self.store.moment(), self.runtime.coarse_now());
            let Ok(asked) = shared.tier.ask(&name, want).await else {
                self.counters.shared_failures.increment();
                return Consulted::Load(turned);
            };
            let via = if want.waited.is_some() { Via::Elsewhere } else { Via::Shared };
            let (instead, turn) = match asked {
                Asked::Found(kept) => {
                    let is_awaited = matches!(via, Via::Elsewhere);
                    let was_fresh =
                        |loaded: &Loaded<V>| loaded.life.is_some_and(|life| asked_at < life.expires);
                    match self.take_over(shared, key, &kept, since, via) {
                        Some(loaded) if is_awaited || was_fresh(&loaded) => {
                            return self.found(shared, &name, loaded, &kept).await;
                        }
                        // Nobody here can read it, or by the strategy of this node it is stale: it is to be
                        // replaced.
                        taken => {
                            let stale = taken.map(|loaded| Loaded { via: Via::Stale, ..loaded });
                            turned.stale = turned.stale.or(stale);
                        }
                    }
                    if want.younger_than == Some(Duration::ZERO) {
                        return Consulted::Load(turned);
                    }
                    want = Want { younger_than: Some(Duration::ZERO), waited: None, ..want };
                    continue;
                }
                Asked::Wanting { instead, turn } => (instead, turn),
            };
            // What was there before a wait may have been invalidated meanwhile.
            turned.stale = instead.and_then(|kept| self.take_over(shared, key, &kept, since, Via::Stale));
            let may_serve = |stale: &Loaded<V>| self.is_revalidatable(stale) && !is_refresh;
            match turn {
                Turn::Ours(lease) => {
                    self.counters.shared_misses.increment();
                    return match turned.stale {
                        Some(stale) if may_serve(&stale) => Consulted::Refresh(stale, lease),
                        stale => Consulted::Load(Turned { lease: Some(lease), stale }),
                    };
                }
                Turn::Theirs { lease_left, settled } => {
                    if let Some(stale) = turned.stale.take_if(|stale| may_serve(stale)) {
                        return Consulted::Answered(stale);
                    }
                    self.counters.shared_waits.increment();
                    let now = self.runtime.now();
                    if now >= deadline {
                        return self.without(turned, self.overdue());
                    }
                    match before(&self.runtime, (now + lease_left).min(deadline), settled).await {
                        Some(Settled::Failed(reason)) => {
                            return self.without(turned, Error::Elsewhere { reason: reason.into() });
                        }
                        Some(Settled::Unshared) => return Consulted::Load(turned),
                        Some(Settled::Stored | Settled::Freed) | None => {}
                    }
                    want.waited = Some(self.runtime.now() - came);
                }
            }
        }
    }

    /// No node brought an answer: what is stale does, if there is something.
    fn without(&self, turned: Turned<V>, error: Error) -> Consulted<V> {
        match turned.stale.and_then(|stale| self.instead(stale, &error)) {
            Some(stale) => Consulted::Answered(stale),
            None => Consulted::Failed(error),
        }
    }

    /// What is to be done with something that will do: with memory that is decided when it is looked up there.
    async fn found(
        &self,
        shared: &Shared<K, V>,
        name: &Bytes,
        loaded: Loaded<V>,
        kept: &Kept,
    ) -> Consulted<V> {
        self.counters.shared_hits.increment();
        let now = self.runtime.coarse_now();
        let is_chosen = shared.is_alone
            && loaded.life.as_ref().is_some_and(|life| {
                let state = self.lifetimes.state(life, now, || (self.runtime.now(), self.chance.nats()));
                state == State::Refresh
            });
        if !is_chosen {
            return Consulted::Answered(loaded);
        }
        let want = Want { younger_than: Some(kept.age / 2), waited: None, locks: self.coalesces() };
        match shared.tier.ask(name, want).await {
            Ok(Asked::Wanting { turn: Turn::Ours(lease), .. }) => {
                self.counters.refreshes(self.strategy.refresh).increment();
                if self.coalesces() {
                    Consulted::Refresh(loaded, lease)
                } else {
                    // As in the paper: who volunteers waits.
                    Consulted::Load(Turned { lease: Some(lease), stale: Some(loaded) })
                }
            }
            // Somebody else refreshes it, or has.
            _ => Consulted::Answered(loaded),
        }
    }

    /// A value of the tier as if it had been loaded here; `None`: it cannot be read, or is of no use to
    /// anybody any more.
    fn take_over(
        &self,
        shared: &Shared<K, V>,
        key: &K,
        kept: &Kept,
        since: Moment,
        via: Via,
    ) -> Option<Loaded<V>> {
        let now = self.runtime.coarse_now();
        let value = shared.values.decode(kept.body.clone())?;
        let life = self.lifetimes.resume(self.lifespan(&value), now, kept);
        // Who waited for it is given it all the same: it was loaded since they came.
        let is_gone = now >= life.gone();
        if is_gone && !matches!(via, Via::Elsewhere) {
            return None;
        }
        let loaded = Loaded { value, life: Some(life), at: now.back(kept.age), took: kept.took, since, via };
        if self.has_memory() && !is_gone {
            self.remember(key, &loaded, now);
        }
        Some(loaded)
    }

    /// Stores what came from the tier, unless there is something newer here.
    fn remember(&self, key: &K, loaded: &Loaded<V>, now: Time) {
        let here = match self.store.look_again(key, now) {
            Found::Fresh { loaded, .. } => Some(loaded),
            Found::Aged(aged) => Some(aged.life.loaded),
            Found::Missing { .. } => None,
        };
        if here.is_some_and(|here| here >= loaded.at) {
            return;
        }
        if let Ok(ticket) = self.store.ticket(key, &loaded.value, None) {
            let (key, value, since) = (key.clone(), loaded.value.clone(), loaded.since);
            let kept = loaded.life.map(|life| (life, ticket));
            self.store.publish(Publication { key, value, since, kept }, now);
        }
    }

    fn is_stored(&self, key: &K) -> bool {
        matches!(self.store.look_again(key, self.runtime.coarse_now()), Found::Aged(_) | Found::Fresh { .. })
    }

    /// How young an answer has to be that is better than the one here: less than half as old, which no error
    /// of a clock makes the very same one.
    fn younger_than(&self, key: &K) -> Option<Duration> {
        let now = self.runtime.coarse_now();
        match self.store.look_again(key, now) {
            Found::Aged(aged) if now < aged.life.expires => Some((now - aged.life.loaded) / 2),
            _ => None,
        }
    }

    /// Whether something may be served while it is refreshed.
    fn is_revalidatable(&self, stale: &Loaded<V>) -> bool {
        let now = self.runtime.coarse_now();
        let state = |life| self.lifetimes.state(life, now, || (now, 0.0));
        stale.life.as_ref().is_some_and(|life| matches!(state(life), State::Stale | State::Fresh))
    }

    /// Whether this node would load, if it had the lock.
    fn may_lead(&self, key: &K) -> bool {
        let breaker = self.breakers.as_ref().map(|breakers| breakers.of(key));
        self.coalesces() && breaker.is_none_or(|breaker| breaker.may_admit(self.runtime.now()))
    }

    fn coalesces(&self) -> bool {
        self.strategy.fetch != Fetch::Independent
    }

    /// Frees a key on all nodes, and stores what was loaded.
    pub(crate) async fn settle(&self, lease: Box<dyn Lease>, key: &K, ended: Result<&Loaded<V>, &Error>) {
        let Some(shared) = &self.shared else { return };
        let ended = match ended {
            Ok(loaded) => Ended::Loaded(self.kept(shared, key, loaded)),
            // It never began, and may on another node.
            Err(Error::BreakerOpen | Error::Overloaded { .. } | Error::QueueTimeout { .. }) => return,
            Err(error) => Ended::Failed(error.to_string()),
        };
        lease.settle(ended).await;
    }

    /// What is stale, in place of a load that failed; `None`: it is gone by now.
    pub(crate) fn instead(&self, stale: Loaded<V>, error: &Error) -> Option<Loaded<V>> {
        let now = self.runtime.coarse_now();
        let life = stale.life.filter(|life| now < life.gone())?;
        let via = if now < life.expires { Via::Shared } else { Via::Fallback(error.clone()) };
        Some(Loaded { via, ..stale })
    }

    /// A value as the tier is to keep it.
    fn kept(&self, shared: &Shared<K, V>, key: &K, loaded: &Loaded<V>) -> Kept {
        let fresh_for = match &loaded.life {
            Some(life) if life.expires == Time::NEVER => None,
            Some(life) => Some(life.expires - life.loaded),
            None => Some(Duration::ZERO),
        };
        let is_negative = loaded.life.is_none_or(|life| life.is_negative());
        Kept {
            body: shared.values.encode(&loaded.value),
            age: self.runtime.now() - loaded.at,
            took: loaded.took,
            fresh_for,
            stale_for: loaded.life.map(|life| life.stale_for()).unwrap_or_default(),
            is_negative,
            tags: self.store.tag_names(key, &loaded.value),
        }
    }

    /// Tells the other nodes that something is outdated.
    pub(crate) fn tell_invalidated(&self, what: impl FnOnce(&Shared<K, V>) -> What, how: Invalidation) {
        if let Some(shared) = &self.shared {
            shared.tier.tell(Note::Invalidated(what(shared), how));
        }
    }

    /// Tells the other nodes of a value that no load brought.
    pub(crate) fn tell_written(&self, key: &K, loaded: &Loaded<V>) {
        if let Some(shared) = &self.shared {
            let name = shared.keys.encode(key);
            shared.tier.tell(match loaded.life {
                Some(_) => Note::Written(name, self.kept(shared, key, loaded)),
                None => Note::Invalidated(What::Key(name), Invalidation::Hard),
            });
        }
    }

    /// Does what another node says.
    pub(crate) fn heed(&self, note: Note) {
        let Some(shared) = &self.shared else { return };
        match note {
            Note::Invalidated(What::Key(name), how) => {
                if let Some(key) = shared.keys.decode(name) {
                    self.invalidate(&key, how);
                }
            }
            Note::Written(name, _) => {
                if let Some(key) = shared.keys.decode(name) {
                    self.invalidate(&key, Invalidation::Hard);
                }
            }
            Note::Invalidated(What::Tag(tag), how) => drop(self.invalidate_tag(&tag, how)),
            Note::Invalidated(What::Everything, how) => drop(self.clear(how)),
        }
    }
}
