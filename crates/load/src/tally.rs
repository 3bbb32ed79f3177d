//! What requests have come to, in constant memory.

use std::{collections::BTreeMap, time::Duration};

use stockade_model::{histogram::Histogram, outcome::Outcomes, record::Times, time::Time};

use crate::sample::{Class, Sample};

/// So many different messages are kept apart.
const ERRORS_MAX: usize = 64;

/// Counts of requests, and how long they took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Answered requests, whatever their status; `send_lag` is of all that were sent.
    pub times: Times,
    /// Response and service times of the successes among them.
    pub times_of_successes: Times,
    /// Response times of requests that got no answer.
    pub failed_response: Histogram,
    /// All response times added up, failed ones too.
    pub response_sum: Duration,
    /// What of them was before requests were handed to a connection.
    pub send_lag_sum: Duration,
    /// Answered with 200 to 399.
    pub successes: u64,
    /// By status; 0: no answer.
    pub status_codes: BTreeMap<u16, u64>,
    /// What caches on the way say that they did, where they say so.
    pub outcomes: Outcomes,
    /// By class, those that occurred.
    pub failures: BTreeMap<&'static str, u64>,
    /// What went wrong, each text once, in the order of their first occurrence: failures, and statuses other than
    /// 200 to 399.
    pub errors: Vec<String>,
    /// Decoded bytes of bodies.
    pub bytes_in: u64,
    /// Bytes of bodies as they came.
    pub wire_bytes_in: u64,
    /// Bytes of requests' bodies.
    pub bytes_out: u64,
    /// Attempts after a request's first.
    pub retries: u64,
    /// Requests that were sent once more because the server had closed the connection that was kept for them, and had
    /// not looked at them.
    pub resent: u64,
    /// When the first of them was due; none if there are none.
    pub earliest: Option<Time>,
    /// When the last of them was due.
    pub latest: Option<Time>,
    /// When the last answer, or failure, was complete.
    pub end: Option<Time>,
}

impl Tally {
    /// Counts one more.
    pub fn record(&mut self, sample: &Sample) {
        let response = sample.response_time();
        self.response_sum += response;
        if sample.was_sent() {
            self.times.send_lag.record(sample.send_lag());
            self.send_lag_sum += sample.send_lag();
        } else {
            self.send_lag_sum += response;
        }
        self.bytes_out += sample.bytes_out;
        self.earliest =
            Some(self.earliest.map_or(sample.scheduled, |earliest| earliest.min(sample.scheduled)));
        self.latest = self.latest.max(Some(sample.scheduled));
        self.end = self.end.max(Some(sample.finished));
        match &sample.ended {
            Ok(answer) => {
                self.times.response.record(response);
                self.times.service.record(sample.service_time());
                *self.status_codes.entry(answer.status).or_default() += 1;
                self.bytes_in += answer.bytes;
                self.wire_bytes_in += answer.wire_bytes;
                if let Some(outcome) = answer.outcome {
                    self.outcomes.record(outcome);
                }
                if sample.is_success() {
                    self.successes += 1;
                    self.times_of_successes.response.record(response);
                    self.times_of_successes.service.record(sample.service_time());
                } else {
                    self.note(|| status_text(answer.status));
                }
            }
            Err(failure) => {
                self.failed_response.record(response);
                *self.status_codes.entry(0).or_default() += 1;
                *self.failures.entry(failure.class.name()).or_default() += 1;
                self.note(|| failure.to_string());
            }
        }
    }

    /// Adds all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.times_of_successes.merge(&other.times_of_successes);
        self.failed_response.merge(&other.failed_response);
        self.response_sum += other.response_sum;
        self.send_lag_sum += other.send_lag_sum;
        self.successes += other.successes;
        for (status, count) in &other.status_codes {
            *self.status_codes.entry(*status).or_default() += count;
        }
        self.outcomes += other.outcomes;
        for (class, count) in &other.failures {
            *self.failures.entry(class).or_default() += count;
        }
        other.errors.iter().for_each(|error| self.note(|| error.clone()));
        self.bytes_in += other.bytes_in;
        self.wire_bytes_in += other.wire_bytes_in;
        self.bytes_out += other.bytes_out;
        self.retries += other.retries;
        self.resent += other.resent;
        self.earliest = match (self.earliest, other.earliest) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        self.latest = self.latest.max(other.latest);
        self.end = self.end.max(other.end);
    }

    /// All requests that ended, whichever way.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.status_codes.values().sum()
    }

    /// Those without an answer.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.status_codes.get(&0).copied().unwrap_or_default()
    }

    /// How many failed in this way.
    #[must_use]
    pub fn of(&self, class: Class) -> u64 {
        self.failures.get(class.name()).copied().unwrap_or_default()
    }

    /// Response times of all requests: Vegeta's latencies.
    #[must_use]
    pub fn latencies(&self) -> Histogram {
        let mut all = self.times.response.clone();
        all.merge(&self.failed_response);
        all
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.errors.len() < ERRORS_MAX {
            let text = text();
            if !self.errors.contains(&text) {
                self.errors.push(text);
            }
        }
    }
}

/// `503 Service Unavailable`
pub(crate) fn status_text(status: u16) -> String {
    let known = http::StatusCode::from_u16(status).ok();
    match known.and_then(|status| status.canonical_reason()) {
        Some(reason) => format!("{status} {reason}"),
        None => status.to_string(),
    }
}
