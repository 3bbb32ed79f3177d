//! Counts of a run.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use super::{
    incident::IncidentKind,
    schedule::Fault,
    traffic::{Planned, Role, Transport},
};

/// The longest time that is told apart, in ms.
const LONGEST_MS: u64 = 600_000;

pub struct Tally {
    /// By action.
    pub requests: BTreeMap<&'static str, u64>,
    /// By connection.
    pub transports: BTreeMap<&'static str, u64>,
    pub statuses: BTreeMap<u16, u64>,
    /// By the `detail` of `Cache-Status`.
    pub cache: BTreeMap<String, u64>,
    /// Finished requests of each proxy.
    pub finished: [u64; 2],
    /// Bodies that were received and compared to their end.
    pub bodies: u64,
    /// Bodies that were compared as far as they were read.
    pub unfinished_bodies: u64,
    pub body_bytes: u64,
    /// With the fault that excuses them.
    pub incidents: BTreeMap<(IncidentKind, Option<Fault>), u64>,
    /// Requests that were not sent because too many were in flight.
    pub skipped: u64,
    /// From the start of a request to the end of its body, for complete GETs at full speed.
    pub response_ms: Histogram<u64>,
}

impl Tally {
    pub fn new() -> super::Result<Self> {
        Ok(Self {
            requests: BTreeMap::new(),
            transports: BTreeMap::new(),
            statuses: BTreeMap::new(),
            cache: BTreeMap::new(),
            finished: [0; 2],
            bodies: 0,
            unfinished_bodies: 0,
            body_bytes: 0,
            incidents: BTreeMap::new(),
            skipped: 0,
            response_ms: Histogram::new_with_max(LONGEST_MS, 3)?,
        })
    }

    pub fn sent(&mut self, planned: &Planned) {
        *self.requests.entry(planned.action.name()).or_default() += 1;
        let transport = match planned.transport {
            Transport::Kept => "HTTP/1.1, kept connection",
            Transport::New => "HTTP/1.1, new connection",
            Transport::Http2 => "HTTP/2",
        };
        *self.transports.entry(transport).or_default() += 1;
    }

    pub fn finished(&mut self, role: Role) {
        self.finished[role as usize] += 1;
    }

    pub fn responded(&mut self, status: u16, detail: &str) {
        *self.statuses.entry(status).or_default() += 1;
        *self.cache.entry(detail.to_owned()).or_default() += 1;
    }

    pub fn took(&mut self, took: Duration) {
        self.response_ms.saturating_record(u64::try_from(took.as_millis()).unwrap_or(LONGEST_MS));
    }

    /// Incidents that no fault excuses.
    #[must_use]
    pub fn unexcused(&self) -> u64 {
        self.incidents.iter().filter(|((_, fault), _)| fault.is_none()).map(|(_, count)| count).sum()
    }

    /// Incidents of a kind, excused or not.
    #[must_use]
    pub fn of_kind(&self, kind: IncidentKind) -> u64 {
        self.incidents.iter().filter(|((one, _), _)| *one == kind).map(|(_, count)| count).sum()
    }
}
