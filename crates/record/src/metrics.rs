//! The registry of metrics, and the figures of an arm.

mod arm;
mod fold;
mod results;
mod running;
mod telemetry;

use std::sync::{LazyLock, Mutex, PoisonError};

use crate::{
    histogram::Statistic,
    record::{Role, Run, Violation},
};
use stockade_cache::{RequestStats, StoreStats};
use stockade_model::{
    named,
    registry::Registry,
    telemetry::MetricKind,
    units::{milliseconds, ratio},
};

use crate::statistics::AssumedSpread;

pub use arm::{ArmFigures, Cpu, HeldFigures, OpenTotals, Rss, Stores};
pub use fold::{FigureWindow, Fold, FoldPart, HEAT_CELLS_PER_DECADE, Moment, ProcessUsage};
pub(crate) use results::is_known;
pub use results::{Evidence, Results};
pub use running::RunningFigures;

/// The input of a figure.
pub(crate) struct Raw<'a> {
    pub(crate) run: &'a Run,
    /// The counts in the selected seconds.
    pub(crate) part: &'a FoldPart,
}

/// The unit of a metric's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// A count or a ratio.
    Number,
    /// Milliseconds.
    Time,
}

/// A named figure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in expressions and references.
    pub name: &'static str,
    /// Its meaning.
    pub summary: &'static str,
    /// The unit of its figures.
    pub unit: FigureUnit,
    /// True if it is measured with a clock, and so differs between runs.
    pub is_timing: bool,
    /// True if a window of a run has a figure, too.
    pub has_windows: bool,
    figure: Figure,
}

/// Where the figures of a metric come from.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Computed(fn(&Raw<'_>) -> Option<f64>),
    Time(TimeKind, Statistic),
    /// The counter or gauge of the cache with this field name.
    Reported(&'static str, MetricKind),
}

/// Times that every request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeKind {
    Response,
    Service,
    SendLag,
}

impl TimeKind {
    const ALL: [(&str, Self); 3] =
        [("response", Self::Response), ("service", Self::Service), ("send_lag", Self::SendLag)];
}

impl Metric {
    pub(crate) fn computed(&self, raw: &Raw<'_>) -> Option<f64> {
        match self.figure {
            Figure::Computed(figure) => figure(raw),
            Figure::Time(kind, statistic) => time(raw, kind, statistic),
            Figure::Reported(..) => None,
        }
    }

    /// Reads a counter or gauge from the record, which leaves out counters of 0.
    fn reported(&self, run: &Run) -> Option<f64> {
        match self.figure {
            Figure::Reported(field, MetricKind::Counter) if !run.counters.is_empty() => {
                Some(run.counters.get(field).copied().unwrap_or_default())
            }
            Figure::Reported(field, _) => run.counters.get(field).copied(),
            Figure::Computed(_) | Figure::Time(..) => None,
        }
    }

    /// The spread that its figure rests on in a run or a window without disturbances, of this length in seconds; 0: unknown.
    pub(crate) fn assumed_spread(&self, seconds: u64) -> AssumedSpread {
        let statistic = self.time().map(|(_, statistic)| statistic);
        statistic
            .map_or(AssumedSpread::Machine, |statistic| AssumedSpread::of_undisturbed(statistic, seconds))
    }

    /// The times of a metric, and their statistic.
    pub(crate) fn time(&self) -> Option<(TimeKind, Statistic)> {
        match self.figure {
            Figure::Time(kind, statistic) => Some((kind, statistic)),
            Figure::Computed(_) | Figure::Reported(..) => None,
        }
    }

    /// The times that late sends do not make longer: service times for response times.
    pub(crate) fn without_lateness(&self) -> &Self {
        match self.figure {
            Figure::Time(TimeKind::Response, statistic) => Self::of_time(TimeKind::Service, statistic),
            _ => self,
        }
    }

