//! The plan of a load: open and closed phases in sequence.
//!
//! An open phase is a [`Step`], whose requests are due whatever became of earlier ones. A closed phase is a
//! [`ClosedLoop`], whose connections wait for each response. A [`Plan`] joins consecutive open phases into one
//! [`Schedule`], so it consists of [`Segment`]s.

mod file;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_model::{
    latency::Latency,
    units::{format_count, format_span},
};

pub use file::{PlanError, PlanFileError};

use crate::schedule::{Rate, Schedule, ScheduleLimitError, Step};

/// Segments in sequence, with an optional warm-up.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::plan::{Segment, Plan};
///
/// let plan = Plan::parse("plan.toml", r#"
///     [[phase]]
///     ramp = { from = "0/s", to = "1000/s" }
///     for = "30s"
///     [[phase]]
///     burst = 5_000
///     [[phase]]
///     connections = 64
///     for = "10s"
/// "#)?;
/// assert_eq!(plan.to_string(), "30s from 0/s to 1000/s, 5000 at once; 64 connections for 10s");
/// assert!(matches!(plan.segments(), [Segment::Open(_), Segment::Closed(_)]));
/// assert_eq!((plan.duration(), plan.requests()), (Some(Duration::from_secs(40)), None));
/// # Ok::<(), Box<stockade_load::plan::PlanError>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    segments: Vec<Segment>,
    warmup: Duration,
    requests_max: Option<u64>,
}

/// A segment of a plan. It starts when the previous one is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Segment {
    /// Requests are due by a schedule.
    Open(Schedule),
    /// Requests follow responses.
    Closed(ClosedLoop),
}

/// A phase of a plan file. Consecutive open phases become one segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// A step of an open load.
    Open(Step),
    /// A closed loop.
    Closed(ClosedLoop),
}

/// Connections. Each sends a request, waits for the response, pauses, and repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClosedLoop {
    /// The number of connections.
    pub connections: usize,
    /// The pause between a response and the next request; none by default.
    pub think_time: Latency,
    /// When the connections stop.
    pub end: EndCondition,
}

/// When a closed loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndCondition {
    /// After this time.
    Duration(Duration),
    /// After this number of requests of all connections together.
    Requests(u64),
    /// After the time or the requests, whichever comes first.
    FirstOf(Duration, u64),
}

impl EndCondition {
    /// The bound on time, if there is one.
    #[must_use]
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::Duration(duration) | Self::FirstOf(duration, _) => Some(duration),
            Self::Requests(_) => None,
        }
    }

    /// The bound on requests, if there is one.
    #[must_use]
    pub const fn requests(self) -> Option<u64> {
        match self {
            Self::Requests(requests) | Self::FirstOf(_, requests) => Some(requests),
            Self::Duration(_) => None,
        }
    }

    /// Adds a bound on requests.
    #[must_use]
    pub fn with_requests_max(self, requests_max: u64) -> Self {
        match self {
            Self::Duration(duration) => Self::FirstOf(duration, requests_max),
            Self::Requests(requests) => Self::Requests(requests.min(requests_max)),
            Self::FirstOf(duration, requests) => Self::FirstOf(duration, requests.min(requests_max)),
        }
    }
}

impl ClosedLoop {
    /// A closed loop without think time.
    #[must_use]
    pub fn new(connections: usize, end: EndCondition) -> Self {
        Self { connections, think_time: Latency::default(), end }
    }
}

impl Segment {
    /// The longest duration, if it is known.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        match self {
            Self::Open(schedule) => (!schedule.ends_by_chance()).then(|| schedule.duration()),
            Self::Closed(closed) => closed.end.duration(),
        }
    }

    /// The number of requests, if it is known: the most of a closed loop, the mean of a Poisson process, else exact.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        match self {
            Self::Open(schedule) => Some(schedule.requests()),
            Self::Closed(closed) => closed.end.requests(),
        }
    }

    fn with_requests_max(self, requests_max: u64) -> Self {
        match self {
            Self::Open(schedule) => Self::Open(schedule.with_requests_max(requests_max)),
            Self::Closed(closed) => {
                Self::Closed(ClosedLoop { end: closed.end.with_requests_max(requests_max), ..closed })
            }
        }
    }

    /// True if it can have no request.
    fn is_empty(&self) -> bool {
        match self {
            Self::Open(schedule) => schedule.requests() == 0,
            Self::Closed(closed) => {
                closed.connections == 0
                    || closed.end.requests() == Some(0)
                    || closed.end.duration() == Some(Duration::ZERO)
            }
        }
    }
}

