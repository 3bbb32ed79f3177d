//! Counts and times of requests, in constant memory.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de};
use stockade_model::{
    message::shown,
    outcome::{Outcome, Outcomes},
    time::Time,
};
use stockade_record::{histogram::Histogram, record::Times};

use crate::{
    sample::{Deviation, FailureClass, Sample},
    truth::AnswerTally,
};

/// The most different errors that are stored.
const ERRORS_MAX: usize = 64;

/// Counts of samples, and histograms of their times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Times of requests with a response of any status; `send_lag` of all that were sent.
    pub times: Times,
    /// Response and service times of the successes among them.
    pub times_of_successes: Times,
    /// The times until requests without a response were given up.
    pub times_without_response: Histogram,
    /// The sum of all response times, failures included.
    pub response_sum: Duration,
    /// The sum of the times before requests were handed to a connection.
    pub send_lag_sum: Duration,
    /// Requests with a status of 200 to 399.
    pub successes: u64,
    /// Requests by status; 0 stands for no response.
    pub status_codes: BTreeMap<u16, u64>,
    /// Outcomes that caches state in their headers.
    pub outcomes: Outcomes,
    /// Those of the successes.
    pub outcomes_of_successes: Outcomes,
    /// Hits among them that may be stale: the headers do not tell.
    pub hits_of_unknown_freshness: u64,
    /// Requests without a response, by the class of their failure.
    #[serde(deserialize_with = "failures_by_name")]
    pub failures: BTreeMap<&'static str, u64>,
    /// Responses that break RFC 9112 in a way that clients commonly accept, by their deviation.
    #[serde(deserialize_with = "deviations_by_name")]
    pub deviations: BTreeMap<&'static str, u64>,
    /// The answers that were checked. Agents check none.
    #[serde(skip)]
    pub answers: AnswerTally,
    /// Different errors in the order of occurrence: failures, and statuses other than 200 to 399.
    pub errors: Vec<String>,
    /// Decoded bytes of bodies.
    pub bytes_in: u64,
    /// Bytes of bodies as received.
    pub wire_bytes_in: u64,
    /// Bytes of request bodies.
    pub bytes_out: u64,
    /// Attempts after the first of each request.
    pub retries: u64,
    /// Requests resent because the server closed their connection before it processed them.
    pub resent: u64,
    /// The first due time; none if there are no requests.
    pub earliest: Option<Time>,
    /// The last due time.
    pub latest: Option<Time>,
    /// When the last request ended.
    pub end: Option<Time>,
}

impl Tally {
    /// Adds a sample.
    pub fn record(&mut self, sample: &Sample) {
        let timing = &sample.timing;
        let response = timing.response_time();
        self.response_sum += response;
        if sample.was_sent() {
            self.times.send_lag.record(timing.send_lag());
            self.send_lag_sum += timing.send_lag();
        } else {
            self.send_lag_sum += response;
        }
        self.bytes_out += sample.bytes_out;
        self.earliest =
            Some(self.earliest.map_or(timing.scheduled, |earliest| earliest.min(timing.scheduled)));
        self.latest = self.latest.max(Some(timing.scheduled));
        self.end = self.end.max(Some(timing.finished));
        match &sample.result {
            Ok(answer) => {
                self.times.response.record(response);
                self.times.service.record(timing.service_time());
                *self.status_codes.entry(answer.status).or_default() += 1;
                self.bytes_in += answer.bytes;
                self.wire_bytes_in += answer.wire_bytes;
                if let Some(deviation) = answer.deviation {
                    *self.deviations.entry(deviation.name()).or_default() += 1;
                }
                if let Some(stated) = &answer.stated {
                    self.answers.record(stated, answer.status, timing.service_time());
                }
                if answer.outcome.is_none() {
                    self.outcomes.unreported += 1;
                }
                if let Some(outcome) = answer.outcome {
                    self.outcomes.record(outcome);
                    if sample.is_success() {
                        self.outcomes_of_successes.record(outcome);
                        self.hits_of_unknown_freshness += u64::from(answer.may_be_stale);
                    }
                }
                if sample.is_success() {
                    self.successes += 1;
                    self.times_of_successes.response.record(response);
                    self.times_of_successes.service.record(timing.service_time());
                } else {
                    self.add_error(|| status_text(answer.status));
                }
            }
            Err(failure) => {
                self.times_without_response.record(response);
                *self.status_codes.entry(0).or_default() += 1;
                *self.failures.entry(failure.class.name()).or_default() += 1;
                self.add_error(|| failure.to_string());
            }
        }
    }

