//! A load: sends the request to the origin, and turns the response into a cache entry.

use std::{io, sync::Arc, time::SystemTime};

use http::{
    HeaderMap, Response, StatusCode,
    header::{AGE, CONTENT_LENGTH, ETAG, SET_COOKIE},
};
use http_body::Body;
use http_body_util::Full;
use stockade_cache::Lifespan;
use tokio::sync::oneshot;

use super::{
    body_chunks::{BodyChunks, CHUNK_BYTES},
    context::RequestContext,
    fetched_body::FetchedBody,
    markers,
    origin::OriginError,
    receiver::{BodyReceiver, LimitedBody, ReceivedBody, StoreTarget, read_available, read_limited},
    retention::{ReceivedHead, Retention},
    router::BodyStorage,
    runtime::system_now,
    spool::Spool,
    stored::{
        BodyUsers, CacheEntry, EntryKey, LoadedEntry, Reservation, StoredBody, StoredResponse,
        UncacheableMarker, UncacheableReason, allocated_bytes, detached, header_bytes,
    },
};
use crate::policy::{
    conditional,
    directives::ResponseDirectives,
    freshness::Freshness,
    hop,
    invalidate::effect_on_expired,
    storable::{GetExchange, NotStorable, storable},
    vary::{SelectingValues, Vary},
};

/// A load that brings nothing to be stored in place of a good response.
#[derive(Debug, thiserror::Error)]
pub enum OriginFailure {
    #[error(transparent)]
    NoResponse(#[from] OriginError),
    /// An error response, for all waiting requests.
    #[error("the origin answers {}", .0.status)]
    Response(Arc<StoredResponse>),
    /// An error response for this client alone; it is in the request context.
    #[error("the origin answers {status}")]
    Private { status: StatusCode },
    #[error("the origin's response is truncated: {0}")]
    Truncated(io::Error),
}

impl OriginFailure {
    /// False: the breaker does not count the load.
    #[must_use]
    pub fn is_origin_fault(&self) -> bool {
        !matches!(self, Self::NoResponse(error) if !error.is_origin_fault())
    }

    /// True if the request has not been sent, for a reason that is its client's: other clients may have a connection.
    #[must_use]
    pub fn is_about_client(&self) -> bool {
        matches!(self, Self::NoResponse(error) if error.is_about_client())
    }

    /// True if the origin has not answered in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::NoResponse(error) if error.is_timeout())
    }

    /// The origin's status.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Response(stored) => Some(stored.status),
            Self::Private { status } => Some(*status),
            Self::NoResponse(_) | Self::Truncated(_) => None,
        }
    }
}

/// True if a status means that the origin has failed (RFC 5861, 4; 408 as in Belfrage).
#[must_use]
pub fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 500 | 502 | 503 | 504)
}

/// True if a status depends on the range or conditions of its request, so that the response fits no other request.
fn is_conditional(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PARTIAL_CONTENT
            | StatusCode::NOT_MODIFIED
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::RANGE_NOT_SATISFIABLE
    )
}

/// The largest error response that coalesced requests share, in bytes of its body.
const SHARED_ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// Bytes reserved for the key and the entry of a response. The cache refuses an entry whose longer URL needs more.
const ENTRY_OVERHEAD_BYTES: usize = 1_024;

/// Upper bound of the overhead of one chunk of a body, in bytes.
const CHUNK_OVERHEAD_BYTES: usize = 2 * 96;

