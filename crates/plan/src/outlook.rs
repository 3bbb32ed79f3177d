//! The chosen cache under other conditions: other lifetimes, more traffic, one more node, a restart.
//!
//! | condition | replay |
//! |---|---|
//! | another ttl | the same requests |
//! | twice the traffic | the same requests in half of the time: each key is requested twice as often, and no key is new |
//! | one more node | each request goes to one of two caches of the chosen size, by chance; both load from the origin |
//! | a restart | the minute with the most keys and responses that are not stored, from an empty cache |
//!
//! A long log is replayed in a sample of its keys, a smaller one than for the curves: the rows are for comparison.

use std::ops::Range;

use stockade_model::seed::mixed;

use crate::{
    curve::{CurveSettings, Lifetime, Point, SAMPLE_KEYS_MIN, TTL_GRID_S},
    peaks::Peaks,
    recommend::{Peak, Recommendation},
    replay::{Replay, Ttl},
    report::CachePlan,
    routes::RouteTtls,
    trace::{Request, SECOND_NS, Trace},
};

/// Of a longer trace about this number of requests is replayed for each row, and more where the sample would have too few keys.
const SAMPLE_REQUESTS: usize = 250_000;

/// The figures of the chosen cache under one condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionFigures {
    /// The share of requests that a fresh entry answers.
    pub hit_ratio: f64,
    /// Loads a second, on average.
    pub loads_per_s: f64,
    /// Loads a second in the minute with most of them.
    pub loads_per_s_in_busiest_minute: Peak,
    /// The greatest age of an answer, in nanoseconds.
    pub age_max_ns: u64,
}

/// The chosen cache under other conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// As it was chosen, for comparison: over the same sample as the others.
    pub planned: ConditionFigures,
    /// Each ttl, ascending, for all routes, with the `swr` of the plan; none if values never expire in it or the log has ttls.
    pub ttls: Vec<(u64, ConditionFigures)>,
    /// The rate of more traffic, as a multiple of the log's.
    pub growth: f64,
    /// With the rate of the log times `growth`.
    pub more_traffic: ConditionFigures,
    /// One more node with a cache of the same size.
    pub one_more_node: ConditionFigures,
    /// Loads a second of the minute with the most keys and responses that are not stored, if the cache is empty when it begins.
    pub restart_loads_per_s: Peak,
}

/// Replays the conditions, with this many times the traffic; `None`: the log has no times, or no cache was chosen.
#[must_use]
pub fn outlook(plan: &CachePlan, growth: f64) -> Option<Outlook> {
    let chosen = plan.recommendation.as_ref().ok().filter(|_| plan.has_times)?;
    let sampled = sample(&plan.trace);
    let trace = sampled.as_ref().unwrap_or(&plan.trace);
    let cache = Cache { settings: &plan.settings, chosen, counted_s: counted_s(trace) };
    let planned = cache.figures(trace, chosen.lifetime, 1.0);
    let without_routes = CurveSettings { routes: RouteTtls::NONE, ..plan.settings.clone() };
    let one_ttl = Cache { settings: &without_routes, ..cache };
    let with_ttl = |ttl_s: u64| {
        let lifetime = Lifetime { ttl: Ttl::Fixed(ttl_s * SECOND_NS), ..chosen.lifetime };
        let is_planned = lifetime == chosen.lifetime && plan.settings.routes.is_none();
        (ttl_s, if is_planned { planned } else { one_ttl.figures(trace, lifetime, 1.0) })
    };
    let ttls = match chosen.lifetime.ttl {
        Ttl::Fixed(_) => {
            // Beyond the first one that is longer than the log all are the same.
            let longer = TTL_GRID_S.iter().position(|ttl_s| ttl_s * SECOND_NS > trace.totals().span_ns);
            let shown = longer.map_or(TTL_GRID_S.len(), |longest| longest + 1);
            TTL_GRID_S[..shown].iter().copied().map(with_ttl).collect()
        }
        Ttl::Never | Ttl::Logged { .. } => Vec::new(),
    };
    Some(Outlook {
        planned,
        ttls,
        growth,
        more_traffic: cache.figures(&trace.faster(growth), chosen.lifetime, growth),
        one_more_node: cache.two_nodes(trace),
        restart_loads_per_s: cache.restart(trace),
    })
}

/// The keys of a long trace that are replayed; `None`: all of them.
pub(crate) fn sample(whole: &Trace) -> Option<Trace> {
    let nth = (whole.requests().len() / SAMPLE_REQUESTS).min(whole.key_count() / SAMPLE_KEYS_MIN);
    (nth > 1).then(|| whole.sample(nth))
}

struct Cache<'a> {
    settings: &'a CurveSettings,
    chosen: &'a Recommendation,
    /// The time of the requests that count.
    counted_s: f64,
}

