//! Figures over the records of a directory, and where they changed.
//!
//! ```text
//! records -> index (one file next to them) -> history -> series -> report: text, CSV, JSON, HTML
//!                                               `-> change_points
//! ```
//!
//! A series has the figures of one metric of a test and arm, under equal [`Conditions`]. A change is a new level that lasts for three
//! records or more. Of all series of a history together, one without changes gets a false one in at most 5 % of cases.

mod change_points;
mod index;
pub mod report;

use std::collections::HashMap;

use crate::record::{ClockKind, Host};

use self::change_points::{Criteria, LEVEL_POINTS_MIN, levels};
pub use self::index::{IndexedCell, IndexedRecord, IndexedRecords, read_records};
use crate::{
    compare::{COMPARED, ChangeVerdict, Wanted, is_chance, is_estimated},
    metrics::Metric,
    statistics::{FAMILY_ERROR_RATE, FIGURE_MIN, RESOLUTION},
};

/// The latest records of a series count.
const POINTS_MAX: usize = 1_000;

/// The series of some records.
#[derive(Debug)]
pub struct History<'a> {
    pub records: &'a [IndexedRecord],
    /// In the order of the latest records, and of their files.
    pub series: Vec<Series<'a>>,
    /// The least change that counts, as a share.
    pub min_effect: f64,
}

/// The figures of one metric of a test and arm.
#[derive(Debug)]
pub struct Series<'a> {
    pub metric: &'static Metric,
    pub experiment: &'a str,
    pub test: &'a str,
    pub arm: &'a str,
    pub conditions: Conditions<'a>,
    /// In the order of their starts; one at least.
    pub points: Vec<Point<'a>>,
    /// In the order of the points; one at least.
    pub levels: Vec<SeriesLevel>,
}

/// Records under different conditions cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conditions<'a> {
    /// The value of `--scale`.
    pub scale: String,
    pub is_virtual: bool,
    /// Processor, cores and memory.
    pub machine: String,
    /// The load in words.
    pub load: &'a str,
}

/// The figure of a record.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    pub record: &'a IndexedRecord,
    pub figure: f64,
}

/// Records in a row whose figures differ by chance only.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLevel {
    /// The index of its first point.
    pub first: usize,
    /// Mean of its figures without outliers, geometric for times and memory.
    pub figure: f64,
}

/// The beginning of a new level.
#[derive(Debug)]
pub struct SeriesChange<'a> {
    /// The last record before it.
    pub last: &'a IndexedRecord,
    /// The first record with it.
    pub first: &'a IndexedRecord,
    pub before: f64,
    pub after: f64,
    /// after / before; `None`: one of them is 0.
    pub ratio: Option<f64>,
    /// Better or worse; `None`: neither of a metric of this kind is.
    pub verdict: Option<ChangeVerdict>,
}

/// The series of a metric, or of those that `compare` compares. Changes up to `min_effect` (a share) do not count.
#[must_use]
pub fn history<'a>(
    records: &'a [IndexedRecord],
    metric: Option<&'static Metric>,
    min_effect: f64,
) -> History<'a> {
    let compared = COMPARED.iter().filter_map(|(name, _)| Metric::named(name));
    let metrics: Vec<_> = metric.map_or_else(|| compared.collect(), |metric| vec![metric]);
    let mut series = collect(records, &metrics);
    let judged = series.iter().filter(|series| series.points.len() >= 2 * LEVEL_POINTS_MIN).count();
    let alpha = FAMILY_ERROR_RATE / judged.max(1) as f64;
    series.iter_mut().for_each(|series| series.find_levels(alpha, min_effect));
    History { records, series, min_effect }
}

/// The series without levels.
fn collect<'a>(records: &'a [IndexedRecord], metrics: &[&'static Metric]) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'a>> = Vec::new();
    let mut by_key = HashMap::new();
    for record in records.iter().rev() {
        for cell in &record.cells {
            let conditions = Conditions::of(record, cell);
            let (experiment, test, arm) = (record.experiment.as_str(), cell.test.as_str(), cell.arm.as_str());
            for &metric in metrics {
                let Some(&figure) = cell.figures.get(metric.name) else { continue };
                let key = (experiment, test, arm, metric.name, conditions.clone());
                let index = *by_key.entry(key).or_insert(all.len());
                if index == all.len() {
                    let conditions = conditions.clone();
                    let (points, levels) = (Vec::new(), Vec::new());
                    all.push(Series { metric, experiment, test, arm, conditions, points, levels });
                }
                if all[index].points.len() < POINTS_MAX {
                    all[index].points.push(Point { record, figure });
                }
            }
        }
    }
    all.iter_mut().for_each(|series| series.points.reverse());
    all
}

