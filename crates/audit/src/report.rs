//! The report of an audit: text for people, JSON for scripts.

use std::fmt::Write;

use serde_json::{Value, json};
use stockade_model::{
    message::{printable_lines, wrapped},
    registry::{Registry, ReportFormat},
    units::format_span,
};

use crate::{
    answer::{Answer, Mark},
    questions::Question,
    setup::AuditReport,
};

/// The columns of the text.
const COLUMNS: usize = 80;
/// Before the second and later lines of an answer.
const INDENT: usize = 9;

pub type Render = fn(&AuditReport) -> String;

pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    ReportFormat::new("text", "a page for a terminal", text),
    ReportFormat::new("json", "answers with marks, evidence and remedies, for scripts", json),
]);

fn text(report: &AuditReport) -> String {
    let mut page = format!(
        "{} at {}: {} questions in {}\n",
        shown_server(report),
        report.url,
        report.answers.len(),
        format_span(report.took)
    );
    let mut group = "";
    for (question, answer) in &report.answers {
        if question.group() != group {
            group = question.group();
            let _ = write!(page, "\n{group}\n");
        }
        let remedy = report.remedies.get(question.id);
        page.push_str(&answer_lines(question, answer, remedy.copied()));
    }
    let _ = writeln!(page, "\n{}", counts(report));
    printable_lines(&page).into_owned()
}

/// `  weak   QUESTION: ANSWER`, and the remedy below it.
fn answer_lines(question: &Question, answer: &Answer, remedy: Option<&str>) -> String {
    let mut lines = String::new();
    let mut head = format!("  {:<7}", answer.mark.name());
    for text in [question.text, &answer.text]
        .into_iter()
        .map(str::to_owned)
        .chain(remedy.map(|remedy| format!("> {remedy}")))
    {
        for line in wrapped(&text, COLUMNS - INDENT) {
            let _ = writeln!(lines, "{head}{line}");
            head = " ".repeat(INDENT);
        }
    }
    lines
}

fn shown_server(report: &AuditReport) -> String {
    match (report.server.name, &report.server.version) {
        (None, _) => "a cache".to_owned(),
        (Some(name), None) => name.to_owned(),
        (Some(name), Some(version)) => format!("{name} {version}"),
    }
}

/// `4 best, 1 good, 2 weak`
fn counts(report: &AuditReport) -> String {
    let marks = [Mark::Best, Mark::Good, Mark::Weak, Mark::Wrong, Mark::Unknown];
    let count = |mark| report.answers.iter().filter(|(_, answer)| answer.mark == mark).count();
    let counts = marks.map(|mark| (count(mark), mark)).into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, mark)| format!("{count} {}", mark.name())).collect::<Vec<_>>().join(", ")
}

fn json(report: &AuditReport) -> String {
    let answers: Vec<Value> = report
        .answers
        .iter()
        .map(|(question, answer)| {
            let mut one = json!({
                "id": question.id,
                "question": question.text,
                "mark": answer.mark,
                "answer": answer.text,
                "evidence": answer.evidence,
            });
            if let Some(remedy) = report.remedies.get(question.id) {
                one["remedy"] = (*remedy).into();
            }
            one
        })
        .collect();
    let is_unknown = report.answers.iter().any(|(_, answer)| answer.mark == Mark::Unknown);
    let verdict = if is_unknown { "inconclusive" } else { "supported" };
    format!("{}\n", json!({"verdict": verdict, "cache": report.server, "answers": answers}))
}
