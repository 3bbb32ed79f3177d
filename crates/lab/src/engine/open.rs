//! An open load: requests come when they are due, however the earlier ones fare.

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
    record,
    sample::Sample,
    seed::{Rng, Seed},
    source::Source,
    time::{Runtime, Time, before, yield_now},
    units::{format_duration, milliseconds},
};
use stockade_source::{Conduct, Staged, Stamped};
use tokio::sync::mpsc;

use super::{
    Did, Measured, OpenSecond, Second, Target,
    audit::{Audit, Served},
    node_test::Table,
    shared::{OpenTier, SharedTier},
    since::Since,
    tally::Tally,
    target::{Asked, Unanswered},
    traffic::{Retries, Traffic, Writes},
};

/// What an open load does.
#[derive(Clone, Debug)]
pub struct Open {
    /// The strategy's name in reports.
    pub name: String,
    /// What is asked.
    pub target: Target,
    /// What it shares with nodes that are not there, or has in place of a memory.
    pub shared: Option<SharedTier>,
    /// How the source behaves, from the start of the load on.
    pub conduct: Conduct,
    /// Who asks it, and who writes meanwhile.
    pub traffic: Traffic,
}

impl Open {
    /// So many late requests are sent before anything else has its turn.
    const IN_A_ROW: u32 = 64;
    /// So many requests that will not be sent are counted before anything else has its turn.
    const COUNTED_AT_ONCE: usize = 100_000;

    /// Runs it against something new in front of `source`, for these keys. Every choice is drawn from
    /// `seed`: the same seed has the same requests at the same times, whoever is asked.
    pub(super) async fn run<R: Runtime>(
        &self,
        clock: R,
        source: Arc<dyn Source>,
        keys: &[Arc<str>],
        seed: Seed,
        tier: Option<(&OpenTier, Table)>,
        sink: &mut dyn FnMut(Second),
    ) -> Result<Measured, InvalidStrategy> {
        let (tier, table) = tier.map_or((None, Table::in_memory()), |(tier, table)| (Some(tier), table));
        let time = Since::now(clock);
        let source = Arc::new(Staged::new(source, &self.conduct, time.clone(), seed));
        let asked = Arc::new(self.target.start(&source, &time, seed, tier, table)?);
        if self.traffic.warm {
            warm(&asked, keys, &time).await;
        }
        let warmed_up = (asked.did(), asked.held());
        let began = time.now();
        source.begin();
        let audit = Audit::new(self.target.hard_limit(), keys.len());
        let common = Arc::new(Common {
            asked,
            source,
            keys: keys.into(),
            tally: Mutex::new(Tally::new(began, keys.len(), audit)),
            timeout: self.traffic.timeout,
            retries: self.traffic.retries,
            max_in_flight: self.traffic.max_in_flight,
            ends: began + self.traffic.schedule.lasts() + self.traffic.drain,
            began,
            time,
        });
        if let Some(writes) = self.traffic.writes {
            let lasts = self.traffic.schedule.lasts();
            common.time.spawn(write(Arc::clone(&common), writes, lasts, seed.stream("writes")));
        }
        self.send(&common, seed, sink).await;
        // A load may go on for as long as its deadline has it, and nobody waits for that.
        let _ = before(&common.time, common.ends, common.asked.idle()).await;
        Ok(self.measured(&common, warmed_up, sink))
    }

