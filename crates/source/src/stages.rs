//! The behavior of an origin as a function of time: stages. Pure.

use std::time::Duration;

use stockade_model::{capacity::Capacity, latency::Latency, units::stretched};

/// The behavior of an origin from some moment on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceStage {
    /// Start of the stage, relative to the start of the load.
    pub at: Duration,
    /// Service time of one fetch.
    pub latency: Latency,
    /// Share of fetches that fail at the end of their service time, 0 to 1.
    pub errors: f64,
    pub state: Availability,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// Accepts each fetch.
    #[default]
    Up,
    /// Rejects each fetch at once, like a closed port.
    Refusing,
    /// Accepts each fetch and never responds, like a network that drops packets.
    Silent,
}

/// Stages in the order of time. The first one starts at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStages(Vec<SourceStage>);

impl SourceStages {
    /// `first` starts at 0, whatever its `at`.
    #[must_use]
    pub fn new(first: SourceStage, later: impl IntoIterator<Item = SourceStage>) -> Self {
        let mut stages = vec![SourceStage { at: Duration::ZERO, ..first }];
        stages.extend(later);
        stages.sort_by_key(|stage| stage.at);
        Self(stages)
    }

    /// The last stage that has started by `time`.
    #[must_use]
    pub fn at(&self, elapsed: Duration) -> &SourceStage {
        let begun = self.0.partition_point(|stage| stage.at <= elapsed);
        &self.0[begun.saturating_sub(1)]
    }

    /// In the order of time; one at least.
    pub fn iter(&self) -> impl Iterator<Item = &SourceStage> {
        self.0.iter()
    }

    /// Multiplies the start of each stage by `factor`.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        let stage = |stage: &SourceStage| SourceStage { at: stretched(stage.at, factor), ..stage.clone() };
        Self(self.0.iter().map(stage).collect())
    }
}

impl From<Latency> for SourceStages {
    /// One stage without an end.
    fn from(latency: Latency) -> Self {
        Self::new(SourceStage { latency, ..SourceStage::default() }, [])
    }
}

/// The behavior of an origin over time and under load.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceBehavior {
    pub stages: SourceStages,
    /// `None`: unlimited.
    pub capacity: Option<Capacity>,
}

impl From<Latency> for SourceBehavior {
    /// Constant latency and unlimited capacity.
    fn from(latency: Latency) -> Self {
        Self { stages: latency.into(), capacity: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn stage_lasts_until_the_next_one_starts() {
        let slow =
            SourceStage { at: SECOND * 60, latency: "500ms".parse().unwrap(), ..SourceStage::default() };
        let gone = SourceStage { at: SECOND * 90, state: Availability::Refusing, ..slow.clone() };
        let stages = SourceStages::new(SourceStage::default(), [gone.clone(), slow.clone()]);
        let first = SourceStage::default();
        for (at, stage) in [(0, &first), (59, &first), (60, &slow), (89, &slow), (90, &gone), (9_000, &gone)]
        {
            assert_eq!(stages.at(SECOND * at), stage, "{at} s");
        }
        assert_eq!(*stages.stretched(0.1).at(SECOND * 9), SourceStage { at: SECOND * 9, ..gone });
    }
}
