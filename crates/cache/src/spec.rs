//! The `[cache]` table of configuration files: a preset, and axes that override it.
//!
//! Every file with this table is read with this module, so a strategy that was tested in one file can be copied
//! into another. [`value`] reads its values.
//!
//! ```
//! use stockade_cache::{Refresh, spec::CacheTable};
//!
//! let file = "strategy = \"stampede\"\nttl = \"10s\"\nrefresh = { early = { at = 0.8 } }";
//! let table: CacheTable = toml::from_str(file).expect("a sound table");
//! assert_eq!(table.strategy().expect("a sound strategy").refresh, Refresh::Early { at: 0.8 });
//! ```

mod error;
mod limit;
pub(crate) mod shown;
pub mod value;

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer};
use toml::Spanned;

#[cfg(feature = "schema")]
pub use self::schema::file_schema;
use self::value::{
    DurationValue, HedgeAfterValue, OptionalDuration, TextValue, bounded_integers, table_or_none,
};
pub use self::{
    error::{Span, TomlError},
    limit::LimitTable,
};
use crate::{
    Breaker, Fetch, InvalidStrategy, LoadBounds, Refresh, StoreMode, Strategy, UnknownName, Writer,
    strategy::preset::NONE,
};

/// A caching strategy, as the `[cache]` table of a file.
// `T` parses `shared`, the URL of the shared tier.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, bound = "T: FromStr<Err: Display>")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Cache", bound = "T: value::TextSchema")
)]
pub struct CacheTable<T = NoTier> {
    /// The preset that supplies the settings this table leaves out. Default: `none`.
    strategy: Option<TextValue<PresetName>>,
    /// Which request loads a missing key: each one ("independent"), or one for all that wait (coalesce).
    fetch: Option<FetchTable>,
    /// Bounds of a load.
    load: Option<LoadBoundsTable>,
    /// When a value is stored: before the response ("sync"), after it ("async"), or after it and once per key
    /// ("locked-async").
    store: Option<StoreName>,
    /// Refresh of fresh values before they expire: at a share of the ttl (early), or at random (xfetch).
    refresh: Option<RefreshTable>,
    /// How long a value is fresh, or "none": for ever.
    ttl: Option<TextValue<OptionalDuration>>,
    /// Share of its ttl that a value may lose at random, 0 to 1.
    jitter: Option<f64>,
    /// Stale while revalidate: how long after the ttl a stale value is served while it is refreshed.
    swr: Option<TextValue<DurationValue>>,
    /// Stale if error: how long after `ttl` and `swr` a stale value is served if the load fails.
    sie: Option<TextValue<DurationValue>>,
    /// How long a key is not loaded again after a failed load, if there is a stale value.
    throttle: Option<TextValue<DurationValue>>,
    /// Circuit breaker: rejects loads while the source fails.
    breaker: Option<BreakerTable>,
    /// Limit of the store.
    #[cfg_attr(feature = "schema", schemars(with = "Option<LimitTable>"))]
    limit: Option<Spanned<LimitTable>>,
    /// Which task writes into the store: each load's own ("direct"), or one for all (mailbox).
    writer: Option<WriterTable>,
    /// URL of the tier that nodes share.
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<T>>"))]
    pub shared: Option<Spanned<TextValue<T>>>,
    /// Also store values in memory, above the shared tier.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub memory: Option<Spanned<bool>>,
}

/// For files without a shared tier: no value is valid.
#[derive(Clone, Debug, PartialEq)]
pub enum NoTier {}

impl FromStr for NoTier {
    type Err = &'static str;

