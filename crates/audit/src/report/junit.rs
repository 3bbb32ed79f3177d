//! `JUnit` XML, in the form that CI services show: a test case for each question.

use maud::{Markup, html};
use stockade_record::report::junit::{DECLARATION, printable};

use super::{AuditReport, ReportOptions};
use crate::{
    answer::{Answer, Mark},
    compare::{AnswerChange, ChangeKind},
    questions::Question,
};

/// An answer that `--fail-on` names is a failure; without it, a wrong one is. An unknown answer is an error, because the audit
/// proved nothing. A question that was not asked is skipped.
pub(super) fn render(report: &AuditReport, options: &ReportOptions<'_>) -> String {
    let count = |outcome| {
        report.answers.iter().filter(|(question, answer)| of(options, question, answer) == outcome).count()
    };
    let (failures, errors) = (count(Outcome::Failure), count(Outcome::Error));
    let gone: Vec<_> = gone(report, options).collect();
    let skipped = report.not_asked.len() + gone.len();
    let (name, tests) = (printable(&report.server_in_words()), report.answers.len() + skipped);
    let document = html! {
        (DECLARATION)
        testsuites name="stockade" tests=(tests) failures=(failures) errors=(errors) skipped=(skipped) {
            "\n"
            testsuite name={ "audit of " (name) } tests=(tests) failures=(failures) errors=(errors) skipped=(skipped) {
                @for (question, answer) in &report.answers { "\n" (case(report, options, question, answer)) }
                @for question in &report.not_asked {
                    @let was = options.change(question).map(in_words).unwrap_or_default();
                    "\n" (skipped_case(question.id, &format!("not asked without {}{was}", question.need())))
                }
                @for change in gone { "\n" (skipped_case(&change.id, &format!("not asked{}", in_words(change)))) }
                "\n"
            }
        }
    };
    document.into_string() + "\n"
}

/// How a test case ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success,
    Failure,
    Error,
}

fn of(options: &ReportOptions<'_>, question: &Question, answer: &Answer) -> Outcome {
    let fails = match options.fail_on {
        [] => answer.mark == Mark::Wrong,
        _ => options.fails(question, answer),
    };
    match answer.mark {
        _ if fails => Outcome::Failure,
        Mark::Unknown => Outcome::Error,
        _ => Outcome::Success,
    }
}

fn case(report: &AuditReport, options: &ReportOptions<'_>, question: &Question, answer: &Answer) -> Markup {
    let mark = answer.mark.name();
    let change = options.other_mark(question).map(in_words).unwrap_or_default();
    let message = printable(&format!("{mark}{change}: {}", answer.text));
    let remedy = report.remedy(question).map(|remedy| format!("remedy: {remedy}"));
    let rule = (!question.rule.is_empty()).then(|| format!("rule: {}", question.rule));
    let evidence = answer.evidence.iter().map(|(name, value)| format!("{name}: {value}"));
    let details = evidence.chain(rule).chain(remedy).collect::<Vec<_>>().join("\n");
    html! {
        testcase classname=(question.group()) name={ (question.id) ": " (question.text) } {
            @match of(options, question, answer) {
                Outcome::Success => system-out { (message) },
                Outcome::Failure => failure type=(mark) message=(message) { (printable(&details)) },
                Outcome::Error => error type=(mark) message=(message) { (printable(&details)) },
            }
        }
    }
}

fn skipped_case(id: &str, message: &str) -> Markup {
    let group = id.split('.').next().unwrap_or_default();
    html! { testcase classname=(printable(group)) name=(printable(id)) { skipped message=(printable(message)) {} } }
}

/// The questions that only the earlier audit has and this program does not know.
fn gone<'a>(report: &AuditReport, options: &ReportOptions<'a>) -> impl Iterator<Item = &'a AnswerChange> {
    let is_known = |id: &str| report.not_asked.iter().any(|question| question.id == id);
    options
        .against
        .into_iter()
        .flat_map(|comparison| comparison.of_kind(ChangeKind::Gone))
        .filter(move |change| !is_known(&change.id))
}

fn in_words(change: &AnswerChange) -> String {
    change.was.map(|was| format!(" (was {})", was.name())).unwrap_or_default()
}
