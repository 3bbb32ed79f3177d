//! Encodes cache entries for the tier that nodes share.
//!
//! An encoded entry is: format number (u8), length of the record (u32, big-endian), record, body. Entries of another
//! format are treated as absent.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use stockade_cache::{Codec, Lifespan};

use super::{
    body_chunks::BodyChunks,
    stored::{
        BodyUsers, CacheEntry, EntryKey, StoredBody, StoredResponse, UncacheableMarker, UncacheableReason,
    },
};
use crate::policy::{
    freshness::{Basis, Freshness},
    key::CacheKey,
    vary::{SelectingValues, Vary},
};
use stockade_http::body_file::BodyFile;

const FORMAT: u8 = 2;

#[derive(Clone, Debug, Default)]
pub struct EntryCodec {
    /// For large bodies of decoded entries; `None`: they are on the heap.
    pub body_file: Option<Arc<BodyFile>>,
}

impl Codec<EntryKey> for EntryCodec {
    fn encode(&self, entry_key: &EntryKey) -> Bytes {
        let EntryKey { key, variant } = entry_key;
        // Separates the URL from the selecting values: no URL contains a 0 byte.
        let parts =
            [key.as_str().as_bytes(), &[0], variant.as_ref().map_or(&[], |variant| variant.as_bytes())];
        let parts = if variant.is_some() { &parts[..] } else { &parts[..1] };
        parts.concat().into()
    }

    fn decode(&self, bytes: Bytes) -> Option<EntryKey> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let key = CacheKey::from_normalised(std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?);
        let variant = end.map(|end| Arc::new(SelectingValues::from_bytes(&bytes[end + 1..])));
        Some(EntryKey { key, variant })
    }
}

/// An entry without its body.
#[derive(Serialize, Deserialize)]
enum EncodedEntry<'a> {
    #[serde(borrow)]
    Response(Box<EncodedResponse<'a>>),
    Uncacheable {
        ttl: Duration,
    },
}

#[derive(Serialize, Deserialize)]
struct EncodedResponse<'a> {
    status: u16,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a [u8])>,
    /// Since the Unix epoch.
    received: Duration,
    freshness: EncodedFreshness,
    /// ttl, swr, sie, keep.
    lifespan: [Duration; 4],
    is_shared: bool,
    selecting: Option<&'a [u8]>,
    #[serde(borrow)]
    tags: Vec<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct EncodedFreshness {
    initial_age: Duration,
    lifetime: Duration,
    /// 0: origin, 1: heuristic, 2: none.
    basis: u8,
    swr: Option<Duration>,
    sie: Option<Duration>,
    /// May be stale, must be validated, is immutable.
    flags: [bool; 3],
}

impl Codec<CacheEntry> for EntryCodec {
    fn encode(&self, entry: &CacheEntry) -> Bytes {
        let (record, chunks) = match entry {
            CacheEntry::OtherVariant(_) => return Bytes::new(),
            CacheEntry::Uncacheable(marker) => (EncodedEntry::Uncacheable { ttl: marker.lifespan.ttl }, None),
            CacheEntry::Response(stored) => {
                let StoredBody::Whole(chunks) = &stored.body else { return Bytes::new() };
                (EncodedEntry::Response(Box::new(EncodedResponse::new(stored))), Some(chunks))
            }
        };
        // Every record can be encoded.
        let record = postcard::to_allocvec(&record).unwrap_or_default();
        let length: usize = chunks.iter().flat_map(|chunks| chunks.iter()).map(Bytes::len).sum();
        let mut bytes = BytesMut::with_capacity(5 + record.len() + length);
        bytes.put_u8(FORMAT);
        bytes.put_u32(u32::try_from(record.len()).unwrap_or(u32::MAX));
        bytes.put_slice(&record);
        chunks.iter().flat_map(|chunks| chunks.iter()).for_each(|chunk| bytes.put_slice(chunk));
        bytes.freeze()
    }

    fn decode(&self, bytes: Bytes) -> Option<CacheEntry> {
        let (&format, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        if format != FORMAT || length > rest.len() {
            return None;
        }
        let (record, body) = rest.split_at(length);
        match postcard::from_bytes(record).ok()? {
            EncodedEntry::Uncacheable { ttl } => {
                let lifespan = Lifespan { ttl, ..Lifespan::NONE };
                let marker = UncacheableMarker::new(UncacheableReason::NoLifetime);
                Some(CacheEntry::Uncacheable(Arc::new(UncacheableMarker { lifespan, ..marker })))
            }
            EncodedEntry::Response(record) => {
                // A copy: a slice would keep the record in memory, which `weight` does not count.
                let mut chunks = BodyChunks::new(Some(body.len()), self.body_file.clone());
                chunks.add(body);
                let stored = record.into_stored(chunks.into_body())?;
                Some(CacheEntry::Response(Arc::new(stored)))
            }
        }
    }
}

impl<'a> EncodedResponse<'a> {
    fn new(stored: &'a StoredResponse) -> Self {
        let Freshness { initial_age, lifetime, basis, swr, sie, may_be_stale, must_validate, is_immutable } =
            stored.freshness;
        let Lifespan { ttl, swr: effective_swr, sie: effective_sie, keep } = stored.lifespan;
        let basis = match basis {
            Basis::Origin => 0,
            Basis::Heuristic => 1,
            Basis::Undeclared => 2,
        };
        let flags = [may_be_stale, must_validate, is_immutable];
        Self {
            status: stored.status.as_u16(),
            headers: stored.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
            received: stored.received.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            freshness: EncodedFreshness { initial_age, lifetime, basis, swr, sie, flags },
            lifespan: [ttl, effective_swr, effective_sie, keep],
            is_shared: stored.is_shared,
            selecting: stored.selecting.as_ref().map(|selecting| selecting.as_bytes()),
            tags: stored.tags.iter().map(|tag| &**tag).collect(),
        }
    }

