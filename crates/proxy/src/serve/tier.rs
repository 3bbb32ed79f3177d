//! Answers as nodes share them: their bytes in a tier.
//!
//! A format number, how long the description is, the description, then the body. What another version has written cannot
//! be read and is taken for absent.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use stockade_cache::{Lifespan, tier::Codec};

use super::stored::{Content, Entry, Place, Reason, Stored, Unshared};
use crate::policy::{
    freshness::{Basis, Freshness},
    key::Key,
    vary::{Selecting, Vary},
};

/// Of this format.
const FORMAT: u8 = 1;

/// Places and entries as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

impl Codec<Place> for Shared {
    fn encode(&self, place: &Place) -> Bytes {
        let Place { key, variant } = place;
        // No URL has a 0.
        let parts =
            [key.as_str().as_bytes(), &[0], variant.as_ref().map_or(&[], |variant| variant.as_bytes())];
        let parts = if variant.is_some() { &parts[..] } else { &parts[..1] };
        parts.concat().into()
    }

    fn decode(&self, bytes: Bytes) -> Option<Place> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let key = Key::from_normalised(std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?);
        let variant = end.map(|end| Arc::new(Selecting::from_bytes(&bytes[end + 1..])));
        Some(Place { key, variant })
    }
}

/// What there is to be said of an entry, but for its body.
#[derive(Serialize, Deserialize)]
enum Description<'a> {
    #[serde(borrow)]
    Answer(Box<Answer<'a>>),
    Unshared {
        ttl: Duration,
    },
}

#[derive(Serialize, Deserialize)]
struct Answer<'a> {
    status: u16,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a [u8])>,
    /// Since the epoch.
    received: Duration,
    clock: Clock,
    /// ttl, swr, sie, keep.
    lifespan: [Duration; 4],
    selecting: Option<&'a [u8]>,
    #[serde(borrow)]
    tags: Vec<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Clock {
    initial_age: Duration,
    lifetime: Duration,
    /// 0: the origin's, 1: a heuristic, 2: nobody's.
    basis: u8,
    swr: Option<Duration>,
    sie: Option<Duration>,
    /// May be stale, must be validated, is immutable.
    flags: [bool; 3],
}

impl Codec<Entry> for Shared {
    fn encode(&self, entry: &Entry) -> Bytes {
        let (description, pieces) = match entry {
            Entry::Another(_) => return Bytes::new(),
            Entry::Unshared(unshared) => (Description::Unshared { ttl: unshared.lifespan.ttl }, None),
            Entry::Answer(stored) => {
                let Content::Whole(pieces) = &stored.content else { return Bytes::new() };
                (Description::Answer(Box::new(Answer::of(stored))), Some(pieces))
            }
        };
        // Nothing in it cannot be written.
        let description = postcard::to_allocvec(&description).unwrap_or_default();
        let length: usize = pieces.iter().flat_map(|pieces| pieces.iter()).map(Bytes::len).sum();
        let mut bytes = BytesMut::with_capacity(5 + description.len() + length);
        bytes.put_u8(FORMAT);
        bytes.put_u32(u32::try_from(description.len()).unwrap_or(u32::MAX));
        bytes.put_slice(&description);
        pieces.iter().flat_map(|pieces| pieces.iter()).for_each(|piece| bytes.put_slice(piece));
        bytes.freeze()
    }

    fn decode(&self, bytes: Bytes) -> Option<Entry> {
        let (&format, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        if format != FORMAT || length > rest.len() {
            return None;
        }
        let (description, body) = rest.split_at(length);
        match postcard::from_bytes(description).ok()? {
            Description::Unshared { ttl } => {
                let lifespan = Lifespan { ttl, ..Lifespan::NONE };
                Some(Entry::Unshared(Arc::new(Unshared { reason: Reason::NoLifetime, lifespan })))
            }
            Description::Answer(answer) => {
                // Of its own: else the description would be kept, too, and weighs nothing.
                let stored = answer.stored(Content::of(Bytes::copy_from_slice(body)))?;
                Some(Entry::Answer(Arc::new(stored)))
            }
        }
    }
}

impl<'a> Answer<'a> {
    fn of(stored: &'a Stored) -> Self {
        let Freshness { initial_age, lifetime, basis, swr, sie, may_be_stale, must_validate, is_immutable } =
            stored.freshness;
        let Lifespan { ttl, swr: swr_here, sie: sie_here, keep } = stored.lifespan;
        let basis = match basis {
            Basis::Origin => 0,
            Basis::Heuristic => 1,
            Basis::Nobody => 2,
        };
        let flags = [may_be_stale, must_validate, is_immutable];
        Self {
            status: stored.status.as_u16(),
            headers: stored.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
            received: stored.received.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            clock: Clock { initial_age, lifetime, basis, swr, sie, flags },
            lifespan: [ttl, swr_here, sie_here, keep],
            selecting: stored.selecting.as_ref().map(|selecting| selecting.as_bytes()),
            tags: stored.tags.iter().map(|tag| &**tag).collect(),
        }
    }

