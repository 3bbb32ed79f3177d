//! What `stockade load` does, one thing after the other.
//!
//! A [`Plan`] is made of [`Phase`]s. A phase is a [`Step`] of an open load, whose requests are due whatever
//! became of those before, or a [`Closed`] loop, whose connections wait for each answer. Open phases that
//! follow each other are one [`Schedule`].

mod file;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use stockade_model::{
    latency::Latency,
    units::{format_count, format_span},
};

pub use file::{PlanError, ReadError};

use crate::schedule::{Beyond, Rate, Schedule, Step};

/// What is to be done, one part after the other.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::plan::{Part, Plan};
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
/// assert!(matches!(plan.parts(), [Part::Open(_), Part::Closed(_)]));
/// assert_eq!((plan.lasts(), plan.requests()), (Some(Duration::from_secs(40)), None));
/// # Ok::<(), Box<stockade_load::plan::PlanError>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    parts: Vec<Part>,
    warmup: Duration,
    most: Option<u64>,
}

/// A part of a plan: it begins when the one before is over.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Requests come when they are due.
    Open(Schedule),
    /// Requests come when there was an answer.
    Closed(Closed),
}

/// As a file has it: open phases that follow each other become one part.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// A step of an open load.
    Open(Step),
    /// A closed loop.
    Closed(Closed),
}

/// So many connections, each of which asks, waits for the answer, thinks, and asks again.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// How many.
    pub connections: usize,
    /// How long each waits between an answer and its next request; none by default.
    pub think: Latency,
    /// When no more is asked.
    pub until: Until,
}

/// When a closed loop is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so much time.
    Duration(Duration),
    /// After so many requests of all connections together.
    Requests(u64),
    /// After whichever is first.
    Either(Duration, u64),
}

impl Until {
    /// How long it takes at most, if anybody knows.
    #[must_use]
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::Duration(lasts) | Self::Either(lasts, _) => Some(lasts),
            Self::Requests(_) => None,
        }
    }

    /// How many requests there are at most, if anybody knows.
    #[must_use]
    pub const fn requests(self) -> Option<u64> {
        match self {
            Self::Requests(requests) | Self::Either(_, requests) => Some(requests),
            Self::Duration(_) => None,
        }
    }

    /// The same, and after so many requests at the latest.
    #[must_use]
    pub fn limited(self, most: u64) -> Self {
        match self {
            Self::Duration(lasts) => Self::Either(lasts, most),
            Self::Requests(requests) => Self::Requests(requests.min(most)),
            Self::Either(lasts, requests) => Self::Either(lasts, requests.min(most)),
        }
    }
}

impl Closed {
    /// So many connections that do not think.
    #[must_use]
    pub fn new(connections: usize, until: Until) -> Self {
        Self { connections, think: Latency::default(), until }
    }
}

impl Part {
    /// How long it takes at most, if anybody knows.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        match self {
            Self::Open(schedule) => (!schedule.ends_by_chance()).then(|| schedule.lasts()),
            Self::Closed(closed) => closed.until.duration(),
        }
    }

    /// How many requests it has, if anybody knows: at most for a closed loop, on average where they come by
    /// chance, else exactly.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        match self {
            Self::Open(schedule) => Some(schedule.requests()),
            Self::Closed(closed) => closed.until.requests(),
        }
    }

    fn limited(self, most: u64) -> Self {
        match self {
            Self::Open(schedule) => Self::Open(schedule.limited(most)),
            Self::Closed(closed) => Self::Closed(Closed { until: closed.until.limited(most), ..closed }),
        }
    }

    /// Whether somebody may come.
    fn is_empty(&self) -> bool {
        match self {
            Self::Open(schedule) => schedule.requests() == 0,
            Self::Closed(closed) => {
                closed.connections == 0
                    || closed.until.requests() == Some(0)
                    || closed.until.duration() == Some(Duration::ZERO)
            }
        }
    }
}

impl Plan {
    /// The phases one after the other.
    pub fn new(phases: Vec<Phase>) -> Result<Self, Beyond> {
        let mut parts = Vec::new();
        let mut steps = Vec::new();
        for phase in phases {
            match phase {
                Phase::Open(step) => steps.push(step),
                Phase::Closed(closed) => {
                    parts.extend(open(&mut steps));
                    parts.push(Part::Closed(closed));
                }
            }
        }
        parts.extend(open(&mut steps));
        let plan = Self { parts, warmup: Duration::ZERO, most: None };
        plan.check()?;
        Ok(plan)
    }

    /// An open load.
    pub fn open(schedule: Schedule) -> Result<Self, Beyond> {
        schedule.check()?;
        let warmup = schedule.warmup();
        Ok(Self { parts: vec![Part::Open(schedule)], warmup, most: None })
    }

    /// The same rate all the time.
    pub fn constant(rate: Rate, lasts: Duration) -> Result<Self, Beyond> {
        Self::new(vec![Phase::Open(Step::steady(rate, lasts))])
    }

    /// The same rate until there were so many requests.
    pub fn counted(rate: Rate, requests: u64) -> Result<Self, Beyond> {
        Self::constant(rate, rate.due(requests))
    }

    /// So many requests at once.
    pub fn burst(requests: u64) -> Result<Self, Beyond> {
        Self::new(vec![Phase::Open(Step::burst(requests))])
    }

    /// As it was recorded; see [`Step::replay`].
    pub fn replay(due: impl Into<Arc<[Duration]>>) -> Result<Self, Beyond> {
        Self::new(vec![Phase::Open(Step::replay(due))])
    }

    /// A closed loop.
    pub fn closed(closed: Closed) -> Result<Self, Beyond> {
        Self::new(vec![Phase::Closed(closed)])
    }

