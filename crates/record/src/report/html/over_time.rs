//! The seconds of an open load: the first repeat of each arm.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Arm, EventFigures, OriginStage, Record, Role};
use serde::Serialize;
use stockade_model::outcome::Outcome;

use super::{
    plots::{Column, EventMark, HeatData, LineData, PlotData, PlotKind, Stage, XAxis},
    svg,
};
use crate::metrics::{HEAT_CELLS_PER_DECADE, Moment, Results, mib};

/// The places of the plots that are not lines.
const OUTCOMES_AT: usize = 1;
const HEAT_AT: usize = 3;
/// A point of a longer load groups several seconds.
const POINTS_MAX: u64 = 1_800;
/// The same of a picture, which is 800 pixels wide.
const PICTURE_POINTS_MAX: u64 = 600;

/// The content of one line: its name, the view that has it, and whether it is dashed.
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
    /// The line whose view is shown at first.
    view: usize,
    lines: &'static [Line],
    /// The name of its picture next to `report.md`; `None`: it has no picture.
    picture: Option<&'static str>,
}

const PLOTS: &[TimePlot] = &[
    TimePlot {
        title: "Requests and source loads",
        unit: "a second",
        view: 0,
        lines: &[
            line("requests", |of| of.rate(|moment| moment.outcomes.requests())),
            dashed("source loads", |of| of.known_rate(|moment| moment.source_loads)),
        ],
        picture: Some("requests"),
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
        picture: Some("response"),
    },
    TimePlot {
        title: "Failed and not sent",
        unit: "a second",
        view: 0,
        lines: &[
            line("failed", |of| of.rate(|moment| moment.outcomes.error)),
            dashed("not sent", |of| of.rate(|moment| moment.dropped)),
        ],
        picture: None,
    },
    TimePlot {
        title: "Age of the oldest answer",
        unit: "ms",
        view: 0,
        lines: &[line("", |of| of.most(|moment| moment.age_max_ms))],
        picture: None,
    },
    TimePlot {
        title: "Send lag, p99",
        unit: "ms",
        view: 0,
        lines: &[line("", |of| of.most(|moment| moment.send_lag_p99_ms))],
        picture: None,
    },
    TimePlot {
        title: "Entries held",
        unit: "entries",
        view: 0,
        lines: &[line("", |of| of.most(|moment| Some(moment.holds?.entries as f64)))],
        picture: None,
    },
    TimePlot {
        title: "Bytes held",
        unit: "MiB",
        view: 0,
        lines: &[line("", |of| of.most(|moment| Some(mib(moment.holds?.bytes?))))],
        picture: None,
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
        picture: None,
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
        picture: None,
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
    fn rate(&self, figure: impl Fn(&Moment) -> u64) -> Option<f64> {
        self.known_rate(|moment| Some(figure(moment)))
    }

    /// `None`: a second lacks the figure.
    fn known_rate(&self, figure: impl Fn(&Moment) -> Option<u64>) -> Option<f64> {
        let sum: Option<u64> = self.moments.iter().map(|moment| figure(moment)).sum();
        Some(sum? as f64 / self.count as f64)
    }

    fn most(&self, figure: fn(&Moment) -> Option<f64>) -> Option<f64> {
        self.moments.iter().filter_map(|moment| figure(moment)).reduce(f64::max)
    }
}

/// Characters of an event next to its line.
const EVENT_CHARS_MAX: usize = 28;

/// An open load of a test, and the seconds of each arm that were measured.
pub(super) struct TestSeconds<'a> {
    pub(super) test: &'a str,
    /// The length of the load.
    pub(super) seconds: u64,
    pub(super) arms: Vec<ArmMoments<'a>>,
    /// Of the origin, in seconds since the start of the load.
    pub(super) stages: Vec<Stage>,
    pub(super) events: Vec<EventMark>,
}