    fn into_stored(self, body: StoredBody) -> Option<StoredResponse> {
        let mut headers = HeaderMap::try_with_capacity(self.headers.len()).ok()?;
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.try_append(name, HeaderValue::from_bytes(value).ok()?).ok()?;
        }
        let EncodedFreshness { initial_age, lifetime, basis, swr, sie, flags } = self.freshness;
        let [may_be_stale, must_validate, is_immutable] = flags;
        let basis = match basis {
            0 => Basis::Origin,
            1 => Basis::Heuristic,
            _ => Basis::Undeclared,
        };
        let freshness =
            Freshness { initial_age, lifetime, basis, swr, sie, may_be_stale, must_validate, is_immutable };
        let [ttl, swr, sie, keep] = self.lifespan;
        Some(StoredResponse {
            status: StatusCode::from_u16(self.status).ok()?,
            vary: Vary::of(&headers),
            headers,
            body,
            freshness,
            received: SystemTime::UNIX_EPOCH.checked_add(self.received)?,
            lifespan: Lifespan { ttl, swr, sie, keep },
            is_shared: self.is_shared,
            selecting: self.selecting.map(|selecting| Arc::new(SelectingValues::from_bytes(selecting))),
            tags: self.tags.into_iter().map(Box::from).collect(),
            users: BodyUsers::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(tags: Vec<String>, body: &[u8], selecting: Option<Vec<u8>>) -> CacheEntry {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        headers.append("x", HeaderValue::from_bytes(b"\xff").expect("a value"));
        headers.append("x", HeaderValue::from_static("2"));
        if selecting.is_some() {
            headers.insert("vary", HeaderValue::from_static("accept-language"));
        }
        let second = Duration::from_secs(1);
        CacheEntry::Response(Arc::new(StoredResponse {
            status: StatusCode::NOT_FOUND,
            vary: Vary::of(&headers),
            headers,
            body: StoredBody::new(Bytes::copy_from_slice(body)),
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
            is_shared: true,
            lifespan: Lifespan { ttl: 58 * second, swr: second, sie: second, keep: 600 * second },
            selecting: selecting.map(|selecting| Arc::new(SelectingValues::from_bytes(&selecting))),
            tags: tags.into_iter().map(Box::from).collect(),
            users: BodyUsers::default(),
        }))
    }

    /// A map of fields holds at most 32,768, and panics if it is asked for more.
    #[test]
    fn entry_with_too_many_fields_is_absent() {
        let CacheEntry::Response(stored) = entry(Vec::new(), b"", None) else { panic!("a response") };
        for (fields, is_valid) in [(20_000, true), (40_000, false)] {
            let mut record = EncodedResponse::new(&stored);
            record.headers = vec![("x", b"1"); fields];
            let record = postcard::to_allocvec(&EncodedEntry::Response(Box::new(record))).expect("a record");
            let length = u32::try_from(record.len()).expect("a small number").to_be_bytes();
            let bytes = [&[FORMAT][..], &length, &record].concat();
            assert_eq!(
                Codec::<CacheEntry>::decode(&EntryCodec::default(), bytes.into()).is_some(),
                is_valid,
                "{fields}"
            );
        }
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding_and_rejects_truncation(
            tags in prop::collection::vec("[a-z]{1,9}", 0..4),
            body in prop::collection::vec(any::<u8>(), 0..300),
            selecting in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        ) {
            let written = entry(tags, &body, selecting);
            let read: CacheEntry = EntryCodec::default().decode(EntryCodec::default().encode(&written)).expect("the encoded bytes are valid");
            prop_assert_eq!(format!("{written:?}"), format!("{read:?}"));
            let bytes: Bytes = Codec::<CacheEntry>::encode(&EntryCodec::default(), &written);
            for cut in 0..bytes.len() - body.len() {
                prop_assert!(Codec::<CacheEntry>::decode(&EntryCodec::default(), bytes.slice(..cut)).is_none(), "cut at {}", cut);
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Codec::<CacheEntry>::decode(&EntryCodec::default(), bytes.clone().into());
            let _ = Codec::<EntryKey>::decode(&EntryCodec::default(), bytes.into());
        }

        #[test]
        fn entry_keys_round_trip(path in "/[a-z/]{0,20}", variant in prop::option::of(prop::collection::vec(any::<u8>(), 0..20))) {
            let variant = variant.map(|variant| Arc::new(SelectingValues::from_bytes(&variant)));
            let entry_key = EntryKey { key: CacheKey::new("http", "example.org", &path), variant };
            prop_assert_eq!(EntryCodec::default().decode(EntryCodec::default().encode(&entry_key)), Some(entry_key));
        }
    }
}
