//! The entries of the cache: stored responses, and markers that a URL's responses are not shared.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rustix::param::page_size;
use stockade_cache::Lifespan;
use stockade_model::outcome::Outcome;

use super::{runtime::LocalRuntime, spool::Spool};
use crate::policy::{
    freshness::Freshness,
    key::CacheKey,
    storable::NotStorable,
    vary::{SelectingValues, Vary},
};
use stockade_http::body_file::{BodyFile, SENDFILE_BYTES_MIN};

pub type ResponseCache = stockade_cache::Cache<EntryKey, CacheEntry, LocalRuntime>;

/// The bytes that a load reserves in the cache for what it is about to store.
pub type Reservation = stockade_cache::Reservation<EntryKey, CacheEntry>;

pub type LoadedEntry = stockade_cache::LoadedValue<EntryKey, CacheEntry>;

/// The key of an entry: a URL, and for responses with `Vary` also the values of the selecting fields.
///
/// The latest response of a URL is stored under the URL alone, with its selecting values. A request that selects
/// another response looks under its own values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey {
    pub key: CacheKey,
    /// `None`: the latest response of the URL.
    pub variant: Option<Arc<SelectingValues>>,
}

impl EntryKey {
    /// The key of the marker that responses of this URL to requests of an identity are not shared.
    #[must_use]
    pub fn marker(key: &CacheKey, identity: RequestIdentity) -> Self {
        // No request selects it: encoded selecting values start with a 0 or 1.
        let name: &[u8] = match identity {
            RequestIdentity::Anonymous => b"anonymous",
            RequestIdentity::Cookie => b"cookie",
            RequestIdentity::Credentials => b"credentials",
        };
        Self { key: key.clone(), variant: Some(Arc::new(SelectingValues::from_bytes(name))) }
    }
}

impl From<CacheKey> for EntryKey {
    fn from(key: CacheKey) -> Self {
        Self { key, variant: None }
    }
}

/// How a request identifies its user: the responses to requests of one identity are shared, or not, for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestIdentity {
    /// `Authorization`.
    Credentials,
    /// A cookie, by which the origin may recognise the user.
    Cookie,
    Anonymous,
}

#[derive(Clone, Debug)]
pub enum CacheEntry {
    Response(Arc<StoredResponse>),
    /// Responses are not shared: each request goes to the origin, without coalescing.
    Uncacheable(Arc<UncacheableMarker>),
    /// Never stored: the latest response of the URL, which the request does not select. Its `Vary` names the selecting fields.
    OtherVariant(Arc<StoredResponse>),
}

/// A response that may be reused.
#[derive(Debug)]
pub struct StoredResponse {
    pub status: StatusCode,
    /// Without hop-by-hop fields, `Content-Length` and `Age`.
    pub headers: HeaderMap,
    pub body: StoredBody,
    pub freshness: Freshness,
    /// When the head arrived.
    pub received: SystemTime,
    pub lifespan: Lifespan,
    /// False: it arrived without a lifetime, and answers only the request that loaded it, or as a fallback.
    pub is_shared: bool,
    pub vary: Vary,
    /// `None`: no `Vary`.
    pub selecting: Option<Arc<SelectingValues>>,
    /// For purges.
    pub tags: Box<[Box<str>]>,
    pub users: BodyUsers,
}

/// Shared by the stored responses that have one body, and by the replies that send its chunks.
#[derive(Clone, Debug, Default)]
pub struct BodyUsers(Arc<()>);

#[derive(Clone, Debug)]
pub enum StoredBody {
    Whole(Arc<[Bytes]>),
    /// Still arriving.
    Spooled(Arc<Spool>),
}

impl StoredBody {
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Whole(Arc::new([])) } else { Self::Whole(Arc::new([bytes])) }
    }

    /// All bytes; empty for a body that is still arriving.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Whole(chunks) if chunks.len() == 1 => chunks[0].clone(),
            Self::Whole(chunks) => chunks.concat().into(),
            Self::Spooled(_) => Bytes::new(),
        }
    }

    /// Length in bytes, if known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Whole(chunks) => Some(chunks.iter().map(|chunk| chunk.len() as u64).sum()),
            Self::Spooled(spool) => spool.content_length(),
        }
    }
}

