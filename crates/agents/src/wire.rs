//! Subjects and messages, in JSON.
//!
//! | subject | from, to | content |
//! |---|---|---|
//! | `S.discover` | coordinator to all agents | answered with an [`AgentInfo`] |
//! | `S.agent.ID` | coordinator to an agent | a [`AgentRequest`], answered with a [`AgentReply`] |
//! | `S.run.RUN.control` | coordinator to the agents of a run | [`ControlMessage`] |
//! | `S.run.RUN.status.ID` | agent to the coordinator | [`AgentStatus`] |
//! | `S.record.RUN.ID` | agent to the stream `S-records` | [`RecordPart`], with the message id `RUN/ID/SECOND` |
//!
//! A load is a run, and so are the servers of a coordinator, all together. The load of a run is in the object store `S-loads`, under the id of the run.

use std::{net::IpAddr, num::NonZeroU32, str::FromStr, time::Duration};

use bytes::Bytes;
use rand::random;
use serde::{Deserialize, Serialize};
use stockade_load::generator::{GeneratorEnd, GeneratorSecond, Share};
use stockade_record::server::{ProcessReading, ServerOrder};

use crate::clock::Nanos;

/// A coordinator uses agents of its own version only.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/2");

/// Between two signs of life, of the coordinator and of each agent.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_millis(250);
/// Without a sign of life for so long, an agent is lost, and so is a coordinator.
pub(crate) const LOST_AFTER: Duration = Duration::from_millis(1_500);

/// The time until which a sign of life that arrived at `now` is good.
pub(crate) fn lease_from(now: Nanos) -> Nanos {
    now.saturating_add(Nanos::try_from(LOST_AFTER.as_nanos()).unwrap_or(Nanos::MAX))
}

/// The fault of an agent that gave no sign of life for [`LOST_AFTER`].
pub(crate) fn lost_agent_fault(is_coordinator_connected: bool) -> String {
    let seconds = LOST_AFTER.as_secs_f64();
    let cause = if is_coordinator_connected {
        "its process, its machine or its network failed"
    } else {
        "the coordinator has no connection to NATS"
    };
    format!("no sign of life for {seconds} s: {cause}")
}

/// The fault of an agent that stops by itself.
pub(crate) fn silent_coordinator_fault() -> String {
    format!("it heard nothing of the coordinator for {} s, and stopped", LOST_AFTER.as_secs_f64())
}

/// The first part of all subjects: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectPrefix(String);

/// A text is not a [`SubjectPrefix`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a subject: write letters, digits, `-` and `_`, such as `stockade`")]
pub struct SubjectPrefixError(String);

impl Default for SubjectPrefix {
    fn default() -> Self {
        Self("stockade".to_owned())
    }
}

impl FromStr for SubjectPrefix {
    type Err = SubjectPrefixError;

