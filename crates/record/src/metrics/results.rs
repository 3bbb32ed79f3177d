//! The evidence that verdicts and reports use.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    record::{Run, StatsProvider, Times},
    telemetry::measurement::MeasurementSnapshot,
};
use stockade_model::outcome::Outcomes;

use super::{
    FigureUnit, FigureWindow, Fold, FoldPart, Metric, Moment, Raw,
    fold::{Batched, DisturbedTimes},
    telemetry::{RunTelemetry, measurement},
};
use crate::statistics::{AssumedSpread, Quantity};

/// The figures of every run and the distributions of every arm, aggregated as the runs finish. Memory grows by
/// scalars per run, by histograms only per test and arm.
#[derive(Debug, Default)]
pub struct Results {
    windows: Vec<FigureWindow>,
    /// True: no plots are wanted.
    is_without_moments: bool,
    runs: Vec<Evidence>,
    times: BTreeMap<(String, String), Times>,
    /// The first repeat of each arm.
    moments: BTreeMap<(String, String), Vec<Moment>>,
}

/// A run and its figures.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub run: Run,
    telemetry: RunTelemetry,
    figures: MetricFigures,
    /// Figures of times without the disturbed seconds; without stops alone in `mostly_disturbed`.
    undisturbed: Option<MetricFigures>,
    /// The whole or the windows that were disturbed in most of their seconds.
    mostly_disturbed: Vec<Option<FigureWindow>>,
    /// The length of the whole and of windows, in seconds; 0: unknown.
    seconds: Vec<(Option<FigureWindow>, u64)>,
    /// Figures of times in up to [`Evidence::BATCHES`] equal parts of the run or the window.
    batches: Vec<MetricFigures>,
}

