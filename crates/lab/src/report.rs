//! Reports: each a fold over a record, one file each.

pub mod html;
pub mod json;
pub mod kazoo;
pub mod markdown;
mod plot;
mod published;
mod summary;
pub mod text;

pub use summary::verdict;

use comfy_table::{CellAlignment, Table, TableStyle, presets};
use stockade_model::record::Record;

use crate::metrics::Results;

/// A format that a record can be reported in.
#[derive(Debug)]
pub struct Format {
    /// As the command line calls it.
    pub name: &'static str,
    /// Renders it.
    pub render: fn(&Record, &Results) -> String,
}

/// Every format.
pub const FORMATS: &[Format] = &[
    Format { name: "text", render: text::render },
    Format { name: "md", render: markdown::render },
    Format { name: "html", render: html::render },
    Format { name: "json", render: json::render },
    Format { name: "kazoo", render: kazoo::render },
    Format { name: "vegeta", render: published::vegeta },
    Format { name: "siege", render: published::siege },
];

/// Aligned columns: text to the left, figures to the right.
pub(crate) fn grid(headings: &[String], rows: &[Vec<String>]) -> String {
    table(headings, rows, presets::NOTHING)
}

fn markdown_grid(headings: &[String], rows: &[Vec<String>]) -> String {
    table(headings, rows, presets::ASCII_MARKDOWN)
}

fn table(headings: &[String], rows: &[Vec<String>], style: TableStyle) -> String {
    let mut table = Table::new();
    table.load_style(style).set_header(headings).add_rows(rows);
    let is_figure = |row: &Vec<String>, column: usize| row[column].starts_with(|c: char| c.is_ascii_digit());
    for (index, column) in table.column_iter_mut().enumerate() {
        if rows.iter().any(|row| is_figure(row, index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
