//! `[origin]`, as it is written.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::spec::{
    Wrong,
    written::{Plain, Text, counted},
};
use stockade_model::{capacity::Capacity, latency::Latency, units::format_duration};
use stockade_source::{Conduct, SourceUrl, Stage, Stages, State};
use toml::Spanned;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Origin {
    pub(super) source: Text<SourceUrl>,
    latency: Text<Latency>,
    capacity: Option<CapacityTable>,
    stage: Vec<Spanned<StageTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityTable {
    workers: Workers,
    queue: Queue,
}

counted! {
    /// How many fetches it works on at once.
    Workers: 1..=1_000_000, "an origin has 1 to 1,000,000 workers";
    /// How many may wait.
    Queue: 0..=1_000_000, "a queue has room for 0 to 1,000,000 fetches";
}

/// What changes, and when.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageTable {
    at: Text<Plain>,
    latency: Option<Text<Latency>>,
    errors: Option<Share>,
    state: Option<StateName>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StateName {
    Up,
    Refusing,
    Silent,
}

/// A share of fetches.
#[derive(Clone, Copy)]
struct Share(f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(D::Error::custom("a share of fetches is from 0 to 1: write 0.5 for every other one"));
        }
        Ok(Self(share))
    }
}

impl Origin {
    /// Refuses a stage that nobody would see.
    pub(super) fn check_within(&self, lasts: Duration) -> Result<(), Wrong> {
        let Some(late) = self.stage.iter().find(|stage| stage.get_ref().at.0.0 >= lasts) else {
            return Ok(());
        };
        let lasts = format_duration(lasts);
        let message = format!("this stage begins after the load, which takes {lasts}: write an earlier time");
        Err(Wrong::new(message, Some(late.span())))
    }

    /// Every stage as it is, not as it differs from the one before.
    pub(super) fn conduct(&self) -> Result<Conduct, Wrong> {
        let first = Stage { latency: self.latency.0.clone(), ..Stage::default() };
        let (mut last, mut later) = (first.clone(), Vec::new());
        for written in &self.stage {
            let stage = written.get_ref();
            let at = stage.at.0.0;
            if !later.is_empty() && at <= last.at {
                let message =
                    "this stage begins no later than the one before: write stages in the order of time";
                return Err(Wrong::new(message, Some(written.span())));
            }
            last = Stage {
                at,
                latency: stage.latency.as_ref().map_or(last.latency, |latency| latency.0.clone()),
                errors: stage.errors.map_or(last.errors, |share| share.0),
                state: match stage.state {
                    None => last.state,
                    Some(StateName::Up) => State::Up,
                    Some(StateName::Refusing) => State::Refusing,
                    Some(StateName::Silent) => State::Silent,
                },
            };
            later.push(last.clone());
        }
        let capacity = self.capacity.as_ref();
        let capacity = capacity.map(|table| Capacity { workers: table.workers.0, queue: table.queue.0 });
        Ok(Conduct { stages: Stages::new(first, later), capacity })
    }
}
