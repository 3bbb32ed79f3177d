//! The questions of an audit, one file for each group.

mod failures;
mod freshness;
mod herd;
mod integrity;
mod keys;
mod limits;
mod outage;
mod privacy;
mod purge;
mod restart;
mod tally;
mod variants;

use std::{future::Future, pin::Pin, time::Duration};

use crate::{answer::Answer, setup::Audit, users::UserRequest};

/// From the load of a page with `max-age=1` until it has expired, also in a cache that counts whole seconds.
const EXPIRY: Duration = Duration::from_millis(2_500);
/// Long enough that requests sent at once wait for the same load.
const SHORT_LOAD: Duration = Duration::from_millis(100);
/// Short enough for lifetimes and outages of seconds.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(250);
/// An expired page is allowed during a refresh and an outage.
pub(crate) const STALE_ALLOWED: &str = "max-age=1, stale-while-revalidate=60, stale-if-error=60";

/// A question about a cache, with the test that answers it.
pub struct Question {
    /// `GROUP.NAME`, in JSON and for `--fail-on`.
    pub id: &'static str,
    pub text: &'static str,
    /// The rule that a wrong answer breaks, such as `RFC 9111, 3.5`; empty: no rule decides.
    pub rule: &'static str,
    pub(crate) needs: Needs,
    /// Few requests and long waits. Such questions of a group are examined at the same time, before the others, which follow one another.
    pub(crate) mostly_waits: bool,
    pub(crate) ask: Ask,
}

/// The control of a cache that a question needs. Without it, the question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Requests of users alone.
    Requests,
    /// A way to remove a page.
    Purge,
    /// A server that the audit started.
    Server,
    /// A way to have the cache read its configuration again.
    Reload,
}

/// In the order of reports.
static GROUPS: &[&[Question]] = &[
    herd::QUESTIONS,
    outage::QUESTIONS,
    freshness::QUESTIONS,
    privacy::QUESTIONS,
    variants::QUESTIONS,
    integrity::QUESTIONS,
    purge::QUESTIONS,
    limits::QUESTIONS,
    restart::QUESTIONS,
    keys::QUESTIONS,
];

/// In the order of reports.
pub fn questions() -> impl Iterator<Item = &'static Question> + Clone {
    GROUPS.iter().copied().flatten()
}

/// The questions by group, with the group's name.
pub(crate) fn groups() -> impl Iterator<Item = (&'static str, &'static [Question])> {
    GROUPS.iter().filter_map(|questions| Some((questions.first()?.group(), *questions)))
}

/// True if these ids of questions and groups name the question with this id. No ids: all questions are named.
pub(crate) fn is_named(ask: &[&str], id: &str) -> bool {
    ask.is_empty() || ask.iter().any(|named| [id, group_of(id)].contains(named))
}

fn group_of(id: &str) -> &str {
    id.split('.').next().unwrap_or_default()
}

type Ask = for<'a> fn(&'a Audit<'a>) -> Pin<Box<dyn Future<Output = Answer> + 'a>>;

/// One user's requests for this long, each `BETWEEN_REQUESTS` after the one before was answered.
async fn requests_for(
    audit: &Audit<'_>,
    path: &str,
    patience: Duration,
    duration: Duration,
) -> Vec<UserRequest> {
    let until = audit.users.now() + duration;
    let mut requests = Vec::new();
    while audit.users.now() < until {
        requests.push(audit.users.ask(path).patience(patience).send().await);
        audit.users.wait(BETWEEN_REQUESTS).await;
    }
    requests
}

impl Question {
    /// A question about a matter that no rule decides, which needs requests alone. It is examined by itself.
    pub(crate) const fn new(id: &'static str, text: &'static str, ask: Ask) -> Self {
        Self { id, text, rule: "", needs: Needs::Requests, mostly_waits: false, ask }
    }

    pub(crate) const fn rule(self, rule: &'static str) -> Self {
        Self { rule, ..self }
    }

    pub(crate) const fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    const fn mostly_waits(self) -> Self {
        Self { mostly_waits: true, ..self }
    }

    #[must_use]
    pub fn group(&self) -> &'static str {
        group_of(self.id)
    }

    /// The control of the cache that it needs, in words.
    #[must_use]
    pub fn need(&self) -> &'static str {
        match self.needs {
            Needs::Requests => "requests alone",
            Needs::Purge => "--purge",
            Needs::Server => "a server that the audit starts (--preset, --command)",
            Needs::Reload => "--reload, or a preset that can reload",
        }
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Question").field(&self.id).finish()
    }
}
