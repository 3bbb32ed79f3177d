//! Cells of the target `fleet`.

use std::{ops::Range, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::{
    EvictionOrder, Fetch, Policy, Refresh, StoreMode, Strategy, Writer,
    spec::{
        Span, TomlError,
        value::{DurationValue, TextValue, bounded_integers, table_or_none},
    },
};
use stockade_load::schedule::{Rate, Schedule};
use stockade_model::{latency::Latency, units::format_duration};
use stockade_record::record::ClockKind;
use toml::Spanned;

#[cfg(feature = "schema")]
use super::schema::{LatencyText, PopularityForms, RateText};
use super::{
    Cell, KeySpans,
    cache::{self, CacheTables},
    event::within_load,
    load::{ArrivalsKey, PaceKeys, PopularityTable, StepTable},
    tables::{self, TomlTable},
    targets::CellNames,
};
use crate::{
    engine::{Popularity, TrafficLimitError},
    fleet::{Fleet, FleetEvent, FleetEventKind, FleetTier, NodeCache, Route},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct FleetTables {
    #[expect(dead_code, reason = "its only key names the kind")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    target: FleetTargetTable,
    /// Kind `fleet`: the nodes.
    fleet: FleetTable,
    /// Events during the load.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<EventTable>"))]
    event: Vec<Spanned<EventTable>>,
    #[serde(default)]
    origin: FleetOriginTable,
    #[cfg_attr(feature = "schema", schemars(with = "Option<CacheTables>"))]
    cache: Option<Spanned<CacheTables>>,
    #[cfg_attr(feature = "schema", schemars(with = "FleetLoadTable"))]
    load: Spanned<FleetLoadTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetTargetTable {
    #[expect(dead_code, reason = "the registry has read it")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct FleetTable {
    /// Number of nodes, 1 to 100000.
    nodes: Nodes,
    /// Node of a request: any ("random"), or one for each key ("consistent-hash"). Default: "random".
    #[serde(default)]
    route: RouteName,
    /// Store below the memories of all nodes, without a limit, or "none". Default: "none".
    #[serde(default)]
    shared_tier: SharedTierTable,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum RouteName {
    #[default]
    Random,
    ConsistentHash,
}

/// `None`: `"none"`.
#[derive(Default)]
struct SharedTierTable(Option<SharedTierKeys>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct SharedTierKeys {
    /// Time of a lookup and of a store.
    latency: TextValue<DurationValue>,
    /// True: one node loads a key, the others wait for its value. Default: true.
    locks: Option<bool>,
}

impl<'de> Deserialize<'de> for SharedTierTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table_or_none(from, "shared_tier", "{ latency = \"1ms\", locks = true }").map(Self)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for SharedTierTable {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SharedTier".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let table = generator.subschema_for::<SharedTierKeys>();
        schemars::json_schema!({ "anyOf": [table, { "const": "none" }] })
    }
}

/// Something that happens to the fleet, and its time: one of `purge`, `restart` and `flush`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct EventTable {
    /// Time since the start of the load.
    at: TextValue<DurationValue>,
    /// All values are invalidated, on the nodes and in the shared tier.
    purge: Option<PurgedPages>,
    /// All nodes lose their memories at once.
    restart: Option<RestartedPart>,
    /// The shared tier loses all values.
    flush: Option<FlushedPart>,
}

#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum PurgedPages {
    #[serde(rename = "*")]
    All,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum RestartedPart {
    Nodes,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum FlushedPart {
    SharedTier,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct FleetOriginTable {
    #[cfg_attr(feature = "schema", schemars(with = "LatencyText"))]
    latency: FleetLatency,
}

#[derive(Default)]
struct FleetLatency(Latency);

impl<'de> Deserialize<'de> for FleetLatency {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let TextValue(latency) = TextValue::<Latency>::deserialize(from)?;
        if latency.max().is_none() {
            let message = "the origin of a fleet has a longest latency: write \"50ms\" or \"20ms..80ms\"";
            return Err(D::Error::custom(message));
        }
        Ok(Self(latency))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct FleetLoadTable {
    #[cfg_attr(feature = "schema", schemars(with = "Option<RateText>"))]
    rate: Option<Spanned<TextValue<Rate>>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<StepTable>>"))]
    steps: Option<Spanned<Vec<StepTable>>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<DurationValue>>"))]
    duration: Option<Spanned<TextValue<DurationValue>>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<ArrivalsKey>"))]
    arrivals: Option<Spanned<ArrivalsKey>>,
    #[cfg_attr(feature = "schema", schemars(with = "FleetKeys"))]
    keys: FleetKeys,
    #[cfg_attr(feature = "schema", schemars(with = "Option<PopularityForms>"))]
    popularity: Option<PopularityTable>,
}

bounded_integers! {
    pub(crate) Nodes: 1..=100_000, "a fleet has 1 to 100,000 nodes";
    pub(crate) FleetKeys: 1..=10_000_000_000, "a fleet has 1 to 10,000,000,000 keys";
}

/// Reads the tables of one test and arm of the target `fleet`.
pub(super) fn read(
    table: TomlTable<'_>,
    layer: CellNames<'_>,
    span: Range<usize>,
) -> Result<Vec<Cell>, TomlError> {
    let tables: FleetTables = tables::read(table, span)?;
    let (schedule, at) = tables.load.get_ref().schedule(Some(tables.load.span()))?;
    let fleet = Fleet {
        name: layer.arm.to_owned(),
        nodes: u32::try_from(tables.fleet.nodes.0).unwrap_or(u32::MAX),
        route: match tables.fleet.route {
            RouteName::Random => Route::Random,
            RouteName::ConsistentHash => Route::ConsistentHash,
        },
        tier: tables.fleet.tier(),
        events: tables.events(schedule.duration())?,
        cache: node_cache(tables.cache.as_ref())?,
        origin: tables.origin.latency.0,
        keys: tables.load.get_ref().keys.0 as u64,
        popularity: tables
            .load
            .get_ref()
            .popularity
            .as_ref()
            .map_or(Popularity::Uniform, PopularityTable::read),
        schedule,
    };
    fleet.check_schedule().map_err(|limit| {
        let remedy = if let TrafficLimitError::Schedule(limit) = limit { limit.remedy() } else { "shorter" };
        TomlError::new(format!("{limit}: write a {remedy} time"), at)
    })?;
    check_waits(&fleet, tables.cache.as_ref())?;
    let (test, arm) = (layer.test.to_owned(), layer.arm.to_owned());
    let (clock, spans) = (ClockKind::Virtual, KeySpans::default());
    Ok(vec![Cell { test, arm, clock, target: Box::new(fleet), spans }])
}

impl FleetTable {
    fn tier(&self) -> Option<FleetTier> {
        let table = self.shared_tier.0.as_ref()?;
        Some(FleetTier { latency: table.latency.0.0, locks: table.locks.unwrap_or(true) })
    }
}

impl FleetTables {
    fn events(&self, lasts: Duration) -> Result<Vec<FleetEvent>, TomlError> {
        let kind = |event: &EventTable| match (event.purge, event.restart, event.flush) {
            // An arm without the tier has the events of the others.
            (None, None, Some(FlushedPart::SharedTier)) => {
                Ok(self.fleet.shared_tier.0.is_some().then_some(FleetEventKind::FlushSharedTier))
            }
            (Some(PurgedPages::All), None, None) => Ok(Some(FleetEventKind::Purge)),
            (None, Some(RestartedPart::Nodes), None) => Ok(Some(FleetEventKind::RestartNodes)),
            _ => {
                let kinds = "`purge = \"*\"`, `restart = \"nodes\"` and `flush = \"shared-tier\"`";
                Err(format!("the event of a fleet is one of {kinds}"))
            }
        };
        let events = within_load(&self.event, lasts, |event| event.at.0.0, kind)?;
        Ok(events.into_iter().map(|(at, kind)| FleetEvent { at, kind }).collect())
    }
}

impl FleetLoadTable {
    /// Poisson arrivals at the rate of the file, and the place of their duration.
    fn schedule(&self, at: Span) -> Result<(Schedule, Span), TomlError> {
        if let Some(arrivals) = self.arrivals.as_ref()
            && let ArrivalsKey::Constant = arrivals.get_ref()
        {
            let message =
                "the requests of a fleet come at random: write arrivals = \"poisson\", or leave it out";
            return Err(TomlError::new(message, Some(arrivals.span())));
        }
        let poisson = Spanned::new(0..0, ArrivalsKey::Poisson);
        let pace = PaceKeys {
            rate: self.rate.as_ref(),
            steps: self.steps.as_ref(),
            duration: self.duration.as_ref(),
            arrivals: Some(&poisson),
        };
        pace.schedule(at)
    }
}

/// The cache of each node: the axes of the strategy that a fleet simulates. Others are refused.
fn node_cache(table: Option<&Spanned<CacheTables>>) -> Result<NodeCache, TomlError> {
    let strategy = match table {
        Some(cache) => cache::strategy(cache.get_ref(), Some(cache.span()))?,
        None => Strategy::preset("none").expect("it is a preset"),
    };
    let at: Span = table.map(Spanned::span);
    let refused = |what: &str, remedy: &str, at: &Span| TomlError {
        message: format!("a fleet does not simulate {what}"),
        help: Some(remedy.to_owned()),
        span: at.clone(),
    };
    if let Some(shared) = table.and_then(|table| table.get_ref().shared.as_ref()) {
        let remedy = "write [fleet] shared_tier = { latency = \"1ms\" }, and leave `shared` out";
        return Err(refused("a tier with a URL", remedy, &Some(shared.span())));
    }
    if let Some(memory) = table.and_then(|table| table.get_ref().memory.as_ref()) {
        return Err(refused("nodes without memory", "leave `memory` out", &Some(memory.span())));
    }
    let coalesces = matches!(strategy.fetch, Fetch::Coalesce { .. });
    let unsupported = [
        (strategy.store != StoreMode::Sync, "`store` modes", "write store = \"sync\""),
        (strategy.writer != Writer::Direct, "a mailbox", "write writer = \"direct\""),
        (strategy.breaker.is_some(), "failures, so no breaker either", "write breaker = \"none\""),
        (!strategy.sie.is_zero(), "failures, so no `sie` either", "write sie = \"0\""),
        (strategy.load.soft_timeout.is_some(), "`soft_timeout`", "write load = { soft_timeout = \"none\" }"),
        (strategy.load.hedge_after.is_some(), "`hedge_after`", "write load = { hedge_after = \"none\" }"),
        (strategy.load.max_concurrent.is_some(), "`max_concurrent`", "leave it out"),
        (
            !coalesces && (strategy.refresh != Refresh::None || !strategy.swr.is_zero()),
            "a refresh by each request",
            "write fetch = { coalesce = { wait_timeout = \"5s\" } }",
        ),
    ];
    if let Some((_, what, remedy)) = unsupported.into_iter().find(|(is_set, ..)| *is_set) {
        return Err(refused(what, remedy, &at));
    }
    let early = match strategy.refresh {
        Refresh::None => None,
        Refresh::Early { at } => Some(at),
        Refresh::XFetch { .. } => {
            return Err(refused("xfetch", "write refresh = { early = { at = 0.8 } }", &at));
        }
    };
    let entries = match &strategy.limit {
        None => None,
        Some(limit) => {
            let at = table.and_then(|table| table.get_ref().limit_span());
            let remedy = "write limit = { entries = 10_000 }";
            let other = [
                (limit.bytes.is_some(), "a limit in bytes"),
                (*limit.policy != *Policy::SIEVE, "other policies than sieve"),
                (limit.reclaim > 0.0, "`reclaim`"),
                (limit.order != EvictionOrder::PerShard, "a global order"),
                (limit.entries > Some(Fleet::ENTRIES_MAX), "limits of more than 1,000,000 entries"),
            ];
            if let Some((_, what)) = other.into_iter().find(|(is_set, _)| *is_set) {
                return Err(refused(what, remedy, &at));
            }
            limit.entries
        }
    };
    let Strategy { ttl, jitter, swr, .. } = strategy;
    Ok(NodeCache { coalesces, ttl, jitter, early, swr, entries })
}

/// Refuses waits that end with an error, which a fleet does not simulate.
fn check_waits(fleet: &Fleet, table: Option<&Spanned<CacheTables>>) -> Result<(), TomlError> {
    let Some(table) = table else { return Ok(()) };
    let at = Some(table.span());
    let strategy = cache::strategy(table.get_ref(), at.clone())?;
    let longest = fleet.longest_response();
    let refused = |what: &str, bound: Duration| {
        let (bound, longest) = (format_duration(bound), format_duration(longest));
        let message = format!(
            "requests may wait for {longest}, and {what} is {bound}: a fleet does not simulate failures"
        );
        Err(TomlError {
            message,
            span: at.clone(),
            help: Some(format!("write a longer {what}, or a shorter latency")),
        })
    };
    match strategy.fetch {
        Fetch::Coalesce { wait_timeout, .. } if wait_timeout < longest => {
            refused("`wait_timeout`", wait_timeout)
        }
        _ if strategy.load.deadline < longest => refused("`deadline`", strategy.load.deadline),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
