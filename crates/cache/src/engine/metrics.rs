//! The metrics of a cache, for the recorder of the `metrics` facade.

use std::{
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use stockade_model::{
    outcome::Outcome,
    telemetry::{Declaration, MetricKind, MetricUnit},
    time::Runtime,
};

use crate::{
    breaker::BreakerState,
    engine::Engine,
    stats::{RequestStats, Stats, StoreStats},
};

/// The interval of counters and gauges. Histograms are recorded as waits and loads end.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The metrics of one cache, labelled with its name.
pub(crate) struct CacheMetrics {
    name: String,
    outcomes: Vec<(Outcome, Counter)>,
    requests: Recorded<RequestStats>,
    store: Recorded<StoreStats>,
    load_seconds: Histogram,
    wait_seconds: Histogram,
}

/// The handles of a snapshot's metrics, in their order.
struct Recorded<S: 'static>(Vec<(Declaration<S>, Handle)>);

enum Handle {
    Counter(Counter),
    Gauge(Gauge),
}

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Starts the task that records the metrics, if the cache has any.
    pub(super) fn start_recording(self: &Arc<Self>) {
        if self.meter.is_some() {
            self.runtime.spawn_lasting(record_metrics(Arc::downgrade(self), self.runtime.clone()));
        }
    }

    pub(crate) fn record_metrics(&self) {
        if let Some(meter) = &self.meter {
            meter.report(&self.stats(), &self.breaker_states());
        }
    }
}

/// Records the metrics of a cache periodically, until the cache is dropped.
async fn record_metrics<K, V, R>(engine: Weak<Engine<K, V, R>>, runtime: R)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    while let Some(engine) = engine.upgrade() {
        engine.record_metrics();
        drop(engine);
        runtime.sleep_until(runtime.now() + REPORT_INTERVAL).await;
    }
}

impl CacheMetrics {
    pub(crate) fn new(name: &str) -> Self {
        const REQUESTS: &str = "stockade_requests_total";
        const LOAD_SECONDS: &str = "stockade_load_seconds";
        const WAIT_SECONDS: &str = "stockade_wait_seconds";
        describe_counter!(REQUESTS, "Requests by outcome.");
        describe_histogram!(LOAD_SECONDS, Unit::Seconds, "Time of a load, failed ones included.");
        describe_histogram!(WAIT_SECONDS, Unit::Seconds, "Time that a request waited for another load.");
        describe_gauge!("stockade_breaker_state", "0 closed, 1 ramp, 2 half-open, 3 open.");
        // A library sees no request that bypasses it.
        let outcomes = Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Bypass);
        let counter =
            |outcome: Outcome| (outcome, counter!(REQUESTS, labels(name, Some(("outcome", outcome.name())))));
        Self {
            outcomes: outcomes.map(counter).collect(),
            requests: Recorded::new(RequestStats::METRICS, name),
            store: Recorded::new(StoreStats::METRICS, name),
            load_seconds: histogram!(LOAD_SECONDS, labels(name, None)),
            wait_seconds: histogram!(WAIT_SECONDS, labels(name, None)),
            name: name.to_owned(),
        }
    }

    pub(crate) fn record_load(&self, took: Duration) {
        self.load_seconds.record(took);
    }

    pub(crate) fn record_wait(&self, waited: Duration) {
        self.wait_seconds.record(waited);
    }

    /// Records all counters and gauges.
    pub(crate) fn report(&self, stats: &Stats, breakers: &[(String, BreakerState)]) {
        let outcomes = stats.outcomes();
        for (outcome, counter) in &self.outcomes {
            counter.absolute(outcomes.of(*outcome));
        }
        self.requests.report(&stats.requests());
        self.store.report(&stats.store());
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

impl<S> Recorded<S> {
    fn new(metrics: &'static [Declaration<S>], cache: &str) -> Self {
        let handle = |metric: &Declaration<S>| {
            let Declaration { family, label, kind, unit, help, .. } = *metric;
            let unit = match unit {
                MetricUnit::Count => Unit::Count,
                MetricUnit::Bytes => Unit::Bytes,
                MetricUnit::Seconds => Unit::Seconds,
            };
            let handle = match kind {
                MetricKind::Counter => {
                    describe_counter!(family, unit, help.trim());
                    Handle::Counter(counter!(family, labels(cache, label)))
                }
                MetricKind::Gauge => {
                    describe_gauge!(family, unit, help.trim());
                    Handle::Gauge(gauge!(family, labels(cache, label)))
                }
            };
            (*metric, handle)
        };
        Self(metrics.iter().map(handle).collect())
    }

    fn report(&self, snapshot: &S) {
        for (metric, handle) in &self.0 {
            match ((metric.read)(snapshot), handle) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "counters are whole"
                )]
                (Some(value), Handle::Counter(counter)) => counter.absolute(value as u64),
                (Some(value), Handle::Gauge(gauge)) => gauge.set(value),
                (None, _) => {}
            }
        }
    }
}

fn labels(cache: &str, label: Option<(&'static str, &'static str)>) -> Vec<Label> {
    let cache = Label::new("cache", cache.to_owned());
    [cache].into_iter().chain(label.map(|(name, value)| Label::new(name, value))).collect()
}

impl std::fmt::Debug for CacheMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheMetrics").field("name", &self.name).finish_non_exhaustive()
    }
}
