//! `report.md`: for a pull request or a chat.

use std::fmt::Write;

use stockade_model::record::Record;

use super::{accounting, markdown_grid, published, summary};
use crate::metrics::Results;

/// The conclusion, then the sections of the published documents: context, hypotheses, results, setup.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    let mut text = String::new();
    let _ = write(&mut text, record, results);
    text
}

fn write(text: &mut String, record: &Record, results: &Results) -> std::fmt::Result {
    writeln!(text, "# {}\n", record.experiment)?;
    writeln!(text, "**{}** ({})\n", summary::verdict(record), summary::how(record))?;
    for sentence in summary::conclusion(record) {
        writeln!(text, "{sentence}\n")?;
    }
    if let Some(context) = &record.context {
        writeln!(text, "## Context\n\n{context}\n")?;
    }
    if !record.hypotheses.is_empty() {
        let headings = summary::HYPOTHESIS_HEADINGS.map(str::to_owned);
        let rows = summary::hypothesis_rows(record, str::to_owned, |expr| format!("`{expr}`"));
        writeln!(text, "## Hypotheses\n\n{}\n", markdown_grid(&headings, &rows))?;
    }
    writeln!(text, "## Results\n")?;
    for table in summary::tables(record, results) {
        writeln!(text, "### {}\n", table.title)?;
        writeln!(text, "{}\n", markdown_grid(&table.headings, &table.rows))?;
        for note in &table.notes {
            writeln!(text, "- {note}")?;
        }
        if !table.notes.is_empty() {
            writeln!(text)?;
        }
        for table in accounting::tables(record, &table.test) {
            let grid = markdown_grid(&table.headings, &table.rows);
            writeln!(text, "#### {}\n\n{grid}\n\n{}.\n", table.title, table.note)?;
        }
        for (id, report) in published::texts(record, results, &table.test) {
            writeln!(text, "<details><summary>{id}</summary>\n\n```\n{report}\n```\n\n</details>\n")?;
        }
    }
    if let Some(reference) = &record.reference {
        writeln!(text, "Published: {}.\n", reference.source)?;
    }
    writeln!(text, "## Setup\n")?;
    for (what, value) in summary::setup(record) {
        writeln!(text, "- {what}: {value}")?;
    }
    let spec = record.spec.trim_end();
    writeln!(
        text,
        "\n<details><summary>the experiment's file</summary>\n\n```toml\n{spec}\n```\n\n</details>"
    )
}
