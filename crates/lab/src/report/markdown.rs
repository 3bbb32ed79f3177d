//! `report.md`: for a pull request or a chat.

use std::fmt::Write;

use stockade_model::record::Record;

use super::{markdown_grid, summary};
use crate::metrics::{Evidence, Unit};

/// The parts of the published documents: context, hypotheses, results, setup.
#[must_use]
pub fn render(record: &Record, evidence: &[Evidence]) -> String {
    let mut text = String::new();
    let _ = write(&mut text, record, evidence);
    text
}

fn write(text: &mut String, record: &Record, evidence: &[Evidence]) -> std::fmt::Result {
    writeln!(text, "# {}\n", record.experiment)?;
    writeln!(text, "**{}** ({})\n", record.verdict, summary::how(record))?;
    if let Some(context) = &record.context {
        writeln!(text, "## Context\n\n{context}\n")?;
    }
    if !record.hypotheses.is_empty() {
        let headings = ["verdict", "hypothesis", "expected", "left", "right", "evidence"].map(str::to_owned);
        let rows: Vec<Vec<String>> = summary::expectations(record)
            .map(|(first, hypothesis, expectation)| {
                let unit = summary::unit(record, &expectation.expr);
                let is_time = unit == Some(Unit::Time);
                vec![
                    expectation.verdict.to_string(),
                    if first { hypothesis.text.clone() } else { String::new() },
                    format!("`{}`", expectation.expr),
                    summary::side(expectation.left, is_time),
                    summary::side(expectation.right, is_time),
                    expectation.reason.clone(),
                ]
            })
            .collect();
        writeln!(text, "## Hypotheses\n\n{}\n", markdown_grid(&headings, &rows))?;
    }
    writeln!(text, "## Results\n")?;
    for table in summary::tables(record, evidence) {
        writeln!(text, "### {}\n", table.title)?;
        writeln!(text, "{}\n", markdown_grid(&table.headings, &table.rows))?;
    }
    if let Some(reference) = &record.reference {
        writeln!(text, "Published: {}.\n", reference.source)?;
    }
    writeln!(text, "## Setup\n")?;
    for (what, value) in summary::setup(record) {
        writeln!(text, "- {what}: {value}")?;
    }
    writeln!(text, "\n```toml\n{}\n```", record.spec.trim_end())
}
