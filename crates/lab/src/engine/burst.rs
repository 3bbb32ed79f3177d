//! A burst: N workers, one document each, one strategy.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use stockade_cache::{Builder, Cache, Error, Strategy, heap_bytes};
use stockade_model::{
    outcome::{Outcome, Outcomes},
    seed::Seed,
    source::{Document, Source},
    time::{Runtime, Time},
    units::milliseconds,
};
use stockade_record::{
    record::{self, BurstTimes, Calls, Percentiles},
    timing::Timing,
};
use stockade_source::{SourceBehavior, StagedSource};
use tokio::sync::mpsc;

use super::{
    LookupSample,
    documents::{DocumentAssignment, DocumentCount},
    fetch::NotFound,
    gate::{Gate, Gated, GatedSource},
};
use crate::target::{CacheCounters, Measurement, Second};

#[derive(Clone, Debug)]
pub struct Burst {
    /// The name in reports.
    pub name: String,
    pub strategy: Strategy,
    /// Each requests one document.
    pub workers: usize,
    /// Release all workers at the same moment, or run each as it is spawned.
    pub barrier: bool,
    /// The choice of documents.
    pub docs: DocumentCount,
    /// The behaviour of the source, from the opening of the barrier on.
    pub behavior: SourceBehavior,
}

/// The result of a worker: its sample, and its error if it failed.
type WorkerResult = (LookupSample, Option<WorkerError>);

#[derive(Clone, Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Cache(#[from] Error),
    #[error("the worker was lost")]
    Lost,
}

/// A cache for documents.
pub(crate) fn cache(strategy: Strategy) -> Builder<Arc<str>, Document> {
    Cache::builder(strategy).weigh(heap_bytes)
}

impl Burst {
    /// Runs the burst on an empty cache in front of `source`. Random choices are drawn from `seed`.
    pub(super) async fn run<R: Runtime>(
        &self,
        clock: R,
        source: Arc<dyn Source>,
        assignment: Arc<DocumentAssignment>,
        seed: Seed,
        sink: &mut dyn FnMut(Second),
    ) -> Measurement {
        let gate = if self.barrier { Gate::closed(self.workers) } else { Gate::open(clock.now()) };
        let time = Gated { clock, gate };
        let staged = StagedSource::new(source, &self.behavior, time.clone(), seed);
        staged.start();
        let source = Arc::new(GatedSource { source: staged, time: time.clone() });
        // A fixed hash seed is not needed: no measured figure depends on hashing.
        let cache: Cache<Arc<str>, Document, Gated<R>> = cache(self.strategy.clone())
            .build_on(time.clone(), Seed(0))
            .expect("the strategy was checked when it was read");

        let results = (0..self.workers).map(|_| OnceLock::new()).collect();
        let run = Arc::new(BurstRun { cache, source, time, assignment, results });
        // The channel closes when the last worker has dropped its sender, whether it finished or panicked.
        let (alive, mut all_done) = mpsc::channel::<Infallible>(1);
        let share = Arc::new(WorkerShare { run: Arc::clone(&run), _alive: alive });
        for index in 0..self.workers {
            let worker = BurstWorker { share: Arc::clone(&share), index, scheduled: run.time.now() };
            run.time.spawn(worker.run());
        }
        drop(share);
        all_done.recv().await;
        let BurstRun { cache, source, time, assignment, results } = &*run;
        let finished = time.now();
        cache.wait_idle().await;

        let results: Vec<WorkerResult> =
            results.iter().map(|results| results.get().cloned().unwrap_or_else(|| lost(finished))).collect();
        self.measured(
            &results,
            assignment,
            (source.source.fetches(), time.gate.last_passed()),
            &cache.stats().into(),
            cache.byte_usage().map(|bytes| bytes.peak),
            sink,
        )
    }

    fn measured(
        &self,
        results: &[WorkerResult],
        assignment: &DocumentAssignment,
        (fetches, last_passed): (u64, Duration),
        counters: &CacheCounters,
        peak_bytes: Option<usize>,
        sink: &mut dyn FnMut(Second),
    ) -> Measurement {
        let mut outcomes = Outcomes::default();
        let mut errors = BTreeMap::new();
        let mut seconds: BTreeMap<u64, Second> = BTreeMap::new();
        let mut answered: Vec<Duration> = Vec::with_capacity(results.len());
        for (sample, failure) in results {
            let second = sample.timing.finished.elapsed().as_secs();
            let in_second = seconds.entry(second).or_insert_with(|| Second { second, ..Second::default() });
            in_second.outcomes.record(sample.outcome);
            in_second.times.send_lag.record(sample.timing.send_lag());
            outcomes.record(sample.outcome);
            match failure {
                Some(failure) => *errors.entry(failure.to_string()).or_default() += 1,
                None => {
                    in_second.times.response.record(sample.timing.response_time());
                    in_second.times.service.record(sample.timing.service_time());
                    answered.push(sample.timing.response_time());
                }
            }
        }
        answered.sort_unstable();
        let samples = || results.iter().map(|(sample, _)| sample);
        let burst = record::BurstFigures {
            strategy: self.name.clone(),
            workers: self.workers,
            documents: assignment.chosen.len(),
            distinct_keys: assignment.distinct,
            finished_ms: milliseconds(
                samples().map(|s| s.timing.finished).max().unwrap_or_default().elapsed(),
            ),
            times: times(&answered),
            calls: Calls {
                fetch_doc: fetches,
                store_local: counters.requests.stores_sync,
                store_local_async: counters.requests.stores_async,
            },
            failed: results.len() - answered.len(),
            waiters: usize::try_from(counters.requests.waiters).unwrap_or(usize::MAX),
            start_skew_ms: milliseconds(if self.barrier {
                last_passed
            } else {
                let first = samples().map(|s| s.timing.started).min().unwrap_or_default();
                samples().map(|s| s.timing.started).max().unwrap_or_default() - first
            }),
        };
        seconds.into_values().for_each(sink);
        let whole_ms = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Measurement {
            load: record::LoadFigures::Burst(burst),
            whole_ms_sum: Some(answered.iter().map(whole_ms).sum()),
            outcomes,
            bytes_in: samples().map(|s| s.bytes).sum(),
            service_sum: samples().map(|s| s.timing.service_time()).sum(),
            counters: *counters,
            peak_bytes,
            errors,
            events: Vec::new(),
            http: None,
        }
    }
}

