//! What nodes tell each other, as bytes. Pure.

use bytes::Bytes;

use super::clock::Micros;
use crate::{
    shard::Invalidation,
    tier::{Note, Settled, What},
};

/// What is told to who waits for a key.
pub(super) fn message(key: &[u8], settled: &Settled) -> Vec<u8> {
    /// What a failure says may be long.
    const REASON_BYTES_MOST: usize = 300;
    let (verdict, reason) = match settled {
        Settled::Stored => ('s', ""),
        Settled::Unshared => ('u', ""),
        Settled::Freed => ('-', ""),
        Settled::Failed(reason) => ('f', &reason[..reason.floor_char_boundary(REASON_BYTES_MOST)]),
    };
    [format!("{verdict}{}:", key.len()).as_bytes(), key, reason.as_bytes()].concat()
}

pub(super) fn read_message(message: &[u8]) -> Option<(&[u8], Settled)> {
    let colon = message.iter().position(|byte| *byte == b':')?;
    let length: usize = std::str::from_utf8(message.get(1..colon)?).ok()?.parse().ok()?;
    let (key, reason) = message.get(colon + 1..)?.split_at_checked(length)?;
    let settled = match message[0] {
        b's' => Settled::Stored,
        b'u' => Settled::Unshared,
        b'f' => Settled::Failed(String::from_utf8_lossy(reason).into_owned()),
        _ => Settled::Freed,
    };
    Some((key, settled))
}

/// A note in the log.
pub(super) fn write_note(note: &Note) -> Vec<u8> {
    let how = |how: &Invalidation| if *how == Invalidation::Soft { "s" } else { "h" };
    let (kind, how, name): (_, _, &[u8]) = match note {
        Note::Invalidated(What::Key(key), kind) => ("k", how(kind), key),
        Note::Invalidated(What::Tag(name), kind) => ("t", how(kind), name.as_bytes()),
        Note::Invalidated(What::Everything, kind) => ("a", how(kind), b""),
        Note::Written(key, _) => ("k", "h", key),
    };
    [kind.as_bytes(), how.as_bytes(), name].concat()
}

fn read_note(bytes: &[u8]) -> Option<Note> {
    let (head, name) = bytes.split_at_checked(2)?;
    let how = if head[1] == b's' { Invalidation::Soft } else { Invalidation::Hard };
    let what = match head[0] {
        b'k' => What::Key(Bytes::copy_from_slice(name)),
        b't' => What::Tag(String::from_utf8_lossy(name).into_owned()),
        b'a' => What::Everything,
        _ => return None,
    };
    Some(Note::Invalidated(what, how))
}

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NoteId(u64, u64);

impl NoteId {
    fn read(id: &str) -> Option<Self> {
        let (ms, sequence) = id.split_once('-')?;
        Some(Self(ms.parse().ok()?, sequence.parse().ok()?))
    }
}

impl std::fmt::Display for NoteId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// A note as it was told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) id: NoteId,
    pub(super) at: Micros,
    /// Who told it.
    pub(super) node: String,
    /// None: of a kind that this node does not know.
    pub(super) note: Option<Note>,
}

impl Told {
    /// As it comes on the channel: `ID AT NODE NOTE`.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let mut words = message.splitn(4, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (id, at, node) = (NoteId::read(word()?)?, word()?.parse().ok()?, word()?.to_owned());
        Some(Self { id, at, node, note: read_note(words.next()?) })
    }

    /// As it lies in the log.
    pub(super) fn of((id, fields): (String, Vec<(String, Vec<u8>)>)) -> Option<Self> {
        let field = |name| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_slice());
        let text = |name| std::str::from_utf8(field(name)?).ok();
        let (at, node) = (text("at")?.parse().ok()?, text("node")?.to_owned());
        Some(Self { id: NoteId::read(&id)?, at, node, note: field("note").and_then(read_note) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        for settled in [
            Settled::Stored,
            Settled::Unshared,
            Settled::Freed,
            Settled::Failed("no route: to host".to_owned()),
        ] {
            assert_eq!(read_message(&message(b"a:1 b", &settled)), Some((&b"a:1 b"[..], settled)));
        }
        let long = Settled::Failed("\u{e9}".repeat(1_000));
        assert!(message(b"key", &long).len() < 320);
        for how in [Invalidation::Soft, Invalidation::Hard] {
            for what in [
                What::Key(Bytes::from_static(b"a \n b")),
                What::Tag("sport wales".to_owned()),
                What::Everything,
            ] {
                let note = Note::Invalidated(what, how);
                let written = [b"12-3 1500 node ", write_note(&note).as_slice()].concat();
                let told = Told { id: NoteId(12, 3), at: 1_500, node: "node".to_owned(), note: Some(note) };
                assert_eq!(Told::read(&written), Some(told));
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_not_heard(garbage in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (read_message(&garbage), Told::read(&garbage));
        }
    }
}
