//! The cache of the published Node test: probabilistic early refresh on Redis, with its slip.
//!
//! The test reads a key and its TTL from Redis in one step and decides whether to refresh early
//! (Vattani, Chierichetti, Lowenstein, VLDB 2015): `now - delta * beta * ln(rand) >= expiry`. Its `now`
//! and `delta` are milliseconds, and its expiry is `now + ttl` with a ttl in *seconds*. Everything
//! else is kept as it is there: the request loads inline, nobody waits for anybody, and delta, in
//! whole milliseconds, is stored beside the value. In virtual time a table in memory takes the place of Redis.

mod table;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::RngExt;
use stockade_cache::{Answer, Reason};
use stockade_model::{
    outcome::Outcome,
    seed::{Rng, Seed},
    time::{Runtime, Time},
};
use stockade_source::{Staged, Stamped};
use tokio::sync::oneshot;

use super::{Did, target::fetch};
use table::{Asked, Cached};

pub(super) use table::Table;

/// The settings of the Node test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeTest {
    /// How long Redis keeps a value.
    pub ttl: Duration,
    /// How eager it refreshes; 1 in the paper.
    pub beta: f64,
    /// What the ttl is added up as.
    pub unit: Unit,
}

/// What the Node test takes a TTL to be when it adds it to milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `xfetch_unit_bug`: seconds, as they come from Redis.
    Seconds,
    /// `xfetch_unit_fixed`: milliseconds.
    Milliseconds,
}

impl NodeTest {
    /// Whether a value with so much time to live, in whole seconds, is refreshed now. A `draw` of 0
    /// always does, as `Math.log(0)` has it.
    fn refreshes(&self, ttl_secs: u64, delta_ms: u64, draw: f64) -> bool {
        let ttl = match self.unit {
            Unit::Seconds => ttl_secs,
            Unit::Milliseconds => ttl_secs * 1_000,
        };
        // The same `now` stands on both sides.
        -(delta_ms as f64) * self.beta * draw.ln() >= ttl as f64
    }
}

/// A moment as `Date.now()` tells it.
fn date_now(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// The Node test under load.
pub(super) struct Node<R> {
    test: NodeTest,
    source: Arc<Staged<R>>,
    time: R,
    table: Table,
    state: Mutex<State>,
}

struct State {
    /// What was ever stored and not deleted.
    keys: BTreeSet<Arc<str>>,
    /// Keys whose load has begun since they were last stored.
    refilling: BTreeSet<Arc<str>>,
    draws: Rng,
    did: Did,
}

impl<R: Runtime> Node<R> {
    pub(super) fn new(test: NodeTest, source: Arc<Staged<R>>, time: R, seed: Seed, table: Table) -> Self {
        let state = State {
            keys: BTreeSet::new(),
            refilling: BTreeSet::new(),
            draws: seed.stream("early refresh"),
            did: Did::default(),
        };
        Self { test, source, time, table, state: Mutex::new(state) }
    }

    pub(super) async fn ask(
        self: &Arc<Self>,
        key: &Arc<str>,
    ) -> Result<Answer<Stamped>, Box<dyn std::error::Error + Send + Sync>> {
        if let Some(value) = self.get(key).await? {
            return Ok(self.answer(value, Outcome::Hit, Reason::Fresh));
        }
        // A server goes on when its client has gone.
        let (answer, answered) = oneshot::channel::<Asked<Stamped>>();
        let (this, id) = (Arc::clone(self), Arc::clone(key));
        self.time.spawn(async move {
            let _ = answer.send(this.load(id).await);
        });
        let value = answered.await.map_err(|_| "the load was lost: its task panicked")??;
        Ok(self.answer(value, Outcome::Miss, Reason::Expired))
    }

    fn answer(&self, value: Stamped, outcome: Outcome, reason: Reason) -> Answer<Stamped> {
        Answer { age: self.time.now() - value.at, value, outcome, reason }
    }

    /// What is cached; `None` where it is to be loaded, and then that is noted.
    async fn get(&self, key: &Arc<str>) -> Asked<Option<Stamped>> {
        let cached = self.table.get(key, self.time.now()).await?;
        let mut state = self.state();
        let draw = state.draws.random::<f64>();
        let fresh = cached.filter(|(cached, ttl)| !self.test.refreshes(*ttl, cached.delta_ms, draw));
        if fresh.is_none() && state.refilling.insert(Arc::clone(key)) {
            state.did.episodes += 1;
        }
        Ok(fresh.map(|(cached, _)| cached.stamped))
    }

    async fn load(&self, id: Arc<str>) -> Asked<Stamped> {
        let began = date_now(self.time.now());
        let stamped = fetch(Arc::clone(&self.source), Arc::clone(&id)).await?;
        let now = self.time.now();
        let cached = Cached { stamped: stamped.clone(), delta_ms: date_now(now) - began };
        self.table.set(&id, cached, self.test.ttl, now).await?;
        let mut state = self.state();
        state.did.stores_sync += 1;
        state.refilling.remove(&id);
        state.keys.insert(id);
        Ok(stamped)
    }

    /// DEL. A load that is under way stores what it brings all the same.
    pub(super) async fn delete(&self, key: &Arc<str>) {
        self.state().keys.remove(key);
        // Nobody hears of it there, either.
        let _ = self.table.delete(key).await;
    }

    pub(super) fn did(&self) -> Did {
        self.state().did
    }

    pub(super) fn entries(&self) -> usize {
        self.state().keys.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_slip_a_fifth_of_reads_refreshes_and_without_it_none() {
        // A 20 ms loader and 30 s left: exp(-30 / 20) of the reads.
        let share = |unit| {
            let test = NodeTest { ttl: Duration::from_mins(1), beta: 1.0, unit };
            let mut draws = Seed(1).stream("draws");
            let refreshes = (0..100_000).filter(|_| test.refreshes(30, 20, draws.random::<f64>())).count();
            refreshes as f64 / 100_000.0
        };
        assert!((share(Unit::Seconds) - 0.2231).abs() < 0.005, "{}", share(Unit::Seconds));
        assert!(share(Unit::Milliseconds) < f64::EPSILON);
    }

    #[test]
    fn a_draw_of_zero_always_refreshes() {
        let test = NodeTest { ttl: Duration::from_mins(1), beta: 1.0, unit: Unit::Milliseconds };
        assert!(test.refreshes(u64::MAX / 1_000, 1, 0.0));
    }
}