/// The seconds of an arm.
pub(super) struct ArmMoments<'a> {
    /// By index.
    pub(super) arm: usize,
    pub(super) name: &'a str,
    pub(super) moments: &'a [Moment],
    /// The length of its own load.
    pub(super) seconds: u64,
    /// True: its measurement goes on, and figures that it lacks may come.
    pub(super) is_live: bool,
}

/// The same, in a group for each point.
struct ArmSeconds<'a> {
    arm: usize,
    name: &'a str,
    groups: Vec<Vec<&'a Moment>>,
    seconds: u64,
    /// Its points: so far, if its measurement goes on.
    points: usize,
    is_live: bool,
}

impl ArmSeconds<'_> {
    /// The figures of a line so far; `None`: it has none, and none will come.
    fn shown(&self, mut ys: Column) -> Option<Column> {
        ys.0.truncate(self.points);
        (self.is_live || ys.has_some()).then_some(ys)
    }
}

/// Groups of seconds: the x axis of all plots of a test.
struct Points {
    /// Seconds of a load, and of a point.
    seconds: u64,
    at_once: u64,
}

impl Points {
    fn of(seconds: u64, points_max: u64) -> Self {
        Self { seconds, at_once: seconds.div_ceil(points_max).max(1) }
    }

    fn arms<'a>(&self, of: &TestSeconds<'a>) -> Vec<ArmSeconds<'a>> {
        let arm = |&ArmMoments { arm, name, moments, seconds, is_live }: &ArmMoments<'a>| {
            let end = if is_live { moments.last().map_or(0, |last| last.second + 1) } else { seconds };
            let points = usize::try_from(end.div_ceil(self.at_once)).unwrap_or(usize::MAX);
            ArmSeconds { arm, name, groups: self.groups(moments, seconds), seconds, points, is_live }
        };
        of.arms.iter().map(arm).collect()
    }

    /// A title, and the seconds of a point if they are several.
    fn title(&self, title: &str) -> String {
        match self.at_once {
            1 => title.to_owned(),
            seconds => format!("{title}, {seconds} seconds at a time"),
        }
    }

    fn xs(&self) -> Column {
        (0..self.seconds)
            .step_by(usize::try_from(self.at_once).unwrap_or(1))
            .map(|x| Some(x as f64))
            .collect()
    }

    /// The whole seconds of a load of this length by point; requests that finished after the load are left out.
    fn groups<'a>(&self, moments: &'a [Moment], seconds: u64) -> Vec<Vec<&'a Moment>> {
        let mut groups = vec![Vec::new(); usize::try_from(self.seconds.div_ceil(self.at_once)).unwrap_or(0)];
        for moment in moments.iter().filter(|moment| moment.second < seconds) {
            let group = usize::try_from(moment.second / self.at_once).unwrap_or(usize::MAX);
            groups[group].push(moment);
        }
        groups
    }

    fn column(&self, arm: &ArmSeconds<'_>, figure: impl Fn(&Seconds<'_>) -> Option<f64>) -> Column {
        let point = |(group, moments): (u64, &Vec<&Moment>)| {
            let count = self.at_once.min(arm.seconds.saturating_sub(group * self.at_once)).max(1);
            figure(&Seconds { count, moments })
        };
        (0..).zip(&arm.groups).map(point).collect()
    }
}

