//! Freshness: how long a stored value is fresh, then stale, then gone. Pure.

use std::time::Duration;

use stockade_model::{outcome::Outcome, time::Time};

use crate::{error::InvalidStrategy, invalidation::Invalidation, random::NATS_MAX};

/// How far the coarse clock of lookups may lag behind the precise one.
const COARSE_LAG: Duration = Duration::from_millis(2);

/// How long a value is served, where the [value defines it](crate::Builder::lifespan) and not the strategy. The
/// times follow each other, from the end of the value's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifespan {
    /// Time for which it is fresh.
    pub ttl: Duration,
    /// Time for which it is then served stale and refreshed: [`Strategy::swr`](crate::Strategy::swr).
    pub swr: Duration,
    /// Time for which it is then served if a load fails: [`Strategy::sie`](crate::Strategy::sie).
    pub sie: Duration,
    /// Time for which it is then stored but not served, so that a load can [validate](crate::Cache::peek) it.
    pub keep: Duration,
}

impl Lifespan {
    /// The value is not stored.
    pub const NONE: Self =
        Self { ttl: Duration::ZERO, swr: Duration::ZERO, sie: Duration::ZERO, keep: Duration::ZERO };
}

/// The refresh of fresh values before they expire. Requests start refreshes, timers do not. With
/// [`Fetch::Coalesce`](crate::Fetch::Coalesce) the chosen request starts the one refresh in flight and is answered
/// at once; with [`Fetch::Independent`](crate::Fetch::Independent) it loads and waits, as in the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Refresh {
    /// Never.
    None,
    /// On the first request after this share of the ttl, between 0 and 1.
    Early {
        /// The share; 0.8 is usual.
        at: f64,
    },
    /// At random, likelier as expiry approaches and as loads take longer: when `now - delta * beta * ln(rand) >=
    /// expiry`, where delta is the duration of the key's last load (Vattani, Chierichetti, Lowenstein: Optimal
    /// Probabilistic Cache Stampede Prevention, VLDB 2015).
    #[cfg_attr(feature = "spec", serde(rename = "xfetch"))]
    XFetch {
        /// 1 is optimal; more refreshes earlier.
        beta: f64,
    },
}

impl Refresh {
    pub(crate) fn check(self) -> Result<(), InvalidStrategy> {
        match self {
            Self::Early { at } if !(at > 0.0 && at < 1.0) => {
                Err(InvalidStrategy("`at` is a share of the ttl, above 0 and below 1"))
            }
            Self::XFetch { beta } if !(beta > 0.0 && beta.is_finite()) => {
                Err(InvalidStrategy("`beta` has to be above 0"))
            }
            _ => Ok(()),
        }
    }
}

/// The axes of a [`Strategy`](crate::Strategy) that define freshness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreshnessAxes {
    pub(crate) ttl: Option<Duration>,
    pub(crate) jitter: f64,
    pub(crate) swr: Duration,
    pub(crate) sie: Duration,
    pub(crate) negative_ttl: Option<Duration>,
    pub(crate) refresh: Refresh,
}

/// The times of a value that another node loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteTimes {
    pub(crate) age: Duration,
    pub(crate) load_duration: Duration,
    /// `None`: for ever.
    pub(crate) fresh_for: Option<Duration>,
    pub(crate) is_negative: bool,
}

/// The times of one stored value. A [simulation](crate::simulation) may count in another unit than nanoseconds, the same for all times.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Before this it is fresh and nothing is to be decided.
    pub(crate) due: Time,
    /// The end of its load.
    pub(crate) loaded: Time,
    /// It is stale from here on.
    pub(crate) expires: Time,
    pub(crate) spans: Spans,
}

/// What else follows from the expiry of a value: spans after it, the spread of xfetch, the mark of a not-found. Many caches have values
/// without any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spans {
    /// From the expiry: how long it is served while it is refreshed.
    swr: CompactDuration,
    /// From the expiry: how long it is served at all.
    stale: CompactDuration,
    /// From the expiry: how long it is stored.
    kept: CompactDuration,
    /// `delta * beta` of xfetch. Negative: the value stands for a not-found.
    spread_secs: f32,
}