    fn from_str(text: &str) -> Result<Self, SubjectPrefixError> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_valid) {
            return Err(SubjectPrefixError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl SubjectPrefix {
    /// As it is written after the URL of a server; empty for the default.
    pub(crate) fn suffix(&self) -> String {
        if *self == Self::default() { String::new() } else { format!(",{}", self.0) }
    }

    pub(crate) fn discover(&self) -> String {
        format!("{}.discover", self.0)
    }

    pub(crate) fn agent(&self, id: &str) -> String {
        format!("{}.agent.{id}", self.0)
    }

    pub(crate) fn control(&self, run: &RunId) -> String {
        format!("{}.run.{}.control", self.0, run.as_str())
    }

    /// `*` as the id: of all agents.
    pub(crate) fn status(&self, run: &RunId, id: &str) -> String {
        format!("{}.run.{}.status.{id}", self.0, run.as_str())
    }

    /// `*` as the id: of all agents.
    pub(crate) fn record(&self, run: &RunId, id: &str) -> String {
        format!("{}.record.{}.{id}", self.0, run.as_str())
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

/// The id of a run: 16 hexadecimal digits. It is a part of subjects and of names of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RunId(String);

impl RunId {
    pub(crate) fn random() -> Self {
        Self(format!("{:016x}", random::<u64>()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_valid = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_valid { Ok(Self(text)) } else { Err("this is not an id of a run") }
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

/// True if an agent may have this name: it is a part of reports and of names of files.
pub(crate) fn is_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.bytes().all(is_valid)
}

/// A message as bytes.
pub(crate) fn encoded(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).expect("plain values").into()
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
    /// Words by which a coordinator chooses agents.
    pub labels: Vec<String>,
    /// The servers that it may reach.
    pub allowed: String,
    /// Its machine: two agents with the same one have the same loopback interface.
    pub machine: String,
    /// Where it runs origins and proxies, if it does; then it sends no loads.
    pub serves: Option<IpAddr>,
    /// The memory of its machine in MiB; 0: unknown.
    pub memory_mib: u64,
    /// True while it has a run.
    pub is_busy: bool,
}

/// A request to one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum AgentRequest {
    /// A reading of its clock.
    Clock,
    /// Fetch the load of this run, and prepare this share of it. It ends by itself unless signs of life follow.
    Prepare { run: RunId, share: Share },
    /// All agents are ready for this segment, which starts at this time of the agent's clock, and of the coordinator's.
    Start { run: RunId, segment: usize, at: Nanos, by_coordinator: Nanos },
    /// The share from this place of the schedule on. Moves are numbered from 0.
    Move { run: RunId, number: usize, from: u64, share: Share },
    /// Start a server. It ends by itself unless signs of life of the run follow.
    StartServer { run: RunId, server: ServerId, order: ServerOrder },
    /// An admin page of a server.
    Page { run: RunId, server: ServerId, path: String },
    /// The memory and the processor time of a server.
    Reading { run: RunId, server: ServerId },
    /// End a server; answered once its process has ended.
    EndServer { run: RunId, server: ServerId },
}

/// The number of a server in the run of a coordinator, from 0.
pub(crate) type ServerId = u64;

/// The answer to a [`AgentRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AgentReply {
    Clock(Nanos),
    Accepted,
    /// The URL of a server that was started.
    Server(String),
    Page(String),
    Reading(ProcessReading),
    /// A server that could not be started.
    NotStarted {
        reason: String,
        is_usage: bool,
    },
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
pub(crate) enum AgentStatus {
    /// `ready`: the last segment for which all its threads are ready.
    Alive { ready: Option<usize> },
    /// The load cannot be run, or ended with an error; a server has ended.
    Failed { reason: String },
}

/// A message of the record of a run. Times count from the start of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RecordPart {
    Second(Box<GeneratorSecond>),
    End {
        /// The number of seconds before it.
        seconds: u64,
        end: Box<GeneratorEnd>,
        /// Why it ended early, unless the coordinator stopped it.
        fault: Option<String>,
    },
}

impl RecordPart {
    /// True if its figures can be those of a load: others may have written it.
    pub(crate) fn is_plausible(&self) -> bool {
        match self {
            Self::Second(second) => second.is_plausible(),
            Self::End { end, .. } => {
                let reasons = &end.health.invalid_reasons;
                end.rest.is_plausible()
                    && end.health.time_reason_count <= reasons.len()
                    && reasons.len() < 1_000
            }
        }
    }

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
            assert!(text.parse::<SubjectPrefix>().is_err(), "{text:?}");
        }
        let run = RunId::try_from("0123456789abcdef".to_owned()).unwrap();
        assert_eq!(
            "team-1".parse::<SubjectPrefix>().unwrap().record(&run, "*"),
            "team-1.record.0123456789abcdef.*"
        );
    }

    #[test]
    fn ids_and_names_lead_out_of_no_folder() {
        for text in ["", "*", ">", "/etc/cron.d/x", "../x", "0123456789abcde/", "0123456789abcdef0"] {
            assert!(serde_json::from_value::<RunId>(text.into()).is_err(), "{text:?}");
            assert!(!is_name(text) || text == "0123456789abcdef0", "{text:?}");
        }
        assert!(is_name("web-1.example") && !is_name(".") && !is_name("a\u{1b}[2J"));
    }
}
