//! Checks answers against what the lab's origin states about them in fields of its own. Pure.
//!
//! An answer without these fields is not checked. Each rule leaves out an answer that it cannot be sure about.

#[cfg(feature = "http")]
mod fields;
#[cfg(feature = "http")]
mod purges;

use std::{collections::BTreeMap, time::Duration};

use stockade_record::{
    record::{Audit, Example, Violation},
    statement::{FieldStatement, Freshness, Statement},
};

#[cfg(feature = "http")]
pub(crate) use fields::StatementFields;
#[cfg(feature = "http")]
pub use purges::{AnsweredPurge, AnsweredPurges};

/// Caches count whole seconds, from when they have the response.
const LIFETIME_TOLERANCE: Duration = Duration::from_millis(1_250);
/// Of `Age`, which has whole seconds.
const AGE_TOLERANCE: Duration = Duration::from_secs(2);
/// Of the times of a purge and of the origin, which are of one clock.
const PURGE_TOLERANCE: Duration = Duration::from_millis(1);

/// A response with the statement of its origin. Times of day are those since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedAnswer {
    /// The statement of the origin.
    pub statement: Statement,
    /// When the origin got its request.
    pub made: Duration,
    /// From then until the origin responded.
    pub delay: Duration,
    /// The field that names the user. `None`: the response is for all.
    pub owner: Option<ComparedField>,
    /// The field by which the origin chose the variant. `None`: the page has one.
    pub variant: Option<ComparedField>,
    /// With `ETag` or `Last-Modified`, a cache may have asked the origin again, and kept the fields of the first response.
    pub has_validator: bool,
    /// `Age`
    pub age_s: Option<u64>,
    /// The cache states that it is served because the origin failed, or does not state that it is not.
    pub may_be_fallback: bool,
    /// When the response was complete.
    pub received: Duration,
    /// When the last purge of the page was sent that had been answered before the request. `None`: no purge.
    pub purge_sent: Option<Duration>,
    /// Bytes and CRC-32 of the decoded body. `None`: the answer has no body, or its encoding is unknown.
    pub body: Option<(u64, u32)>,
}

/// A field of the request that led to the response, and of the request that was answered with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedField {
    /// As the origin got it.
    pub stated: FieldStatement,
    /// As the client sent it; `None`: it sent none.
    pub sent_crc32: Option<u32>,
}

/// The result of the rules for one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Findings([Option<bool>; Violation::ALL.len()]);

impl StatedAnswer {
    /// For each rule, whether this answer breaks it; `None`: the rule does not apply. `took`: from the sending of the request until
    /// the answer was complete.
    fn findings(&self, status: u16, took: Duration) -> Findings {
        let (least, most) = self.ages(took);
        let age = self.age_s.map(Duration::from_secs);
        let is_age_true = match age {
            Some(age) => age.saturating_add(AGE_TOLERANCE) >= least && age <= most + AGE_TOLERANCE,
            None => least <= AGE_TOLERANCE,
        };
        let is_age_wrong = if self.has_validator {
            // It is not older than its first response.
            age.is_some_and(|age| age > most + AGE_TOLERANCE)
        } else {
            !is_age_true
        };
        let is_dated = !self.has_validator || (age.is_some() && is_age_true);
        let is_too_old = self.limit().filter(|_| is_dated).map(|limit| least > limit + LIFETIME_TOLERANCE);
        let responded = self.made.saturating_add(self.delay);
        let is_purged = self.purge_sent.filter(|_| is_dated).map(|sent| responded + PURGE_TOLERANCE < sent);
        // A response to a request that names no user is for all.
        let is_foreign = |field: &ComparedField| {
            field.stated.values_crc32.is_some() && field.stated.values_crc32 != field.sent_crc32
        };
        let is_owner_wrong = self.owner.as_ref().map(is_foreign);
        let is_variant_wrong =
            self.variant.as_ref().map(|field| field.stated.values_crc32 != field.sent_crc32);
        let body = self.statement.body.zip(self.body).filter(|_| status == 200);
        let is_truncated = body.map(|(stated, (bytes, _))| bytes < stated.bytes);
        let is_body_wrong = body.map(|(stated, (bytes, crc32))| {
            bytes > stated.bytes || (bytes == stated.bytes && crc32 != stated.crc32)
        });
        let mut findings = Findings::default();
        for (violation, is_broken) in [
            (Violation::TooOld, is_too_old),
            (Violation::AfterPurge, is_purged),
            (Violation::WrongOwner, is_owner_wrong),
            (Violation::WrongVariant, is_variant_wrong),
            (Violation::WrongBody, is_body_wrong),
            (Violation::Truncated, is_truncated),
            (Violation::WrongStatus, Some(!self.may_have(status))),
            (Violation::AgeWrong, Some(is_age_wrong)),
        ] {
            findings.0[violation as usize] = is_broken;
        }
        findings
    }

    /// The least and the greatest age that the answer may have had when its cache sent it: between the sending of the request and the
    /// end of the answer, since the origin had responded or had got its request.
    fn ages(&self, took: Duration) -> (Duration, Duration) {
        let sent = self.received.saturating_sub(took);
        (sent.saturating_sub(self.made.saturating_add(self.delay)), self.received.saturating_sub(self.made))
    }

