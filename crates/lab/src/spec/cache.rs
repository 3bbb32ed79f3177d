//! `[cache]`, as it is written: a preset, and axes in its place.

use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer};
use stockade_cache::{Breaker, Fetch, Load, Refresh, Store, Strategy, UnknownPreset, Writer};
use stockade_model::units;
use toml::Spanned;

use super::{
    Wrong,
    limit::Limited,
    setup::{Loads, Plain, Queue, Text, count, table_or_none},
    tables::Place,
};
use crate::engine::{self, SharedTier, TierUrl};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cache {
    strategy: Option<Text<Preset>>,
    fetch: Option<FetchTable>,
    load: Option<LoadBounds>,
    store: Option<StoreName>,
    refresh: Option<RefreshTable>,
    ttl: Option<Text<Ending>>,
    jitter: Option<f64>,
    swr: Option<Text<Plain>>,
    sie: Option<Text<Plain>>,
    throttle: Option<Text<Plain>>,
    breaker: Option<BreakerTable>,
    limit: Option<Limited>,
    writer: Option<WriterTable>,
    shared: Option<Spanned<Text<TierUrl>>>,
    memory: Option<Spanned<bool>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FetchTable {
    Independent,
    #[serde(rename = "coalesce")]
    Coalesce(Coalesce),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coalesce {
    #[serde(deserialize_with = "units::text::deserialize")]
    wait_timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadBounds {
    deadline: Option<Text<Plain>>,
    soft_timeout: Option<Text<Ending>>,
    max_concurrent: Option<Loads>,
    queue: Option<Queue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
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
enum RefreshHow {
    Early(Early),
    Xfetch(Xfetch),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Early {
    at: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Xfetch {
    beta: f64,
    #[serde(default, rename = "formula")]
    _formula: Formula,
}

/// There is one; a file may say that it means it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Formula {
    #[default]
    Paper,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WriterTable {
    Direct,
    Mailbox(Mailbox),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mailbox {
    cost: Option<Text<Plain>>,
    call_timeout: Option<Text<Plain>>,
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
struct BreakerSettings {
    errors_rate: Option<f64>,
    period: Option<Text<Plain>>,
    min_calls: Option<u32>,
    open_for: Option<Text<Plain>>,
    probes: Option<u32>,
    ramp: Option<Text<Plain>>,
}

impl Cache {
    /// The preset, with every axis that is written beside it in place of the preset's.
    pub(super) fn strategy(&self, at: Place) -> Result<Strategy, Wrong> {
        let preset = self.strategy.as_ref().map(|preset| preset.0.0.clone());
        let preset = preset.unwrap_or_else(|| Strategy::preset("none").expect("`none` is a preset"));
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
            limit: self.limit.as_ref().map_or(preset.limit, |limit| limit.0.clone()),
            writer: self.writer.as_ref().map_or(preset.writer, WriterTable::writer),
        };
        engine::cache(strategy.clone()).check().map_err(|error| Wrong::new(error.to_string(), at))?;
        Ok(strategy)
    }
}

impl Cache {
    /// What it shares with other nodes, and where that stands.
    pub(super) fn shared(&self) -> Result<Option<(SharedTier, Place)>, Wrong> {
        let has_memory = self.memory.as_ref().is_none_or(|memory| *memory.get_ref());
        match (&self.shared, &self.memory) {
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
}

impl FetchTable {
    fn fetch(&self) -> Fetch {
        match self {
            Self::Independent => Fetch::Independent,
            Self::Coalesce(Coalesce { wait_timeout }) => Fetch::Coalesce { wait_timeout: *wait_timeout },
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

/// A duration, or `none`: without an end.
#[derive(Clone, Copy)]
struct Ending(Option<Duration>);

impl FromStr for Ending {
    type Err = units::UnitError;

    fn from_str(text: &str) -> Result<Self, units::UnitError> {
        if text == "none" { Ok(Self(None)) } else { units::parse_duration(text).map(|time| Self(Some(time))) }
    }
}

/// How many writes a mailbox holds.
struct Capacity(usize);

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        count(from, 1..=16_777_216, "a mailbox holds 1 to 16777216 writes").map(Self)
    }
}

#[cfg(test)]
mod tests;
