//! The cache of the published Node test: probabilistic early refresh on Redis, with the test's unit bug.
//!
//! The test reads a key and its TTL from Redis in one step and decides whether to refresh early
//! (Vattani, Chierichetti, Lowenstein, VLDB 2015): `now - delta * beta * ln(rand) >= expiry`. Its `now`
//! and `delta` are milliseconds, and its expiry is `now + ttl` with a ttl in *seconds*. Everything
//! else is as in the test: each request loads inline, no request waits for another one's load, and delta, in
//! whole milliseconds, is stored with the value. In virtual time a table in memory replaces Redis.

mod table;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::RngExt;
use stockade_cache::{Answer, Reason, Stats};
use stockade_model::{
    outcome::Outcome,
    seed::{Rng, Seed},
    time::{Runtime, Time},
};
use stockade_source::{StagedSource, VersionedDocument};
use tokio::sync::oneshot;

use super::fetch::fetch;

pub(super) use table::{Cached, NodeJsResult, NodeJsTable};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeJsTest {
    /// The TTL in Redis.
    pub ttl: Duration,
    /// The eagerness of refreshes; 1 in the paper.
    pub beta: f64,
    /// The unit in which the TTL is added.
    pub unit: TtlUnit,
}

/// The unit in which the Node test adds a TTL to milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlUnit {
    /// `xfetch_unit_bug`: seconds, as they come from Redis.
    Seconds,
    /// `xfetch_unit_fixed`: milliseconds.
    Milliseconds,
}

impl NodeJsTest {
    /// True if a value with this TTL in whole seconds is refreshed now. A `draw` of 0 always refreshes, as
    /// `Math.log(0)` does.
    fn refreshes(&self, ttl_secs: u64, delta_ms: u64, draw: f64) -> bool {
        let ttl = match self.unit {
            TtlUnit::Seconds => ttl_secs,
            TtlUnit::Milliseconds => ttl_secs * 1_000,
        };
        // `now` cancels out.
        -(delta_ms as f64) * self.beta * draw.ln() >= ttl as f64
    }
}

/// A time as `Date.now()` returns it.
fn date_now(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// The cache of the published Node test under load.
pub(super) struct NodeJsCache<R> {
    test: NodeJsTest,
    source: Arc<StagedSource<R>>,
    time: R,
    table: NodeJsTable,
    state: Mutex<NodeJsState>,
}

struct NodeJsState {
    /// Keys that were stored and not deleted.
    keys: BTreeSet<Arc<str>>,
    /// Keys whose load has started since they were last stored.
    refilling: BTreeSet<Arc<str>>,
    draws: Rng,
    /// Its counters; those that it lacks stay 0.
    stats: Stats,
}

impl<R: Runtime> NodeJsCache<R> {
    pub(super) fn new(
        test: NodeJsTest,
        source: Arc<StagedSource<R>>,
        time: R,
        seed: Seed,
        table: NodeJsTable,
    ) -> Self {
        let state = NodeJsState {
            keys: BTreeSet::new(),
            refilling: BTreeSet::new(),
            draws: seed.stream("early refresh"),
            stats: Stats::default(),
        };
        Self { test, source, time, table, state: Mutex::new(state) }
    }

    pub(super) async fn request(
        self: &Arc<Self>,
        key: &Arc<str>,
    ) -> Result<Answer<VersionedDocument>, Box<dyn std::error::Error + Send + Sync>> {
        if let Some(value) = self.get_fresh(key).await? {
            return Ok(self.answer(value, Outcome::Hit, Reason::Fresh));
        }
        // A load continues after its client has given up.
        let (answer, answered) = oneshot::channel::<NodeJsResult<VersionedDocument>>();
        let (this, id) = (Arc::clone(self), Arc::clone(key));
        self.time.spawn(async move {
            let _ = answer.send(this.load(id).await);
        });
        let value = answered.await.map_err(|_| "the load was lost: its task panicked")??;
        Ok(self.answer(value, Outcome::Miss, Reason::Expired))
    }

    fn answer(
        &self,
        value: VersionedDocument,
        outcome: Outcome,
        reason: Reason,
    ) -> Answer<VersionedDocument> {
        Answer { age: self.time.now() - value.at, value, outcome, reason }
    }

    /// The cached document; `None`: the caller must load it, which is recorded.
    async fn get_fresh(&self, key: &Arc<str>) -> NodeJsResult<Option<VersionedDocument>> {
        let cached = self.table.get(key, self.time.now()).await?;
        let mut state = self.state();
        let draw = state.draws.random::<f64>();
        let fresh = cached.filter(|(cached, ttl)| !self.test.refreshes(*ttl, cached.delta_ms, draw));
        if fresh.is_none() && state.refilling.insert(Arc::clone(key)) {
            state.stats.episodes += 1;
        }
        Ok(fresh.map(|(cached, _)| cached.stamped))
    }

    async fn load(&self, id: Arc<str>) -> NodeJsResult<VersionedDocument> {
        let began = date_now(self.time.now());
        let stamped = fetch(Arc::clone(&self.source), Arc::clone(&id)).await?;
        let now = self.time.now();
        let cached = Cached { stamped: stamped.clone(), delta_ms: date_now(now) - began };
        self.table.set(&id, cached, self.test.ttl, now).await?;
        let mut state = self.state();
        state.stats.stores_sync += 1;
        state.refilling.remove(&id);
        state.keys.insert(id);
        Ok(stamped)
    }

    /// DEL. A load in flight stores its document all the same.
    pub(super) async fn delete(&self, key: &Arc<str>) {
        self.state().keys.remove(key);
        // The published test ignores this error, too.
        let _ = self.table.delete(key).await;
    }

    pub(super) fn stats(&self) -> Stats {
        let state = self.state();
        Stats { entries: state.keys.len() as u64, ..state.stats }
    }

    fn state(&self) -> MutexGuard<'_, NodeJsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_bug_refreshes_a_fifth_of_reads() {
        // A 20 ms loader and 30 s left: exp(-30 / 20) of the reads.
        let share = |unit| {
            let test = NodeJsTest { ttl: Duration::from_mins(1), beta: 1.0, unit };
            let mut draws = Seed(1).stream("draws");
            let refreshes = (0..100_000).filter(|_| test.refreshes(30, 20, draws.random::<f64>())).count();
            refreshes as f64 / 100_000.0
        };
        assert!((share(TtlUnit::Seconds) - 0.2231).abs() < 0.005, "{}", share(TtlUnit::Seconds));
        assert!(share(TtlUnit::Milliseconds) < f64::EPSILON);
    }

    #[test]
    fn draw_of_zero_always_refreshes() {
        let test = NodeJsTest { ttl: Duration::from_mins(1), beta: 1.0, unit: TtlUnit::Milliseconds };
        assert!(test.refreshes(u64::MAX / 1_000, 1, 0.0));
    }
}