    /// Adds all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.times_of_successes.merge(&other.times_of_successes);
        self.times_without_response.merge(&other.times_without_response);
        self.response_sum += other.response_sum;
        self.send_lag_sum += other.send_lag_sum;
        self.successes += other.successes;
        for (status, count) in &other.status_codes {
            *self.status_codes.entry(*status).or_default() += count;
        }
        self.outcomes += other.outcomes;
        self.outcomes_of_successes += other.outcomes_of_successes;
        self.hits_of_unknown_freshness += other.hits_of_unknown_freshness;
        for (class, count) in &other.failures {
            *self.failures.entry(class).or_default() += count;
        }
        for (deviation, count) in &other.deviations {
            *self.deviations.entry(deviation).or_default() += count;
        }
        self.answers.merge(&other.answers);
        other.errors.iter().for_each(|error| self.add_error(|| error.clone()));
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

    /// True if no count is above `most`, and no part above its whole.
    #[must_use]
    pub fn is_plausible(&self, most: u64) -> bool {
        let by_name = self.failures.values().chain(self.deviations.values());
        let counts = self.status_codes.values().chain(by_name).copied();
        let mut counts = counts.chain([self.retries, self.resent, self.hits_of_unknown_freshness]);
        let bytes = [self.bytes_in, self.wire_bytes_in, self.bytes_out];
        let outcomes = [self.outcomes, self.outcomes_of_successes];
        counts.all(|count| count <= most)
            && outcomes.iter().all(|outcomes| {
                Outcome::ALL.into_iter().all(|outcome| outcomes.of(outcome) <= most)
                    && outcomes.unreported <= most
            })
            && self.status_codes.len() <= 1_000
            && bytes.iter().all(|bytes| *bytes <= 1 << 40)
            && self.successes <= self.requests()
            && self.errors.len() <= ERRORS_MAX
    }

    /// Requests that ended.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.status_codes.values().sum()
    }

    /// Requests that are not a success: without a response, or with a status other than 200 to 399.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.requests() - self.successes
    }

    /// Requests without a response.
    #[must_use]
    pub fn without_response(&self) -> u64 {
        self.status_codes.get(&0).copied().unwrap_or_default()
    }

    /// Hits / lookups; `None`: there was no lookup, or a hit may be stale.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        self.outcomes.hit_ratio().filter(|_| self.hits_of_unknown_freshness == 0)
    }

    /// Requests without a response for one class of reasons.
    #[must_use]
    pub fn failures_of(&self, class: FailureClass) -> u64 {
        self.failures.get(class.name()).copied().unwrap_or_default()
    }

    /// The failed requests by class: `status 503`, then the reasons of requests without a response.
    #[must_use]
    pub fn failed_by_class(&self) -> Vec<(String, u64)> {
        let reasons = FailureClass::ALL.map(|class| (class.text().to_owned(), self.failures_of(class)));
        self.failed_by_status().chain(reasons).filter(|(_, count)| *count > 0).collect()
    }

    /// Failed requests with a response: `status 503`.
    pub(crate) fn failed_by_status(&self) -> impl Iterator<Item = (String, u64)> {
        let statuses = self.status_codes.iter().filter(|(status, _)| !matches!(status, 0 | 200..=399));
        statuses.map(|(status, count)| (format!("status {status}"), *count))
    }

    /// Response times of all requests: Vegeta's latencies.
    #[must_use]
    pub fn latencies(&self) -> Histogram {
        let mut all = self.times.response.clone();
        all.merge(&self.times_without_response);
        all
    }

    fn add_error(&mut self, text: impl FnOnce() -> String) {
        if self.errors.len() < ERRORS_MAX {
            let text = shown(&text());
            if !self.errors.contains(&text) {
                self.errors.push(text);
            }
        }
    }
}

fn failures_by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<&'static str, u64>, D::Error> {
    by_name(from, &FailureClass::ALL.map(FailureClass::name))
}

fn deviations_by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<&'static str, u64>, D::Error> {
    by_name(from, &Deviation::ALL.map(Deviation::name))
}

fn by_name<'de, D: Deserializer<'de>>(
    from: D,
    names: &[&'static str],
) -> Result<BTreeMap<&'static str, u64>, D::Error> {
    let known = |(name, count): (String, u64)| {
        let known = names.iter().find(|known| **known == name);
        known.map(|known| (*known, count)).ok_or_else(|| de::Error::custom(format!("`{name}` is unknown")))
    };
    BTreeMap::<String, u64>::deserialize(from)?.into_iter().map(known).collect()
}

/// `503 Service Unavailable`
///
/// Only the number without the feature `http`, which has the table of reasons.
pub(crate) fn status_text(status: u16) -> String {
    #[cfg(feature = "http")]
    if let Some(reason) = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason())
    {
        return format!("{status} {reason}");
    }
    status.to_string()
}
