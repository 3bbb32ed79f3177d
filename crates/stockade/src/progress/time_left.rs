//! An estimate of the time that a run still takes. Pure.

use std::{collections::BTreeMap, time::Duration};

use stockade_lab::{spec::Experiment, target::ScaledDimension};
use stockade_model::units::stretched;
use stockade_record::record::ClockKind;

/// The measurements that are left, and how long those before them took.
pub struct TimeLeft {
    /// By test and arm.
    cells: BTreeMap<(String, String), PlannedCell>,
    is_virtual: bool,
    /// The present one, and its start.
    present: Option<((String, String), Duration)>,
}

#[derive(Clone, Copy, Default)]
struct PlannedCell {
    /// Its load; `None`: a burst.
    lasts: Option<Duration>,
    /// Its last measurement, with the starts and stops of its parts.
    took: Option<Duration>,
    /// Measurements that have not begun.
    left: usize,
}

impl TimeLeft {
    pub fn new(experiment: &Experiment, scale: f64) -> Self {
        let factor = if experiment.scaled.contains(&ScaledDimension::LoadDuration) { scale } else { 1.0 };
        let cells = experiment.cells.iter().map(|cell| {
            let lasts = cell.target.facts().duration.map(|lasts| stretched(lasts, factor));
            ((cell.test.clone(), cell.arm.clone()), lasts)
        });
        Self::of(cells, experiment.cells.iter().any(|cell| cell.clock == ClockKind::Virtual))
    }

    pub(super) fn of(
        cells: impl Iterator<Item = ((String, String), Option<Duration>)>,
        is_virtual: bool,
    ) -> Self {
        let cells = cells.map(|(of, lasts)| (of, PlannedCell { lasts, ..PlannedCell::default() })).collect();
        Self { cells, is_virtual, present: None }
    }

    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// `steps` checks or measurements follow.
    pub fn begin(&mut self, steps: usize) {
        let repeats = steps / self.cells.len().max(1);
        self.cells.values_mut().for_each(|cell| cell.left = repeats);
    }

    pub fn add_repeat(&mut self) {
        self.cells.values_mut().for_each(|cell| cell.left += 1);
    }

    /// The last measurement has ended, and this one begins.
    pub fn measure(&mut self, test: &str, arm: &str, now: Duration) {
        if let Some((of, began)) = self.present.take()
            && let Some(ended) = self.cells.get_mut(&of)
        {
            ended.took = Some(now.saturating_sub(began));
        }
        let of = (test.to_owned(), arm.to_owned());
        if let Some(cell) = self.cells.get_mut(&of) {
            cell.left = cell.left.saturating_sub(1);
        }
        self.present = Some((of, now));
    }

    /// The time left; `None` while it cannot be known.
    pub fn at(&self, now: Duration) -> Option<Duration> {
        let (of, began) = self.present.as_ref()?;
        let present = self.estimate(self.cells.get(of)?)?.saturating_sub(now.saturating_sub(*began));
        self.cells.values().filter(|cell| cell.left > 0).try_fold(present, |sum, cell| {
            let left = u32::try_from(cell.left).unwrap_or(u32::MAX);
            Some(sum.saturating_add(self.estimate(cell)?.saturating_mul(left)))
        })
    }

    /// As long as the last time; else in proportion to other loads, or the mean of other bursts.
    fn estimate(&self, cell: &PlannedCell) -> Option<Duration> {
        let others = || {
            let is_alike = |other: &&PlannedCell| other.lasts.is_some() == cell.lasts.is_some();
            self.cells.values().filter(is_alike).filter_map(|other| Some((other.took?, other.lasts)))
        };
        let took: Duration = others().map(|(took, _)| took).sum();
        let estimate = match cell.lasts {
            None => took.checked_div(u32::try_from(others().count()).ok()?),
            Some(lasts) => {
                let loads: Duration = others().filter_map(|(_, lasts)| lasts).sum();
                let ratio = took.as_secs_f64() / loads.as_secs_f64();
                if ratio.is_finite() {
                    Some(stretched(lasts, ratio))
                } else {
                    (!self.is_virtual).then_some(lasts)
                }
            }
        };
        cell.took.or(estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cells(of: &[(&str, Option<u32>)], is_virtual: bool, repeats: usize) -> TimeLeft {
        let cells =
            of.iter().map(|(arm, lasts)| ((String::new(), (*arm).to_owned()), lasts.map(|s| s * SECOND)));
        let mut left = TimeLeft::of(cells, is_virtual);
        left.begin(repeats * of.len());
        left
    }

    #[test]
    fn loads_take_their_time_and_then_what_starts_and_stops_add() {
        let mut left = cells(&[("a", Some(10)), ("b", Some(20))], false, 2);
        assert_eq!(left.at(Duration::ZERO), None, "checks have no estimate");
        left.measure("", "a", Duration::ZERO);
        assert_eq!(left.at(4 * SECOND), Some(56 * SECOND));
        // 12 s for 10 s of load.
        left.measure("", "b", 12 * SECOND);
        assert_eq!(left.at(12 * SECOND), Some((24 + 24 + 12) * SECOND));
        left.measure("", "b", 40 * SECOND);
        assert_eq!(left.at(100 * SECOND), Some(12 * SECOND), "the present one is late");
        left.add_repeat();
        assert_eq!(left.at(100 * SECOND), Some((12 + 12 + 28) * SECOND));
    }

    #[test]
    fn virtual_loads_and_bursts_are_estimated_by_those_before() {
        let mut left = cells(&[("a", Some(1_000)), ("b", Some(2_000))], true, 1);
        left.measure("", "a", Duration::ZERO);
        assert_eq!(left.at(SECOND), None);
        left.measure("", "b", 2 * SECOND);
        assert_eq!(left.at(3 * SECOND), Some(3 * SECOND));
        let mut left = cells(&[("a", None), ("b", None)], false, 1);
        left.measure("", "b", Duration::ZERO);
        assert_eq!(left.at(SECOND), None);
        left.measure("", "a", 2 * SECOND);
        assert_eq!(left.at(3 * SECOND), Some(SECOND));
    }
}
