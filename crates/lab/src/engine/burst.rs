//! One burst: N workers, one document each, one strategy.

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
    record::{self, BurstTimes, Calls, Percentiles},
    sample::Sample,
    seed::Seed,
    source::{Document, Source},
    time::{Runtime, Time},
    units::milliseconds,
};
use stockade_source::{Conduct, Staged};
use tokio::sync::mpsc;

use super::{
    Did, Measured, NotFound, Second,
    documents::{Docs, Draw},
    gate::{Gate, Gated, Held},
    target::held,
};

/// What a burst does.
#[derive(Clone, Debug)]
pub struct Burst {
    /// The strategy's name in reports.
    pub name: String,
    /// The strategy.
    pub strategy: Strategy,
    /// How many workers ask for one document each.
    pub workers: usize,
    /// Whether they all ask at the same moment, or as they are started.
    pub barrier: bool,
    /// Which documents they choose from.
    pub docs: Docs,
    /// How the source behaves, from the opening of the barrier on.
    pub conduct: Conduct,
}

/// What one worker leaves: its sample, and what it was told if it failed.
type Left = (Sample, Option<Failure>);

#[derive(Clone, Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Cache(#[from] Error),
    #[error("the worker was lost")]
    Lost,
}

/// A cache as bursts ask it.
pub(crate) fn cache(strategy: Strategy) -> Builder<Arc<str>, Document> {
    Cache::builder(strategy).weigh(heap_bytes)
}

impl Burst {
    /// Runs it on an empty cache in front of `source`. Chance is drawn from `seed`.
    pub(super) async fn run<R: Runtime>(
        &self,
        clock: R,
        source: Arc<dyn Source>,
        draw: Arc<Draw>,
        seed: Seed,
        sink: &mut dyn FnMut(Second),
    ) -> Measured {
        let gate = if self.barrier { Gate::closed(self.workers) } else { Gate::open(clock.now()) };
        let time = Gated { clock, gate };
        let staged = Staged::new(source, &self.conduct, time.clone(), seed);
        staged.begin();
        let source = Arc::new(Held { source: staged, time: time.clone() });
        // Hashing needs no seed of its own: nothing that is measured depends on it.
        let cache: Cache<Arc<str>, Document, Gated<R>> = cache(self.strategy.clone())
            .build_on(time.clone(), Seed(0))
            .expect("the strategy was checked when it was read");

        let left = (0..self.workers).map(|_| OnceLock::new()).collect();
        let common = Arc::new(Common { cache, source, time, draw, left });
        // Closes when the last worker has dropped its end, however that came about.
        let (alive, mut all_done) = mpsc::channel::<Infallible>(1);
        let crew = Arc::new(Crew { common: Arc::clone(&common), _alive: alive });
        for index in 0..self.workers {
            let worker = Worker { crew: Arc::clone(&crew), index, scheduled: common.time.now() };
            common.time.spawn(worker.run());
        }
        drop(crew);
        all_done.recv().await;
        let Common { cache, source, time, draw, left } = &*common;
        let finished = time.now();
        cache.idle().await;

        let left: Vec<Left> =
            left.iter().map(|left| left.get().cloned().unwrap_or_else(|| lost(finished))).collect();
        let did = cache.stats().into();
        let held = held(cache);
        self.measured(&left, draw, (source.source.fetches(), time.gate.last_passed()), did, held, sink)
    }

