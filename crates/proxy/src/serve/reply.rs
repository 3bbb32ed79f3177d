//! The reply to a client: a stored response as the request wants it (whole, ranges, 304), or an error.

mod head_cache;

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Version,
    header::{CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER},
};
use stockade_cache::{Answer, Error, Lifespan, Reason};
use stockade_model::{outcome::Outcome, seed::Seed};

use self::head_cache::cached_head;
use super::{
    context::{RequestContext, pseudonym},
    fetch::OriginFailure,
    reply_body::{ReplyBody, slice_chunks},
    stored::{BodyUsers, StoredBody, StoredResponse},
};
use crate::policy::{
    cache_status::{CacheStatus, Forward},
    conditional::{self, Condition},
    hop,
    range::{self, Multipart, RangeSelection},
};

pub struct Reply {
    pub response: Response<ReplyBody>,
    pub cache_status: CacheStatus,
    /// Of the stored body that it sends.
    pub users: Option<BodyUsers>,
    /// True if the head already has its `Cache-Status`.
    has_cache_status: bool,
}

/// A stored response selected for a request.
pub struct SelectedResponse<'a> {
    pub stored: &'a Arc<StoredResponse>,
    /// Time since it was stored.
    pub resident: Duration,
    pub cache_status: CacheStatus,
}

/// Why a stored response cannot be the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServable {
    /// The body is still arriving, and its first chunks are discarded.
    BodyDiscarded,
    /// Only the origin can evaluate the request's condition.
    Condition,
}

impl Reply {
    #[must_use]
    pub fn new(response: Response<ReplyBody>, cache_status: CacheStatus) -> Self {
        Self { response, cache_status, users: None, has_cache_status: false }
    }

    /// A short text of the proxy's own.
    #[must_use]
    pub fn text(status: StatusCode, text: &str, cache_status: CacheStatus) -> Self {
        let mut response = Response::new(ReplyBody::from(Bytes::from(format!("{text}\n"))));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Self::new(response, cache_status)
    }

    #[must_use]
    pub fn error(context: &RequestContext, error: &Error, forward: Forward) -> Self {
        context.note_error(error);
        let forwarded = CacheStatus::forwarded(Outcome::Error, forward);
        let not_forwarded = CacheStatus::unforwarded(Outcome::Error);
        let (status, cache_status) = match error {
            Error::Load(failure) => match failure.downcast_ref::<OriginFailure>() {
                Some(OriginFailure::Response(stored)) => {
                    let cache_status = CacheStatus { forward_status: Some(stored.status), ..forwarded };
                    let selected = SelectedResponse { stored, resident: Duration::ZERO, cache_status };
                    if stored.matches(&context.headers)
                        && let Ok(reply) = selected.reply(context)
                    {
                        return reply;
                    }
                    (StatusCode::BAD_GATEWAY, cache_status)
                }
                // The rest of that response is for another client.
                Some(OriginFailure::Private { status }) => {
                    (*status, CacheStatus { forward_status: Some(*status), ..forwarded })
                }
                Some(OriginFailure::NoResponse(error)) => (error.status(), forwarded),
                Some(OriginFailure::Truncated(_)) | None => (StatusCode::BAD_GATEWAY, forwarded),
            },
            Error::Deadline { .. } | Error::WaitTimeout { .. } => (StatusCode::GATEWAY_TIMEOUT, forwarded),
            Error::BreakerOpen
            | Error::Throttled { .. }
            | Error::Overloaded { .. }
            | Error::QueueTimeout { .. } => (StatusCode::SERVICE_UNAVAILABLE, not_forwarded),
            _ => (StatusCode::BAD_GATEWAY, forwarded),
        };
        Self::failure(status, error_text(error), cache_status)
    }

    /// A text for a request that was not answered. After a 503 the client may try again soon.
    #[must_use]
    pub fn failure(status: StatusCode, text: &'static str, cache_status: CacheStatus) -> Self {
        let mut reply = Self::text(status, text, cache_status);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            reply.response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        reply
    }

