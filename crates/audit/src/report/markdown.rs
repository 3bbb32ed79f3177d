//! A comment on a pull request: the marks in the first line, the worst answers, and all answers folded. It has at most half of the
//! 65,536 characters of a comment on GitHub.

use std::fmt::Write;

use stockade_record::report::markdown_text::{code, escape_markdown, table};

use super::{AuditReport, ReportOptions, violation_in_words};
use crate::{
    answer::Answer,
    compare::{AuditComparison, ChangeKind},
    questions::Question,
};

/// Bounds of the tables, in bytes.
const ANSWERS_BYTES_MAX: usize = 20_000;
const TABLE_BYTES_MAX: usize = 4_000;

pub(super) fn render(report: &AuditReport, options: &ReportOptions<'_>) -> String {
    let mut text = String::new();
    let _ = write(&mut text, report, options);
    text
}

fn write(text: &mut String, report: &AuditReport, options: &ReportOptions<'_>) -> std::fmt::Result {
    let server = escape_markdown(&report.server_in_words());
    writeln!(text, "**{server}**: {} ({})\n", report.counts(), report.extent())?;
    if let Some(comparison) = options.against {
        write_comparison(text, comparison)?;
    }
    let worst = report.worst();
    if !worst.is_empty() {
        let rows: Vec<_> =
            worst.into_iter().map(|(question, answer)| row(report, options, question, answer)).collect();
        writeln!(text, "The worst:\n\n{}", answer_table(&rows, options, TABLE_BYTES_MAX))?;
    }
    writeln!(text, "{}.\n", report.false_answers_in_words())?;
    let examples: Vec<_> = report
        .false_answers()
        .map(|(kind, count, example)| {
            let (request, response) = (code(&example.request), code(&example.answer));
            vec![violation_in_words(kind), count.to_string(), request, response, example.rule.clone()]
        })
        .collect();
    if !examples.is_empty() {
        let headings = ["false", "answers", "first request", "its response", "rule"].map(str::to_owned);
        writeln!(text, "{}", table(&headings, &examples, TABLE_BYTES_MAX))?;
    }
    for (need, questions) in report.not_asked_by_need() {
        let ids: Vec<_> = questions.iter().map(|question| question.id).collect();
        writeln!(text, "Not asked without {need}: {}.\n", ids.join(", "))?;
    }
    let rows: Vec<_> =
        report.answers.iter().map(|(question, answer)| row(report, options, question, answer)).collect();
    writeln!(text, "<details><summary>All answers</summary>\n")?;
    writeln!(text, "{}", answer_table(&rows, options, ANSWERS_BYTES_MAX))?;
    writeln!(text, "</details>")
}

fn answer_table(rows: &[Vec<String>], options: &ReportOptions<'_>, bytes_max: usize) -> String {
    let was = options.against.map(|_| "was");
    let headings = ["mark"].into_iter().chain(was).chain(["question and answer", "remedy"]);
    table(&headings.map(str::to_owned).collect::<Vec<_>>(), rows, bytes_max)
}

fn row(
    report: &AuditReport,
    options: &ReportOptions<'_>,
    question: &Question,
    answer: &Answer,
) -> Vec<String> {
    let was = options.against.map(|comparison| {
        let was = comparison.change(question.id).and_then(|change| change.was);
        was.map_or_else(String::new, |was| was.name().to_owned())
    });
    let remedy = report.remedy(question).map(code).unwrap_or_default();
    let (asked, text) = (escape_markdown(question.text), escape_markdown(&answer.text));
    let text = format!("`{}` {asked}<br>{text}", question.id);
    [answer.mark.name().to_owned()].into_iter().chain(was).chain([text, remedy]).collect()
}

/// The marks that are not the same, worse ones first.
fn write_comparison(text: &mut String, comparison: &AuditComparison) -> std::fmt::Result {
    let (record, server) = (code(&comparison.record), escape_markdown(&comparison.server));
    writeln!(text, "Against {record} ({server}): {}.\n", comparison.counts())?;
    let kinds = ChangeKind::ALL.into_iter().filter(|kind| *kind != ChangeKind::Same);
    let changes = kinds.flat_map(|kind| comparison.of_kind(kind));
    let rows: Vec<_> = changes
        .map(|change| {
            let (id, question) = (code(&change.id), escape_markdown(&change.question));
            vec![change.kind().name().to_owned(), change.marks(), id, question]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let headings = ["change", "marks", "id", "question"].map(str::to_owned);
    writeln!(text, "{}", table(&headings, &rows, TABLE_BYTES_MAX))
}