    /// Sends every request when it is due, and waits until all are done. What has not been sent when the
    /// load ends never is: a rate that cannot be followed does not make it longer.
    async fn send<R: Runtime>(&self, common: &Arc<Common<R>>, seed: Seed, sink: &mut dyn FnMut(Second)) {
        // Closes when the last request has dropped its end, however that came about.
        let (alive, mut all_done) = mpsc::channel::<Infallible>(1);
        let mut draws = self.traffic.popularity.keys(common.keys.len(), seed);
        let mut arrivals = self.traffic.schedule.arrivals(seed);
        let mut in_a_row = 0;
        for due in arrivals.by_ref() {
            let scheduled = common.began + due;
            loop {
                let next = common.end_of_second();
                common.time.sleep_until(scheduled.min(next)).await;
                common.flush(sink, common.time.now());
                if scheduled < next {
                    break;
                }
            }
            let started = common.time.now();
            // Who is late never sleeps.
            in_a_row = if started > scheduled { in_a_row + 1 } else { 0 };
            if in_a_row == Self::IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
            }
            if started >= common.ends {
                common.tally().drop_unsent(started, 1);
                break;
            }
            let key = draws.draw();
            let most = if common.has_room() { self.traffic.max_in_flight } else { 0 };
            if common.tally().depart(started, key, most) {
                let request = Request { common: Arc::clone(common), key, scheduled, alive: alive.clone() };
                common.time.spawn(request.run());
            }
        }
        drop(alive);
        loop {
            let unsent = arrivals.by_ref().take(Self::COUNTED_AT_ONCE).count();
            if unsent == 0 {
                break;
            }
            common.tally().drop_unsent(common.time.now(), unsent as u64);
            yield_now().await;
        }
        while before(&common.time, common.end_of_second(), all_done.recv()).await.is_none() {
            common.flush(sink, common.time.now());
        }
        // What the last requests have completed; the second after them may never be over.
        common.flush(sink, common.began);
    }

    fn measured<R: Runtime>(
        &self,
        common: &Common<R>,
        (did, held): (Did, record::CacheFigures),
        sink: &mut dyn FnMut(Second),
    ) -> Measured {
        let last = common.tally().take_current();
        common.emit(last, Bound::Unbounded, sink);
        let tally = &mut *common.tally();
        if tally.in_flight > 0 {
            let lost = tally.in_flight as u64;
            tally.outcomes.error += lost;
            *tally.errors.entry("the request was lost: its task panicked".to_owned()).or_default() += lost;
        }
        let did = common.asked.did().since(did);
        let open = record::OpenFigures {
            strategy: self.name.clone(),
            schedule: self.traffic.schedule.to_string(),
            duration_ms: milliseconds(self.traffic.schedule.lasts()),
            documents: Some(common.keys.len()),
            distinct_keys: Some(tally.distinct_keys()),
            finished_ms: milliseconds(tally.finished),
            calls: record::Calls {
                fetch_doc: common.source.fetches(),
                store_local: did.stores_sync,
                store_local_async: did.stores_async,
            },
            waiters: usize::try_from(did.waiters).unwrap_or(usize::MAX),
            response: tally
                .response
                .map(|(min, max)| record::Extremes { min_ms: milliseconds(min), max_ms: milliseconds(max) }),
            retries: tally.retries,
            dropped: tally.dropped,
            in_flight_max: tally.in_flight_max,
            source_concurrent_max: Some(common.source.concurrent_max()),
            audit: Some(tally.audit.found()),
        };
        Measured {
            load: record::Load::Open(open),
            whole_ms_sum: None,
            outcomes: tally.outcomes,
            bytes_in: tally.bytes_in,
            service_sum: tally.service_sum,
            did,
            cache: common.asked.held().since(held),
            errors: std::mem::take(&mut tally.errors),
            http: None,
        }
    }
}

/// Loads every key once, as many at a time as a source may like.
async fn warm<R: Runtime>(asked: &Arc<Asked<R>>, keys: &[Arc<str>], time: &R) {
    const AT_ONCE: usize = 1_000;
    for keys in keys.chunks(AT_ONCE) {
        let (alive, mut all_done) = mpsc::channel::<Infallible>(1);
        for key in keys {
            let (asked, key, alive) = (Arc::clone(asked), Arc::clone(key), alive.clone());
            time.spawn(async move {
                // What cannot be loaded now is loaded when it is asked for.
                let _ = asked.ask(&key).await;
                drop(alive);
            });
        }
        drop(alive);
        all_done.recv().await;
    }
    asked.idle().await;
}

/// Writes until the schedule is over, documents drawn uniformly.
async fn write<R: Runtime>(common: Arc<Common<R>>, writes: Writes, lasts: Duration, mut draws: Rng) {
    let mut due = writes.every;
    while due < lasts {
        common.time.sleep_until(common.began + due).await;
        let key = draws.random_range(0..common.keys.len());
        let version = common.source.write(&common.keys[key]);
        common.asked.invalidate(&common.keys[key], writes.invalidation).await;
        if writes.invalidation == Invalidation::Hard {
            common.tally().audit.raise(key, version);
        }
        due += writes.every;
    }
}

/// What all requests of a load have in common.
struct Common<R: Runtime> {
    asked: Arc<Asked<Since<R>>>,
    source: Arc<Staged<Since<R>>>,
    time: Since<R>,
    keys: Box<[Arc<str>]>,
    tally: Mutex<Tally>,
    timeout: Option<Duration>,
    retries: Retries,
    max_in_flight: usize,
    began: Time,
    /// Nobody is waited for beyond this.
    ends: Time,
}

