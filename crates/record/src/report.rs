//! Reports: each format is a function of the record, in a file of its own.

mod accounting;
pub mod go_format;
pub mod html;
pub mod json;
pub mod junit;
pub mod kazoo;
pub mod markdown;
pub mod markdown_text;
pub mod openmetrics;
mod published;
pub mod pull_request;
pub mod screen;
pub mod siege;
pub(crate) mod summary;
pub mod text;
pub mod vegeta;

pub use summary::verdict;

use crate::{
    record::Record,
    storage::{Recorder, StorageError},
};
use comfy_table::{CellAlignment, Table, TableStyle, presets};
use stockade_model::registry::{Registry, ReportFormat};

use crate::metrics::Results;

/// Writes a record in one format.
pub type Render = fn(&Record, &Results) -> String;

/// Every format of `report` and of `run --format`.
pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    ReportFormat::new("text", "figures and verdicts, to read", text::render),
    ReportFormat::new("md", "the same in Markdown, with the setup", markdown::render),
    ReportFormat::new("html", "one page with plots", html::render),
    ReportFormat::new("json", "verdicts and the figures of each arm", json::render),
    ReportFormat::new("junit", "a test case for each hypothesis, as JUnit's XML", junit::render),
    ReportFormat::new("summary", "verdicts in Markdown, for a pull request", pull_request::render),
    ReportFormat::new("openmetrics", "figures for Prometheus, as OpenMetrics 1.0", openmetrics::render),
    ReportFormat::new("kazoo", "the table of Kazoo's load test", kazoo::render),
    ReportFormat::new("vegeta", "the text of `vegeta report` for each arm", published::vegeta),
    ReportFormat::new("siege", "the final text of siege for each arm", published::siege),
]);

/// Completes a record on disk: `record.json`, `report.md` with its plots, and `report.html`.
///
/// # Errors
/// The first file that cannot be written.
pub fn write(recorder: &Recorder, record: &Record, results: &Results) -> Result<(), StorageError> {
    recorder.checkpoint(record)?;
    for markdown::ReportFile { path, text } in markdown::files(record, results) {
        recorder.report(&path, &text)?;
    }
    recorder.report("report.html", &html::render(record, results))
}

/// Aligned columns: text to the left, numbers to the right.
#[must_use]
pub fn grid(headings: &[String], rows: &[Vec<String>]) -> String {
    table(headings, rows, presets::NOTHING)
}

pub(crate) fn markdown_grid(headings: &[String], rows: &[Vec<String>]) -> String {
    table(headings, rows, presets::ASCII_MARKDOWN)
}

fn table(headings: &[String], rows: &[Vec<String>], style: TableStyle) -> String {
    let mut table = Table::new();
    table.load_style(style).set_header(headings).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        // Text may begin with a number, too.
        let begins = |with: fn(char) -> bool| rows.iter().any(|row| row[index].starts_with(with));
        if begins(|c| c.is_ascii_digit()) && !begins(char::is_alphabetic) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
