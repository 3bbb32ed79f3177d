//! A comment on a pull request: the verdict in the first line, at most three lines, and the tables folded.
//!
//! A comment on GitHub has at most 65,536 characters. This report has half of them at most, also if every character of a title
//! has to be escaped, so that a comparison with the last record fits into the same comment.

use std::fmt::Write;

use crate::record::{ClockKind, Hypothesis, Record, Verdict};
use stockade_model::units::format_milliseconds;

use super::{
    markdown_text::{code, escape_markdown, table},
    summary::{self, SummaryTable},
};
use crate::metrics::Results;

/// Bounds of the parts, in bytes.
const HYPOTHESES_BYTES_MAX: usize = 8_000;
const FIGURES_BYTES_MAX: usize = 8_000;
const NOTES_BYTES_MAX: usize = 2_000;

/// Without the directory of the record.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    report(record, results, None)
}

/// The same with the directory of the record.
#[must_use]
pub fn report(record: &Record, results: &Results, directory: Option<&str>) -> String {
    let mut text = String::new();
    let _ = write(&mut text, record, results, directory);
    text
}

fn write(text: &mut String, record: &Record, results: &Results, directory: Option<&str>) -> std::fmt::Result {
    writeln!(text, "**{}**: {}\n", capital(&summary::verdict(record)), head(record))?;
    if let Some(reason) = reason(record) {
        writeln!(text, "{reason}\n")?;
    }
    writeln!(text, "{}\n", origin(record, directory))?;
    writeln!(text, "<details><summary>Hypotheses and figures</summary>\n")?;
    if !record.hypotheses.is_empty() {
        let headings = summary::HYPOTHESIS_HEADINGS.map(str::to_owned);
        let rows = summary::hypothesis_rows(record, escape_markdown, code);
        writeln!(text, "{}", table(&headings, &rows, HYPOTHESES_BYTES_MAX))?;
    }
    figures(text, &summary::tables(record, results))?;
    writeln!(text, "</details>")
}