impl Plan {
    /// Phases in sequence.
    pub fn new(phases: Vec<Phase>) -> Result<Self, ScheduleLimitError> {
        let mut segments = Vec::new();
        let mut steps = Vec::new();
        for phase in phases {
            match phase {
                Phase::Open(step) => steps.push(step),
                Phase::Closed(closed) => {
                    segments.extend(open_segment(&mut steps));
                    segments.push(Segment::Closed(closed));
                }
            }
        }
        segments.extend(open_segment(&mut steps));
        let plan = Self { segments, warmup: Duration::ZERO, requests_max: None };
        plan.check()?;
        Ok(plan)
    }

    /// One open segment.
    pub fn open_loop(schedule: Schedule) -> Result<Self, ScheduleLimitError> {
        schedule.check()?;
        let warmup = schedule.warmup();
        Ok(Self { segments: vec![Segment::Open(schedule)], warmup, requests_max: None })
    }

    /// A constant rate.
    pub fn constant(rate: Rate, duration: Duration) -> Result<Self, ScheduleLimitError> {
        Self::new(vec![Phase::Open(Step::steady(rate, duration))])
    }

    /// A constant rate, for a number of requests.
    pub fn fixed_count(rate: Rate, requests: u64) -> Result<Self, ScheduleLimitError> {
        Self::constant(rate, rate.due(requests))
    }

    /// Requests that are all due at once.
    pub fn burst(requests: u64) -> Result<Self, ScheduleLimitError> {
        Self::new(vec![Phase::Open(Step::burst(requests))])
    }

    /// Recorded due times; see [`Step::replay`].
    pub fn replay(due: impl Into<Arc<[Duration]>>) -> Result<Self, ScheduleLimitError> {
        Self::new(vec![Phase::Open(Step::replay(due))])
    }

    /// One closed loop.
    pub fn closed_loop(closed: ClosedLoop) -> Result<Self, ScheduleLimitError> {
        Self::new(vec![Phase::Closed(closed)])
    }

    /// Ends the plan after this number of requests, not counting those of a warm-up.
    ///
    /// The bound also holds for each segment. A caller that runs segments one by one subtracts what has been sent from
    /// [`requests_max`](Self::requests_max).
    #[must_use]
    pub fn with_requests_max(mut self, requests_max: u64) -> Self {
        let requests_max = self.requests_max.map_or(requests_max, |known| known.min(requests_max));
        let segments = self.segments.into_iter();
        self.segments = segments.map(|segment| segment.with_requests_max(requests_max)).collect();
        Self { requests_max: Some(requests_max), ..self }
    }

    /// Replaces the warm-up by one of this duration, which is not measured: an open segment at its first rate, or the start
    /// of a closed loop. `None` if the plan starts with open phases that have no rate.
    #[must_use]
    pub fn with_warmup(mut self, duration: Duration) -> Option<Self> {
        // A closed loop needs no warm-up step of its own: its first part is the warm-up.
        if let Some(Segment::Open(schedule)) = self.segments.first_mut() {
            *schedule = schedule.clone().with_warmup(duration)?;
        }
        Some(Self { warmup: duration, ..self })
    }

    /// The warm-up that precedes the duration of a closed loop.
    fn closed_warmup(&self) -> Duration {
        match self.segments.first() {
            Some(Segment::Closed(_)) => self.warmup,
            Some(Segment::Open(_)) | None => Duration::ZERO,
        }
    }