/// How a value may be served at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshnessState {
    /// Served without a load.
    Fresh,
    /// Fresh, and this request refreshes it.
    Refresh,
    /// Served while it is refreshed.
    Stale,
    /// Served if a load fails.
    StaleIfError,
    /// Not served, as if there was no value.
    Gone,
}

/// The answer to a request, if loads do not fail and requests share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryAnswer {
    /// [`Coalesced`](Outcome::Coalesced): at the end of the load in flight. [`Miss`](Outcome::Miss): at the end of its own load. Else at
    /// once.
    pub outcome: Outcome,
    /// The request starts a load.
    pub starts_load: bool,
}

impl FreshnessState {
    /// The answer to a request for a value in this state. `is_loading`: a load of its key is in flight.
    #[inline]
    #[must_use]
    pub fn answer(self, is_loading: bool) -> EntryAnswer {
        let outcome = match self {
            Self::Fresh => return EntryAnswer { outcome: Outcome::Hit, starts_load: false },
            Self::Refresh => Outcome::Hit,
            Self::Stale => Outcome::Stale,
            Self::StaleIfError | Self::Gone if is_loading => Outcome::Coalesced,
            Self::StaleIfError | Self::Gone => Outcome::Miss,
        };
        EntryAnswer { outcome, starts_load: !is_loading }
    }
}

impl Spans {
    /// Nothing: a value is gone when it expires.
    pub const NONE: Self = Self {
        swr: CompactDuration::ZERO,
        stale: CompactDuration::ZERO,
        kept: CompactDuration::ZERO,
        spread_secs: 0.0,
    };

    fn new(swr: Duration, sie: Duration, keep: Duration) -> Self {
        let stale = swr.saturating_add(sie);
        let kept = stale.saturating_add(keep).into();
        Self { swr: swr.into(), stale: stale.into(), kept, spread_secs: 0.0 }
    }

    /// Stale for this time after the expiry, then gone.
    #[must_use]
    pub fn stale(swr: Duration) -> Self {
        Self::new(swr, Duration::ZERO, Duration::ZERO)
    }

    fn is_fallback_only(self) -> bool {
        self.swr == CompactDuration::FALLBACK_ONLY
    }

    /// From here on a value that expires then is not stored.
    #[inline]
    pub(crate) fn kept_until(self, expires: Time) -> Time {
        self.kept.after(expires)
    }
}

/// Computes lifetimes under a strategy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifetimeRules {
    ttl: Option<Duration>,
    jitter: f64,
    negative_ttl: Option<Duration>,
    spans: Spans,
    refresh: Refresh,
}

impl LifetimeRules {
    pub(crate) fn of(times: FreshnessAxes) -> Self {
        let FreshnessAxes { ttl, jitter, negative_ttl, swr, sie, refresh } = times;
        Self { ttl, jitter, negative_ttl, spans: Spans::new(swr, sie, Duration::ZERO), refresh }
    }

    /// The lifetime of a value whose load ended at `loaded` after `took`. `share` draws from 0 to 1.
    #[inline]
    pub(crate) fn life(
        &self,
        own: Option<Lifespan>,
        loaded: Time,
        took: Duration,
        share: impl FnOnce() -> f64,
    ) -> Lifetime {
        let (ttl, spans) = self.ttl_and_spans(own);
        let Some(ttl) = ttl else {
            return Lifetime { due: Time::NEVER, loaded, expires: Time::NEVER, spans };
        };
        let ttl = if self.jitter > 0.0 { share_of(ttl, 1.0 - self.jitter * share()) } else { ttl };
        let expires = loaded + ttl;
        let (due, spread_secs) = self.due(expires, ttl, took);
        Lifetime { due, loaded, expires, spans: Spans { spread_secs, ..spans } }
    }

