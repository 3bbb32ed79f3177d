//! RESULTS.md, and the same tables for a terminal.

use std::{fmt::Write as _, path::Path};

use stockade_record::ratios::{Aim, RatioVerdict};

use crate::{
    command::{
        fold::{Row, rows},
        plot,
        record::Record,
    },
    statistics::range,
    suite::{BENCHES, Bench, Metric, OURS, Result},
};

/// Processors busier than this before a sitting: other programs disturb it.
const BUSY_MAX: f64 = 0.1;

const HEAD: &str = "# Results of the benches\n\n\
    `make bench` writes this page from `results/`; [README.md](README.md#read-the-results) says how to read it, and how each bench is made \
    fair. A ratio is ours / theirs. A claim is **met** where the whole interval reaches the aim, to 1 %, **short** where it misses it, \
    and **open** where it does both.\n";

/// Writes RESULTS.md and the plots from all records of a folder.
pub fn write(folder: &Path) -> Result<()> {
    let mut sections = Vec::new();
    for bench in &BENCHES {
        if let Some(record) = Record::read(folder, bench.name)? {
            let rows = rows(bench, &record);
            std::fs::write(
                folder.join("results").join(format!("{}.svg", bench.name)),
                plot::svg(bench, &rows),
            )?;
            sections.push((bench, record, rows));
        }
    }
    let mut page = HEAD.to_owned();
    let summary =
        sections.iter().map(|(bench, record, rows)| summary_line(bench, record, rows)).collect::<Vec<_>>();
    let headings = ["bench", "shows", "met", "short", "open", "sittings", "measured"];
    page.push('\n');
    page += &table(&headings.map(str::to_owned), &summary);
    for (bench, record, rows) in &sections {
        page += &section(bench, record, rows);
    }
    Ok(std::fs::write(folder.join("RESULTS.md"), page)?)
}

fn count(rows: &[Row], verdict: RatioVerdict) -> usize {
    rows.iter().filter(|row| row.judged.verdict == Some(verdict)).count()
}

fn summary_line(bench: &Bench, record: &Record, rows: &[Row]) -> Vec<String> {
    let day = record.began.split('T').next().unwrap_or_default();
    let note = if disturbed(record).is_some() { ", disturbed" } else { "" };
    vec![
        format!("[{}](#{})", bench.name, bench.name),
        bench.shows.to_owned(),
        count(rows, RatioVerdict::Met).to_string(),
        count(rows, RatioVerdict::Short).to_string(),
        count(rows, RatioVerdict::Open).to_string(),
        record.sittings.len().to_string(),
        format!("{day}{note}"),
    ]
}

fn section(bench: &Bench, record: &Record, rows: &[Row]) -> String {
    let mut text = format!("\n## {}\n\n{}. {}\n\n", bench.name, capital(bench.shows), bench.method);
    text += &conditions(record);
    let _ = write!(text, "\n![{}: ratios and intervals](results/{}.svg)\n\n", bench.name, bench.name);
    text + &rows_table(bench, rows)
}

/// When, where and with what a bench was measured.
fn conditions(record: &Record) -> String {
    let machine = &record.machine;
    let peers: Vec<_> = record.peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let mut text = format!(
        "Measured {} at commit {}, {}: {}, {} cores, {} GiB, {}, virtualised: {}.",
        record.began.replace('T', " ").replace('Z', " UTC"),
        record.commit,
        plural(record.sittings.len(), "sitting"),
        machine.cpu,
        machine.cores,
        machine.memory_mib.div_ceil(1_024),
        machine.os,
        machine.virtualised,
    );
    if !peers.is_empty() {
        let _ = write!(text, " Peers: {}.", peers.join(", "));
    }
    if !record.missing.is_empty() {
        let _ = write!(text, " Not installed, so without rows: {}.", record.missing.join(", "));
    }
    if let Some(disturbed) = disturbed(record) {
        let _ = write!(text, "\n\n**{disturbed}**");
    }
    text + "\n"
}

