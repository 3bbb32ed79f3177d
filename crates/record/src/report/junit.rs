//! `JUnit` XML, in the form that CI services show: a test case for each hypothesis.

use crate::record::{Expectation, Hypothesis, Record, Verdict};
use maud::{PreEscaped, html};

use super::summary;
use crate::metrics::Results;

/// A refuted hypothesis is a failure; one without enough or without valid evidence is an error, because the run proved
/// nothing. One that a scaled run does not judge is skipped.
#[must_use]
pub fn render(record: &Record, _: &Results) -> String {
    let count = |is_counted: fn(Verdict) -> bool| {
        record.hypotheses.iter().filter(|hypothesis| is_counted(hypothesis.verdict)).count()
    };
    let (failures, errors) = (count(|verdict| verdict == Verdict::Refuted), count(is_error));
    let skipped = count(|verdict| verdict == Verdict::NotJudged);
    let (name, tests) = (printable(&record.experiment), record.hypotheses.len());
    let document = html! {
        (DECLARATION)
        testsuites name="stockade" tests=(tests) failures=(failures) errors=(errors) skipped=(skipped) {
            (PreEscaped("\n"))
            testsuite name=(name) tests=(tests) failures=(failures) errors=(errors) skipped=(skipped) timestamp=(record.started_at) {
                (PreEscaped("\n"))
                properties {
                    property name="stockade" value=(record.stockade) {}
                    property name="seed" value=(record.seed.0) {}
                    property name="clock" value=(summary::how(record)) {}
                }
                @for hypothesis in &record.hypotheses {
                    (PreEscaped("\n"))
                    testcase classname=(name) name=(printable(&hypothesis.text)) {
                        @match hypothesis.verdict {
                            Verdict::Supported => {}
                            Verdict::NotJudged => skipped message=(first_reason(hypothesis)) {
                                (evidence(record, hypothesis))
                            },
                            Verdict::Refuted => failure type="refuted" message=(first_reason(hypothesis)) {
                                (evidence(record, hypothesis))
                            },
                            verdict => error type=(verdict) message=(first_reason(hypothesis)) {
                                (evidence(record, hypothesis))
                            },
                        }
                    }
                }
            }
        }
    };
    document.into_string() + "\n"
}

fn is_error(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Inconclusive | Verdict::Invalid)
}

fn undecided(hypothesis: &Hypothesis) -> impl Iterator<Item = &Expectation> {
    hypothesis.expect.iter().filter(|expectation| expectation.verdict != Verdict::Supported)
}

fn first_reason(hypothesis: &Hypothesis) -> String {
    let worst = undecided(hypothesis).find(|expectation| expectation.verdict == hypothesis.verdict);
    worst.map(|Expectation { expr, reason, .. }| printable(&format!("{expr}: {reason}"))).unwrap_or_default()
}

/// A line for each comparison that does not hold.
fn evidence(record: &Record, hypothesis: &Hypothesis) -> String {
    let lines = undecided(hypothesis).map(|expectation| {
        let sides = summary::sides_in_parentheses(record, expectation);
        let Expectation { expr, reason, verdict, .. } = expectation;
        printable(&format!("{verdict}: {expr}: {reason}{sides}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first line of a report.
pub const DECLARATION: PreEscaped<&str> = PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");

/// XML 1.0 has no form for most control characters (2.2, `Char`), not even an escaped one.
#[must_use]
pub fn printable(text: &str) -> String {
    let has_no_form = |c: char| match c {
        '\n' | '\t' => false,
        c => c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    text.replace(has_no_form, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_become_cases_failures_and_errors() {
        let expect = |verdict: &str, reason: &str| {
            serde_json::json!({
                "expr": "a.failed < 1", "left": 2.0, "right": 1.0, "verdict": verdict, "reason": reason,
            })
        };
        let record = serde_json::json!({
            "schema": crate::record::SCHEMA, "experiment": "A & \"B\"", "spec": "", "seed": 1, "scale": 1.0,
            "repeats": 1, "clock": "virtual", "started_at": "2026-11-23T10:00:00Z", "stockade": "0.1.0",
            "host": { "cpu": "", "cores": 2, "memory_mib": 1, "os": "" }, "planned": 1, "interrupted": false,
            "tests": [""], "arms": [{ "name": "a" }], "runs": [], "verdict": "refuted",
            "hypotheses": [
                { "text": "holds", "verdict": "supported", "expect": [expect("supported", "held")] },
                { "text": "a < \u{7}b", "verdict": "refuted",
                  "expect": [expect("supported", "held"), expect("refuted", "held in 0 of 1")] },
                { "text": "whole", "verdict": "not_judged", "expect": [expect("not_judged", "the run is scaled")] },
                { "text": "few", "verdict": "inconclusive", "expect": [expect("inconclusive", "1 of 5 repeats")] },
            ],
        });
        let record: Record = serde_json::from_value(record).unwrap();
        insta::assert_snapshot!(render(&record, &Results::default()), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="stockade" tests="4" failures="1" errors="1" skipped="1">
        <testsuite name="A &amp; &quot;B&quot;" tests="4" failures="1" errors="1" skipped="1" timestamp="2026-11-23T10:00:00Z">
        <properties><property name="stockade" value="0.1.0"></property><property name="seed" value="1"></property><property name="clock" value="one repeat; virtual time (computed; the source answers any number at once)"></property></properties>
        <testcase classname="A &amp; &quot;B&quot;" name="holds"></testcase>
        <testcase classname="A &amp; &quot;B&quot;" name="a &lt; �b"><failure type="refuted" message="a.failed &lt; 1: held in 0 of 1">refuted: a.failed &lt; 1: held in 0 of 1 (2 against 1)</failure></testcase>
        <testcase classname="A &amp; &quot;B&quot;" name="whole"><skipped message="a.failed &lt; 1: the run is scaled">not judged: a.failed &lt; 1: the run is scaled (2 against 1)</skipped></testcase>
        <testcase classname="A &amp; &quot;B&quot;" name="few"><error type="inconclusive" message="a.failed &lt; 1: 1 of 5 repeats">inconclusive: a.failed &lt; 1: 1 of 5 repeats (2 against 1)</error></testcase></testsuite></testsuites>
        "#);
    }
}
