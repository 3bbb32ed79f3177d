//! A load: the origin is asked, and its answer becomes what may be stored.

use std::{io, sync::Arc, time::SystemTime};

use http::{
    HeaderMap, HeaderName, Response, StatusCode,
    header::{AGE, CONTENT_LENGTH, SET_COOKIE},
};
use http_body::Body;
use http_body_util::Full;
use stockade_cache::Lifespan;
use tokio::sync::oneshot;

use super::{
    arriving::Arriving,
    asked::Asked,
    clock,
    origin::{OriginBody, OriginError},
    receive::{CHUNK, Limited, Pieces, Received, Receiver, Storing, limited},
    stored::{Arrival, Content, Entry, Place, Reason, Room, Stored, Unshared, head_bytes, held, of_its_own},
};
use crate::policy::{
    conditional,
    directives::ResponseDirectives,
    freshness::Freshness,
    hop,
    storable::{Exchange, NotStored, storable},
    vary::{Selecting, Vary},
};

/// What a load brings that brings nothing to be shared.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The origin says that it has failed.
    #[error("the origin answers {}", .0.status)]
    Answered(Arc<Stored>),
    /// It does, to one who asked alone.
    #[error("the origin answers {status}")]
    Own {
        /// With what.
        status: StatusCode,
    },
    /// The answer broke off.
    #[error("the answer broke off: {0}")]
    Cut(io::Error),
}

impl Failure {
    /// What the origin answered.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Answered(stored) => Some(stored.status),
            Self::Own { status } => Some(*status),
            Self::Origin(_) | Self::Cut(_) => None,
        }
    }
}

/// Whether an answer means that the origin has failed (RFC 5861, 4, and 408 as Belfrage has it).
#[must_use]
pub fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 500 | 502 | 503 | 504)
}

/// Whether an answer is about the range or the conditions of its request, and says nothing to others.
fn is_of_a_condition(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PARTIAL_CONTENT
            | StatusCode::NOT_MODIFIED
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::RANGE_NOT_SATISFIABLE
    )
}

/// The largest body of a failure that waiters are told.
const FAILURE_BYTES_MAX: usize = 64 << 10;

/// The key and the place of an answer take no more, in bytes; a longer URL has what it takes refused by the cache.
const BESIDE_BYTES: usize = 1_024;

/// What a chunk of a body costs besides, at most, in bytes.
const CHUNK_BESIDE_BYTES: usize = 2 * 96;

/// Larger bodies are not waited for at all.
const SMALL_BYTES: usize = 64 << 10;

/// Asks the origin on behalf of a request, for the place where its answer is to be stored.
pub async fn load(asked: Arc<Asked>, place: Place, room: Room) -> Result<Arrival, Failure> {
    if place.variant.is_none()
        && let Some(Entry::Answer(last)) = asked.route.cache.peek(&place).map(|held| held.value)
        && !last.is_for(&asked.headers)
    {
        // It stays where it is, for those whom it is for.
        return Ok(Arrival::unasked(Entry::Another(last)));
    }
    let held = Held::find(&asked, &place);
    let conditions: HeaderMap =
        held.iter().flat_map(|held| conditional::conditional_request(&held.stored.headers)).collect();
    let loading = Loading { asked, place };
    if held.is_none()
        && let Some((reason, own)) = loading.own_conditions()
    {
        let (began, response) = loading.ask(&own).await?;
        if is_of_a_condition(response.status()) {
            return Ok(loading.own_answer(reason, response, began));
        }
        return loading.take_in(began, response, None, room).await;
    }
    let (began, response) = loading.ask(&conditions).await?;
    let (Some(Held { stored, .. }), StatusCode::NOT_MODIFIED) = (&held, response.status()) else {
        return loading.take_in(began, response, held, room).await;
    };
    if conditional::is_about(&stored.headers, response.headers()) {
        return Ok(loading.not_modified(stored, response.headers(), began));
    }
    // It is about another answer than the one that is here.
    let (began, response) = loading.ask(&HeaderMap::new()).await?;
    loading.take_in(began, response, None, room).await
}

/// An answer that is here, for who selects it.
struct Held {
    stored: Arc<Stored>,
    is_servable: bool,
}

impl Held {
    fn find(asked: &Asked, place: &Place) -> Option<Self> {
        let held = asked.route.cache.peek(place)?;
        let Entry::Answer(stored) = held.value else { return None };
        let is_servable = !held.servable_for.is_zero();
        stored.is_for(&asked.headers).then_some(Self { stored, is_servable })
    }
}