    /// True for a counter or gauge that the cache reports.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        matches!(self.figure, Figure::Reported(..))
    }

    /// The same of another statistic of its times.
    pub(crate) fn with_statistic(&self, statistic: Statistic) -> Self {
        let figure = match self.figure {
            Figure::Time(kind, _) => Figure::Time(kind, statistic),
            other => other,
        };
        Self { figure, ..*self }
    }

    /// The metric with this name. Times have every percentile, `p99.9` is `p999`, and `p99` alone is that of the response times.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let of_kind = name.split_once('.').and_then(|(kind, statistic)| {
            let known = TimeKind::ALL.into_iter().find(|(known, _)| *known == kind);
            known.map(|(_, kind)| (kind, statistic))
        });
        let (kind, statistic) = of_kind.unwrap_or((TimeKind::Response, name));
        let of_time = || Statistic::named(statistic).map(|statistic| Self::of_time(kind, statistic));
        METRICS.named(name).ok().or_else(of_time)
    }

    fn of_time(kind: TimeKind, statistic: Statistic) -> &'static Self {
        let is_it = |metric: &&Self| metric.time() == Some((kind, statistic));
        METRICS.iter().find(is_it).unwrap_or_else(|| {
            let mut others = OTHER_PERCENTILES.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = others.iter().copied().find(is_it) {
                return known;
            }
            // A response time is judged with its service time.
            let first = others.len();
            for (name, kind) in TimeKind::ALL {
                let name = format!("{name}.p{}", (statistic.quantile() * 1e14).round() / 1e12);
                let summary = OF_TIMES[kind as usize][0].summary;
                others.push(Box::leak(Box::new(of_times(name.leak(), summary, kind, statistic))));
            }
            others[first + kind as usize]
        })
    }

    /// Every metric, with the percentiles that were named so far.
    fn all() -> impl Iterator<Item = &'static Self> {
        let others = OTHER_PERCENTILES.lock().unwrap_or_else(PoisonError::into_inner).clone();
        METRICS.iter().chain(others)
    }
}

/// Percentiles that a claim has named, and that are not listed.
static OTHER_PERCENTILES: Mutex<Vec<&'static Metric>> = Mutex::new(Vec::new());

named!(Metric, "metric");

/// Every metric, and `cache.FIELD` for each counter of the cache, unless another metric has that name.
pub static METRICS: LazyLock<Registry<Metric>> = LazyLock::new(|| {
    let groups = [
        COUNTS,
        OF_RUNS,
        OF_OPEN_LOADS,
        OF_LOAD,
        OF_PROXY,
        OF_ORIGIN,
        HELD,
        SPANS,
        &OF_TIMES[0],
        &OF_TIMES[1],
        &OF_TIMES[2],
    ];
    let requests = RequestStats::METRICS.iter().map(|metric| (metric.field, metric.kind, metric.help));
    let store = StoreStats::METRICS.iter().map(|metric| (metric.field, metric.kind, metric.help));
    let reported = requests
        .chain(store)
        .map(|(field, kind, help)| (format!("cache.{field}"), field, kind, help))
        .filter(|(name, ..)| !OF_RUNS.iter().any(|metric| metric.name == name))
        .map(|(name, field, kind, help)| Metric {
            figure: Figure::Reported(field, kind),
            ..count(name.leak(), help.trim(), |_| None)
        });
    Registry::new(groups.into_iter().flatten().copied().chain(reported).collect::<Vec<_>>().leak())
});

/// Earlier names of metrics, and the present ones.
const RENAMED: [(&str, &str); 1] = [("audit.after_invalidation", "audit.after_purge")];

/// The present name of a metric that was renamed.
#[must_use]
pub fn renamed(name: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(earlier, _)| *earlier == name).map(|(_, present)| *present)
}

/// The names that end with this part: `p99` is a part of several.
pub fn names_with_last_part(part: &str) -> impl Iterator<Item = &'static str> + Clone {
    METRICS.parsed_names().filter(move |name| name.strip_suffix(part).is_some_and(|rest| rest.ends_with('.')))
}

