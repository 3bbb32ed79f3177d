//! What the cache holds: answers, and that there is none to be shared.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use stockade_cache::Lifespan;

use super::{arriving::Arriving, clock::PerCore};
use crate::policy::{
    freshness::Freshness,
    key::Key,
    storable::NotStored,
    vary::{Selecting, Vary},
};

/// A cache of answers.
pub type Cache = stockade_cache::Cache<Place, Entry, PerCore>;

/// What a load that arrives has for room.
pub type Room = stockade_cache::Room<Place, Entry>;

/// What a load brings.
pub type Arrival = stockade_cache::Arrival<Place, Entry>;

/// Where an answer is stored: that of a URL, or, where several depend on what else a request says, one of those.
///
/// The last answer to a URL is found by its key alone, with what has selected it. A request that would have
/// selected another looks for that beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// What was asked for.
    pub key: Key,
    /// What else a request said; `None`: it is the last answer to the URL.
    pub variant: Option<Arc<Selecting>>,
}

impl Place {
    /// Where it is remembered that answers of this URL to who has credentials are not shared.
    #[must_use]
    pub fn of_credentials(key: &Key) -> Self {
        // Nobody selects this: what is selected by says first whether a field is there, with 0 or 1.
        Self { key: key.clone(), variant: Some(Arc::new(Selecting::from_bytes(b"credentials"))) }
    }
}

impl From<Key> for Place {
    fn from(key: Key) -> Self {
        Self { key, variant: None }
    }
}

/// What is found there.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An answer.
    Answer(Arc<Stored>),
    /// That its answers are not shared: who asks for it does so alone, and nobody waits for anybody.
    Unshared(Arc<Unshared>),
    /// Never stored: the last answer to the URL, for who selects another and is to look for that.
    Another(Arc<Stored>),
}

/// An answer that may be given to others.
#[derive(Debug)]
pub struct Stored {
    /// Its status.
    pub status: StatusCode,
    /// Its head, without what is about a connection, its length and its age.
    pub headers: HeaderMap,
    /// Its body.
    pub content: Content,
    /// How old it was, and how old it may become.
    pub freshness: Freshness,
    /// When its head arrived.
    pub received: SystemTime,
    /// How long it is good for here.
    pub lifespan: Lifespan,
    /// On what of a request it depends, and what that was.
    pub vary: Vary,
    /// What it was selected by; `None`: it depends on nothing.
    pub selecting: Option<Arc<Selecting>>,
    /// What it can be purged by.
    pub tags: Box<[Box<str>]>,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum Content {
    /// All of it, in pieces.
    Whole(Arc<[Bytes]>),
    /// What has come of it, and what will.
    Arriving(Arc<Arriving>),
}

impl Content {
    /// In one piece.
    #[must_use]
    pub fn of(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Whole(Arc::new([])) } else { Self::Whole(Arc::new([bytes])) }
    }

    /// All of it in one piece; of what is arriving, nothing.
    #[must_use]
    pub fn joined(&self) -> Bytes {
        match self {
            Self::Whole(pieces) if pieces.len() == 1 => pieces[0].clone(),
            Self::Whole(pieces) => pieces.concat().into(),
            Self::Arriving(_) => Bytes::new(),
        }
    }

    /// How long it is in bytes, if that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Whole(pieces) => Some(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::Arriving(arriving) => arriving.length(),
        }
    }
}

/// That answers are not shared.
#[derive(Debug)]
pub struct Unshared {
    /// Why.
    pub reason: Reason,
    /// How long that is remembered.
    pub lifespan: Lifespan,
}

/// Why an answer is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// HTTP forbids it.
    #[error(transparent)]
    NotStored(#[from] NotStored),
    /// Nobody says how long it is fresh, or that it is no longer.
    #[error("no lifetime")]
    NoLifetime,
    /// It is larger than what is stored.
    #[error("too large")]
    TooLarge,
    /// Other answers that are arriving have all the room there is.
    #[error("no room")]
    NoRoom,
}

impl Reason {
    /// Whether it is the status alone, of which nobody said how long it is fresh.
    #[must_use]
    pub fn is_of_status(self) -> bool {
        matches!(self, Self::NoLifetime | Self::NotStored(NotStored::Status))
    }
}

/// How long it is remembered that answers are not shared, as Varnish does (its default `uncacheable` of 120 s).
pub const UNSHARED_FOR: Duration = Duration::from_mins(2);

impl Unshared {
    /// It is remembered.
    #[must_use]
    pub fn remembered(reason: Reason) -> Entry {
        Self::for_as_long(reason, UNSHARED_FOR)
    }

    /// Whether it is so because of who has asked, and not of what.
    #[must_use]
    pub fn is_of_credentials(&self) -> bool {
        self.reason == Reason::NotStored(NotStored::Credentials)
    }

    /// It is not remembered.
    #[must_use]
    pub fn for_now(reason: Reason) -> Entry {
        Self::for_as_long(reason, Duration::ZERO)
    }

    fn for_as_long(reason: Reason, ttl: Duration) -> Entry {
        Entry::Unshared(Arc::new(Self { reason, lifespan: Lifespan { ttl, ..Lifespan::NONE } }))
    }
}

impl Stored {
    /// Whether it is what a request with this head selects.
    #[must_use]
    pub fn is_for(&self, request: &HeaderMap) -> bool {
        self.selecting.as_ref().is_none_or(|selecting| self.vary.matches(selecting, request))
    }

