//! The format of a stored value: a header line, then its bytes. Pure.
//!
//! ```text
//! S1 f STAMP FRESH BEGAN STALE TOOK NEGATIVE TAGS CHECK
//! ```
//!
//! Times are microseconds of the server's clock, in decimal: when the load ended, until when the value is fresh, and
//! when the load began. STALE and TOOK are durations in microseconds: how long the value may be served stale, and
//! how long its load took. NEGATIVE is `n` for a not-found, else `-`. TAGS are CRC-32s in hexadecimal, separated by
//! commas, or `-`. CHECK is the CRC-32 of the key, of the line from STAMP to TAGS, and of the bytes. A soft
//! invalidation turns the `f` into an `x`.

use std::{fmt::Write, str::FromStr, time::Duration};

use bytes::Bytes;
use crc32fast::Hasher;

use super::clock::{Micros, SLACK, micros};
use crate::tier::TierValue;

/// Longer keys are not shared.
pub(super) const KEY_BYTES_MAX: usize = 16 << 10;
/// Larger values are not stored.
pub(super) const VALUE_BYTES_MAX: usize = 64 << 20;

/// `fresh_until` of a value that never expires: the largest integer in Lua.
const FOR_EVER: Micros = (1 << 53) - 1;

/// An invalid stamp, later than any clock.
pub(super) const NO_STAMP: Micros = (1 << 53) - 1;

/// The minimum time to live in Redis, so that waiting nodes find the value.
const LEAST: Micros = 1_000_000;

/// A value and its times on the server's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) stamp: Micros,
    pub(super) began: Micros,
    fresh_until: Micros,
    stale: Micros,
    took: Micros,
    is_negative: bool,
    is_expired: bool,
    pub(super) tags: Vec<u32>,
    body: Bytes,
}

/// The stored values that satisfy a lookup. `lookup.lua` applies the same rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryBounds {
    pub(super) now: Micros,
    /// The oldest stamp of a fresh value.
    pub(super) oldest: Micros,
    /// The oldest stamp of any value, fresh or not; 0: none.
    pub(super) since: Micros,
}

/// The hash of a tag.
pub(super) fn tag_hash(tag: &str) -> u32 {
    crc32fast::hash(tag.as_bytes())
}

impl Envelope {
    /// For a value whose load began and ended at these times.
    pub(super) fn new(kept: &TierValue, stamp: Micros, began: Micros) -> Self {
        Self {
            stamp,
            began,
            fresh_until: kept
                .fresh_for
                .map_or(FOR_EVER, |fresh_for| stamp.saturating_add(micros(fresh_for)).min(FOR_EVER)),
            stale: micros(kept.stale_for).min(FOR_EVER),
            took: micros(kept.load_duration),
            is_negative: kept.is_negative,
            is_expired: false,
            tags: kept.tags.iter().map(|tag| tag_hash(tag)).collect(),
            body: kept.body.clone(),
        }
    }

    /// The time to live in Redis, in milliseconds; 0: for ever.
    pub(super) fn lasts_ms(&self, now: Micros) -> u64 {
        if self.fresh_until == FOR_EVER {
            return 0;
        }
        let gone = self.fresh_until.saturating_add(self.stale).min(FOR_EVER);
        gone.saturating_sub(now).max(LEAST) / 1_000
    }

    /// The bytes stored under a key.
    pub(super) fn write(&self, key: &[u8]) -> Vec<u8> {
        let line = self.line();
        let check = check(key, &line, &self.body);
        let state = if self.is_expired { 'x' } else { 'f' };
        let mut bytes = format!("S1 {state} {line} {check:08x}\n").into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    fn line(&self) -> String {
        let Self { stamp, fresh_until, began, stale, took, is_negative, .. } = self;
        let negative = if *is_negative { 'n' } else { '-' };
        let mut line = format!("{stamp} {fresh_until} {began} {stale} {took} {negative} ");
        for (index, tag) in self.tags.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(line, "{comma}{tag:08x}");
        }
        if self.tags.is_empty() {
            line.push('-');
        }
        line
    }

