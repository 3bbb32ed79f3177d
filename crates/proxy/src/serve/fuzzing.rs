//! Entries of the tier that nodes share.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::time::Duration;

use bytes::Bytes;
use stockade_cache::Codec;

use super::{
    entry_codec::EntryCodec,
    stored::{self, CacheEntry, EntryKey},
};

/// Encoded bytes, of an entry and of a key.
///
/// - Bytes decode to nothing, or to an entry that is the same after it is encoded and decoded again.
/// - Every decoded entry can be used: no time of it overflows.
pub fn check(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let key: Option<EntryKey> = EntryCodec::default().decode(bytes.clone());
    if let Some(key) = &key {
        let encoded = Codec::<EntryKey>::encode(&EntryCodec::default(), key);
        assert_eq!(encoded, bytes, "each key has one encoding");
    }
    let key = key.unwrap_or_else(|| EntryKey { key: stockade_key(), variant: None });
    let entry: Option<CacheEntry> = EntryCodec::default().decode(bytes);
    let Some(entry) = entry else { return };
    let encoded = Codec::<CacheEntry>::encode(&EntryCodec::default(), &entry);
    let again: CacheEntry = EntryCodec::default().decode(encoded.clone()).expect("an encoded entry is valid");
    assert_eq!(format!("{entry:?}"), format!("{again:?}"));
    assert_eq!(Codec::<CacheEntry>::encode(&EntryCodec::default(), &again), encoded);
    use_entry(&key, &entry);
}

fn stockade_key() -> crate::policy::key::CacheKey {
    crate::policy::key::CacheKey::new("http", "example.org", "/")
}

fn use_entry(key: &EntryKey, entry: &CacheEntry) {
    assert!(stored::weight(key, entry, None) > 0);
    stored::tags(key, entry, &mut |tag| assert!(tag.len() <= 1 << 20));
    let lifespan = entry.lifespan();
    let _ = (entry.is_held(), entry.is_not_found(), lifespan.ttl);
    let CacheEntry::Response(response) = entry else { return };
    for resident in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
        assert!(response.freshness.age(resident) >= resident.max(response.freshness.initial_age));
        let _ = response.ttl_s(resident);
    }
    assert!(response.freshness.fresh_for() <= response.freshness.lifetime);
    let _ =
        (response.lifetime(), response.matches(&response.headers), stored::header_bytes(&response.headers));
}
