//! The seconds of an open load: the first repeat of each arm.

use std::collections::{BTreeMap, BTreeSet};

use stockade_model::{
    outcome::Outcome,
    record::{Arm, Record, Role},
};

use super::plots::{Column, HeatData, LineData, PlotData, PlotKind, Stage, XAxis};
use crate::metrics::{HEAT_CELLS_PER_DECADE, Moment, Results, mib};

/// A point of a longer load groups several seconds.
const POINTS_MAX: u64 = 1_800;

/// What one line shows: its name, the view that has it, and whether it is dashed.
struct Line {
    name: &'static str,
    view: Option<&'static str>,
    is_dashed: bool,
    figure: fn(&Seconds<'_>) -> Option<f64>,
}

const fn line(name: &'static str, figure: fn(&Seconds<'_>) -> Option<f64>) -> Line {
    Line { name, view: None, is_dashed: false, figure }
}

const fn dashed(name: &'static str, figure: fn(&Seconds<'_>) -> Option<f64>) -> Line {
    Line { is_dashed: true, ..line(name, figure) }
}

const fn view(view: &'static str, figure: fn(&Seconds<'_>) -> Option<f64>) -> Line {
    Line { view: Some(view), ..line(view, figure) }
}

/// A plot with a line for each arm and each of these.
struct TimePlot {
    title: &'static str,
    unit: &'static str,
    /// The view at first.
    view: usize,
    lines: &'static [Line],
}

const PLOTS: &[TimePlot] = &[
    TimePlot {
        title: "Requests and source loads",
        unit: "a second",
        view: 0,
        lines: &[
            line("requests", |of| of.rate(|moment| moment.outcomes.requests())),
            dashed("source loads", |of| of.rate(|moment| moment.source_loads)),
        ],
    },
    TimePlot {
        title: "Response time",
        unit: "ms",
        view: 2,
        lines: &[
            view("p50", |of| of.most(|moment| Some(moment.response_ms?.p50))),
            view("p90", |of| of.most(|moment| Some(moment.response_ms?.p90))),
            view("p99", |of| of.most(|moment| Some(moment.response_ms?.p99))),
            view("p99.9", |of| of.most(|moment| Some(moment.response_ms?.p999))),
            view("max", |of| of.most(|moment| Some(moment.response_ms?.max))),
        ],
    },
    TimePlot {
        title: "Failed and not sent",
        unit: "a second",
        view: 0,
        lines: &[
            line("failed", |of| of.rate(|moment| moment.outcomes.error)),
            dashed("not sent", |of| of.rate(|moment| moment.dropped)),
        ],
    },
    TimePlot {
        title: "Age of the oldest answer",
        unit: "ms",
        view: 0,
        lines: &[line("", |of| of.most(|moment| moment.age_max_ms))],
    },
    TimePlot {
        title: "Send lag, p99",
        unit: "ms",
        view: 0,
        lines: &[line("", |of| of.most(|moment| moment.send_lag_p99_ms))],
    },
    TimePlot {
        title: "Entries held",
        unit: "entries",
        view: 0,
        lines: &[line("", |of| of.most(|moment| Some(moment.holds?.entries as f64)))],
    },
    TimePlot {
        title: "Bytes held",
        unit: "MiB",
        view: 0,
        lines: &[line("", |of| of.most(|moment| Some(mib(moment.holds?.bytes?))))],
    },
    TimePlot {
        title: "Resident memory",
        unit: "MiB",
        view: 0,
        lines: &[
            view("proxy", |of| of.most(|moment| memory(moment, Role::Proxy))),
            view("origin", |of| of.most(|moment| memory(moment, Role::Origin))),
            view("load", |of| of.most(|moment| memory(moment, Role::Load))),
        ],
    },
    TimePlot {
        title: "Processor time",
        unit: "cores",
        view: 0,
        lines: &[
            view("proxy", |of| of.most(|moment| Some(moment.usage.get(&Role::Proxy)?.cpu))),
            view("origin", |of| of.most(|moment| Some(moment.usage.get(&Role::Origin)?.cpu))),
            view("load", |of| of.most(|moment| Some(moment.usage.get(&Role::Load)?.cpu))),
        ],
    },
];