/// What is stored, with the head that the origin has given in answer to HEAD; `None`: it may not be stored any more.
pub fn freshened_by_head(
    asked: &Arc<Asked>,
    place: &Place,
    stored: &Stored,
    head: &HeaderMap,
) -> Option<Entry> {
    let loading = Loading { asked: Arc::clone(asked), place: place.clone() };
    let head = loading.freshened(stored, head, clock::now());
    let lifespan = head.fate.ok().filter(|lifespan| *lifespan != Lifespan::NONE)?;
    Some(Entry::Answer(Arc::new(head.stored(stored.content.clone(), lifespan))))
}

/// A load on its way.
struct Loading {
    asked: Arc<Asked>,
    place: Place,
}

/// What this cache is told before `Cache-Control` is (RFC 9213).
pub const TARGETS: [HeaderName; 1] = [HeaderName::from_static("cdn-cache-control")];

impl Loading {
    async fn ask(&self, conditions: &HeaderMap) -> Result<(SystemTime, Response<OriginBody>), OriginError> {
        let mut request = self.asked.for_load();
        request.headers_mut().extend(conditions.clone());
        let began = clock::now();
        let mut response = self.asked.route.origin.ask(request, &self.asked).await?;
        hop::strip(response.headers_mut());
        Ok((began, response))
    }

    /// The client's own range and conditions, if it has some and is known to ask alone; and why it does.
    fn own_conditions(&self) -> Option<(Reason, HeaderMap)> {
        let own = hop::of_a_condition(&self.asked.headers);
        if own.is_empty() { None } else { self.why_alone().map(|reason| (reason, own)) }
    }

    /// Why the request asks alone, if that is known: its answers are not shared, or none to credentials is.
    fn why_alone(&self) -> Option<Reason> {
        let of_credentials = || {
            let place = Place::of_credentials(&self.place.key);
            let is_meant = self.asked.has_credentials();
            is_meant.then(|| self.asked.route.cache.peek(&place)).flatten().map(|held| held.value)
        };
        match self.held_here().or_else(of_credentials)? {
            Entry::Unshared(unshared) => Some(unshared.reason),
            Entry::Answer(_) | Entry::Another(_) => None,
        }
    }

    /// What the origin makes of a client's own range or conditions: for that client, as it is.
    fn own_answer(&self, reason: Reason, response: Response<OriginBody>, began: SystemTime) -> Arrival {
        // A part says, too, whom the whole is for. Unless that is one user, nothing is remembered for longer: else nobody
        // would find out that it may be shared by now.
        let whole = self.read(StatusCode::OK, response.headers().clone(), began).fate;
        self.asked.keep_own(response);
        match whole {
            _ if reason == Reason::TooLarge => self.unshared(reason),
            Err(reason) if !reason.is_of_status() => self.unshared(reason),
            _ => Arrival::fleeting(Unshared::for_now(reason)),
        }
    }

    /// The answer that is here, with the head that the origin gives it now.
    fn freshened(&self, stored: &Stored, told: &HeaderMap, began: SystemTime) -> Head {
        let said = ResponseDirectives::read(told, &TARGETS);
        let mut headers = stored.headers.clone();
        conditional::freshen(&mut headers, told, &said, clock::now());
        self.read(stored.status, headers, began)
    }

    /// What becomes of the answer that is here, now that the origin says that it is as it was.
    fn not_modified(&self, stored: &Stored, told: &HeaderMap, began: SystemTime) -> Arrival {
        let mut head = self.freshened(stored, told, began);
        self.asked.keep_fields(&ResponseDirectives::read(told, &TARGETS), told);
        if head.fate == Err(NotStored::Cookie.into()) && told.contains_key(SET_COOKIE) {
            // The cookie is for who has asked, the rest for everybody, as it was.
            let mut told = told.clone();
            self.asked.keep_field(&SET_COOKIE, &told);
            told.remove(SET_COOKIE);
            head = self.freshened(stored, &told, began);
        }
        match head.fate {
            Ok(lifespan) => {
                let stored = head.stored(stored.content.clone(), lifespan);
                Arrival::whole(Entry::Answer(Arc::new(stored)))
            }
            // Nobody knows how long it is fresh: so it is for those who have waited for it.
            Err(reason) if reason.is_of_status() => {
                let stored = head.stored(stored.content.clone(), Lifespan::NONE);
                Arrival::whole(Entry::Answer(Arc::new(stored)))
            }
            // From now on it is for one: who has asked.
            Err(reason) => {
                let body = OriginBody::Document(Full::new(stored.content.joined()));
                let mut response = Response::new(body);
                *response.status_mut() = head.status;
                *response.headers_mut() = head.headers;
                self.asked.keep_own(response);
                self.unshared(reason)
            }
        }
    }

