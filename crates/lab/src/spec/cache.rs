//! `[cache]` of an experiment: a strategy, and what it shares with other nodes.

use stockade_cache::{
    Strategy,
    spec::{CacheTable, Place, Wrong},
};

use crate::engine::{self, SharedTier, TierUrl};

/// As it is written.
pub(super) type Cache = CacheTable<TierUrl>;

/// The strategy that a table at `at` has.
pub(super) fn strategy(table: &Cache, at: Place) -> Result<Strategy, Wrong> {
    let strategy = table.strategy();
    let checked = strategy.and_then(|strategy| engine::cache(strategy.clone()).check().map(|()| strategy));
    checked.map_err(|error| Wrong::new(error.to_string(), at))
}

/// What it shares with other nodes, and where that stands.
pub(super) fn shared(table: &Cache) -> Result<Option<(SharedTier, Place)>, Wrong> {
    let has_memory = table.memory.as_ref().is_none_or(|memory| *memory.get_ref());
    match (&table.shared, &table.memory) {
        (None, Some(memory)) if !has_memory => {
            let message = "without memory there has to be a shared tier: write shared = \"redis:\"";
            Err(Wrong::new(message, Some(memory.span())))
        }
        (None, _) => Ok(None),
        (Some(url), _) => {
            let tier = SharedTier { url: url.get_ref().0.clone(), has_memory };
            Ok(Some((tier, Some(url.span()))))
        }
    }
}

#[cfg(test)]
mod tests;
