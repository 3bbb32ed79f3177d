//! The failed requests of a question.

use crate::users::UserRequest;

/// The requests that did not get a page, with the outcome of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) requests: usize,
    pub(super) failed: usize,
    /// Of the first failed request: its status or its error.
    first: String,
}

impl Failures {
    /// Those without status 200.
    pub(super) fn of<'a>(requests: impl IntoIterator<Item = &'a UserRequest>) -> Self {
        let mut failures = Self::default();
        for request in requests {
            failures.add(request, request.is_ok());
        }
        failures
    }

    pub(super) fn add(&mut self, request: &UserRequest, is_answered: bool) {
        self.requests += 1;
        if is_answered {
            return;
        }
        self.failed += 1;
        if self.first.is_empty() {
            self.first = request.outcome();
        }
    }

    pub(super) fn some(&self) -> bool {
        self.failed > 0
    }

    /// `3 of 50 requests failed: status 503.`
    pub(super) fn sentence(&self) -> String {
        format!("{} of {} requests failed: {}.", self.failed, self.requests, self.first)
    }

    /// The sentence after another one; empty if each request was answered.
    pub(super) fn appended(&self) -> String {
        if self.some() { format!(" {}", self.sentence()) } else { String::new() }
    }

    #[cfg(test)]
    pub(super) fn example(failed: usize, requests: usize) -> Self {
        Self { requests, failed, first: "status 503".to_owned() }
    }
}