/// A body of at most this length may have arrived with its head; larger ones are spooled at once.
const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// The load of an entry, for the request that leads it.
pub async fn load(
    context: Arc<RequestContext>,
    entry_key: EntryKey,
    reservation: Reservation,
) -> Result<LoadedEntry, OriginFailure> {
    context.note_load();
    if entry_key.variant.is_none()
        && let Some(CacheEntry::Response(latest)) =
            context.route.cache.peek(&entry_key).map(|found| found.value)
        && !latest.matches(&context.headers)
    {
        // It stays stored for the requests that select it.
        return Ok(LoadedEntry::without_source(CacheEntry::OtherVariant(latest)));
    }
    let replaced = Replaced::find(&context, &entry_key);
    let conditions = replaced.as_ref().map(Replaced::conditions).unwrap_or_default();
    let fetch = OriginFetch { context, entry_key };
    if replaced.is_none()
        && let Some((reason, client_conditions)) = fetch.client_conditions()
    {
        let (started, response) = fetch.send(&client_conditions).await?;
        if is_conditional(response.status()) {
            return Ok(fetch.keep_conditional(reason, response, started));
        }
        return fetch.store_or_keep(started, response, None, reservation).await;
    }
    let (started, response) = fetch.send(&conditions).await?;
    let (Some(Replaced { stored, .. }), StatusCode::NOT_MODIFIED) = (&replaced, response.status()) else {
        return fetch.store_or_keep(started, response, replaced, reservation).await;
    };
    if conditional::is_about_stored(&stored.headers, response.headers()) {
        return Ok(fetch.not_modified(stored, response.headers(), started));
    }
    // The 304 is about another response than the stored one.
    let (started, response) = fetch.send(&HeaderMap::new()).await?;
    fetch.store_or_keep(started, response, replaced, reservation).await
}

/// The stored response that a load replaces.
struct Replaced {
    stored: Arc<StoredResponse>,
    /// True if it may still be served, stale or not.
    is_servable: bool,
    /// False: it is out of date for certain, or nothing tells it from another user's.
    may_be_validated: bool,
}

impl Replaced {
    fn find(context: &RequestContext, entry_key: &EntryKey) -> Option<Self> {
        let found = context.route.cache.peek(entry_key)?;
        let CacheEntry::Response(stored) = found.value else { return None };
        let is_told_apart =
            stored.is_shared || stored.headers.contains_key(ETAG) || !context.may_identify_user();
        stored.matches(&context.headers).then_some(Self {
            stored,
            is_servable: !found.servable_for.is_zero(),
            may_be_validated: !found.is_fallback_only && is_told_apart,
        })
    }

    fn conditions(&self) -> HeaderMap {
        if !self.may_be_validated {
            return HeaderMap::new();
        }
        conditional::conditional_request(&self.stored.headers).collect()
    }
}

/// The stored response with the head of a response to a HEAD sent at `started`; `None`: it must not be stored any more.
pub fn freshened_by_head(
    context: &Arc<RequestContext>,
    entry_key: &EntryKey,
    stored: &StoredResponse,
    headers: &HeaderMap,
    started: SystemTime,
) -> Option<CacheEntry> {
    let fetch = OriginFetch { context: Arc::clone(context), entry_key: entry_key.clone() };
    let head = fetch.freshened(stored, headers, started);
    let retention = head.storability.ok()?;
    Some(CacheEntry::Response(Arc::new(head.into_stored_with(stored, retention))))
}

struct OriginFetch {
    context: Arc<RequestContext>,
    entry_key: EntryKey,
}

impl OriginFetch {
    async fn send(&self, conditions: &HeaderMap) -> Result<(SystemTime, Response<FetchedBody>), OriginError> {
        let mut request = self.context.load_request()?;
        request.headers_mut().extend(conditions.clone());
        let started = system_now();
        let Self { context, entry_key } = self;
        let waiting = context.route.origin.waiting_clients().begin(entry_key);
        let others = || {
            let is_awaited = !context.is_abandoned() || context.route.cache.is_awaited(entry_key);
            is_awaited.then(|| waiting.clients())
        };
        let mut response = context.send(request, &others).await?;
        hop::strip(response.headers_mut());
        Ok((started, response))
    }

    /// The client's own range and conditions, for a request that is known to be alone, and the reason for that.
    fn client_conditions(&self) -> Option<(UncacheableReason, HeaderMap)> {
        let conditions = hop::condition_fields(&self.context.headers);
        if conditions.is_empty() { None } else { self.known_uncacheable().map(|reason| (reason, conditions)) }
    }

    /// The reason of a stored uncacheable marker, for this URL or for requests of this identity.
    fn known_uncacheable(&self) -> Option<UncacheableReason> {
        markers::known_reason(&self.context, &self.entry_key)
    }

