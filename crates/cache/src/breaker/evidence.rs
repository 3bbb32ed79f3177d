//! The keys and clients of failed loads, and whether they are few. Pure.

use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroU64,
};

use stockade_model::time::Time;

use super::circuit::Breaker;

/// The key and the client of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadIdentity {
    /// The hash of the key.
    pub(crate) key: u64,
    /// `None` if the caller has not named it.
    pub(crate) client: Option<NonZeroU64>,
}

/// Counts loads with different keys and, `by_client`, different clients, up to `most`.
///
/// If `n` bad keys and bad clients are to blame for all of these loads, the count is at most `n`. Chosen greedily, it is at least
/// half of the smallest such `n` (a maximal matching and a minimal vertex cover).
fn count_independent(loads: impl Iterator<Item = LoadIdentity>, by_client: bool, most: u32) -> u32 {
    let mut counted: Vec<LoadIdentity> = Vec::new();
    for load in loads {
        if counted.len() == most as usize {
            break;
        }
        let is_shared =
            |other: &LoadIdentity| other.key == load.key || by_client && other.client == load.client;
        if !counted.iter().any(is_shared) {
            counted.push(load);
        }
    }
    u32::try_from(counted.len()).unwrap_or(most)
}

/// The results of the last loads.
#[derive(Debug, Default)]
pub(super) struct ResultWindow {
    ended: VecDeque<WindowResult>,
    failed: u32,
}

#[derive(Debug)]
struct WindowResult {
    identity: LoadIdentity,
    at: Time,
    is_answered: bool,
}

impl ResultWindow {
    /// Adds a result. Keeps the last `min_calls` of the last `period`.
    pub(super) fn push(&mut self, identity: LoadIdentity, now: Time, is_answered: bool, config: &Breaker) {
        let most = config.min_calls as usize;
        while let Some(oldest) = self.ended.front()
            && (self.ended.len() >= most || now - oldest.at >= config.period)
        {
            self.failed -= u32::from(!oldest.is_answered);
            self.ended.pop_front();
        }
        self.failed += u32::from(!is_answered);
        self.ended.push_back(WindowResult { identity, at: now, is_answered });
    }

    /// True if `errors_rate` of the last `min_calls` loads have failed, and not only those of a few keys or clients while
    /// others were answered.
    pub(super) fn is_source_failing(&self, config: &Breaker) -> bool {
        let rate = f64::from(self.failed) / f64::from(config.min_calls);
        if self.ended.len() < config.min_calls as usize || rate < config.errors_rate {
            return false;
        }
        let loads = || self.ended.iter().map(|result| result.identity);
        // A single client may be a proxy for many.
        let by_client = loads().zip(loads().skip(1)).any(|(a, b)| a.client != b.client);
        let wanted = count_independent(loads(), by_client, config.independent_failures());
        count_independent(self.failures(), by_client, wanted) == wanted
    }

    /// The keys and clients of the failures, and the number of independent failures, up to that which opens the breaker.
    pub(super) fn evidence(&self, config: &Breaker) -> (Evidence, u32) {
        let mut evidence = Evidence::default();
        self.failures().for_each(|identity| evidence.add(identity));
        let by_client = !evidence.clients.is_empty();
        (evidence, count_independent(self.failures(), by_client, config.independent_failures()))
    }

    /// True if a load was answered in the last `period`.
    pub(super) fn has_answer(&self, now: Time, config: &Breaker) -> bool {
        self.ended.iter().rev().any(|result| result.is_answered && now - result.at < config.period)
    }

    fn failures(&self) -> impl Iterator<Item = LoadIdentity> {
        self.ended.iter().filter(|result| !result.is_answered).map(|result| result.identity)
    }
}

/// The keys and clients whose loads have failed: at most `min_calls` and the trials.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    keys: BTreeSet<u64>,
    clients: BTreeSet<NonZeroU64>,
}

impl Evidence {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn add(&mut self, identity: LoadIdentity) {
        self.keys.insert(identity.key);
        self.clients.extend(identity.client);
    }

    /// True if a failure of this load would prove nothing new. If a few keys have failed, they are to blame and not their
    /// clients.
    pub(super) fn is_suspect(&self, identity: LoadIdentity, config: &Breaker) -> bool {
        let has_client = || identity.client.is_some_and(|client| self.clients.contains(&client));
        let are_few_keys = self.keys.len() < config.independent_failures() as usize;
        self.keys.contains(&identity.key) || !are_few_keys && has_client()
    }
}