    /// Decodes stored bytes; `None`: they are damaged.
    pub(super) fn read(key: &[u8], stored: &Bytes) -> Option<Self> {
        let end = stored.iter().position(|byte| *byte == b'\n')?;
        let (head, body) = (std::str::from_utf8(&stored[..end]).ok()?, stored.slice(end + 1..));
        let head = head.strip_prefix("S1 ")?;
        let (state, head) = head.split_once(' ')?;
        let (line, checked) = head.rsplit_once(' ')?;
        if u32::from_str_radix(checked, 16).ok()? != check(key, line, &body) {
            return None;
        }
        let mut words = line.split(' ');
        let mut number = || Micros::from_str(words.next()?).ok();
        let (stamp, fresh_until, began) = (number()?, number()?, number()?);
        let (stale, took) = (number()?, number()?);
        let is_negative = words.next()? == "n";
        let tags = match words.next()? {
            "-" => Vec::new(),
            tags => tags.split(',').map(|tag| u32::from_str_radix(tag, 16)).collect::<Result<_, _>>().ok()?,
        };
        let is_expired = state == "x";
        Some(Self { stamp, began, fresh_until, stale, took, is_negative, is_expired, tags, body })
    }

    /// True if it satisfies a lookup.
    pub(super) fn satisfies(&self, query_bounds: QueryBounds) -> bool {
        let QueryBounds { now, oldest, since } = query_bounds;
        let is_fresh = !self.is_expired && self.fresh_until > now;
        self.stamp < NO_STAMP && (is_fresh && self.stamp >= oldest || since > 0 && self.stamp >= since)
    }

    /// The value as of `now`; `None`: its stamp lies in the future.
    pub(super) fn open(&self, now: Micros) -> Option<TierValue> {
        if self.stamp > now + SLACK {
            return None;
        }
        let fresh_for = (self.fresh_until != FOR_EVER)
            .then(|| Duration::from_micros(self.fresh_until.saturating_sub(self.stamp)));
        Some(TierValue {
            body: self.body.clone(),
            age: Duration::from_micros(now.saturating_sub(self.stamp)),
            load_duration: Duration::from_micros(self.took),
            fresh_for: if self.is_expired { Some(Duration::ZERO) } else { fresh_for },
            stale_for: Duration::from_micros(self.stale),
            is_negative: self.is_negative,
            tags: Vec::new(),
        })
    }
}