    fn stored(self, content: Content) -> Option<Stored> {
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_bytes(value).ok()?);
        }
        let Clock { initial_age, lifetime, basis, swr, sie, flags } = self.clock;
        let [may_be_stale, must_validate, is_immutable] = flags;
        let basis = match basis {
            0 => Basis::Origin,
            1 => Basis::Heuristic,
            _ => Basis::Nobody,
        };
        let freshness =
            Freshness { initial_age, lifetime, basis, swr, sie, may_be_stale, must_validate, is_immutable };
        let [ttl, swr, sie, keep] = self.lifespan;
        Some(Stored {
            status: StatusCode::from_u16(self.status).ok()?,
            vary: Vary::of(&headers),
            headers,
            content,
            freshness,
            received: SystemTime::UNIX_EPOCH.checked_add(self.received)?,
            lifespan: Lifespan { ttl, swr, sie, keep },
            selecting: self.selecting.map(|selecting| Arc::new(Selecting::from_bytes(selecting))),
            tags: self.tags.into_iter().map(Box::from).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(tags: Vec<String>, body: &[u8], selecting: Option<Vec<u8>>) -> Entry {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        headers.append("x", HeaderValue::from_bytes(b"\xff").expect("a value"));
        headers.append("x", HeaderValue::from_static("2"));
        if selecting.is_some() {
            headers.insert("vary", HeaderValue::from_static("accept-language"));
        }
        let second = Duration::from_secs(1);
        Entry::Answer(Arc::new(Stored {
            status: StatusCode::NOT_FOUND,
            vary: Vary::of(&headers),
            headers,
            content: Content::of(Bytes::copy_from_slice(body)),
            freshness: Freshness {
                initial_age: 2 * second,
                lifetime: 60 * second,
                basis: Basis::Heuristic,
                swr: None,
                sie: Some(second),
                may_be_stale: true,
                must_validate: false,
                is_immutable: true,
            },
            received: SystemTime::UNIX_EPOCH + 1_700_000_000 * second,
            lifespan: Lifespan { ttl: 58 * second, swr: second, sie: second, keep: 600 * second },
            selecting: selecting.map(|selecting| Arc::new(Selecting::from_bytes(&selecting))),
            tags: tags.into_iter().map(Box::from).collect(),
        }))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            tags in prop::collection::vec("[a-z]{1,9}", 0..4),
            body in prop::collection::vec(any::<u8>(), 0..300),
            selecting in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        ) {
            let written = entry(tags, &body, selecting);
            let read: Entry = Shared.decode(Shared.encode(&written)).expect("it was just written");
            prop_assert_eq!(format!("{written:?}"), format!("{read:?}"));
            let bytes: Bytes = Codec::<Entry>::encode(&Shared, &written);
            for cut in 0..bytes.len() - body.len() {
                prop_assert!(Codec::<Entry>::decode(&Shared, bytes.slice(..cut)).is_none(), "cut at {}", cut);
            }
        }

        #[test]
        fn nothing_that_was_not_written_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Codec::<Entry>::decode(&Shared, bytes.clone().into());
            let _ = Codec::<Place>::decode(&Shared, bytes.into());
        }

        #[test]
        fn places_are_told_apart(path in "/[a-z/]{0,20}", variant in prop::option::of(prop::collection::vec(any::<u8>(), 0..20))) {
            let variant = variant.map(|variant| Arc::new(Selecting::from_bytes(&variant)));
            let place = Place { key: Key::of("http", "example.org", &path), variant };
            prop_assert_eq!(Shared.decode(Shared.encode(&place)), Some(place));
        }
    }
}
