//! The encoding of messages between nodes. Pure.

use bytes::Bytes;

use super::clock::Micros;
use crate::{
    invalidation::Invalidation,
    tier::{InvalidationTarget, RemoteLoad, TierEvent},
};

/// The outcome of a load, for the nodes that wait.
pub(super) fn encode_outcome(key: &[u8], outcome: &RemoteLoad) -> Vec<u8> {
    /// Longer messages are cut.
    const REASON_BYTES_MOST: usize = 300;
    let (verdict, reason) = match outcome {
        RemoteLoad::Stored => ('s', ""),
        RemoteLoad::NotShared => ('u', ""),
        RemoteLoad::Released => ('-', ""),
        RemoteLoad::Failed(reason) => {
            let mut ends = (0..=reason.len().min(REASON_BYTES_MOST)).rev();
            let end = ends.find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
            ('f', &reason[..end])
        }
    };
    [format!("{verdict}{}:", key.len()).as_bytes(), key, reason.as_bytes()].concat()
}

pub(super) fn decode_outcome(message: &[u8]) -> Option<(&[u8], RemoteLoad)> {
    let colon = message.iter().position(|byte| *byte == b':')?;
    let length: usize = std::str::from_utf8(message.get(1..colon)?).ok()?.parse().ok()?;
    let (key, reason) = message.get(colon + 1..)?.split_at_checked(length)?;
    let outcome = match message[0] {
        b's' => RemoteLoad::Stored,
        b'u' => RemoteLoad::NotShared,
        b'f' => RemoteLoad::Failed(String::from_utf8_lossy(reason).into_owned()),
        _ => RemoteLoad::Released,
    };
    Some((key, outcome))
}

/// The encoding of an event in the log.
pub(super) fn encode_event(event: &TierEvent) -> Vec<u8> {
    let how = |how: &Invalidation| if *how == Invalidation::Soft { "s" } else { "h" };
    let (kind, how, name): (_, _, &[u8]) = match event {
        TierEvent::Invalidated(InvalidationTarget::Key(key), kind) => ("k", how(kind), key),
        TierEvent::Invalidated(InvalidationTarget::Tag(name), kind) => ("t", how(kind), name.as_bytes()),
        TierEvent::Invalidated(InvalidationTarget::All, kind) => ("a", how(kind), b""),
        TierEvent::Written(key, _) => ("k", "h", key),
    };
    [kind.as_bytes(), how.as_bytes(), name].concat()
}

fn decode_event(bytes: &[u8]) -> Option<TierEvent> {
    let (head, name) = bytes.split_at_checked(2)?;
    let how = if head[1] == b's' { Invalidation::Soft } else { Invalidation::Hard };
    let what = match head[0] {
        b'k' => InvalidationTarget::Key(Bytes::copy_from_slice(name)),
        b't' => InvalidationTarget::Tag(String::from_utf8_lossy(name).into_owned()),
        b'a' => InvalidationTarget::All,
        _ => return None,
    };
    Some(TierEvent::Invalidated(what, how))
}

/// The position of an event in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventId(u64, u64);

impl EventId {
    fn read(id: &str) -> Option<Self> {
        let (ms, sequence) = id.split_once('-')?;
        Some(Self(ms.parse().ok()?, sequence.parse().ok()?))
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// An event from the log or the channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReceivedEvent {
    pub(super) id: EventId,
    pub(super) at: Micros,
    /// The node that published it.
    pub(super) node: String,
    /// `None`: this version does not know its kind.
    pub(super) event: Option<TierEvent>,
}

impl ReceivedEvent {
    /// Decodes a message of the channel: `ID AT NODE EVENT`.
    pub(super) fn from_message(message: &[u8]) -> Option<Self> {
        let mut words = message.splitn(4, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (id, at, node) = (EventId::read(word()?)?, word()?.parse().ok()?, word()?.to_owned());
        Some(Self { id, at, node, event: decode_event(words.next()?) })
    }

    /// Decodes an element of the log.
    pub(super) fn from_stream_entry((id, fields): (String, Vec<(String, Vec<u8>)>)) -> Option<Self> {
        let field = |name| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_slice());
        let text = |name| std::str::from_utf8(field(name)?).ok();
        let (at, node) = (text("at")?.parse().ok()?, text("node")?.to_owned());
        Some(Self { id: EventId::read(&id)?, at, node, event: field("event").and_then(decode_event) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encoded_messages_decode() {
        for outcome in [
            RemoteLoad::Stored,
            RemoteLoad::NotShared,
            RemoteLoad::Released,
            RemoteLoad::Failed("no route: to host".to_owned()),
        ] {
            assert_eq!(decode_outcome(&encode_outcome(b"a:1 b", &outcome)), Some((&b"a:1 b"[..], outcome)));
        }
        let long = RemoteLoad::Failed("\u{e9}".repeat(1_000));
        assert!(encode_outcome(b"key", &long).len() < 320);
        for how in [Invalidation::Soft, Invalidation::Hard] {
            for what in [
                InvalidationTarget::Key(Bytes::from_static(b"a \n b")),
                InvalidationTarget::Tag("sport wales".to_owned()),
                InvalidationTarget::All,
            ] {
                let event = TierEvent::Invalidated(what, how);
                let written = [b"12-3 1500 node ", encode_event(&event).as_slice()].concat();
                let expected = ReceivedEvent {
                    id: EventId(12, 3),
                    at: 1_500,
                    node: "node".to_owned(),
                    event: Some(event),
                };
                assert_eq!(ReceivedEvent::from_message(&written), Some(expected));
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_not_decoded(garbage in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (decode_outcome(&garbage), ReceivedEvent::from_message(&garbage));
        }
    }
}