    /// Keeps the response to a client's own range or conditions for that client.
    fn keep_conditional(
        &self,
        reason: UncacheableReason,
        response: Response<FetchedBody>,
        started: SystemTime,
    ) -> LoadedEntry {
        // The head of a partial response also shows if the complete one may be shared. The marker is renewed only if it may
        // not; otherwise the next request decides.
        let whole = self.evaluate(StatusCode::OK, response.headers().clone(), started).storability;
        let status = response.status();
        self.context.set_private_response(response);
        match whole {
            _ if reason == UncacheableReason::TooLarge => self.uncacheable(status, reason),
            Err(reason) if !reason.lacks_lifetime() => self.uncacheable(status, reason),
            _ => markers::of_error(&self.context, &self.entry_key, reason),
        }
    }

    /// The stored response's head, updated by the head of a 304 or of a response to HEAD.
    fn freshened(&self, stored: &StoredResponse, update: &HeaderMap, started: SystemTime) -> EvaluatedHead {
        let directives = self.context.route.directives(update);
        let mut headers = stored.headers.clone();
        conditional::freshen(&mut headers, update, &directives, system_now());
        self.evaluate(stored.status, headers, started)
    }

    /// The origin has validated the stored response.
    fn not_modified(&self, stored: &StoredResponse, update: &HeaderMap, started: SystemTime) -> LoadedEntry {
        let mut head = self.freshened(stored, update, started);
        self.context.keep_private_fields(&self.context.route.directives(update), update);
        if head.storability == Err(NotStorable::Cookie.into()) && update.contains_key(SET_COOKIE) {
            // The cookie is for this client, the stored response still for all.
            let mut update = update.clone();
            self.context.keep_private_field(&SET_COOKIE, &update);
            update.remove(SET_COOKIE);
            head = self.freshened(stored, &update, started);
        }
        match head.storability {
            Ok(retention) => {
                let stored = head.into_stored_with(stored, retention);
                LoadedEntry::complete(CacheEntry::Response(Arc::new(stored)))
            }
            // Without a lifetime it is for this request only.
            Err(reason) if reason.lacks_lifetime() => {
                let retention = Retention { lifespan: Lifespan::NONE, is_shared: false };
                let stored = head.into_stored_with(stored, retention);
                LoadedEntry::complete(CacheEntry::Response(Arc::new(stored)))
            }
            // The origin has made it private: it is for this client only.
            Err(reason) => {
                let body = FetchedBody::Document(Full::new(stored.body.to_bytes()));
                let mut response = Response::new(body);
                *response.status_mut() = head.status;
                *response.headers_mut() = head.headers;
                self.context.set_private_response(response);
                self.uncacheable(stored.status, reason)
            }
        }
    }

    fn uncacheable(&self, status: StatusCode, reason: UncacheableReason) -> LoadedEntry {
        markers::remember(&self.context, &self.entry_key, status, reason)
    }

    fn evaluate(&self, status: StatusCode, mut headers: HeaderMap, started: SystemTime) -> EvaluatedHead {
        let RequestContext { route, directives: request_directives, headers: request, .. } = &*self.context;
        let received = system_now();
        let took = received.duration_since(started).unwrap_or_default();
        hop::supply_date(&mut headers, received);
        let directives = route.directives(&headers);
        let freshness = Freshness::new(status, &headers, &directives, received, took, &route.heuristics());
        let vary = Vary::of(&headers);
        let selecting = (vary != Vary::None).then(|| Arc::new(vary.selecting(request)));
        let exchange = GetExchange { request, status, response: &headers };
        let rules = route.operator_rules(&self.entry_key.key, status);
        let storability = storable(&exchange, request_directives, &directives, rules)
            .map_err(UncacheableReason::from)
            .and_then(|()| {
                let (headers, directives, freshness) = (&headers, &directives, &freshness);
                let head = ReceivedHead { request, status, headers, directives, freshness };
                route.retention(&self.entry_key.key, &head).ok_or(UncacheableReason::NoLifetime)
            });
        let tags = route.tags(&headers);
        EvaluatedHead { status, headers, directives, freshness, vary, received, selecting, tags, storability }
    }

