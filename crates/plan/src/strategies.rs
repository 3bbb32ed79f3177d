//! The strategies of the cache on the busiest part of a log: the engine itself, in virtual time.
//!
//! ```text
//! request, when the log has it -> Cache::get_with -> a load -> OriginModel: latency, workers, an outage
//! ```
//!
//! The pace is that of the log. The origin fails in the busiest minute of the part, each load after its latency. The same log,
//! origin and seed give the same figures.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use stockade_cache::{Cache, InvalidStrategy, Invalidation, Limit, Preset, Refresh, Seed, Strategy};
use stockade_model::{
    capacity::{Capacity as OriginCapacity, QueueModel},
    latency::Latency,
    outcome::{Outcome, Outcomes},
    time::{Runtime as _, Time, Virtual},
};
use stockade_record::histogram::Histogram;

use crate::{
    assemble::OVERHEAD_BYTES,
    exchange::Exchange,
    peaks::Peaks,
    recommend::Recommendation,
    trace::{Key, Request, Trace, busiest},
};

/// The most requests of the part.
const REQUESTS_MAX: usize = 200_000;
/// How often the end of the last requests is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How the origin answers a load.
#[derive(Clone, Debug)]
pub struct OriginModel {
    /// How long it takes.
    pub latency: Latency,
    /// Loads that it works on at once, and those that wait; `None`: any number.
    pub capacity: Option<OriginCapacity>,
    /// How long it fails, from the start of the busiest time of this length; zero: never.
    pub outage: Duration,
}

/// The figures of one strategy.
#[derive(Clone, Debug)]
pub struct StrategyFigures {
    /// The preset, or the file of the strategy.
    pub name: String,
    /// Requests by outcome.
    pub outcomes: Outcomes,
    /// Requests that failed, while the origin did and at other times.
    pub errors_in_outage: u64,
    /// See `errors_in_outage`.
    pub errors_elsewhere: u64,
    /// Loads, those in the background included.
    pub loads: u64,
    /// The most loads in a second.
    pub loads_per_s_max: u64,
    /// From a request to its answer.
    pub response: Histogram,
    /// The greatest age of an answer.
    pub age_max: Duration,
}

/// The requests that the strategies get.
#[derive(Clone, Debug)]
pub struct BusiestRequests {
    requests: Vec<Request>,
    /// When the origin fails, in nanoseconds since the first request of the part.
    outage_ns: Range<u64>,
    /// The share of the keys whose requests these are.
    sampled_share: f64,
}

/// Why the origin did not answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum OriginError {
    #[error("the origin is down")]
    Down,
    #[error("the origin's queue is full")]
    Overloaded,
}

impl BusiestRequests {
    /// The 200,000 requests of a trace that take the least time, or all of them.
    #[must_use]
    pub fn from_trace(trace: &Trace, origin: &OriginModel) -> Self {
        let all = trace.requests();
        let width = all.len().min(REQUESTS_MAX);
        let span_ns = |part: &&[Request]| {
            part.last().zip(part.first()).map_or(0, |(last, first)| last.at_ns - first.at_ns)
        };
        let part = all.windows(width.max(1)).min_by_key(span_ns).unwrap_or(all);
        let first_ns = part.first().map_or(0, |first| first.at_ns);
        let requests: Vec<Request> =
            part.iter().map(|request| request.at(request.at_ns - first_ns)).collect();
        let length_ns = u64::try_from(origin.outage.as_nanos()).unwrap_or(u64::MAX);
        let starts_ns = match length_ns {
            0 => None,
            _ => requests.get(busiest(&requests, length_ns, usize::MAX).start).map(|first| first.at_ns),
        };
        let outage_ns = starts_ns.map_or(0..0, |starts_ns| starts_ns..starts_ns.saturating_add(length_ns));
        Self { requests, outage_ns, sampled_share: trace.sampled_share() }
    }

    /// The number of requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// From the first request to the last.
    #[must_use]
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.requests.last().map_or(0, |last| last.at_ns))
    }
}

/// A preset with the lifetime of a recommendation, and so much of its limit as there are keys. A preset without a ttl keeps to that.
fn planned(preset: &Strategy, recommendation: &Recommendation, sampled_share: f64) -> Strategy {
    let limit = limit_of(recommendation, sampled_share);
    let ttl = recommendation.lifetime.ttl.default_ns().map(Duration::from_nanos);
    let swr = if preset.swr.is_zero() {
        Duration::ZERO
    } else {
        Duration::from_nanos(recommendation.lifetime.swr_ns)
    };
    // An early refresh needs a ttl.
    let refresh = if ttl.is_some() { preset.refresh } else { Refresh::None };
    Strategy { limit: Some(limit), ttl: preset.ttl.and(ttl), swr, refresh, ..preset.clone() }
}

/// So much of the limit of a recommendation.
fn limit_of(recommendation: &Recommendation, sampled_share: f64) -> Limit {
    let limit = recommendation.capacity.times(sampled_share).limit(recommendation.max_object);
    recommendation.policy.shipped.map_or(limit.clone(), |policy| Limit { policy, ..limit })
}

/// A strategy to run.
#[derive(Clone, Debug)]
pub enum Candidate {
    /// A preset, with the lifetime and the limit of the plan.
    Preset(&'static Preset),
    /// A strategy as its file has it. Without a limit it gets that of the plan.
    Own {
        /// Its name in reports.
        name: String,
        /// The strategy.
        strategy: Box<Strategy>,
    },
}

impl Candidate {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Preset(preset) => preset.name,
            Self::Own { name, .. } => name,
        }
    }

    /// The strategy, over so large a share of the keys.
    fn strategy(&self, recommendation: &Recommendation, share: f64) -> Strategy {
        match self {
            Self::Preset(preset) => planned(&preset.strategy, recommendation, share),
            Self::Own { strategy, .. } => {
                let planned = || limit_of(recommendation, share);
                let limit = strategy.limit.as_ref().map_or_else(planned, |limit| limit.times(share));
                Strategy { limit: Some(limit), ..(**strategy).clone() }
            }
        }
    }
}