    /// The greatest age that the origin allows.
    fn limit(&self) -> Option<Duration> {
        let Freshness { lifetime_s, stale_s, stale_if_error_s } = self.statement.freshness?;
        let stale = if self.may_be_fallback { stale_s.max(stale_if_error_s) } else { stale_s };
        Some(Duration::from_secs(u64::from(lifetime_s) + u64::from(stale)))
    }

    /// True if a cache that has the origin's response may answer with this status: conditions and ranges are its own.
    fn may_have(&self, status: u16) -> bool {
        let stated = self.statement.status;
        status == stated || (stated == 200 && matches!(status, 206 | 304 | 412 | 416))
    }

    /// The answer and the rule that it breaks, in words.
    #[cfg(feature = "http")]
    fn described(&self, violation: Violation, status: u16, took: Duration) -> (String, String) {
        let age = self.age_s.map_or_else(|| "without `Age`".to_owned(), |age| format!("`Age: {age}`"));
        let least_s = self.ages(took).0.as_secs_f64();
        let aged = format!("status {status}, {least_s:.1} s old when it was requested, {age}");
        let made_for_another = |field: &Option<ComparedField>| {
            let name = field.as_ref().map_or("", |field| &field.stated.name);
            format!("{aged}, made for a request with another `{name}`")
        };
        match violation {
            Violation::TooOld => {
                let limit_s = self.limit().unwrap_or_default().as_secs();
                (aged, format!("the origin allows {limit_s} s (RFC 9111, 4.2; RFC 5861)"))
            }
            Violation::AfterPurge => {
                let sent = self.purge_sent.unwrap_or_default();
                let before_s = sent.saturating_sub(self.made.saturating_add(self.delay)).as_secs_f64();
                (
                    aged,
                    format!(
                        "the page was purged {before_s:.1} s after the origin had sent it, and the purge had been answered"
                    ),
                )
            }
            Violation::WrongOwner => {
                let rule = "a page for one user is for this user (RFC 9111, 3.5 and 5.2.2.7)";
                (made_for_another(&self.owner), rule.to_owned())
            }
            Violation::WrongVariant => {
                let rule = "`Vary` names the fields by which stored responses differ (RFC 9111, 4.1)";
                (made_for_another(&self.variant), rule.to_owned())
            }
            Violation::AgeWrong => {
                (aged, "`Age` states the age of a stored response (RFC 9111, 5.1)".to_owned())
            }
            Violation::WrongStatus => {
                (format!("status {status}"), format!("the origin sent {}", self.statement.status))
            }
            Violation::WrongBody | Violation::Truncated => {
                let (bytes, crc32) = self.body.unwrap_or_default();
                let stated = self.statement.body.map(|stated| {
                    format!("the origin sent {} bytes with the CRC-32 {:08x}", stated.bytes, stated.crc32)
                });
                (
                    format!("status {status}, {bytes} bytes with the CRC-32 {crc32:08x}"),
                    stated.unwrap_or_default(),
                )
            }
        }
    }
}

/// The answers that were checked, and the false ones among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerTally {
    /// By [`Violation`]; `None`: the rule applied to no answer.
    counts: [Option<u64>; Violation::ALL.len()],
    examples: BTreeMap<Violation, Example>,
}

impl AnswerTally {
    pub(crate) fn record(&mut self, answer: &StatedAnswer, status: u16, took: Duration) {
        for (count, is_broken) in self.counts.iter_mut().zip(answer.findings(status, took).0) {
            if let Some(is_broken) = is_broken {
                *count = Some(count.unwrap_or_default() + u64::from(is_broken));
            }
        }
    }

    /// Keeps an answer that was recorded where it is the first of its kind. `request`: as in [`Example`].
    #[cfg(feature = "http")]
    pub(crate) fn explain(
        &mut self,
        answer: &StatedAnswer,
        status: u16,
        took: Duration,
        request: impl Fn() -> String,
    ) {
        for violation in Violation::ALL {
            let is_counted = self.counts[violation as usize].is_some_and(|count| count > 0);
            let is_broken = || answer.findings(status, took).0[violation as usize] == Some(true);
            if is_counted && !self.examples.contains_key(&violation) && is_broken() {
                let (answer, rule) = answer.described(violation, status, took);
                self.examples.insert(violation, Example { request: request(), answer, rule });
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count = count.map_or(other, |count| Some(count + other.unwrap_or_default()));
        }
        for (violation, example) in &other.examples {
            self.examples.entry(*violation).or_insert_with(|| example.clone());
        }
    }

    /// As in records; `None`: no answer was checked.
    #[must_use]
    pub fn audit(&self) -> Option<Audit> {
        let counts = Violation::ALL.into_iter().zip(self.counts);
        let counts: BTreeMap<_, _> = counts.filter_map(|(kind, count)| Some((kind, count?))).collect();
        let examples = self.examples.clone();
        (!counts.is_empty()).then_some(Audit { counts, age_max_ms: None, examples })
    }
}

#[cfg(all(test, feature = "http"))]
mod tests;
