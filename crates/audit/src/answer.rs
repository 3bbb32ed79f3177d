//! An answer to a question about a cache.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How well a cache does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As well as any cache can.
    Best,
    Good,
    /// The origin or the users suffer, and no answer is wrong.
    Weak,
    /// A rule is broken: a user gets another user's answer, a broken or an old one.
    Wrong,
    /// It could not be examined.
    Unknown,
}

/// The behaviour of a cache in one test, with its mark.
#[derive(Clone, Debug)]
pub struct Answer {
    pub mark: Mark,
    /// One or two sentences.
    pub text: String,
    /// Counts and times by name; the unit is at the end of the name.
    pub evidence: BTreeMap<&'static str, Value>,
}

impl Mark {
    pub const ALL: [Self; 5] = [Self::Best, Self::Good, Self::Weak, Self::Wrong, Self::Unknown];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Good => "good",
            Self::Weak => "weak",
            Self::Wrong => "wrong",
            Self::Unknown => "unknown",
        }
    }
}

impl Answer {
    pub(crate) fn new(mark: Mark, text: impl Into<String>) -> Self {
        Self { mark, text: text.into(), evidence: BTreeMap::new() }
    }

    /// Adds a count or a time.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.evidence.insert(name, value.into());
        self
    }
}

/// `0 loads`, `1 load`, `2 loads`
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
