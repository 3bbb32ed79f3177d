//! Compares two records of one experiment: each figure is better, worse, the same, or cannot be told apart.
//!
//! ```text
//! (record, results) x 2 -- compare --> RecordComparison -- report --> text, JSON, Markdown, JUnit
//! ```
//!
//! Times and memory have an effect, ln(after / before), with the interval of `statistics::Estimate`: the repeats of two records are not pairs.
//! A change is better or worse where its interval lies beyond the minimum effect and the effect of equal arms, and the same where it lies
//! within the minimum effect. Counts are compared exactly: each repeat of one record with each of the other, or, of records with one seed,
//! with the repeat that sends the same requests. In real time a number or a share of requests that differs by less than two standard
//! deviations of chance is not a change. Where one record has no valid figure, a change is open.

pub mod report;

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{ClockKind, LoadFigures, Record, Run, Verdict};
use stockade_model::units::format_milliseconds;

use crate::{
    metrics::{Evidence, FigureUnit, Metric, Results},
    report::summary,
    statistics::{
        Estimate, FAMILY_ERROR_RATE, Quantity, Region, effect_of_equals, holm, root_mean_square,
        standard_deviation,
    },
};

/// The least change that counts unless another one is chosen, as a share.
pub const COMPARED_MIN_EFFECT: f64 = 0.05;

/// The compared metrics, and whether more of it is better. The order is that of reports.
pub(crate) const COMPARED: [(&str, Wanted); 11] = [
    ("failed", Wanted::Less),
    ("hit_ratio", Wanted::More),
    ("source_loads", Wanted::Less),
    ("amplification", Wanted::Less),
    ("response.p50", Wanted::Less),
    ("response.p90", Wanted::Less),
    ("response.p99", Wanted::Less),
    ("finished", Wanted::Less),
    ("achieved_rate", Wanted::More),
    ("proxy.rss.max", Wanted::Less),
    ("proxy.cpu.mean", Wanted::Less),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Less,
    More,
}

/// True for a number of requests that varies by chance in real time (Poisson).
pub(crate) fn is_chance(metric: &Metric) -> bool {
    ["failed", "source_loads"].contains(&metric.name)
}

/// Memory, which differs from run to run as times do.
const MEMORY: &str = "proxy.rss.max";

/// True if a metric is judged by intervals.
pub(crate) fn is_estimated(metric: &Metric, clock: ClockKind) -> bool {
    clock == ClockKind::Live && (metric.is_timing || metric.name == MEMORY)
}

/// A record and its figures.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    pub record: &'a Record,
    pub results: &'a Results,
}

/// The changes from one record to another.
#[derive(Debug)]
pub struct RecordComparison {
    /// The title of the experiment.
    pub experiment: String,
    /// Start of each record.
    pub started_at: [String; 2],
    /// Programs, machines and settings that differ.
    pub differences: Vec<String>,
    pub changes: Vec<Change>,
    /// The spread of a time or memory between repeats, by metric: the larger standard deviation of its logarithm in the two records.
    pub noise: BTreeMap<&'static str, f64>,
    /// The least change that counts, as a share.
    pub min_effect: f64,
}

