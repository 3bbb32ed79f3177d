//! What a client is given: a stored answer, or what its request makes of it.

mod ready;

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
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER},
};
use stockade_cache::{Answer, Error, Lifespan, Reason};
use stockade_model::{outcome::Outcome, seed::Seed};

use super::{
    asked::{Asked, pseudonym},
    body::{self, Body},
    fetch::Failure,
    stored::{Content, Stored},
};
use crate::policy::{
    cache_status::{CacheStatus, Forward},
    conditional::{self, Condition},
    hop,
    range::{self, Multipart, Wanted},
};

/// An answer, and what the cache did for it.
pub struct Given {
    /// The answer.
    pub response: Response<Body>,
    /// What was done.
    pub status: CacheStatus,
    /// Whether its head says so already.
    is_told: bool,
}

/// What was found for a request, and how.
pub struct Found<'a> {
    /// The answer.
    pub stored: &'a Arc<Stored>,
    /// How long it has been here.
    pub resident: Duration,
    /// What was done.
    pub status: CacheStatus,
}

/// Why a stored answer cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGiven {
    /// Its beginning has gone by.
    Late,
    /// Only the origin knows whether the request's condition holds.
    Condition,
}

impl Given {
    /// An answer whose head does not yet say what was done.
    #[must_use]
    pub fn of(response: Response<Body>, status: CacheStatus) -> Self {
        Self { response, status, is_told: false }
    }

    /// A few words of the proxy's own.
    #[must_use]
    pub fn words(status: StatusCode, words: &str, done: CacheStatus) -> Self {
        let mut response = Response::new(Body::from(Bytes::from(format!("{words}\n"))));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Self::of(response, done)
    }

    /// Nothing could be served.
    #[must_use]
    pub fn error(asked: &Asked, error: &Error, why: Forward) -> Self {
        let forwarded = CacheStatus::forwarded(Outcome::Error, why);
        let refused = CacheStatus { forward: None, ..forwarded };
        let (status, done) = match error {
            Error::Load(failure) => match failure.downcast_ref::<Failure>() {
                Some(Failure::Answered(stored)) => {
                    let done = CacheStatus { forward_status: Some(stored.status), ..forwarded };
                    let found = Found { stored, resident: Duration::ZERO, status: done };
                    if stored.is_for(&asked.headers)
                        && let Ok(given) = found.give(asked)
                    {
                        return given;
                    }
                    (StatusCode::BAD_GATEWAY, done)
                }
                // What it says besides is for another.
                Some(Failure::Own { status }) => {
                    (*status, CacheStatus { forward_status: Some(*status), ..forwarded })
                }
                Some(Failure::Origin(error)) => (error.status(), forwarded),
                Some(Failure::Cut(_)) | None => (StatusCode::BAD_GATEWAY, forwarded),
            },
            Error::Deadline { .. } | Error::WaitTimeout { .. } => (StatusCode::GATEWAY_TIMEOUT, forwarded),
            Error::BreakerOpen
            | Error::Throttled { .. }
            | Error::Overloaded { .. }
            | Error::QueueTimeout { .. } => (StatusCode::SERVICE_UNAVAILABLE, refused),
            _ => (StatusCode::BAD_GATEWAY, forwarded),
        };
        let mut given = Self::words(status, words(error), done);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            given.response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        given
    }

    /// The answer, with what every answer says.
    #[must_use]
    pub fn into_response(mut self) -> Response<Body> {
        if !self.is_told {
            self.status.append(self.response.headers_mut());
        }
        self.response
    }
}

/// Why nothing could be served, in words that hold nothing of what is behind the proxy.
fn words(error: &Error) -> &'static str {
    const LATE: &str = "the origin has not answered in time";
    match error {
        Error::Load(failure) => match failure.downcast_ref::<Failure>() {
            Some(Failure::Origin(error)) if error.status() == StatusCode::GATEWAY_TIMEOUT => LATE,
            Some(Failure::Origin(_)) => "the origin cannot be asked",
            Some(Failure::Cut(_)) => "the origin's answer broke off",
            Some(Failure::Answered(_) | Failure::Own { .. }) | None => "the origin has failed",
        },
        Error::Deadline { .. } | Error::WaitTimeout { .. } => LATE,
        Error::BreakerOpen | Error::Throttled { .. } => "the origin has failed, and is left alone for now",
        Error::Overloaded { .. } | Error::QueueTimeout { .. } => "too many are waiting for the origin",
        _ => "the origin has not answered",
    }
}

/// What the cache did for a request that it gives this answer.
#[must_use]
pub fn done<V>(answer: &Answer<V>, stored: &Stored, miss: Forward) -> CacheStatus {
    let from_store = || {
        let ttl_s = stored.ttl_s(answer.age);
        // By jitter or by a purge it is stale before its time.
        let is_stale = matches!(answer.outcome, Outcome::Stale | Outcome::Fallback);
        CacheStatus::stored(answer.outcome, if is_stale { ttl_s.min(-1) } else { ttl_s })
    };
    let is_stored = stored.lifespan != Lifespan::NONE;
    let forwarded = |why| CacheStatus { stored: is_stored, ..CacheStatus::forwarded(answer.outcome, why) };
    match (&answer.reason, answer.outcome) {
        (Reason::Failed(Error::Load(failure)), _) => {
            let forward_status = failure.downcast_ref::<Failure>().and_then(Failure::status);
            CacheStatus { forward_status, ..CacheStatus::forwarded(answer.outcome, Forward::Stale) }
        }
        (Reason::Failed(Error::Deadline { .. } | Error::SoftTimeout { .. }), _) => {
            CacheStatus::forwarded(answer.outcome, Forward::Stale)
        }
        (_, Outcome::Miss | Outcome::Coalesced) => forwarded(match answer.reason {
            Reason::Expired | Reason::Early => Forward::Stale,
            Reason::Refused => Forward::Request,
            _ => miss,
        }),
        _ => from_store(),
    }
}

