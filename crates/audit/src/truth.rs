//! The rules that a cache broke, with the first example of each. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// A kind of false answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// Older than it may be.
    TooOld,
    /// Of a version from before a purge or a write that had been answered.
    AfterPurge,
    /// Another user's.
    WrongOwner,
    WrongVariant,
    /// The bytes are not those that the origin sent for the request.
    WrongBody,
    /// A part of the bytes, as a whole response.
    Truncated,
    WrongStatus,
    /// `Age` is missing or wrong.
    AgeWrong,
}

/// The first answer of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Such as `GET /page with authorization: Bearer 7`.
    pub request: String,
    pub response: String,
    /// The rule that it breaks, such as `RFC 9111, 3.5`.
    pub rule: &'static str,
}

/// The requests of an audit, and the false answers to them.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub requests: usize,
    violations: BTreeMap<Violation, (usize, Example)>,
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
        match self {
            Self::TooOld => "too_old",
            Self::AfterPurge => "after_purge",
            Self::WrongOwner => "wrong_owner",
            Self::WrongVariant => "wrong_variant",
            Self::WrongBody => "wrong_body",
            Self::Truncated => "truncated",
            Self::WrongStatus => "wrong_status",
            Self::AgeWrong => "age_wrong",
        }
    }
}

impl Truth {
    /// Counts a false answer. The first of its kind is kept.
    pub(crate) fn add(&mut self, violation: Violation, example: impl FnOnce() -> Example) {
        self.violations.entry(violation).or_insert_with(|| (0, example())).0 += 1;
    }

    #[must_use]
    pub fn count(&self, violation: Violation) -> usize {
        self.violations.get(&violation).map_or(0, |(count, _)| *count)
    }

    #[must_use]
    pub fn example(&self, violation: Violation) -> Option<&Example> {
        self.violations.get(&violation).map(|(_, example)| example)
    }

    /// False answers of all kinds.
    #[must_use]
    pub fn violations(&self) -> usize {
        self.violations.values().map(|(count, _)| count).sum()
    }
}