impl Cache<'_> {
    fn replay(&self, trace: &Trace, lifetime: Lifetime) -> Replay {
        let Recommendation { policy, capacity, .. } = *self.chosen;
        policy.replay(trace, &self.settings.setup(capacity, lifetime))
    }

    /// `times`: the rate of the trace, as a multiple of that of the log.
    fn figures(&self, trace: &Trace, lifetime: Lifetime, times: f64) -> ConditionFigures {
        let replay = self.replay(trace, lifetime);
        let point = Point::of(self.chosen.capacity, &replay, trace);
        ConditionFigures {
            hit_ratio: 1.0 - point.miss_ratio,
            loads_per_s: trace.counted().requests as f64 * point.load_ratio * times / self.counted_s,
            loads_per_s_in_busiest_minute: Peak::in_minute(
                replay.peaks.in_minute(),
                self.counted_s / times,
                trace.sampled_share(),
            ),
            age_max_ns: replay.age_max_ns,
        }
    }

    /// Loads of both nodes. Their busiest minutes are added, as if they were the same one; it has no more loads than requests.
    fn two_nodes(&self, trace: &Trace) -> ConditionFigures {
        let nodes = [0, 1].map(|node| self.replay(&trace.of_node(node), self.chosen.lifetime));
        let requests = trace.counted().requests as f64 * trace.sampled_share();
        let sum = |count: fn(&Replay) -> u64| nodes.iter().map(count).sum::<u64>();
        // Of a sample the requests that are missing are hits.
        let misses = sum(|node| node.requests - node.hits) as f64;
        let mut all = Peaks::default();
        let counted = trace.requests().iter().filter(|request| request.at_ns >= trace.counted().from_ns);
        counted.for_each(|request| all.add(request.at_ns));
        let minute = sum(|node| node.peaks.in_minute()).min(all.in_minute());
        ConditionFigures {
            hit_ratio: 1.0 - (misses / requests.max(1.0)).min(1.0),
            loads_per_s: sum(|node| node.loads) as f64 / trace.sampled_share() / self.counted_s,
            loads_per_s_in_busiest_minute: Peak::in_minute(minute, self.counted_s, trace.sampled_share()),
            age_max_ns: nodes.iter().map(|node| node.age_max_ns).max().unwrap_or(0),
        }
    }

    /// Loads a second of the minute with most of them, from an empty cache.
    fn restart(&self, trace: &Trace) -> Peak {
        let replay = self.replay(&trace.cut(self.worst_minute(trace)), self.chosen.lifetime);
        Peak::in_minute(replay.loads, span_s(trace), trace.sampled_share())
    }

    /// The minute with the most keys and responses that are not stored, by the positions of its requests.
    fn worst_minute(&self, trace: &Trace) -> Range<usize> {
        let requests = trace.requests();
        let is_stored = |request: &Request| {
            request.exchange().is_storable() && self.settings.routes.ttl_ns(request.route()) != Some(0)
        };
        let mut of_key = vec![0_u32; trace.key_count()];
        let (mut from, mut loads, mut most, mut worst) = (0, 0_usize, 0, 0..0);
        for (to, request) in requests.iter().enumerate() {
            while request.at_ns - requests[from].at_ns >= 60 * SECOND_NS {
                let gone = requests[from];
                let count = &mut of_key[gone.key() as usize];
                if is_stored(&gone) {
                    *count -= 1;
                    loads -= usize::from(*count == 0);
                } else {
                    loads -= usize::from(!gone.exchange().is_head());
                }
                from += 1;
            }
            let count = &mut of_key[request.key() as usize];
            if is_stored(request) {
                loads += usize::from(*count == 0);
                *count += 1;
            } else {
                loads += usize::from(!request.exchange().is_head());
            }
            if loads >= most {
                (most, worst) = (loads, from..to + 1);
            }
        }
        worst
    }
}

/// The time of the requests that count, a second at least.
pub(crate) fn counted_s(trace: &Trace) -> f64 {
    let span_ns = trace.totals().span_ns.saturating_sub(trace.counted().from_ns);
    span_ns.max(SECOND_NS) as f64 / SECOND_NS as f64
}

/// The time of all requests, a second at least.
pub(crate) fn span_s(trace: &Trace) -> f64 {
    trace.totals().span_ns.max(SECOND_NS) as f64 / SECOND_NS as f64
}

