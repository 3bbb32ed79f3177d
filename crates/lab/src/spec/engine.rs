//! Cells of the target `engine`.

use std::{marker::PhantomData, num::NonZeroUsize, ops::Range, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, IntoDeserializer, SeqAccess,
        value::{SeqAccessDeserializer, StrDeserializer},
    },
};
use stockade_cache::{
    Invalidation, Strategy,
    spec::{
        Span, TomlError,
        value::{DurationValue, TextValue, bounded_integers},
    },
};
use stockade_record::record::ClockKind;
use stockade_source::SourceUrl;
use toml::Spanned;

#[cfg(feature = "schema")]
use super::schema::{KindName, PurgeForms};
use super::{
    Cell,
    cache::{self, CacheTables},
    event::within_load,
    load::{EngineLoadTable, InvalidateName, LoadSpec},
    node_js_cache::{self, NodeJsTestCache},
    origin::OriginTable,
    tables::{self, TomlTable},
    targets::CellNames,
};
use crate::{
    engine::{self, Burst, DocumentCount, EngineEvent, EngineTarget, OpenLoad, PurgedKeys, TierSettings},
    target::Target,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct EngineTables {
    /// The cache under load, and how it is reached.
    target: EngineTargetTable,
    /// The source behind the cache; over HTTP the origin behind the target.
    #[serde(default)]
    origin: OriginTable,
    #[cfg_attr(feature = "schema", schemars(with = "Option<CacheTables>"))]
    cache: Option<Spanned<CacheTables>>,
    /// The requests. A load is a burst, or it has a rate, steps, connections or a log.
    #[cfg_attr(feature = "schema", schemars(with = "EngineLoadTable"))]
    load: Spanned<EngineLoadTable>,
    /// Events during the load.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<EventTable>"))]
    event: Vec<Spanned<EventTable>>,
}

/// A purge during the load: the documents change at the source, and then their keys are invalidated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct EventTable {
    /// Time since the start of the load.
    at: TextValue<DurationValue>,
    /// "*": all keys. A number: this key, from 1; with Zipf's law 1 is the most popular.
    #[cfg_attr(feature = "schema", schemars(with = "PurgeForms"))]
    purge: PurgeValue,
    /// `hard`: the old values are removed. `soft`: they become stale. Default: "hard".
    invalidate: Option<InvalidateName>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "write \"*\" for all keys, or the number of a key, from 1")]
enum PurgeValue {
    All(AllKeys),
    One(NonZeroUsize),
}