    #[must_use]
    pub fn into_response(mut self) -> Response<ReplyBody> {
        if !self.has_cache_status {
            self.cache_status.append(self.response.headers_mut());
        }
        self.response
    }
}

/// A text for clients, which reveals nothing about the servers behind the proxy.
fn error_text(error: &Error) -> &'static str {
    const TIMEOUT: &str = "the origin has not answered in time";
    match error {
        Error::Load(failure) => match failure.downcast_ref::<OriginFailure>() {
            Some(OriginFailure::NoResponse(error)) if error.status() == StatusCode::GATEWAY_TIMEOUT => {
                TIMEOUT
            }
            Some(OriginFailure::NoResponse(_)) => "the origin cannot be reached",
            Some(OriginFailure::Truncated(_)) => "the origin's response is truncated",
            Some(OriginFailure::Response(_) | OriginFailure::Private { .. }) | None => {
                "the origin has failed"
            }
        },
        Error::Deadline { .. } | Error::WaitTimeout { .. } => TIMEOUT,
        Error::BreakerOpen | Error::Throttled { .. } => {
            "the origin has failed, and gets no requests for a while"
        }
        Error::Overloaded { .. } | Error::QueueTimeout { .. } => "too many requests wait for the origin",
        _ => "the origin has not answered",
    }
}

/// The `Cache-Status` of a reply with `stored`; `miss` is the reason to forward if nothing was stored.
#[must_use]
pub fn cache_status<V>(answer: &Answer<V>, stored: &StoredResponse, miss: Forward) -> CacheStatus {
    let unloaded = || {
        let ttl_s = stored.ttl_s(answer.age);
        // Jitter or a soft purge makes a response stale before its lifetime ends.
        let is_stale = matches!(answer.outcome, Outcome::Stale | Outcome::Fallback);
        CacheStatus::from_store(answer.outcome, if is_stale { ttl_s.min(-1) } else { ttl_s })
    };
    let is_stored = stored.lifespan != Lifespan::NONE;
    let loaded =
        |forward| CacheStatus { stored: is_stored, ..CacheStatus::forwarded(answer.outcome, forward) };
    match (&answer.reason, answer.outcome) {
        (Reason::Failed(Error::Load(failure)), _) => {
            let forward_status = failure.downcast_ref::<OriginFailure>().and_then(OriginFailure::status);
            CacheStatus { forward_status, ..CacheStatus::forwarded(answer.outcome, Forward::Stale) }
        }
        (Reason::Failed(Error::Deadline { .. } | Error::SoftTimeout { .. }), _) => {
            CacheStatus::forwarded(answer.outcome, Forward::Stale)
        }
        (_, Outcome::Miss | Outcome::Coalesced) => loaded(match answer.reason {
            Reason::Expired | Reason::Early => Forward::Stale,
            Reason::Reload => Forward::Request,
            _ => miss,
        }),
        _ => unloaded(),
    }
}