/// The tables of all tests and their notes, within their bounds.
fn figures(text: &mut String, tables: &[SummaryTable]) -> std::fmt::Result {
    let end = text.len() + FIGURES_BYTES_MAX;
    let mut notes = Vec::new();
    for (index, of_test) in tables.iter().enumerate() {
        let rows: Vec<Vec<String>> =
            of_test.rows.iter().map(|row| row.iter().map(|cell| escape_markdown(cell)).collect()).collect();
        let headings: Vec<_> = of_test.headings.iter().map(|heading| escape_markdown(heading)).collect();
        let title = escape_markdown(&of_test.title);
        let left = end.saturating_sub(text.len() + title.len());
        // A table with less room would have no row.
        if left < 500 {
            writeln!(text, "The figures of {} tests are left out here.\n", tables.len() - index)?;
            break;
        }
        writeln!(text, "**{title}**\n\n{}", table(&headings, &rows, left))?;
        notes.extend(&of_test.notes);
    }
    let end = text.len() + NOTES_BYTES_MAX;
    for (index, note) in notes.iter().enumerate() {
        let note = escape_markdown(note);
        if text.len() + note.len() > end {
            writeln!(text, "- {} more notes are left out here.", notes.len() - index)?;
            break;
        }
        writeln!(text, "- {note}")?;
    }
    if notes.is_empty() { Ok(()) } else { writeln!(text) }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// `1 of 3 hypotheses refuted, 2 supported (TITLE)`
fn head(record: &Record) -> String {
    let all = record.hypotheses.len();
    let verdicts =
        [Verdict::Refuted, Verdict::Invalid, Verdict::Inconclusive, Verdict::Supported, Verdict::NotJudged];
    let counts = verdicts.into_iter().filter_map(|verdict| {
        let count = record.hypotheses.iter().filter(|hypothesis| hypothesis.verdict == verdict).count();
        (count > 0).then_some((count, verdict))
    });
    let mut counts: Vec<_> = counts.map(|(count, verdict)| format!("{count} {verdict}")).collect();
    if let Some((count, verdict)) = counts.first().and_then(|first| first.split_once(' ')) {
        let plural = if all == 1 { "hypothesis" } else { "hypotheses" };
        counts[0] = format!("{count} of {all} {plural} {verdict}");
    }
    if record.interrupted {
        counts.insert(0, format!("{} of {} measurements made", record.runs.len(), record.planned));
    }
    if record.is_scaled() {
        counts.push(format!("scaled by {}", record.scale));
    }
    let title = escape_markdown(&record.experiment);
    if counts.is_empty() { title } else { format!("{} ({title})", counts.join(", ")) }
}

/// The first hypothesis with the worst verdict, and why.
fn reason(record: &Record) -> Option<String> {
    if record.hypotheses.iter().all(|hypothesis| hypothesis.verdict == Verdict::NotJudged) {
        return summary::not_judged(record);
    }
    let open = |hypothesis: &&Hypothesis| hypothesis.verdict > Verdict::Supported;
    let worst = record.hypotheses.iter().filter(open).max_by_key(|hypothesis| hypothesis.verdict)?;
    // Of equals, `max_by_key` returns the last.
    let worst = record.hypotheses.iter().find(|hypothesis| hypothesis.verdict == worst.verdict)?;
    let expectation = worst.expect.iter().find(|expectation| expectation.verdict == worst.verdict)?;
    let (claim, expr) = (escape_markdown(&worst.text), code(&expectation.expr));
    let (verdict, reason) = (worst.verdict, escape_markdown(&expectation.reason));
    if expectation.left.is_none() && expectation.right.is_none() {
        return Some(format!("{claim}, {verdict}: {expr}: {reason}"));
    }
    let [left, right] = summary::sides(record, expectation).map(|side| escape_markdown(&side));
    Some(format!("{claim}, {verdict}: {expr} is {left} against {right}; {reason}"))
}

/// Machine, duration, seed, program, and the record if its place is known, in one line.
fn origin(record: &Record, directory: Option<&str>) -> String {
    let measured_ms: f64 = record.runs.iter().map(|run| run.load.finished_ms()).sum();
    let time = if record.clock == ClockKind::Virtual { "simulated" } else { "measured" };
    let measurements = match record.runs.len() {
        1 => "1 measurement".to_owned(),
        runs => format!("{runs} measurements"),
    };
    let host = &record.host;
    let mut parts = vec![
        format!("{}, {} cores", escape_markdown(&host.cpu), host.cores),
        format!("{} {time} in {measurements}", format_milliseconds(measured_ms)),
        format!("seed {}", record.seed.0),
        format!("stockade {}", escape_markdown(&record.stockade)),
    ];
    parts.extend(directory.map(|directory| format!("record {}", code(directory))));
    format!("<sub>{}</sub>", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use crate::record::SCHEMA;

    use super::*;

    fn record(hypotheses: &serde_json::Value) -> Record {
        let record = serde_json::json!({
            "schema": SCHEMA, "experiment": "A <b>title</b> @all", "spec": "", "seed": 7, "scale": 1.0, "repeats": 1,
            "clock": "virtual", "started_at": "2026-11-23T10:00:00Z", "stockade": "0.1.0 (abc)",
            "host": { "cpu": "CPU | 1", "cores": 2, "memory_mib": 1, "os": "" }, "planned": 1, "interrupted": false,
            "tests": [""], "arms": [{ "name": "a" }], "runs": [], "verdict": "refuted", "hypotheses": hypotheses,
        });
        serde_json::from_value(record).unwrap()
    }

    fn hypothesis(text: &str, verdict: &str) -> serde_json::Value {
        let expect = serde_json::json!({
            "expr": "a.failed < 1", "left": 2.0, "right": 1.0, "verdict": verdict, "reason": "held in 0 of 1",
        });
        serde_json::json!({ "text": text, "verdict": verdict, "expect": [expect] })
    }

    #[test]
    fn verdict_is_in_the_first_of_three_lines() {
        let hypotheses =
            serde_json::json!([hypothesis("holds", "supported"), hypothesis("a</details>", "refuted")]);
        let text = report(&record(&hypotheses), &Results::default(), Some("runs/`x`"));
        insta::assert_snapshot!(text, @r"
        **Refuted**: 1 of 2 hypotheses refuted, 1 supported (A &lt;b&gt;title&lt;/b&gt; @&#8203;all)

        a&lt;/details&gt;, refuted: <code>a.failed &lt; 1</code> is 2 against 1; held in 0 of 1

        <sub>CPU &#124; 1, 2 cores; 0 simulated in 0 measurements; seed 7; stockade 0.1.0 (abc); record <code>runs/&#96;x&#96;</code></sub>

        <details><summary>Hypotheses and figures</summary>

        | verdict | hypothesis | expected | left | right | evidence |
        | --- | --- | --- | ---: | ---: | --- |
        | supported | holds | <code>a.failed &lt; 1</code> | 2 | 1 | held in 0 of 1 |
        | refuted | a&lt;/details&gt; | <code>a.failed &lt; 1</code> | 2 | 1 | held in 0 of 1 |

        </details>
        ");
        let lines = text.lines().take_while(|line| !line.starts_with("<details>"));
        assert_eq!(lines.filter(|line| !line.is_empty()).count(), 3);
    }

    #[test]
    fn large_and_hostile_record_fits_into_half_a_comment() {
        let text = |n: usize| format!("{n}{}", "|".repeat(300));
        let hypotheses: Vec<_> = (0..2_000).map(|n| hypothesis(&text(n), "refuted")).collect();
        let mut record = record(&hypotheses.into());
        let host = crate::record::Host { cpu: text(0), ..record.host };
        (record.experiment, record.stockade, record.host) = (text(0), text(0), host);
        record.hypotheses[0].expect[0].reason = text(0);
        let text = report(&record, &Results::default(), Some(&text(0)));
        assert!(text.len() < 32_768, "{}", text.len());
        assert!(text.contains(" of 2000 rows are left out here."), "{text}");
        assert!(text.ends_with("</details>\n"));
    }
}