    /// The lifetime of a value that another node loaded. It is no longer than the strategy or the value itself
    /// allows.
    pub(crate) fn resume(&self, own: Option<Lifespan>, now: Time, kept: RemoteTimes) -> Lifetime {
        let (ttl, spans) = self.ttl_and_spans(own);
        // Without a ttl a not-found is not stored, and any other value never expires.
        let most = match own {
            None if kept.is_negative => Some(self.negative_ttl.unwrap_or_default()),
            _ => ttl,
        };
        let fresh_for = match (most, kept.fresh_for) {
            (Some(most), Some(remote)) => most.min(remote),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => Duration::MAX,
        };
        // The load may have ended before this runtime started: count from the remaining time.
        let expires = (now + fresh_for.saturating_sub(kept.age)).back(kept.age.saturating_sub(fresh_for));
        let loaded = now.back(kept.age);
        if kept.is_negative {
            return Lifetime::negative(loaded, expires);
        }
        let (due, spread_secs) = self.due(expires, fresh_for, kept.load_duration);
        Lifetime { due, loaded, expires, spans: Spans { spread_secs, ..spans } }
    }

    /// The value's own times, or the strategy's.
    #[inline]
    fn ttl_and_spans(&self, own: Option<Lifespan>) -> (Option<Duration>, Spans) {
        match own {
            None => (self.ttl, self.spans),
            Some(own) => (Some(own.ttl), Spans::new(own.swr, own.sie, own.keep)),
        }
    }

    /// The time from which a refresh may be chosen, and the spread of xfetch.
    #[inline]
    fn due(&self, expires: Time, fresh_for: Duration, took: Duration) -> (Time, f32) {
        match self.refresh {
            Refresh::None => (expires, 0.0),
            Refresh::Early { at } => (expires.back(share_of(fresh_for, 1.0 - at)), 0.0),
            Refresh::XFetch { beta } => {
                let spread = took.as_secs_f64() * beta;
                if spread == 0.0 {
                    return (expires, 0.0);
                }
                // No random number leads to an earlier refresh.
                let reach = Duration::try_from_secs_f64(spread * NATS_MAX).unwrap_or(Duration::MAX);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "seven digits of what a load took are plenty"
                )]
                (expires.back(reach.saturating_add(COARSE_LAG)), spread as f32)
            }
        }
    }

    /// The lifetime of a not-found; `None`: it is not stored.
    pub(crate) fn negative_life(&self, own: Option<Lifespan>, loaded: Time) -> Option<Lifetime> {
        let ttl = own.map_or(self.negative_ttl, |own| Some(own.ttl).filter(|ttl| !ttl.is_zero()));
        Some(Lifetime::negative(loaded, loaded + ttl?))
    }

    /// How a value may be served at `now`. `precisely` returns the precise time and an
    /// [exponential](crate::random::Random::exponential) random number.
    pub(crate) fn state(
        &self,
        life: &Lifetime,
        now: Time,
        precisely: impl FnOnce() -> (Time, f64),
    ) -> FreshnessState {
        // The entry may have been stored under another strategy.
        if self.refresh == Refresh::None && now < life.expires {
            return FreshnessState::Fresh;
        }
        life.state(now, precisely)
    }
}

/// A share of a duration of any length.
fn share_of(of: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(of.as_secs_f64() * share).unwrap_or(of)
}

/// The rule of xfetch, in one unit: `now - delta * beta * ln(rand) >= expiry`.
fn is_early(spread_secs: f64, left: Duration, exponential: f64) -> bool {
    spread_secs * exponential >= left.as_secs_f64()
}

impl Lifetime {
    /// It was never fresh.
    pub(crate) const GONE: Self =
        Self { due: Time::ZERO, loaded: Time::ZERO, expires: Time::ZERO, spans: Spans::NONE };

    /// The times of a value whose load ended at `loaded`. A request from `due` on refreshes it, and it is fresh until `expires`.
    #[inline]
    #[must_use]
    pub const fn new(loaded: Time, due: Time, expires: Time, spans: Spans) -> Self {
        Self { due, loaded, expires, spans }
    }

    /// How a value may be served at `now`, with the kind of refresh under which it was stored. Under xfetch `precisely` returns the precise
    /// time and an exponential random number.
    #[inline]
    pub fn state(&self, now: Time, precisely: impl FnOnce() -> (Time, f64)) -> FreshnessState {
        if now < self.expires {
            let is_chosen = if self.spans.spread_secs > 0.0 {
                let (now, exponential) = precisely();
                is_early(f64::from(self.spans.spread_secs), self.expires - now, exponential)
            } else {
                now >= self.due && !self.is_negative()
            };
            return if is_chosen { FreshnessState::Refresh } else { FreshnessState::Fresh };
        }
        if now >= self.gone() {
            FreshnessState::Gone
        } else if now < self.stale_from() {
            FreshnessState::Stale
        } else {
            FreshnessState::StaleIfError
        }
    }