    /// That an answer is not shared. It is remembered, unless it was a matter of who asked, or there is something
    /// fresh that only this request did not want. That answers to credentials are not shared is remembered elsewhere,
    /// of those who have some.
    fn unshared(&self, reason: Reason) -> Arrival {
        let cache = &self.asked.route.cache;
        let is_of_request = match reason {
            Reason::NotStored(NotStored::RequestNoStore) => true,
            Reason::NotStored(NotStored::Credentials) => {
                let place = Place::of_credentials(&self.place.key);
                if cache.peek(&place).is_none() {
                    cache.insert(place, Unshared::remembered(reason));
                }
                true
            }
            _ => false,
        };
        let is_fresh_answer = |held: stockade_cache::Held<Entry>| {
            matches!(held.value, Entry::Answer(_)) && !held.fresh_for.is_zero()
        };
        if is_of_request || cache.peek(&self.place).is_some_and(is_fresh_answer) {
            Arrival::fleeting(Unshared::for_now(reason))
        } else {
            Arrival::whole(Unshared::remembered(reason))
        }
    }

    /// What is here, whatever it is good for.
    fn held_here(&self) -> Option<Entry> {
        self.asked.route.cache.peek(&self.place).map(|held| held.value)
    }

    /// What becomes of an answer, as its head says.
    fn read(&self, status: StatusCode, mut headers: HeaderMap, began: SystemTime) -> Head {
        let Asked { route, directives, headers: request, .. } = &*self.asked;
        let received = clock::now();
        let took = received.duration_since(began).unwrap_or_default();
        hop::supply_date(&mut headers, received);
        let said = ResponseDirectives::read(&headers, &TARGETS);
        let freshness = Freshness::of(status, &headers, &said, received, took, &route.heuristics());
        let vary = Vary::of(&headers);
        let selecting = (vary != Vary::None).then(|| Arc::new(vary.selecting(request)));
        let exchange = Exchange { request, status, response: &headers };
        let stored = storable(&exchange, directives, &said).map_err(Reason::from);
        let lifespan = || route.lifespan(status, &headers, &said, &freshness).ok_or(Reason::NoLifetime);
        let mut fate = stored.and_then(|()| lifespan());
        if let Ok(lifespan) = &mut fate
            && lifespan.ttl.is_zero()
        {
            // Caches before this one have given it stale already.
            let stale_for = freshness.initial_age.saturating_sub(freshness.lifetime);
            lifespan.swr = lifespan.swr.saturating_sub(stale_for);
            lifespan.sie = lifespan.sie.saturating_sub(stale_for);
        }
        let tags = route.tags(&headers);
        Head { status, headers, said, freshness, vary, received, selecting, tags, fate }
    }

    /// Makes of an answer what may be made of it.
    async fn take_in(
        self,
        began: SystemTime,
        response: Response<OriginBody>,
        held: Option<Held>,
        room: Room,
    ) -> Result<Arrival, Failure> {
        let head = self.read(response.status(), response.headers().clone(), began);
        let replaces = held.is_some_and(|held| held.is_servable);
        let is_failure = is_failure(head.status);
        // In place of a good answer no other of the origin's errors will do either, however fresh it claims to be.
        let is_kept_out = is_failure || replaces && head.status.is_server_error();
        // Who knows that its answers are not shared has asked alone, and is told this one as it is.
        let is_alone = matches!(self.held_here(), Some(Entry::Unshared(_)));
        match head.fate {
            Err(reason) if is_alone && is_kept_out && reason.is_of_status() => {
                self.asked.keep_own(response);
                Err(Failure::Own { status: head.status })
            }
            Ok(_) if replaces && is_kept_out => Err(self.failed(head, response).await),
            Err(reason) if is_kept_out && reason.is_of_status() => Err(self.failed(head, response).await),
            // It is for one, and says that the origin has failed: the others are told only that.
            Err(_) if is_kept_out => {
                self.asked.keep_own(response);
                Err(Failure::Own { status: head.status })
            }
            // Nobody says how long it holds: it is told those who wait, and what is stored stays.
            Err(reason) if reason.is_of_status() && !is_alone && !head.status.is_success() => {
                match self.failed(head, response).await {
                    Failure::Answered(stored) => Ok(Arrival::fleeting(Entry::Answer(stored))),
                    _ => Ok(Arrival::fleeting(Unshared::for_now(reason))),
                }
            }
            Err(reason) => {
                self.asked.keep_own(response);
                Ok(self.unshared(reason))
            }
            Ok(lifespan) => {
                let arrival = self.receive(head, response, lifespan, room).await?;
                Ok(Arrival { is_failure, ..arrival })
            }
        }
    }

