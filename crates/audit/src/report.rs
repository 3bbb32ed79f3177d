//! The reports of an audit: each format is a function in a file of its own.

mod html;
mod json;
mod junit;
mod markdown;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use std::cmp::Reverse;

use stockade_model::{
    registry::{Registry, ReportFormat},
    units::{format_count, format_span},
};

pub use json::{SCHEMA, render as json};

use crate::{
    answer::{Answer, Mark, counted},
    compare::{AnswerChange, AuditComparison, ChangeKind},
    fail_on::FailingAnswer,
    questions::Question,
    setup::AuditReport,
    truth::{Example, Violation},
};

/// The answers that a summary names.
const WORST_ANSWERS: usize = 3;
/// Groups whose wrong answers show one user the page of another, or a wrong body; the severest first.
const SEVEREST: [&str; 4] = ["privacy", "keys", "integrity", "variants"];

/// Settings of a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportOptions<'a> {
    /// The comparison with an earlier audit.
    pub against: Option<&'a AuditComparison>,
    pub fail_on: &'a [FailingAnswer],
}

pub type Render = fn(&AuditReport, &ReportOptions<'_>) -> String;

pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    ReportFormat::new("text", "a page for a terminal", text::render),
    ReportFormat::new("json", "answers with marks, evidence and remedies, for scripts", json::render),
    ReportFormat::new("md", "the worst answers in Markdown, and all of them folded", markdown::render),
    ReportFormat::new("html", "one page", html::render),
    ReportFormat::new("junit", "a test case for each question, as JUnit's XML", junit::render),
]);

impl ReportOptions<'_> {
    /// True for an answer that `--fail-on` names.
    fn fails(&self, question: &Question, answer: &Answer) -> bool {
        self.fail_on.iter().any(|what| what.has(question, answer, self.change(question)))
    }

    /// The change of a question since the earlier audit.
    fn change(&self, question: &Question) -> Option<&AnswerChange> {
        self.against?.change(question.id)
    }

    /// The same if its mark is another one.
    fn other_mark(&self, question: &Question) -> Option<&AnswerChange> {
        self.change(question).filter(|change| !matches!(change.kind(), ChangeKind::Same | ChangeKind::New))
    }
}

impl AuditReport {
    /// True if `--fail-on` names one of the answers.
    #[must_use]
    pub fn fails(&self, options: &ReportOptions<'_>) -> bool {
        self.answers.iter().any(|(question, answer)| options.fails(question, answer))
    }

    /// `nginx 1.22.1`
    fn server_in_words(&self) -> String {
        server_in_words(self.server.name, self.server.version.as_deref())
    }

    /// `7 questions in 15.2s`
    fn extent(&self) -> String {
        format!("{} in {}", counted(self.answers.len(), "question"), format_span(self.took))
    }

    /// The marks that answers have, with their number.
    fn mark_counts(&self) -> impl Iterator<Item = (Mark, usize)> {
        let count = |mark| self.answers.iter().filter(|(_, answer)| answer.mark == mark).count();
        Mark::ALL.into_iter().map(move |mark| (mark, count(mark))).filter(|(_, count)| *count > 0)
    }

    /// `4 best, 1 good, 2 weak`
    fn counts(&self) -> String {
        self.mark_counts()
            .map(|(mark, count)| format!("{count} {}", mark.name()))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn remedy(&self, question: &Question) -> Option<&str> {
        self.remedies.get(question.id).map(AsRef::as_ref)
    }

    /// The wrong answers, then the weak ones; of equals first those about other users' pages and wrong bodies, then those with a remedy.
    fn worst(&self) -> Vec<(&Question, &Answer)> {
        let bad = self.answers.iter().filter(|(_, answer)| matches!(answer.mark, Mark::Weak | Mark::Wrong));
        let mut bad: Vec<_> = bad.map(|(question, answer)| (*question, answer)).collect();
        let severity = |question: &Question| {
            SEVEREST.iter().position(|group| *group == question.group()).unwrap_or(SEVEREST.len())
        };
        bad.sort_by_key(|(question, answer)| {
            // A weak answer is not false.
            let severity = if answer.mark == Mark::Wrong { severity(question) } else { 0 };
            (Reverse(answer.mark), severity, self.remedy(question).is_none())
        });
        bad.truncate(WORST_ANSWERS);
        bad
    }

    /// The answers of each group, in order.
    fn groups(&self) -> impl Iterator<Item = &[(&'static Question, Answer)]> {
        self.answers.chunk_by(|(one, _), (next, _)| one.group() == next.group())
    }

    /// The kinds of false answers that were found, with their number and the first example.
    fn false_answers(&self) -> impl Iterator<Item = (Violation, u64, &Example)> {
        Violation::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, self.truth.count(kind), self.truth.example(kind)?)))
    }

    /// `2 false answers to 1,300 requests`
    fn false_answers_in_words(&self) -> String {
        let requests = format_count(self.truth.requests as u64);
        match self.truth.violations() {
            0 => format!("No false answer to {requests} requests"),
            1 => format!("1 false answer to {requests} requests"),
            count => format!("{} false answers to {requests} requests", format_count(count)),
        }
    }

    /// The questions that were not asked, by what they need.
    fn not_asked_by_need(&self) -> Vec<(&'static str, Vec<&'static Question>)> {
        let mut needs: Vec<(_, Vec<_>)> = Vec::new();
        for question in &self.not_asked {
            match needs.iter_mut().find(|(need, _)| *need == question.need()) {
                Some((_, questions)) => questions.push(*question),
                None => needs.push((question.need(), vec![*question])),
            }
        }
        needs
    }
}

/// Of a server that states its name, its version, or neither.
pub(crate) fn server_in_words(name: Option<&str>, version: Option<&str>) -> String {
    match (name, version) {
        (None, _) => "a cache".to_owned(),
        (Some(name), None) => name.to_owned(),
        (Some(name), Some(version)) => format!("{name} {version}"),
    }
}

/// In words: `too old`.
fn violation_in_words(violation: Violation) -> String {
    violation.name().replace('_', " ")
}
