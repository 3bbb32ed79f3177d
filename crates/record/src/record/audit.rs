//! The false answers of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A kind of false answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// Older than it may be.
    TooOld,
    /// Of a version from before a purge or a write that had been answered.
    #[serde(alias = "after_invalidation")]
    AfterPurge,
    /// Another user's.
    WrongOwner,
    WrongVariant,
    /// The bytes are not those that the origin sent.
    WrongBody,
    /// A part of the bytes, as a whole response.
    Truncated,
    /// Not the status that the origin sent.
    WrongStatus,
    /// `Age` is missing or wrong.
    AgeWrong,
}

/// The first answer of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// `GET /page`
    pub request: String,
    pub answer: String,
    /// The rule that the answer breaks.
    pub rule: String,
}

/// The result of an audit of all answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// False answers by kind. A kind that does not apply to the run is absent.
    #[serde(flatten)]
    pub counts: BTreeMap<Violation, u64>,
    /// The age of the oldest answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_max_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub examples: BTreeMap<Violation, Example>,
}

impl Violation {
    pub const ALL: [Self; 8] = [
        Self::TooOld,
        Self::AfterPurge,
        Self::WrongOwner,
        Self::WrongVariant,
        Self::WrongBody,
        Self::Truncated,
        Self::WrongStatus,
        Self::AgeWrong,
    ];

    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.metric().trim_start_matches("audit.")
    }

    /// The metric of its count.
    #[must_use]
    pub fn metric(self) -> &'static str {
        match self {
            Self::TooOld => "audit.too_old",
            Self::AfterPurge => "audit.after_purge",
            Self::WrongOwner => "audit.wrong_owner",
            Self::WrongVariant => "audit.wrong_variant",
            Self::WrongBody => "audit.wrong_body",
            Self::Truncated => "audit.truncated",
            Self::WrongStatus => "audit.wrong_status",
            Self::AgeWrong => "audit.age_wrong",
        }
    }
}

impl Audit {
    /// The false answers of a kind; `None`: it does not apply.
    #[must_use]
    pub fn count(&self, violation: Violation) -> Option<u64> {
        self.counts.get(&violation).copied()
    }

    /// Adds the answers of another repeat. The first examples stay.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        for (violation, count) in &other.counts {
            *self.counts.entry(*violation).or_default() += count;
        }
        self.age_max_ms = self.age_max_ms.into_iter().chain(other.age_max_ms).reduce(f64::max);
        for (violation, example) in &other.examples {
            self.examples.entry(*violation).or_insert_with(|| example.clone());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_that_does_not_apply_is_absent_and_older_records_are_read() {
        let old = r#"{"too_old":1,"after_invalidation":2,"age_max_ms":3.0}"#;
        let audit: Audit = serde_json::from_str(old).unwrap();
        assert_eq!(audit.count(Violation::AfterPurge), Some(2));
        assert_eq!(audit.count(Violation::WrongBody), None);
        let written = serde_json::to_string(&audit).unwrap();
        assert_eq!(written, r#"{"too_old":1,"after_purge":2,"age_max_ms":3.0}"#);
        assert_eq!(serde_json::from_str::<Audit>(&written).unwrap(), audit);
    }

    #[test]
    fn repeats_are_added_and_the_first_example_stays() {
        let of = |count, request: &str| {
            let example = Example { request: request.to_owned(), answer: String::new(), rule: String::new() };
            Audit {
                counts: [(Violation::TooOld, count)].into(),
                age_max_ms: None,
                examples: [(Violation::TooOld, example)].into(),
            }
        };
        let both = of(1, "GET /a").with(&of(2, "GET /b"));
        assert_eq!(both.count(Violation::TooOld), Some(3));
        assert_eq!(both.examples[&Violation::TooOld].request, "GET /a");
    }
}
