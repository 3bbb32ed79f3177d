//! `[cache]`, as configuration files write it: a preset, and axes in its place.
//!
//! Whoever has such a block reads it with this, so that a strategy that was tested in one file can be copied into
//! another. What has no place in an error message of its own is read by [`written`].
//!
//! ```
//! use stockade_cache::{Refresh, spec::CacheTable};
//!
//! let file = "strategy = \"stampede\"\nttl = \"10s\"\nrefresh = { early = { at = 0.8 } }";
//! let table: CacheTable = toml::from_str(file).expect("a sound table");
//! assert_eq!(table.strategy().expect("a sound strategy").refresh, Refresh::Early { at: 0.8 });
//! ```

mod limit;
pub mod written;
mod wrong;

use std::{fmt::Display, str::FromStr, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use self::written::{Ending, Plain, Text, counted, table_or_none};
pub use self::{
    limit::Limited,
    wrong::{Place, Wrong},
};
use crate::{
    Breaker, Builder, Cache, Fetch, InvalidStrategy, Load, Refresh, Store, Strategy, UnknownPreset, Writer,
    heap_bytes, preset::NONE,
};

/// What a cache does about a missing answer, as `[cache]` of a file has it.
///
/// `T` is read from `shared`: where the tier is that nodes share.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: FromStr<Err: Display>")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Cache", bound = "T: written::Words")
)]
pub struct CacheTable<T = Nowhere> {
    /// What is not written here is as this one has it. Default: `none`.
    strategy: Option<Text<Preset>>,
    /// Who loads what is missing: everybody ("independent"), or one for all (coalesce).
    fetch: Option<FetchTable>,
    /// What bounds a load.
    load: Option<LoadBounds>,
    /// When an answer is stored: before it is given ("sync") or after it.
    store: Option<StoreName>,
    /// Whether what is fresh is loaded again before it expires.
    refresh: Option<RefreshTable>,
    /// How long an answer is fresh, or "none": for ever.
    ttl: Option<Text<Ending>>,
    /// How much of its ttl an answer may lose by chance, 0 to 1.
    jitter: Option<f64>,
    /// Stale while revalidate: after the ttl, served while it is loaded anew.
    swr: Option<Text<Plain>>,
    /// Stale if error: after that, served if no load answers.
    sie: Option<Text<Plain>>,
    /// How long a key is left alone after a load of it has failed.
    throttle: Option<Text<Plain>>,
    /// What keeps loads from a source that fails.
    breaker: Option<BreakerTable>,
    /// How much may be stored.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Limited>"))]
    limit: Option<Spanned<Limited>>,
    /// Who writes into the store: each load ("direct"), or one for all (mailbox).
    writer: Option<WriterTable>,
    /// Where the tier is that nodes share.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Text<T>>"))]
    pub shared: Option<Spanned<Text<T>>>,
    /// Whether there is a memory above what is shared.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub memory: Option<Spanned<bool>>,
}

/// Where the shared tier is of those who have none: nothing can be written there.
pub enum Nowhere {}

impl FromStr for Nowhere {
    type Err = &'static str;

