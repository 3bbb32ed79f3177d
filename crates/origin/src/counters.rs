//! Counters of one route's responses, and gauges of the whole origin.

use std::{
    array,
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use http::StatusCode;

use crate::stages::{FAULTS, Fault};

/// Statuses of recipes and of the origin itself.
const STATUSES: RangeInclusive<u16> = 200..=599;

#[derive(Debug)]
pub(crate) struct RouteCounters {
    /// By status, from the first of [`STATUSES`].
    statuses: [AtomicU64; 400],
    /// In the order of [`FAULTS`].
    faults: [AtomicU64; FAULTS.len()],
    rejected: AtomicU64,
    abandoned: AtomicU64,
}

/// Values of [`RouteCounters`] at one moment. Statuses and faults without a request are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterValues {
    /// Responses by status, including the 503 of full queues.
    pub(crate) statuses: Vec<(u16, u64)>,
    /// Requests by the fault that they met.
    pub(crate) faults: Vec<(&'static str, u64)>,
    /// Requests answered 503 because the queue was full.
    pub(crate) rejected: u64,
    /// Requests whose client disconnected before the response.
    pub(crate) abandoned: u64,
}

/// A current value and its maximum.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    current: AtomicU64,
    max: AtomicU64,
}

impl Default for RouteCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            statuses: array::from_fn(|_| zero()),
            faults: array::from_fn(|_| zero()),
            rejected: zero(),
            abandoned: zero(),
        }
    }
}

impl RouteCounters {
    pub(crate) fn record_status(&self, status: StatusCode) {
        let index = status.as_u16().checked_sub(*STATUSES.start()).map(usize::from);
        if let Some(counter) = index.and_then(|index| self.statuses.get(index)) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn record_fault(&self, fault: Fault) {
        if let Some(index) = FAULTS.iter().position(|(_, known)| *known == fault) {
            self.faults[index].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn record_rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    pub(crate) fn record_abandoned(&self) {
        self.abandoned.fetch_add(1, Relaxed);
    }

    pub(crate) fn values(&self) -> CounterValues {
        let above_zero = |counter: &AtomicU64| Some(counter.load(Relaxed)).filter(|count| *count > 0);
        let statuses =
            STATUSES.zip(&self.statuses).filter_map(|(code, counter)| Some((code, above_zero(counter)?)));
        let faults = FAULTS
            .iter()
            .zip(&self.faults)
            .filter_map(|((name, _), counter)| Some((*name, above_zero(counter)?)));
        CounterValues {
            statuses: statuses.collect(),
            faults: faults.collect(),
            rejected: self.rejected.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
        }
    }

    pub(crate) fn clear(&self) {
        for counter in self.statuses.iter().chain(&self.faults).chain([&self.rejected, &self.abandoned]) {
            counter.store(0, Relaxed);
        }
    }
}

impl CounterValues {
    /// All requests but the abandoned ones; the rejected ones are among the statuses.
    pub(crate) fn total_without_abandoned(&self) -> u64 {
        let statuses = self.statuses.iter().map(|(_, count)| count);
        statuses.chain(self.faults.iter().map(|(_, count)| count)).sum()
    }
}

impl Gauge {
    pub(crate) fn increment(&self) {
        let current = self.current.fetch_add(1, Relaxed) + 1;
        // A read in most cases: a write would take the cache line away from the other cores.
        if current > self.max.load(Relaxed) {
            self.max.fetch_max(current, Relaxed);
        }
    }

    pub(crate) fn decrement(&self) {
        self.current.fetch_sub(1, Relaxed);
    }

    pub(crate) fn current(&self) -> u64 {
        self.current.load(Relaxed)
    }

    /// Largest value since the last [`Gauge::clear_max`].
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    pub(crate) fn clear_max(&self) {
        self.max.store(self.current(), Relaxed);
    }
}
