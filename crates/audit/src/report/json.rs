//! The shape of the JSON contract: for scripts, and the record that later audits are compared with.

use serde_json::{Map, Value, json};

use super::{AuditReport, ReportOptions};
use crate::{
    answer::{Answer, Mark},
    compare::ChangeKind,
    questions::Question,
    truth::{Truth, Violation},
};

/// The version of the format. Each report contains it.
pub const SCHEMA: &str = "stockade.audit/1";

/// One object on one line.
#[must_use]
pub fn render(report: &AuditReport, options: &ReportOptions<'_>) -> String {
    let answers: Vec<_> =
        report.answers.iter().map(|(question, answer)| one(report, options, question, answer)).collect();
    let not_asked: Vec<_> = report
        .not_asked
        .iter()
        .map(|question| json!({"id": question.id, "question": question.text, "needs": question.need()}))
        .collect();
    let is_unknown = report.answers.iter().any(|(_, answer)| answer.mark == Mark::Unknown);
    let mut all = json!({
        "schema": SCHEMA,
        "verdict": if is_unknown { "inconclusive" } else { "supported" },
        "cache": report.server,
        "url": report.url,
        "origin": report.origin.to_string(),
        "answers": answers,
        "not_asked": not_asked,
        "audit": truth(&report.truth),
    });
    if let Some(comparison) = options.against {
        let mut against = json!({"record": comparison.record, "cache": comparison.server});
        for kind in ChangeKind::ALL {
            let ids: Vec<_> = comparison.of_kind(kind).map(|change| change.id.as_str()).collect();
            against[kind.name()] = ids.into();
        }
        all["against"] = against;
    }
    format!("{all}\n")
}

fn one(report: &AuditReport, options: &ReportOptions<'_>, question: &Question, answer: &Answer) -> Value {
    let mut one = json!({
        "id": question.id,
        "question": question.text,
        "mark": answer.mark,
        "answer": answer.text,
        "evidence": answer.evidence,
    });
    if !question.rule.is_empty() {
        one["rule"] = question.rule.into();
    }
    if let Some(remedy) = report.remedy(question) {
        one["remedy"] = remedy.into();
    }
    if let Some(was) = options.change(question).and_then(|change| change.was) {
        one["was"] = was.name().into();
    }
    one
}

/// All counts, and the first example of each kind that was found.
fn truth(truth: &Truth) -> Value {
    let mut counts: Map<String, Value> =
        Violation::ALL.iter().map(|kind| (kind.name().to_owned(), truth.count(*kind).into())).collect();
    counts.insert("requests".to_owned(), truth.requests.into());
    let examples: Map<String, Value> = Violation::ALL
        .iter()
        .filter_map(|kind| Some((kind.name().to_owned(), json!(truth.example(*kind)?))))
        .collect();
    if !examples.is_empty() {
        counts.insert("examples".to_owned(), examples.into());
    }
    counts.into()
}