impl Found<'_> {
    /// What the request makes of it.
    pub fn give(&self, asked: &Asked) -> Result<Given, NotGiven> {
        let Self { stored, status: done, .. } = *self;
        let mut status = stored.status;
        match conditional::condition(&asked.method, &asked.headers, status, &stored.headers) {
            Condition::Whole => {}
            Condition::NotModified => return Ok(self.not_modified(asked)),
            Condition::Failed => return Err(NotGiven::Condition),
        }
        let mut headers = self.head(asked);
        let length = stored.content.length();
        let wanted = match length {
            Some(length) => range::wanted(&asked.method, &asked.headers, status, &stored.headers, length),
            None => Wanted::Whole,
        };
        let body = match (wanted, length.unwrap_or_default()) {
            (Wanted::Whole, _) => whole(&stored.content)?,
            (Wanted::Unsatisfiable, length) => {
                status = StatusCode::RANGE_NOT_SATISFIABLE;
                headers.remove(CONTENT_TYPE);
                headers.insert(CONTENT_RANGE, range::content_range_unsatisfiable(length));
                Body::Empty
            }
            (Wanted::Parts(parts), length) => match (&*parts, &stored.content) {
                ([part], content) => {
                    status = StatusCode::PARTIAL_CONTENT;
                    headers.insert(CONTENT_RANGE, range::content_range(part, length));
                    one_part(content, part.clone())?
                }
                (_, Content::Whole(pieces)) => {
                    status = StatusCode::PARTIAL_CONTENT;
                    let multipart = Multipart::of(&parts, &stored.headers, length, boundary());
                    headers.insert(CONTENT_TYPE, multipart.content_type.clone());
                    several_parts(pieces, &parts, multipart)
                }
                (_, content) => whole(content)?,
            },
        };
        Ok(given(status, headers, body, done))
    }

    /// With all that is said of an answer from the store.
    fn head(&self, asked: &Asked) -> HeaderMap {
        let Self { stored, resident, status } = *self;
        let age_s = stored.freshness.age(resident).as_secs();
        if status.outcome != Outcome::Miss {
            return ready::head(stored, age_s, status, || self.made(age_s, HeaderMap::new()));
        }
        self.made(age_s, asked.take_fields())
    }

    fn made(&self, age_s: u64, fields: HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.stored.headers.len() + 4);
        for (name, value) in &self.stored.headers {
            headers.append(name, value.clone());
        }
        headers.extend(fields);
        hop::set_age(&mut headers, Duration::from_secs(age_s));
        hop::add_via(&mut headers, http::Version::HTTP_11, pseudonym());
        self.status.append(&mut headers);
        headers
    }

    fn not_modified(&self, asked: &Asked) -> Given {
        let mut headers = self.head(asked);
        conditional::to_not_modified(&mut headers);
        given(StatusCode::NOT_MODIFIED, headers, Body::Empty, self.status)
    }
}

fn whole(content: &Content) -> Result<Body, NotGiven> {
    Ok(match content {
        Content::Whole(pieces) => match &**pieces {
            [] => Body::Empty,
            [piece] => Body::Whole(Some(piece.clone())),
            pieces => Body::Pieces(pieces.iter().cloned().collect()),
        },
        Content::Arriving(arriving) => {
            let reader = arriving.read().ok_or(NotGiven::Late)?;
            Body::along(reader, None, arriving.length())
        }
    })
}

fn one_part(content: &Content, part: Range<u64>) -> Result<Body, NotGiven> {
    Ok(match content {
        Content::Whole(pieces) => Body::part(pieces, part),
        Content::Arriving(arriving) => Body::along(arriving.read().ok_or(NotGiven::Late)?, Some(part), None),
    })
}

fn several_parts(pieces: &[Bytes], parts: &[Range<u64>], multipart: Multipart) -> Body {
    let mut all = VecDeque::new();
    for (head, part) in multipart.heads.into_iter().zip(parts) {
        all.push_back(head);
        all.extend(body::cut(pieces, part.clone()));
    }
    all.push_back(multipart.tail);
    Body::Pieces(all)
}

/// What separates the parts of one answer: nobody knows it beforehand.
fn boundary() -> u128 {
    static DRAWN: OnceLock<(Seed, AtomicU64)> = OnceLock::new();
    let (seed, count) = DRAWN.get_or_init(|| (Seed::from_entropy(), AtomicU64::new(0)));
    let nth = count.fetch_add(1, Ordering::Relaxed);
    let half = |which: &str| u128::from(seed.child(&format!("{which} {nth}")).0);
    half("high") << 64 | half("low")
}

fn given(status: StatusCode, headers: HeaderMap, body: Body, done: CacheStatus) -> Given {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Given { response, status: done, is_told: true }
}
