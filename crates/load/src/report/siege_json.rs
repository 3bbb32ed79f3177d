//! The output of `siege -j` of version 4.0.7, byte for byte; later versions break the line after the brace. Times are in
//! seconds.

use super::{ReportOptions, siege};
use crate::summary::Summary;

/// The text before each figure.
const KEYS: [&str; 12] = [
    "\"transactions\":\t\t\t",
    "\"availability\":\t\t\t",
    "\"elapsed_time\":\t\t\t",
    "\"data_transferred\":\t\t",
    "\"response_time\":\t\t",
    "\"transaction_rate\":\t\t",
    "\"throughput\":\t\t\t",
    "\"concurrency\":\t\t\t",
    "\"successful_transactions\":\t",
    "\"failed_transactions\":\t\t",
    "\"longest_transaction\":\t\t",
    "\"shortest_transaction\":\t\t",
];

/// Twelve figures, one per line.
#[must_use]
pub fn render(summary: &Summary, _: &ReportOptions) -> String {
    let lines: Vec<String> = KEYS
        .iter()
        .zip(siege::report(summary).figures())
        .map(|(key, figure)| format!("\t{key}{figure}"))
        .collect();
    format!("{{{}\n}}\n", lines.join(",\n"))
}