#[derive(Clone, Copy, Deserialize)]
enum AllKeys {
    #[serde(rename = "*")]
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct EngineTargetTable {
    /// `engine`: the cache in this process. `proxy`, `app`, `url`: processes, over HTTP. Default: `url`, if there is a `url`.
    #[expect(dead_code, reason = "required in the file, although there is only one kind")]
    #[cfg_attr(feature = "schema", schemars(with = "KindName"))]
    kind: EngineKind,
    /// Clock of the engine. Default: "virtual" for a simulated source, "live" for others.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ClockName>"))]
    clock: Option<Spanned<ClockName>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum ClockName {
    Live,
    Virtual,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EngineKind {
    Engine,
}

/// Reads the tables of one test and arm of the target `engine`.
pub(super) fn read(
    mut table: TomlTable<'_>,
    layer: CellNames<'_>,
    span: Range<usize>,
) -> Result<Vec<Cell>, TomlError> {
    if let Some(at) = tables::find(&table, "sample") {
        let message = "[sample] is for loads over HTTP, whose parts are processes: leave it out, or write kind = \"proxy\" into [target]";
        return Err(TomlError::new(message, Some(at)));
    }
    let node_js_test = node_js_cache::take(&mut table)?;
    let tables: EngineTables = tables::read(table, span)?;
    tables.cells(layer.test, layer.arm, node_js_test.as_ref())
}

impl EngineTables {
    /// A cell for each combination of swept values. Values that are not swept are not in the path. `node_js_test`
    /// replaces the cache.
    pub(super) fn cells(
        &self,
        test: &str,
        arm: &str,
        node_js_test: Option<&NodeJsTestCache>,
    ) -> Result<Vec<Cell>, TomlError> {
        let behavior = self.origin.source_behavior()?;
        let clock = self.clock()?;
        let strategy = match &self.cache {
            Some(cache) => cache::strategy(cache.get_ref(), Some(cache.span()))?,
            None => Strategy::preset("none").expect("it is a preset"),
        };
        let shared = match (node_js_test, &self.cache) {
            (Some(taken), _) => taken.shared.clone(),
            (None, Some(cache)) => cache::shared(cache.get_ref())?,
            (None, None) => None,
        };
        let source = &self.origin.source.0;
        let cell = |path: String, target: Box<dyn Target>| Cell {
            test: path,
            arm: arm.to_owned(),
            clock,
            target,
            spans: self.load.get_ref().spans(),
        };
        let (docs, bursts, barrier) = match self.load.get_ref().load(Some(self.load.span()))? {
            LoadSpec::Burst { docs, bursts, barrier } => {
                if let Some(event) = self.event.first() {
                    let message = "a burst has no events: write a `rate` and a `duration` into [load]";
                    return Err(TomlError::new(message, Some(event.span())));
                }
                (docs, bursts, barrier)
            }
            LoadSpec::Open(traffic) => {
                let events = self.events(traffic.schedule.duration())?;
                self.origin.check_within(traffic.schedule.duration())?;
                let cache = || engine::TestedCache::Cache(Box::new(strategy));
                let tested =
                    node_js_test.map_or_else(cache, |taken| engine::TestedCache::NodeJsTest(taken.test));
                let shared = shared.map(|(tier, at)| live_only(clock, tier, at)).transpose()?;
                let open =
                    OpenLoad { name: arm.to_owned(), target: tested, shared, behavior, traffic, events };
                return Ok(vec![cell(test.to_owned(), target(source, open))]);
            }
        };
        if let Some(NodeJsTestCache { at, .. }) = node_js_test {
            let message = "this strategy is for open loads: write a `rate` and a `duration` into [load]";
            return Err(TomlError::new(message, at.clone()));
        }
        if let Some((_, at)) = shared {
            let message = "a shared tier is for open loads: write a `rate` and a `duration` into [load]";
            return Err(TomlError::new(message, at));
        }
        let path = |rule: DocumentCount, workers: usize| {
            let mut parts = vec![test.to_owned()];
            parts.extend((docs.len() > 1).then(|| rule.to_string()));
            parts.extend((bursts.len() > 1).then(|| workers.to_string()));
            parts.retain(|part| !part.is_empty());
            parts.join("/")
        };
        let burst = |docs: DocumentCount, workers: usize| Burst {
            name: arm.to_owned(),
            strategy: strategy.clone(),
            workers,
            barrier,
            docs,
            behavior: behavior.clone(),
        };
        let combine = |rule: &DocumentCount| {
            let rule = *rule;
            let cell = |workers: &usize| cell(path(rule, *workers), target(source, burst(rule, *workers)));
            bursts.iter().map(cell).collect::<Vec<_>>()
        };
        Ok(docs.iter().flat_map(combine).collect())
    }

    /// The events of a load that ends after this time.
    fn events(&self, ends: Duration) -> Result<Vec<EngineEvent>, TomlError> {
        let read = |event: &EventTable| {
            let purge = match event.purge {
                PurgeValue::All(AllKeys::All) => PurgedKeys::All,
                PurgeValue::One(key) => PurgedKeys::One(key.get() - 1),
            };
            Ok(Some((purge, event.invalidate.map_or(Invalidation::Hard, InvalidateName::read))))
        };
        let events = within_load(&self.event, ends, |event| event.at.0.0, read)?;
        let event = |(at, (purge, invalidation))| EngineEvent { at, purge, invalidation };
        Ok(events.into_iter().map(event).collect())
    }

    /// The configured clock; by default that of the source.
    fn clock(&self) -> Result<ClockKind, TomlError> {
        let is_simulated = self.origin.source.0.kind().is_simulated;
        match &self.target.clock {
            None if is_simulated => Ok(ClockKind::Virtual),
            None => Ok(ClockKind::Live),
            Some(clock) => match clock.get_ref() {
                ClockName::Live => Ok(ClockKind::Live),
                ClockName::Virtual if is_simulated => Ok(ClockKind::Virtual),
                ClockName::Virtual => Err(TomlError {
                    message: "a real source answers in real time".to_owned(),
                    span: Some(clock.span()),
                    help: Some("write clock = \"live\", or [origin] source = \"simulated:\"".to_owned()),
                }),
            },
        }
    }
}

fn target<L>(source: &SourceUrl, load: L) -> Box<dyn Target>
where
    EngineTarget<L>: Target,
{
    Box::new(EngineTarget { source: source.clone(), load })
}

/// Refuses a shared tier in virtual time.
fn live_only(clock: ClockKind, tier: TierSettings, span: Span) -> Result<TierSettings, TomlError> {
    match clock {
        ClockKind::Live => Ok(tier),
        ClockKind::Virtual => Err(TomlError {
            message: "a shared tier answers in real time".to_owned(),
            span,
            help: Some("write clock = \"live\" into [target], or name a real source in [origin]".to_owned()),
        }),
    }
}

bounded_integers! {
    pub(crate) Workers: 1.., "a burst has one worker at least";
}

pub(super) struct OneOrMany<T>(Vec<T>);

impl<T> OneOrMany<T> {
    /// Every value, converted.
    pub(super) fn values<U>(&self, of: impl Fn(&T) -> U) -> Vec<U> {
        self.0.iter().map(of).collect()
    }
}

impl<'de, T: Deserialize<'de> + PartialEq> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
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
        from.deserialize_any(Visitor(PhantomData)).map(Self)
    }
}
