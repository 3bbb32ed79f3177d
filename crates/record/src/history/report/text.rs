//! Text for a terminal: the changes, and the trend of each series that has one.

use std::fmt::Write as _;

use super::{record_count, result, span};
use crate::{
    compare::{report::change, shown},
    history::{History, IndexedRecord, Series, SeriesChange},
    report::grid,
};

/// The latest points count for a trend and for the table of records.
const TREND_POINTS_MAX: usize = 40;

pub(super) fn render(history: &History<'_>) -> String {
    let mut parts = vec![format!("{}\n{}", span(history), result(history))];
    // Series of one experiment under equal conditions stand together.
    let mut rest: Vec<&Series<'_>> = history.series.iter().collect();
    while let Some(first) = rest.first().copied() {
        let (group, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|series| {
            series.experiment == first.experiment && series.conditions == first.conditions
        });
        parts.push(self::group(&group, history.has_one_metric()));
        rest = others;
    }
    parts.join("\n\n") + "\n"
}

impl History<'_> {
    fn has_one_metric(&self) -> bool {
        self.series.windows(2).all(|pair| pair[0].metric.name == pair[1].metric.name)
    }
}

fn group(group: &[&Series<'_>], shows_all: bool) -> String {
    let count = group.iter().map(|series| series.points.len()).max().unwrap_or_default();
    let mut lines =
        vec![format!("{}: {}, {}", group[0].experiment, record_count(count), group[0].conditions_in_words())];
    let shown = |series: &&&Series<'_>| shows_all || series.levels.len() > 1;
    let rows: Vec<_> = group.iter().filter(shown).flat_map(|series| rows(series)).collect();
    let unchanged = group.iter().filter(|series| series.levels.len() == 1).count();
    if !rows.is_empty() {
        let headings = ["", "arm", "metric", "before", "after", "change", "since", "commit", "trend"];
        lines.push(grid(&headings.map(str::to_owned), &rows));
    }
    let changes = group.iter().flat_map(|series| series.changes());
    lines.extend(notes(&changes.collect::<Vec<_>>()));
    if shows_all {
        lines.extend([String::new(), records(group)]);
    } else {
        lines.push(format!("{unchanged} of {} series have no change; --metric NAME shows them", group.len()));
    }
    lines.join("\n")
}

/// A row for each change, or one for a series without.
fn rows(series: &Series<'_>) -> Vec<Vec<String>> {
    let changes = series.changes();
    let cells = |change: Option<&SeriesChange<'_>>, trend: String| {
        let figure = |of: fn(&SeriesChange<'_>) -> f64| {
            change.map(|change| shown(series.metric, of(change))).unwrap_or_default()
        };
        let level = || shown(series.metric, series.levels[0].figure);
        vec![
            change.map_or("same", SeriesChange::verdict_name).to_owned(),
            series.place(),
            series.metric.name.to_owned(),
            figure(|change| change.before),
            change.map_or_else(level, |_| figure(|change| change.after)),
            change.and_then(|change| change.ratio).map(self::change).unwrap_or_default(),
            change.map(|change| change.first.started_at.clone()).unwrap_or_default(),
            change.and_then(|change| change.first.commit.clone()).unwrap_or_default(),
            trend,
        ]
    };
    if changes.is_empty() {
        return vec![cells(None, trend(series))];
    }
    let with_trend = |index: usize| if index == 0 { trend(series) } else { String::new() };
    changes.iter().enumerate().map(|(index, change)| cells(Some(change), with_trend(index))).collect()
}

/// The figures of each of the latest records, by arm.
fn records(group: &[&Series<'_>]) -> String {
    let places = group.iter().map(|series| series.place());
    let headings: Vec<String> = ["started", "commit"].map(str::to_owned).into_iter().chain(places).collect();
    let mut points: Vec<_> =
        group.iter().flat_map(|series| &series.points).map(|point| point.record).collect();
    points.sort_by(|a, b| (&a.started_at, &a.directory).cmp(&(&b.started_at, &b.directory)));
    points.dedup_by_key(|record| std::ptr::from_ref(*record));
    let skipped = points.len().saturating_sub(TREND_POINTS_MAX);
    let cell = |series: &Series<'_>, record: &IndexedRecord| {
        let point = series.points.iter().find(|point| std::ptr::eq(point.record, record));
        let changes = series.changes();
        let change = changes.iter().find(|change| std::ptr::eq(change.first, record));
        let verdict = change.map(|change| format!(" {}", change.verdict_name())).unwrap_or_default();
        point.map(|point| shown(series.metric, point.figure) + &verdict).unwrap_or_default()
    };
    let row = |record: &&IndexedRecord| {
        let head = [record.started_at.clone(), record.commit.clone().unwrap_or_default()];
        head.into_iter().chain(group.iter().map(|series| cell(series, record))).collect::<Vec<_>>()
    };
    let mut table = grid(&headings, &points[skipped..].iter().map(row).collect::<Vec<_>>());
    if skipped > 0 {
        let _ = write!(table, "\n{skipped} older records: --format csv lists them");
    }
    table
}

/// Other differences, once for each record.
fn notes(changes: &[SeriesChange<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = changes
        .iter()
        .filter(|change| !change.differences().is_empty())
        .map(|change| {
            format!("  {} also changed {}", change.first.started_at, change.differences().join(", "))
        })
        .collect();
    notes.sort();
    notes.dedup();
    notes
}

/// The latest figures as bars from 0 to the largest.
fn trend(series: &Series<'_>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let skipped = series.points.len().saturating_sub(TREND_POINTS_MAX);
    let figures = || series.points[skipped..].iter().map(|point| point.figure.max(0.0));
    let largest = figures().fold(f64::MIN_POSITIVE, f64::max);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
    let bar = |figure: f64| BARS[(figure / largest * 7.0).round() as usize];
    figures().map(bar).collect()
}
