//! An audit compared with an earlier one. Pure.

use std::str::FromStr;

use serde::Deserialize;
use stockade_model::message::shown;

use crate::{
    answer::Mark,
    questions::is_named,
    report::{SCHEMA, server_in_words},
    setup::AuditReport,
};

/// An earlier audit, read from its report in JSON.
#[derive(Debug, Deserialize)]
pub struct EarlierAudit {
    cache: EarlierServer,
    pub(crate) url: String,
    /// The address of its origin.
    pub(crate) origin: String,
    pub(crate) answers: Vec<EarlierAnswer>,
}

#[derive(Deserialize)]
struct Version {
    schema: String,
}

#[derive(Debug, Deserialize)]
struct EarlierServer {
    name: Option<String>,
    version: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EarlierAnswer {
    pub(crate) id: String,
    pub(crate) question: String,
    pub(crate) mark: Mark,
    pub(crate) answer: String,
}

/// A text is not the report of an audit in JSON.
#[derive(Debug, thiserror::Error)]
#[error(
    "not the record of an audit: {0}; name a file of runs/audit, or one with the output of --format json"
)]
pub struct NotAnAudit(String);

/// An audit, compared with an earlier one.
#[derive(Clone, Debug)]
pub struct AuditComparison {
    /// The file of the earlier audit.
    pub record: String,
    /// The server of the earlier audit.
    pub server: String,
    /// In the order of the answers; then those that only the earlier audit has.
    pub changes: Vec<AnswerChange>,
}

/// The marks of a question in both audits; one has it at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerChange {
    pub id: String,
    pub question: String,
    pub was: Option<Mark>,
    pub now: Option<Mark>,
}

/// How the mark of a question changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Worse,
    Better,
    Same,
    /// One of the marks is unknown.
    Unknown,
    New,
    /// The audit did not ask the question.
    Gone,
}

impl FromStr for EarlierAudit {
    type Err = NotAnAudit;

    fn from_str(text: &str) -> Result<Self, NotAnAudit> {
        let broken = |error: serde_json::Error| NotAnAudit(error.to_string());
        let Version { schema } = serde_json::from_str(text).map_err(broken)?;
        if schema == SCHEMA {
            return serde_json::from_str(text).map_err(broken);
        }
        Err(NotAnAudit(format!("its schema is `{}`, and this program reads `{SCHEMA}`", shown(&schema))))
    }
}

impl AuditComparison {
    /// `record` names the earlier audit.
    #[must_use]
    pub fn new(record: String, earlier: &EarlierAudit, report: &AuditReport) -> Self {
        let earlier_answer = |id: &str| earlier.answers.iter().find(|answer| answer.id == id);
        let asked = report.answers.iter().map(|(question, answer)| AnswerChange {
            id: question.id.to_owned(),
            question: question.text.to_owned(),
            was: earlier_answer(question.id).map(|answer| answer.mark),
            now: Some(answer.mark),
        });
        let is_gone = |answer: &&EarlierAnswer| {
            let is_answered = report.answers.iter().any(|(question, _)| question.id == answer.id);
            !is_answered && is_named(&report.ask, &answer.id)
        };
        let gone = earlier.answers.iter().filter(is_gone).map(|answer| AnswerChange {
            id: answer.id.clone(),
            question: answer.question.clone(),
            was: Some(answer.mark),
            now: None,
        });
        let EarlierServer { name, version } = &earlier.cache;
        let server = server_in_words(name.as_deref(), version.as_deref());
        Self { record, server, changes: asked.chain(gone).collect() }
    }

    #[must_use]
    pub fn change(&self, id: &str) -> Option<&AnswerChange> {
        self.changes.iter().find(|change| change.id == id)
    }

    /// The changes of a kind, in order.
    pub fn of_kind(&self, kind: ChangeKind) -> impl Iterator<Item = &AnswerChange> {
        self.changes.iter().filter(move |change| change.kind() == kind)
    }

    /// `1 worse, 2 better, 4 same`
    #[must_use]
    pub fn counts(&self) -> String {
        let counts = ChangeKind::ALL.map(|kind| (self.of_kind(kind).count(), kind.name()));
        let counted = counts.iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

impl AnswerChange {
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match (self.was, self.now) {
            (None, _) => ChangeKind::New,
            (_, None) => ChangeKind::Gone,
            (Some(was), Some(now)) if was == now => ChangeKind::Same,
            (Some(Mark::Unknown), _) | (_, Some(Mark::Unknown)) => ChangeKind::Unknown,
            (Some(was), Some(now)) if now > was => ChangeKind::Worse,
            _ => ChangeKind::Better,
        }
    }

    /// `weak -> best`, or the only mark.
    #[must_use]
    pub fn marks(&self) -> String {
        [self.was, self.now].into_iter().flatten().map(Mark::name).collect::<Vec<_>>().join(" -> ")
    }
}

impl ChangeKind {
    /// In the order of reports.
    pub const ALL: [Self; 6] = [Self::Worse, Self::Better, Self::Same, Self::Unknown, Self::New, Self::Gone];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Unknown => "unknown",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{self, ReportOptions, tests::report};

    #[test]
    fn marks_of_two_audits_are_compared() {
        use Mark::{Best, Good, Unknown, Weak, Wrong};
        for (was, now, kind, marks) in [
            (Some(Best), Some(Best), ChangeKind::Same, "best -> best"),
            (Some(Unknown), Some(Unknown), ChangeKind::Same, "unknown -> unknown"),
            (Some(Best), Some(Good), ChangeKind::Worse, "best -> good"),
            (Some(Weak), Some(Wrong), ChangeKind::Worse, "weak -> wrong"),
            (Some(Wrong), Some(Weak), ChangeKind::Better, "wrong -> weak"),
            (Some(Good), Some(Best), ChangeKind::Better, "good -> best"),
            (Some(Unknown), Some(Wrong), ChangeKind::Unknown, "unknown -> wrong"),
            (Some(Best), Some(Unknown), ChangeKind::Unknown, "best -> unknown"),
            (None, Some(Wrong), ChangeKind::New, "wrong"),
            (Some(Best), None, ChangeKind::Gone, "best"),
        ] {
            let change = AnswerChange { id: String::new(), question: String::new(), was, now };
            assert_eq!((change.kind(), change.marks().as_str()), (kind, marks));
        }
    }

    #[test]
    fn report_in_json_is_an_earlier_audit_without_a_change() {
        let report = report();
        let earlier = report::json(&report, &ReportOptions::default()).parse().unwrap();
        let comparison = AuditComparison::new("a.json".to_owned(), &earlier, &report);
        assert_eq!(comparison.counts(), "4 same");
        assert_eq!(comparison.server, "nginx 1.22.1");
    }

    #[test]
    fn other_files_are_refused_with_the_remedy() {
        for (text, reason) in [
            ("", "EOF"),
            ("[1]", "invalid type"),
            (r#"{"schema":"stockade.plan/1","requests":1}"#, "`stockade.plan/1`"),
            (r#"{"schema":"stockade.audit/1","answers":[]}"#, "missing field `cache`"),
            (r#"{"latencies":{}}"#, "missing field `schema`"),
            (r#"{"schema":"stockade.audit/9","cache":{},"answers":[]}"#, "`stockade.audit/9`"),
        ] {
            let message = text.parse::<EarlierAudit>().unwrap_err().to_string();
            assert!(message.contains(reason) && message.contains("runs/audit"), "{message}");
        }
    }
}
