//! The clock of an agent, as seen from the coordinator. Pure, apart from [`AgentClock`].
//!
//! A reading of the agent's clock arrives between two readings of the coordinator's. It was taken at some moment in between, so half of
//! the round trip bounds the error of taking the middle (Cristian 1989). The shortest round trips have the smallest error.

use std::time::{Duration, Instant, SystemTime};

use stockade_record::record::AgentClockFigures;

/// Nanoseconds since 1970 by a clock that is never set: the time of day at the start of its process, and the monotonic time since.
pub(crate) type Nanos = i64;

/// The time since 1970, or between two readings; none if that is negative.
pub(crate) fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

/// The clock of this process.
#[derive(Clone, Copy, Debug)]
pub struct AgentClock {
    started: Instant,
    nanos_at_start: Nanos,
    /// Parts per million by which it is fast.
    drift_ppm: f64,
}

/// How often the system's clock is read at the start. The quickest reading counts.
const READINGS: usize = 5;

impl AgentClock {
    /// A clock that shows the time of day.
    #[must_use]
    pub fn new() -> Self {
        Self::with_error(0, 0.0)
    }

    /// A clock that is wrong by this much, for tests: it is ahead by `offset_nanos` at first, and fast by `drift_ppm` parts per million.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn with_error(offset_nanos: i64, drift_ppm: f64) -> Self {
        // The thread may lose its core between two readings.
        let readings = (0..READINGS).map(|_| {
            let started = Instant::now();
            let shown = SystemTime::now();
            (started.elapsed(), started, shown)
        });
        let (_, started, shown) =
            readings.min_by_key(|(took, ..)| *took).unwrap_or_else(|| unreachable!("there are some"));
        let since = shown.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let nanos = Nanos::try_from(since.as_nanos()).unwrap_or(Nanos::MAX);
        Self { started, nanos_at_start: nanos.saturating_add(offset_nanos), drift_ppm }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub(crate) fn now(&self) -> Nanos {
        self.at(Instant::now())
    }

    fn at(&self, instant: Instant) -> Nanos {
        let elapsed = instant.saturating_duration_since(self.started).as_nanos() as f64;
        #[expect(clippy::cast_possible_truncation, reason = "a run is shorter than 292 years")]
        let shown = (elapsed * (1.0 + self.drift_ppm / 1e6)) as Nanos;
        self.nanos_at_start.saturating_add(shown)
    }

    /// The time that is left until the clock shows `then`; none if it has passed.
    #[must_use]
    pub(crate) fn until(&self, then: Nanos) -> Duration {
        duration(then.saturating_sub(self.now())).div_f64(1.0 + self.drift_ppm / 1e6)
    }
}

impl Default for AgentClock {
    fn default() -> Self {
        Self::new()
    }
}

/// A reading of an agent's clock, between two readings of the coordinator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ping {
    pub(crate) sent: Nanos,
    pub(crate) agent: Nanos,
    pub(crate) received: Nanos,
}

impl Ping {
    fn round_trip(&self) -> Nanos {
        self.received.saturating_sub(self.sent)
    }

    /// By the coordinator's clock, about.
    fn at(&self) -> Nanos {
        self.sent.saturating_add(self.round_trip() / 2)
    }

    fn offset(&self) -> Nanos {
        self.agent.saturating_sub(self.at())
    }
}

/// Readings that are further apart than this tell the drift.
const DRIFT_SPAN: Nanos = 1_000_000_000;
/// No working clock drifts more (crystals: 0.0001).
const DRIFT_MAX: f64 = 0.0005;
/// Nanoseconds that are lost to rounding at most.
const ROUNDING: f64 = 5.0;
/// The readings of this time are one estimate: the one with the shortest round trip stands for all.
const WINDOW: Nanos = 1_000_000_000;

/// The offset and the drift of an agent's clock, from pings.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockEstimate {
    /// The shortest round trip of each window, in order.
    best: Vec<Ping>,
    /// The window of the last one.
    window: Nanos,
    /// The number of readings.
    count: usize,
}

impl ClockEstimate {
    pub(crate) fn add(&mut self, ping: Ping) {
        if ping.received < ping.sent {
            return;
        }
        self.count += 1;
        let window = ping.sent / WINDOW;
        match self.best.last_mut() {
            Some(best) if window == self.window => {
                if ping.round_trip() < best.round_trip() {
                    *best = ping;
                }
            }
            _ => self.best.push(ping),
        }
        self.window = window;
    }

    /// The number of readings.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The agent's time at `then` of the coordinator's clock.
    pub(crate) fn to_agent(&self, then: Nanos) -> Option<Nanos> {
        let (offset, _) = self.offset_at(then)?;
        Some(then.saturating_add(offset))
    }

    /// The figures at the start of the load.
    pub(crate) fn figures(&self, start: Nanos) -> Option<AgentClockFigures> {
        let (offset, uncertainty) = self.offset_at(start)?;
        Some(AgentClockFigures {
            offset_ms: offset as f64 / 1e6,
            drift_ppm: self.drift().map(|(drift, _)| drift * 1e6),
            uncertainty_ms: uncertainty as f64 / 1e6,
        })
    }