    /// The same, and over after so many requests, however many parts are left. Those of a warm-up are not
    /// counted.
    ///
    /// No part of it has more than that either; whoever runs several takes what was sent off [`most`](Self::most).
    #[must_use]
    pub fn with_requests(mut self, most: u64) -> Self {
        let most = self.most.map_or(most, |known| known.min(most));
        self.parts = self.parts.into_iter().map(|part| part.limited(most)).collect();
        Self { most: Some(most), ..self }
    }

    /// The same preceded by `lasts` of what it begins with, in place of what preceded it: that is for getting
    /// warm and not measured. `None` where it begins with an open load that has no rate.
    #[must_use]
    pub fn with_warmup(mut self, lasts: Duration) -> Option<Self> {
        // The users of a closed loop go on as they began.
        if let Some(Part::Open(schedule)) = self.parts.first_mut() {
            *schedule = schedule.clone().with_warmup(lasts)?;
        }
        Some(Self { warmup: lasts, ..self })
    }

    /// How long users ask before they are measured: where it begins with a closed loop.
    fn warmup_of_users(&self) -> Duration {
        match self.parts.first() {
            Some(Part::Closed(_)) => self.warmup,
            Some(Part::Open(_)) | None => Duration::ZERO,
        }
    }

    /// Its parts, one after the other.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// A part as it is where only so many requests may still come; none: it is over.
    pub(crate) fn part(&self, index: usize, left: Option<u64>) -> Option<Cow<'_, Part>> {
        let part = self.parts.get(index)?;
        match left {
            Some(0) => None,
            Some(left) if index > 0 => Some(Cow::Owned(part.clone().limited(left))),
            _ => Some(Cow::Borrowed(part)),
        }
    }

    /// How long its warm-up is: what is due, or asked, from then on is measured.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        self.warmup
    }

    /// After how many requests it is over, however many parts are left.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        self.most
    }

    /// How long it takes at most, warm-up included, if anybody knows.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        let warmup = self.warmup_of_users();
        self.parts.iter().try_fold(warmup, |all, part| Some(all.saturating_add(part.lasts()?)))
    }

    /// How many requests there are, warm-up included, if anybody knows; see [`Part::requests`].
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        let all =
            self.parts.iter().try_fold(0, |all: u64, part| Some(all.saturating_add(part.requests()?)))?;
        let warmup = match self.parts.first() {
            Some(Part::Open(schedule)) => schedule.warmup_requests(),
            Some(Part::Closed(_)) | None => 0,
        };
        Some(self.most.map_or(all, |most| all.min(warmup.saturating_add(most))))
    }

    /// The most requests that are expected in a second; see [`Schedule::peak_per_second`]. 0 if nobody knows
    /// because all of it is closed.
    #[must_use]
    pub fn peak_per_second(&self) -> f64 {
        let peak = |part: &Part| match part {
            Part::Open(schedule) => schedule.peak_per_second(),
            Part::Closed(_) => 0.0,
        };
        self.parts.iter().map(peak).fold(0.0, f64::max)
    }

    /// The most connections of a closed loop in it; 0 if all of it is open.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        let connections = |part: &Part| match part {
            Part::Open(_) => 0,
            Part::Closed(closed) => closed.connections,
        };
        self.parts.iter().map(connections).max().unwrap_or_default()
    }

    /// The most requests that are due at one moment, because a phase says so; 0 if none does.
    #[must_use]
    pub fn at_once_max(&self) -> u64 {
        let at_once = |part: &Part| match part {
            Part::Open(schedule) => schedule.at_once_max(),
            Part::Closed(_) => 0,
        };
        self.parts.iter().map(at_once).max().unwrap_or_default()
    }

    /// Whether there is so much of it that nobody waits for it, or nothing at all.
    fn check(&self) -> Result<(), Beyond> {
        if self.parts.iter().all(Part::is_empty) {
            return Err(Beyond::Nobody);
        }
        let requests = self.parts.iter().filter_map(Part::requests).fold(0, u64::saturating_add);
        let lasts = self.parts.iter().filter_map(Part::lasts).fold(Duration::ZERO, Duration::saturating_add);
        // Nobody knows how many those of a closed loop are: one at least.
        Beyond::check(requests.max(1), lasts)
    }
}

/// A part of these steps, if there are any.
fn open(steps: &mut Vec<Step>) -> Option<Part> {
    (!steps.is_empty()).then(|| Part::Open(Schedule::new(std::mem::take(steps))))
}

/// `60s at 425/s; 64 connections for 10s, each thinking 10ms..50ms`
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = self.parts.len() == 1;
        for (index, part) in self.parts.iter().enumerate() {
            write!(f, "{}{part}", if index == 0 { "" } else { "; " })?;
            if index == 0 && !self.warmup_of_users().is_zero() {
                write!(f, ", after {} to warm up", format_span(self.warmup))?;
            }
        }
        match self.most {
            Some(most) if !is_one => write!(f, "; {} requests in all at most", format_count(most)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(schedule) => schedule.fmt(f),
            Self::Closed(closed) => closed.fmt(f),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, think, until } = self;
        let plural = if *connections == 1 { "" } else { "s" };
        write!(f, "{connections} connection{plural} {until}")?;
        match think.constant() {
            Some(Duration::ZERO) => Ok(()),
            _ => write!(f, ", each thinking {think}"),
        }
    }
}

/// `for 60s`, `until 1000 requests`
impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(lasts) => write!(f, "for {}", format_span(*lasts)),
            Self::Requests(1) => f.write_str("until 1 request"),
            Self::Requests(requests) => write!(f, "until {requests} requests"),
            Self::Either(lasts, requests) => write!(f, "for {} or {requests} requests", format_span(*lasts)),
        }
    }
}

#[cfg(test)]
mod tests;
