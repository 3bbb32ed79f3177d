//! Reports: each format is a function of the record, in a file of its own.

mod accounting;
pub mod go_format;
pub mod html;
pub(crate) mod inline;
pub mod json;
pub mod junit;
pub mod kazoo;
pub mod markdown;
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

use crate::metrics::Results;

/// A report format.
#[derive(Debug)]
pub struct RecordFormat {
    /// Its name on the command line.
    pub name: &'static str,
    render: fn(&Record, &Results) -> String,
}

impl RecordFormat {
    #[must_use]
    pub fn render(&self, record: &Record, results: &Results) -> String {
        (self.render)(record, results)
    }
}

/// The format of this name.
///
/// # Panics
/// For any other name.
#[must_use]
pub fn find_format(name: &str) -> &'static RecordFormat {
    FORMATS
        .iter()
        .find(|format| format.name == name)
        .expect("the command line takes the names of FORMATS only")
}

/// Every format of `report` and of `run --format`.
pub const FORMATS: &[RecordFormat] = &[
    RecordFormat { name: "text", render: text::render },
    RecordFormat { name: "md", render: markdown::render },
    RecordFormat { name: "html", render: html::render },
    RecordFormat { name: "json", render: json::render },
    RecordFormat { name: "junit", render: junit::render },
    RecordFormat { name: "summary", render: pull_request::render },
    RecordFormat { name: "openmetrics", render: openmetrics::render },
    RecordFormat { name: "kazoo", render: kazoo::render },
    RecordFormat { name: "vegeta", render: published::vegeta },
    RecordFormat { name: "siege", render: published::siege },
];

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
