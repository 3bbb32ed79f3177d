//! A fleet as a target: seconds and figures from the counts of a simulation.

use std::{collections::BTreeMap, num::NonZeroUsize, thread, time::Duration};

use stockade_cache::{RequestStats, StoreStats};
use stockade_model::{
    outcome::Outcomes,
    units::{milliseconds, stretched},
};
use stockade_record::record::{Calls, EventFigures, Extremes, LoadFigures, OpenFigures, Times};

use super::{
    Fleet, FleetEvent,
    simulate::simulate,
    tally::{FleetTally, OUTCOMES, SecondCounts},
};
use crate::{
    engine::TrafficLimitError,
    target::{
        CacheCounters, Environment, Facts, MeasureContext, Measurement, OpenSecond, ScaledDimension, Second,
        Target, TargetError,
    },
};

impl Target for Fleet {
    fn facts(&self) -> Facts {
        let (duration, requests_max) = (self.schedule.duration(), self.schedule.requests_max());
        Facts { duration: Some(duration), requests_max: Some(requests_max), ..Facts::default() }
    }

    fn check(&self, _: &Environment) -> Result<(), TargetError> {
        Ok(())
    }

    /// The seconds are known when all partitions are simulated: the sink receives them at the end.
    fn measure(
        &self,
        _: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        let MeasureContext { seed, cancel, sink, .. } = context;
        let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let Some(tally) = simulate(self, seed, threads, cancel) else { return Ok(None) };
        tally.seconds().filter(|second| !second.is_empty()).for_each(sink);
        Ok(Some(self.measurement(&tally)))
    }

    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        if dimension == ScaledDimension::LoadDuration {
            self.schedule = self.schedule.stretched(factor);
            self.events.iter_mut().for_each(|event| event.at = stretched(event.at, factor));
        }
        self.check_schedule()
    }
}

impl Fleet {
    /// Refuses a load that is too long, too large or empty.
    pub fn check_schedule(&self) -> Result<(), TrafficLimitError> {
        self.schedule.check()?;
        if self.schedule.duration() > Self::DURATION_MAX {
            Err(TrafficLimitError::FleetTooLong)
        } else {
            Ok(())
        }
    }

    fn measurement(&self, tally: &FleetTally) -> Measurement {
        let counts = &tally.counts;
        let outcomes = tally.outcomes();
        let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let extremes = |(min, max)| Extremes {
            min_ms: milliseconds(tally.duration(min)),
            max_ms: milliseconds(tally.duration(max)),
        };
        let open = OpenFigures {
            strategy: self.name.clone(),
            schedule: self.schedule.to_string(),
            duration_ms: milliseconds(self.schedule.duration()),
            documents: Some(whole(self.keys)),
            distinct_keys: Some(whole(counts.distinct_keys)),
            finished_ms: milliseconds(tally.duration(tally.finished)),
            calls: Calls { fetch_doc: counts.loads, store_local: counts.loads, store_local_async: 0 },
            waiters: whole(counts.waiters),
            response: tally.response.map(extremes),
            retries: 0,
            dropped: 0,
            in_flight_max: whole(tally.in_flight_max()),
            source_concurrent_max: Some(whole(tally.loads_in_flight_max())),
            audit: None,
        };
        let requests = RequestStats {
            stale: outcomes.stale,
            coalesced: outcomes.coalesced,
            misses: outcomes.miss,
            waiters: counts.waiters,
            refreshes_early: counts.refreshes_early,
            refreshes_swr: counts.refreshes_swr,
            loads: counts.loads,
            loads_answered: counts.loads,
            shared_hits: counts.shared_hits,
            shared_misses: counts.shared_misses,
            shared_waits: counts.shared_waits,
            shared_stores: self.tier.as_ref().map_or(0, |_| counts.loads),
            episodes: counts.episodes,
            stores_sync: counts.loads,
            ..RequestStats::default()
        };
        let store = StoreStats {
            stores: counts.loads + counts.shared_hits,
            invalidated: counts.invalidated,
            evicted_size: counts.evicted,
            entries: counts.entries,
            ..StoreStats::default()
        };
        Measurement {
            load: LoadFigures::Open(open),
            whole_ms_sum: None,
            outcomes,
            bytes_in: 0,
            service_sum: tally.waited(),
            counters: CacheCounters { requests, store },
            peak_bytes: None,
            errors: BTreeMap::new(),
            events: self.events.iter().map(FleetEvent::figures).collect(),
            http: None,
        }
    }
}

impl FleetEvent {
    fn figures(&self) -> EventFigures {
        EventFigures {
            at_ms: milliseconds(self.at),
            took_ms: 0.0,
            event: self.kind.to_string(),
            failed: None,
        }
    }
}

impl FleetTally {
    /// All requests.
    fn outcomes(&self) -> Outcomes {
        let mut all = Outcomes::default();
        self.seconds.iter().for_each(|second| all += second.outcomes());
        all
    }

    /// The seconds of the load, in order.
    pub(super) fn seconds(&self) -> impl Iterator<Item = Second> {
        (0..).zip(&self.seconds).map(|(second, counts)| Second {
            second,
            outcomes: counts.outcomes(),
            times: self.times(counts),
            open: Some(OpenSecond { source_loads: Some(counts.source_loads), ..OpenSecond::default() }),
            ..Second::default()
        })
    }

    fn times(&self, second: &SecondCounts) -> Times {
        let mut times = Times::default();
        let at_once = second.at_once.iter().sum();
        times.send_lag.record_many(Duration::ZERO, second.outcomes().requests());
        times.response.record_many(Duration::ZERO, at_once);
        self.waits(second).for_each(|(wait, count)| times.response.record_many(wait, count));
        times.service = times.response.clone();
        times
    }
}

impl SecondCounts {
    fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        let counts = self.at_once.iter().zip(&self.waited);
        for (outcome, (at_once, waited)) in OUTCOMES.into_iter().zip(counts) {
            *outcomes.of_mut(outcome) += at_once + waited;
        }
        outcomes
    }
}
