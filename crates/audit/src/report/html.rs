//! One page without other files: the marks as a bar, the worst answers, and a table for each group.

use maud::{Markup, html};
use serde_json::Value;
use stockade_model::message::printable_lines;
use stockade_record::report::html::{page_with_style, prose};

use super::{AuditReport, ReportOptions, violation_in_words};
use crate::{
    answer::{Answer, Mark},
    compare::{AuditComparison, ChangeKind},
    questions::Question,
};

const STYLE: &str = include_str!("html/page.css");

pub(super) fn render(report: &AuditReport, options: &ReportOptions<'_>) -> String {
    let title = format!("Audit of {}", report.server_in_words());
    let body = html! {
        main {
            h1 { (title) }
            p { code { (report.url) } ", " (report.extent()) }
            (marks(report))
            @if let Some(comparison) = options.against { (changes(comparison)) }
            (worst(report))
            @for answers in report.groups() {
                h2 { (answers.first().map_or("", |(question, _)| question.group())) }
                (group(report, options, answers))
            }
            (false_answers(report))
            @let not_asked = report.not_asked_by_need();
            @if !not_asked.is_empty() { h2 { "Not asked" } }
            @for (need, questions) in not_asked {
                p { "Without " (need) ":" }
                ul { @for question in questions { li { (prose(question.text)) " (" code { (question.id) } ")" } } }
            }
        }
    };
    printable_lines(&page_with_style(&title, STYLE, &body)).into_owned()
}

/// Each mark with its number: as a bar, and in words.
fn marks(report: &AuditReport) -> Markup {
    html! {
        div.marks aria-hidden="true" {
            @for (mark, count) in report.mark_counts() {
                span class={ "badge " (mark.name()) } style={ "flex-grow:" (count) } title=(mark.name()) { (count) }
            }
        }
        p { @for (mark, count) in report.mark_counts() { span.count { (badge(mark)) " " (count) } " " } }
    }
}

fn badge(mark: Mark) -> Markup {
    html! { span class={ "badge " (mark.name()) } { (mark.name()) } }
}

fn worst(report: &AuditReport) -> Markup {
    let worst = report.worst();
    html! {
        @if !worst.is_empty() {
            h2 { "The worst" }
            ul.worst {
                @for (question, answer) in worst {
                    li {
                        (badge(answer.mark)) " " a href={ "#" (question.id) } { (prose(question.text)) } ": " (prose(&answer.text))
                        (remedy(report, question))
                    }
                }
            }
        }
    }
}

fn remedy(report: &AuditReport, question: &Question) -> Markup {
    html! { @if let Some(remedy) = report.remedy(question) { code.remedy { (remedy) } } }
}

/// The marks that are not the same, worse ones first.
fn changes(comparison: &AuditComparison) -> Markup {
    let kinds = ChangeKind::ALL.into_iter().filter(|kind| *kind != ChangeKind::Same);
    let changes: Vec<_> = kinds.flat_map(|kind| comparison.of_kind(kind)).collect();
    html! {
        h2 { "Against an earlier audit" }
        p { code { (comparison.record) } " (" (comparison.server) "): " (comparison.counts()) "." }
        @if !changes.is_empty() {
            div.wide {
                table {
                    thead { tr { @for heading in ["change", "marks", "question"] { th.text { (heading) } } } }
                    tbody {
                        @for change in changes {
                            tr {
                                td.text { (change.kind().name()) }
                                td.text { (change.marks()) }
                                td.text { a href=[change.now.map(|_| format!("#{}", change.id))] { (prose(&change.question)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn group(
    report: &AuditReport,
    options: &ReportOptions<'_>,
    answers: &[(&'static Question, Answer)],
) -> Markup {
    html! {
        table.answers {
            thead { tr { @for heading in ["mark", "question and answer", "remedy"] { th.text { (heading) } } } }
            tbody {
                @for (question, answer) in answers {
                    tr id=(question.id) {
                        td.text {
                            (badge(answer.mark))
                            @if let Some(change) = options.other_mark(question) {
                                p.note { @if change.kind() != ChangeKind::Unknown { (change.kind().name()) ", " } "was " (change.was.map_or("", Mark::name)) }
                            }
                        }
                        td.text {
                            p.question { (prose(question.text)) " " code { (question.id) } }
                            p { (prose(&answer.text)) }
                            (evidence(question, answer))
                        }
                        td.text { (remedy(report, question)) }
                    }
                }
            }
        }
    }
}

/// Rule and figures, folded.
fn evidence(question: &Question, answer: &Answer) -> Markup {
    html! {
        details {
            summary { "evidence" }
            dl {
                @if !question.rule.is_empty() { dt { "rule" } dd { (question.rule) } }
                @for (name, value) in &answer.evidence { dt { (name) } dd { (shown(value)) } }
            }
        }
    }
}

/// Text without quotation marks, and anything else as in JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn false_answers(report: &AuditReport) -> Markup {
    html! {
        h2 { "False answers" }
        p { (report.false_answers_in_words()) "." }
        @for (kind, count, example) in report.false_answers() {
            h3 { (count) " " (violation_in_words(kind)) }
            dl {
                dt { "first request" } dd { code { (example.request) } }
                dt { "its response" } dd { code { (example.answer) } }
                dt { "rule" } dd { (example.rule) }
            }
        }
    }
}
