//! `report.html`: one self-contained page.

mod percentiles;
mod sweeps;

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use stockade_model::record::{Arm, Record, Role, Verdict};

use super::{
    plot::{self, Plot, PlotLine},
    published, summary,
};
use crate::metrics::{Moment, Results, mib};

#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    let body = html! {
        h1 { (record.experiment) }
        p { span class={ "badge " (summary::verdict(record)) } { (summary::verdict(record)) } " " (summary::how(record)) }
        @for paragraph in record.context.iter().flat_map(|context| context.split("\n\n")) { p { (paragraph) } }
        (hypotheses(record))
        @for (title, plots) in sweeps::sections(record, results) {
            h2 { (title) }
            div.plots { @for svg in plots { figure { (PreEscaped(svg)) } } }
        }
        h2 { "Results" }
        @for table in summary::tables(record, results) {
            h3 { (table.title) }
            div.wide {
                table {
                    thead { tr { @for heading in &table.headings { th { (heading) } } } }
                    tbody { @for row in &table.rows { tr { @for cell in row { td { (cell) } } } } }
                }
            }
            @for note in &table.notes { p.note { (note) } }
            @let plots = over_time(record, results, &table.test);
            @if !plots.is_empty() && record.repeats > 1 { p { "The first repeat, second by second:" } }
            div.plots { @for svg in plots { figure { (PreEscaped(svg)) } } }
            details { summary { "response times of the answered" } figure { (PreEscaped(percentiles::of_arms(record, results, &table.test))) } }
            @for (id, report) in published::texts(record, results, &table.test) {
                details { summary { (id) } pre { (report) } }
            }
        }
        @let overlays = percentiles::of_tests(record, results);
        @if !overlays.is_empty() {
            h2 { "Response times by percentile, test over test" }
            div.plots { @for svg in overlays { figure { (PreEscaped(svg)) } } }
        }
        @let conclusion = summary::conclusion(record);
        @if !conclusion.is_empty() { h2 { "Conclusion" } }
        @for sentence in conclusion { p { (sentence) } }
        @if let Some(reference) = &record.reference { p { "Published: " (reference.source) "." } }
        h2 { "Setup" }
        dl { @for (what, value) in summary::setup(record) { dt { (what) } dd { (value) } } }
        details { summary { "the experiment's file" } pre { (record.spec) } }
    };
    page(&record.experiment, &body)
}

/// A page without other files.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn hypotheses(record: &Record) -> Markup {
    html! {
        @if !record.hypotheses.is_empty() { h2 { "Hypotheses" } }
        @for hypothesis in &record.hypotheses {
            details open[hypothesis.verdict != Verdict::Supported] {
                summary { (badge(hypothesis.verdict)) " " (hypothesis.text) }
                ul {
                    @for expectation in &hypothesis.expect {
                        @let [left, right] = summary::sides(record, expectation);
                        li {
                            code { (expectation.expr) }
                            br;
                            (expectation.verdict) ": " (expectation.reason)
                            " (" (left) " against " (right) ")"
                        }
                    }
                }
            }
        }
    }
}

fn badge(verdict: Verdict) -> Markup {
    html! { span class={ "badge " (verdict) } { (verdict) } }
}