fn memory(moment: &Moment, role: Role) -> Option<f64> {
    Some(mib(moment.usage.get(&role)?.rss_bytes))
}

/// One point of a plot over time: a group of seconds.
struct Seconds<'a> {
    count: u64,
    moments: &'a [&'a Moment],
}

impl Seconds<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "other figures of a second may be missing")]
    fn rate(&self, figure: impl Fn(&Moment) -> u64) -> Option<f64> {
        let sum: u64 = self.moments.iter().map(|moment| figure(moment)).sum();
        Some(sum as f64 / self.count as f64)
    }

    fn most(&self, figure: fn(&Moment) -> Option<f64>) -> Option<f64> {
        self.moments.iter().filter_map(|moment| figure(moment)).reduce(f64::max)
    }
}

/// The seconds of an arm, in a group for each point.
struct ArmSeconds<'a> {
    /// Index of the arm.
    arm: usize,
    name: &'a str,
    groups: Vec<Vec<&'a Moment>>,
}

/// Groups of seconds: the x axis of all plots of a test.
struct Points {
    /// Seconds of a load, and of a point.
    seconds: u64,
    at_once: u64,
}

impl Points {
    fn of(seconds: u64) -> Self {
        Self { seconds, at_once: seconds.div_ceil(POINTS_MAX).max(1) }
    }

    fn xs(&self) -> Column {
        (0..self.seconds)
            .step_by(usize::try_from(self.at_once).unwrap_or(1))
            .map(|x| Some(x as f64))
            .collect()
    }

    /// The whole seconds of a load by point; what finished after the load is left out.
    fn groups<'a>(&self, moments: &'a [Moment]) -> Vec<Vec<&'a Moment>> {
        let mut groups = vec![Vec::new(); usize::try_from(self.seconds.div_ceil(self.at_once)).unwrap_or(0)];
        for moment in moments.iter().filter(|moment| moment.second < self.seconds) {
            let group = usize::try_from(moment.second / self.at_once).unwrap_or(usize::MAX);
            groups[group].push(moment);
        }
        groups
    }

    fn column(&self, arm: &ArmSeconds<'_>, figure: impl Fn(&Seconds<'_>) -> Option<f64>) -> Column {
        let point = |(group, moments): (u64, &Vec<&Moment>)| {
            let count = self.at_once.min(self.seconds - group * self.at_once);
            figure(&Seconds { count, moments })
        };
        (0..).zip(&arm.groups).map(point).collect()
    }
}

/// The plots of a test; none of a burst. Counts are the mean of the seconds of a point, times the worst.
pub(super) fn plots(record: &Record, results: &Results, test: &str) -> Vec<PlotData> {
    let lasts = |arm: &str| Some(results.repeats(test, arm).first()?.run.load.open()?.duration_ms / 1e3);
    let seconds = record.arms.iter().filter_map(|arm| lasts(&arm.name)).fold(0.0, f64::max);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 30 days")]
    let points = Points::of(seconds as u64);
    let measured = record.arms.iter().enumerate().filter(|(_, arm)| lasts(&arm.name).is_some());
    let arms: Vec<ArmSeconds<'_>> = measured
        .map(|(arm, Arm { name, .. })| ArmSeconds {
            arm,
            name,
            groups: points.groups(results.moments(test, name)),
        })
        .collect();
    let disturbed: BTreeSet<u64> = arms
        .iter()
        .flat_map(|arm| arm.groups.iter().flatten())
        .filter(|moment| moment.is_disturbed)
        .map(|moment| moment.second / points.at_once * points.at_once)
        .collect();
    let mut plots: Vec<PlotData> = PLOTS.iter().map(|plot| lines(plot, &points, &arms)).collect();
    plots.insert(1, outcomes(&points, &arms));
    plots.insert(3, heat(&points, &arms));
    plots.retain(|plot| !plot.lines.is_empty() || !plot.heat.is_empty());
    let stages = stages(results, test, seconds);
    for plot in &mut plots {
        test.clone_into(&mut plot.sync);
        plot.stages.clone_from(&stages);
        plot.disturbed = disturbed.iter().copied().collect();
        if points.at_once > 1 {
            plot.title = format!("{}, {} seconds at a time", plot.title, points.at_once);
        }
    }
    plots
}

