//! Response times by percentile; the axis stretches toward 100 %, as in HDR plots.

use stockade_model::{record::Record, units::milliseconds};

use super::{
    super::plot::{self, Plot, PlotLine},
    sweeps::families,
};
use crate::metrics::Results;

/// More lines are not distinguishable.
const LINES_MAX: usize = 8;

/// The arms of a test in one plot.
pub(super) fn of_arms(record: &Record, results: &Results, test: &str) -> String {
    let line = |arm: &str| line(arm, results, test, arm);
    let lines: Vec<PlotLine> = record.arms.iter().filter_map(|arm| line(&arm.name)).collect();
    plot("response time by percentile", &lines)
}

/// The tests of an arm in one plot, if there are several.
pub(super) fn of_tests(record: &Record, results: &Results) -> Vec<String> {
    let families = families(record, results);
    let families = families.iter().filter(|(_, tests)| (2..=LINES_MAX).contains(&tests.len()));
    let plots = families.flat_map(|(family, tests)| {
        record.arms.iter().map(move |arm| {
            let lines: Vec<PlotLine> =
                tests.iter().filter_map(|test| line(test, results, test, &arm.name)).collect();
            let title = if family.is_empty() { arm.name.clone() } else { format!("{family}/{}", arm.name) };
            if lines.len() < 2 { String::new() } else { plot(&title, &lines) }
        })
    });
    plots.filter(|svg| !svg.is_empty()).collect()
}

fn line(name: &str, results: &Results, test: &str, arm: &str) -> Option<PlotLine> {
    let response = &results.times(test, arm)?.response;
    // The axis is 1 / (1 - quantile), up to the resolution of the number of requests.
    let most = response.count() as f64;
    let inverses =
        (0..200).map(|step| 10_f64.powf(f64::from(step) / 20.0)).take_while(|inverse| *inverse < most);
    let inverses = inverses.chain([most]).filter(|inverse| *inverse >= 1.0);
    let at = |inverse: f64| Some((inverse, milliseconds(response.quantile(1.0 - 1.0 / inverse)?)));
    Some(PlotLine { name: name.to_owned(), points: inverses.filter_map(at).collect() })
}

fn plot(title: &str, lines: &[PlotLine]) -> String {
    // As many nines as needed: 0, 90, 99, 99.9.
    let x_text = |inverse: f64| {
        let decimals = (3..9).take_while(|zeros| inverse > 0.9 * 10_f64.powi(*zeros)).count();
        format!("{:.decimals$}", (1.0 - 1.0 / inverse) * 100.0)
    };
    plot::svg(&Plot {
        title,
        x_label: "percentile",
        y_label: "milliseconds",
        x_is_log: true,
        lines,
        y_is_log: false,
        x_text,
        x_ticks: 6,
    })
}
