//! An open load: requests start when they are due, independent of earlier ones.

use std::{
    convert::Infallible,
    fmt,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::RngExt;
use stockade_cache::{InvalidStrategy, Invalidation};
use stockade_model::{
    outcome::Outcome,
    seed::{Rng, Seed},
    source::Source,
    time::{Runtime, Time, before, yield_now},
    units::{format_duration, milliseconds},
};
use stockade_record::{record, timing::Timing};
use stockade_source::{SourceBehavior, StagedSource, VersionedDocument};
use tokio::sync::mpsc;

use super::{
    LookupSample, TestedCache,
    answer_audit::{AnswerAudit, ServedAnswer},
    clock::StartedClock,
    event::{EngineEvent, PurgedKeys},
    node_js_cache::NodeJsTable,
    open_tally::OpenTally,
    open_traffic::{ClientRetries, OpenTraffic, Writes},
    shared_tier::{OpenTier, TierSettings},
    tested_cache::{LookupError, RunningCache},
};
use crate::target::{CacheCounters, Measurement, OpenSecond, Second};

#[derive(Clone, Debug)]
pub struct OpenLoad {
    /// The name in reports.
    pub name: String,
    pub target: TestedCache,
    /// Its shared tier, or its only tier.
    pub shared: Option<TierSettings>,
    /// The behaviour of the source, from the start of the load on.
    pub behavior: SourceBehavior,
    /// The requests and writes.
    pub traffic: OpenTraffic,
    /// In the order of time.
    pub events: Vec<EngineEvent>,
}

impl OpenLoad {
    /// The most late requests in a row before the task yields.
    const IN_A_ROW: u32 = 64;
    /// The most unsent requests that are counted before the task yields.
    const COUNTED_AT_ONCE: usize = 100_000;

    /// Runs the load on an empty cache in front of `source`. Every choice is drawn from `seed`: the same seed has
    /// the same requests at the same times, whatever the cache.
    pub(super) async fn run<R: Runtime>(
        &self,
        clock: R,
        source: Arc<dyn Source>,
        keys: &[Arc<str>],
        seed: Seed,
        tier: Option<(&OpenTier, NodeJsTable)>,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Measurement, InvalidStrategy> {
        let (tier, table) =
            tier.map_or((None, NodeJsTable::in_memory()), |(tier, table)| (Some(tier), table));
        let time = StartedClock::now(clock);
        let source = Arc::new(StagedSource::new(source, &self.behavior, time.clone(), seed));
        let cache = Arc::new(self.target.start(&source, &time, seed, tier, table)?);
        if self.traffic.warm {
            warm(&cache, keys, &time).await;
        }
        let warmed_up = cache.stats().into();
        let began = time.now();
        source.start();
        let audit = AnswerAudit::new(self.target.hard_limit(), keys.len());
        let run = Arc::new(OpenRun {
            cache,
            source,
            keys: keys.into(),
            tally: Mutex::new(OpenTally::new(began, keys.len(), audit)),
            timeout: self.traffic.timeout,
            retries: self.traffic.retries,
            max_in_flight: self.traffic.max_in_flight,
            ends: began + self.traffic.schedule.duration() + self.traffic.drain,
            began,
            time,
        });
        if let Some(writes) = self.traffic.writes {
            let lasts = self.traffic.schedule.duration();
            run.time.spawn(write(Arc::clone(&run), writes, lasts, seed.stream("writes")));
        }
        if !self.events.is_empty() {
            run.time.spawn(purge(Arc::clone(&run), self.events.clone()));
        }
        self.send_and_wait(&run, seed, sink).await;
        // A load may last until its deadline, which the run does not wait for.
        let _ = before(&run.time, run.ends, run.cache.idle()).await;
        Ok(self.measured(&run, &warmed_up, sink))
    }

    /// Sends every request when it is due, and waits for all of them. Requests that are unsent at the end of
    /// the load are dropped: a rate that is too high does not make it longer.
    async fn send_and_wait<R: Runtime>(
        &self,
        run: &Arc<OpenRun<R>>,
        seed: Seed,
        sink: &mut dyn FnMut(Second),
    ) {
        // The channel closes when the last request has dropped its sender, whether it finished or panicked.
        let (alive, mut all_done) = mpsc::channel::<Infallible>(1);
        let mut draws = self.traffic.popularity.keys(run.keys.len(), seed);
        let mut arrivals = self.traffic.schedule.due_times(seed);
        let mut in_a_row = 0;
        for due in arrivals.by_ref() {
            let scheduled = run.began + due;
            loop {
                let next = run.end_of_second();
                run.time.sleep_until(scheduled.min(next)).await;
                run.flush(sink, run.time.now());
                if scheduled < next {
                    break;
                }
            }
            let started = run.time.now();
            // Late requests skip the sleep.
            in_a_row = if started > scheduled { in_a_row + 1 } else { 0 };
            if in_a_row == Self::IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
            }
            if started >= run.ends {
                run.tally().drop_unsent(started, 1);
                break;
            }
            let key = draws.draw();
            let most = if run.has_room() { self.traffic.max_in_flight } else { 0 };
            if run.tally().depart(started, key, most) {
                let request = OpenRequest { run: Arc::clone(run), key, scheduled, alive: alive.clone() };
                run.time.spawn(request.run());
            }
        }
        drop(alive);
        loop {
            let unsent = arrivals.by_ref().take(Self::COUNTED_AT_ONCE).count();
            if unsent == 0 {
                break;
            }
            run.tally().drop_unsent(run.time.now(), unsent as u64);
            yield_now().await;
        }
        while before(&run.time, run.end_of_second(), all_done.recv()).await.is_none() {
            run.flush(sink, run.time.now());
        }
        // The second of the last requests may never complete, so it is reported here.
        run.flush(sink, run.began);
    }

    fn measured<R: Runtime>(
        &self,
        run: &OpenRun<R>,
        warmed_up: &CacheCounters,
        sink: &mut dyn FnMut(Second),
    ) -> Measurement {
        let last = run.tally().take_current();
        run.emit(last, Bound::Unbounded, sink);
        let tally = &mut *run.tally();
        if tally.in_flight > 0 {
            let lost = tally.in_flight as u64;
            tally.outcomes.error += lost;
            *tally.errors.entry("the request was lost: its task panicked".to_owned()).or_default() += lost;
        }
        let counters = CacheCounters::from(run.cache.stats()).since(warmed_up);
        let open = record::OpenFigures {
            strategy: self.name.clone(),
            schedule: self.traffic.schedule.to_string(),
            duration_ms: milliseconds(self.traffic.schedule.duration()),
            documents: Some(run.keys.len()),
            distinct_keys: Some(tally.distinct_keys()),
            finished_ms: milliseconds(tally.finished),
            calls: record::Calls {
                fetch_doc: run.source.fetches(),
                store_local: counters.requests.stores_sync,
                store_local_async: counters.requests.stores_async,
            },
            waiters: usize::try_from(counters.requests.waiters).unwrap_or(usize::MAX),
            response: tally
                .response
                .map(|(min, max)| record::Extremes { min_ms: milliseconds(min), max_ms: milliseconds(max) }),
            retries: tally.retries,
            dropped: tally.dropped,
            in_flight_max: tally.in_flight_max,
            source_concurrent_max: Some(run.source.concurrent_max()),
            audit: Some(tally.audit.found()),
        };
        Measurement {
            load: record::LoadFigures::Open(open),
            whole_ms_sum: None,
            outcomes: tally.outcomes,
            bytes_in: tally.bytes_in,
            service_sum: tally.service_sum,
            counters,
            peak_bytes: run.cache.peak_bytes(),
            errors: std::mem::take(&mut tally.errors),
            events: std::mem::take(&mut tally.events),
            http: None,
        }
    }
}

/// Loads every key once, `AT_ONCE` at a time.
async fn warm<R: Runtime>(cache: &Arc<RunningCache<R>>, keys: &[Arc<str>], time: &R) {
    const AT_ONCE: usize = 1_000;
    for keys in keys.chunks(AT_ONCE) {
        let (alive, mut all_done) = mpsc::channel::<Infallible>(1);
        for key in keys {
            let (cache, key, alive) = (Arc::clone(cache), Arc::clone(key), alive.clone());
            time.spawn(async move {
                // A failed load is repeated by the first request for the key.
                let _ = cache.request(&key).await;
                drop(alive);
            });
        }
        drop(alive);
        all_done.recv().await;
    }
    cache.idle().await;
}

/// Writes until the end of the schedule; documents are drawn uniformly.
async fn write<R: Runtime>(run: Arc<OpenRun<R>>, writes: Writes, lasts: Duration, mut draws: Rng) {
    let mut due = writes.every;
    while due < lasts {
        run.time.sleep_until(run.began + due).await;
        let key = draws.random_range(0..run.keys.len());
        run.change(PurgedKeys::One(key), writes.invalidation).await;
        due += writes.every;
    }
}

/// Purges until the end of the load.
async fn purge<R: Runtime>(run: Arc<OpenRun<R>>, events: Vec<EngineEvent>) {
    for event in events {
        run.time.sleep_until(run.began + event.at).await;
        let began = run.time.now();
        run.change(event.purge, event.invalidation).await;
        let figures = record::EventFigures {
            at_ms: milliseconds(began - run.began),
            took_ms: milliseconds(run.time.now() - began),
            event: event.to_string(),
            failed: None,
        };
        run.tally().events.push(figures);
    }
}

/// The state that all requests of a load share.
struct OpenRun<R: Runtime> {
    cache: Arc<RunningCache<StartedClock<R>>>,
    source: Arc<StagedSource<StartedClock<R>>>,
    time: StartedClock<R>,
    keys: Box<[Arc<str>]>,
    tally: Mutex<OpenTally>,
    timeout: Option<Duration>,
    retries: ClientRetries,
    max_in_flight: usize,
    began: Time,
    /// Later answers are not waited for.
    ends: Time,
}

impl<R: Runtime> OpenRun<R> {
    fn tally(&self) -> MutexGuard<'_, OpenTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Documents change at the source, and then their keys are invalidated.
    async fn change(&self, keys: PurgedKeys, how: Invalidation) {
        let changed = match keys {
            PurgedKeys::All => 0..self.keys.len(),
            PurgedKeys::One(key) => key..key + 1,
        };
        let versions: Vec<u64> = self.keys[changed.clone()].iter().map(|id| self.source.write(id)).collect();
        match keys {
            PurgedKeys::All => self.cache.invalidate_all(&self.keys, how).await,
            PurgedKeys::One(key) => self.cache.invalidate(&self.keys[key], how).await,
        }
        if how == Invalidation::Hard {
            let mut tally = self.tally();
            changed.zip(versions).for_each(|(key, version)| tally.audit.raise(key, version));
        }
    }

    /// True if more may be sent. A client that gives up leaves its load behind; these loads have the same limit as
    /// requests.
    fn has_room(&self) -> bool {
        self.source.awaited() < self.max_in_flight
    }

    /// When the current second ends.
    fn end_of_second(&self) -> Time {
        let second = (self.time.now() - self.began).as_secs();
        self.began + Duration::from_secs(second + 1)
    }

    /// Reports every second that is complete at `now`.
    fn flush(&self, sink: &mut dyn FnMut(Second), now: Time) {
        loop {
            let complete = self.tally().take_complete(now);
            let Some(complete) = complete else { return };
            let until = Bound::Included(complete.second);
            self.emit(complete, until, sink);
        }
    }

    /// Reports a second, and the ones before it that have fetches only.
    fn emit(&self, mut second: Second, until: Bound<u64>, sink: &mut dyn FnMut(Second)) {
        let mut before = self.source.take_fetches(until);
        let mut after = before.split_off(&second.second);
        let source_loads = after.remove(&second.second).unwrap_or_default();
        second.open.get_or_insert_default().source_loads = Some(source_loads);
        let of_fetches = |(second, source_loads)| {
            let open = OpenSecond { source_loads: Some(source_loads), ..OpenSecond::default() };
            Second { second, open: Some(open), ..Second::default() }
        };
        let second = (!second.is_empty()).then_some(second);
        let seconds = before.into_iter().map(of_fetches).chain(second);
        seconds.chain(after.into_iter().map(of_fetches)).for_each(sink);
    }
}

/// Why a client has no answer.
#[derive(Debug)]
enum RequestError {
    Failed(LookupError),
    GaveUp(Duration),
    UnderWay,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::GaveUp(after) => write!(f, "the client gave up after {}", format_duration(*after)),
            Self::UnderWay => f.write_str("still under way at the end"),
        }
    }
}