    /// The times of the same value loaded again. `ttl` returns the new ttl, given the old one; `None`: for ever.
    pub(crate) fn restarted(
        &self,
        loaded: Time,
        ttl: impl FnOnce(Option<Duration>) -> Option<Duration>,
    ) -> Self {
        let old = (self.expires != Time::NEVER).then(|| self.expires - self.loaded);
        if self.is_negative() {
            return Self::negative(loaded, loaded + old.unwrap_or_default());
        }
        let Some(new) = ttl(old) else {
            return Self { due: Time::NEVER, loaded, expires: Time::NEVER, ..*self };
        };
        let (expires, early) = (loaded + new, self.expires - self.due);
        let early = match old {
            // xfetch counts from the expiry.
            _ if self.spans.spread_secs > 0.0 => early,
            Some(old) if !old.is_zero() => share_of(new, early.as_secs_f64() / old.as_secs_f64()),
            _ => Duration::ZERO,
        };
        Self { due: expires.back(early), loaded, expires, ..*self }
    }

    fn negative(loaded: Time, expires: Time) -> Self {
        // Always due: a not-found is not a hit.
        Self { due: Time::ZERO, loaded, expires, spans: Spans { spread_secs: -1.0, ..Spans::NONE } }
    }

    /// True if the value stands for a not-found.
    pub(crate) fn is_negative(&self) -> bool {
        self.spans.spread_secs < 0.0
    }

    /// From here on it is served only if a load fails.
    pub(crate) fn stale_from(&self) -> Time {
        self.spans.swr.after(self.expires)
    }

    /// From here on it is not served.
    pub(crate) fn gone(&self) -> Time {
        self.spans.stale.after(self.expires)
    }

    /// From here on it is not stored.
    #[inline]
    #[must_use]
    pub fn kept_until(&self) -> Time {
        self.spans.kept_until(self.expires)
    }

    /// True if it is of use once it has expired, which may be never.
    pub(crate) fn is_kept_after_expiry(&self) -> bool {
        self.spans.kept.nanos() > 0
    }

    /// True if it is served if a load fails.
    pub(crate) fn has_fallback(&self) -> bool {
        self.spans.stale.nanos() > self.spans.swr.nanos()
    }

    /// How long it is served after it expires.
    pub(crate) fn stale_for(&self) -> Duration {
        self.spans.stale.into()
    }

    /// Fresh until `expires`, then stale.
    #[cfg(test)]
    pub(crate) fn until(expires: Time, stale_for: Duration) -> Self {
        let spans = Spans::new(Duration::ZERO, stale_for, Duration::ZERO);
        Self { due: expires, loaded: Time::ZERO, expires, spans }
    }

    /// Makes it stale now.
    pub(crate) fn expire(&mut self, now: Time) {
        self.expires = self.expires.min(now);
        self.due = self.due.min(now);
    }

    /// After an invalidation; `None`: it is of no use any more.
    pub(crate) fn after_invalidation(mut self, how: Invalidation, now: Time) -> Option<Self> {
        let is_of_use = match how {
            Invalidation::Soft => self.is_kept_after_expiry(),
            Invalidation::Fallback => self.has_fallback(),
            Invalidation::Hard => false,
        };
        if self.is_negative() || !is_of_use {
            return None;
        }
        match how {
            Invalidation::Fallback => self.restrict_to_fallback(now),
            _ => self.expire(now),
        }
        Some(self)
    }

    /// True for [`GONE`](Self::GONE).
    pub(crate) fn is_removed(&self) -> bool {
        self.kept_until() == Time::ZERO
    }

    /// From now on it is served only if a load fails.
    pub(crate) fn restrict_to_fallback(&mut self, now: Time) {
        self.expire(now);
        self.spans.swr = CompactDuration::FALLBACK_ONLY;
    }

    /// True if it is served only if a load fails, and not while one is slow.
    pub(crate) fn is_fallback_only(&self) -> bool {
        self.spans.is_fallback_only()
    }
}