/// What the origin does until the end of the load at `end`, where it is not as at first.
fn stages(results: &Results, test: &str, end: f64) -> Vec<Stage> {
    let run = results.runs().iter().map(|evidence| &evidence.run).find(|run| run.test == test);
    let stages = run.map_or(&[][..], |run| &run.stages);
    let ends = stages.iter().skip(1).map(|next| next.at_ms / 1e3).chain([end]);
    let first = stages.first().map(|first| &first.behavior);
    let stages = stages.iter().zip(ends).filter(|(stage, _)| Some(&stage.behavior) != first);
    stages
        .map(|(stage, to)| Stage { from: stage.at_ms / 1e3, to, behavior: stage.behavior.clone() })
        .collect()
}

/// The lines that are above 0 somewhere.
fn lines(of: &TimePlot, points: &Points, arms: &[ArmSeconds<'_>]) -> PlotData {
    let mut plot = PlotData::new(of.title, of.unit, XAxis::Seconds, points.xs());
    for Line { name, view, is_dashed, figure } in of.lines {
        let columns = arms.iter().map(|arm| (arm.arm, points.column(arm, *figure)));
        let columns: Vec<_> = columns.filter(|(_, ys)| ys.has_some()).collect();
        if let Some(view) = view.filter(|_| !columns.is_empty()) {
            plot.views.push(view.to_owned());
        }
        plot.lines.extend(columns.into_iter().map(|(arm, ys)| LineData {
            arm: Some(arm),
            name: (*name).to_owned(),
            view: view.map(str::to_owned),
            is_dashed: *is_dashed,
            ys,
        }));
    }
    plot.view = of.view.min(plot.views.len().saturating_sub(1));
    plot
}

/// In the order of their layers, from the bottom.
const OUTCOMES: [Outcome; Outcome::ALL.len()] = [
    Outcome::Hit,
    Outcome::Stale,
    Outcome::Coalesced,
    Outcome::Miss,
    Outcome::Fallback,
    Outcome::Negative,
    Outcome::Bypass,
    Outcome::Error,
];

/// The outcomes of an arm, one on another.
fn outcomes(points: &Points, arms: &[ArmSeconds<'_>]) -> PlotData {
    let mut plot = PlotData::new("Outcomes", "a second", XAxis::Seconds, points.xs());
    plot.kind = PlotKind::Stack;
    for arm in arms {
        let lines = OUTCOMES.map(|outcome| LineData {
            arm: Some(arm.arm),
            name: outcome.name().to_owned(),
            view: Some(arm.name.to_owned()),
            is_dashed: false,
            ys: points.column(arm, |of| of.rate(|moment| moment.outcomes.of(outcome))),
        });
        let before = plot.lines.len();
        plot.lines.extend(lines.into_iter().filter(|line| line.ys.has_some()));
        if plot.lines.len() > before {
            plot.views.push(arm.name.to_owned());
        }
    }
    plot
}

fn heat(points: &Points, arms: &[ArmSeconds<'_>]) -> PlotData {
    let mut plot = PlotData::new("Response times, heat map", "requests", XAxis::Seconds, points.xs());
    plot.kind = PlotKind::Heat;
    plot.cells_per_decade = HEAT_CELLS_PER_DECADE;
    for arm in arms {
        let cells = |moments: &Vec<&Moment>| {
            let mut sums: BTreeMap<i16, u64> = BTreeMap::new();
            for (cell, count) in moments.iter().flat_map(|moment| &moment.heat) {
                *sums.entry(*cell).or_default() += count;
            }
            sums.into_iter()
                .flat_map(|(cell, count)| [i64::from(cell), count.cast_signed()])
                .collect::<Vec<_>>()
        };
        let cells: Vec<Vec<i64>> = arm.groups.iter().map(cells).collect();
        if cells.iter().any(|second| !second.is_empty()) {
            plot.views.push(arm.name.to_owned());
            plot.heat.push(HeatData { arm: arm.arm, cells });
        }
    }
    plot
}