/// The change of one metric in one test and arm.
#[derive(Clone, Debug)]
pub struct Change {
    pub test: String,
    pub arm: String,
    pub metric: &'static Metric,
    /// Mean of the repeats; geometric where it is judged by intervals.
    pub before: f64,
    pub after: f64,
    /// after / before; `None`: one of them is 0.
    pub ratio: Option<f64>,
    /// The interval of `ratio`; `None`: the metric is a count.
    pub interval: Option<(f64, f64)>,
    pub verdict: ChangeVerdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeVerdict {
    Worse,
    /// The interval lies on both sides of the minimum effect.
    Open,
    Better,
    Same,
}

/// The records are of different experiments, as far as a comparison needs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("these records cannot be compared: {0}")]
pub struct UnlikeRecords(String);

/// Compares `before` with `after`. Changes up to `min_effect` (a share) do not count.
///
/// # Errors
/// [`UnlikeRecords`] if they have different clocks, different loads in a common test, or no test and arm in common.
pub fn compare(
    before: Compared<'_>,
    after: Compared<'_>,
    min_effect: f64,
) -> Result<RecordComparison, UnlikeRecords> {
    let cells = common_cells(before, after)?;
    let mut unjudged: Vec<UnjudgedChange> = Vec::new();
    for (test, arm) in &cells {
        let metrics = COMPARED.iter().filter_map(|(name, wanted)| Some((Metric::named(name)?, *wanted)));
        unjudged.extend(metrics.filter_map(|(metric, wanted)| {
            UnjudgedChange::of(before, after, (test, arm), metric, wanted, min_effect)
        }));
    }
    let p_values: Vec<f64> = unjudged.iter().filter_map(UnjudgedChange::p_value).collect();
    let mut alphas = holm(&p_values, FAMILY_ERROR_RATE).into_iter();
    let changes = unjudged
        .into_iter()
        .map(|change| {
            let alpha = change.estimate.as_ref().and_then(|_| alphas.next());
            change.judge(alpha.unwrap_or(FAMILY_ERROR_RATE))
        })
        .collect();
    Ok(RecordComparison {
        experiment: after.record.experiment.clone(),
        started_at: [before, after].map(|compared| compared.record.started_at.clone()),
        differences: differences(before.record, after.record),
        changes,
        noise: noise([before, after]),
        min_effect,
    })
}

/// The spread between repeats of the same test and arm, by compared metric that is judged by intervals.
fn noise(records: [Compared<'_>; 2]) -> BTreeMap<&'static str, f64> {
    let mut noise = BTreeMap::new();
    for Compared { record, results } in records {
        let compared = COMPARED.iter().filter_map(|(name, _)| Metric::named(name));
        for metric in compared.filter(|metric| is_estimated(metric, record.clock)) {
            let cells =
                record.tests.iter().flat_map(|test| record.arms.iter().map(move |arm| (test, &arm.name)));
            let spreads: Vec<f64> = cells
                .filter_map(|(test, arm)| {
                    let repeats = results.repeats(test, arm);
                    let times = repeats.iter().filter_map(|evidence| evidence.valid_time(metric, None));
                    let times = times.map(|time| time.measured).filter(|time| *time > 0.0);
                    standard_deviation(&times.map(f64::ln).collect::<Vec<_>>())
                })
                .collect();
            let Some(spread) = root_mean_square(&spreads) else { continue };
            let of_metric: &mut f64 = noise.entry(metric.name).or_default();
            *of_metric = of_metric.max(spread);
        }
    }
    noise
}

/// The effect between an arm that a record measures twice and itself; 0: no arm is measured twice.
fn effect_of_equal_arms(compared: Compared<'_>, test: &str, metric: &Metric) -> f64 {
    let Some(noise) = &compared.record.noise else { return 0.0 };
    let times = |arm: &str| -> BTreeMap<u32, Quantity> {
        let repeats = compared.results.repeats(test, arm).into_iter();
        repeats.filter_map(|one| Some((one.run.repeat, one.valid_time(metric, None)?))).collect()
    };
    let (of, again) = (times(&noise.of), times(&noise.arm));
    effect_of_equals(of.iter().filter_map(|(repeat, time)| Some((*time, *again.get(repeat)?))))
}

impl RecordComparison {
    /// The result in one word of the JSON contract.
    #[must_use]
    pub fn result(&self) -> &'static str {
        let has = |verdict| self.changes.iter().any(|change| change.verdict == verdict);
        match (has(ChangeVerdict::Worse), has(ChangeVerdict::Better)) {
            (true, true) => "mixed",
            (true, false) => "worse",
            _ if has(ChangeVerdict::Open) || self.changes.is_empty() => "unknown",
            (false, true) => "better",
            (false, false) => "same",
        }
    }

    /// Refuted: something became worse. Inconclusive: nothing did, and a change is open. Supported: everything is the same or better.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.changes.iter().map(|change| change.verdict).min() {
            Some(ChangeVerdict::Worse) => Verdict::Refuted,
            Some(ChangeVerdict::Open) | None => Verdict::Inconclusive,
            Some(ChangeVerdict::Better | ChangeVerdict::Same) => Verdict::Supported,
        }
    }
}

/// A change before its verdict.
struct UnjudgedChange {
    test: String,
    arm: String,
    metric: &'static Metric,
    wanted: Wanted,
    /// The least ln(after / before) that counts.
    min_effect: f64,
    /// The effect of equal arms: within it, no time is better or worse.
    equal_arms: f64,
    before: Vec<Observed>,
    after: Vec<Observed>,
    /// The repeats of both records send the same requests at the same times.
    has_equal_requests: bool,
    /// Both records have a valid figure.
    is_valid: bool,
    /// Of a metric that is judged by intervals.
    estimate: Option<Estimate>,
}

/// The figure of a repeat.
#[derive(Clone, Copy)]
struct Observed {
    repeat: u32,
    figure: f64,
    /// The variance of a count of random requests; 0: exact.
    variance: f64,
}

/// The variance of a figure that counts random events in real time: Poisson's of a number, the binomial one of a hit ratio, that of
/// the loads of an amplification.
fn chance_variance(metric: &Metric, evidence: &Evidence, figure: f64) -> f64 {
    let count =
        |name: &str| Metric::named(name).and_then(|metric| evidence.figure(metric, None)).unwrap_or(0.0);
    let variance = match metric.name {
        _ if is_chance(metric) => figure,
        "hit_ratio" => figure * (1.0 - figure) / count("requests"),
        "amplification" => figure.powi(2) / count("source_loads"),
        _ => 0.0,
    };
    if variance.is_finite() { variance } else { 0.0 }
}