    /// Stores a response, or keeps it for this client, or reports that the origin has failed.
    async fn store_or_keep(
        self,
        started: SystemTime,
        response: Response<FetchedBody>,
        replaced: Option<Replaced>,
        reservation: Reservation,
    ) -> Result<LoadedEntry, OriginFailure> {
        let head = self.evaluate(response.status(), response.headers().clone(), started);
        let replaces = replaced.is_some_and(|replaced| replaced.is_servable);
        let is_failure = is_failure(head.status);
        // No server error replaces a servable response, however fresh it claims to be.
        let is_rejected = is_failure || replaces && head.status.is_server_error();
        // Under an uncacheable marker each request is alone, and gets the response as it is.
        let is_alone = self.known_uncacheable().is_some();
        match head.storability {
            Err(reason) if is_alone && is_rejected && reason.lacks_lifetime() => {
                self.context.set_private_response(response);
                Err(OriginFailure::Private { status: head.status })
            }
            Ok(_) if replaces && is_rejected => Err(self.failure(head, response).await),
            Err(reason) if is_rejected && reason.lacks_lifetime() => Err(self.failure(head, response).await),
            // The error response is private: other requests learn only its status.
            Err(_) if is_rejected => {
                self.context.set_private_response(response);
                Err(OriginFailure::Private { status: head.status })
            }
            // Without a lifetime it goes to the waiting requests.
            Err(reason) if reason.lacks_lifetime() && !is_alone && !head.status.is_success() => {
                let (context, entry_key) = (&self.context, &self.entry_key);
                markers::outdate(
                    context,
                    entry_key,
                    effect_on_expired(head.status, !context.may_identify_user()),
                );
                match self.failure(head, response).await {
                    OriginFailure::Response(stored) => {
                        Ok(LoadedEntry::transient(CacheEntry::Response(stored)))
                    }
                    _ => Ok(markers::of_error(context, entry_key, reason)),
                }
            }
            Err(reason) => {
                self.context.set_private_response(response);
                Ok(self.uncacheable(head.status, reason))
            }
            Ok(retention) => {
                let loaded = self.receive(head, response, retention, reservation).await?;
                Ok(LoadedEntry { is_failure, ..loaded })
            }
        }
    }

    /// An error response for all waiting requests; for this client alone if it may identify the user, or is too long.
    async fn failure(&self, head: EvaluatedHead, response: Response<FetchedBody>) -> OriginFailure {
        let status = head.status;
        let length = response.body().size_hint().exact();
        if self.context.may_identify_user()
            || length.is_some_and(|length| length > SHARED_ERROR_BODY_BYTES_MAX as u64)
        {
            self.context.set_private_response(response);
            return OriginFailure::Private { status };
        }
        let (parts, body) = response.into_parts();
        match read_limited(body, SHARED_ERROR_BODY_BYTES_MAX).await {
            Ok(LimitedBody::Whole(body)) => OriginFailure::Response(Arc::new(
                head.into_stored(StoredBody::new(body), Retention::TRANSIENT),
            )),
            Ok(LimitedBody::TooLong(body)) => {
                self.context.set_private_response(Response::from_parts(parts, body));
                OriginFailure::Private { status }
            }
            Err(_) => OriginFailure::Private { status },
        }
    }