    /// The segments in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// A segment with at most `left` requests; none if the plan is over.
    #[cfg(feature = "http")]
    pub(crate) fn segment_within(
        &self,
        index: usize,
        left: Option<u64>,
    ) -> Option<std::borrow::Cow<'_, Segment>> {
        let segment = self.segments.get(index)?;
        match left {
            Some(0) => None,
            Some(left) if index > 0 => Some(std::borrow::Cow::Owned(segment.clone().with_requests_max(left))),
            _ => Some(std::borrow::Cow::Borrowed(segment)),
        }
    }

    /// The duration of the warm-up. Requests due later are measured.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        self.warmup
    }

    /// The bound on measured requests over all segments.
    #[must_use]
    pub fn requests_max(&self) -> Option<u64> {
        self.requests_max
    }

    /// The longest duration, warm-up included, if it is known.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let warmup = self.closed_warmup();
        self.segments.iter().try_fold(warmup, |all, segment| Some(all.saturating_add(segment.duration()?)))
    }

    /// The number of requests, warm-up included, if it is known; see [`Segment::requests`].
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        let all = self
            .segments
            .iter()
            .try_fold(0, |all: u64, segment| Some(all.saturating_add(segment.requests()?)))?;
        let warmup = match self.segments.first() {
            Some(Segment::Open(schedule)) => schedule.warmup_requests(),
            Some(Segment::Closed(_)) | None => 0,
        };
        Some(self.requests_max.map_or(all, |max| all.min(warmup.saturating_add(max))))
    }

    /// The expected requests between two times since the start; `None` if a closed loop sends some of them, or if the start of a
    /// segment is not known. The bound on requests is not applied.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stockade_load::plan::Plan;
    ///
    /// let plan = Plan::parse("plan.toml", r#"
    ///     [[phase]]
    ///     rate = "7/s"
    ///     for = "2s"
    ///     [[phase]]
    ///     burst = 50
    ///     [[phase]]
    ///     rate = "9/s"
    ///     for = "2s"
    ///     [[phase]]
    ///     connections = 4
    ///     for = "2s"
    /// "#)?;
    /// let second = |n| plan.expected_requests(Duration::from_secs(n), Duration::from_secs(n + 1)).map(f64::round);
    /// assert_eq!([0, 1, 2, 3, 4].map(second), [Some(7.0), Some(7.0), Some(59.0), Some(9.0), None]);
    /// # Ok::<(), Box<stockade_load::plan::PlanError>>(())
    /// ```
    #[must_use]
    pub fn expected_requests(&self, from: Duration, to: Duration) -> Option<f64> {
        let (mut start, mut expected) = (self.closed_warmup(), 0.0);
        for segment in &self.segments {
            if start >= to {
                break;
            }
            let end = segment.duration().map(|duration| start.saturating_add(duration));
            match segment {
                Segment::Open(schedule) => {
                    let before = |time: Duration| schedule.expected_before(time.saturating_sub(start));
                    expected += before(to) - before(from);
                }
                Segment::Closed(_) if end.is_some_and(|end| end <= from) => {}
                Segment::Closed(_) => return None,
            }
            start = end?;
        }
        Some(expected)
    }

    /// The highest rate of open segments; see [`Schedule::peak_per_second`]. 0 without open segments.
    #[must_use]
    pub fn peak_per_second(&self) -> f64 {
        let peak = |segment: &Segment| match segment {
            Segment::Open(schedule) => schedule.peak_per_second(),
            Segment::Closed(_) => 0.0,
        };
        self.segments.iter().map(peak).fold(0.0, f64::max)
    }

    /// The most connections of a closed loop; 0 without a closed loop.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        let connections = |segment: &Segment| match segment {
            Segment::Open(_) => 0,
            Segment::Closed(closed) => closed.connections,
        };
        self.segments.iter().map(connections).max().unwrap_or_default()
    }

    /// The most requests of a burst; 0 without a burst.
    #[must_use]
    pub fn burst_max(&self) -> u64 {
        let burst = |segment: &Segment| match segment {
            Segment::Open(schedule) => schedule.burst_max(),
            Segment::Closed(_) => 0,
        };
        self.segments.iter().map(burst).max().unwrap_or_default()
    }

    /// Checks the limits on requests and duration.
    pub(crate) fn check(&self) -> Result<(), ScheduleLimitError> {
        if self.segments.iter().all(Segment::is_empty) {
            return Err(ScheduleLimitError::NoRequests);
        }
        let requests = self.segments.iter().filter_map(Segment::requests).fold(0, u64::saturating_add);
        let duration =
            self.segments.iter().filter_map(Segment::duration).fold(Duration::ZERO, Duration::saturating_add);
        // A closed loop with a bound on time has an unknown number of requests, at least one.
        ScheduleLimitError::check(requests.max(1), duration)
    }
}

/// Takes the steps as a segment, if there are any.
fn open_segment(steps: &mut Vec<Step>) -> Option<Segment> {
    (!steps.is_empty()).then(|| Segment::Open(Schedule::new(std::mem::take(steps))))
}

/// `60s at 425/s; 64 connections for 10s, each thinking 10ms..50ms`
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = self.segments.len() == 1;
        for (index, segment) in self.segments.iter().enumerate() {
            write!(f, "{}{segment}", if index == 0 { "" } else { "; " })?;
            if index == 0 && !self.closed_warmup().is_zero() {
                write!(f, ", after {} to warm up", format_span(self.warmup))?;
            }
        }
        match self.requests_max {
            Some(max) if !is_one => write!(f, "; {} requests in all at most", format_count(max)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(schedule) => schedule.fmt(f),
            Self::Closed(closed) => closed.fmt(f),
        }
    }
}

impl fmt::Display for ClosedLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, think_time, end } = self;
        let plural = if *connections == 1 { "" } else { "s" };
        write!(f, "{connections} connection{plural} {end}")?;
        match think_time.constant() {
            Some(Duration::ZERO) => Ok(()),
            _ => write!(f, ", each thinking {think_time}"),
        }
    }
}

/// `for 60s`, `until 1000 requests`
impl fmt::Display for EndCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(duration) => write!(f, "for {}", format_span(*duration)),
            Self::Requests(1) => f.write_str("until 1 request"),
            Self::Requests(requests) => write!(f, "until {requests} requests"),
            Self::FirstOf(duration, requests) => {
                write!(f, "for {} or {requests} requests", format_span(*duration))
            }
        }
    }
}

#[cfg(test)]
mod tests;
