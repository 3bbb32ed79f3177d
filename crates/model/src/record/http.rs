//! What only a run over HTTP leaves, whose parts are processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A part of a run over HTTP, in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends the requests: `stockade run` itself.
    Load,
    /// The cache.
    Proxy,
    /// Where the answers come from.
    Origin,
}

impl Role {
    /// In the order in which a request meets them.
    pub const ALL: [Self; 3] = [Self::Load, Self::Proxy, Self::Origin];

    /// As expressions, records and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Proxy => "proxy",
            Self::Origin => "origin",
        }
    }
}

/// What only a run over HTTP has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpFigures {
    /// Requests by the status of their answers; 0: there was none.
    pub status_codes: BTreeMap<u16, u64>,
    /// Connections that the load opened.
    pub connections: u64,
    /// Requests that were under way when the schedule was over.
    pub in_flight_at_end: u64,
    /// Requests that were sent only then: too many others were under way.
    #[serde(default)]
    pub sent_after_end: u64,
    /// How many users asked, each when there was an answer; absent: requests came when they were due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<usize>,
    /// From when the first request was due until the last one was.
    #[serde(default)]
    pub attack_ms: f64,
    /// From then until the last one was done.
    #[serde(default)]
    pub wait_ms: f64,
    /// Bytes of bodies as they came, packed or not.
    #[serde(default)]
    pub wire_bytes_in: u64,
    /// The share of this machine's processor time that its host gave to others meanwhile; absent: nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// Who tells what the cache did.
    #[serde(default)]
    pub tells: Tells,
    /// What was asked apart from the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Why it does not tell what it seems to tell: the generator was the bottleneck, or a probe was answered otherwise than
    /// meant. None: it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid: Vec<String>,
}

/// Who tells what a cache did that is a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tells {
    /// It does so itself.
    #[default]
    Cache,
    /// Its origin, of its loads.
    Origin,
    /// Nobody.
    Nobody,
}

/// A request that was asked apart from the load, and is not counted with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// When it was due, counted from the load's start; absent: before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<f64>,
    /// What it was for.
    pub path: String,
    /// The status that was meant to come.
    pub expected: u16,
    /// The status that came; absent: none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// How long it took.
    pub took_ms: f64,
}

/// What a process was seen to use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of it in memory, at the end of the second.
    pub rss_bytes: u64,
    /// Cores' worth of processor time in the second; 1.0 is one core.
    pub cpu: f64,
}

/// What the cache was seen to hold at the end of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// How many entries.
    pub entries: u64,
    /// How many bytes its limit counts, where it counts any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How often it has cleared room since it was started.
    #[serde(default)]
    pub reclaims: u64,
    /// How many requests have waited for another's load since then.
    #[serde(default)]
    pub waiters: u64,
}