impl UnjudgedChange {
    /// `None`: one of the records has no figure.
    fn of(
        before: Compared<'_>,
        after: Compared<'_>,
        (test, arm): (&str, &str),
        metric: &'static Metric,
        wanted: Wanted,
        min_effect: f64,
    ) -> Option<Self> {
        let clock = after.record.clock;
        let is_estimated = is_estimated(metric, clock);
        let equal_arms =
            |compared| if is_estimated { effect_of_equal_arms(compared, test, metric) } else { 0.0 };
        let equal_arms = equal_arms(before).max(equal_arms(after));
        let figures = [before, after].map(|compared| -> Vec<(&Evidence, Quantity)> {
            let repeats = compared.results.repeats(test, arm).into_iter();
            repeats.filter_map(|one| Some((one, one.quantity(metric, None)?))).collect()
        });
        // Records are measured at different times: what disturbs one of them need not disturb the other.
        let is_one_valid = |one: &Evidence| {
            one.is_valid(metric.is_timing) && !(is_estimated && one.is_mostly_disturbed(None))
        };
        if figures.iter().any(Vec::is_empty) {
            return None;
        }
        let is_valid = figures.iter().all(|side| side.iter().any(|(one, _)| is_one_valid(one)));
        let figures = figures.map(|side| {
            side.into_iter().filter(|(one, _)| is_one_valid(one) || !is_valid).collect::<Vec<_>>()
        });
        let observed = |(one, quantity): &(&Evidence, Quantity)| {
            let (repeat, figure) = (one.run.repeat, quantity.measured);
            let is_live = clock == ClockKind::Live;
            let variance = if is_live { chance_variance(metric, one, figure) } else { 0.0 };
            Observed { repeat, figure, variance }
        };
        let quantities =
            |side: &[(&Evidence, Quantity)]| side.iter().map(|(_, quantity)| *quantity).collect::<Vec<_>>();
        let has_equal_requests = before.record.seed == after.record.seed;
        let [before, after] = &figures;
        let estimate =
            (is_estimated && is_valid).then(|| Estimate::unpaired(&quantities(after), &quantities(before)));
        Some(Self {
            test: test.to_owned(),
            arm: arm.to_owned(),
            metric,
            wanted,
            min_effect: min_effect.ln_1p(),
            equal_arms,
            before: before.iter().map(observed).collect(),
            after: after.iter().map(observed).collect(),
            has_equal_requests,
            is_valid,
            estimate,
        })
    }

    /// Less, the same, and more. A large effect of equal arms does not make more figures the same.
    fn regions(&self) -> [Region; 3] {
        let apart = self.min_effect.max(self.equal_arms);
        [Region::below(-apart), Region::within(self.min_effect), Region::above(apart)]
    }

    /// The least alpha at which it is decided, if it is judged by intervals.
    fn p_value(&self) -> Option<f64> {
        let estimate = self.estimate.as_ref()?;
        Some(self.regions().map(|region| estimate.p_value_within(region)).into_iter().fold(1.0, f64::min))
    }

    fn judge(self, alpha: f64) -> Change {
        let verdicts = match self.wanted {
            Wanted::Less => [ChangeVerdict::Better, ChangeVerdict::Same, ChangeVerdict::Worse],
            Wanted::More => [ChangeVerdict::Worse, ChangeVerdict::Same, ChangeVerdict::Better],
        };
        let is_decided = |region: Region| match &self.estimate {
            Some(estimate) => estimate.p_value_within(region) <= alpha,
            None => self.pairs().into_iter().all(|(before, after)| {
                let variance = before.variance + after.variance;
                let (before, after) = (before.figure, after.figure);
                let effect = if (after - before).abs() > 0.0 { (after / before).ln() } else { 0.0 };
                let is_change = effect.abs() > self.min_effect;
                let may_be_chance = (after - before).powi(2) <= 4.0 * variance;
                region.from <= effect && effect <= region.to && !(is_change && may_be_chance)
            }),
        };
        let mut regions = self.regions().into_iter().zip(verdicts).filter(|_| self.is_valid);
        let decided = regions.find(|(region, _)| is_decided(*region));
        let mean = |observed: &[Observed]| {
            let mean = |of: fn(f64) -> f64| {
                observed.iter().map(|one| of(one.figure)).sum::<f64>() / observed.len() as f64
            };
            if self.estimate.is_some() { mean(f64::ln).exp() } else { mean(|figure| figure) }
        };
        let (before, after) = (mean(&self.before), mean(&self.after));
        let interval = self.estimate.as_ref().map(|estimate| estimate.ratios(alpha));
        Change {
            test: self.test,
            arm: self.arm,
            metric: self.metric,
            before,
            after,
            ratio: (before > 0.0 && after > 0.0).then(|| after / before),
            interval,
            verdict: decided.map_or(ChangeVerdict::Open, |(_, verdict)| verdict),
        }
    }

