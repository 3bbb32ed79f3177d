//! How an origin behaves, as a function of time: stages. No clock, no lock.

use std::time::Duration;

use stockade_model::{capacity::Capacity, latency::Latency, units::stretched};

/// What an origin does to those who ask it, from some moment on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// When it begins, counted from the start of the load.
    pub at: Duration,
    /// How long a worker of the origin takes for one fetch.
    pub latency: Latency,
    /// The share of fetches that fail when that time is over, 0 to 1.
    pub errors: f64,
    /// Whether the origin can be reached at all.
    pub state: State,
}

/// Whether an origin can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It takes every fetch.
    #[default]
    Up,
    /// It turns every fetch away at once, as a port that nobody listens on.
    Refusing,
    /// It takes every fetch and never answers it, as a network that swallows packets.
    Silent,
}

/// Stages in the order of time; the first begins at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages(Vec<Stage>);

impl Stages {
    /// From the stage that there is at 0, and the later ones in ascending order.
    #[must_use]
    pub fn new(first: Stage, later: impl IntoIterator<Item = Stage>) -> Self {
        let mut stages = vec![Stage { at: Duration::ZERO, ..first }];
        stages.extend(later);
        stages.sort_by_key(|stage| stage.at);
        Self(stages)
    }

    /// The stage at a moment: the last one that has begun.
    #[must_use]
    pub fn at(&self, elapsed: Duration) -> &Stage {
        let begun = self.0.partition_point(|stage| stage.at <= elapsed);
        &self.0[begun.saturating_sub(1)]
    }

    /// The same stages, each beginning `factor` times as late.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        let stage = |stage: &Stage| Stage { at: stretched(stage.at, factor), ..stage.clone() };
        Self(self.0.iter().map(stage).collect())
    }
}

impl From<Latency> for Stages {
    /// One stage for ever.
    fn from(latency: Latency) -> Self {
        Self::new(Stage { latency, ..Stage::default() }, [])
    }
}

/// All that is to be known of an origin's behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct Conduct {
    /// What it does when.
    pub stages: Stages,
    /// What it can do at once; `None`: anything.
    pub capacity: Option<Capacity>,
}

impl From<Latency> for Conduct {
    /// Always as slow, for any number at once.
    fn from(latency: Latency) -> Self {
        Self { stages: latency.into(), capacity: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stage_lasts_until_the_next_begins() {
        let slow = Stage { at: SECOND * 60, latency: "500ms".parse().unwrap(), ..Stage::default() };
        let gone = Stage { at: SECOND * 90, state: State::Refusing, ..slow.clone() };
        let stages = Stages::new(Stage::default(), [gone.clone(), slow.clone()]);
        let first = Stage::default();
        for (at, stage) in [(0, &first), (59, &first), (60, &slow), (89, &slow), (90, &gone), (9_000, &gone)]
        {
            assert_eq!(stages.at(SECOND * at), stage, "{at} s");
        }
        assert_eq!(*stages.stretched(0.1).at(SECOND * 9), Stage { at: SECOND * 9, ..gone });
    }
}
