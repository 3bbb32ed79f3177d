//! A page for a terminal: the answers by group, and a summary.

use std::fmt::Write;

use stockade_model::message::{printable_lines, wrapped};

use super::{AuditComparison, AuditReport, ReportOptions, violation_in_words};
use crate::{answer::Mark, compare::ChangeKind};

const COLUMNS: usize = 80;
/// Before the second and later lines of an answer.
const INDENT: usize = 10;

pub(super) fn render(report: &AuditReport, options: &ReportOptions<'_>) -> String {
    let mut page = format!("{} at {}: {}\n", report.server_in_words(), report.url, report.extent());
    for answers in report.groups() {
        let _ = write!(page, "\n{}\n", answers.first().map_or("", |(question, _)| question.group()));
        for (question, answer) in answers {
            let change = options.other_mark(question);
            let change = change.map(|change| format!("{}: {}", change.kind().name(), change.marks()));
            let texts = [format!("{}: {}", question.id, question.text), answer.text.clone()]
                .into_iter()
                .chain(change);
            push_answer(&mut page, answer.mark, texts, report.remedy(question));
        }
    }
    let _ = writeln!(page, "\n{}", report.counts());
    push_summary(&mut page, report);
    if let Some(comparison) = options.against {
        push_comparison(&mut page, comparison);
    }
    printable_lines(&page).into_owned()
}

/// `  weak   QUESTION`, with the other texts and the remedy below it.
fn push_answer(page: &mut String, mark: Mark, texts: impl IntoIterator<Item = String>, remedy: Option<&str>) {
    let mut head = format!("  {:<8}", mark.name());
    for text in texts.into_iter().chain(remedy.map(|remedy| format!("> {remedy}"))) {
        for line in wrapped(&text, COLUMNS - INDENT) {
            let _ = writeln!(page, "{head}{line}");
            head = " ".repeat(INDENT);
        }
    }
}

/// The worst answers, the false ones, and the questions that were not asked.
fn push_summary(page: &mut String, report: &AuditReport) {
    let worst = report.worst();
    if !worst.is_empty() {
        page.push_str("\nworst\n");
    }
    for (question, answer) in worst {
        let text = format!("{}: {}", question.id, answer.text);
        push_answer(page, answer.mark, [text], report.remedy(question));
    }
    let _ = writeln!(page, "\n{}", report.false_answers_in_words());
    for (kind, count, example) in report.false_answers() {
        let _ =
            writeln!(page, "  {count} {}; the first, against {}:", violation_in_words(kind), example.rule);
        for text in [&example.request, &example.answer] {
            push_lines(page, text, 4);
        }
    }
    for (need, questions) in report.not_asked_by_need() {
        let _ = writeln!(page, "\nnot asked without {need}");
        let ids: Vec<_> = questions.iter().map(|question| question.id).collect();
        push_lines(page, &ids.join(", "), 2);
    }
}

fn push_comparison(page: &mut String, comparison: &AuditComparison) {
    let AuditComparison { record, server, .. } = comparison;
    page.push('\n');
    push_lines(page, &format!("against {record} ({server}): {}", comparison.counts()), 0);
    for kind in ChangeKind::ALL.into_iter().filter(|kind| *kind != ChangeKind::Same) {
        for change in comparison.of_kind(kind) {
            push_lines(page, &format!("{:<7} {}: {}", kind.name(), change.id, change.marks()), 2);
        }
    }
}

fn push_lines(page: &mut String, text: &str, indent: usize) {
    for line in wrapped(text, COLUMNS - indent) {
        let _ = writeln!(page, "{:indent$}{line}", "");
    }
}