    fn from_str(_: &str) -> Result<Self, Self::Err> {
        Err("there is no shared tier here: leave `shared` out")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum FetchTable {
    Independent,
    #[serde(rename = "coalesce")]
    Coalesce(Coalesce),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Coalesce {
    /// How long one who waits for another's load does so.
    wait_timeout: Text<Plain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct LoadBounds {
    /// A load that takes longer is cancelled. Default: "10s".
    deadline: Option<Text<Plain>>,
    /// After so long whoever has something stale is given that.
    soft_timeout: Option<Text<Ending>>,
    /// How many loads may be under way, over all keys.
    max_concurrent: Option<Loads>,
    /// How many more may queue. Default: 65536.
    queue: Option<Queue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum StoreName {
    Sync,
    Async,
    LockedAsync,
}

/// How, or `None`: `"none"` is written.
struct RefreshTable(Option<RefreshHow>);

impl<'de> Deserialize<'de> for RefreshTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table_or_none(from, "refresh", "{ early = { at = 0.8 } }, { xfetch = { beta = 1.0 } }").map(Self)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum RefreshHow {
    Early(Early),
    Xfetch(Xfetch),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Early {
    /// A share of the ttl, above 0 and below 1.
    at: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Xfetch {
    /// 1 is optimal; more refreshes earlier.
    beta: f64,
    /// That of the paper.
    #[serde(default, rename = "formula")]
    _formula: Formula,
}

/// There is one; a file may say that it means it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum Formula {
    #[default]
    Paper,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum WriterTable {
    Direct,
    Mailbox(Mailbox),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Mailbox {
    /// What a write costs. Default: "0".
    cost: Option<Text<Plain>>,
    /// How long a sync store is waited for. Default: "5s".
    call_timeout: Option<Text<Plain>>,
    /// How many writes may wait. Default: 65536.
    capacity: Option<Capacity>,
}

/// What differs from the usual one; `None`: `"none"` is written.
struct BreakerTable(Option<BreakerSettings>);

impl<'de> Deserialize<'de> for BreakerTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table_or_none(from, "breaker", "{ min_calls = 20, open_for = \"5s\" }").map(Self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct BreakerSettings {
    /// It opens when so many loads of a period fail: a share, above 0 and up to 1. Default: 0.5.
    errors_rate: Option<f64>,
    /// How long loads count. Default: "10s".
    period: Option<Text<Plain>>,
    /// It does not open for fewer loads than this. Default: 20.
    min_calls: Option<u32>,
    /// How long it is open before probes are let through. Default: "5s".
    open_for: Option<Text<Plain>>,
    /// How many of them have to succeed. Default: 3.
    probes: Option<u32>,
    /// How long it takes until all loads are let through again. Default: "10s".
    ramp: Option<Text<Plain>>,
}

impl<T> CacheTable<T> {
    /// The preset, with every axis that is written beside it in place of the preset's; `none` if there is neither.
    pub fn strategy(&self) -> Result<Strategy, InvalidStrategy> {
        self.strategy_over(&NONE)
    }

    /// The same, and `base` stands in place of the preset if none is named.
    pub fn strategy_over(&self, base: &Strategy) -> Result<Strategy, InvalidStrategy> {
        let preset = self.strategy.as_ref().map_or_else(|| base.clone(), |preset| preset.0.0.clone());
        let plain = |text: &Option<Text<Plain>>, preset| text.as_ref().map_or(preset, |text| text.0.0);
        let strategy = Strategy {
            fetch: self.fetch.as_ref().map_or(preset.fetch, FetchTable::fetch),
            load: self.load.as_ref().map_or(preset.load, |load| load.over(preset.load)),
            store: self.store.as_ref().map_or(preset.store, StoreName::store),
            refresh: self.refresh.as_ref().map_or(preset.refresh, RefreshTable::refresh),
            ttl: self.ttl.as_ref().map_or(preset.ttl, |text| text.0.0),
            jitter: self.jitter.unwrap_or(preset.jitter),
            swr: plain(&self.swr, preset.swr),
            sie: plain(&self.sie, preset.sie),
            negative_ttl: preset.negative_ttl,
            throttle: plain(&self.throttle, preset.throttle),
            breaker: match &self.breaker {
                None => preset.breaker,
                Some(BreakerTable(settings)) => settings
                    .as_ref()
                    .map(|settings| settings.over(preset.breaker.unwrap_or(Breaker::DEFAULT))),
            },
            limit: self.limit.as_ref().map_or(preset.limit, |limit| limit.get_ref().0.clone()),
            writer: self.writer.as_ref().map_or(preset.writer, WriterTable::writer),
        };
        documents(strategy.clone()).check()?;
        Ok(strategy)
    }

    /// Where the limit is written, if it is.
    #[must_use]
    pub fn limit_place(&self) -> Place {
        self.limit.as_ref().map(Spanned::span)
    }

    /// Whether a ttl is written, and not only the preset's.
    #[must_use]
    pub fn has_ttl(&self) -> bool {
        self.ttl.is_some()
    }

    /// As if this preset were named in it.
    pub fn set_preset(&mut self, name: &str) -> Result<(), UnknownPreset> {
        self.strategy = Some(Text(name.parse()?));
        Ok(())
    }
}

impl<T> Default for CacheTable<T> {
    /// Nothing is written.
    fn default() -> Self {
        Self {
            strategy: None,
            fetch: None,
            load: None,
            store: None,
            refresh: None,
            ttl: None,
            jitter: None,
            swr: None,
            sie: None,
            throttle: None,
            breaker: None,
            limit: None,
            writer: None,
            shared: None,
            memory: None,
        }
    }
}

/// A cache of documents by their names: what a strategy is checked with that is to hold whatever is cached.
fn documents(strategy: Strategy) -> Builder<Arc<str>, Bytes> {
    Cache::builder(strategy).weigh(heap_bytes)
}

impl FetchTable {
    fn fetch(&self) -> Fetch {
        match self {
            Self::Independent => Fetch::Independent,
            Self::Coalesce(Coalesce { wait_timeout }) => Fetch::Coalesce { wait_timeout: wait_timeout.0.0 },
        }
    }
}

impl LoadBounds {
    fn over(&self, preset: Load) -> Load {
        let Self { deadline, soft_timeout, max_concurrent, queue } = self;
        Load {
            deadline: deadline.as_ref().map_or(preset.deadline, |text| text.0.0),
            soft_timeout: soft_timeout.as_ref().map_or(preset.soft_timeout, |text| text.0.0),
            max_concurrent: max_concurrent.as_ref().map_or(preset.max_concurrent, |count| Some(count.0)),
            queue: queue.as_ref().map_or(preset.queue, |queue| queue.0),
        }
    }
}

impl StoreName {
    fn store(&self) -> Store {
        match self {
            Self::Sync => Store::Sync,
            Self::Async => Store::Async,
            Self::LockedAsync => Store::LockedAsync,
        }
    }
}

impl RefreshTable {
    fn refresh(&self) -> Refresh {
        match &self.0 {
            None => Refresh::None,
            Some(RefreshHow::Early(Early { at })) => Refresh::Early { at: *at },
            Some(RefreshHow::Xfetch(Xfetch { beta, .. })) => Refresh::XFetch { beta: *beta },
        }
    }
}

impl BreakerSettings {
    fn over(&self, preset: Breaker) -> Breaker {
        let plain = |text: &Option<Text<Plain>>, preset| text.as_ref().map_or(preset, |text| text.0.0);
        Breaker {
            errors_rate: self.errors_rate.unwrap_or(preset.errors_rate),
            period: plain(&self.period, preset.period),
            min_calls: self.min_calls.unwrap_or(preset.min_calls),
            open_for: plain(&self.open_for, preset.open_for),
            probes: self.probes.unwrap_or(preset.probes),
            ramp: plain(&self.ramp, preset.ramp),
        }
    }
}

impl WriterTable {
    fn writer(&self) -> Writer {
        match self {
            Self::Direct => Writer::Direct,
            Self::Mailbox(mailbox) => {
                let time = |text: &Option<Text<Plain>>| text.as_ref().map(|text| text.0.0);
                let capacity = mailbox.capacity.as_ref().map(|capacity| capacity.0);
                Writer::mailbox(time(&mailbox.cost), time(&mailbox.call_timeout), capacity)
            }
        }
    }
}

/// A strategy by the name of its preset.
struct Preset(Strategy);

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        Strategy::preset(name).map(Self)
    }
}

counted! {
    /// How many loads there may be at once.
    Loads: 1.., "one load at least may be under way";
    /// How many loads may queue; none, perhaps.
    Queue: 0.., "a queue has room for 0 loads or more";
    /// How many writes a mailbox holds.
    Capacity: 1..=16_777_216, "a mailbox holds 1 to 16777216 writes";
}

#[cfg(feature = "schema")]
mod schema;
#[cfg(test)]
mod tests;