    fn measured(
        &self,
        left: &[Left],
        draw: &Draw,
        (fetches, last_passed): (u64, Duration),
        did: Did,
        cache: record::CacheFigures,
        sink: &mut dyn FnMut(Second),
    ) -> Measured {
        let mut outcomes = Outcomes::default();
        let mut errors = BTreeMap::new();
        let mut seconds: BTreeMap<u64, Second> = BTreeMap::new();
        let mut answered: Vec<Duration> = Vec::with_capacity(left.len());
        for (sample, failure) in left {
            let second = sample.finished.elapsed().as_secs();
            let in_second = seconds.entry(second).or_insert_with(|| Second { second, ..Second::default() });
            in_second.outcomes.record(sample.outcome);
            in_second.times.send_lag.record(sample.send_lag());
            outcomes.record(sample.outcome);
            match failure {
                Some(failure) => *errors.entry(failure.to_string()).or_default() += 1,
                None => {
                    in_second.times.response.record(sample.response_time());
                    in_second.times.service.record(sample.service_time());
                    answered.push(sample.response_time());
                }
            }
        }
        answered.sort_unstable();
        let samples = || left.iter().map(|(sample, _)| sample);
        let burst = record::BurstFigures {
            strategy: self.name.clone(),
            workers: self.workers,
            documents: draw.chosen.len(),
            distinct_keys: draw.distinct,
            finished_ms: milliseconds(samples().map(|s| s.finished).max().unwrap_or_default().elapsed()),
            times: times(&answered),
            calls: Calls {
                fetch_doc: fetches,
                store_local: did.stores_sync,
                store_local_async: did.stores_async,
            },
            failed: left.len() - answered.len(),
            waiters: usize::try_from(did.waiters).unwrap_or(usize::MAX),
            start_skew_ms: milliseconds(if self.barrier {
                last_passed
            } else {
                let first = samples().map(|s| s.started).min().unwrap_or_default();
                samples().map(|s| s.started).max().unwrap_or_default() - first
            }),
        };
        seconds.into_values().for_each(sink);
        let whole_ms = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Measured {
            load: record::Load::Burst(burst),
            whole_ms_sum: Some(answered.iter().map(whole_ms).sum()),
            outcomes,
            bytes_in: samples().map(|s| s.bytes).sum(),
            service_sum: samples().map(Sample::service_time).sum(),
            did,
            cache,
            errors,
            http: None,
        }
    }
}

/// A worker whose task ended without a word failed when the last one finished.
fn lost(finished: Time) -> Left {
    let sample =
        Sample { scheduled: Time::ZERO, started: Time::ZERO, finished, outcome: Outcome::Error, bytes: 0 };
    (sample, Some(Failure::Lost))
}

/// What all workers of a burst have in common.
struct Common<R: Runtime> {
    cache: Cache<Arc<str>, Document, Gated<R>>,
    source: Arc<Held<R>>,
    time: Gated<R>,
    draw: Arc<Draw>,
    left: Box<[OnceLock<Left>]>,
}

/// The same for who is a worker. Each holds one count, not one of everything: ten thousand that end at
/// once would wait for each other's cache lines.
struct Crew<R: Runtime> {
    common: Arc<Common<R>>,
    _alive: mpsc::Sender<Infallible>,
}

struct Worker<R: Runtime> {
    crew: Arc<Crew<R>>,
    index: usize,
    scheduled: Time,
}

impl<R: Runtime> Worker<R> {
    /// Not an `async fn`, for the same reason as [`Cache::get_with`]: a worker is what a million of are
    /// kept of.
    fn run(self) -> impl Future<Output = ()> + Send + 'static {
        let Self { crew, index, scheduled } = self;
        async move {
            let Common { cache, time, draw, left, .. } = &*crew.common;
            let started = time.now();
            let answer = {
                let common = Arc::clone(&crew.common);
                let mut get = pin!(cache.get_with(Arc::clone(draw.of(index)), move || fetch(common, index)));
                // The first poll is the lookup: it has been answered when that returns.
                let first = poll_fn(|cx| Poll::Ready(get.as_mut().poll(cx))).await;
                time.gate.looked_up(|| cache.loads(), || time.clock.now());
                match first {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => get.await,
                }
            };
            let finished = time.now();
            let sample = |outcome, bytes| Sample { scheduled, started, finished, outcome, bytes };
            let _ = left[index].set(match answer {
                Ok(answer) => (sample(answer.outcome, answer.value.len() as u64), None),
                Err(error) => (sample(Outcome::Error, 0), Some(error.into())),
            });
        }
    }
}

/// The load of one worker.
async fn fetch<R: Runtime>(
    common: Arc<Common<R>>,
    index: usize,
) -> Result<Document, Box<dyn std::error::Error + Send + Sync>> {
    let id = common.draw.of(index);
    match common.source.fetch(id).await {
        Ok(Some(document)) => Ok(document),
        Ok(None) => Err(Box::from(NotFound(Arc::clone(id)))),
        Err(error) => Err(Box::from(error)),
    }
}

/// Figures of response times in ascending order; `None` of none.
fn times(ascending: &[Duration]) -> Option<BurstTimes> {
    let (min, max) = (ascending.first()?, ascending.last()?);
    let sum: Duration = ascending.iter().sum();
    // Nearest rank: the smallest time that so many per cent do not exceed.
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
