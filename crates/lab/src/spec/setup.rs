//! The base of an experiment, with a test and an arm laid over it.

use std::{fmt::Display, ops::RangeBounds, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, Error as _, IntoDeserializer, SeqAccess,
        value::{SeqAccessDeserializer, StrDeserializer},
    },
};
use stockade_cache::{Fetch, Load, Store, Strategy, UnknownPreset, Writer};
use stockade_model::{record::Clock, units};
use stockade_source::Conduct;
use toml::Spanned;

use super::{
    Cell, Wrong,
    limit::Limited,
    load::{LoadSpec, LoadTable, OpenSpec},
    origin::Origin,
    tables::Place,
};
use crate::engine::{self, Burst, Docs, NodeTest, Open};

/// The tables of the base.
pub(super) const SECTIONS: [&str; 4] = ["target", "origin", "cache", "load"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    target: Target,
    #[serde(default)]
    origin: Origin,
    #[serde(default)]
    cache: Cache,
    load: Spanned<LoadTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    #[expect(dead_code, reason = "there is one kind so far, and a file has to say that it means it")]
    kind: Kind,
    clock: Option<Spanned<ClockName>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ClockName {
    Live,
    Virtual,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Engine,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Cache {
    strategy: Option<Text<Preset>>,
    fetch: Option<FetchTable>,
    load: Option<LoadBounds>,
    store: Option<StoreName>,
    ttl: Option<Text<Ttl>>,
    limit: Option<Limited>,
    writer: Option<WriterTable>,
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
    max_concurrent: Option<Count>,
    queue: Option<Queue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoreName {
    Sync,
    Async,
    LockedAsync,
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

impl Setup {
    /// Every combination that the test sweeps over, with its path: what has one value is not in it.
    /// `node_test` stands in place of a cache.
    pub(super) fn cells(
        &self,
        test: &str,
        arm: &str,
        node_test: Option<&(NodeTest, Place)>,
    ) -> Result<Vec<Cell>, Wrong> {
        let conduct = self.origin.conduct()?;
        let clock = self.clock()?;
        let cell = |path: String, load: engine::Load| Cell {
            test: path,
            arm: arm.to_owned(),
            source: self.origin.source.0.clone(),
            clock,
            load,
        };
        let (docs, bursts, barrier) = match self.load.get_ref().load(Some(self.load.span()))? {
            LoadSpec::Burst { docs, bursts, barrier } => (docs, bursts, barrier),
            LoadSpec::Open(spec) => {
                let cache = || engine::Target::Cache(self.cache.strategy());
                let target = node_test.map_or_else(cache, |(test, _)| engine::Target::NodeTest(*test));
                return Ok(vec![cell(test.to_owned(), engine::Load::Open(spec.of(arm, target, conduct)))]);
            }
        };
        if let Some((_, at)) = node_test {
            let message = "this strategy is for open loads: write a `rate` and a `duration` into [load]";
            return Err(Wrong::new(message, at.clone()));
        }
        let path = |rule: Docs, workers: usize| {
            let mut parts = vec![test.to_owned()];
            parts.extend((docs.len() > 1).then(|| rule.to_string()));
            parts.extend((bursts.len() > 1).then(|| workers.to_string()));
            parts.retain(|part| !part.is_empty());
            parts.join("/")
        };
        let burst = |docs: Docs, workers: usize| Burst {
            name: arm.to_owned(),
            strategy: self.cache.strategy(),
            workers,
            barrier,
            docs,
            conduct: conduct.clone(),
        };
        let combine = |rule: &Docs| {
            let rule = *rule;
            let cell =
                |workers: &usize| cell(path(rule, *workers), engine::Load::Burst(burst(rule, *workers)));
            bursts.iter().map(cell).collect::<Vec<_>>()
        };
        Ok(docs.iter().flat_map(combine).collect())
    }

    /// As it is written, or as the source has it.
    fn clock(&self) -> Result<Clock, Wrong> {
        let is_simulated = self.origin.source.0.kind().is_simulated;
        match &self.target.clock {
            None if is_simulated => Ok(Clock::Virtual),
            None => Ok(Clock::Live),
            Some(clock) => match clock.get_ref() {
                ClockName::Live => Ok(Clock::Live),
                ClockName::Virtual if is_simulated => Ok(Clock::Virtual),
                ClockName::Virtual => Err(Wrong {
                    message: "a real source answers in real time".to_owned(),
                    at: Some(clock.span()),
                    help: Some("write clock = \"live\", or [origin] source = \"simulated:\"".to_owned()),
                }),
            },
        }
    }
}

impl OpenSpec {
    fn of(self, arm: &str, target: engine::Target, conduct: Conduct) -> Open {
        let Self { schedule, keys, popularity, warm, timeout, retries, max_in_flight, drain } = self;
        let name = arm.to_owned();
        Open {
            name,
            target,
            conduct,
            schedule,
            keys,
            popularity,
            warm,
            timeout,
            retries,
            max_in_flight,
            drain,
        }
    }
}

impl Cache {
    /// The preset, with every axis that is written beside it in place of the preset's.
    fn strategy(&self) -> Strategy {
        let preset = self.strategy.as_ref().map(|preset| preset.0.0.clone());
        let mut strategy = preset.unwrap_or_else(|| Strategy::preset("none").expect("`none` is a preset"));
        if let Some(fetch) = &self.fetch {
            strategy.fetch = match fetch {
                FetchTable::Independent => Fetch::Independent,
                FetchTable::Coalesce(Coalesce { wait_timeout }) => {
                    Fetch::Coalesce { wait_timeout: *wait_timeout }
                }
            };
        }
        if let Some(LoadBounds { deadline, max_concurrent, queue }) = &self.load {
            let preset = strategy.load;
            strategy.load = Load {
                soft_timeout: preset.soft_timeout,
                deadline: deadline.as_ref().map_or(preset.deadline, |text| text.0.0),
                max_concurrent: max_concurrent.as_ref().map_or(preset.max_concurrent, |count| Some(count.0)),
                queue: queue.as_ref().map_or(preset.queue, |queue| queue.0),
            };
        }
        if let Some(store) = &self.store {
            strategy.store = match store {
                StoreName::Sync => Store::Sync,
                StoreName::Async => Store::Async,
                StoreName::LockedAsync => Store::LockedAsync,
            };
        }
        if let Some(Text(Ttl(ttl))) = self.ttl {
            strategy.ttl = ttl;
        }
        if let Some(limit) = &self.limit {
            strategy.limit.clone_from(&limit.0);
        }
        if let Some(writer) = &self.writer {
            strategy.writer = match writer {
                WriterTable::Direct => Writer::Direct,
                WriterTable::Mailbox(mailbox) => {
                    let time = |text: &Option<Text<Plain>>| text.as_ref().map(|text| text.0.0);
                    let capacity = mailbox.capacity.as_ref().map(|capacity| capacity.0);
                    Writer::mailbox(time(&mailbox.cost), time(&mailbox.call_timeout), capacity)
                }
            };
        }
        strategy
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

/// Something written as text that its own type reads; a bare number is told what it lacks.
#[derive(Default, PartialEq)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::written(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A duration.
#[derive(Default)]
pub(super) struct Plain(pub(super) Duration);

impl FromStr for Plain {
    type Err = units::UnitError;

    fn from_str(text: &str) -> Result<Self, units::UnitError> {
        units::parse_duration(text).map(Self)
    }
}

/// A duration, or `none`: for ever.
#[derive(Clone, Copy)]
struct Ttl(Option<Duration>);

impl FromStr for Ttl {
    type Err = units::UnitError;

    fn from_str(text: &str) -> Result<Self, units::UnitError> {
        if text == "none" { Ok(Self(None)) } else { units::parse_duration(text).map(|ttl| Self(Some(ttl))) }
    }
}

/// A whole number within bounds, and what is said of any other.
fn count<'de, D: Deserializer<'de>>(
    from: D,
    bounds: impl RangeBounds<i64>,
    otherwise: &str,
) -> Result<usize, D::Error> {
    let number = i64::deserialize(from)?;
    if !bounds.contains(&number) {
        return Err(D::Error::custom(otherwise));
    }
    usize::try_from(number).map_err(D::Error::custom)
}

/// How many workers: one at least.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Workers(pub(super) usize);

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        count(from, 1.., "a burst has one worker at least").map(Self)
    }
}

/// How many writes a mailbox holds.
struct Capacity(usize);

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        count(from, 1..=16_777_216, "a mailbox holds 1 to 16777216 writes").map(Self)
    }
}

/// How many of something there may be: one at least.
pub(super) struct Count(pub(super) usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        count(from, 1.., "one at least").map(Self)
    }
}

/// How many loads may queue; none, perhaps.
pub(super) struct Queue(pub(super) usize);

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        count(from, 0.., "a queue has room for 0 loads or more").map(Self)
    }
}

/// One value, or a list of them to sweep over.
pub(super) struct OneOrMany<T>(Vec<T>);

impl<T> OneOrMany<T> {
    /// Every value, as what it stands for.
    pub(super) fn values<U>(&self, of: impl Fn(&T) -> U) -> Vec<U> {
        self.0.iter().map(of).collect()
    }
}

impl<'de, T: Deserialize<'de> + PartialEq> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de> + PartialEq> de::Visitor<'de> for Visitor<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
                Ok(vec![T::deserialize(StrDeserializer::new(text))?])
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
                Ok(vec![T::deserialize(number.into_deserializer())?])
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
                let values: Vec<T> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                if values.is_empty() {
                    return Err(de::Error::custom("the list is empty"));
                }
                if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
                    return Err(de::Error::custom("the list has a value twice"));
                }
                Ok(values)
            }
        }
        from.deserialize_any(Visitor(std::marker::PhantomData)).map(Self)
    }
}
