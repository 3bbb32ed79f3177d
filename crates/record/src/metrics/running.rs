//! Bounds of the figures that a run will have, while it goes on.

use crate::histogram::{Histogram, Statistic};
use stockade_model::units::milliseconds;

use super::{
    FigureWindow, Fold, Metric, TimeKind,
    fold::{Batched, DisturbedTimes},
    mib,
};
use crate::statistics::{AssumedSpread, Bounds, Quantity};

/// A run in progress.
#[derive(Clone, Copy, Debug)]
pub struct RunningFigures<'a> {
    pub fold: &'a Fold,
    /// The most requests of the whole run, if known.
    pub requests_max: Option<u64>,
}

impl RunningFigures<'_> {
    /// The figure as far as it is known.
    pub(crate) fn quantity(&self, metric: &Metric, window: Option<FigureWindow>) -> Quantity {
        let spread = self.batched(window).map_or(AssumedSpread::Machine, |of| {
            // Most of the seconds may be disturbed at the end.
            let is_disturbed = of.whole.disturbed.is_some();
            if is_disturbed { AssumedSpread::Disturbed } else { metric.assumed_spread(of.seconds) }
        });
        Quantity::within(self.bounds(metric, window), spread)
    }

    /// Bounds of the figure at the end of the run: counts and maxima only grow, and a percentile is at least what the slowest requests so
    /// far leave. Other figures may still become anything.
    fn bounds(&self, metric: &Metric, window: Option<FigureWindow>) -> Bounds {
        let unknown = Bounds { low: 0.0, high: f64::INFINITY };
        let Some(batched) = self.batched(window) else { return unknown };
        let requests_max = self.requests_max.filter(|_| window.is_none());
        let part = &batched.whole;
        if let Some(count) = grown(batched, metric) {
            return Bounds { low: count, ..unknown };
        }
        let Some(requests_max) = requests_max else { return unknown };
        if metric.name == "success" {
            let failed = part.outcomes.error as f64;
            let all = (requests_max as f64).max(part.outcomes.requests() as f64).max(1.0);
            return Bounds { low: 0.0, high: 1.0 - failed / all };
        }
        let low = match (histogram(batched, metric), metric.time()) {
            (Some(times), Some((_, Statistic::Quantile(quantile)))) => {
                quantile_at_least(times, quantile, requests_max)
            }
            _ => 0.0,
        };
        Bounds { low, ..unknown }
    }

    /// `None`: a window that was not watched.
    fn batched(&self, window: Option<FigureWindow>) -> Option<&Batched> {
        let Some(window) = window else { return Some(&self.fold.whole) };
        self.fold.windows.iter().find(|(of, _)| *of == window).map(|(_, batched)| batched)
    }
}

/// The least times of a metric. Claims are judged without disturbed seconds, too, and the end of a run
/// tells whether its generator was late: a response time is at least its service time.
fn histogram<'a>(of: &'a Batched, metric: &Metric) -> Option<&'a Histogram> {
    let (kind, _) = metric.time()?;
    let are_exceptions =
        |disturbed: &&DisturbedTimes| of.seconds == 0 || disturbed.are_exceptions_in(of.seconds);
    let disturbed = of.whole.disturbed.as_ref().filter(are_exceptions);
    // A stop is left out in any case.
    let left_out = disturbed.or(of.whole.stopped.as_ref());
    let times = left_out.map_or(&of.whole.times, |left_out| &left_out.rest);
    Some(match kind {
        TimeKind::Response | TimeKind::Service => &times.service,
        TimeKind::SendLag => &times.send_lag,
    })
}

/// A figure that only grows.
fn grown(of: &Batched, metric: &Metric) -> Option<f64> {
    let part = &of.whole;
    let outcomes = &part.outcomes;
    let count = match metric.name {
        "requests" => outcomes.requests(),
        "failed" | "outcomes.error" => outcomes.error,
        "outcomes.hit" => outcomes.hit,
        "outcomes.stale" => outcomes.stale,
        "outcomes.miss" => outcomes.miss,
        "outcomes.coalesced" => outcomes.coalesced,
        "outcomes.fallback" => outcomes.fallback,
        "outcomes.negative" => outcomes.negative,
        "outcomes.unreported" => outcomes.unreported,
        "source_loads" => part.source_loads?,
        "source_loads_per_s.max" => part.source_loads_per_s_max?,
        "retries" => part.retries?,
        "dropped" => part.dropped?,
        "proxy.entries.max" => part.holds_max?.entries,
        "proxy.bytes.max" => part.holds_max?.bytes?,
        "age.max" => return part.age_max_ms,
        _ => return grown_maximum(of, metric),
    };
    Some(count as f64)
}

/// The maximum of a distribution or of a process.
fn grown_maximum(of: &Batched, metric: &Metric) -> Option<f64> {
    if let Some((_, Statistic::Max)) = metric.time() {
        return histogram(of, metric)?.max().map(milliseconds);
    }
    let (role, statistic) = metric.name.split_once('.')?;
    let used = of.whole.usage.iter().find(|(known, _)| known.name() == role)?.1;
    match statistic {
        "rss.max" => Some(mib(used.rss_max_bytes)),
        "cpu.max" => Some(used.cpu_max),
        _ => None,
    }
}