/// A plot over time: title, unit, figure.
type OverTime = (&'static str, &'static str, fn(&Seconds<'_>) -> Option<f64>);

const OVER_TIME: [OverTime; 9] = [
    ("answered", "requests a second", |seconds| per_second(seconds, |moment| moment.answered)),
    ("failed", "requests a second", |seconds| per_second(seconds, |moment| moment.failed)),
    ("answered with something stale", "requests a second", |seconds| {
        per_second(seconds, |moment| moment.stale)
    }),
    ("source loads", "loads a second", |seconds| per_second(seconds, |moment| moment.source_loads)),
    ("response time, p99", "milliseconds", |seconds| at_most(seconds, |moment| moment.p99_ms)),
    ("memory of the proxy", "MiB", |seconds| {
        at_most(seconds, |moment| Some(mib(moment.usage.get(&Role::Proxy)?.rss_bytes)))
    }),
    ("processor time of the proxy", "cores", |seconds| {
        at_most(seconds, |moment| Some(moment.usage.get(&Role::Proxy)?.cpu))
    }),
    ("entries held", "entries", |seconds| at_most(seconds, |moment| Some(moment.holds?.entries as f64))),
    ("bytes held", "MiB", |seconds| at_most(seconds, |moment| Some(mib(moment.holds?.bytes?)))),
];

fn at_most(seconds: &Seconds<'_>, figure: fn(&Moment) -> Option<f64>) -> Option<f64> {
    seconds.moments.iter().filter_map(|moment| figure(moment)).reduce(f64::max)
}

/// One point of a plot over time: a group of seconds.
struct Seconds<'a> {
    count: u64,
    moments: Vec<&'a Moment>,
}

#[expect(clippy::unnecessary_wraps, reason = "other figures of a second may be missing")]
fn per_second(seconds: &Seconds<'_>, figure: fn(&Moment) -> u64) -> Option<f64> {
    let sum: u64 = seconds.moments.iter().map(|moment| figure(moment)).sum();
    Some(sum as f64 / seconds.count as f64)
}

/// More points are not visible in a plot.
const POINTS_MAX: u64 = 600;

/// Plots of an open load over time, one line for each arm. Only the first repeat, since percentiles cannot be
/// averaged, and only whole seconds. In long loads a point groups several seconds: the mean of counts, the
/// worst p99.
fn over_time(record: &Record, results: &Results, test: &str) -> Vec<String> {
    let lasts = |arm: &str| Some(results.repeats(test, arm).first()?.run.load.open()?.duration_ms / 1e3);
    let seconds = record.arms.iter().filter_map(|arm| lasts(&arm.name)).fold(0.0, f64::max);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 30 days")]
    let seconds = seconds as u64;
    let at_once = seconds.div_ceil(POINTS_MAX).max(1);
    let x_label = if at_once == 1 { "seconds".to_owned() } else { format!("seconds, {at_once} at a time") };
    let plot = |(title, y_label, figure): OverTime| {
        let line = |arm: &str| {
            let mut points: BTreeMap<u64, Vec<&Moment>> = BTreeMap::new();
            for moment in results.moments(test, arm) {
                points.entry(moment.second / at_once).or_default().push(moment);
            }
            let point = |index: u64| {
                let count = at_once.min(seconds - index * at_once);
                let moments = points.get(&index).cloned().unwrap_or_default();
                Some(((index * at_once) as f64, figure(&Seconds { count, moments })?))
            };
            PlotLine {
                name: arm.to_owned(),
                points: (0..seconds.div_ceil(at_once)).filter_map(point).collect(),
            }
        };
        let is_measured = |arm: &&Arm| lasts(&arm.name).is_some();
        let lines: Vec<PlotLine> =
            record.arms.iter().filter(is_measured).map(|arm| line(&arm.name)).collect();
        let is_flat = lines.iter().flat_map(|line| &line.points).all(|(_, y)| *y <= 0.0);
        let x_text = |x: f64| format!("{x:.0}");
        let plot = Plot {
            title,
            x_label: &x_label,
            y_label,
            x_is_log: false,
            lines: &lines,
            y_is_log: false,
            x_text,
            x_ticks: 8,
        };
        if is_flat { String::new() } else { plot::svg(&plot) }
    };
    OVER_TIME.into_iter().map(plot).filter(|svg| !svg.is_empty()).collect()
}

const STYLE: &str = "
:root { font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; } h3 { margin-bottom: .4rem; font-size: 1rem; }
.badge { display: inline-block; min-width: 6.5em; text-align: center; padding: 0 .5em; border-radius: .3em;
  font-size: .85em; color: #fff; background: #666; }
.badge.supported, .badge.better { background: #00704f; } .badge.refuted, .badge.worse { background: #b3401a; }
.badge.inconclusive { background: #8a6100; } .badge.invalid { background: #8b1a5c; }
summary { cursor: pointer; } details { margin: .35rem 0; } details ul { margin: .3rem 0 .8rem; }
.wide { overflow-x: auto; }
.note { margin: .2rem 0; font-size: .9em; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .4rem; text-align: right; } td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { font-weight: 600; vertical-align: bottom; line-height: 1.2; border-bottom: 2px solid #8886; } td { border-bottom: 1px solid #8883; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: .5rem 0; flex: 1 1 34rem; max-width: 46rem; }
svg { max-width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; } dd { margin: 0; }
pre { overflow-x: auto; padding: 1rem; background: #8881; border-radius: .3rem; }
";
