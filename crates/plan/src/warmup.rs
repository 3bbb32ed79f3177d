//! The warm-up: requests at the start of a log that fill the cache and do not count.
//!
//! The cache of a replay starts empty, so that the first requests of a log have more misses than a cache in production has. The
//! warm-up ends at one moment of the log for all sizes, policies and lifetimes: their ratios are over the same requests.

use std::time::Duration;

use crate::{
    scale::scaled,
    trace::{Request, Totals, Trace},
};

/// The cold start is a minute at least, since its busiest minute is reported.
const COLD_NS_MIN: u64 = 60_000_000_000;

/// How long the cache warms up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// This share of the requests, 0 to 1.
    Share(f64),
    /// This time from the first request on.
    Duration(Duration),
}

impl Warmup {
    /// Every request counts.
    pub const NONE: Self = Self::Share(0.0);
}

impl Default for Warmup {
    /// A tenth of the requests.
    fn default() -> Self {
        Self::Share(0.1)
    }
}

/// The requests that count: those after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedRequests {
    /// When the warm-up ends, in nanoseconds since the first request; 0: nothing is left out.
    pub from_ns: u64,
    /// Requests of the whole log from then on; of a sample an estimate.
    pub requests: u64,
    /// Their bytes, as [`Totals::object_bytes`].
    pub object_bytes: u64,
}

impl CountedRequests {
    /// All requests.
    pub(crate) fn all(totals: &Totals) -> Self {
        Self { from_ns: 0, requests: totals.requests, object_bytes: totals.object_bytes }
    }

    /// The end of the cold start, in nanoseconds since the first request: that of the warm-up, after a minute at least; 0 without
    /// a warm-up.
    #[must_use]
    pub fn cold_until_ns(&self) -> u64 {
        if self.from_ns == 0 { 0 } else { self.from_ns.max(COLD_NS_MIN) }
    }
}

impl Trace {
    /// The same trace, whose replays count the requests after a warm-up only.
    #[must_use]
    pub fn with_warmup(mut self, warmup: Warmup) -> Self {
        let requests = self.requests();
        let from_ns = match warmup {
            Warmup::Share(share) => {
                let first = usize::try_from(scaled_down(requests.len(), share)).unwrap_or(usize::MAX);
                requests.get(first).map_or(u64::MAX, |request| request.at_ns)
            }
            Warmup::Duration(duration) => u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        };
        let first = requests.partition_point(|request| request.at_ns < from_ns);
        let bytes =
            |part: &[Request]| part.iter().map(|request| u64::from(request.bytes)).sum::<u64>() as f64;
        let of = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let totals = self.totals();
        let share = of((requests.len() - first) as f64, requests.len() as f64);
        let share_of_bytes = of(bytes(&requests[first..]), bytes(requests));
        self.counted = CountedRequests {
            from_ns: if first == 0 { 0 } else { from_ns },
            requests: scaled(totals.requests, share),
            object_bytes: scaled(totals.object_bytes, share_of_bytes),
        };
        self
    }

    /// The requests that replays count.
    #[must_use]
    pub fn counted(&self) -> &CountedRequests {
        &self.counted
    }
}

/// A share of a count, rounded down.
fn scaled_down(count: usize, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and a float saturates"
    )]
    let part = (count as f64 * share) as u64;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{NewRequest, SECOND_NS, TraceBuilder};

    /// A request a second of 10 bytes, then 20.
    fn trace(requests: u64) -> Trace {
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        for n in 0..requests {
            let bytes = if n < requests / 2 { 10 } else { 20 };
            let key = n.to_le_bytes();
            builder.push(&NewRequest { bytes: Some(bytes), ..NewRequest::read(n * SECOND_NS + 1, &key) });
        }
        builder.finish()
    }

    #[test]
    fn warmup_ends_at_a_request_or_a_time() {
        let minute = Duration::from_mins(1);
        for (warmup, second, requests, bytes) in [
            (Warmup::NONE, 0, 100, 1_500),
            (Warmup::Share(0.1), 10, 90, 1_400),
            (Warmup::Share(0.109), 10, 90, 1_400),
            (Warmup::Share(0.5), 50, 50, 1_000),
            (Warmup::Duration(Duration::ZERO), 0, 100, 1_500),
            (Warmup::Duration(minute), 60, 40, 800),
        ] {
            let counted = *trace(100).with_warmup(warmup).counted();
            let expected = CountedRequests { from_ns: second * SECOND_NS, requests, object_bytes: bytes };
            assert_eq!(counted, expected, "{warmup:?}");
        }
        // Of nine requests a tenth is less than one.
        assert_eq!(trace(9).with_warmup(Warmup::default()).counted().from_ns, 0);
        assert_eq!(trace(9).with_warmup(Warmup::Duration(minute)).counted().requests, 0);
    }

    #[test]
    fn sample_warms_up_as_long_as_the_log() {
        let trace = trace(100).with_warmup(Warmup::Share(0.2));
        assert_eq!(trace.sample(4).counted(), trace.counted());
    }

    #[test]
    fn cold_start_is_a_minute_at_least() {
        let cold_s = |from_s: u64| {
            CountedRequests { from_ns: from_s * SECOND_NS, ..CountedRequests::default() }.cold_until_ns()
                / SECOND_NS
        };
        assert_eq!([0, 1, 60, 61].map(cold_s), [0, 60, 60, 61]);
    }
}