type MetricFigures = BTreeMap<(&'static str, Option<FigureWindow>), f64>;

impl Results {
    /// Windows must be known before the seconds arrive.
    #[must_use]
    pub fn watching(windows: Vec<FigureWindow>) -> Self {
        Self { windows, ..Self::default() }
    }

    /// Leaves out the moments, which cost a third of the time to read a record.
    #[must_use]
    pub fn without_moments(self) -> Self {
        Self { is_without_moments: true, ..self }
    }

    /// An accumulator for the seconds of the next run; `duration`: how long its requests are due.
    #[must_use]
    pub fn fold(&self, duration: Option<Duration>) -> Fold {
        let fold = Fold::new(&self.windows, duration);
        if self.is_without_moments { fold.without_moments() } else { fold }
    }

    pub fn add(&mut self, run: &Run, fold: Fold) {
        let Fold { whole: Batched { whole, batches: of_whole, seconds, .. }, windows, moments, .. } = fold;
        let mut lengths = vec![(None, seconds)];
        let open = run.load.open();
        // Counts of the whole run come from the run itself.
        let whole = FoldPart {
            outcomes: run.outcomes,
            source_loads: Some(run.load.calls().fetch_doc),
            source_loads_per_s_max: whole.source_loads_per_s_max,
            retries: open.map(|open| open.retries),
            dropped: open.map(|open| open.dropped),
            age_max_ms: open.and_then(|open| open.audit.as_ref()?.age_max_ms),
            usage: whole.usage,
            holds_max: whole.holds_max,
            times: whole.times,
            disturbed: whole.disturbed,
            stopped: whole.stopped,
        };
        let mut figures = figures(&Raw { run, part: &whole }, None, |_| true);
        let mut undisturbed = None;
        let mut mostly_disturbed = Vec::new();
        let mut add_disturbed = |part: &FoldPart, window| {
            let is_most = is_mostly_disturbed(run, part, window);
            mostly_disturbed.extend(is_most.then_some(window));
            add_undisturbed(&mut undisturbed, run, part, window, is_most);
        };
        add_disturbed(&whole, None);
        let mut batches = vec![MetricFigures::new(); Evidence::BATCHES];
        add_batches(&mut batches, run, &of_whole, None);
        for (window, Batched { whole: part, batches: of_window, seconds, .. }) in &windows {
            lengths.push((Some(*window), *seconds));
            figures.append(&mut self::figures(&Raw { run, part }, Some(*window), |_| true));
            add_batches(&mut batches, run, of_window, Some(*window));
            add_disturbed(part, Some(*window));
        }
        let key = (run.test.clone(), run.arm.clone());
        if !moments.is_empty() {
            self.moments.entry(key.clone()).or_insert(moments);
        }
        let telemetry = RunTelemetry::of(&whole);
        let run = run.clone();
        self.runs.push(Evidence {
            run,
            telemetry,
            figures,
            undisturbed,
            mostly_disturbed,
            seconds: lengths,
            batches,
        });
        self.times.entry(key).or_default().merge(&whole.times);
    }

    /// The same with other names of the arms.
    pub(crate) fn with_arms(mut self, name: impl Fn(&str) -> String) -> Self {
        for evidence in &mut self.runs {
            evidence.run.arm = name(&evidence.run.arm);
        }
        self.times = self.times.into_iter().map(|((test, arm), times)| ((test, name(&arm)), times)).collect();
        self.moments =
            self.moments.into_iter().map(|((test, arm), moments)| ((test, name(&arm)), moments)).collect();
        self
    }

    /// Adds the runs of another record, whose arms have other names.
    pub(crate) fn append(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.times.extend(other.times);
        self.moments.extend(other.moments);
    }

    /// Every run, in the order of measurement.
    #[must_use]
    pub fn runs(&self) -> &[Evidence] {
        &self.runs
    }

    #[must_use]
    pub fn repeats(&self, test: &str, arm: &str) -> Vec<&Evidence> {
        self.runs.iter().filter(|e| e.run.test == test && e.run.arm == arm).collect()
    }

    /// The times of all repeats of an arm; `None` without a repeat.
    #[must_use]
    pub fn times(&self, test: &str, arm: &str) -> Option<&Times> {
        self.times.get(&(test.to_owned(), arm.to_owned()))
    }

    /// The seconds of the first repeat; empty unless it was an open load.
    #[must_use]
    pub fn moments(&self, test: &str, arm: &str) -> &[Moment] {
        self.moments.get(&(test.to_owned(), arm.to_owned())).map_or(&[], Vec::as_slice)
    }
}

/// True if more than half of the seconds are disturbed, or no other one is left: that is how the machine is.
fn is_mostly_disturbed(run: &Run, part: &FoldPart, window: Option<FigureWindow>) -> bool {
    let Some(disturbed) = &part.disturbed else { return false };
    let seconds = window.and_then(FigureWindow::seconds);
    let seconds = seconds.or_else(|| run.load.duration().map(|duration| duration.as_secs()));
    let are_exceptions = seconds.is_some_and(|seconds| disturbed.are_exceptions_in(seconds));
    !are_exceptions || disturbed.rest.service.count() == 0
}

/// The times without the disturbed seconds. Where most seconds are disturbed, only those with a stopped process are left out.
fn add_undisturbed(
    to: &mut Option<MetricFigures>,
    run: &Run,
    part: &FoldPart,
    window: Option<FigureWindow>,
    is_mostly_disturbed: bool,
) {
    let left_out = if is_mostly_disturbed { &part.stopped } else { &part.disturbed };
    let Some(DisturbedTimes { rest, .. }) = left_out else { return };
    let is_distribution = |metric: &Metric| metric.unit == FigureUnit::Time && metric.has_windows;
    let part = FoldPart { times: rest.clone(), ..FoldPart::default() };
    let to = to.get_or_insert_default();
    to.append(&mut figures(&Raw { run, part: &part }, window, is_distribution));
    if rest.service.count() == 0 {
        // Stopped all the time: without that, its times may be anything below.
        for metric in Metric::all().filter(|metric| is_distribution(metric)) {
            to.insert((metric.name, window), 0.0);
        }
    }
}

/// The times in each batch.
fn add_batches(to: &mut [MetricFigures], run: &Run, of: &[FoldPart], window: Option<FigureWindow>) {
    for (batch, part) in to.iter_mut().zip(of) {
        let is_time = |metric: &Metric| metric.is_timing && metric.has_windows;
        batch.append(&mut figures(&Raw { run, part }, window, is_time));
    }
}

fn figures(
    raw: &Raw<'_>,
    window: Option<FigureWindow>,
    is_wanted: impl Fn(&Metric) -> bool,
) -> MetricFigures {
    let has_window = |metric: &&Metric| (window.is_none() || metric.has_windows) && is_wanted(metric);
    let known = Metric::all().filter(has_window).filter(|metric| is_known(raw.run, metric.name));
    known.filter_map(|metric| Some(((metric.name, window), metric.computed(raw)?))).collect()
}

/// Metrics that only the engine counts, that only our cache counts, and that an origin can count instead.
const OF_ENGINES: [&str; 9] = [
    "episodes",
    "amplification",
    "cache.invalidated",
    "stores.sync",
    "stores.async",
    "stores.total",
    "stores.skipped",
    "stores.dropped",
    "stores.refused",
];
const OF_CACHES: [&str; 7] = [
    "waiters",
    "refreshes",
    "loads_refused",
    "loads_rejected",
    "cache.entries",
    "cache.evicted",
    "cache.bytes_max",
];
const OF_ORIGINS: [&str; 4] = ["source_loads", "source_loads_per_s.max", "loads_per_request", "offload"];
/// Metrics that come from the responses.
const OF_ANSWERS: [&str; 8] = [
    "hit_ratio",
    "outcomes.hit",
    "outcomes.stale",
    "outcomes.miss",
    "outcomes.coalesced",
    "outcomes.fallback",
    "outcomes.negative",
    "outcomes.bypass",
];

/// Outcomes that only some caches report: a count of 0 does not show that they did not happen.
const OF_SOME_ANSWERS: [&str; 3] = ["outcomes.coalesced", "outcomes.fallback", "outcomes.negative"];

/// Metrics that need to know whether a hit is fresh.
const OF_FRESHNESS: [&str; 3] = ["hit_ratio", "outcomes.hit", "outcomes.stale"];

/// True if a metric is known for a run. An unknown metric is absent, not 0.
pub(crate) fn is_known(run: &Run, metric: &str) -> bool {
    let Some(http) = &run.http else { return true };
    let is_of_caches = OF_CACHES.contains(&metric);
    !OF_ENGINES.contains(&metric)
        && (!OF_ANSWERS.contains(&metric)
            || http.stats_provider == StatsProvider::Cache
            || responses_report_outcomes(&run.outcomes))
        && (http.hits_of_unknown_freshness == 0 || !OF_FRESHNESS.contains(&metric))
        && (http.stats_provider == StatsProvider::Cache
            || !OF_SOME_ANSWERS.contains(&metric)
            || reports_more_than_hits(&run.outcomes))
        && match http.stats_provider {
            StatsProvider::Cache => true,
            StatsProvider::Origin => !is_of_caches,
            StatsProvider::Unavailable => !is_of_caches && !OF_ORIGINS.contains(&metric),
        }
}

/// True if responses tell requests that waited for another, fallbacks and negative answers apart.
fn reports_more_than_hits(outcomes: &Outcomes) -> bool {
    outcomes.coalesced + outcomes.fallback + outcomes.negative > 0
}

/// True if the responses of a third-party cache report outcomes. With `Age` alone only hits are known.
fn responses_report_outcomes(outcomes: &Outcomes) -> bool {
    let Outcomes { hit, error, bypass, unreported, .. } = *outcomes;
    let others = outcomes.reported() - hit - error - bypass;
    // Before `unreported`, records counted such requests as bypasses.
    others > 0 || (hit > 0 && bypass == 0 && unreported == 0)
}

impl Evidence {
    /// The most batches of a run.
    pub const BATCHES: usize = Batched::COUNT;

    /// True if a metric may be compared; `is_timed`: it is measured with a clock.
    pub(crate) fn is_valid(&self, is_timed: bool) -> bool {
        !(self.run.has_invalid_counts() || is_timed && self.run.is_invalid())
    }

    /// The figures for other systems.
    #[must_use]
    pub fn telemetry(&self) -> MeasurementSnapshot {
        measurement(&self.run, &self.telemetry)
    }

    /// The figure of a time in one batch, from 0.
    #[must_use]
    pub fn batch_figure(&self, metric: &Metric, window: Option<FigureWindow>, batch: usize) -> Option<f64> {
        self.batches.get(batch)?.get(&(metric.name, window)).copied()
    }

    /// The figure of a metric, with the least that it would be if no request had been sent late and nothing had disturbed a second:
    /// response times are at least the service times.
    pub(crate) fn quantity(&self, metric: &Metric, window: Option<FigureWindow>) -> Option<Quantity> {
        let measured = self.figure(metric, window)?;
        let is_late = self.run.http.as_ref().is_some_and(|http| http.late.is_some());
        let of = if is_late { metric.without_lateness() } else { metric };
        let undisturbed =
            self.undisturbed.as_ref().and_then(|figures| figures.get(&(of.name, window)).copied());
        let low = undisturbed.or_else(|| self.figure(of, window))?;
        Some(Quantity::figure(measured, low, self.assumed_spread(metric, window)))
    }

    /// The spread that a figure of one run rests on.
    pub(crate) fn assumed_spread(&self, metric: &Metric, window: Option<FigureWindow>) -> AssumedSpread {
        if self.is_mostly_disturbed(window) {
            return AssumedSpread::Disturbed;
        }
        let seconds = self.seconds.iter().find(|(of, _)| *of == window).map_or(0, |(_, seconds)| *seconds);
        metric.assumed_spread(seconds)
    }

    /// True if more than half of the seconds of the run or of a window were disturbed.
    pub(crate) fn is_mostly_disturbed(&self, window: Option<FigureWindow>) -> bool {
        self.mostly_disturbed.contains(&window)
    }

    /// The quantity of a time, if the times of the run are valid evidence.
    pub(crate) fn valid_time(&self, metric: &Metric, window: Option<FigureWindow>) -> Option<Quantity> {
        if self.run.is_invalid() { None } else { self.quantity(metric, window) }
    }

    /// The figure of a metric in the run or in a window; `None` where it does not apply.
    #[must_use]
    pub fn figure(&self, metric: &Metric, window: Option<FigureWindow>) -> Option<f64> {
        let computed = self.figures.get(&(metric.name, window)).copied();
        computed.or_else(|| metric.reported(&self.run).filter(|_| window.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_without_cache_fields_have_no_hit_ratio() {
        let none = Outcomes::default();
        for (outcomes, expected) in [
            (Outcomes { bypass: 10, error: 1, ..none }, false),
            (Outcomes { hit: 5, bypass: 5, ..none }, false),
            (Outcomes { unreported: 10, error: 1, ..none }, false),
            (Outcomes { hit: 5, unreported: 5, ..none }, false),
            (Outcomes { hit: 10, error: 1, ..none }, true),
            (Outcomes { hit: 5, miss: 1, bypass: 4, ..none }, true),
            (Outcomes { stale: 1, bypass: 4, ..none }, true),
        ] {
            assert_eq!(responses_report_outcomes(&outcomes), expected, "{outcomes:?}");
        }
    }
}