    /// An answer that tells all who wait what the origin says instead of what was asked for. What it says to somebody
    /// whom it may know is for them.
    async fn failed(&self, head: Head, response: Response<OriginBody>) -> Failure {
        let status = head.status;
        let length = response.body().size_hint().exact();
        if self.asked.is_known() || length.is_some_and(|length| length > FAILURE_BYTES_MAX as u64) {
            self.asked.keep_own(response);
            return Failure::Own { status };
        }
        let (parts, body) = response.into_parts();
        match limited(body, FAILURE_BYTES_MAX).await {
            Ok(Limited::Whole(body)) => {
                Failure::Answered(Arc::new(head.stored(Content::of(body), Lifespan::NONE)))
            }
            Ok(Limited::Longer(body)) => {
                self.asked.keep_own(Response::from_parts(parts, body));
                Failure::Own { status }
            }
            Err(_) => Failure::Own { status },
        }
    }

    /// The body of an answer that may be stored: all of it if that is there by now, else as it comes.
    async fn receive(
        &self,
        head: Head,
        response: Response<OriginBody>,
        lifespan: Lifespan,
        mut room: Room,
    ) -> Result<Arrival, Failure> {
        self.asked.keep_fields(&head.said, response.headers());
        let object_max = self.asked.route.object_max;
        let length = response.body().size_hint().exact();
        let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        // What the cache counts besides: its key and its place.
        // And each chunk of its body.
        let chunks = length.unwrap_or(object_max).min(object_max) / CHUNK * CHUNK_BESIDE_BYTES;
        let beside = head_bytes(&head.headers) + size_of::<Stored>() + BESIDE_BYTES + chunks;
        let whole = length.map_or(0, |length| beside.saturating_add(held(length)));
        if whole > object_max {
            self.asked.keep_own(response);
            return Ok(self.unshared(Reason::TooLarge));
        }
        let has_room = room.grow(whole.max(beside));
        let mut body = response.into_body();
        let mut pieces = Pieces::new(length);
        let is_small = length.is_some_and(|length| length <= SMALL_BYTES);
        if is_small && pieces.take_what_is_there(&mut body).await.map_err(Failure::Cut)? {
            let entry = Entry::Answer(Arc::new(head.stored(pieces.into_content(), lifespan)));
            return Ok(Arrival { room: Some(room), ..Arrival::whole(entry) });
        }
        let (arriving, feed) = Arriving::new(length.map(|length| length as u64));
        pieces.iter().for_each(|piece| feed.push(piece.clone()));
        let beginning = Arc::new(head.stored(Content::Arriving(arriving), lifespan));
        let (store, stored) = oneshot::channel();
        // Without room those who wait read it along all the same.
        let storing =
            has_room.then_some(Storing { room, object_max: object_max.saturating_sub(beside), store });
        if storing.is_none() {
            feed.flow();
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "on the thread whose connection to the origin it reads"
        )]
        drop(tokio::spawn(Receiver { body, feed, pieces, beside, storing }.run()));
        let value = Entry::Answer(Arc::clone(&beginning));
        if !has_room {
            return Ok(Arrival::fleeting(value));
        }
        let rest = async move {
            match stored.await {
                Ok(Ok(Received::Whole(content, room))) => {
                    Ok((Entry::Answer(Arc::new(beginning.with(content))), room))
                }
                Ok(Ok(Received::TooLarge(room))) => Ok((Unshared::remembered(Reason::TooLarge), room)),
                Ok(Ok(Received::NoRoom(room))) => Ok((Unshared::for_now(Reason::NoRoom), room)),
                Ok(Err(error)) => Err(Failure::Cut(error).into()),
                Err(_) => Err(Failure::Cut(io::ErrorKind::UnexpectedEof.into()).into()),
            }
        };
        Ok(Arrival { rest: Some(Box::pin(rest)), ..Arrival::whole(value) })
    }
}

/// What the head of an answer says.
struct Head {
    status: StatusCode,
    headers: HeaderMap,
    said: ResponseDirectives,
    freshness: Freshness,
    vary: Vary,
    received: SystemTime,
    selecting: Option<Arc<Selecting>>,
    tags: Box<[Box<str>]>,
    /// How long it is good for, or why it is not stored.
    fate: Result<Lifespan, Reason>,
}

impl Head {
    /// The answer to be stored.
    fn stored(self, content: Content, lifespan: Lifespan) -> Stored {
        let Self { status, mut headers, said, freshness, vary, received, selecting, tags, .. } = self;
        hop::for_store(&mut headers, &said);
        headers.remove(CONTENT_LENGTH);
        headers.remove(AGE);
        let headers = of_its_own(&headers);
        Stored { status, headers, content, freshness, received, lifespan, vary, selecting, tags }
    }
}
