//! Response times by percentile; the axis stretches toward 100 %, as in HDR plots.

use crate::record::Record;
use stockade_model::units::milliseconds;

use super::{
    plots::{PlotData, PointLine, XAxis},
    sweeps::families,
};
use crate::metrics::Results;

/// More lines are not distinguishable.
const LINES_MAX: usize = 8;

/// The arms of a test in one plot.
pub(super) fn of_arms(record: &Record, results: &Results, test: &str) -> Option<PlotData> {
    let arms = record.arms.iter().enumerate();
    let lines: Vec<_> = arms.filter_map(|(arm, of)| line(Some(arm), "", results, test, &of.name)).collect();
    (!lines.is_empty()).then(|| plot("Response time by percentile".to_owned(), lines))
}

/// The tests of an arm in one plot, if there are several.
pub(super) fn of_tests(record: &Record, results: &Results) -> Vec<PlotData> {
    let families = families(record, results);
    let families = families.iter().filter(|(_, tests)| (2..=LINES_MAX).contains(&tests.len()));
    let plots = families.flat_map(|(family, tests)| {
        record.arms.iter().map(move |arm| {
            let lines = tests.iter().filter_map(|test| line(None, test, results, test, &arm.name));
            let title = if family.is_empty() { arm.name.clone() } else { format!("{family}/{}", arm.name) };
            (title, lines.collect::<Vec<_>>())
        })
    });
    plots.filter(|(_, lines)| lines.len() > 1).map(|(title, lines)| plot(title, lines)).collect()
}

fn line(arm: Option<usize>, name: &str, results: &Results, test: &str, of: &str) -> Option<PointLine> {
    let response = &results.times(test, of)?.response;
    // The axis is 1 / (1 - quantile), up to the resolution of the number of requests.
    let most = response.count() as f64;
    let inverses =
        (0..200).map(|step| 10_f64.powf(f64::from(step) / 20.0)).take_while(|inverse| *inverse < most);
    let inverses = inverses.chain([most]).filter(|inverse| *inverse >= 1.0);
    let at = |inverse: f64| Some((inverse, milliseconds(response.quantile(1.0 - 1.0 / inverse)?)));
    Some(PointLine {
        arm,
        name: name.to_owned(),
        is_dashed: false,
        points: inverses.filter_map(at).collect(),
    })
}

fn plot(title: String, lines: Vec<PointLine>) -> PlotData {
    PlotData::of_points(title, "ms", XAxis::Percentile, lines)
}
