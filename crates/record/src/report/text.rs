//! The terminal output of `stockade run`.

use std::fmt::Write;

use crate::record::{Record, Verdict};
use stockade_model::message::printable_lines;

use super::{accounting, grid, summary};
use crate::metrics::Results;

/// Tables, published figures next to ours, the verdict on each hypothesis.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    let mut text = format!("{}\n{}\n", record.experiment, summary::how(record));
    for table in summary::tables(record, results) {
        let _ = write!(text, "\n{}\n{}\n", table.title, grid(&table.headings, &table.rows));
        for note in &table.notes {
            let _ = writeln!(text, " {note}");
        }
        for table in accounting::tables(record, &table.test) {
            let grid = grid(&table.headings, &table.rows);
            let _ = write!(text, "\n{}\n{grid}\n {}\n", table.title, table.note);
        }
    }
    if let Some(reference) = &record.reference {
        let _ = writeln!(text, "\npublished: {}", reference.source);
    }
    if !record.hypotheses.is_empty() {
        text.push('\n');
    }
    for hypothesis in &record.hypotheses {
        let _ = writeln!(text, "{} {:12} {}", mark(hypothesis.verdict), hypothesis.verdict, hypothesis.text);
        for expectation in hypothesis.expect.iter().filter(|e| e.verdict != Verdict::Supported) {
            let sides = summary::sides_in_parentheses(record, expectation);
            let (expr, reason) = (&expectation.expr, &expectation.reason);
            let _ = writeln!(text, "  {:12} {expr}: {reason}{sides}", "");
        }
    }
    printable_lines(&text).into_owned()
}

pub(super) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotJudged => "-",
        Verdict::Supported => "✓",
        Verdict::Refuted => "✗",
        Verdict::Inconclusive => "?",
        Verdict::Invalid => "!",
    }
}