/// True if the request of this position goes to the first of two nodes: by chance, the same in each run.
fn is_of_first(position: usize) -> bool {
    mixed((position as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) & 1 == 0
}

impl Trace {
    /// The same requests at this many times the rate.
    fn faster(&self, times: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and earlier"
        )]
        let at = |nanos: u64| (nanos as f64 / times) as u64;
        let requests = self.requests().iter().map(|request| request.at(at(request.at_ns))).collect();
        let ttls_ns = self.ttls_ns(0..self.requests().len());
        let mut faster = self.part(requests, ttls_ns, self.key_count(), 1);
        faster.counted.from_ns = at(faster.counted.from_ns);
        faster
    }

    /// The requests of one of two nodes.
    fn of_node(&self, node: usize) -> Self {
        let is_mine = |position: &usize| is_of_first(*position) == (node == 0);
        let positions = (0..self.requests().len()).filter(is_mine);
        self.chosen(positions)
    }

    /// The requests of these positions. All of them count.
    fn cut(&self, positions: Range<usize>) -> Self {
        let mut cut = self.chosen(positions);
        cut.counted.from_ns = 0;
        cut
    }

    fn chosen(&self, positions: impl Iterator<Item = usize> + Clone) -> Self {
        let requests: Vec<Request> = positions.clone().map(|position| self.requests()[position]).collect();
        self.part(requests, self.ttls_ns(positions), self.key_count(), 1)
    }

    /// Empty if no response has one.
    fn ttls_ns(&self, positions: impl Iterator<Item = usize>) -> Vec<Option<u64>> {
        let positions = positions.filter(|_| self.has_ttls());
        positions.map(|position| self.ttl_ns(position)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, time::Duration};

    use super::*;
    use crate::{Capacity, PlanOptions, TtlOption, read::KeyRules, testing};

    /// The outlook of a plan with a ttl of ten seconds, without `swr`, for lines of a second and a key.
    fn outlook_of(lines: &str) -> Outlook {
        let options = PlanOptions {
            memory: Some(Capacity::Entries(1_000)),
            ttls: vec![TtlOption::Fixed(Duration::from_secs(10))],
            staleness: Some(Duration::from_secs(10)),
            is_exact: true,
            overhead_bytes: 0,
            ..testing::options()
        };
        let plan = testing::planned(lines, Some("csv:time=0,key=1"), &KeyRules::default(), &options);
        outlook(&plan.expect("a plan"), 2.0).expect("times")
    }

    /// One key each second, for 6,000 seconds: with a ttl of ten seconds each tenth request is a load.
    #[test]
    fn figures_of_one_key_each_second() {
        let mut lines = String::new();
        for second in 0..6_000 {
            let _ = writeln!(lines, "{second}.5,a");
        }
        let outlook = outlook_of(&lines);
        let hits_and_loads = |figures: ConditionFigures| {
            let rounded = |figure: f64| (figure * 1_000.0).round() / 1_000.0;
            (rounded(figures.hit_ratio), rounded(figures.loads_per_s))
        };
        assert_eq!(hits_and_loads(outlook.planned), (0.9, 0.1));
        assert!((outlook.planned.loads_per_s_in_busiest_minute.per_s - 0.1).abs() < 1e-9);
        let ttls: Vec<_> =
            outlook.ttls.iter().map(|(ttl_s, figures)| (*ttl_s, hits_and_loads(*figures))).collect();
        // 6,000 seconds have 600, 100, 20, 7, 2 and 1 loads.
        assert_eq!(
            ttls[..5],
            [
                (10, (0.9, 0.1)),
                (60, (0.983, 0.017)),
                (300, (0.997, 0.003)),
                (900, (0.999, 0.001)),
                (3_600, (1.0, 0.0))
            ]
        );
        assert_eq!(outlook.ttls[1].1.age_max_ns, 59 * SECOND_NS);
        // The last one is longer than the log.
        assert_eq!(outlook.ttls.last().map(|(ttl_s, _)| *ttl_s), Some(6 * 3_600));
        // Twice the requests in the same time, and as many loads a second.
        assert_eq!(hits_and_loads(outlook.more_traffic), (0.95, 0.1));
        // Each of two nodes has its own load each ten to eleven seconds.
        let (hits, loads) = hits_and_loads(outlook.one_more_node);
        assert!((0.81..0.83).contains(&hits) && (0.17..0.19).contains(&loads), "{hits} {loads}");
        assert!((outlook.restart_loads_per_s.per_s - 0.1).abs() < 1e-9);
    }

    /// Each request is a load, whichever node it goes to.
    #[test]
    fn two_nodes_have_no_more_loads_than_requests() {
        let mut lines = String::new();
        for second in 0..600 {
            let _ = writeln!(lines, "{second}.5,{second}");
        }
        let figures = outlook_of(&lines).one_more_node;
        assert!((figures.loads_per_s_in_busiest_minute.per_s - 1.0).abs() < 1e-9, "{figures:?}");
    }

    /// A hundred keys that expire at other times, then a minute with each of them twice: after a restart each is a load.
    #[test]
    fn restart_at_the_busiest_minute_loads_each_of_its_keys() {
        let mut lines = String::new();
        for n in 0..1_000 {
            let _ = writeln!(lines, "{}.5,{}", n * 10, n % 100);
        }
        for n in 0..600 {
            let _ = writeln!(lines, "{}.{},{}", 10_000 + n / 10, n % 10, n % 300);
        }
        let outlook = outlook_of(&lines);
        // The second request for a key is after 30 seconds, past the ttl.
        assert!((outlook.restart_loads_per_s.per_s - 10.0).abs() < 1e-9);
        assert!(outlook.planned.loads_per_s < 0.2, "{:?}", outlook.planned);
    }
}