/// A worker whose task panicked counts as failed at the time when the last one finished.
fn lost(finished: Time) -> WorkerResult {
    let timing = Timing { scheduled: Time::ZERO, started: Time::ZERO, finished };
    (LookupSample { timing, outcome: Outcome::Error, bytes: 0 }, Some(WorkerError::Lost))
}

/// The state that all workers of a burst share.
struct BurstRun<R: Runtime> {
    cache: Cache<Arc<str>, Document, Gated<R>>,
    source: Arc<GatedSource<R>>,
    time: Gated<R>,
    assignment: Arc<DocumentAssignment>,
    results: Box<[OnceLock<WorkerResult>]>,
}

/// The workers' reference to the run. Each worker holds one count instead of one per field: ten thousand workers that
/// end at once would contend for the cache lines of the counts.
struct WorkerShare<R: Runtime> {
    run: Arc<BurstRun<R>>,
    _alive: mpsc::Sender<Infallible>,
}

struct BurstWorker<R: Runtime> {
    share: Arc<WorkerShare<R>>,
    index: usize,
    scheduled: Time,
}

impl<R: Runtime> BurstWorker<R> {
    /// Not an `async fn`, for the same reason as [`Cache::get_with`]: a burst holds up to a million of these
    /// futures.
    fn run(self) -> impl Future<Output = ()> + Send + 'static {
        let Self { share, index, scheduled } = self;
        async move {
            let BurstRun { cache, time, assignment, results, .. } = &*share.run;
            let started = time.now();
            let answer = {
                let run = Arc::clone(&share.run);
                let mut get =
                    pin!(cache.get_with(Arc::clone(assignment.of(index)), move || fetch(run, index)));
                // The first poll does the lookup.
                let first = poll_fn(|cx| Poll::Ready(get.as_mut().poll(cx))).await;
                time.gate.looked_up(|| cache.load_count(), || time.clock.now());
                match first {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => get.await,
                }
            };
            let finished = time.now();
            let timing = Timing { scheduled, started, finished };
            let sample = |outcome, bytes| LookupSample { timing, outcome, bytes };
            let _ = results[index].set(match answer {
                Ok(answer) => (sample(answer.outcome, answer.value.len() as u64), None),
                Err(error) => (sample(Outcome::Error, 0), Some(error.into())),
            });
        }
    }
}

async fn fetch<R: Runtime>(
    run: Arc<BurstRun<R>>,
    index: usize,
) -> Result<Document, Box<dyn std::error::Error + Send + Sync>> {
    let id = run.assignment.of(index);
    match run.source.fetch(id).await {
        Ok(Some(document)) => Ok(document),
        Ok(None) => Err(Box::from(NotFound(Arc::clone(id)))),
        Err(error) => Err(Box::from(error)),
    }
}

/// Figures of response times in ascending order; `None` without times.
fn times(ascending: &[Duration]) -> Option<BurstTimes> {
    let (min, max) = (ascending.first()?, ascending.last()?);
    let sum: Duration = ascending.iter().sum();
    // Nearest rank: the smallest time that is at least as long as `percent` % of all times.
    let percentile = |percent: usize| milliseconds(ascending[(ascending.len() * percent).div_ceil(100) - 1]);
    Some(BurstTimes {
        min_ms: milliseconds(*min),
        mean_ms: milliseconds(sum) / ascending.len() as f64,
        max_ms: milliseconds(*max),
        sum_ms: milliseconds(sum),
        percentiles: Percentiles {
            p50: percentile(50),
            p75: percentile(75),
            p90: percentile(90),
            p95: percentile(95),
            p99: percentile(99),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let ascending: Vec<_> = [15, 20, 35, 40, 50].map(Duration::from_millis).to_vec();
        let figures = times(&ascending).unwrap();
        assert_eq!((figures.percentiles.p50, figures.percentiles.p75), (35.0, 40.0));
        assert_eq!((figures.percentiles.p90, figures.percentiles.p99), (50.0, 50.0));
        assert_eq!(
            (figures.min_ms, figures.mean_ms, figures.max_ms, figures.sum_ms),
            (15.0, 32.0, 50.0, 160.0)
        );
        assert_eq!(times(&[]), None);
    }
}
