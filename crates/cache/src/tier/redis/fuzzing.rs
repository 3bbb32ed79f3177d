//! Envelopes in Redis, and messages between nodes.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::time::Duration;

use bytes::Bytes;
use crc32fast::Hasher;

use super::{
    envelope::{Envelope, NO_STAMP, QueryBounds},
    wire::{ReceivedEvent, decode_outcome, encode_event, encode_outcome},
};
use crate::tier::{RemoteLoad, TierEvent, TierValue};

const KEY: &[u8] = b"ada";

/// A stored value, its line and body without the checksum, a message, or the times of a value.
///
/// - Bytes without their checksum are not a value. With it they are invalid, or a value that reads as it is written.
/// - No time of a value overflows: a value is fresh for as long as its load says, up to the largest stamp.
/// - A message is read as it is written.
pub fn check(data: &[u8]) {
    if let Some(envelope) = Envelope::read(KEY, &Bytes::copy_from_slice(data)) {
        check_envelope(&envelope);
    }
    if let Some(end) = data.iter().position(|byte| *byte == b'\n') {
        let (line, body) = (&data[..end], &data[end + 1..]);
        let sealed = |check: u32| [b"S1 f ", line, format!(" {check:08x}\n").as_bytes(), body].concat();
        let mut hasher = Hasher::new();
        [KEY, b"\n", line, b"\n", body].into_iter().for_each(|part| hasher.update(part));
        let sum = hasher.finalize();
        assert_eq!(Envelope::read(KEY, &sealed(!sum).into()), None);
        if let Some(envelope) = Envelope::read(KEY, &sealed(sum).into()) {
            assert_eq!(
                envelope.open(NO_STAMP).map(|value| value.body),
                Some(Bytes::copy_from_slice(body)).filter(|_| envelope.stamp <= NO_STAMP + 1_000_000)
            );
            check_envelope(&envelope);
        }
    }
    check_times(data);
    check_messages(data);
}

fn check_envelope(envelope: &Envelope) {
    let written = Bytes::from(envelope.write(KEY));
    assert_eq!(Envelope::read(KEY, &written).as_ref(), Some(envelope));
    for now in [0, envelope.stamp.min(NO_STAMP), NO_STAMP] {
        let _ = envelope.lasts_ms(now);
        if let Some(value) = envelope.open(now) {
            assert!(value.tags.is_empty());
        }
        let _ = envelope.satisfies(QueryBounds { now, oldest: now, since: now });
    }
}

/// Four numbers: the stamp, and how long the value is fresh, may be stale, and took to load.
fn check_times(data: &[u8]) {
    let mut numbers =
        data.chunks_exact(8).filter_map(|chunk| Some(u64::from_be_bytes(chunk.try_into().ok()?)));
    let mut next = || numbers.next();
    let (Some(stamp), Some(fresh), Some(stale), Some(took)) = (next(), next(), next(), next()) else {
        return;
    };
    let stamp = stamp % NO_STAMP;
    let value = TierValue {
        body: Bytes::new(),
        age: Duration::ZERO,
        load_duration: Duration::from_micros(took),
        fresh_for: Some(Duration::from_micros(fresh)),
        stale_for: Duration::from_micros(stale),
        is_negative: took % 2 == 0,
        tags: vec![took.to_string()],
    };
    let envelope = Envelope::new(&value, stamp, stamp.saturating_sub(took));
    check_envelope(&envelope);
    let opened = envelope.open(stamp).expect("its load has ended");
    // No end is for ever.
    let longest = Duration::from_micros(NO_STAMP - stamp);
    assert!(opened.fresh_for.is_none_or(|fresh| fresh == value.fresh_for.unwrap_or_default().min(longest)));
    assert!(opened.fresh_for.is_some() || value.fresh_for >= Some(longest));
    assert_eq!((opened.is_negative, opened.load_duration), (value.is_negative, value.load_duration));
}

fn check_messages(data: &[u8]) {
    if let Some((key, outcome)) = decode_outcome(data) {
        let is_short = !matches!(&outcome, RemoteLoad::Failed(reason) if reason.len() > 300);
        let encoded = encode_outcome(key, &outcome);
        let decoded = decode_outcome(&encoded);
        assert_eq!(decoded.as_ref().map(|(key, _)| *key), Some(key));
        assert!(!is_short || decoded == Some((key, outcome)));
    }
    let Some(received) = ReceivedEvent::from_message(data) else { return };
    let Some(event) = &received.event else { return };
    let head = format!("{} {} {} ", received.id, received.at, received.node);
    let again = [head.as_bytes(), &encode_event(event)].concat();
    let Some(again) = ReceivedEvent::from_message(&again) else { panic!("{received:?} is not read again") };
    assert_eq!(again, received);
    assert!(matches!(event, TierEvent::Invalidated(..)), "a message holds no value");
}