impl<'a> Conditions<'a> {
    fn of(record: &IndexedRecord, cell: &'a IndexedCell) -> Self {
        Self {
            scale: record.scale.to_string(),
            is_virtual: record.clock == ClockKind::Virtual,
            machine: machine(&record.host),
            load: &cell.load,
        }
    }
}

/// Without what differs between starts of one machine.
fn machine(Host { cpu, cores, memory_mib, .. }: &Host) -> String {
    format!("{cpu}, {cores} cores, {} GiB", (memory_mib + 512) >> 10)
}

/// The scale on which the points of a level are close to normal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// Times and memory.
    Logarithm,
    /// Counts of random events: their variance becomes 1/4 (Anscombe, 1948).
    Root,
    Linear,
}

impl Scale {
    fn apply(self, figure: f64) -> f64 {
        match self {
            Self::Logarithm => figure.max(FIGURE_MIN).ln(),
            Self::Root => figure.max(0.0).sqrt(),
            Self::Linear => figure,
        }
    }

    fn invert(self, value: f64) -> f64 {
        match self {
            // 0 has no logarithm.
            Self::Logarithm if value <= FIGURE_MIN.ln() => 0.0,
            Self::Logarithm => value.exp(),
            Self::Root => value.powi(2),
            Self::Linear => value,
        }
    }

    /// The standard deviation below which figures do not differ.
    fn resolution(self, figures: &[f64]) -> f64 {
        match self {
            Self::Logarithm => RESOLUTION,
            Self::Root => 0.5,
            Self::Linear => {
                RESOLUTION * figures.iter().map(|figure| figure.abs()).fold(f64::MIN_POSITIVE, f64::max)
            }
        }
    }
}

impl<'a> Series<'a> {
    fn scale(&self) -> Scale {
        match self.metric {
            metric if is_estimated(metric, ClockKind::Live) => Scale::Logarithm,
            metric if is_chance(metric) && !self.conditions.is_virtual => Scale::Root,
            _ => Scale::Linear,
        }
    }

    fn find_levels(&mut self, alpha: f64, min_effect: f64) {
        let scale = self.scale();
        let figures: Vec<f64> = self.points.iter().map(|point| point.figure).collect();
        let values: Vec<f64> = figures.iter().map(|figure| scale.apply(*figure)).collect();
        let counts = |before: f64, after: f64| {
            let [before, after] = [before, after].map(|value| scale.invert(value));
            match change_ratio(before, after) {
                Some(ratio) => ratio.ln().abs() > min_effect.ln_1p(),
                None => (before - after).abs() > 0.0,
            }
        };
        let criteria = Criteria { resolution: scale.resolution(&figures), alpha, counts };
        self.levels = levels(&values, &criteria)
            .into_iter()
            .map(|level| SeriesLevel { first: level.first, figure: scale.invert(level.mean) })
            .collect();
    }

    /// From the oldest to the latest.
    #[must_use]
    pub fn changes(&self) -> Vec<SeriesChange<'a>> {
        let wanted = COMPARED.iter().find(|(name, _)| *name == self.metric.name).map(|(_, wanted)| *wanted);
        let change = |pair: &[SeriesLevel]| {
            let (before, after) = (pair[0].figure, pair[1].figure);
            let verdict = wanted.map(|wanted| match wanted {
                Wanted::Less if after < before => ChangeVerdict::Better,
                Wanted::More if after > before => ChangeVerdict::Better,
                _ => ChangeVerdict::Worse,
            });
            let first = pair[1].first;
            SeriesChange {
                last: self.points[first - 1].record,
                first: self.points[first].record,
                before,
                after,
                ratio: change_ratio(before, after),
                verdict,
            }
        };
        self.levels.windows(2).map(change).collect()
    }
}

impl SeriesChange<'_> {
    /// Settings and versions that differ between the last record before it and its first one.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let (before, after) = (self.last, self.first);
        let mut all = Vec::new();
        if before.settings != after.settings {
            all.push("the experiment file".to_owned());
        }
        if before.stockade != after.stockade {
            all.push(format!("stockade {} -> {}", before.stockade, after.stockade));
        }
        if before.host.os != after.host.os {
            all.push(format!("{} -> {}", before.host.os, after.host.os));
        }
        all
    }
}

fn change_ratio(before: f64, after: f64) -> Option<f64> {
    (before > 0.0 && after > 0.0).then(|| after / before)
}

#[cfg(test)]
mod tests;