/// The first repeat of each arm of a test; `None` of a burst.
pub(super) fn measured<'a>(
    record: &'a Record,
    results: &'a Results,
    test: &'a str,
) -> Option<TestSeconds<'a>> {
    let lasts = |arm: &str| Some(results.repeats(test, arm).first()?.run.load.open()?.duration_ms / 1e3);
    let seconds = record.arms.iter().filter_map(|arm| lasts(&arm.name)).reduce(f64::max)?;
    let measured = record.arms.iter().enumerate().filter(|(_, arm)| lasts(&arm.name).is_some());
    let arms = measured.map(|(arm, Arm { name, .. })| {
        let (moments, seconds) = (results.moments(test, name), whole(lasts(name).unwrap_or_default()));
        ArmMoments { arm, name, moments, seconds, is_live: false }
    });
    let run = results.runs().iter().map(|evidence| &evidence.run).find(|run| run.test == test);
    let stages = stages(run.map_or(&[][..], |run| &run.stages), seconds);
    let mark = |EventFigures { at_ms, event, .. }: &EventFigures| {
        let cut = event.char_indices().nth(EVENT_CHARS_MAX);
        let event = cut.map_or_else(|| event.clone(), |(end, _)| format!("{}…", &event[..end]));
        EventMark { at: at_ms / 1e3, event }
    };
    let events = run.iter().flat_map(|run| &run.events).map(mark).collect();
    Some(TestSeconds { test, seconds: whole(seconds), arms: arms.collect(), stages, events })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 30 days")]
fn whole(seconds: f64) -> u64 {
    seconds as u64
}

/// The plots of a test. Counts are the mean of the seconds of a point, times the worst.
pub(super) fn plots(of: &TestSeconds<'_>) -> Vec<PlotData> {
    let points = Points::of(of.seconds, POINTS_MAX);
    let arms = points.arms(of);
    let disturbed: BTreeSet<u64> = arms
        .iter()
        .flat_map(|arm| arm.groups.iter().flatten())
        .filter(|moment| moment.is_disturbed)
        .map(|moment| moment.second / points.at_once * points.at_once)
        .collect();
    let mut plots: Vec<PlotData> = PLOTS.iter().map(|plot| lines(plot, &points, &arms)).collect();
    plots.insert(OUTCOMES_AT, outcomes(&points, &arms));
    plots.insert(HEAT_AT, heat(&points, &arms));
    plots.retain(|plot| !plot.lines.is_empty() || !plot.heat.is_empty());
    for plot in &mut plots {
        of.test.clone_into(&mut plot.sync);
        plot.stages.clone_from(&of.stages);
        plot.events.clone_from(&of.events);
        plot.disturbed = disturbed.iter().copied().collect();
        plot.title = points.title(&plot.title);
    }
    plots
}

/// A plot as a file next to `report.md`.
pub(in crate::report) struct Picture {
    pub(in crate::report) title: String,
    pub(in crate::report) name: &'static str,
    pub(in crate::report) svg: String,
}

/// The pictures of a test with an open load.
pub(in crate::report) fn pictures(record: &Record, results: &Results, test: &str) -> Vec<Picture> {
    let Some(of) = measured(record, results, test) else { return Vec::new() };
    let points = Points::of(of.seconds, PICTURE_POINTS_MAX);
    let arms = points.arms(&of);
    let picture = |of_time: &TimePlot| {
        let name = of_time.picture?;
        let mut plot = lines(of_time, &points, &arms);
        let view = plot.views.get(plot.view).cloned();
        plot.lines.retain(|line| line.view == view);
        if let Some(view) = view {
            plot.title = format!("{}, {view}", plot.title);
        }
        plot.title = points.title(&plot.title);
        plot.stages.clone_from(&of.stages);
        plot.events.clone_from(&of.events);
        let svg = svg::draw(&plot, &record.arms);
        (!plot.lines.is_empty()).then_some(Picture { title: plot.title, name, svg })
    };
    PLOTS.iter().filter_map(picture).collect()
}

/// The point that a second of a live arm belongs to, by plot in the order of [`plots`].
#[derive(Serialize)]
pub(super) struct LivePoint {
    /// Its index among the points of the load.
    at: u64,
    /// Its x value, in seconds.
    x: u64,
    /// For each line of the arm.
    ys: Vec<Column>,
    /// Pairs of cell and count, and the plot that has them.
    cells: Vec<i64>,
    heat: usize,
    disturbed: bool,
}

#[cfg(test)]
impl LivePoint {
    /// Its index, and the figures of each plot's lines.
    pub(super) fn parts(&self) -> (usize, Vec<Vec<Option<f64>>>) {
        (usize::try_from(self.at).unwrap(), self.ys.iter().map(|column| column.0.clone()).collect())
    }
}

