//! The counts of one question: requests, failures and false answers.

use crate::{
    answer::{Answer, Mark},
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: usize,
    pub(super) failed: usize,
    pub(super) wrong: usize,
    /// Of the first failed request.
    failure: String,
}

impl Tally {
    /// Counts a request, and its answer as false if it has a fault, with the rule that it breaks.
    pub(super) fn add(
        &mut self,
        audit: &Audit<'_>,
        request: &UserRequest,
        fault: Option<(Violation, &'static str)>,
    ) {
        self.requests += 1;
        if let Some((violation, rule)) = fault {
            self.wrong += 1;
            audit.users.found(violation, request, rule);
        } else if !matches!(request.status(), Some(200 | 206 | 304)) {
            self.failed += 1;
            if self.failure.is_empty() {
                self.failure = request.outcome();
            }
        }
    }

    /// `wrong` if an answer was false, unknown if most requests failed, or else `right`.
    pub(super) fn answer(&self, wrong: &str, right: Mark, right_text: &str) -> Answer {
        let Self { requests, failed, failure, .. } = self;
        let (mark, text) = if self.wrong > 0 {
            (Mark::Wrong, format!("{} of {requests} {wrong}", self.wrong))
        } else if failed * 2 > *requests {
            (Mark::Unknown, format!("{failed} of {requests} requests failed: {failure}."))
        } else if *failed > 0 {
            (right, format!("{right_text} {failed} of {requests} requests failed: {failure}."))
        } else {
            (right, right_text.to_owned())
        };
        Answer::new(mark, text).with("requests", *requests).with("failed", *failed).with("wrong", self.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_answers_outweigh_failures() {
        let answer = |wrong, failed| {
            let failure = "status 503".to_owned();
            let tally = Tally { requests: 10, failed, wrong, failure };
            tally.answer("requests got another's page.", Mark::Good, "All is right.")
        };
        assert_eq!(answer(0, 0).mark, Mark::Good);
        assert_eq!(answer(0, 0).text, "All is right.");
        assert_eq!(answer(0, 5).text, "All is right. 5 of 10 requests failed: status 503.");
        assert_eq!(answer(0, 6).mark, Mark::Unknown);
        assert_eq!(answer(1, 9).mark, Mark::Wrong);
        assert_eq!(answer(1, 9).text, "1 of 10 requests got another's page.");
    }
}
