//! A source with scheduled behavior and a limit of concurrent fetches.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    future::pending,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rand::RngExt;
use stockade_model::{
    capacity::{QueueFull, QueueModel},
    seed::{Rng, Seed},
    source::{Document, Source, SourceError, SourceFuture},
    time::{Runtime, Time},
};

use crate::stages::{Availability, SourceBehavior, SourceStages};

/// Adds the latency, errors and capacity of a [`SourceBehavior`] to a source, and counts its fetches.
///
/// Before [`start`](Self::start) it has the latency of its first stage, does not fail, and does not
/// count.
pub struct StagedSource<R> {
    source: Arc<dyn Source>,
    stages: SourceStages,
    runtime: R,
    started_at: OnceLock<Time>,
    state: Mutex<StagedState>,
    versions: Mutex<BTreeMap<Arc<str>, u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedDocument {
    pub document: Document,
    /// The number of [writes](StagedSource::write) before the fetch.
    pub version: u64,
    /// The time of the response.
    pub at: Time,
}

struct StagedState {
    queue: QueueModel,
    latencies: Rng,
    errors: Rng,
    fetches: u64,
    by_second: BTreeMap<u64, u64>,
    /// Fetches with a waiting caller.
    awaited: usize,
    /// The end times of cancelled fetches, which still use a worker.
    abandoned: BinaryHeap<Reverse<Time>>,
    concurrent_max: usize,
}

/// The kind of a fetch's response.
enum StagedFetch<'a, R: Runtime> {
    /// Before the start: a response at this time, not counted.
    NotStarted(Time),
    Admitted(AwaitedFetch<'a, R>),
    /// No response; the fetch ends when its caller cancels it.
    Unanswered(AwaitedFetch<'a, R>),
    Refused(&'static str),
}

/// A fetch with a waiting caller. After a cancel it uses its worker until `ends_at`.
struct AwaitedFetch<'a, R: Runtime> {
    staged: &'a StagedSource<R>,
    ends_at: Time,
    fails: bool,
}

impl<R: Runtime> StagedSource<R> {
    /// Latencies and errors are drawn from `seed`.
    pub fn new(source: Arc<dyn Source>, behavior: &SourceBehavior, runtime: R, seed: Seed) -> Self {
        let state = StagedState {
            queue: QueueModel::new(behavior.capacity),
            latencies: seed.stream("latency"),
            errors: seed.stream("errors"),
            fetches: 0,
            by_second: BTreeMap::new(),
            awaited: 0,
            abandoned: BinaryHeap::new(),
            concurrent_max: 0,
        };
        Self {
            source,
            stages: behavior.stages.clone(),
            runtime,
            started_at: OnceLock::new(),
            state: Mutex::new(state),
            versions: Mutex::default(),
        }
    }

    /// Starts the stages. Only the first call has an effect.
    pub fn start(&self) {
        self.started_at.get_or_init(|| self.runtime.now());
    }

    /// All fetches since the start, whatever their result.
    pub fn fetches(&self) -> u64 {
        self.state().fetches
    }

    /// Removes and returns the number of fetches for each second since the start, up to `until`.
    pub fn take_fetches(&self, until: Bound<u64>) -> BTreeMap<u64, u64> {
        let by_second = &mut self.state().by_second;
        let later = match until {
            Bound::Included(second) => by_second.split_off(&second.saturating_add(1)),
            Bound::Excluded(second) => by_second.split_off(&second),
            Bound::Unbounded => BTreeMap::new(),
        };
        std::mem::replace(by_second, later)
    }

    /// The peak of concurrent fetches: waiting for a worker or in work, also if cancelled, and those that
    /// wait for a silent source.
    pub fn concurrent_max(&self) -> usize {
        self.state().concurrent_max
    }

    /// The number of fetches with a waiting caller.
    pub fn awaited(&self) -> usize {
        self.state().awaited
    }

    /// Increments the version of a document and returns it. The bytes stay the same.
    pub fn write(&self, id: &Arc<str>) -> u64 {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let version = versions.entry(Arc::clone(id)).or_default();
        *version += 1;
        *version
    }

    /// Fetches a document with its version.
    pub async fn fetch_stamped(&self, id: &str) -> Result<Option<VersionedDocument>, SourceError> {
        // Like a database, it reads the version at the start of the fetch, not at its end.
        let version = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied();
        let document = self.fetch(id).await?;
        let stamp = |document| VersionedDocument {
            document,
            version: version.unwrap_or_default(),
            at: self.runtime.now(),
        };
        Ok(document.map(stamp))
    }

    fn state(&self) -> MutexGuard<'_, StagedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self) -> StagedFetch<'_, R> {
        let mut state = self.state();
        let state = &mut *state;
        let now = self.runtime.now();
        let Some(started_at) = self.started_at.get().copied() else {
            return StagedFetch::NotStarted(
                now + self.stages.at(Duration::ZERO).latency.draw(&mut state.latencies),
            );
        };
        state.fetches += 1;
        *state.by_second.entry((now - started_at).as_secs()).or_default() += 1;
        match self.stages.at(now - started_at).state {
            Availability::Up => {}
            Availability::Refusing => return StagedFetch::Refused("connection refused"),
            Availability::Silent => return StagedFetch::Unanswered(self.enter(state, now, now, false)),
        }
        let mut fails = false;
        let ends_at = state.queue.admit(now, |starts_at: Time| -> Duration {
            let stage = self.stages.at(starts_at - started_at);
            fails = stage.errors > 0.0 && state.errors.random_bool(stage.errors.min(1.0));
            stage.latency.draw(&mut state.latencies)
        });
        let ends_at = match ends_at {
            Ok(ends_at) => ends_at,
            Err(QueueFull) => return StagedFetch::Refused("its queue is full"),
        };
        StagedFetch::Admitted(self.enter(state, now, ends_at, fails))
    }

    fn enter(&self, state: &mut StagedState, now: Time, ends_at: Time, fails: bool) -> AwaitedFetch<'_, R> {
        while state.abandoned.peek().is_some_and(|ends_at| ends_at.0 <= now) {
            state.abandoned.pop();
        }
        state.awaited += 1;
        state.concurrent_max = state.concurrent_max.max(state.awaited + state.abandoned.len());
        AwaitedFetch { staged: self, ends_at, fails }
    }
}

impl<R: Runtime> Drop for AwaitedFetch<'_, R> {
    fn drop(&mut self) {
        let mut state = self.staged.state();
        state.awaited -= 1;
        if self.staged.runtime.now() < self.ends_at {
            state.abandoned.push(Reverse(self.ends_at));
        }
    }
}

fn failed<T>(reason: &str) -> Result<T, SourceError> {
    Err(SourceError::Failed { source_name: "the origin".to_owned(), reason: reason.to_owned() })
}

impl<R: Runtime> Source for StagedSource<R> {
    /// The call itself counts and admits the fetch, before the first poll.
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let admitted = self.admit();
        Box::pin(async move {
            match admitted {
                StagedFetch::NotStarted(until) => {
                    self.runtime.sleep_until(until).await;
                    self.source.fetch(id).await
                }
                StagedFetch::Unanswered(_visit) => pending().await,
                StagedFetch::Refused(reason) => failed(reason),
                StagedFetch::Admitted(fetch) => {
                    self.runtime.sleep_until(fetch.ends_at).await;
                    if fetch.fails {
                        failed("it answered with an error")
                    } else {
                        self.source.fetch(id).await
                    }
                }
            }
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        self.source.ids()
    }
}
