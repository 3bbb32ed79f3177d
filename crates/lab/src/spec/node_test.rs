//! `[cache]` with a strategy of the Node test: not one of the cache's own, so it has no other axes.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::spec::{
    Place, Wrong,
    written::{Plain, Text},
};
use toml::{Spanned, de::DeValue};

use super::tables::{self, Table};
use crate::engine::{NodeTest, SharedTier, TierUrl, Unit};

const STRATEGIES: [(&str, Unit); 2] =
    [("xfetch_unit_bug", Unit::Seconds), ("xfetch_unit_fixed", Unit::Milliseconds)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    #[expect(dead_code, reason = "it was looked at before")]
    strategy: String,
    ttl: Spanned<Text<Plain>>,
    #[serde(default)]
    beta: Beta,
    shared: Option<Spanned<Text<TierUrl>>>,
}

/// The Node test's cache, as a file has it.
pub(super) struct Taken {
    pub(super) test: NodeTest,
    /// Where its strategy stands.
    pub(super) at: Place,
    /// The Redis that it is in front of, and where that stands.
    pub(super) shared: Option<(SharedTier, Place)>,
}

struct Beta(f64);

impl Default for Beta {
    /// The paper's.
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for Beta {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let beta = f64::deserialize(from)?;
        if !(beta.is_finite() && beta >= 0.0) {
            return Err(D::Error::custom("`beta` is 0 or more: 1 as in the paper, more refreshes earlier"));
        }
        Ok(Self(beta))
    }
}

/// Takes the cache out of a setup if it is the Node test's.
pub(super) fn take(setup: &mut Table<'_>) -> Result<Option<Taken>, Wrong> {
    let Some((unit, at)) = named(setup) else { return Ok(None) };
    let Some(table) = tables::take(setup, "cache")? else { return Ok(None) };
    let NodeTable { ttl, beta: Beta(beta), shared, .. } =
        tables::read(table, at.clone().unwrap_or_default())?;
    let at_ttl = Some(ttl.span());
    let ttl = ttl.into_inner().0.0;
    if ttl < Duration::from_secs(1) {
        return Err(Wrong::new("Redis' TTL is read in whole seconds: write \"1s\" or more", at_ttl));
    }
    let shared = shared.map(|url| {
        let at = Some(url.span());
        (SharedTier { url: url.into_inner().0, has_memory: false }, at)
    });
    Ok(Some(Taken { test: NodeTest { ttl, beta, unit }, at, shared }))
}

fn named(setup: &Table<'_>) -> Option<(Unit, Place)> {
    let (_, cache) = setup.iter().find(|(key, _)| key.get_ref() == "cache")?;
    let DeValue::Table(cache) = cache.get_ref() else { return None };
    let (_, strategy) = cache.iter().find(|(key, _)| key.get_ref() == "strategy")?;
    let (_, unit) = STRATEGIES.into_iter().find(|(name, _)| strategy.get_ref().as_str() == Some(name))?;
    Some((unit, Some(strategy.span())))
}