impl SelectedResponse<'_> {
    /// Evaluates the request's conditions and ranges.
    pub fn reply(&self, context: &RequestContext) -> Result<Reply, NotServable> {
        let Self { stored, cache_status, .. } = *self;
        let mut status = stored.status;
        match conditional::condition(&context.method, &context.headers, status, &stored.headers) {
            Condition::Whole => {}
            Condition::NotModified => return Ok(self.not_modified(context)),
            Condition::Failed => return Err(NotServable::Condition),
        }
        let mut headers = self.headers(context);
        let length = stored.body.length();
        let selection = match length {
            Some(length) => {
                range::select_range(&context.method, &context.headers, status, &stored.headers, length)
            }
            None => RangeSelection::Whole,
        };
        let body = match (selection, length.unwrap_or_default()) {
            (RangeSelection::Whole, _) => whole_body(&stored.body)?,
            (RangeSelection::Unsatisfiable, length) => {
                status = StatusCode::RANGE_NOT_SATISFIABLE;
                headers.remove(CONTENT_TYPE);
                headers.insert(CONTENT_RANGE, range::content_range_unsatisfiable(length));
                ReplyBody::Empty
            }
            (RangeSelection::Parts(parts), length) => match (&*parts, &stored.body) {
                ([part], body) => {
                    status = StatusCode::PARTIAL_CONTENT;
                    headers.insert(CONTENT_RANGE, range::content_range(part, length));
                    range_body(body, part.clone())?
                }
                (_, StoredBody::Whole(chunks)) => {
                    status = StatusCode::PARTIAL_CONTENT;
                    let multipart = Multipart::new(&parts, &stored.headers, length, boundary());
                    headers.insert(CONTENT_TYPE, multipart.content_type.clone());
                    multipart_body(chunks, &parts, multipart)
                }
                (_, body) => whole_body(body)?,
            },
        };
        Ok(Reply { users: Some(stored.users.clone()), ..reply(status, headers, body, cache_status) })
    }

    fn headers(&self, context: &RequestContext) -> HeaderMap {
        let Self { stored, resident, cache_status } = *self;
        let age_s = stored.freshness.age(resident).as_secs();
        if cache_status.outcome != Outcome::Miss {
            return cached_head(stored, age_s, cache_status, || self.build_headers(age_s, HeaderMap::new()));
        }
        self.build_headers(age_s, context.take_private_fields())
    }

    fn build_headers(&self, age_s: u64, private_fields: HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.stored.headers.len() + 4);
        for (name, value) in &self.stored.headers {
            headers.append(name, value.clone());
        }
        headers.extend(private_fields);
        hop::set_age(&mut headers, Duration::from_secs(age_s));
        hop::add_via(&mut headers, Version::HTTP_11, pseudonym());
        self.cache_status.append(&mut headers);
        headers
    }

    fn not_modified(&self, context: &RequestContext) -> Reply {
        let mut headers = self.headers(context);
        conditional::to_not_modified(&mut headers);
        reply(StatusCode::NOT_MODIFIED, headers, ReplyBody::Empty, self.cache_status)
    }
}

fn whole_body(body: &StoredBody) -> Result<ReplyBody, NotServable> {
    Ok(match body {
        StoredBody::Whole(chunks) => match &**chunks {
            [] => ReplyBody::Empty,
            [chunk] => ReplyBody::Single(Some(chunk.clone())),
            chunks => ReplyBody::Chunks(chunks.iter().cloned().collect()),
        },
        StoredBody::Spooled(spool) => {
            let reader = spool.reader().ok_or(NotServable::BodyDiscarded)?;
            ReplyBody::spooled(reader, None, spool.content_length())
        }
    })
}

fn range_body(body: &StoredBody, range: Range<u64>) -> Result<ReplyBody, NotServable> {
    Ok(match body {
        StoredBody::Whole(chunks) => ReplyBody::range(chunks, range),
        StoredBody::Spooled(spool) => {
            let reader = spool.reader().ok_or(NotServable::BodyDiscarded)?;
            ReplyBody::spooled(reader, Some(range), None)
        }
    })
}

fn multipart_body(chunks: &[Bytes], ranges: &[Range<u64>], multipart: Multipart) -> ReplyBody {
    let mut parts = VecDeque::new();
    for (head, range) in multipart.heads.into_iter().zip(ranges) {
        parts.push_back(head);
        parts.extend(slice_chunks(chunks, range.clone()));
    }
    parts.push_back(multipart.tail);
    ReplyBody::Chunks(parts)
}

/// The boundary between the parts of a multipart body. It must be unpredictable, so that no stored body contains it.
fn boundary() -> u128 {
    static SEED: OnceLock<(Seed, AtomicU64)> = OnceLock::new();
    let (seed, count) = SEED.get_or_init(|| (Seed::from_entropy(), AtomicU64::new(0)));
    let nth = count.fetch_add(1, Ordering::Relaxed);
    let half = |which: &str| u128::from(seed.child(&format!("{which} {nth}")).0);
    half("high") << 64 | half("low")
}

fn reply(status: StatusCode, headers: HeaderMap, body: ReplyBody, cache_status: CacheStatus) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Reply { response, cache_status, users: None, has_cache_status: true }
}