/// Runs these strategies over the busiest requests of a log.
pub fn run(
    busiest: &BusiestRequests,
    candidates: &[Candidate],
    recommendation: &Recommendation,
    origin: &OriginModel,
    seed: Seed,
) -> Result<Vec<StrategyFigures>, InvalidStrategy> {
    let figures = candidates.iter().map(|candidate| {
        let strategy = candidate.strategy(recommendation, busiest.sampled_share);
        run_one(busiest, candidate.name(), strategy, origin, seed)
    });
    figures.collect()
}

/// The state that the requests of one run share.
struct Simulation {
    time: Virtual,
    tally: Mutex<Tally>,
    queue: Mutex<QueueModel>,
    latency: Latency,
    outage_ns: Range<u64>,
    seed: Seed,
}

#[derive(Default)]
struct Tally {
    outcomes: Outcomes,
    errors_in_outage: u64,
    errors_elsewhere: u64,
    loads: u64,
    loads_per_s: Peaks,
    response: Histogram,
    age_max: Duration,
    in_flight: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulation {
    /// Waits as long as the origin takes.
    async fn load(self: Arc<Self>, bytes: u32) -> Result<u32, OriginError> {
        let now = self.time.now();
        let number = {
            let mut tally = locked(&self.tally);
            tally.loads += 1;
            tally.loads_per_s.add(now.as_nanos());
            tally.loads
        };
        let latency = self.latency.draw(&mut self.seed.nth(number));
        let ends = locked(&self.queue).admit(now, |_| latency).map_err(|_| OriginError::Overloaded)?;
        self.time.sleep_until(ends).await;
        if self.outage_ns.contains(&now.as_nanos()) { Err(OriginError::Down) } else { Ok(bytes) }
    }

    /// The answer to a request whose response is not stored: what is stored, else a load of its own.
    async fn pass(
        self: Arc<Self>,
        cache: &Cache<Key, u32, Virtual>,
        request: Request,
    ) -> Result<(Outcome, Duration), OriginError> {
        let key = request.key();
        if request.exchange().is_lookup() && cache.get(&key).is_some() {
            let age = cache.peek(&key).map_or(Duration::ZERO, |stored| stored.age);
            return Ok((Outcome::Hit, age));
        }
        self.load(request.bytes).await?;
        if request.exchange() == Exchange::Write {
            cache.invalidate(&key, Invalidation::Fallback);
        }
        Ok((Outcome::Bypass, Duration::ZERO))
    }

    async fn request(self: Arc<Self>, cache: Arc<Cache<Key, u32, Virtual>>, request: Request) {
        let began = self.time.now();
        let simulation = Arc::clone(&self);
        let answer = if request.exchange().is_storable() {
            let answer = cache.get_with(request.key(), move || simulation.load(request.bytes)).await;
            answer.map(|answer| (answer.outcome, answer.age)).ok()
        } else {
            simulation.pass(&cache, request).await.ok()
        };
        let mut tally = locked(&self.tally);
        tally.in_flight -= 1;
        tally.response.record(self.time.now() - began);
        match answer {
            Some((outcome, age)) => {
                tally.outcomes.record(outcome);
                tally.age_max = tally.age_max.max(age);
            }
            None => {
                tally.outcomes.record(Outcome::Error);
                if self.outage_ns.contains(&began.as_nanos()) {
                    tally.errors_in_outage += 1;
                } else {
                    tally.errors_elsewhere += 1;
                }
            }
        }
    }
}

fn run_one(
    busiest: &BusiestRequests,
    name: &str,
    strategy: Strategy,
    origin: &OriginModel,
    seed: Seed,
) -> Result<StrategyFigures, InvalidStrategy> {
    let time = Virtual::new();
    let weigh = |_: &Key, bytes: &u32| *bytes as usize + OVERHEAD_BYTES as usize;
    let cache = Arc::new(Cache::builder(strategy).weigh(weigh).build_on(time.clone(), seed.child("cache"))?);
    let simulation = Arc::new(Simulation {
        time: time.clone(),
        tally: Mutex::default(),
        queue: Mutex::new(QueueModel::new(origin.capacity)),
        latency: origin.latency.clone(),
        outage_ns: busiest.outage_ns.clone(),
        seed: seed.child("latency"),
    });
    let all = async {
        for request in &busiest.requests {
            time.sleep_until(Time::from_nanos(request.at_ns)).await;
            locked(&simulation.tally).in_flight += 1;
            time.spawn(Arc::clone(&simulation).request(Arc::clone(&cache), *request));
        }
        while locked(&simulation.tally).in_flight > 0 {
            time.sleep_until(time.now() + POLL_INTERVAL).await;
        }
        cache.wait_idle().await;
    };
    // A timer is always set, so that the run cannot stall.
    let _ = time.run(all);
    let tally = std::mem::take(&mut *locked(&simulation.tally));
    Ok(StrategyFigures {
        name: name.to_owned(),
        outcomes: tally.outcomes,
        errors_in_outage: tally.errors_in_outage,
        errors_elsewhere: tally.errors_elsewhere,
        loads: tally.loads,
        loads_per_s_max: tally.loads_per_s.in_second(),
        response: tally.response,
        age_max: tally.age_max,
    })
}

#[cfg(test)]
mod tests;