    /// Every repeat of one record with every repeat of the other, or with the one of the same requests.
    fn pairs(&self) -> Vec<(Observed, Observed)> {
        let all = || self.before.iter().flat_map(|before| self.after.iter().map(|after| (*before, *after)));
        let of_requests: Vec<_> = all().filter(|(before, after)| before.repeat == after.repeat).collect();
        if self.has_equal_requests && !of_requests.is_empty() { of_requests } else { all().collect() }
    }
}

/// Tests and arms of both records, in the order of the later one.
fn common_cells(before: Compared<'_>, after: Compared<'_>) -> Result<Vec<(String, String)>, UnlikeRecords> {
    if before.record.clock != after.record.clock {
        let message = "one is computed in virtual time, and one is measured in real time";
        return Err(UnlikeRecords(message.to_owned()));
    }
    let mut cells = Vec::new();
    for test in &after.record.tests {
        for arm in &after.record.arms {
            let runs = |compared: Compared<'_>| {
                compared.results.repeats(test, &arm.name).first().map(|evidence| load(&evidence.run))
            };
            let (Some(of_before), Some(of_after)) = (runs(before), runs(after)) else { continue };
            if of_before != of_after {
                let place = if test.is_empty() { String::new() } else { format!(" of test `{test}`") };
                return Err(UnlikeRecords(format!(
                    "the load{place} is {of_before} before, and {of_after} after"
                )));
            }
            cells.push((test.clone(), arm.name.clone()));
        }
    }
    if cells.is_empty() {
        return Err(UnlikeRecords(format!(
            "no test and arm is in both; the arms are {} before, and {} after",
            arms(before.record),
            arms(after.record)
        )));
    }
    Ok(cells)
}

fn arms(record: &Record) -> String {
    record.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn invalid(record: &Record) -> String {
    record.runs.iter().filter(|run| run.is_invalid()).count().to_string()
}

/// The load of a run in words.
pub(crate) fn load(run: &Run) -> String {
    match &run.load {
        LoadFigures::Burst(burst) => format!("{} workers for {} documents", burst.workers, burst.documents),
        LoadFigures::Open(open) => {
            let connections = run.http.as_ref().and_then(|http| http.users);
            let connections =
                connections.map(|users| format!(" over {users} connections")).unwrap_or_default();
            format!("{}{connections}", open.schedule)
        }
    }
}

/// Programs, machines and settings that differ.
fn differences(before: &Record, after: &Record) -> Vec<String> {
    let mut all = Vec::new();
    let mut differ = |what: &str, before: String, after: String| {
        if before != after {
            all.push(format!("{what}: {before} -> {after}"));
        }
    };
    let commit = |record: &Record| record.commit.clone().unwrap_or_else(|| "none".to_owned());
    differ("commit", commit(before), commit(after));
    differ("stockade", before.stockade.clone(), after.stockade.clone());
    differ("machine", summary::machine(&before.host), summary::machine(&after.host));
    differ("seed", before.seed.0.to_string(), after.seed.0.to_string());
    differ("scale", before.scale.to_string(), after.scale.to_string());
    let end = |record: &Record| match &record.aborted {
        Some(reason) => format!("ended early, {reason}"),
        None if record.interrupted => "interrupted".to_owned(),
        None => "complete".to_owned(),
    };
    differ("measurements", end(before), end(after));
    differ("repeats", before.repeats.to_string(), after.repeats.to_string());
    differ("tests", before.tests.join(", "), after.tests.join(", "));
    differ("arms", arms(before), arms(after));
    differ("invalid measurements", invalid(before), invalid(after));
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (settings(before).collect(), settings(after).collect());
    all.extend(settings(before).filter(|line| !new.contains(line)).map(|line| format!("- {line}")));
    all.extend(settings(after).filter(|line| !old.contains(line)).map(|line| format!("+ {line}")));
    all
}

/// The lines of the experiment file without comments.
pub(crate) fn settings(record: &Record) -> impl Iterator<Item = &str> {
    record.spec.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A figure with its unit.
pub(crate) fn shown(metric: &Metric, figure: f64) -> String {
    match metric.unit {
        FigureUnit::Time => format_milliseconds(figure),
        FigureUnit::Number if figure.fract() == 0.0 => format!("{figure}"),
        FigureUnit::Number => format!("{figure:.4}"),
    }
}

#[cfg(test)]
mod tests;
