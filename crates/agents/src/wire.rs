//! Subjects and messages, in JSON.
//!
//! | subject | from, to | content |
//! |---|---|---|
//! | `S.discover` | coordinator to all agents | answered with an [`AgentInfo`] |
//! | `S.agent.ID` | coordinator to an agent | a [`Request`], answered with a [`Reply`] |
//! | `S.run.RUN.control` | coordinator to the agents of a run | [`ControlMessage`] |
//! | `S.run.RUN.status.ID` | agent to the coordinator | [`Status`] |
//! | `S.record.RUN.ID` | agent to the stream `S-records` | [`Record`], with the message id `RUN/ID/SECOND` |
//!
//! The load of a run is in the object store `S-loads`, under the id of the run.

use std::{num::NonZeroU32, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_load::generator::{GeneratorEnd, GeneratorSecond, Share};

use crate::clock::Nanos;

/// Agents and coordinators of different versions refuse each other.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");

/// Between two signs of life, of the coordinator and of each agent.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_millis(250);
/// Without a sign of life for so long, an agent is lost, and so is a coordinator.
pub(crate) const LOST_AFTER: Duration = Duration::from_millis(1_500);

/// The first part of all subjects: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject(String);

/// A text is no [`Subject`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no subject: write letters, digits, `-` and `_`, such as `stockade`")]
pub struct SubjectError(String);

impl Default for Subject {
    fn default() -> Self {
        Self("stockade".to_owned())
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_valid) {
            return Err(SubjectError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Subject {
    pub(crate) fn discover(&self) -> String {
        format!("{}.discover", self.0)
    }

    pub(crate) fn agent(&self, id: &str) -> String {
        format!("{}.agent.{id}", self.0)
    }

    pub(crate) fn control(&self, run: &str) -> String {
        format!("{}.run.{run}.control", self.0)
    }

    /// `*` as the id: of all agents.
    pub(crate) fn status(&self, run: &str, id: &str) -> String {
        format!("{}.run.{run}.status.{id}", self.0)
    }

    /// `*` as the id: of all agents.
    pub(crate) fn record(&self, run: &str, id: &str) -> String {
        format!("{}.record.{run}.{id}", self.0)
    }

    pub(crate) fn all_records(&self) -> String {
        format!("{}.record.>", self.0)
    }

    pub(crate) fn records_stream(&self) -> String {
        format!("{}-records", self.0)
    }

    pub(crate) fn loads_store(&self) -> String {
        format!("{}-loads", self.0)
    }
}

/// An agent, as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// Unique, for each process.
    pub id: String,
    /// For people.
    pub name: String,
    /// Of the program and its messages.
    pub version: String,
    /// Its part of a load, relative to the weights of the others.
    pub weight: NonZeroU32,
    /// For placement.
    pub labels: Vec<String>,
    /// The servers that it may reach.
    pub allowed: String,
    /// True while it has a run.
    pub is_busy: bool,
}

/// A request to one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// A reading of its clock.
    Clock,
    /// Fetch the load of this run, and prepare this share of it. It ends by itself unless signs of life follow.
    Prepare { run: String, share: Share },
    /// All agents are ready for this segment, which starts at this time of the agent's clock, and of the coordinator's.
    Start { run: String, segment: usize, at: Nanos, by_coordinator: Nanos },
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Clock(Nanos),
    Accepted,
    /// The reason, for people.
    Refused(String),
}

/// A message to all agents of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlMessage {
    /// The coordinator is there: each agent may send for [`LOST_AFTER`].
    Alive,
    Stop,
}

/// A message of an agent of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Status {
    /// `ready`: the last segment for which all its threads are ready.
    Alive { ready: Option<usize> },
    /// The load cannot be run, or ended with an error.
    Failed { reason: String },
}

/// A message of the record of a run. Times count from the start of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Record {
    Second(Box<GeneratorSecond>),
    End {
        /// The number of seconds before it.
        seconds: u64,
        end: Box<GeneratorEnd>,
        /// Why it ended early, unless the coordinator stopped it.
        fault: Option<String>,
    },
}

impl Record {
    /// The last part of its message id.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Second(second) => second.second,
            Self::End { seconds, .. } => *seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_no_wildcards() {
        for text in ["", "a.b", "a*", "a>", "a b", "ü"] {
            assert!(text.parse::<Subject>().is_err(), "{text:?}");
        }
        assert_eq!("team-1".parse::<Subject>().unwrap().record("r", "*"), "team-1.record.r.*");
    }
}
