//! Microstate accounting: where the time of threads went.

use serde::{Deserialize, Serialize};

use super::Role;

/// Where the time of each kind of thread went in a window of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accounting {
    /// Start of the window, since that of the load.
    pub at_ms: f64,
    /// Length of the window, as measured.
    pub for_ms: f64,
    /// How often the threads were read, at least twice.
    pub samples: u64,
    /// Processor time of these readings; 1.0 is one core.
    pub sampler_cpu: f64,
    /// In the order of roles, then by the time on a core, the longest first.
    pub threads: Vec<ThreadShares>,
}

/// The threads of a process whose names differ by their number at most. `user`, `system`, `waiting` and `sleeping` are shares of the
/// time in which these threads were seen, and sum to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadShares {
    pub role: Role,
    /// Name without number.
    pub kind: String,
    /// How many there were in the window, also those that began or ended in it.
    pub count: usize,
    /// On a core, in user mode.
    pub user: f64,
    /// On a core, in the kernel.
    pub system: f64,
    /// Ready, and waiting for a core. Absent: the kernel does not report it, and `sleeping` contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    /// Waiting for anything else: input, a lock, a timer, work.
    pub sleeping: f64,
    /// Share in which they polled the clock until a request was due: a part of `user` and `system`, with the responses that were handled
    /// meanwhile. Absent: threads of this kind do not poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_wait: Option<f64>,
    /// Share of the time in which the runtime of these threads had work: between two parks. Absent: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
    /// How often a second each of these threads parked: it had no work. Absent: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parks_per_s: Option<f64>,
}