    /// The same, with this body.
    #[must_use]
    pub fn with(&self, content: Content) -> Self {
        let Self { status, freshness, received, lifespan, .. } = *self;
        let (headers, tags, vary) = (self.headers.clone(), self.tags.clone(), self.vary.clone());
        Self {
            status,
            headers,
            content,
            freshness,
            received,
            lifespan,
            vary,
            selecting: self.selecting.clone(),
            tags,
        }
    }

    /// How long it will be fresh, in seconds, when it has been here so long; less than zero: how long it has not
    /// been.
    #[must_use]
    pub fn ttl_s(&self, resident: Duration) -> i64 {
        let (age, lifetime) = (self.freshness.age(resident).as_secs(), self.lifetime().as_secs());
        let lifetime = i64::try_from(lifetime).unwrap_or(i64::MAX);
        lifetime.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX))
    }

    /// How long it is fresh in all, from when the origin made it. What arrived stale has been so for a while.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        if self.lifespan.ttl.is_zero() && self.freshness.lifetime < self.freshness.initial_age {
            return self.freshness.lifetime;
        }
        self.freshness.initial_age.saturating_add(self.lifespan.ttl)
    }
}

impl Entry {
    /// How long it is good for.
    #[must_use]
    pub fn lifespan(&self) -> Lifespan {
        match self {
            Self::Answer(stored) => stored.lifespan,
            Self::Unshared(unshared) => unshared.lifespan,
            Self::Another(_) => Lifespan::NONE,
        }
    }

    /// Whether it stands for something that is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Answer(stored) => matches!(stored.status, StatusCode::NOT_FOUND | StatusCode::GONE),
            Self::Unshared(_) | Self::Another(_) => false,
        }
    }
}

/// What an allocation costs besides, at most.
const ALLOCATION_BYTES: usize = 32;

/// What an entry owns in memory, in bytes.
#[must_use]
pub fn weigh(place: &Place, entry: &Entry) -> usize {
    let selecting = |selecting: &Option<Arc<Selecting>>| {
        selecting.as_ref().map_or(0, |selecting| selecting.as_bytes().len() + 2 * ALLOCATION_BYTES)
    };
    let key = place.key.as_str().len() + ALLOCATION_BYTES + selecting(&place.variant);
    key + match entry {
        Entry::Unshared(_) | Entry::Another(_) => size_of::<Unshared>() + ALLOCATION_BYTES,
        Entry::Answer(stored) => {
            let tags: usize = stored.tags.iter().map(|tag| tag.len() + ALLOCATION_BYTES).sum();
            let pieces = match &stored.content {
                Content::Whole(pieces) => pieces.iter().map(|piece| held(piece.len())).sum(),
                Content::Arriving(arriving) => {
                    arriving.length().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX))
                }
            };
            size_of::<Stored>() + head_bytes(&stored.headers) + tags + selecting(&stored.selecting) + pieces
        }
    }
}

/// What the bytes of a body take: with large ones the allocator gives whole pages.
#[must_use]
pub fn held(bytes: usize) -> usize {
    const PAGE: usize = 4_096;
    let piece = size_of::<Bytes>() + 2 * ALLOCATION_BYTES;
    piece + if bytes > 32 * PAGE { bytes.next_multiple_of(PAGE) } else { bytes }
}

/// A head in memory of its own: the values of one that has come are parts of all that was read with them.
#[must_use]
pub fn of_its_own(head: &HeaderMap) -> HeaderMap {
    let mut text = BytesMut::with_capacity(head.values().map(HeaderValue::len).sum());
    let mut own = HeaderMap::with_capacity(head.len());
    for (name, value) in head {
        text.extend_from_slice(value.as_bytes());
        // It was one before.
        let Ok(mut kept) = HeaderValue::from_maybe_shared(text.split().freeze()) else { continue };
        kept.set_sensitive(value.is_sensitive());
        own.append(name, kept);
    }
    // Without the room for more.
    own.clone()
}

/// What a head takes.
#[must_use]
pub fn head_bytes(headers: &HeaderMap) -> usize {
    const FIELD: usize = size_of::<HeaderName>() + 2 * size_of::<Bytes>() + ALLOCATION_BYTES;
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum()
}

/// Tells the tags of an entry: those of its answer, and of a variant also the URL.
pub fn tags(place: &Place, entry: &Entry, tell: &mut dyn FnMut(&str)) {
    if place.variant.is_some() {
        tell(&url_tag(&place.key));
    }
    if let Entry::Answer(stored) = entry {
        stored.tags.iter().for_each(|tag| tell(tag));
    }
}

/// The tag of all variants of a URL. No tag of an answer has a space.
#[must_use]
pub fn url_tag(key: &Key) -> String {
    format!("url {}", key.as_str())
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, SET_COOKIE};

    use super::*;

    #[test]
    fn a_head_of_its_own_says_the_same_elsewhere() {
        let read = Bytes::from("text/htmla=1b=2the rest of what was read".to_owned());
        let value = |range| HeaderValue::from_maybe_shared(read.slice(range)).unwrap();
        let mut secret = value(9..12);
        secret.set_sensitive(true);
        let mut head = HeaderMap::new();
        head.append(SET_COOKIE, secret);
        head.append(CONTENT_TYPE, value(0..9));
        head.append(SET_COOKIE, value(12..15));
        let own = of_its_own(&head);
        assert_eq!(own, head);
        let is_sensitive: Vec<_> = own.get_all(SET_COOKIE).iter().map(HeaderValue::is_sensitive).collect();
        assert_eq!(is_sensitive, [true, false]);
        drop(head);
        assert!(read.is_unique(), "something holds what was read");
    }
}
