//! The ratios of a bench and their intervals as a picture (SVG).

use std::fmt::Write as _;

use stockade_record::ratios::RatioVerdict;

use crate::{
    command::fold::Row,
    suite::{Bench, Better, OURS},
};

const ROW_HEIGHT: f64 = 22.0;
const HEAD_HEIGHT: f64 = 40.0;
const LABEL_WIDTH: f64 = 380.0;
const PLOT_WIDTH: f64 = 420.0;
const VALUE_WIDTH: f64 = 70.0;
/// The axis shows this factor around 1 at least.
const FACTOR_MIN: f64 = 1.5;
/// Beyond it intervals are cut off.
const FACTOR_MAX: f64 = 100.0;
/// Marks of the axis, if they are within it.
const MARKS: [f64; 13] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// One row for each ratio: to the right of the line ours is better, whether higher or lower figures are.
#[must_use]
pub fn svg(bench: &Bench, rows: &[Row]) -> String {
    let advantages: Vec<[f64; 3]> = rows.iter().map(advantage).collect();
    let axis = Axis::of(&advantages);
    let height = HEAD_HEIGHT + ROW_HEIGHT * rows.len() as f64 + 10.0;
    let width = LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <style>text {{ fill: #57606a }} line {{ stroke: #d0d7de }} .one {{ stroke: #57606a }}\n\
         .met {{ stroke: #1a7f37; fill: #1a7f37 }} .short {{ stroke: #cf222e; fill: #cf222e }} .open {{ stroke: #9a6700; fill: #9a6700 }}\n\
         .limit {{ stroke: #8c959f; fill: #8c959f }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #9ea7b3 }} line {{ stroke: #30363d }} .one {{ stroke: #9ea7b3 }}\n\
         .met {{ stroke: #3fb950; fill: #3fb950 }} .short {{ stroke: #f85149; fill: #f85149 }} .open {{ stroke: #d29922; fill: #d29922 }} }}\n\
         </style>\n"
    );
    for mark in MARKS.iter().filter(|mark| axis.shows(**mark)) {
        let (x, class) = (axis.x(*mark), if mark.ln().abs() < f64::EPSILON { "one" } else { "mark" });
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEAD_HEIGHT}\" y2=\"{:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>",
            height - 10.0,
            HEAD_HEIGHT - 6.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"14\" text-anchor=\"middle\">times as good as the peer: right of 1, {OURS} is better</text>",
        LABEL_WIDTH + PLOT_WIDTH / 2.0
    );
    for (at, (row, advantage)) in rows.iter().zip(&advantages).enumerate() {
        let y = HEAD_HEIGHT + ROW_HEIGHT * (at as f64 + 0.5);
        svg += &row_svg(row, bench.metrics.len() > 1, *advantage, &axis, y);
    }
    svg + "</svg>\n"
}

fn row_svg(row: &Row, has_metric: bool, [mean, low, high]: [f64; 3], axis: &Axis, y: f64) -> String {
    let class = match row.judged.verdict {
        Some(RatioVerdict::Met) => "met",
        Some(RatioVerdict::Short) => "short",
        Some(RatioVerdict::Open) => "open",
        None => "limit",
    };
    let setting = row.ours.0.strip_prefix(OURS).unwrap_or_default();
    let metric = if has_metric { format!(", {}", row.metric.name) } else { String::new() };
    let label = format!("{}{setting}{metric}: compared with {}", row.case, row.peer.0);
    let label = label.replace('`', "").replace('&', "&amp;").replace('<', "&lt;");
    let text = y + 4.0;
    format!(
        "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{label}</text>\
         <line class=\"{class}\" stroke-width=\"2\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"/>\
         <text x=\"{:.1}\" y=\"{text:.1}\">{mean:.2}</text>\n",
        LABEL_WIDTH - 12.0,
        axis.x(low),
        axis.x(high),
        axis.x(mean),
        LABEL_WIDTH + PLOT_WIDTH + 12.0
    )
}

/// The mean and the ends of the interval, above 1 where ours is better.
fn advantage(row: &Row) -> [f64; 3] {
    let judged = &row.judged;
    match row.metric.better {
        Better::Higher => [judged.mean, judged.low, judged.high],
        Better::Lower => [1.0 / judged.mean, 1.0 / judged.high, 1.0 / judged.low],
    }
}

/// A logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn of(advantages: &[[f64; 3]]) -> Self {
        let ends = advantages.iter().flatten().copied().filter(|end| end.is_finite() && *end > 0.0);
        let (from, to) =
            ends.fold((1.0 / FACTOR_MIN, FACTOR_MIN), |(from, to), end| (from.min(end), to.max(end)));
        Self { from: from.max(1.0 / FACTOR_MAX), to: to.min(FACTOR_MAX) }
    }

    fn shows(&self, factor: f64) -> bool {
        (self.from..=self.to).contains(&factor)
    }

    fn x(&self, factor: f64) -> f64 {
        let share = (factor.clamp(self.from, self.to) / self.from).ln() / (self.to / self.from).ln();
        LABEL_WIDTH + PLOT_WIDTH * share
    }
}
