//! The results of an open load, second by second, in constant memory.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use stockade_model::{outcome::Outcomes, time::Time};
use stockade_record::record::EventFigures;

use super::{
    LookupSample,
    answer_audit::{AnswerAudit, ServedAnswer},
};
use crate::target::{OpenSecond, Second};

/// Counts requests in the second in which they finish. Callers report in the order of time: a second is complete as
/// soon as a later one has started. Seconds without an event are left out.
pub(super) struct OpenTally {
    began: Time,
    current: Second,
    complete: VecDeque<Second>,
    pub(super) audit: AnswerAudit,
    pub(super) outcomes: Outcomes,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) events: Vec<EventFigures>,
    pub(super) bytes_in: u64,
    pub(super) service_sum: Duration,
    pub(super) finished: Duration,
    /// Minimum and maximum.
    pub(super) response: Option<(Duration, Duration)>,
    pub(super) retries: u64,
    pub(super) dropped: u64,
    pub(super) in_flight: usize,
    pub(super) in_flight_max: usize,
    asked_for: Vec<bool>,
}

/// The most distinct error messages.
const MESSAGES_MAX: usize = 64;

impl OpenTally {
    pub(super) fn new(began: Time, keys: usize, audit: AnswerAudit) -> Self {
        Self {
            began,
            current: Second { open: Some(OpenSecond::default()), ..Second::default() },
            complete: VecDeque::new(),
            audit,
            outcomes: Outcomes::default(),
            errors: BTreeMap::new(),
            events: Vec::new(),
            bytes_in: 0,
            service_sum: Duration::ZERO,
            finished: Duration::ZERO,
            response: None,
            retries: 0,
            dropped: 0,
            in_flight: 0,
            in_flight_max: 0,
            asked_for: vec![false; keys],
        }
    }

    pub(super) fn take_complete(&mut self, now: Time) -> Option<Second> {
        self.roll(now);
        self.complete.pop_front()
    }

    pub(super) fn take_current(&mut self) -> Second {
        std::mem::take(&mut self.current)
    }

    /// A request for this key is due; false if too many are in flight.
    pub(super) fn depart(&mut self, now: Time, key: usize, in_flight_max: usize) -> bool {
        if self.in_flight >= in_flight_max {
            self.drop_unsent(now, 1);
            return false;
        }
        self.asked_for[key] = true;
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
        true
    }

    pub(super) fn drop_unsent(&mut self, now: Time, requests: u64) {
        self.dropped += requests;
        self.open(now).dropped += requests;
    }

    pub(super) fn retry(&mut self, now: Time) {
        self.retries += 1;
        self.open(now).retries += 1;
    }

    /// A request has finished, with an answer or an error.
    pub(super) fn finish(
        &mut self,
        sample: &LookupSample,
        end: Result<ServedAnswer, &dyn std::fmt::Display>,
    ) {
        self.in_flight -= 1;
        self.outcomes.record(sample.outcome);
        self.bytes_in += sample.bytes;
        self.service_sum += sample.timing.service_time();
        self.finished = self.finished.max(sample.timing.finished - self.began);
        self.roll(sample.timing.finished);
        let current = &mut self.current;
        current.outcomes.record(sample.outcome);
        current.times.send_lag.record(sample.timing.send_lag());
        match end {
            Ok(served) => {
                let time = sample.timing.response_time();
                let (min, max) = self.response.unwrap_or((time, time));
                self.response = Some((min.min(time), max.max(time)));
                current.times.response.record(time);
                current.times.service.record(sample.timing.service_time());
                let open = current.open.get_or_insert_default();
                open.age_max = open.age_max.max(Some(served.age));
                self.audit.see(&served);
            }
            Err(message) => {
                let message = message.to_string();
                let is_known = self.errors.len() < MESSAGES_MAX || self.errors.contains_key(&message);
                let message = if is_known { message } else { "something else".to_owned() };
                *self.errors.entry(message).or_default() += 1;
            }
        }
    }

    /// The distinct keys that were requested.
    pub(super) fn distinct_keys(&self) -> usize {
        self.asked_for.iter().filter(|asked_for| **asked_for).count()
    }

    /// The counts of the second of `now`.
    fn open(&mut self, now: Time) -> &mut OpenSecond {
        self.roll(now);
        self.current.open.get_or_insert_default()
    }

    fn roll(&mut self, now: Time) {
        let second = (now - self.began).as_secs();
        if self.current.second >= second {
            return;
        }
        if self.current.is_empty() {
            self.current.second = second;
            return;
        }
        let next = Second { second, open: Some(OpenSecond::default()), ..Second::default() };
        self.complete.push_back(std::mem::replace(&mut self.current, next));
    }
}
