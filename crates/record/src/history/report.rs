//! The formats of `stockade history`.

mod chart;
pub mod html;
mod text;

use serde_json::json;
use stockade_model::registry::{Registry, ReportFormat};

use super::{History, Series, SeriesChange};
use crate::compare::{ChangeVerdict, report::percent};

/// Writes a history in one format.
pub type Render = fn(&History<'_>) -> String;

pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    ReportFormat::new(
        "text",
        "the changes of each experiment with their trend; with `--metric` also the latest 40 records",
        text::render,
    ),
    ReportFormat::new(
        "csv",
        "a line for each figure, with `better`, `worse` or `changed` where a level begins",
        csv,
    ),
    ReportFormat::new(
        "json",
        "`series`, each with `points` (`started_at`, `commit`, `stockade`, `record`, `figure`) \
         and `changes` (`before`, `after`, `change` as after / before, `verdict`, `also_changed`)",
        json_report,
    ),
    ReportFormat::new("html", "a page with a chart for each series, those with a change first", html::render),
]);

impl SeriesChange<'_> {
    fn verdict_name(&self) -> &'static str {
        match self.verdict {
            Some(ChangeVerdict::Better) => "better",
            Some(_) => "worse",
            None => "changed",
        }
    }
}

impl Series<'_> {
    fn place(&self) -> String {
        if self.test.is_empty() { self.arm.to_owned() } else { format!("{}/{}", self.test, self.arm) }
    }

    /// In words, for a heading.
    fn conditions_in_words(&self) -> String {
        let conditions = &self.conditions;
        let scale =
            if conditions.scale == "1" { String::new() } else { format!(", scale {}", conditions.scale) };
        let clock = if conditions.is_virtual { ", virtual time" } else { "" };
        format!("{}{scale}{clock}, {}", conditions.load, conditions.machine)
    }

    fn clock(&self) -> &'static str {
        if self.conditions.is_virtual { "virtual" } else { "live" }
    }
}

/// `1 record`, `2 records`
fn record_count(count: usize) -> String {
    format!("{count} record{}", if count == 1 { "" } else { "s" })
}

/// Number and span of the records: `30 records, 2026-01-31T10:00:00Z to 2026-03-01T10:00:00Z`.
fn span(history: &History<'_>) -> String {
    let [first, last] = [history.records.first(), history.records.last()]
        .map(|record| record.map_or("", |record| record.started_at.as_str()));
    format!("{}, {first} to {last}", record_count(history.records.len()))
}

/// `1 worse, 0 better, of at least 5 %, in 18 series`
fn result(history: &History<'_>) -> String {
    let percent = percent(history.min_effect);
    format!("{}, of at least {percent} %, in {} series", counts(history), history.series.len())
}

/// The number of changes in all series, by verdict: `1 worse, 0 better`.
fn counts(history: &History<'_>) -> String {
    let all: Vec<_> = history.series.iter().flat_map(Series::changes).collect();
    let of = |verdict: &str| all.iter().filter(|change| change.verdict_name() == verdict).count();
    let changed = match of("changed") {
        0 => String::new(),
        count => format!(", {count} changed"),
    };
    format!("{} worse, {} better{changed}", of("worse"), of("better"))
}

/// A line for each point.
fn csv(history: &History<'_>) -> String {
    let head = [
        "experiment",
        "test",
        "arm",
        "metric",
        "figure",
        "change",
        "started_at",
        "commit",
        "stockade",
        "record",
        "scale",
        "clock",
        "machine",
        "load",
    ];
    let mut lines = vec![head.join(",")];
    for series in &history.series {
        let changes = series.changes();
        for point in &series.points {
            let record = point.record;
            let change = changes.iter().find(|change| std::ptr::eq(change.first, record));
            let directory = record.directory.to_string_lossy();
            let figure = point.figure.to_string();
            let cells: [&str; 14] = [
                series.experiment,
                series.test,
                series.arm,
                series.metric.name,
                &figure,
                change.map_or("", SeriesChange::verdict_name),
                &record.started_at,
                record.commit.as_deref().unwrap_or_default(),
                &record.stockade,
                &directory,
                &series.conditions.scale,
                series.clock(),
                &series.conditions.machine,
                series.conditions.load,
            ];
            lines.push(cells.map(csv_field).join(","));
        }
    }
    lines.join("\r\n") + "\r\n"
}

/// A field of RFC 4180.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn json_report(history: &History<'_>) -> String {
    let series = history.series.iter().map(|series| {
        let points = series.points.iter().map(|point| {
            json!({
                "started_at": point.record.started_at,
                "commit": point.record.commit,
                "stockade": point.record.stockade,
                "record": point.record.directory,
                "figure": point.figure,
            })
        });
        let changes = series.changes().into_iter().map(|change| {
            json!({
                "started_at": change.first.started_at,
                "commit": change.first.commit,
                "record": change.first.directory,
                "last_before": change.last.directory,
                "before": change.before,
                "after": change.after,
                "change": change.ratio,
                "verdict": change.verdict_name(),
                "also_changed": change.differences(),
            })
        });
        json!({
            "experiment": series.experiment,
            "test": series.test,
            "arm": series.arm,
            "metric": series.metric.name,
            "scale": series.conditions.scale.parse::<f64>().ok(),
            "clock": series.clock(),
            "machine": series.conditions.machine,
            "load": series.conditions.load,
            "points": points.collect::<Vec<_>>(),
            "changes": changes.collect::<Vec<_>>(),
        })
    });
    let report = json!({
        "records": history.records.len(),
        "min_effect": history.min_effect,
        "series": series.collect::<Vec<_>>(),
    });
    report.to_string() + "\n"
}
