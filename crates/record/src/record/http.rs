//! Figures of runs over HTTP, in which each part is a process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Accounting, AgentFigures};

/// A part of a run over HTTP, in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// `stockade run` itself sends the requests.
    Load,
    Proxy,
    Origin,
}

impl Role {
    /// In the order in which a request passes them.
    pub const ALL: [Self; 3] = [Self::Load, Self::Proxy, Self::Origin];

    /// The name in expressions, records and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Proxy => "proxy",
            Self::Origin => "origin",
        }
    }
}

/// Processor time that something else took in a second of a load. A share of 0 is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Share of the machine's processor time that the hypervisor gave to other machines.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub stolen: f64,
    /// Share of the second in which the run's control group had used up its quota.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub throttled: f64,
    /// Share of the machine's processor time that other processes used while the run's processes waited.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub others: f64,
    /// A process of the run that was stopped (SIGSTOP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Role>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_nothing(share: &f64) -> bool {
    *share <= 0.0
}

/// Figures of a run over HTTP only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpFigures {
    /// The machines that sent the load; none: this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentFigures>,
    /// The agents that ran servers, by role; a server that is absent ran on this machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<Role, String>,
    /// Requests by status; 0: no response.
    pub status_codes: BTreeMap<u16, u64>,
    /// Connections that the load opened.
    pub connections: u64,
    /// Requests in flight at the end of the schedule.
    pub in_flight_at_end: u64,
    /// Requests that were sent after the end of the schedule because too many others were in flight.
    #[serde(default)]
    pub sent_after_end: u64,
    /// Users of a closed loop; absent: an open load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<usize>,
    /// Time between the due times of the first and the last request.
    #[serde(default)]
    pub attack_ms: f64,
    /// Time from the due time of the last request to the end of the last one.
    #[serde(default)]
    pub wait_ms: f64,
    /// Bytes of bodies on the wire, compressed or not.
    #[serde(default)]
    pub wire_bytes_in: u64,
    /// Share of processor time that the hypervisor gave to other machines; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// The process that reports the cache's outcomes.
    #[serde(default, rename = "tells")]
    pub stats_provider: StatsProvider,
    /// Where the time of each kind of thread went, if the experiment asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<Accounting>,
    /// Requests outside the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeFigures>,
    /// Hits that may be stale: the responses do not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hits_of_unknown_freshness: u64,
    /// How late the generator sent requests, if that is a part of the response times that may matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
    /// The seconds that something else disturbed, and by what, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// Why the run is invalid: a generator at its limit, or a probe with an unexpected response. Empty: it is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid: Vec<String>,
    /// True if a reason in `invalid` concerns counts, too, and not times alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_invalid_counts: bool,
    /// Facts that limit what the figures mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl HttpFigures {
    /// Reports mention a [`steal`](Self::steal) above this, since it slows responses down.
    pub const STEAL_MAX: f64 = 0.01;
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The process that reports the cache's outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatsProvider {
    #[default]
    Cache,
    /// The origin counts the loads.
    Origin,
    /// No process reports it.
    #[serde(rename = "nobody")]
    Unavailable,
}

/// A request outside the load. It is not counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeFigures {
    /// Due time relative to the start of the load; absent: before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<f64>,
    pub path: String,
    pub expected: u16,
    /// Absent: no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there is no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    pub took_ms: f64,
}

/// Resources of a process in one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// At the end of the second.
    pub rss_bytes: u64,
    /// Cores' worth of processor time in the second; 1.0 is one core.
    pub cpu: f64,
}

/// The cache's state at the end of a second: two gauges and two counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheContents {
    pub entries: u64,
    /// Bytes that its limit counts, if it has a limit in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A counter since the cache started: how often its limit was reached and a share of it cleared. Without a share to clear, each
    /// eviction counts.
    #[serde(default)]
    pub reclaims: u64,
    /// A counter since the cache started: requests that have waited for another request's load.
    #[serde(default)]
    pub waiters: u64,
}
