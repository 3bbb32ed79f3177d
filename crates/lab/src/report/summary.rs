//! What the readable reports share: which tables there are, and what stands in them.

use std::time::Duration;

use stockade_model::{
    record::{Clock, Expectation, Hypothesis, Record},
    units::format_duration,
};

use crate::{
    judge::{self, Names},
    metrics::{Evidence, Metric, Unit, median},
};

/// The repeats of one arm of one test.
pub(super) fn repeats<'a>(evidence: &'a [Evidence], test: &str, arm: &str) -> Vec<&'a Evidence> {
    evidence.iter().filter(|e| e.run.test == test && e.run.arm == arm).collect()
}

/// One test: a row for each arm that was measured.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What is shown of an arm, and above which column.
const COLUMNS: [(&str, &str); 7] = [
    ("source_loads", "DB operations"),
    ("stores.total", "store messages"),
    ("failed", "failed"),
    ("finished", "finished"),
    ("response.p50", "p50"),
    ("response.p99", "p99"),
    ("response.max", "max"),
];

/// A table for each test that was measured; a published figure stands behind ours.
pub(super) fn tables(record: &Record, evidence: &[Evidence]) -> Vec<Table> {
    let tables = record.tests.iter().filter_map(|test| table(record, evidence, test));
    tables.collect()
}

fn table(record: &Record, evidence: &[Evidence], test: &str) -> Option<Table> {
    let measured: Vec<(&str, Vec<&Evidence>)> = record
        .arms
        .iter()
        .map(|arm| (arm.name.as_str(), repeats(evidence, test, &arm.name)))
        .filter(|(_, repeats)| !repeats.is_empty())
        .collect();
    let burst = &measured.first()?.1.first()?.run.burst;
    let workers = match burst.workers {
        1 => "1 worker".to_owned(),
        workers => format!("{workers} workers"),
    };
    let documents = match burst.documents {
        1 => "1 document".to_owned(),
        documents => format!("{documents} documents"),
    };
    let name = if test.is_empty() { String::new() } else { format!("{test}: ") };
    let title = format!("{name}{workers}, {documents}");

    // A column of published figures only where the test has some.
    let published = |arm: &str, metric: &str| {
        let path = if test.is_empty() { format!("{arm}.{metric}") } else { format!("{test}/{arm}.{metric}") };
        let reference = record.reference.as_ref().filter(|_| (record.scale - 1.0).abs() < f64::EPSILON);
        reference.and_then(|reference| reference.figures.get(&path).copied())
    };
    let mut headings = vec!["strategy".to_owned()];
    let mut rows: Vec<Vec<String>> = measured.iter().map(|(arm, _)| vec![(*arm).to_owned()]).collect();
    for (name, heading) in COLUMNS {
        let metric = Metric::named(name).expect("the columns are metrics");
        headings.push(heading.to_owned());
        for ((_, repeats), row) in measured.iter().zip(&mut rows) {
            row.push(cell(metric, repeats));
        }
        if measured.iter().any(|(arm, _)| published(arm, name).is_some()) {
            headings.push("published".to_owned());
            for ((arm, _), row) in measured.iter().zip(&mut rows) {
                row.push(published(arm, name).map(|figure| written(metric, figure)).unwrap_or_default());
            }
        }
    }
    Some(Table { title, headings, rows })
}

/// A time as the median of its repeats; a count as it is, or from where to where it varies.
fn cell(metric: &Metric, repeats: &[&Evidence]) -> String {
    let figures: Vec<f64> = repeats.iter().filter_map(|evidence| metric.figure(evidence)).collect();
    let least = figures.iter().copied().min_by(f64::total_cmp);
    let most = figures.iter().copied().max_by(f64::total_cmp);
    match (least, most, median(figures.into_iter())) {
        (Some(least), Some(most), _) if metric.unit == Unit::Number && least < most => {
            format!("{}..{}", written(metric, least), written(metric, most))
        }
        (_, _, Some(median)) => written(metric, median),
        _ => "-".to_owned(),
    }
}

fn written(metric: &Metric, figure: f64) -> String {
    match metric.unit {
        Unit::Time => format_duration(Duration::from_secs_f64(figure.max(0.0) / 1e3)),
        Unit::Number => figure.to_string(),
    }
}

/// How it was measured, in a line.
pub(super) fn how(record: &Record) -> String {
    let clock = match record.clock {
        Clock::Live => "",
        Clock::Virtual => ", virtual time (computed, not measured)",
    };
    let times = match record.repeats {
        1 => "measured once".to_owned(),
        repeats => format!("{repeats} repeats, arms interleaved; times are medians"),
    };
    let scale = if (record.scale - 1.0).abs() < f64::EPSILON {
        String::new()
    } else {
        format!(", scaled by {}", record.scale)
    };
    let interrupted = if record.interrupted { "; interrupted" } else { "" };
    format!("{times}{scale}{clock}{interrupted}")
}

/// Machine, versions, commit: what one needs to judge the figures, and to repeat them.
pub(super) fn setup(record: &Record) -> [(&'static str, String); 4] {
    let host = &record.host;
    let machine = format!("{}, {} cores, {} MiB, {}", host.cpu, host.cores, host.memory_mib, host.os);
    [
        ("machine", machine),
        ("stockade", record.stockade.clone()),
        ("started", record.started_at.clone()),
        ("seed", record.seed.0.to_string()),
    ]
}

/// Every expectation with its hypothesis, and whether it is the first of it.
pub(super) fn expectations(record: &Record) -> impl Iterator<Item = (bool, &Hypothesis, &Expectation)> {
    record.hypotheses.iter().flat_map(|hypothesis| {
        let numbered = hypothesis.expect.iter().enumerate();
        numbered.map(move |(index, expectation)| (index == 0, hypothesis, expectation))
    })
}

/// What the sides of an expectation are. It was read before the run; a record read later has it only
/// as text.
pub(super) fn unit(record: &Record, expr: &str) -> Option<Unit> {
    let arms: Vec<String> = record.arms.iter().map(|arm| arm.name.clone()).collect();
    let names = Names { tests: &record.tests, arms: &arms };
    judge::parse(expr, names).ok().map(|comparison| comparison.unit())
}

/// A side of a comparison, with a unit if it is a time.
pub(super) fn side(value: Option<f64>, is_time: bool) -> String {
    match value {
        None => "no figure".to_owned(),
        Some(ms) if is_time => format_duration(Duration::from_secs_f64(ms.max(0.0) / 1e3)),
        Some(number) => ((number * 1e4).round() / 1e4).to_string(),
    }
}