/// A [`Lifetime`] that another process can continue. Its times are relative to a moment that both know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LifetimeRecord {
    /// How long before the moment the load ended; negative: after it.
    pub(crate) age_nanos: i64,
    /// From the end of the load to the expiry; [`u64::MAX`]: it does not expire.
    pub(crate) fresh_nanos: u64,
    /// How long before the expiry a refresh may be chosen.
    pub(crate) early_nanos: u64,
    /// The bits of `swr`, `stale` and `kept`.
    pub(crate) spans: [u32; 3],
    pub(crate) spread_secs: f32,
}

impl LifetimeRecord {
    pub(crate) fn new(life: &Lifetime, moment: Time) -> Self {
        let Lifetime { due, loaded, expires, spans } = *life;
        let Spans { swr, stale, kept, spread_secs } = spans;
        let nanos = |from: Time, to: Time| to.as_nanos().saturating_sub(from.as_nanos());
        let does_expire = expires != Time::NEVER;
        Self {
            age_nanos: moment.as_nanos().wrapping_sub(loaded.as_nanos()).cast_signed(),
            fresh_nanos: if does_expire { nanos(loaded, expires) } else { u64::MAX },
            early_nanos: if does_expire && !life.is_negative() { nanos(due, expires) } else { 0 },
            spans: [swr.0, stale.0, kept.0],
            spread_secs,
        }
    }

    /// The lifetime in this process, in which the moment is `moment`.
    pub(crate) fn resume(&self, moment: Time) -> Lifetime {
        let Self { age_nanos, fresh_nanos, early_nanos, spans: [swr, stale, kept], spread_secs } = *self;
        let spans = Spans {
            swr: CompactDuration(swr),
            stale: CompactDuration(stale),
            kept: CompactDuration(kept),
            spread_secs,
        };
        let loaded = moment.as_nanos().saturating_add_signed(age_nanos.saturating_neg());
        let at = Time::from_nanos;
        if fresh_nanos == u64::MAX {
            return Lifetime { due: Time::NEVER, loaded: at(loaded), expires: Time::NEVER, spans };
        }
        let expires = loaded.saturating_add(fresh_nanos);
        let is_negative = spread_secs < 0.0;
        let due = if is_negative { 0 } else { expires.saturating_sub(early_nanos) };
        Lifetime { due: at(due), loaded: at(loaded), expires: at(expires), spans }
    }
}

/// A duration in 32 bits: exact below 134 ms, else rounded down by a fifty-millionth at most. The maximum is nine
/// years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CompactDuration(u32);

impl CompactDuration {
    const ZERO: Self = Self(0);
    /// A zero that no duration is converted to. As `swr` it marks a value that is served only if a load fails.
    const FALLBACK_ONLY: Self = Self(1 << Self::MANTISSA_BITS);
    /// The number of bits for the exponent of two.
    const EXPONENT_BITS: u32 = 5;
    const MANTISSA_BITS: u32 = u32::BITS - Self::EXPONENT_BITS;

    #[inline]
    fn nanos(self) -> u64 {
        let mantissa = self.0 & ((1 << Self::MANTISSA_BITS) - 1);
        u64::from(mantissa) << (self.0 >> Self::MANTISSA_BITS)
    }

    /// The moment so long after another one. As a [`Duration`] it would cost twenty instructions more.
    #[inline]
    fn after(self, moment: Time) -> Time {
        Time::from_nanos(moment.as_nanos().saturating_add(self.nanos()))
    }
}

impl From<Duration> for CompactDuration {
    #[expect(clippy::cast_possible_truncation, reason = "shifted until it fits")]
    fn from(duration: Duration) -> Self {
        let longest = ((1_u64 << Self::MANTISSA_BITS) - 1) << ((1 << Self::EXPONENT_BITS) - 1);
        let nanos = duration.as_nanos().min(u128::from(longest)) as u64;
        let exponent = (u64::BITS - nanos.leading_zeros()).saturating_sub(Self::MANTISSA_BITS);
        Self(((nanos >> exponent) as u32) | exponent << Self::MANTISSA_BITS)
    }
}

impl From<CompactDuration> for Duration {
    fn from(compact: CompactDuration) -> Self {
        Self::from_nanos(compact.nanos())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