/// Says that responses are not shared (Varnish: hit-for-miss).
#[derive(Clone, Copy, Debug)]
pub struct UncacheableMarker {
    pub reason: UncacheableReason,
    /// The requests that it is about; `None`: all.
    pub identity: Option<RequestIdentity>,
    /// True if the response to the next request may be another: a stored one has been shared before.
    pub is_about_request: bool,
    pub lifespan: Lifespan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UncacheableReason {
    #[error(transparent)]
    NotStorable(#[from] NotStorable),
    #[error("no lifetime")]
    NoLifetime,
    #[error("too large")]
    TooLarge,
    /// Responses that are arriving have reserved all bytes.
    #[error("no room")]
    NoRoom,
}

impl UncacheableReason {
    /// True if the only reason is a status without a declared lifetime.
    #[must_use]
    pub fn lacks_lifetime(self) -> bool {
        matches!(self, Self::NoLifetime | Self::NotStorable(NotStorable::Status))
    }
}

/// Lifetime of an uncacheable marker: Varnish's default `uncacheable` of 120 s.
pub const UNCACHEABLE_TTL: Duration = Duration::from_mins(2);

impl UncacheableMarker {
    /// For all requests.
    #[must_use]
    pub fn new(reason: UncacheableReason) -> Self {
        Self { reason, identity: None, is_about_request: false, lifespan: Lifespan::NONE }
    }

    /// An entry to be stored.
    #[must_use]
    pub fn stored(self) -> CacheEntry {
        let lifespan = Lifespan { ttl: UNCACHEABLE_TTL, ..Lifespan::NONE };
        CacheEntry::Uncacheable(Arc::new(Self { lifespan, ..self }))
    }

    /// An entry for the waiting requests only.
    #[must_use]
    pub fn transient(self) -> CacheEntry {
        CacheEntry::Uncacheable(Arc::new(self))
    }
}

impl StoredResponse {
    /// True if a request with these header fields selects this response.
    #[must_use]
    pub fn matches(&self, request: &HeaderMap) -> bool {
        self.selecting.as_ref().is_none_or(|selecting| self.vary.matches(selecting, request))
    }

    /// True if it may be the answer to a request with this outcome.
    #[must_use]
    pub fn may_answer(&self, outcome: Outcome) -> bool {
        self.is_shared || matches!(outcome, Outcome::Miss | Outcome::Fallback)
    }

    /// The same response with its whole body, whose chunks the replies that read the spool share.
    #[must_use]
    pub fn with_body(&self, body: StoredBody) -> Self {
        let Self { status, freshness, received, lifespan, is_shared, .. } = *self;
        let (headers, tags, vary) = (self.headers.clone(), self.tags.clone(), self.vary.clone());
        let (selecting, users) = (self.selecting.clone(), self.users.clone());
        Self { status, headers, body, freshness, received, lifespan, is_shared, vary, selecting, tags, users }
    }

    /// Seconds until it is stale, `resident` after its head arrived; negative: since it is stale.
    #[must_use]
    pub fn ttl_s(&self, resident: Duration) -> i64 {
        let (age, lifetime) = (self.freshness.age(resident).as_secs(), self.lifetime().as_secs());
        let lifetime = i64::try_from(lifetime).unwrap_or(i64::MAX);
        lifetime.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX))
    }

    /// The freshness lifetime here, counted from when the origin generated the response. A response that arrived stale
    /// keeps the origin's.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        if self.lifespan.ttl.is_zero() && self.freshness.lifetime < self.freshness.initial_age {
            return self.freshness.lifetime;
        }
        self.freshness.initial_age.saturating_add(self.lifespan.ttl)
    }
}

impl CacheEntry {
    #[must_use]
    pub fn lifespan(&self) -> Lifespan {
        match self {
            Self::Response(stored) => stored.lifespan,
            Self::Uncacheable(marker) => marker.lifespan,
            Self::OtherVariant(_) => Lifespan::NONE,
        }
    }

    /// True while a reply sends the body and no other stored response has it: its memory stays in use although the entry is
    /// removed.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let Self::Response(stored) = self else { return false };
        let is_last_owner = match &stored.body {
            StoredBody::Whole(chunks) => Arc::strong_count(chunks) == 1,
            StoredBody::Spooled(_) => true,
        };
        is_last_owner && Arc::strong_count(&stored.users.0) > 1
    }

    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Response(stored) => matches!(stored.status, StatusCode::NOT_FOUND | StatusCode::GONE),
            Self::Uncacheable(_) | Self::OtherVariant(_) => false,
        }
    }
}

/// Upper bound of the allocator's overhead for one allocation.
const ALLOCATION_BYTES: usize = 32;

