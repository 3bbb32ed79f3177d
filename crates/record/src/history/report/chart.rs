//! A series as inline SVG: points, the level of each part, and the records where it changed. A point names its record.

use maud::{Markup, html};

use crate::{
    compare::shown,
    history::{IndexedRecord, Series},
};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 230.0;
/// The area of the points.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 190.0;
/// Labels of the records below the axis, at most.
const LABELS_MAX: usize = 4;

/// Positions of points.
struct Axes {
    points: usize,
    from: f64,
    to: f64,
}

impl Axes {
    fn of(series: &Series<'_>) -> Self {
        let figures = || series.points.iter().map(|point| point.figure);
        let most = figures().fold(0.0, f64::max);
        let least = figures().fold(f64::INFINITY, f64::min).min(most);
        // From 0 unless that would hide small changes.
        let from = if least > most / 2.0 { (least - (most - least).max(most * 0.1)).max(0.0) } else { 0.0 };
        let to = if most > from { most + (most - from) * 0.1 } else { from + 1.0 };
        Self { points: series.points.len(), from, to }
    }

    fn x(&self, index: f64) -> f64 {
        let steps = (self.points.max(2) - 1) as f64;
        LEFT + 10.0 + (RIGHT - LEFT - 20.0) * index / steps
    }

    /// Where a level begins or ends, within the area.
    fn end(&self, index: f64) -> f64 {
        self.x(index - 0.5).clamp(LEFT, RIGHT)
    }

    fn y(&self, figure: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (figure - self.from) / (self.to - self.from)
    }
}

pub(super) fn svg(series: &Series<'_>) -> Markup {
    let axes = Axes::of(series);
    let changes = series.changes();
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (series.metric.name) " of " (series.place()) } font-family="sans-serif" font-size="12" fill="currentColor" {
            text x="8" y="18" font-size="14" font-weight="600" { (series.metric.name) " of " (series.place()) }
            text x="8" y="35" fill-opacity=".75" { (series.experiment) }
            @for share in [0.0, 0.5, 1.0] {
                @let figure = axes.from + (axes.to - axes.from) * share;
                line x1=(LEFT) x2=(RIGHT) y1=(axes.y(figure)) y2=(axes.y(figure)) stroke="currentColor" stroke-opacity=".2" {}
                text x=(LEFT - 6.0) y=(axes.y(figure) + 4.0) text-anchor="end" { (shown(series.metric, rounded(figure))) }
            }
            @for (index, anchor) in labels(axes.points) {
                text x=(axes.x(index as f64)) y=(BOTTOM + 18.0) text-anchor=(anchor) { (time(series, series.points[index].record)) }
            }
            @for (level, change) in series.levels[1..].iter().zip(&changes) {
                @let x = axes.x(level.first as f64 - 0.5);
                line x1=(x) x2=(x) y1=(TOP) y2=(BOTTOM) stroke=(colour(change.verdict_name())) stroke-dasharray="4 3" {}
                text x=(x) y=(BOTTOM + 34.0) text-anchor="middle" fill=(colour(change.verdict_name())) {
                    (change.verdict_name()) " " (change.first.commit.as_deref().unwrap_or(&change.first.started_at))
                }
            }
            @for (from, to, figure) in levels(series) {
                line x1=(axes.end(from)) x2=(axes.end(to)) y1=(axes.y(figure)) y2=(axes.y(figure)) stroke="#0072b2" stroke-opacity=".45" stroke-width="5" {}
            }
            @for (index, point) in series.points.iter().enumerate() {
                circle cx=(axes.x(index as f64)) cy=(axes.y(point.figure)) r="3" { title { (label(series, point.figure, point.record)) } }
            }
        }
    }
}

/// First point, point after the last, and figure of each level.
fn levels(series: &Series<'_>) -> impl Iterator<Item = (f64, f64, f64)> {
    let ends = series.levels[1..].iter().map(|level| level.first).chain([series.points.len()]);
    series.levels.iter().zip(ends).map(|(level, end)| (level.first as f64, end as f64, level.figure))
}

/// The points with a label, evenly spread, and how it stands to its point.
fn labels(points: usize) -> Vec<(usize, &'static str)> {
    let labels = points.min(LABELS_MAX);
    let at = |label: usize| {
        let index = if labels < 2 { 0 } else { label * (points - 1) / (labels - 1) };
        let anchor = match label {
            0 => "start",
            last if last + 1 == labels => "end",
            _ => "middle",
        };
        (index, anchor)
    };
    (0..labels).map(at).collect()
}

fn label(series: &Series<'_>, figure: f64, record: &IndexedRecord) -> String {
    let commit = record.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
    format!("{}: {}{commit}, {}", record.started_at, shown(series.metric, figure), record.directory.display())
}

/// The day of a record; its hour and minute if all records of the series are of one day.
fn time<'a>(series: &Series<'_>, record: &'a IndexedRecord) -> &'a str {
    let day = |record: &IndexedRecord| record.started_at.split('T').next().map(str::to_owned);
    let is_one_day = series.points.iter().all(|point| day(point.record) == day(record));
    let (day, time) = record.started_at.split_once('T').unwrap_or((&record.started_at, ""));
    if is_one_day { time.get(..5).unwrap_or(day) } else { day }
}

/// To three digits, for a label.
fn rounded(figure: f64) -> f64 {
    if figure == 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powf(figure.abs().log10().floor() - 2.0);
    (figure / unit).round() * unit
}

fn colour(verdict: &str) -> &'static str {
    match verdict {
        "worse" => "#d55e00",
        "better" => "#009e73",
        _ => "#808080",
    }
}