const fn count(name: &'static str, summary: &'static str, figure: fn(&Raw<'_>) -> Option<f64>) -> Metric {
    Metric {
        name,
        unit: FigureUnit::Number,
        is_timing: false,
        has_windows: false,
        summary,
        figure: Figure::Computed(figure),
    }
}

/// A number that a clock has a part in.
const fn clocked(name: &'static str, summary: &'static str, figure: fn(&Raw<'_>) -> Option<f64>) -> Metric {
    Metric { is_timing: true, ..count(name, summary, figure) }
}

const fn timing(name: &'static str, summary: &'static str, figure: fn(&Raw<'_>) -> Option<f64>) -> Metric {
    Metric {
        name,
        unit: FigureUnit::Time,
        is_timing: true,
        has_windows: false,
        summary,
        figure: Figure::Computed(figure),
    }
}

const fn windowed(metric: Metric) -> Metric {
    Metric { has_windows: true, ..metric }
}

const fn of_times(name: &'static str, summary: &'static str, kind: TimeKind, statistic: Statistic) -> Metric {
    Metric { figure: Figure::Time(kind, statistic), ..windowed(timing(name, summary, |_| None)) }
}

macro_rules! distribution {
    ($name:literal, $kind:expr, $summary:literal) => {
        [
            of_times(concat!($name, ".min"), $summary, $kind, Statistic::Min),
            of_times(concat!($name, ".mean"), $summary, $kind, Statistic::Mean),
            of_times(concat!($name, ".p50"), $summary, $kind, Statistic::Quantile(0.5)),
            of_times(concat!($name, ".p75"), $summary, $kind, Statistic::Quantile(0.75)),
            of_times(concat!($name, ".p90"), $summary, $kind, Statistic::Quantile(0.9)),
            of_times(concat!($name, ".p95"), $summary, $kind, Statistic::Quantile(0.95)),
            of_times(concat!($name, ".p99"), $summary, $kind, Statistic::Quantile(0.99)),
            of_times(concat!($name, ".p999"), $summary, $kind, Statistic::Quantile(0.999)),
            of_times(concat!($name, ".max"), $summary, $kind, Statistic::Max),
        ]
    };
}

/// Usage of a process in a run over HTTP: memory in MiB, processor time in cores.
macro_rules! of_process {
    ($name:literal, $process:literal, $role:expr) => {
        [
            windowed(count(
                concat!($name, ".rss.max"),
                concat!("Memory of ", $process, " in MiB, the most. Over HTTP."),
                |e| Some(mib(e.part.usage.get(&$role)?.rss_max_bytes)),
            )),
            windowed(count(concat!($name, ".rss.last"), "The same at the end of the last second.", |e| {
                Some(mib(e.part.usage.get(&$role)?.rss_last_bytes))
            })),
            windowed(clocked(
                concat!($name, ".cpu.mean"),
                concat!("Processor time of ", $process, " in cores, on average. Over HTTP."),
                |e| {
                    let used = e.part.usage.get(&$role)?;
                    Some(used.cpu_sum / used.seconds as f64)
                },
            )),
            windowed(clocked(concat!($name, ".cpu.max"), "The same in the second with the most.", |e| {
                Some(e.part.usage.get(&$role)?.cpu_max)
            })),
        ]
    };
}

/// The unit of memory in reports.
#[must_use]
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// A list of metrics. Each has its kind, name, meaning and figure; `windowed`: a window of a run has one, too.
macro_rules! metrics {
    (@ windowed $kind:ident $($of:expr),+) => { windowed($kind($($of),+)) };
    (@ $kind:ident $($of:expr),+) => { $kind($($of),+) };
    ($($kind:ident $($of_window:ident)? $name:literal $summary:literal => $figure:expr;)+) => {
        &[$(metrics!(@ $kind $($of_window)? $name, $summary, $figure)),+]
    };
}

/// Counts that also exist for a window.
static COUNTS: &[Metric] = metrics! {
    windowed count "requests" "Workers, or requests sent."
        => |e| Some(e.part.outcomes.requests() as f64);
    windowed count "failed" "Requests without a document."
        => |e| Some(e.part.outcomes.error as f64);
    windowed count "success" "Answered requests / all requests. Over HTTP, answered means a status of 200 to 399."
        => |e| {
            let requests = e.part.outcomes.requests();
            ratio(requests - e.part.outcomes.error, requests)
        };
    windowed count "outcomes.hit" "Answered from the cache while fresh."
        => |e| Some(e.part.outcomes.hit as f64);
    windowed count "outcomes.stale" "Answered after the ttl, without waiting for a load."
        => |e| Some(e.part.outcomes.stale as f64);
    windowed count "outcomes.miss" "Answered by the request's own load."
        => |e| Some(e.part.outcomes.miss as f64);
    windowed count "outcomes.coalesced" "Answered by the load of another request."
        => |e| Some(e.part.outcomes.coalesced as f64);
    windowed count "outcomes.fallback" "Answered stale, because the load failed, was slow or did not start."
        => |e| Some(e.part.outcomes.fallback as f64);
    windowed count "outcomes.negative" "Answered with a stored not-found."
        => |e| Some(e.part.outcomes.negative as f64);
    windowed count "outcomes.bypass" "Answered without a lookup."
        => |e| Some(e.part.outcomes.bypass as f64);
    windowed count "outcomes.unreported" "Answered without a word of the cache on how."
        => |e| Some(e.part.outcomes.unreported as f64);
    windowed count "outcomes.error" "Not answered."
        => |e| Some(e.part.outcomes.error as f64);
    windowed count "hit_ratio" "Hits / lookups. Waiters and stale answers are not hits."
        => |e| e.part.outcomes.hit_ratio();
    windowed count "source_loads" "Fetches that reached the source."
        => |e| e.part.source_loads.map(|loads| loads as f64);
    windowed count "source_loads_per_s.max" "The most of them in one second."
        => |e| e.part.source_loads_per_s_max.map(|loads| loads as f64);
    windowed count "offload" "1 - source loads / requests. Failed requests without a load count, and so do loads in the background."
        => |e| {
            let (loads, requests) = (e.part.source_loads?, e.part.outcomes.requests());
            Some(1.0 - ratio(loads, requests)?)
        };
    windowed count "retries" "Attempts after the first, over all requests."
        => |e| e.part.retries.map(|retries| retries as f64);
    windowed count "dropped" "Requests that were due and not sent."
        => |e| e.part.dropped.map(|dropped| dropped as f64);
    windowed timing "age.max" "Age of the oldest answer, from the source's answer until the client had it."
        => |e| e.part.age_max_ms;
};
static OF_RUNS: &[Metric] = metrics! {
    count "bytes_in.total" "Bytes of the answers."
        => |e| Some(e.run.bytes_in as f64);
    count "bytes_in.mean" "Bytes of the answers by request."
        => |e| ratio(e.run.bytes_in, e.run.outcomes.requests());
    count "episodes" "Refill episodes. One opens at a key's first load, and closes at a store or the load's deadline."
        => |e| Some(e.run.episodes as f64);
    count "amplification" "Source loads / refill episodes."
        => |e| ratio(e.run.load.calls().fetch_doc, e.run.episodes);
    count "loads_per_request" "Source loads / requests."
        => |e| ratio(e.run.load.calls().fetch_doc, e.run.outcomes.requests());
    count "stores.sync" "Stores for which the load waited, executed or taken into the mailbox."
        => |e| Some(e.run.load.calls().store_local as f64);
    count "stores.async" "Stores for which no load waited, executed or taken into the mailbox."
        => |e| Some(e.run.load.calls().store_local_async as f64);
    count "stores.total" "Both."
        => |e| {
            let calls = e.run.load.calls();
            Some((calls.store_local + calls.store_local_async) as f64)
        };
    count "stores.skipped" "Stores left to another load that had claimed the same version."
        => |e| Some(e.run.stores_skipped as f64);
    count "stores.dropped" "Stores lost to a full mailbox."
        => |e| Some(e.run.stores_dropped as f64);
    count "stores.refused" "Values for which the limit had no room: answered, not stored."
        => |e| Some(e.run.cache.stores_refused as f64);
    count "loads_rejected" "Loads that did not start: the queue was full, or the deadline passed in it."
        => |e| Some(e.run.cache.loads_rejected as f64);
    count "loads_refused" "Loads that did not start because the breaker was open."
        => |e| Some(e.run.cache.loads_refused as f64);
    count "refreshes" "Loads of a key that could still be answered: early, by chance, while stale, or probes."
        => |e| Some(e.run.cache.refreshes as f64);
    count "cache.entries" "Entries at the end."
        => |e| Some(e.run.cache.entries as f64);
    count "cache.bytes_max" "The most bytes that `limit.bytes` counted at any time."
        => |e| e.run.cache.bytes_max.map(|bytes| bytes as f64);
    count "cache.evicted" "Entries that left because others needed their room."
        => |e| Some(e.run.cache.evicted as f64);
    count "cache.invalidated" "Entries that were invalidated."
        => |e| Some(e.run.cache.invalidated as f64);
    count "waiters" "Requests that waited for another's load, answered or not."
        => |e| Some(e.run.load.waiters() as f64);
    count "documents" "Documents to choose from."
        => |e| e.run.load.documents().map(|documents| documents as f64);
    count "distinct_keys" "Different documents that were chosen."
        => |e| e.run.load.distinct_keys().map(|keys| keys as f64);
};
static OF_OPEN_LOADS: &[Metric] = metrics! {
    clocked "achieved_rate" "Requests sent before the end of an open load, by second."
        => |e| {
            let seconds = e.run.load.open()?.duration_ms / 1e3;
            (seconds > 0.0).then(|| sent_while_due(e.run) as f64 / seconds)
        };
    clocked "achieved" "Requests that ended before the end of an open load / requests that were due. Over HTTP."
        => |e| {
            let (open, http) = (e.run.load.open()?, e.run.http.as_ref()?);
            let in_time = sent_while_due(e.run).saturating_sub(http.in_flight_at_end);
            ratio(in_time, e.run.outcomes.requests() + open.dropped)
        };
    clocked "throughput" "Answered requests by second, from the first due time to the end of the last request. Over HTTP."
        => |e| {
            let http = e.run.http.as_ref()?;
            let seconds = (http.attack_ms + http.wait_ms) / 1e3;
            (seconds > 0.0).then(|| (e.run.outcomes.requests() - e.run.outcomes.error) as f64 / seconds)
        };
    clocked "in_flight.max" "The most requests in flight at once. Open loads."
        => |e| Some(e.run.load.open()?.in_flight_max as f64);
    count "source.concurrent_max" "The most fetches inside the source at once, waiting or worked on. Open loads."
        => |e| e.run.load.open()?.source_concurrent_max.map(|most| most as f64);
    count "audit.too_old" "Answers older than they may be: by the strategy, or over HTTP by the fields of the origin. Open loads."
        => |e| false_answers(e, Violation::TooOld);
    count "audit.after_purge" "Answers of a version invalidated before the request started. Open loads of the engine."
        => |e| false_answers(e, Violation::AfterPurge);
    count "audit.wrong_owner" "Answers that are another user's: the recipe's `owner` names the field of the request that tells users apart. Over HTTP."
        => |e| false_answers(e, Violation::WrongOwner);
    count "audit.wrong_variant" "Answers of another variant than the request selects by the field of the recipe's `variant`. Over HTTP."
        => |e| false_answers(e, Violation::WrongVariant);
    count "audit.wrong_body" "Answers with other bytes than the origin sent. Over HTTP."
        => |e| false_answers(e, Violation::WrongBody);
    count "audit.truncated" "Answers with a part of the bytes, as a whole response. Over HTTP."
        => |e| false_answers(e, Violation::Truncated);
    count "audit.wrong_status" "Answers with another status than the origin sent. Over HTTP."
        => |e| false_answers(e, Violation::WrongStatus);
    count "audit.age_wrong" "Answers with an `Age` that is wrong, or missing after more than 2 s. Over HTTP."
        => |e| false_answers(e, Violation::AgeWrong);
};
static OF_LOAD: &[Metric] = &of_process!("load", "the load generator", Role::Load);
static OF_PROXY: &[Metric] = &of_process!("proxy", "the cache process", Role::Proxy);
static OF_ORIGIN: &[Metric] = &of_process!("origin", "the origin", Role::Origin);
static HELD: &[Metric] = metrics! {
    windowed count "proxy.entries.max" "The most entries that the proxy held. Over HTTP."
        => |e| Some(e.part.holds_max?.entries as f64);
    windowed count "proxy.bytes.max" "The most bytes that the proxy's limit counted. Over HTTP."
        => |e| Some(e.part.holds_max?.bytes? as f64);
};
static SPANS: &[Metric] = metrics! {
    timing "finished" "Time until the last worker was done. Bursts."
        => |e| Some(e.run.load.finished_ms());
    timing "start_skew" "Time from the first worker's start to the last one's. Bursts."
        => |e| Some(e.run.load.burst()?.start_skew_ms);
};
/// In the order of [`TimeKind`].
static OF_TIMES: [[Metric; 9]; 3] = [
    distribution!("response", TimeKind::Response, "Finished - due, of answered requests."),
    distribution!("service", TimeKind::Service, "Finished - sent, of answered requests."),
    distribution!("send_lag", TimeKind::SendLag, "Sent - due, of all requests."),
];

/// Response times are known exactly at both ends: the histogram's three digits stay between them. A request is not served for longer
/// than it takes.
fn time(raw: &Raw<'_>, kind: TimeKind, statistic: Statistic) -> Option<f64> {
    let times = &raw.part.times;
    let exact = raw.run.load.response();
    let of = |times| statistic.of(times).map(milliseconds);
    match (kind, exact) {
        (TimeKind::Response, Some(exact)) => {
            of(&times.response).map(|ms| ms.clamp(exact.min_ms, exact.max_ms))
        }
        (TimeKind::Response, None) => of(&times.response),
        (TimeKind::Service, Some(exact)) => of(&times.service).map(|ms| ms.min(exact.max_ms)),
        (TimeKind::Service, None) => of(&times.service),
        (TimeKind::SendLag, _) => of(&times.send_lag),
    }
}

fn false_answers(raw: &Raw<'_>, violation: Violation) -> Option<f64> {
    Some(raw.run.load.open()?.audit.as_ref()?.count(violation)? as f64)
}

/// Requests that were sent before the schedule was over.
fn sent_while_due(run: &Run) -> u64 {
    let late = run.http.as_ref().map_or(0, |http| http.sent_after_end);
    run.outcomes.requests().saturating_sub(late)
}

/// The middle figure, or the mean of the two in the middle; `None` of none.
#[must_use]
pub fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some(f64::midpoint(figures[middle - 1], figures[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = METRICS.parsed_names().collect();
        assert_eq!(names.len(), METRICS.len());
        assert!(Metric::named("response.p999").is_some_and(|metric| metric.is_timing));
        assert!(Metric::named("response.p99.9").is_some_and(|metric| metric.name == "response.p999"));
        assert!(Metric::named("stores.async").is_some_and(|metric| !metric.is_timing));
        // As `achieved_rate`, it is another one each time.
        assert!(Metric::named("proxy.cpu.mean").is_some_and(|metric| metric.is_timing));
        let all = Violation::ALL.map(Violation::metric);
        assert!(all.into_iter().chain(RENAMED.map(|(_, present)| present)).all(|name| names.contains(name)));
        assert!(RENAMED.iter().all(|(earlier, _)| Metric::named(earlier).is_none()));
    }

    #[test]
    fn median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