    /// The offset at a time of the coordinator's clock, and the bound on its error.
    ///
    /// Each reading bounds the offset: its own, plus or minus half of its round trip and what a clock may drift until `then`. The smallest
    /// bound is taken.
    fn offset_at(&self, then: Nanos) -> Option<(Nanos, Nanos)> {
        let (drift, drift_error) = self.drift().unwrap_or((0.0, DRIFT_MAX));
        let bound = |ping: &Ping| {
            let distance = then.saturating_sub(ping.at()) as f64;
            let error = ROUNDING + ping.round_trip() as f64 / 2.0 + distance.abs() * drift_error;
            (ping.offset() as f64 + distance * drift, error)
        };
        let best = self.best.iter().map(bound).min_by(|a, b| a.1.total_cmp(&b.1))?;
        #[expect(clippy::cast_possible_truncation, reason = "a float saturates")]
        Some((best.0.round() as Nanos, best.1.ceil() as Nanos))
    }

    /// The slope between the two drift pings, and the bound on its error. `None`: it is known no better than that of any
    /// clock.
    fn drift(&self) -> Option<(f64, f64)> {
        let (first, last) = self.drift_pings()?;
        let span = last.at().saturating_sub(first.at()) as f64;
        let drift = last.offset().saturating_sub(first.offset()) as f64 / span;
        let error = first.round_trip().saturating_add(last.round_trip()) as f64 / 2.0 / span;
        (error < DRIFT_MAX).then_some((drift, error))
    }

    /// The shortest round trip of the first third of the windows, and that of the last third. `None`: they are less than
    /// [`DRIFT_SPAN`] apart.
    fn drift_pings(&self) -> Option<(&Ping, &Ping)> {
        let third = self.best.len().div_ceil(3);
        let shortest = |pings: &'_ [Ping]| {
            pings.iter().enumerate().min_by_key(|(_, ping)| ping.round_trip()).map(|(at, _)| at)
        };
        let first = &self.best[shortest(self.best.get(..third)?)?];
        let last_third_start = self.best.len() - third;
        let last = &self.best[last_third_start + shortest(&self.best[last_third_start..])?];
        (last.at().saturating_sub(first.at()) >= DRIFT_SPAN).then_some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    /// Pings to a clock that is ahead by `offset` at 0 and fast by `drift`, with these delays there and back.
    fn estimate(offset: Nanos, drift_ppm: f64, delays: &[(Nanos, Nanos)], every: Nanos) -> ClockEstimate {
        let mut estimate = ClockEstimate::default();
        for (index, (there, back)) in (0..).zip(delays) {
            let sent = index * every;
            estimate.add(Ping {
                sent,
                agent: shown(offset, drift_ppm, sent + there),
                received: sent + there + back,
            });
        }
        estimate
    }

    #[expect(clippy::cast_possible_truncation)]
    fn shown(offset: Nanos, drift_ppm: f64, at: Nanos) -> Nanos {
        at + offset + (at as f64 * drift_ppm / 1e6) as Nanos
    }

    proptest! {
        #[test]
        fn true_offset_is_within_the_stated_bound(
            offset in -5_000 * MS..5_000 * MS,
            drift_ppm in -200.0..200.0_f64,
            delays in prop::collection::vec((20_000..3 * MS, 20_000..3 * MS), 1..60),
            every in (20 * MS)..(400 * MS),
            then in 0..30_000 * MS,
        ) {
            let estimate = estimate(offset, drift_ppm, &delays, every);
            let (found, error) = estimate.offset_at(then).unwrap();
            let truth = shown(offset, drift_ppm, then) - then;
            prop_assert!((found - truth).abs() <= error + 2, "{found} is not {truth} to {error}");
        }
    }

    #[test]
    fn short_round_trips_count_and_long_ones_do_not() {
        let mut delays = vec![(40 * MS, 100_000); 100];
        for at in [3, 50, 97] {
            delays[at] = (60_000, 40_000);
        }
        let estimate = estimate(5_000 * MS, 200.0, &delays, 100 * MS);
        let figures = estimate.figures(300 * MS).unwrap();
        assert!((figures.offset_ms - 5_000.06).abs() < 0.02, "{figures:?}");
        assert!(figures.uncertainty_ms < 0.06, "{figures:?}");
        assert!((figures.drift_ppm.unwrap() - 200.0).abs() < 5.0, "{figures:?}");
    }

    #[test]
    fn few_readings_have_no_drift_and_none_have_no_offset() {
        let figures = estimate(7 * MS, 0.0, &[(50_000, 50_000); 4], MS).figures(0).unwrap();
        assert_eq!((figures.offset_ms, figures.drift_ppm), (7.0, None));
        assert_eq!(ClockEstimate::default().figures(0), None);
    }

    #[test]
    fn wrong_clock_shows_and_maps_its_own_time() {
        let clock = AgentClock::with_error(-5_000_000_000, 200.0);
        let right = AgentClock::new();
        let ahead = right.now() - clock.now();
        assert!((ahead - 5_000_000_000).abs() < 100 * MS, "{ahead}");
        let then = clock.at(clock.started + Duration::from_secs(100));
        assert_eq!(then - clock.nanos_at_start, 100_020_000_000);
        let left = clock.until(then);
        assert!(left <= Duration::from_secs(100) && left > Duration::from_secs(90), "{left:?}");
        assert_eq!(clock.until(clock.nanos_at_start - 1), Duration::ZERO);
    }
}
