//! `[cache]` with a strategy of the published Node test, which supports few of the cache's settings.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::spec::{
    Span, TomlError,
    value::{DurationValue, TextValue},
};
use toml::{Spanned, de::DeValue};

#[cfg(feature = "schema")]
use super::schema::StrategyName;
use super::tables::{self, TomlTable};
use crate::engine::{NodeJsTest, RunTierUrl, TierSettings, TtlUnit};

pub(super) const STRATEGIES: [(&str, TtlUnit); 2] =
    [("xfetch_unit_bug", TtlUnit::Seconds), ("xfetch_unit_fixed", TtlUnit::Milliseconds)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct NodeJsTable {
    #[expect(dead_code, reason = "read by `named`")]
    #[cfg_attr(feature = "schema", schemars(with = "StrategyName"))]
    strategy: String,
    #[cfg_attr(feature = "schema", schemars(with = "TextValue<DurationValue>"))]
    ttl: Spanned<TextValue<DurationValue>>,
    /// Of the Node test's strategies: 1 is the paper's optimum; a higher value refreshes earlier. Default: 1.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "f64", range(min = 0)))]
    beta: Beta,
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<RunTierUrl>>"))]
    shared: Option<Spanned<TextValue<RunTierUrl>>>,
}

pub(super) struct NodeJsTestCache {
    pub(super) test: NodeJsTest,
    /// The place of its strategy.
    pub(super) at: Span,
    /// Its Redis and the place of that setting.
    pub(super) shared: Option<(TierSettings, Span)>,
}

struct Beta(f64);

impl Default for Beta {
    /// As in the paper.
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

/// Takes the cache out of a setup if it is that of the Node test.
pub(super) fn take(setup: &mut TomlTable<'_>) -> Result<Option<NodeJsTestCache>, TomlError> {
    let Some((unit, at)) = named(setup) else { return Ok(None) };
    let Some(table) = tables::take(setup, "cache")? else { return Ok(None) };
    let NodeJsTable { ttl, beta: Beta(beta), shared, .. } =
        tables::read(table, at.clone().unwrap_or_default())?;
    let at_ttl = Some(ttl.span());
    let ttl = ttl.into_inner().0.0;
    if ttl < Duration::from_secs(1) {
        return Err(TomlError::new("Redis' TTL is read in whole seconds: write \"1s\" or more", at_ttl));
    }
    let shared = shared.map(|url| {
        let at = Some(url.span());
        (TierSettings { url: url.into_inner().0, has_memory: false }, at)
    });
    Ok(Some(NodeJsTestCache { test: NodeJsTest { ttl, beta, unit }, at, shared }))
}

fn named(setup: &TomlTable<'_>) -> Option<(TtlUnit, Span)> {
    let (_, cache) = setup.iter().find(|(key, _)| key.get_ref() == "cache")?;
    let DeValue::Table(cache) = cache.get_ref() else { return None };
    let (_, strategy) = cache.iter().find(|(key, _)| key.get_ref() == "strategy")?;
    let (_, unit) = STRATEGIES.into_iter().find(|(name, _)| strategy.get_ref().as_str() == Some(name))?;
    Some((unit, Some(strategy.span())))
}
