//! Response times by percentile; the axis stretches where it hurts, as HDR plots do.

use stockade_model::{record::Record, units::milliseconds};

use super::{
    super::plot::{self, Line, Plot},
    sweeps::families,
};
use crate::metrics::Results;

/// More lines than these nobody tells apart.
const LINES_MAX: usize = 8;

/// The arms of a test, one over the other.
pub(super) fn of_arms(record: &Record, results: &Results, test: &str) -> String {
    let line = |arm: &str| line(arm, results, test, arm);
    let lines: Vec<Line> = record.arms.iter().filter_map(|arm| line(&arm.name)).collect();
    plot("response time by percentile", &lines)
}

/// The tests of an arm, one over the other, where there are several.
pub(super) fn of_tests(record: &Record, results: &Results) -> Vec<String> {
    let families = families(record, results);
    let families = families.iter().filter(|(_, tests)| (2..=LINES_MAX).contains(&tests.len()));
    let plots = families.flat_map(|(family, tests)| {
        record.arms.iter().map(move |arm| {
            let lines: Vec<Line> =
                tests.iter().filter_map(|test| line(test, results, test, &arm.name)).collect();
            let title = if family.is_empty() { arm.name.clone() } else { format!("{family}/{}", arm.name) };
            if lines.len() < 2 { String::new() } else { plot(&title, &lines) }
        })
    });
    plots.filter(|svg| !svg.is_empty()).collect()
}

fn line(name: &str, results: &Results, test: &str, arm: &str) -> Option<Line> {
    let response = &results.times(test, arm)?.response;
    // The axis is 1 / (1 - quantile), as far as there are requests to tell.
    let most = response.count() as f64;
    let inverses =
        (0..200).map(|step| 10_f64.powf(f64::from(step) / 20.0)).take_while(|inverse| *inverse < most);
    let inverses = inverses.chain([most]).filter(|inverse| *inverse >= 1.0);
    let at = |inverse: f64| Some((inverse, milliseconds(response.quantile(1.0 - 1.0 / inverse)?)));
    Some(Line { name: name.to_owned(), points: inverses.filter_map(at).collect() })
}

fn plot(title: &str, lines: &[Line]) -> String {
    // As many nines as there are: 0, 90, 99, 99.9.
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