    /// The entry of a storable response: whole if its small body has already arrived, otherwise spooled.
    async fn receive(
        &self,
        head: EvaluatedHead,
        response: Response<FetchedBody>,
        retention: Retention,
        mut reservation: Reservation,
    ) -> Result<LoadedEntry, OriginFailure> {
        self.context.keep_private_fields(&head.directives, response.headers());
        let BodyStorage { bytes_max, file } = self.context.route.bodies.clone();
        let length = response.body().size_hint().exact();
        let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let chunks_overhead = length.unwrap_or(bytes_max).min(bytes_max) / CHUNK_BYTES * CHUNK_OVERHEAD_BYTES;
        let overhead_bytes = header_bytes(&head.headers)
            + size_of::<StoredResponse>()
            + ENTRY_OVERHEAD_BYTES
            + chunks_overhead;
        let total_bytes = length.map_or(0, |length| overhead_bytes.saturating_add(allocated_bytes(length)));
        if total_bytes > bytes_max {
            self.context.set_private_response(response);
            return Ok(self.uncacheable(head.status, UncacheableReason::TooLarge));
        }
        let mut chunks = BodyChunks::new(length, file);
        let is_reserved = chunks.has_room(length.unwrap_or_default())
            && reservation.grow_to(total_bytes.max(overhead_bytes));
        let mut body = response.into_body();
        let is_small = length.is_some_and(|length| length <= SMALL_BODY_BYTES_MAX);
        if is_small && read_available(&mut chunks, &mut body).await.map_err(OriginFailure::Truncated)? {
            let stored = head.into_stored(chunks.into_body(), retention);
            let entry = CacheEntry::Response(Arc::new(stored));
            return Ok(LoadedEntry { reservation: Some(reservation), ..LoadedEntry::complete(entry) });
        }
        let (spool, writer) = Spool::new(length.map(|length| length as u64));
        chunks.parts().for_each(|part| writer.push(part));
        let spooled = Arc::new(head.into_stored(StoredBody::Spooled(spool), retention));
        let (result, received) = oneshot::channel();
        // Without a reservation the waiting requests still read the spool.
        let target = is_reserved.then_some(StoreTarget { reservation, bytes_max, result });
        if target.is_none() {
            writer.stop_retaining();
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "on the current thread, which owns the connection to the origin"
        )]
        drop(tokio::spawn(BodyReceiver { body, writer, chunks, overhead_bytes, target }.run()));
        let entry = CacheEntry::Response(Arc::clone(&spooled));
        if !is_reserved {
            return Ok(LoadedEntry::transient(entry));
        }
        let remainder = async move {
            match received.await {
                Ok(Ok(ReceivedBody::Whole(body, reservation))) => {
                    Ok((CacheEntry::Response(Arc::new(spooled.with_body(body))), reservation))
                }
                Ok(Ok(ReceivedBody::TooLarge(reservation))) => {
                    Ok((UncacheableMarker::new(UncacheableReason::TooLarge).stored(), reservation))
                }
                Ok(Ok(ReceivedBody::NoRoom(reservation))) => {
                    Ok((UncacheableMarker::new(UncacheableReason::NoRoom).transient(), reservation))
                }
                Ok(Err(error)) => Err(OriginFailure::Truncated(error).into()),
                Err(_) => Err(OriginFailure::Truncated(io::ErrorKind::UnexpectedEof.into()).into()),
            }
        };
        Ok(LoadedEntry { remainder: Some(Box::pin(remainder)), ..LoadedEntry::complete(entry) })
    }
}

/// A response's head, and the decision to store it.
struct EvaluatedHead {
    status: StatusCode,
    headers: HeaderMap,
    directives: ResponseDirectives,
    freshness: Freshness,
    vary: Vary,
    received: SystemTime,
    selecting: Option<Arc<SelectingValues>>,
    tags: Box<[Box<str>]>,
    storability: Result<Retention, UncacheableReason>,
}

impl EvaluatedHead {
    /// With the body of a stored response, which it replaces.
    fn into_stored_with(self, stored: &StoredResponse, retention: Retention) -> StoredResponse {
        let users = stored.users.clone();
        StoredResponse { users, ..self.into_stored(stored.body.clone(), retention) }
    }

    fn into_stored(self, body: StoredBody, retention: Retention) -> StoredResponse {
        let Self { status, mut headers, directives, freshness, vary, received, selecting, tags, .. } = self;
        hop::for_store(&mut headers, &directives);
        headers.remove(CONTENT_LENGTH);
        headers.remove(AGE);
        let headers = detached(&headers);
        let Retention { lifespan, is_shared } = retention;
        let users = BodyUsers::default();
        StoredResponse {
            status,
            headers,
            body,
            freshness,
            received,
            lifespan,
            is_shared,
            vary,
            selecting,
            tags,
            users,
        }
    }
}