/// Bytes of memory that an entry owns. `body_file` has the large bodies.
#[must_use]
pub fn weight(entry_key: &EntryKey, entry: &CacheEntry, body_file: Option<&BodyFile>) -> usize {
    let chunk_bytes = |chunk: &Bytes| {
        let in_file = body_file.and_then(|file| file.allocated_bytes(chunk));
        in_file.map_or_else(|| allocated_bytes(chunk.len()), |bytes| bytes + 2 * CHUNK_OVERHEAD_BYTES)
    };
    let selecting = |selecting: &Option<Arc<SelectingValues>>| {
        selecting.as_ref().map_or(0, |selecting| selecting.as_bytes().len() + 2 * ALLOCATION_BYTES)
    };
    let key = entry_key.key.as_str().len() + ALLOCATION_BYTES + selecting(&entry_key.variant);
    key + match entry {
        CacheEntry::Uncacheable(_) | CacheEntry::OtherVariant(_) => {
            size_of::<UncacheableMarker>() + ALLOCATION_BYTES
        }
        CacheEntry::Response(stored) => {
            let tags: usize = stored.tags.iter().map(|tag| tag.len() + ALLOCATION_BYTES).sum();
            let body = match &stored.body {
                StoredBody::Whole(chunks) => chunks.iter().map(chunk_bytes).sum(),
                StoredBody::Spooled(spool) => {
                    spool.content_length().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX))
                }
            };
            size_of::<StoredResponse>()
                + ALLOCATION_BYTES
                + header_bytes(&stored.headers)
                + tags
                + selecting(&stored.selecting)
                + body
        }
    }
}

/// Memory of a chunk of a body without its content.
const CHUNK_OVERHEAD_BYTES: usize = size_of::<Bytes>() + 2 * ALLOCATION_BYTES;

/// Memory of a chunk of a body. Large ones have whole pages: from [`SENDFILE_BYTES_MIN`] on in a file, and from 128 KiB on by the
/// allocator.
#[must_use]
pub fn allocated_bytes(bytes: usize) -> usize {
    CHUNK_OVERHEAD_BYTES
        + if bytes >= SENDFILE_BYTES_MIN { bytes.next_multiple_of(page_size()) } else { bytes }
}

/// A copy in its own memory. The values of a received head are slices of the whole read buffer.
#[must_use]
pub fn detached(headers: &HeaderMap) -> HeaderMap {
    let mut text = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    let mut copy = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        text.extend_from_slice(value.as_bytes());
        // The bytes were valid in the original, so they are here.
        let Ok(mut copied) = HeaderValue::from_maybe_shared(text.split().freeze()) else { continue };
        copied.set_sensitive(value.is_sensitive());
        copy.append(name, copied);
    }
    // `clone` trims spare capacity.
    copy.clone()
}

/// Memory of a header map.
#[must_use]
pub fn header_bytes(headers: &HeaderMap) -> usize {
    const FIELD: usize = size_of::<HeaderName>() + 2 * size_of::<Bytes>() + ALLOCATION_BYTES;
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum()
}

/// Passes each tag of an entry to `add`: those of its response, and for a variant also its URL's.
pub fn tags(entry_key: &EntryKey, entry: &CacheEntry, add: &mut dyn FnMut(&str)) {
    if entry_key.variant.is_some() {
        add(&url_tag(&entry_key.key));
    }
    if let CacheEntry::Response(stored) = entry {
        stored.tags.iter().for_each(|tag| add(tag));
    }
}

/// The tag of all variants of a URL. It has a space, which no tag of a response has.
#[must_use]
pub fn url_tag(key: &CacheKey) -> String {
    format!("url {}", key.as_str())
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, SET_COOKIE};

    use super::*;

    #[test]
    fn detached_headers_are_equal_and_keep_no_read_buffer() {
        let read = Bytes::from("text/htmla=1b=2the rest of what was read".to_owned());
        let value = |range| HeaderValue::from_maybe_shared(read.slice(range)).unwrap();
        let mut secret = value(9..12);
        secret.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, secret);
        headers.append(CONTENT_TYPE, value(0..9));
        headers.append(SET_COOKIE, value(12..15));
        let copy = detached(&headers);
        assert_eq!(copy, headers);
        let is_sensitive: Vec<_> = copy.get_all(SET_COOKIE).iter().map(HeaderValue::is_sensitive).collect();
        assert_eq!(is_sensitive, [true, false]);
        drop(headers);
        assert!(read.is_unique(), "the copy still uses the read buffer");
    }
}