impl<R: Runtime> Common<R> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more may be sent: a client that gives up leaves its load behind, and those are as many
    /// as there may be requests.
    fn has_room(&self) -> bool {
        self.source.awaited() < self.max_in_flight
    }

    /// When the second under way will be over.
    fn end_of_second(&self) -> Time {
        let second = (self.time.now() - self.began).as_secs();
        self.began + Duration::from_secs(second + 1)
    }

    /// Hands on every second that is over at `now`.
    fn flush(&self, sink: &mut dyn FnMut(Second), now: Time) {
        loop {
            let complete = self.tally().take_complete(now);
            let Some(complete) = complete else { return };
            let until = Bound::Included(complete.second);
            self.emit(complete, until, sink);
        }
    }

    /// Hands on a second, and those until then in which nothing happened but fetches.
    fn emit(&self, mut second: Second, until: Bound<u64>, sink: &mut dyn FnMut(Second)) {
        let mut before = self.source.take_fetches(until);
        let mut after = before.split_off(&second.second);
        let source_loads = after.remove(&second.second).unwrap_or_default();
        second.open.get_or_insert_default().source_loads = source_loads;
        let of_fetches = |(second, source_loads)| {
            let open = OpenSecond { source_loads, ..OpenSecond::default() };
            Second { second, open: Some(open), ..Second::default() }
        };
        let second = (!second.is_empty()).then_some(second);
        let seconds = before.into_iter().map(of_fetches).chain(second);
        seconds.chain(after.into_iter().map(of_fetches)).for_each(sink);
    }
}

/// Why a client has no answer.
#[derive(Debug)]
enum Failure {
    Told(Unanswered),
    GaveUp(Duration),
    UnderWay,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told(error) => error.fmt(f),
            Self::GaveUp(after) => write!(f, "the client gave up after {}", format_duration(*after)),
            Self::UnderWay => f.write_str("still under way at the end"),
        }
    }
}

struct Request<R: Runtime> {
    common: Arc<Common<R>>,
    key: usize,
    scheduled: Time,
    alive: mpsc::Sender<Infallible>,
}

/// An answer, and when the attempt began that brought it.
struct Brought {
    outcome: Outcome,
    stamped: Stamped,
    asked: Time,
}

impl<R: Runtime> Request<R> {
    /// One request is one sample, from when it was due until its last attempt has ended.
    async fn run(self) {
        let Self { common, key, scheduled, alive } = self;
        let started = common.time.now();
        let floor = common.tally().audit.floor(key);
        let end = common.attempts(&common.keys[key]).await;
        let mut tally = common.tally();
        let finished = common.time.now();
        let sample = |outcome, bytes| Sample { scheduled, started, finished, outcome, bytes };
        match end {
            Ok(Brought { outcome, stamped, asked }) => {
                let (age, took) = (finished - stamped.at, finished - asked);
                let served = Served { age, took, version: stamped.version, floor };
                tally.finish(&sample(outcome, stamped.document.len() as u64), Ok(served));
            }
            Err(failure) => tally.finish(&sample(Outcome::Error, 0), Err(&failure)),
        }
        drop(tally);
        drop(alive);
    }
}

impl<R: Runtime> Common<R> {
    /// Asks until there is an answer, or the client is at its wits' end.
    async fn attempts(&self, key: &Arc<str>) -> Result<Brought, Failure> {
        let mut left = self.retries.most;
        loop {
            let failure = match self.attempt(key).await {
                Err(failure @ (Failure::Told(_) | Failure::GaveUp(_))) if left > 0 => failure,
                end => return end,
            };
            let again = self.time.now() + self.retries.backoff;
            if again >= self.ends || !self.has_room() {
                return Err(failure);
            }
            // Without a backoff it would never have to wait.
            yield_now().await;
            self.time.sleep_until(again).await;
            left -= 1;
            let mut tally = self.tally();
            tally.retry(self.time.now());
        }
    }

    async fn attempt(&self, key: &Arc<str>) -> Result<Brought, Failure> {
        let asked = self.time.now();
        let patience = self.timeout.map_or(self.ends, |timeout| self.ends.min(asked + timeout));
        match before(&self.time, patience, self.asked.ask(key)).await {
            Some(Ok(answer)) => Ok(Brought { outcome: answer.outcome, stamped: answer.value, asked }),
            Some(Err(error)) => Err(Failure::Told(error)),
            None => match self.timeout {
                Some(timeout) if patience < self.ends => Err(Failure::GaveUp(timeout)),
                _ => Err(Failure::UnderWay),
            },
        }
    }
}