struct OpenRequest<R: Runtime> {
    run: Arc<OpenRun<R>>,
    key: usize,
    scheduled: Time,
    alive: mpsc::Sender<Infallible>,
}

/// An answer and the start of its attempt.
struct AttemptReply {
    outcome: Outcome,
    stamped: VersionedDocument,
    attempt_started: Time,
}

impl<R: Runtime> OpenRequest<R> {
    /// A request is one sample, from when it was due until the end of its last attempt.
    async fn run(self) {
        let Self { run, key, scheduled, alive } = self;
        let started = run.time.now();
        let floor = run.tally().audit.floor(key);
        let end = run.attempts(&run.keys[key]).await;
        let mut tally = run.tally();
        let finished = run.time.now();
        let timing = Timing { scheduled, started, finished };
        let sample = |outcome, bytes| LookupSample { timing, outcome, bytes };
        match end {
            Ok(AttemptReply { outcome, stamped, attempt_started }) => {
                let (age, took) = (finished - stamped.at, finished - attempt_started);
                let served = ServedAnswer { age, took, version: stamped.version, floor };
                tally.finish(&sample(outcome, stamped.document.len() as u64), Ok(served));
            }
            Err(failure) => tally.finish(&sample(Outcome::Error, 0), Err(&failure)),
        }
        drop(tally);
        drop(alive);
    }
}