/// The least that a quantile of at most `requests_max` times can be if these are among them, in milliseconds.
fn quantile_at_least(times: &Histogram, quantile: f64, requests_max: u64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count, 0 at least"
    )]
    let rank = (quantile * requests_max as f64).ceil() as u64;
    let above_max = requests_max.saturating_sub(rank);
    let cells: Vec<_> = times.cells().collect();
    let mut above = 0;
    for (time, count) in cells.into_iter().rev() {
        above += count;
        if above > above_max {
            // Times in a cell of the histogram differ by less than a thousandth.
            return milliseconds(time) * 0.999;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::record::{Disturbance, Interval, Role, Times};
    use proptest::prelude::*;
    use stockade_model::outcome::Outcomes;

    use super::*;

    /// A second with these response times in milliseconds, and failed requests.
    fn interval(second: u64, times_ms: &[u16], failed: u64) -> Interval {
        let response: Histogram = times_ms.iter().map(|ms| Duration::from_millis(u64::from(*ms))).collect();
        let outcomes = Outcomes { hit: times_ms.len() as u64, error: failed, ..Outcomes::default() };
        let times = Times { service: response.clone(), response, ..Times::default() };
        Interval { second, outcomes, times, ..Interval::default() }
    }

    fn fold(seconds: &[(Vec<u16>, u64)]) -> Fold {
        let mut fold = Fold::new(&[], Some(Duration::from_secs(seconds.len() as u64)));
        for (second, (times, failed)) in (0..).zip(seconds) {
            fold.add(&interval(second, times, *failed));
        }
        fold
    }

    proptest! {
        /// Whatever follows, the figure at the end lies within the bounds.
        #[test]
        fn bounds_contain_the_figure_at_the_end(
            seconds in prop::collection::vec((prop::collection::vec(1_u16..2_000, 0..40), 0_u64..3), 1..6),
            cut in 0_usize..6,
            more in 0_u64..50,
        ) {
            let requests: u64 = seconds.iter().map(|(times, failed)| times.len() as u64 + failed).sum();
            let end = fold(&seconds);
            let so_far = fold(&seconds[..cut.min(seconds.len())]);
            let running = RunningFigures { fold: &so_far, requests_max: Some(requests + more) };
            let part = &end.whole.whole;
            for (name, at_end) in [
                ("failed", Some(part.outcomes.error as f64)),
                ("requests", Some(requests as f64)),
                ("success", (requests > 0).then(|| 1.0 - part.outcomes.error as f64 / requests as f64)),
                ("response.max", part.times.response.max().map(milliseconds)),
                ("response.p50", part.times.response.quantile(0.5).map(milliseconds)),
                ("response.p90", part.times.response.quantile(0.9).map(milliseconds)),
                ("service.p99", part.times.service.quantile(0.99).map(milliseconds)),
                ("hit_ratio", part.outcomes.hit_ratio()),
            ] {
                let Bounds { low, high } = running.bounds(Metric::named(name).unwrap(), None);
                if let Some(figure) = at_end {
                    prop_assert!(low <= figure && figure <= high, "{name}: {low} {figure} {high}");
                }
            }
        }
    }

    /// 0.1 as a float leaves 99.99 of 1,000 requests above p90.
    #[test]
    fn tenth_of_the_requests_may_be_slow_below_p90() {
        let metric = Metric::named("response.p90").unwrap();
        let low = |slow| {
            let so_far = fold(&[(vec![900; slow], 0)]);
            RunningFigures { fold: &so_far, requests_max: Some(1_000) }.bounds(metric, None).low
        };
        assert!(low(100) < 1.0);
        assert!(low(101) > 890.0);
    }

    #[test]
    fn late_and_disturbed_times_bound_no_percentile() {
        let metric = Metric::named("response.p99").unwrap();
        let low = |interval: Interval| {
            let mut so_far = Fold::new(&[], Some(Duration::from_secs(10)));
            so_far.add(&interval);
            RunningFigures { fold: &so_far, requests_max: Some(1_000) }.bounds(metric, None).low
        };
        let slow = interval(0, &[900; 20], 0);
        assert!(low(slow.clone()) > 890.0);
        let disturbance = Some(Disturbance { stolen: 0.5, ..Disturbance::default() });
        assert!(low(Interval { disturbance, ..slow.clone() }) < 1.0);
        // Of one second, which is how the machine is then.
        let mut disturbed = Fold::new(&[], Some(Duration::from_secs(1)));
        disturbed.add(&Interval { disturbance, ..slow.clone() });
        let running = RunningFigures { fold: &disturbed, requests_max: Some(1_000) };
        assert!(running.bounds(metric, None).low > 890.0);
        // A stop is not how it is.
        let stop = disturbance.map(|busy| Disturbance { stopped: Some(Role::Proxy), ..busy });
        let mut stopped = Fold::new(&[], Some(Duration::from_secs(1)));
        stopped.add(&Interval { disturbance: stop, ..slow.clone() });
        let running = RunningFigures { fold: &stopped, requests_max: Some(1_000) };
        assert!(running.bounds(metric, None).low < 1.0);
        let service = [Duration::from_millis(1); 20].into_iter().collect();
        let low = low(Interval { times: Times { service, ..slow.times.clone() }, ..slow });
        assert!((0.9..1.1).contains(&low), "{low}");
    }

    #[test]
    fn slow_requests_bound_a_percentile_before_the_end() {
        let so_far = fold(&[(vec![900; 20], 7)]);
        let low = |requests_max| {
            let running = RunningFigures { fold: &so_far, requests_max };
            running.bounds(Metric::named("response.p99").unwrap(), None).low
        };
        // 1 % of 1,900 requests are 19.
        assert!((low(Some(1_900)) - 900.0).abs() < 2.0);
        assert_eq!((low(Some(2_000)), low(None)), (0.0, 0.0));
        let running = RunningFigures { fold: &so_far, requests_max: Some(700) };
        let most = running.bounds(Metric::named("success").unwrap(), None).high;
        assert!((most - 0.99).abs() < 1e-12, "{most}");
    }
}
