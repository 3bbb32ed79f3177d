//! `[origin]` of the engine.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::spec::{
    TomlError,
    value::{DurationValue, TextValue, bounded_integers},
};
use stockade_model::{capacity::Capacity, latency::Latency, units::format_duration};
use stockade_source::{Availability, SourceBehavior, SourceStage, SourceStages, SourceUrl};
use toml::Spanned;

#[cfg(feature = "schema")]
use super::schema::{LatencyText, SourceText};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct OriginTable {
    /// URL of the documents. Default: "sqlite:", a generated database.
    #[cfg_attr(feature = "schema", schemars(with = "SourceText"))]
    pub(super) source: TextValue<SourceUrl>,
    /// Time of each fetch: a duration or a distribution. Default: "0".
    #[cfg_attr(feature = "schema", schemars(with = "LatencyText"))]
    latency: TextValue<Latency>,
    /// Fetches at once. Default: unlimited.
    capacity: Option<CapacityTable>,
    /// Changes over time, in the order of time.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<StageTable>"))]
    stage: Vec<Spanned<StageTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct CapacityTable {
    /// Fetches at once, 1 to 1000000.
    workers: SourceWorkers,
    /// Fetches that may wait, 0 to 1000000. Further ones fail at once.
    queue: Queue,
}

bounded_integers! {
    pub(crate) SourceWorkers: 1..=1_000_000, "an origin has 1 to 1,000,000 workers";
    pub(crate) Queue: 0..=1_000_000, "a queue has room for 0 to 1,000,000 fetches";
}

/// A change of the behaviour and its time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct StageTable {
    /// Start, counted from the start of the load.
    at: TextValue<DurationValue>,
    /// Time of each fetch. Default: as before.
    #[cfg_attr(feature = "schema", schemars(with = "Option<LatencyText>"))]
    latency: Option<TextValue<Latency>>,
    /// Share of the fetches that fail after their latency, 0 to 1. Default: as before.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>", range(min = 0, max = 1)))]
    errors: Option<ErrorShare>,
    /// `up`, `refusing` (fetches fail at once) or `silent` (no fetch ends). Default: as before.
    state: Option<StateName>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum StateName {
    Up,
    Refusing,
    Silent,
}

#[derive(Clone, Copy)]
struct ErrorShare(f64);

impl<'de> Deserialize<'de> for ErrorShare {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(D::Error::custom("a share of fetches is from 0 to 1: write 0.5 for every other one"));
        }
        Ok(Self(share))
    }
}

impl OriginTable {
    /// Refuses a stage after the end of the load.
    pub(super) fn check_within(&self, lasts: Duration) -> Result<(), TomlError> {
        let Some(late) = self.stage.iter().find(|stage| stage.get_ref().at.0.0 >= lasts) else {
            return Ok(());
        };
        let lasts = format_duration(lasts);
        let message = format!("this stage begins after the load, which takes {lasts}: write an earlier time");
        Err(TomlError::new(message, Some(late.span())))
    }

    /// The complete state of every stage; a file states only the changes.
    pub(super) fn source_behavior(&self) -> Result<SourceBehavior, TomlError> {
        let first = SourceStage { latency: self.latency.0.clone(), ..SourceStage::default() };
        let (mut last, mut later) = (first.clone(), Vec::new());
        for written in &self.stage {
            let stage = written.get_ref();
            let at = stage.at.0.0;
            if !later.is_empty() && at <= last.at {
                let message =
                    "this stage begins no later than the one before: write stages in the order of time";
                return Err(TomlError::new(message, Some(written.span())));
            }
            last = SourceStage {
                at,
                latency: stage.latency.as_ref().map_or(last.latency, |latency| latency.0.clone()),
                errors: stage.errors.map_or(last.errors, |share| share.0),
                state: match stage.state {
                    None => last.state,
                    Some(StateName::Up) => Availability::Up,
                    Some(StateName::Refusing) => Availability::Refusing,
                    Some(StateName::Silent) => Availability::Silent,
                },
            };
            later.push(last.clone());
        }
        let capacity = self.capacity.as_ref();
        let capacity = capacity.map(|table| Capacity { workers: table.workers.0, queue: table.queue.0 });
        Ok(SourceBehavior { stages: SourceStages::new(first, later), capacity })
    }
}
