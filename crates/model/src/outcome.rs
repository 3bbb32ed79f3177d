//! What a cache did for one request.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// What a cache did for one request: DESIGN's outcomes, as far as the strategies so far have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Fresh, no wait.
    Hit,
    /// The caller's own load answered.
    Miss,
    /// Another caller's load answered.
    Coalesced,
    /// Nothing could be served.
    Error,
}

/// How many requests had each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Requests answered from the cache while fresh.
    pub hit: u64,
    /// Requests answered by their own load.
    pub miss: u64,
    /// Requests answered by another's load.
    pub coalesced: u64,
    /// Requests that got no answer.
    pub error: u64,
}

impl Outcomes {
    /// Counts one more.
    pub fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Hit => self.hit += 1,
            Outcome::Miss => self.miss += 1,
            Outcome::Coalesced => self.coalesced += 1,
            Outcome::Error => self.error += 1,
        }
    }

    /// All requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.hit + self.miss + self.coalesced + self.error
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        self.hit += other.hit;
        self.miss += other.miss;
        self.coalesced += other.coalesced;
        self.error += other.error;
    }
}
