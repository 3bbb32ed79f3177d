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
    /// `delta * beta` of xfetch.
    spread_secs: f32,
    pub(crate) is_negative: bool,
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

/// How long answers live under a strategy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    ttl: Option<Duration>,
    jitter: f64,
    negative_ttl: Option<Duration>,
    swr: Duration,
    pub(crate) stale_for: Duration,
    refresh: Refresh,
    /// Whether the time matters: without a ttl of any kind nothing expires.
    pub(crate) has_end: bool,
}

impl Lifetimes {
    pub(crate) fn of(strategy: &Strategy) -> Self {
        let Strategy { ttl, jitter, negative_ttl, swr, refresh, .. } = *strategy;
        let (stale_for, has_end) = (strategy.stale_for(), ttl.is_some() || negative_ttl.is_some());
        Self { ttl, jitter, negative_ttl, swr, stale_for, refresh, has_end }
    }

    /// The life of an answer that was loaded then, in so long. `share` is drawn from 0 to 1.
    #[inline]
    pub(crate) fn life(&self, loaded: Time, took: Duration, share: impl FnOnce() -> f64) -> Life {
        let Some(ttl) = self.ttl else {
            return Life {
                due: Time::NEVER,
                loaded,
                expires: Time::NEVER,
                spread_secs: 0.0,
                is_negative: false,
            };
        };
        let ttl = if self.jitter > 0.0 { part(ttl, 1.0 - self.jitter * share()) } else { ttl };
        let expires = loaded + ttl;
        let (due, spread_secs) = self.due(expires, ttl, took);
        Life { due, loaded, expires, spread_secs, is_negative: false }
    }

    /// The life of an answer that was loaded so long ago by another node, whose load took so long and which
    /// says how long it is fresh. It is believed no further than the strategy goes.
    pub(crate) fn resume(&self, now: Time, kept: &Kept) -> Life {
        // Without a time of its own a not-found is not kept, and anything else for ever.
        let own = if kept.is_negative { Some(self.negative_ttl.unwrap_or_default()) } else { self.ttl };
        let fresh_for = match (own, kept.fresh_for) {
            (Some(own), Some(told)) => own.min(told),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => Duration::MAX,
        };
        // It may be older than this runtime: what counts is how much time it has left.
        let expires = (now + fresh_for.saturating_sub(kept.age)).back(kept.age.saturating_sub(fresh_for));
        let loaded = now.back(kept.age);
        if kept.is_negative {
            return Life { due: Time::ZERO, loaded, expires, spread_secs: 0.0, is_negative: true };
        }
        let (due, spread_secs) = self.due(expires, fresh_for, kept.took);
        Life { due, loaded, expires, spread_secs, is_negative: false }
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
    pub(crate) fn negative_life(&self, loaded: Time) -> Option<Life> {
        let expires = loaded + self.negative_ttl?;
        // Always due: it is no hit.
        Some(Life { due: Time::ZERO, loaded, expires, spread_secs: 0.0, is_negative: true })
    }

    /// What an answer is good for, by the clock that freshness goes by. `precisely` tells the precise time
    /// and draws [nats](crate::chance::Chance::nats).
    pub(crate) fn state(&self, life: &Life, now: Time, precisely: impl FnOnce() -> (Time, f64)) -> State {
        if now < life.expires {
            let is_chosen = !life.is_negative
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
        if life.is_negative || now >= life.gone(self.stale_for) {
            State::Gone
        } else if now < life.expires + self.swr {
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

impl Life {
    /// When nobody is given it any more.
    pub(crate) fn gone(&self, stale_for: Duration) -> Time {
        if self.is_negative { self.expires } else { self.expires + stale_for }
    }

    /// Of something that is simply fresh until then.
    #[cfg(test)]
    pub(crate) fn until(expires: Time) -> Self {
        Self { due: expires, loaded: Time::ZERO, expires, spread_secs: 0.0, is_negative: false }
    }

    /// It is stale from now on.
    pub(crate) fn expire(&mut self, now: Time) {
        self.expires = self.expires.min(now);
        self.due = self.due.min(now);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
