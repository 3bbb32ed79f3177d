//! What is asked, request by request: a pure function of the request's number.

use std::borrow::Cow;

use crate::target::Target;

/// All that a run may ask for, and which request asks for what.
#[derive(Clone, Debug)]
pub struct Traffic {
    targets: Vec<Target>,
}

/// What one request asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Which of the targets.
    pub index: usize,
    /// That target.
    pub target: &'a Target,
    /// Path and query as they are sent: the target's own, unless a key was drawn or a cache is to be missed.
    pub path: Cow<'a, str>,
}

impl Traffic {
    /// The same for every request.
    #[must_use]
    pub fn one(target: Target) -> Self {
        Self { targets: vec![target] }
    }

    /// All that may be asked for.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// What the `n`th request asks for, from 0: the same for the same `n`, whoever asks.
    #[must_use]
    pub fn nth(&self, n: u64) -> Asked<'_> {
        let index = usize::try_from(n % self.targets.len() as u64).unwrap_or_default();
        let target = &self.targets[index];
        Asked { index, target, path: target.url.path_and_query().map_or("/", |path| path.as_str()).into() }
    }
}