fn check(key: &[u8], line: &str, body: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    for part in [key, b"\n", line.as_bytes(), b"\n", body] {
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(body: &[u8]) -> TierValue {
        TierValue {
            body: Bytes::copy_from_slice(body),
            age: Duration::ZERO,
            load_duration: Duration::from_millis(20),
            fresh_for: Some(Duration::from_secs(60)),
            stale_for: Duration::from_secs(10),
            is_negative: false,
            tags: vec!["sport".to_owned(), "wales".to_owned()],
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_written_and_ages() {
        let sealed = Envelope::new(&kept(b"Ada\nLovelace"), 1_000_000_000, 999_980_000);
        let bytes = Bytes::from(sealed.write(b"ada"));
        let head = bytes.split(|byte| *byte == b'\n').next().map(String::from_utf8_lossy);
        assert_eq!(
            head.as_deref(),
            Some("S1 f 1000000000 1060000000 999980000 10000000 20000 - 1a85efd2,9e01d684 9d8f1d08")
        );
        let read = Envelope::read(b"ada", &bytes).expect("it is whole");
        assert_eq!(read, sealed);
        assert_eq!(read.lasts_ms(1_000_000_000), 70_000);
        let open = read.open(1_030_000_000).expect("it has been");
        let aged = TierValue { age: Duration::from_secs(30), tags: Vec::new(), ..kept(b"Ada\nLovelace") };
        assert_eq!(open, aged);
        assert_eq!(read.open(900_000_000), None, "it is said to be from the future");
    }

    #[test]
    fn value_for_waiters_lives_for_a_second_at_least() {
        let fleeting = TierValue { fresh_for: Some(Duration::ZERO), stale_for: Duration::ZERO, ..kept(b"") };
        assert_eq!(Envelope::new(&fleeting, 5_000_000, 0).lasts_ms(5_000_000), 1_000);
        let lasting = TierValue { fresh_for: None, ..kept(b"") };
        assert_eq!(Envelope::new(&lasting, 5_000_000, 0).lasts_ms(5_000_000), 0);
    }

    #[test]
    fn endless_lifetime_does_not_overflow() {
        let endless = TierValue { fresh_for: Some(Duration::MAX), stale_for: Duration::MAX, ..kept(b"") };
        let read = Envelope::new(&endless, 5_000_000, 0).open(5_000_000).expect("it has been");
        assert_eq!((read.fresh_for, read.stale_for), (None, Duration::from_micros(FOR_EVER)));
    }

    #[test]
    fn softly_invalidated_envelope_is_valid_and_stale() {
        let mut bytes = Envelope::new(&kept(b"Ada"), 1_000_000, 0).write(b"ada");
        bytes[3] = b'x';
        let read = Envelope::read(b"ada", &Bytes::from(bytes)).expect("it is whole");
        assert_eq!(read.open(1_000_000).expect("it has been").fresh_for, Some(Duration::ZERO));
    }

    #[test]
    fn fresh_and_awaited_values_satisfy_a_lookup() {
        let fresh = Envelope::new(&kept(b"Ada"), 1_000_000, 0);
        let (until, query_bounds) = (fresh.fresh_until, QueryBounds { now: 2_000_000, oldest: 0, since: 0 });
        assert!(fresh.satisfies(query_bounds));
        assert!(!fresh.satisfies(QueryBounds { now: until, ..query_bounds }), "it was fresh until then");
        assert!(fresh.satisfies(QueryBounds { oldest: 1_000_000, ..query_bounds }));
        assert!(!fresh.satisfies(QueryBounds { oldest: 1_000_001, ..query_bounds }), "it is too old");
        for stale in
            [Envelope { fresh_until: 1_000_000, ..fresh.clone() }, Envelope { is_expired: true, ..fresh }]
        {
            assert!(!stale.satisfies(query_bounds));
            assert!(stale.satisfies(QueryBounds { since: 1_000_000, ..query_bounds }), "it was waited for");
            assert!(
                !stale.satisfies(QueryBounds { since: 1_000_001, ..query_bounds }),
                "it was there before"
            );
            let never = Envelope { stamp: NO_STAMP, ..stale };
            assert!(!never.satisfies(QueryBounds { since: 1, ..query_bounds }), "no clock says so");
        }
    }

    proptest! {
        #[test]
        fn damage_is_noticed_and_nothing_panics(at in 0_usize..90, bit in 0_u8..8, cut in 0_usize..90) {
            let whole = Envelope::new(&kept(b"Ada"), 1_000_000, 0).write(b"ada");
            let mut damaged = whole.clone();
            let at = at % damaged.len();
            damaged[at] ^= 1 << bit;
            // The state is not covered by the checksum, and hexadecimal digits may change case.
            let read = Envelope::read(b"ada", &Bytes::from(damaged.clone()));
            prop_assert!(read.is_none() || at == 3 || damaged.eq_ignore_ascii_case(&whole));
            let cut = Bytes::copy_from_slice(&whole[..cut % whole.len()]);
            prop_assert!(Envelope::read(b"ada", &cut).is_none());
            prop_assert!(Envelope::read(b"another", &Bytes::from(whole)).is_none());
        }

        #[test]
        fn garbage_is_no_value(garbage in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Envelope::read(b"ada", &Bytes::from(garbage)).is_none());
        }
    }
}