    fn from_str(_: &str) -> Result<Self, Self::Err> {
        Err("there is no shared tier here: leave `shared` out")
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum FetchTable {
    Independent,
    #[serde(rename = "coalesce")]
    Coalesce(Coalesce),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Coalesce {
    /// How long a request waits for another request's load.
    wait_timeout: TextValue<DurationValue>,
    /// A request whose wait has ended receives an error ("error") or loads for itself ("load").
    then: Option<AfterWaitName>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum AfterWaitName {
    Error,
    Load,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct LoadBoundsTable {
    /// A load that takes longer is cancelled. Its wait in the queue has the same bound. Default: "10s".
    deadline: Option<TextValue<DurationValue>>,
    /// When a load takes longer, waiters receive the stale value if there is one, and the load goes on.
    soft_timeout: Option<TextValue<OptionalDuration>>,
    /// When a load takes longer, one of its waiters loads, too, and another one after each further such time.
    hedge_after: Option<TextValue<HedgeAfterValue>>,
    /// Concurrent loads, over all keys.
    max_concurrent: Option<Loads>,
    /// Loads that may queue; further ones fail at once. Default: 65536.
    queue: Option<Queue>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum StoreName {
    Sync,
    Async,
    LockedAsync,
}

/// `None`: `"none"`.
#[derive(Clone, Debug, PartialEq)]
struct RefreshTable(Option<RefreshHow>);

impl<'de> Deserialize<'de> for RefreshTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table_or_none(from, "refresh", "{ early = { at = 0.8 } }, { xfetch = { beta = 1.0 } }").map(Self)
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum RefreshHow {
    Early(Early),
    Xfetch(Xfetch),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Early {
    /// Share of the ttl after which a request starts the refresh, above 0 and below 1.
    at: f64,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Xfetch {
    /// 1 is the paper's optimum; a higher value refreshes earlier.
    beta: f64,
    /// The formula of the xfetch paper; the only value.
    #[serde(default, rename = "formula")]
    _formula: Formula,
}

/// The only formula; a file may name it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum Formula {
    #[default]
    Paper,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum WriterTable {
    Direct,
    Mailbox(Mailbox),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Mailbox {
    /// Duration of one write. Default: "0".
    cost: Option<TextValue<DurationValue>>,
    /// How long a load waits for a sync store. Default: "5s".
    call_timeout: Option<TextValue<DurationValue>>,
    /// Writes that may wait. Default: 65536.
    capacity: Option<Capacity>,
}

/// `None`: `"none"`.
#[derive(Clone, Debug, PartialEq)]
struct BreakerTable(Option<BreakerSettings>);

impl<'de> Deserialize<'de> for BreakerTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table_or_none(from, "breaker", "{ min_calls = 20, open_for = \"5s\" }").map(Self)
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct BreakerSettings {
    /// Share of failed loads that opens it, above 0 and up to 1. Default: 0.5.
    errors_rate: Option<f64>,
    /// Age up to which loads count. Default: "10s".
    period: Option<TextValue<DurationValue>>,
    /// Loads within the period below which it does not open. Default: 20.
    min_calls: Option<u32>,
    /// How long it is open before it admits probes. Default: "5s".
    open_for: Option<TextValue<DurationValue>>,
    /// How long a load waits for the next probes, or for their answers, before it is refused. Default: "0s".
    wait: Option<TextValue<DurationValue>>,
    /// Probes at once, and answers after which it closes. Default: 3.
    probes: Option<u32>,
    /// How long it then bounds the loads in flight: to `probes` first, and one more after each answer. Default: "10s".
    ramp: Option<TextValue<DurationValue>>,
}

/// The strategy of the `[cache]` table of a file, whatever else the file has.
///
/// ```
/// use stockade_cache::spec::strategy_in;
///
/// let file = "listen = [\"127.0.0.1:8080\"]\n[cache]\nstrategy = \"swr\"\nttl = \"30s\"\n";
/// assert_eq!(strategy_in(file).expect("a sound table").ttl, Some(std::time::Duration::from_secs(30)));
/// ```
pub fn strategy_in(file: &str) -> Result<Strategy, TomlError> {
    #[derive(Deserialize)]
    struct File {
        cache: Option<Spanned<CacheTable>>,
    }
    let file: File = toml::from_str(file).map_err(|error| TomlError::from_toml(&error, &[]))?;
    let cache = file.cache.ok_or_else(|| TomlError::new("there is no [cache] table", None))?;
    cache.get_ref().strategy().map_err(|error| TomlError::new(error.to_string(), Some(cache.span())))
}

impl<T> CacheTable<T> {
    /// The strategy: the preset's, with the settings of this table in place. Without a preset: `none`.
    pub fn strategy(&self) -> Result<Strategy, InvalidStrategy> {
        self.strategy_over(&NONE)
    }

    /// As [`strategy`](Self::strategy), with `base` as the default preset.
    pub fn strategy_over(&self, base: &Strategy) -> Result<Strategy, InvalidStrategy> {
        let preset = self.strategy.as_ref().map_or_else(|| base.clone(), |preset| preset.0.0.clone());
        let plain =
            |text: &Option<TextValue<DurationValue>>, preset| text.as_ref().map_or(preset, |text| text.0.0);
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
        if strategy.ttl.is_none() && self.ttl.is_none() && (self.swr.is_some() || self.sie.is_some()) {
            return Err(InvalidStrategy(
                "without a ttl only an invalidation makes values stale: give one, or write ttl = \"none\"",
            ));
        }
        limit::check_for_documents(&strategy)?;
        Ok(strategy)
    }

    /// The position of the limit in the file.
    #[must_use]
    pub fn limit_span(&self) -> Span {
        self.limit.as_ref().map(Spanned::span)
    }

    /// True if the table names a preset, which replaces the strategy below it.
    #[must_use]
    pub fn has_preset(&self) -> bool {
        self.strategy.is_some()
    }

    /// The settings that the table itself states.
    pub fn stated(&self) -> impl Iterator<Item = StatedKey> {
        let load = self.load.as_ref();
        let stated = [
            (StatedKey::Ttl, self.ttl.is_some()),
            (StatedKey::Fetch, self.fetch.is_some()),
            (
                StatedKey::AfterWait,
                matches!(self.fetch, Some(FetchTable::Coalesce(Coalesce { then: Some(_), .. }))),
            ),
            (StatedKey::Deadline, load.is_some_and(|load| load.deadline.is_some())),
            (StatedKey::HedgeAfter, load.is_some_and(|load| load.hedge_after.is_some())),
            (StatedKey::Breaker, self.breaker.is_some()),
        ];
        stated.into_iter().filter_map(|(key, is_stated)| is_stated.then_some(key))
    }

    /// Replaces the preset.
    pub fn set_preset(&mut self, name: &str) -> Result<(), UnknownName> {
        self.strategy = Some(TextValue(name.parse()?));
        Ok(())
    }
}

/// Settings whose default depends on more than the strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedKey {
    /// `ttl`: how long a value is fresh.
    Ttl,
    /// `fetch`: the caller that loads.
    Fetch,
    /// `fetch.coalesce.then`: what a waiter does after its timeout.
    AfterWait,
    /// `load.deadline`: when a load is cancelled.
    Deadline,
    /// `load.hedge_after`: when a waiter loads, too.
    HedgeAfter,
    /// Anything of `breaker`.
    Breaker,
}

impl<T> Default for CacheTable<T> {
    /// The empty table.
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

impl FetchTable {
    fn fetch(&self) -> Fetch {
        match self {
            Self::Independent => Fetch::Independent,
            Self::Coalesce(Coalesce { wait_timeout, then }) => match then.unwrap_or(AfterWaitName::Error) {
                AfterWaitName::Error => Fetch::coalesce(wait_timeout.0.0),
                AfterWaitName::Load => Fetch::coalesce_or_load(wait_timeout.0.0),
            },
        }
    }
}

impl LoadBoundsTable {
    fn over(&self, preset: LoadBounds) -> LoadBounds {
        let Self { deadline, soft_timeout, hedge_after, max_concurrent, queue } = self;
        LoadBounds {
            deadline: deadline.as_ref().map_or(preset.deadline, |text| text.0.0),
            soft_timeout: soft_timeout.as_ref().map_or(preset.soft_timeout, |text| text.0.0),
            hedge_after: hedge_after.as_ref().map_or(preset.hedge_after, |text| text.0.0),
            max_concurrent: max_concurrent.as_ref().map_or(preset.max_concurrent, |count| Some(count.0)),
            queue: queue.as_ref().map_or(preset.queue, |queue| queue.0),
        }
    }
}

impl StoreName {
    fn store(&self) -> StoreMode {
        match self {
            Self::Sync => StoreMode::Sync,
            Self::Async => StoreMode::Async,
            Self::LockedAsync => StoreMode::LockedAsync,
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
        let plain =
            |text: &Option<TextValue<DurationValue>>, preset| text.as_ref().map_or(preset, |text| text.0.0);
        Breaker {
            errors_rate: self.errors_rate.unwrap_or(preset.errors_rate),
            period: plain(&self.period, preset.period),
            min_calls: self.min_calls.unwrap_or(preset.min_calls),
            open_for: plain(&self.open_for, preset.open_for),
            probes: self.probes.unwrap_or(preset.probes),
            ramp: plain(&self.ramp, preset.ramp),
            wait: plain(&self.wait, preset.wait),
        }
    }
}

impl WriterTable {
    fn writer(&self) -> Writer {
        match self {
            Self::Direct => Writer::Direct,
            Self::Mailbox(mailbox) => {
                let time = |text: &Option<TextValue<DurationValue>>| text.as_ref().map(|text| text.0.0);
                let capacity = mailbox.capacity.as_ref().map(|capacity| capacity.0);
                Writer::mailbox(time(&mailbox.cost), time(&mailbox.call_timeout), capacity)
            }
        }
    }
}

/// A preset by its name.
#[derive(Clone, Debug, PartialEq)]
struct PresetName(Strategy);

impl FromStr for PresetName {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Strategy::preset(name).map(Self)
    }
}

bounded_integers! {
/// Maximum number of concurrent loads.
    pub(crate) Loads: 1.., "one load at least may be under way";
/// Maximum number of queued loads.
    pub(crate) Queue: 0.., "a queue has room for 0 loads or more";
/// Capacity of a mailbox, in writes.
    pub(crate) Capacity: 1..=16_777_216, "a mailbox holds 1 to 16777216 writes";
}

#[cfg(feature = "schema")]
mod schema;
#[cfg(test)]
mod tests;
