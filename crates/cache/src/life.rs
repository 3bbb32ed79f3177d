//! What becomes of an answer with age: fresh, stale, gone. Pure.

use std::time::Duration;

use stockade_model::time::Time;

use crate::{
    chance::NATS_MOST,
    strategy::{Refresh, Strategy},
    tier::Kept,
};

/// How far the coarse clock of lookups may be behind the precise one.
const COARSE_LAG: Duration = Duration::from_millis(2);

/// How long a value is good for, where [values tell that themselves](crate::Builder::lifespan) and not the
/// strategy. The times follow each other, from the end of the value's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifespan {
    /// It is fresh.
    pub ttl: Duration,
    /// Then it is stale and refreshed on request: [`Strategy::swr`](crate::Strategy::swr).
    pub swr: Duration,
    /// Then it is what a request is given if a load fails: [`Strategy::sie`](crate::Strategy::sie).
    pub sie: Duration,
    /// Then nobody is given it, and it is there for a load that can have it [validated](crate::Cache::peek).
    pub keep: Duration,
}

impl Lifespan {
    /// It is good for nothing, not even to be stored.
    pub const NONE: Self =
        Self { ttl: Duration::ZERO, swr: Duration::ZERO, sie: Duration::ZERO, keep: Duration::ZERO };
}

/// The clock of one answer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Life {
    /// Before, it is fresh and there is nothing to decide: all that a hit looks at.
    pub(crate) due: Time,
    /// When its load ended.
    pub(crate) loaded: Time,
    /// From here on it is stale.
    pub(crate) expires: Time,
    /// How long after that it may be given while it is refreshed.
    swr: Span,
    /// How long after that it may be given at all.
    stale: Span,
    /// How long after that it is stored.
    kept: Span,
    /// `delta * beta` of xfetch; below 0: it stands for a not-found.
    spread_secs: f32,
}

/// What an answer is good for at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Fresh,
    /// Fresh, and this request is to refresh it.
    Refresh,
    /// It may be given while it is refreshed.
    Stale,
    /// It may be given if a load fails.
    LastResort,
    Gone,
}

/// What becomes of answers after they have expired.
#[derive(Clone, Copy, Debug)]
struct After {
    swr: Span,
    stale: Span,
    kept: Span,
}

impl After {
    const NOTHING: Self = Self { swr: Span::ZERO, stale: Span::ZERO, kept: Span::ZERO };

    fn new(swr: Duration, sie: Duration, keep: Duration) -> Self {
        let stale = swr.saturating_add(sie);
        Self { swr: swr.into(), stale: stale.into(), kept: stale.saturating_add(keep).into() }
    }
}

/// How long answers live under a strategy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    ttl: Option<Duration>,
    jitter: f64,
    negative_ttl: Option<Duration>,
    after: After,
    refresh: Refresh,
    /// Whether the time matters: without a ttl of any kind nothing expires.
    pub(crate) has_end: bool,
}

impl Lifetimes {
    /// Values may have [lifespans](Lifespan) of their own.
    pub(crate) fn of(strategy: &Strategy, have_lifespans: bool) -> Self {
        let Strategy { ttl, jitter, negative_ttl, swr, sie, refresh, .. } = *strategy;
        let has_end = ttl.is_some() || negative_ttl.is_some() || have_lifespans;
        Self { ttl, jitter, negative_ttl, after: After::new(swr, sie, Duration::ZERO), refresh, has_end }
    }

    /// The life of an answer that was loaded then, in so long. `share` is drawn from 0 to 1.
    #[inline]
    pub(crate) fn life(
        &self,
        own: Option<Lifespan>,
        loaded: Time,
        took: Duration,
        share: impl FnOnce() -> f64,
    ) -> Life {
        let (ttl, after) = self.spans(own);
        let Some(ttl) = ttl else { return after.life(Time::NEVER, loaded, Time::NEVER, 0.0) };
        let ttl = if self.jitter > 0.0 { part(ttl, 1.0 - self.jitter * share()) } else { ttl };
        let expires = loaded + ttl;
        let (due, spread_secs) = self.due(expires, ttl, took);
        after.life(due, loaded, expires, spread_secs)
    }

    /// The life of an answer that was loaded so long ago by another node, whose load took so long and which
    /// says how long it is fresh. It is believed no further than the strategy goes, or the value itself.
    pub(crate) fn resume(&self, own: Option<Lifespan>, now: Time, kept: &Kept) -> Life {
        let (ttl, after) = self.spans(own);
        // Without a time of its own a not-found is not kept, and anything else for ever.
        let most = match own {
            None if kept.is_negative => Some(self.negative_ttl.unwrap_or_default()),
            _ => ttl,
        };
        let fresh_for = match (most, kept.fresh_for) {
            (Some(most), Some(told)) => most.min(told),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => Duration::MAX,
        };
        // It may be older than this runtime: what counts is how much time it has left.
        let expires = (now + fresh_for.saturating_sub(kept.age)).back(kept.age.saturating_sub(fresh_for));
        let loaded = now.back(kept.age);
        if kept.is_negative {
            return Life::negative(loaded, expires);
        }
        let (due, spread_secs) = self.due(expires, fresh_for, kept.took);
        after.life(due, loaded, expires, spread_secs)
    }

    /// Its own times, or the strategy's.
    #[inline]
    fn spans(&self, own: Option<Lifespan>) -> (Option<Duration>, After) {
        match own {
            None => (self.ttl, self.after),
            Some(own) => (Some(own.ttl), After::new(own.swr, own.sie, own.keep)),
        }
    }

