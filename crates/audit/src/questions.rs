//! The questions of an audit, one file for each group.

mod herd;

use std::{future::Future, pin::Pin};

use crate::{answer::Answer, setup::Audit};

/// A question about a cache, with the test that answers it.
pub struct Question {
    /// `GROUP.NAME`, in JSON and for `--fail-on`.
    pub id: &'static str,
    pub group: &'static str,
    pub text: &'static str,
    /// Few requests and long waits: it is examined at the same time as the others of its group, which follow one another.
    pub(crate) mostly_waits: bool,
    pub(crate) ask: for<'a> fn(&'a Audit<'a>) -> Pin<Box<dyn Future<Output = Answer> + 'a>>,
}

/// In the order of reports.
pub static QUESTIONS: &[Question] = &[
    Question {
        id: "herd.cold",
        group: "herd",
        text: "A page that is not stored, and 200 users at once",
        mostly_waits: false,
        ask: |audit| Box::pin(herd::cold(audit)),
    },
    Question {
        id: "herd.expired",
        group: "herd",
        text: "A hot page that has expired, and 200 users at once",
        mostly_waits: false,
        ask: |audit| Box::pin(herd::expired(audit)),
    },
    Question {
        id: "herd.uncacheable",
        group: "herd",
        text: "A page that must not be stored, and 50 users at once",
        mostly_waits: false,
        ask: |audit| Box::pin(herd::uncacheable(audit)),
    },
    Question {
        id: "herd.slow",
        group: "herd",
        text: "A page that takes 12 seconds, and 50 users at once",
        mostly_waits: true,
        ask: |audit| Box::pin(herd::slow(audit)),
    },
    Question {
        id: "herd.leader-stalls",
        group: "herd",
        text: "The first load never ends, the next ones would",
        mostly_waits: true,
        ask: |audit| Box::pin(herd::leader_stalls(audit)),
    },
    Question {
        id: "herd.leader-reset",
        group: "herd",
        text: "The first load breaks off, the next ones would not",
        mostly_waits: false,
        ask: |audit| Box::pin(herd::leader_reset(audit)),
    },
    Question {
        id: "herd.leader-cancelled",
        group: "herd",
        text: "The user whose request began the load gives up",
        mostly_waits: false,
        ask: |audit| Box::pin(herd::leader_cancelled(audit)),
    },
];

impl Question {
    /// The groups, in their order.
    pub(crate) fn groups() -> Vec<&'static str> {
        let mut groups: Vec<&str> = QUESTIONS.iter().map(|question| question.group).collect();
        groups.dedup();
        groups
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Question").field(&self.id).finish()
    }
}