impl<R: Runtime> OpenRun<R> {
    /// Retries until there is an answer or no attempt is left.
    async fn attempts(&self, key: &Arc<str>) -> Result<AttemptReply, RequestError> {
        let mut left = self.retries.most;
        loop {
            let failure = match self.attempt(key).await {
                Err(failure @ (RequestError::Failed(_) | RequestError::GaveUp(_))) if left > 0 => failure,
                end => return end,
            };
            let again = self.time.now() + self.retries.backoff;
            if again >= self.ends || !self.has_room() {
                return Err(failure);
            }
            // Without a backoff the task would never yield.
            yield_now().await;
            self.time.sleep_until(again).await;
            left -= 1;
            let mut tally = self.tally();
            tally.retry(self.time.now());
        }
    }

    async fn attempt(&self, key: &Arc<str>) -> Result<AttemptReply, RequestError> {
        let attempt_started = self.time.now();
        let patience = self.timeout.map_or(self.ends, |timeout| self.ends.min(attempt_started + timeout));
        match before(&self.time, patience, self.cache.request(key)).await {
            Some(Ok(answer)) => {
                Ok(AttemptReply { outcome: answer.outcome, stamped: answer.value, attempt_started })
            }
            Some(Err(error)) => Err(RequestError::Failed(error)),
            None => match self.timeout {
                Some(timeout) if patience < self.ends => Err(RequestError::GaveUp(timeout)),
                _ => Err(RequestError::UnderWay),
            },
        }
    }
}