    /// From when on there is something to decide, and how far a draw may reach.
    #[inline]
    fn due(&self, expires: Time, fresh_for: Duration, took: Duration) -> (Time, f32) {
        match self.refresh {
            Refresh::None => (expires, 0.0),
            Refresh::Early { at } => (expires.back(part(fresh_for, 1.0 - at)), 0.0),
            Refresh::XFetch { beta } => {
                // Earlier than that no draw is large enough, so that none is made.
                let spread = took.as_secs_f64() * beta;
                let reach = Duration::try_from_secs_f64(spread * NATS_MOST).unwrap_or(Duration::MAX);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "seven digits of what a load took are plenty"
                )]
                (expires.back(reach.saturating_add(COARSE_LAG)), spread as f32)
            }
        }
    }

    /// The life of a not-found; `None`: it is not kept.
    pub(crate) fn negative_life(&self, own: Option<Lifespan>, loaded: Time) -> Option<Life> {
        let ttl = own.map_or(self.negative_ttl, |own| Some(own.ttl).filter(|ttl| !ttl.is_zero()));
        Some(Life::negative(loaded, loaded + ttl?))
    }

    /// What an answer is good for, by the clock that freshness goes by. `precisely` tells the precise time
    /// and draws [nats](crate::chance::Chance::nats).
    pub(crate) fn state(&self, life: &Life, now: Time, precisely: impl FnOnce() -> (Time, f64)) -> State {
        if now < life.expires {
            let is_chosen = !life.is_negative()
                && match self.refresh {
                    Refresh::None => false,
                    Refresh::Early { .. } => now >= life.due,
                    Refresh::XFetch { .. } => {
                        let (now, nats) = precisely();
                        is_early(f64::from(life.spread_secs), life.expires - now, nats)
                    }
                };
            return if is_chosen { State::Refresh } else { State::Fresh };
        }
        if now >= life.gone() {
            State::Gone
        } else if now < life.expires + life.swr.into() {
            State::Stale
        } else {
            State::LastResort
        }
    }
}

/// A share of a time, which may be as long as any.
fn part(of: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(of.as_secs_f64() * share).unwrap_or(of)
}

/// The rule of xfetch, in one unit: `now - delta * beta * ln(rand) >= expiry`.
fn is_early(spread_secs: f64, left: Duration, nats: f64) -> bool {
    spread_secs * nats >= left.as_secs_f64()
}

impl After {
    #[inline]
    fn life(self, due: Time, loaded: Time, expires: Time, spread_secs: f32) -> Life {
        let Self { swr, stale, kept } = self;
        Life { due, loaded, expires, swr, stale, kept, spread_secs }
    }
}

impl Life {
    fn negative(loaded: Time, expires: Time) -> Self {
        // Always due: it is no hit.
        After::NOTHING.life(Time::ZERO, loaded, expires, -1.0)
    }

    /// Whether it stands for a not-found.
    pub(crate) fn is_negative(&self) -> bool {
        self.spread_secs < 0.0
    }

    /// When it is not given to anybody any more but in place of a load that failed.
    pub(crate) fn stale_from(&self) -> Time {
        self.expires + self.swr.into()
    }

    /// When nobody is given it any more.
    pub(crate) fn gone(&self) -> Time {
        self.expires + self.stale_for()
    }

    /// When it is not stored any more.
    pub(crate) fn kept_until(&self) -> Time {
        self.expires + self.kept.into()
    }

    /// How long it may be given after it has expired.
    pub(crate) fn stale_for(&self) -> Duration {
        self.stale.into()
    }

    /// Of something that is simply fresh until then, and stale for so long.
    #[cfg(test)]
    pub(crate) fn until(expires: Time, stale_for: Duration) -> Self {
        After::new(Duration::ZERO, stale_for, Duration::ZERO).life(expires, Time::ZERO, expires, 0.0)
    }

    /// It is stale from now on.
    pub(crate) fn expire(&mut self, now: Time) {
        self.expires = self.expires.min(now);
        self.due = self.due.min(now);
    }
}

/// A duration in 32 bits: exact below 134 ms, else rounded down by a fifty-millionth at most. The longest is
/// nine years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span(u32);

impl Span {
    const ZERO: Self = Self(0);
    /// How many of the bits say by which power of two the others are multiplied.
    const EXPONENT_BITS: u32 = 5;
    const MANTISSA_BITS: u32 = u32::BITS - Self::EXPONENT_BITS;
}

impl From<Duration> for Span {
    #[expect(clippy::cast_possible_truncation, reason = "shifted until it fits")]
    fn from(duration: Duration) -> Self {
        let longest = ((1_u64 << Self::MANTISSA_BITS) - 1) << ((1 << Self::EXPONENT_BITS) - 1);
        let nanos = duration.as_nanos().min(u128::from(longest)) as u64;
        let exponent = (u64::BITS - nanos.leading_zeros()).saturating_sub(Self::MANTISSA_BITS);
        Self(((nanos >> exponent) as u32) | exponent << Self::MANTISSA_BITS)
    }
}

impl From<Span> for Duration {
    fn from(Span(bits): Span) -> Self {
        let mantissa = bits & ((1 << Span::MANTISSA_BITS) - 1);
        Self::from_nanos(u64::from(mantissa) << (bits >> Span::MANTISSA_BITS))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