/// Signs that other programs ran during the bench.
fn disturbed(record: &Record) -> Option<String> {
    let busy: Vec<f64> = record.sittings.iter().map(|sitting| sitting.busy_before).collect();
    let count = busy.iter().filter(|share| **share > BUSY_MAX).count();
    (count > 0).then(|| {
        format!(
            "Disturbed: other programs used up to {:.0} % of the processors before {count} of {}. Measure again on a quiet machine.",
            range(&busy).1 * 100.0,
            plural(busy.len(), "sitting")
        )
    })
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// The table of a bench, for a page or a terminal.
#[must_use]
pub fn rows_table(bench: &Bench, rows: &[Row]) -> String {
    let headings = ["case", OURS, "peer", "ratio (interval)", "sittings", "aim", "verdict"];
    let lines: Vec<_> = rows.iter().map(|row| line(row, bench.metrics.len() > 1)).collect();
    table(&headings.map(str::to_owned), &lines)
}

/// With the name of the metric, if the bench has several.
fn line(row: &Row, has_metric: bool) -> Vec<String> {
    let (least, most) = range(&row.ratios);
    let setting = row.ours.0.strip_prefix(OURS).and_then(|rest| rest.strip_prefix(", "));
    let name = if has_metric { format!(": {}", row.metric.name) } else { String::new() };
    let judged = &row.judged;
    vec![
        setting.map_or(row.case.clone(), |setting| format!("{}, {setting}", row.case)) + &name,
        value(row.metric, row.ours.1),
        format!("{}: {}", row.peer.0, value(row.metric, row.peer.1)),
        format!("{} ({} to {})", factor(judged.mean), factor(judged.low), factor(judged.high)),
        format!("{} to {}", factor(least), factor(most)),
        match row.aim {
            Some(Aim::AtLeast(aim)) => format!(">= {aim}"),
            Some(Aim::AtMost(aim)) => format!("<= {aim}"),
            None => String::new(),
        },
        match judged.verdict {
            Some(RatioVerdict::Met) => "met".to_owned(),
            Some(RatioVerdict::Short) => "**short**".to_owned(),
            Some(RatioVerdict::Open) => judged
                .repeats_to_decide
                .map_or("open".to_owned(), |repeats| format!("open, {repeats} sittings may decide")),
            None => "limit".to_owned(),
        },
    ]
}

/// Three significant digits below 10.
fn factor(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 1_000.0 => grouped(ratio, 0),
        ratio if ratio >= 100.0 => format!("{ratio:.0}"),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio if ratio >= 0.1 => format!("{ratio:.2}"),
        ratio => format!("{ratio:.3}"),
    }
}

fn value(metric: &Metric, value: f64) -> String {
    let space = if metric.unit.is_empty() || metric.unit.starts_with('/') { "" } else { " " };
    format!("{}{space}{}", grouped(value, metric.digits), metric.unit)
}

/// With commas between thousands.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let first = whole.len() % 3;
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(&whole[..first]);
    }
    let rest_of_whole = &whole[first..];
    parts.extend((0..rest_of_whole.len() / 3).map(|at| &rest_of_whole[3 * at..3 * at + 3]));
    format!("{sign}{}{rest}", parts.join(","))
}

/// A Markdown table whose columns are aligned as text, too.
fn table(headings: &[String], lines: &[Vec<String>]) -> String {
    let width = |at: usize| {
        lines.iter().map(|line| line[at].chars().count()).fold(headings[at].chars().count(), usize::max)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let row = |cells: &[String]| {
        let padded: Vec<_> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
    row(headings) + &row(&rule) + &lines.iter().map(|line| row(line)).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_commas() {
        let cases = [
            (0.8123, "0.81"),
            (1.0, "1.00"),
            (16.44, "16.4"),
            (0.05, "0.050"),
            (123.4, "123"),
            (1_234.6, "1,235"),
        ];
        for (ratio, expected) in cases {
            assert_eq!(factor(ratio), expected);
        }
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(-123.0, 0), "-123");
        assert_eq!(grouped(1_234.25, 1), "1,234.2");
    }

    #[test]
    fn table_is_aligned() {
        let lines = vec![vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "22".to_owned()]];
        let expected = "| x    | yyy |\n| ---- | --- |\n| a    | 1   |\n| long | 22  |\n";
        assert_eq!(table(&["x".to_owned(), "yyy".to_owned()], &lines), expected);
    }
}
