//! The counts of one question: requests, failures and false answers.

use super::failures::Failures;
use crate::{
    answer::{Answer, Mark},
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Those without status 200, 206 or 304.
    pub(super) failures: Failures,
    pub(super) wrong: usize,
}

impl Tally {
    /// Counts a request, and its answer as false if it has a fault, with the rule that it breaks.
    pub(super) fn add(
        &mut self,
        audit: &Audit<'_>,
        request: &UserRequest,
        fault: Option<(Violation, &'static str)>,
    ) {
        if let Some((violation, rule)) = fault {
            self.wrong += 1;
            audit.users.found(violation, request, rule);
        }
        self.failures.add(request, fault.is_some() || matches!(request.status(), Some(200 | 206 | 304)));
    }

    /// `wrong` if an answer was false, unknown if most requests failed, or else `right`.
    pub(super) fn answer(&self, wrong: &str, right: Mark, right_text: &str) -> Answer {
        let Failures { requests, failed, .. } = &self.failures;
        let (mark, text) = if self.wrong > 0 {
            (Mark::Wrong, format!("{} of {requests} {wrong}", self.wrong))
        } else if failed * 2 > *requests {
            (Mark::Unknown, self.failures.sentence())
        } else {
            (right, format!("{right_text}{}", self.failures.appended()))
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
            let tally = Tally { failures: Failures::example(failed, 10), wrong };
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
