//! What a cache does, told to whatever recorder of the `metrics` facade is installed.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, Unit, counter, gauge, histogram};
use stockade_model::outcome::Outcome;

use crate::{breaker::BreakerState, cache::BytesHeld, stats::Stats};

/// How often counts and gauges are told. Histograms are told as things happen.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// The metrics of one cache, with its name for a label.
pub(crate) struct Meter {
    name: String,
    requests: [(Outcome, Counter); 7],
    loads: Counter,
    loads_failed: Counter,
    loads_refused: Counter,
    loads_rejected: Counter,
    loads_in_flight: Gauge,
    load_seconds: Histogram,
    waiters: Counter,
    wait_seconds: Histogram,
    refreshes: [Counter; 4],
    shared: [Counter; 4],
    evicted_expired: Counter,
    evicted_size: Counter,
    reclaims: Counter,
    invalidated: Counter,
    entries: Gauge,
    bytes: Gauge,
}

impl Meter {
    pub(crate) fn new(name: &str) -> Self {
        describe();
        let labels = |more: &[(&'static str, &'static str)]| -> Vec<Label> {
            let own = Label::new("cache", name.to_owned());
            std::iter::once(own).chain(more.iter().map(|(key, value)| Label::new(*key, *value))).collect()
        };
        let plain = || labels(&[]);
        let of = |outcome: Outcome| {
            (outcome, counter!("stockade_requests_total", labels(&[("outcome", outcome.name())])))
        };
        let evicted = |reason| counter!("stockade_evicted_total", labels(&[("reason", reason)]));
        let [hit, stale, miss, coalesced, fallback, negative, error, _bypass] = Outcome::ALL;
        Self {
            requests: [hit, stale, miss, coalesced, fallback, negative, error].map(of),
            loads: counter!("stockade_loads_total", plain()),
            loads_failed: counter!("stockade_loads_failed_total", plain()),
            loads_refused: counter!("stockade_loads_refused_total", plain()),
            loads_rejected: counter!("stockade_loads_rejected_total", plain()),
            loads_in_flight: gauge!("stockade_loads_in_flight", plain()),
            load_seconds: histogram!("stockade_load_seconds", plain()),
            waiters: counter!("stockade_waiters_total", plain()),
            wait_seconds: histogram!("stockade_wait_seconds", plain()),
            refreshes: ["early", "xfetch", "swr", "probe"]
                .map(|kind| counter!("stockade_refreshes_total", labels(&[("refresh", kind)]))),
            shared: ["hit", "miss", "wait", "failure"]
                .map(|what| counter!("stockade_shared_total", labels(&[("what", what)]))),
            evicted_expired: evicted("expired"),
            evicted_size: evicted("size"),
            reclaims: counter!("stockade_reclaims_total", plain()),
            invalidated: counter!("stockade_invalidated_total", plain()),
            entries: gauge!("stockade_entries", plain()),
            bytes: gauge!("stockade_bytes", plain()),
            name: name.to_owned(),
        }
    }

    pub(crate) fn loaded(&self, took: Duration) {
        self.load_seconds.record(took);
    }

    pub(crate) fn waited(&self, waited: Duration) {
        self.wait_seconds.record(waited);
    }

    /// Tells what has been counted, and what there is.
    pub(crate) fn tell(
        &self,
        stats: &Stats,
        entries: usize,
        bytes: Option<BytesHeld>,
        breakers: &[(String, BreakerState)],
    ) {
        let outcomes = stats.outcomes();
        for (outcome, counter) in &self.requests {
            counter.absolute(outcomes.of(*outcome));
        }
        self.loads.absolute(stats.loads);
        self.loads_failed.absolute(stats.loads_failed);
        self.loads_refused.absolute(stats.loads_refused);
        self.loads_rejected.absolute(stats.loads_rejected);
        let over = stats.loads_answered + stats.loads_failed;
        self.loads_in_flight.set(stats.loads.saturating_sub(over) as f64);
        self.waiters.absolute(stats.waiters);
        let refreshes = [stats.refreshes_early, stats.refreshes_xfetch, stats.refreshes_swr, stats.probes];
        for (counter, refreshes) in self.refreshes.iter().zip(refreshes) {
            counter.absolute(refreshes);
        }
        let shared = [stats.shared_hits, stats.shared_misses, stats.shared_waits, stats.shared_failures];
        for (counter, shared) in self.shared.iter().zip(shared) {
            counter.absolute(shared);
        }
        self.evicted_expired.absolute(stats.evicted_expired);
        self.evicted_size.absolute(stats.evicted_size);
        self.reclaims.absolute(stats.reclaims);
        self.invalidated.absolute(stats.invalidated);
        self.entries.set(entries as f64);
        if let Some(bytes) = bytes {
            self.bytes.set(bytes.held as f64);
        }
        for (route, state) in breakers {
            let labels = vec![Label::new("cache", self.name.clone()), Label::new("route", route.clone())];
            gauge!("stockade_breaker_state", labels).set(match state {
                BreakerState::Closed => 0.0,
                BreakerState::Ramp => 1.0,
                BreakerState::HalfOpen => 2.0,
                BreakerState::Open => 3.0,
            });
        }
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What recorders tell their readers. A bare count has no unit.
fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_counter!("stockade_requests_total", "requests, by what the cache did for them");
    describe_counter!("stockade_loads_total", "loads begun");
    describe_counter!("stockade_loads_failed_total", "loads that failed, were cancelled or lost");
    describe_counter!("stockade_loads_refused_total", "loads that the breaker did not let begin");
    describe_counter!("stockade_loads_rejected_total", "loads that the queue had no room or no time for");
    describe_gauge!("stockade_loads_in_flight", "loads under way");
    describe_histogram!("stockade_load_seconds", Unit::Seconds, "how long loads took, failed ones too");
    describe_counter!("stockade_waiters_total", "waits for another caller's load, in vain or not");
    describe_histogram!("stockade_wait_seconds", Unit::Seconds, "how long waiters waited");
    describe_counter!("stockade_refreshes_total", "loads of what could still be answered with");
    describe_counter!("stockade_shared_total", "times that the shared tier was asked, by what came of it");
    describe_counter!("stockade_evicted_total", "entries that left, by reason");
    describe_counter!("stockade_reclaims_total", "times that a share of the limit was cleared");
    describe_counter!("stockade_invalidated_total", "entries that were invalidated");
    describe_gauge!("stockade_entries", "entries stored, fresh or not");
    describe_gauge!("stockade_bytes", Unit::Bytes, "bytes held of the limit, entries and reservations");
    describe_gauge!("stockade_breaker_state", "0 closed, 1 ramp, 2 half-open, 3 open");
}
