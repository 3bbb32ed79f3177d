//! Figures over the swept dimension: workers, or connections.

use crate::record::{LoadFigures, Record, Run};

use super::plots::{PlotData, PointLine, XAxis};
use crate::{
    metrics::{Evidence, FigureUnit, Metric, Results, median},
    reference::is_of_another_size,
};

/// A metric over a sweep: its title, and whether its axis is logarithmic.
struct Shown {
    metric: &'static str,
    title: &'static str,
    y_label: &'static str,
    y_is_log: bool,
}

const OF_BURSTS: &[Shown] = &[Shown {
    metric: "finished",
    title: "Time until the last worker is done",
    y_label: "ms",
    y_is_log: true,
}];

const OF_USERS: &[Shown] = &[
    Shown { metric: "achieved_rate", title: "Requests a second", y_label: "a second", y_is_log: false },
    Shown { metric: "response.p99", title: "Response time, p99", y_label: "ms", y_is_log: true },
    Shown { metric: "response.p999", title: "Response time, p99.9", y_label: "ms", y_is_log: true },
    Shown { metric: "response.max", title: "Longest response time", y_label: "ms", y_is_log: true },
    Shown { metric: "loads_per_request", title: "Loads by request", y_label: "loads", y_is_log: false },
    Shown { metric: "hit_ratio", title: "Hit ratio", y_label: "hits / lookups", y_is_log: false },
    Shown {
        metric: "proxy.cpu.mean",
        title: "Processor time of the cache",
        y_label: "cores",
        y_is_log: false,
    },
];

/// Tests that differ in one number only: the prefix of their paths, and the paths. Tests without a number form
/// a family of their own.
pub(super) fn families<'a>(record: &'a Record, results: &Results) -> Vec<(&'a str, Vec<&'a str>)> {
    let has_run = |test: &&String| results.runs().iter().any(|e| e.run.test == **test);
    let mut families: Vec<(&str, Vec<&str>)> = Vec::new();
    for test in record.tests.iter().filter(has_run) {
        let (family, _) = split(test).unwrap_or(("", 0.0));
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, tests)) => tests.push(test),
            None => families.push((family, vec![test])),
        }
    }
    families
}

/// The number at the end of a path, and the prefix before it.
fn split(test: &str) -> Option<(&str, f64)> {
    let (family, last) = test.rsplit_once('/').unwrap_or(("", test));
    Some((family, last.parse::<u32>().ok()?.into()))
}

/// A title and a plot for every family, by metric.
pub(super) fn sections(record: &Record, results: &Results) -> Vec<(&'static str, Vec<PlotData>)> {
    let mut families = families(record, results);
    families.retain_mut(|(_, tests)| {
        tests.retain(|test| split(test).is_some());
        tests.len() > 1
    });
    let is_burst =
        |tests: &[&str]| run(results, tests).is_some_and(|run| matches!(run.load, LoadFigures::Burst(_)));
    let has_users = |tests: &[&str]| {
        run(results, tests).is_some_and(|run| run.http.as_ref().is_some_and(|http| http.users.is_some()))
    };
    families.retain(|(_, tests)| is_burst(tests) || has_users(tests));
    let mut sections = Vec::new();
    for (shown, of_bursts) in OF_BURSTS.iter().map(|s| (s, true)).chain(OF_USERS.iter().map(|s| (s, false))) {
        let fit = families.iter().filter(|(_, tests)| is_burst(tests) == of_bursts);
        let plots = fit.filter_map(|(family, tests)| swept(record, results, shown, family, tests, of_bursts));
        let plots: Vec<PlotData> = plots.collect();
        if !plots.is_empty() {
            sections.push((shown.title, plots));
        }
    }
    sections
}

fn run<'a>(results: &'a Results, tests: &[&str]) -> Option<&'a Run> {
    let has_test = |evidence: &&Evidence| tests.contains(&evidence.run.test.as_str());
    results.runs().iter().find(has_test).map(|evidence| &evidence.run)
}

fn swept(
    record: &Record,
    results: &Results,
    shown: &Shown,
    family: &str,
    tests: &[&str],
    of_bursts: bool,
) -> Option<PlotData> {
    let metric = Metric::named(shown.metric).expect("the columns are metrics");
    // The name of a scaled burst has the number of workers before scaling.
    let x_of = |test: &str| match &run(results, &[test])?.load {
        LoadFigures::Burst(burst) => Some(burst.workers as f64),
        LoadFigures::Open(_) => Some(split(test)?.1),
    };
    let point = |arm: &str, test: &str| {
        let x = x_of(test)?;
        let figures =
            results.repeats(test, arm).into_iter().filter_map(|evidence| evidence.figure(metric, None));
        Some((x, median(figures)?))
    };
    let measured = |(arm, name): (usize, &str)| PointLine {
        arm: Some(arm),
        name: String::new(),
        is_dashed: false,
        points: tests.iter().filter_map(|test| point(name, test)).collect(),
    };
    let published = |(arm, name): (usize, &str)| {
        let load = &run(results, tests)?.load;
        let figures = &record.reference.as_ref().filter(|_| !is_of_another_size(record, load))?.figures;
        let at = |test: &&str| {
            let (_, x) = split(test)?;
            Some((x, *figures.get(&format!("{test}/{name}.{}", metric.name))?))
        };
        let points: Vec<_> = tests.iter().filter_map(at).collect();
        let name = "published, another machine".to_owned();
        (points.len() > 1).then_some(PointLine { arm: Some(arm), name, is_dashed: true, points })
    };
    let arms = || record.arms.iter().map(|arm| arm.name.as_str()).enumerate();
    let lines: Vec<PointLine> = arms().map(measured).chain(arms().filter_map(published)).collect();
    if lines.iter().flat_map(|line| &line.points).all(|(_, y)| *y <= 0.0) {
        return None;
    }
    debug_assert!(metric.unit == FigureUnit::Time || !shown.y_is_log, "counts may be none");
    let title = if family.is_empty() { shown.title.to_owned() } else { format!("{}, {family}", shown.title) };
    let x = if of_bursts { XAxis::Workers } else { XAxis::Users };
    Some(PlotData { is_log: shown.y_is_log, ..PlotData::of_points(title, shown.y_label, x, lines) })
}
