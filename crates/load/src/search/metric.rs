//! The registry of metrics that bounds can name.

use std::time::Duration;

use stockade_model::{nearest::remedy, units::ratio};
use stockade_record::histogram::Histogram;

// why a circle: a metric's name is read as part of a bound, so a wrong one is that bound's error.
use super::bound::BoundError;
use crate::summary::Summary;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundUnit {
    /// Nanoseconds.
    Time,
    /// A count, a ratio or a rate.
    Number,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BoundMetric {
    Number(&'static NumberMetric),
    Time(&'static TimeMetric, TimeStat),
}

/// A named number; `None` where a run has no value.
#[derive(Debug)]
pub(super) struct NumberMetric {
    name: &'static str,
    /// True if a late generator changes it.
    is_timing: bool,
    read: fn(&Summary) -> Option<f64>,
}

impl PartialEq for NumberMetric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A named distribution of times, and the number of requests that are missing in it because they have no response.
#[derive(Debug)]
pub(super) struct TimeMetric {
    name: &'static str,
    times: fn(&Summary) -> &Histogram,
    unanswered: fn(&Summary) -> u64,
}

impl PartialEq for TimeMetric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A statistic of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TimeStat {
    Min,
    Mean,
    Max,
    /// From 0 to 1.
    Quantile(f64),
}

static TIME_METRICS: [TimeMetric; 3] = [
    TimeMetric {
        name: "response",
        times: |run| &run.measured.times.response,
        unanswered: |run| run.measured.without_response(),
    },
    TimeMetric {
        name: "service",
        times: |run| &run.measured.times.service,
        unanswered: |run| run.measured.without_response(),
    },
    TimeMetric { name: "send_lag", times: |run| &run.measured.times.send_lag, unanswered: |_| 0 },
];

static NUMBER_METRICS: [NumberMetric; 13] = [
    count("success", |run| ratio(run.measured.successes, run.measured.requests())),
    count("failed", |run| Some(run.measured.failed() as f64)),
    // The requests that ended within the schedule, as a share of those due: the achieved share of the rate.
    clocked("achieved", |run| {
        let ended = run.measured.requests();
        let late = run.in_flight_at_end.saturating_add(run.sent_after_end);
        ratio(ended.saturating_sub(late), ended.saturating_add(run.dropped))
    }),
    clocked("achieved_rate", Summary::achieved_rate),
    count("dropped", |run| Some(run.dropped as f64)),
    count("requests", |run| Some(run.measured.requests() as f64)),
    count("retries", |run| Some(run.measured.retries as f64)),
    count("hit_ratio", |run| run.measured.hit_ratio()),
    count("bytes_in.total", |run| Some(run.measured.bytes_in as f64)),
    count("bytes_in.mean", |run| ratio(run.measured.bytes_in, run.measured.requests())),
    // Successes a second, from the first request to the end of the last one.
    clocked("throughput", |run| {
        let seconds = (run.attack_duration() + run.wait_duration()).as_secs_f64();
        (seconds > 0.0).then(|| run.measured.successes as f64 / seconds)
    }),
    clocked("in_flight.max", |run| Some(run.in_flight_max as f64)),
    // The name in JSON.
    clocked("in_flight_max", |run| Some(run.in_flight_max as f64)),
];

const fn count(name: &'static str, read: fn(&Summary) -> Option<f64>) -> NumberMetric {
    NumberMetric { name, is_timing: false, read }
}

/// A number that a clock has a part in.
const fn clocked(name: &'static str, read: fn(&Summary) -> Option<f64>) -> NumberMetric {
    NumberMetric { name, is_timing: true, read }
}

/// The statistics that error messages propose; other percentiles are valid as well.
const STATS: [&str; 8] = ["min", "mean", "max", "p50", "p90", "p95", "p99", "p99.9"];

impl BoundMetric {
    /// Finds a metric by name: `p99` is `response.p99`.
    pub(super) fn parse(name: &str) -> Result<Self, BoundError> {
        if let Some(plain) = NUMBER_METRICS.iter().find(|plain| plain.name == name) {
            return Ok(Self::Number(plain));
        }
        if let Some(stat) = TimeStat::parse(name) {
            return Ok(Self::Time(&TIME_METRICS[0], stat?));
        }
        let unknown = |remedy: String| BoundError::UnknownMetric { name: name.to_owned(), remedy };
        let families = TIME_METRICS.iter().map(|family| family.name);
        match name.split_once('.') {
            Some((family, stat)) => match TIME_METRICS.iter().find(|known| known.name == family) {
                Some(family) => match TimeStat::parse(stat) {
                    Some(stat) => Ok(Self::Time(family, stat?)),
                    None => Err(unknown(format!("of {}, {}", family.name, remedy(stat, STATS)))),
                },
                None => Err(unknown(remedy(family, families))),
            },
            None if families.clone().any(|family| family == name) => {
                Err(unknown(format!("it is a distribution: write a statistic such as `{name}.p99`")))
            }
            None => {
                let known = NUMBER_METRICS.iter().map(|plain| plain.name).chain(STATS).chain(families);
                Err(unknown(remedy(name, known)))
            }
        }
    }

    pub(super) fn unit(self) -> BoundUnit {
        match self {
            Self::Number(_) => BoundUnit::Number,
            Self::Time(..) => BoundUnit::Time,
        }
    }

    /// True if a late generator changes it.
    pub(super) fn is_timing(self) -> bool {
        match self {
            Self::Number(number) => number.is_timing,
            Self::Time(..) => true,
        }
    }

    /// The metric that late sends make no longer: service times are at most the response times, and at least what these would be on
    /// time. `None`: late sends may change it in other ways.
    pub(super) fn without_lateness(self) -> Option<Self> {
        match self {
            Self::Time(family, stat) if family.name == "response" => TIME_METRICS
                .iter()
                .find(|family| family.name == "service")
                .map(|service| Self::Time(service, stat)),
            Self::Time(..) => Some(self),
            Self::Number(_) => None,
        }
    }

    /// The value for a run, in the metric's unit; `None` where the run has none. A request without a response counts as
    /// slower than all others: a statistic that falls on one is infinite.
    pub(super) fn read(self, run: &Summary) -> Option<f64> {
        let (family, stat) = match self {
            Self::Number(plain) => return (plain.read)(run),
            Self::Time(family, stat) => (family, stat),
        };
        let times = (family.times)(run);
        let (answered, unanswered) = (times.count(), (family.unanswered)(run));
        let nanos = |time: Duration| time.as_nanos() as f64;
        match stat {
            TimeStat::Min => times.min().map(nanos),
            TimeStat::Mean => times.mean().map(nanos),
            TimeStat::Max if unanswered > 0 => Some(f64::INFINITY),
            TimeStat::Max => times.max().map(nanos),
            TimeStat::Quantile(quantile) => {
                let all = answered + unanswered;
                let rank = quantile * all as f64;
                // The tolerance keeps 0.99 of 1,000 at 990.
                if all > 0 && rank > answered as f64 * (1.0 + 1e-12) {
                    return Some(f64::INFINITY);
                }
                times.quantile((rank / answered as f64).min(1.0)).map(nanos)
            }
        }
    }
}

impl TimeStat {
    /// `None` if it is not a statistic, an error if it is a percentile out of range.
    fn parse(name: &str) -> Option<Result<Self, BoundError>> {
        let percent = match name {
            "min" => return Some(Ok(Self::Min)),
            "mean" => return Some(Ok(Self::Mean)),
            "max" => return Some(Ok(Self::Max)),
            _ => name.strip_prefix('p').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))?,
        };
        let is_plain = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        // `p999` is how records and experiments write p99.9.
        let percent = match percent.strip_prefix("99") {
            Some(decimals) if !decimals.is_empty() && !decimals.contains('.') => format!("99.{decimals}"),
            _ => percent.to_owned(),
        };
        let quantile = percent.parse().ok().filter(|percent| is_plain && *percent > 0.0 && *percent <= 100.0);
        let impossible = || BoundError::Quantile(name.to_owned());
        Some(quantile.map(|percent: f64| Self::Quantile(percent / 100.0)).ok_or_else(impossible))
    }
}