/// The last point of an arm with these seconds, in a load of this length; `None`: the arm has no such point, or it finished after the load.
pub(super) fn last_point(moments: &[Moment], seconds: u64) -> Option<LivePoint> {
    let points = Points::of(seconds, POINTS_MAX);
    let last = moments.last().filter(|last| last.second < seconds)?;
    let at = last.second / points.at_once;
    let x = at * points.at_once;
    let from = moments.iter().rposition(|moment| moment.second < x).map_or(0, |before| before + 1);
    let group: Vec<&Moment> = moments[from..].iter().collect();
    let of = Seconds { count: points.at_once.min(seconds - x), moments: &group };
    let mut ys: Vec<Column> =
        PLOTS.iter().map(|plot| plot.lines.iter().map(|line| (line.figure)(&of)).collect()).collect();
    ys.insert(
        OUTCOMES_AT,
        OUTCOMES.iter().map(|outcome| of.rate(|moment| moment.outcomes.of(*outcome))).collect(),
    );
    ys.insert(HEAT_AT, Column(Vec::new()));
    let disturbed = group.iter().any(|moment| moment.is_disturbed);
    Some(LivePoint { at, x, ys, cells: heat_counts(&group), heat: HEAT_AT, disturbed })
}

/// The stages until the end of a load, in seconds, that are not as the first one.
pub(super) fn stages(stages: &[OriginStage], end: f64) -> Vec<Stage> {
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
        let columns = arms.iter().map(|arm| (arm.arm, arm.shown(points.column(arm, *figure))));
        let columns: Vec<_> = columns.filter_map(|(arm, ys)| Some((arm, ys?))).collect();
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
    let first = of.lines[of.view].view;
    plot.view = plot.views.iter().position(|view| Some(view.as_str()) == first).unwrap_or_default();
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
        let lines = OUTCOMES.iter().filter_map(|outcome| {
            let ys = points.column(arm, |of| of.rate(|moment| moment.outcomes.of(*outcome)));
            Some(LineData {
                arm: Some(arm.arm),
                name: outcome.name().to_owned(),
                view: Some(arm.name.to_owned()),
                is_dashed: false,
                ys: arm.shown(ys)?,
            })
        });
        let before = plot.lines.len();
        plot.lines.extend(lines);
        if plot.lines.len() > before {
            plot.views.push(arm.name.to_owned());
        }
    }
    plot.view = live_view(arms);
    plot
}

fn heat(points: &Points, arms: &[ArmSeconds<'_>]) -> PlotData {
    let mut plot = PlotData::new("Response times, heat map", "requests", XAxis::Seconds, points.xs());
    plot.kind = PlotKind::Heat;
    plot.cells_per_decade = HEAT_CELLS_PER_DECADE;
    for arm in arms {
        let mut cells: Vec<Vec<i64>> = arm.groups.iter().map(|group| heat_counts(group)).collect();
        cells.truncate(arm.points);
        if arm.is_live || cells.iter().any(|second| !second.is_empty()) {
            plot.views.push(arm.name.to_owned());
            plot.heat.push(HeatData { arm: arm.arm, cells });
        }
    }
    plot.view = live_view(arms);
    plot
}

/// The arm that is measured now, or the first one.
fn live_view(arms: &[ArmSeconds<'_>]) -> usize {
    arms.iter().position(|arm| arm.is_live).unwrap_or_default()
}

/// Pairs of cell of the heat map and count, one after the other, over all moments.
fn heat_counts(moments: &[&Moment]) -> Vec<i64> {
    let mut sums: BTreeMap<i16, u64> = BTreeMap::new();
    for (cell, count) in moments.iter().flat_map(|moment| &moment.heat) {
        *sums.entry(*cell).or_default() += count;
    }
    sums.into_iter().flat_map(|(cell, count)| [i64::from(cell), count.cast_signed()]).collect()
}
