//! What can be bounded: a registry of figures of a run.

use std::time::Duration;

use stockade_model::{histogram::Histogram, nearest::remedy};

use super::bound::BoundError;
use crate::summary::Summary;

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds.
    Time,
    /// Requests, a ratio, a rate.
    Number,
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Metric {
    Plain(&'static Plain),
    Time(&'static Family, Stat),
}

/// A plain number, by name; `None`: this run has none.
#[derive(Debug)]
pub(super) struct Plain {
    name: &'static str,
    read: fn(&Summary) -> Option<f64>,
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A distribution of times, by name: its histogram, and how many requests have no place in it because they have no
/// answer.
#[derive(Debug)]
pub(super) struct Family {
    name: &'static str,
    times: fn(&Summary) -> &Histogram,
    unanswered: fn(&Summary) -> u64,
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stat {
    Min,
    Mean,
    Max,
    /// 0 to 1.
    Quantile(f64),
}

static FAMILIES: [Family; 3] = [
    Family {
        name: "response",
        times: |run| &run.measured.times.response,
        unanswered: |run| run.measured.failed(),
    },
    Family {
        name: "service",
        times: |run| &run.measured.times.service,
        unanswered: |run| run.measured.failed(),
    },
    Family { name: "send_lag", times: |run| &run.measured.times.send_lag, unanswered: |_| 0 },
];

static PLAIN: [Plain; 7] = [
    // Answered with 200 to 399, of all that ended.
    Plain { name: "success", read: |run| ratio(run.measured.successes, run.measured.requests()) },
    // Without an answer.
    Plain { name: "failed", read: |run| Some(run.measured.failed() as f64) },
    // Done when the schedule was over, of all that were due: what is achieved of the rate that was asked for.
    Plain {
        name: "achieved",
        read: |run| {
            let ended = run.measured.requests();
            let late = run.in_flight_at_end.saturating_add(run.sent_after_end);
            ratio(ended.saturating_sub(late), ended.saturating_add(run.dropped))
        },
    },
    // Due, and never sent.
    Plain { name: "dropped", read: |run| Some(run.dropped as f64) },
    // That ended, whichever way.
    Plain { name: "requests", read: |run| Some(run.measured.requests() as f64) },
    // Successes a second, from the first request until the last was done.
    Plain {
        name: "throughput",
        read: |run| {
            let seconds = (run.attack() + run.wait()).as_secs_f64();
            (seconds > 0.0).then(|| run.measured.successes as f64 / seconds)
        },
    },
    // Under way at once, at most.
    Plain { name: "in_flight_max", read: |run| Some(run.in_flight_max as f64) },
];

/// Stats to propose; any other quantile will do as well.
const STATS: [&str; 8] = ["min", "mean", "max", "p50", "p90", "p95", "p99", "p99.9"];

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Metric {
    /// Finds one: `p99` is `response.p99`.
    pub(super) fn named(name: &str) -> Result<Self, BoundError> {
        if let Some(plain) = PLAIN.iter().find(|plain| plain.name == name) {
            return Ok(Self::Plain(plain));
        }
        if let Some(stat) = Stat::named(name) {
            return Ok(Self::Time(&FAMILIES[0], stat?));
        }
        let unknown = |remedy: String| BoundError::UnknownMetric { name: name.to_owned(), remedy };
        let families = FAMILIES.iter().map(|family| family.name);
        match name.split_once('.') {
            Some((family, stat)) => match FAMILIES.iter().find(|known| known.name == family) {
                Some(family) => match Stat::named(stat) {
                    Some(stat) => Ok(Self::Time(family, stat?)),
                    None => Err(unknown(format!("of {}, {}", family.name, remedy(stat, STATS)))),
                },
                None => Err(unknown(remedy(family, families))),
            },
            None if families.clone().any(|family| family == name) => {
                Err(unknown(format!("it has many, such as `{name}.p99`")))
            }
            None => {
                let known = PLAIN.iter().map(|plain| plain.name).chain(STATS).chain(families);
                Err(unknown(remedy(name, known)))
            }
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Plain(_) => Unit::Number,
            Self::Time(..) => Unit::Time,
        }
    }

    /// In its unit. A request without an answer has waited longer than any that was answered: where the figure is
    /// one of those, it is infinite. `None` if there is nothing that it could be of.
    pub(super) fn read(self, run: &Summary) -> Option<f64> {
        let (family, stat) = match self {
            Self::Plain(plain) => return (plain.read)(run),
            Self::Time(family, stat) => (family, stat),
        };
        let times = (family.times)(run);
        let (answered, unanswered) = (times.count(), (family.unanswered)(run));
        let nanos = |time: Duration| time.as_nanos() as f64;
        match stat {
            Stat::Min => times.min().map(nanos),
            Stat::Mean => times.mean().map(nanos),
            Stat::Max if unanswered > 0 => Some(f64::INFINITY),
            Stat::Max => times.max().map(nanos),
            Stat::Quantile(quantile) => {
                let all = answered + unanswered;
                let rank = quantile * all as f64;
                // 0.99 of 1,000 is no more than 990.
                if all > 0 && rank > answered as f64 * (1.0 + 1e-12) {
                    return Some(f64::INFINITY);
                }
                times.quantile((rank / answered as f64).min(1.0)).map(nanos)
            }
        }
    }
}

impl Stat {
    /// `None` if it looks like none, an error if it is a quantile that cannot be.
    fn named(name: &str) -> Option<Result<Self, BoundError>> {
        let percent = match name {
            "min" => return Some(Ok(Self::Min)),
            "mean" => return Some(Ok(Self::Mean)),
            "max" => return Some(Ok(Self::Max)),
            _ => name.strip_prefix('p').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))?,
        };
        let is_plain = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let quantile = percent.parse().ok().filter(|percent| is_plain && *percent > 0.0 && *percent <= 100.0);
        let impossible = || BoundError::Quantile(name.to_owned());
        Some(quantile.map(|percent: f64| Self::Quantile(percent / 100.0)).ok_or_else(impossible))
    }
}
