//! `[cache]` of an experiment: a strategy and its shared tier.

use stockade_cache::{
    Strategy,
    spec::{CacheTable, Span, TomlError},
};

use crate::engine::{self, RunTierUrl, TierSettings};

pub(super) type CacheTables = CacheTable<RunTierUrl>;

pub(super) fn strategy(table: &CacheTables, at: Span) -> Result<Strategy, TomlError> {
    let strategy = table.strategy();
    let checked = strategy.and_then(|strategy| engine::cache(strategy.clone()).check().map(|()| strategy));
    checked.map_err(|error| TomlError::new(error.to_string(), at))
}

/// The shared tier and its place in the file.
pub(super) fn shared(table: &CacheTables) -> Result<Option<(TierSettings, Span)>, TomlError> {
    let has_memory = table.memory.as_ref().is_none_or(|memory| *memory.get_ref());
    match (&table.shared, &table.memory) {
        (None, Some(memory)) if !has_memory => {
            let message = "without memory there has to be a shared tier: write shared = \"redis:\"";
            Err(TomlError::new(message, Some(memory.span())))
        }
        (None, _) => Ok(None),
        (Some(url), _) => {
            let tier = TierSettings { url: url.get_ref().0.clone(), has_memory };
            Ok(Some((tier, Some(url.span()))))
        }
    }
}

#[cfg(test)]
mod tests;
