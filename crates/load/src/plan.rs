//! What a load does one after the other: open phases and closed loops.
use crate::schedule::Schedule;
use std::{fmt, time::Duration};
use stockade_model::latency::Latency;
/// All of it.
#[derive(Clone, Debug)]
pub struct Plan {
    phases: Vec<Phase>,
}
/// One part.
#[derive(Clone, Debug)]
pub enum Phase {
    /// Open.
    Open(Schedule),
    /// Closed.
    Closed(Closed),
}
/// Closed.
#[derive(Clone, Debug)]
pub struct Closed {
    /// N
    pub connections: usize,
    /// T
    pub think: Latency,
    /// U
    pub until: Until,
}
/// Until.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    /// D
    pub duration: Option<Duration>,
    /// R
    pub requests: Option<u64>,
}
impl Plan {
    /// New
    pub fn new(phases: Vec<Phase>) -> Self {
        Self { phases }
    }
    /// All
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }
    /// Most
    pub fn users_max(&self) -> Option<usize> {
        self.phases
            .iter()
            .map(|p| match p {
                Phase::Closed(c) => c.connections,
                Phase::Open(_) => 0,
            })
            .max()
            .filter(|n| *n > 0)
    }
    /// Most
    pub fn burst_max(&self) -> u64 {
        0
    }
}
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for p in &self.phases {
            match p {
                Phase::Open(s) => write!(f, "{s}")?,
                Phase::Closed(c) => write!(f, "{} connections", c.connections)?,
            }
        }
        Ok(())
    }
}
impl Schedule {
    /// Burst
    pub fn burst_max(&self) -> u64 {
        0
    }
}
