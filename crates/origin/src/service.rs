//! From a request to what becomes of it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header::CONTENT_LENGTH};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use stockade_model::time::{Precise, Runtime, Time};

use crate::{
    admin,
    answer::{Answer, told},
    body::Body,
    book::{Fate, Route},
    content::{TIME, VERSION},
    counts::Counts,
    stages::{Fault, Plan},
    state::State,
    wire::Sending,
};

/// One listener's answers, on one thread.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) state: Arc<State>,
    pub(crate) time: Precise,
    pub(crate) role: Role,
}

/// Who asks at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Those whom the recipes are for.
    Public,
    /// Whoever writes the recipes.
    Admin,
    /// Both.
    Both,
}

/// What is done to a connection of HTTP/1, from outside of it, in place of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Break {
    pub(crate) fault: Fault,
    /// What would have been answered.
    pub(crate) answer: Answer,
    pub(crate) is_head: bool,
}

/// What a service tells its connection, beside what it tells hyper.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) breaks: Mutex<Option<Break>>,
    pub(crate) sending: Sending,
}

/// A stream of HTTP/2 ends in place of an answer.
pub(crate) type Ended = h2::Error;

impl Service {
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        link: &Link,
    ) -> Result<Response<Body>, Ended> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let is_admin = path == "/_admin" || path.starts_with("/_admin/");
        if self.role == Role::Admin || (self.role == Role::Both && is_admin) {
            let answer = admin::answer(self, &head.method, path, body).await;
            return Ok(sent(answer, head.method == Method::HEAD, None, &self.time));
        }
        let visit = self.state.in_flight.enter();
        if !drained(body).await {
            return Ok(sent(
                Answer::text(StatusCode::BAD_REQUEST, "the body broke off"),
                false,
                None,
                &self.time,
            ));
        }
        let now = self.time.now();
        let book = self.state.book.load();
        if ![Method::GET, Method::POST, Method::HEAD].contains(&head.method) {
            let counts = book.find(path).map_or(&self.state.unrouted, |route| &route.counts);
            counts.answered(StatusCode::NOT_FOUND);
            return Ok(sent(Answer::text(StatusCode::NOT_FOUND, "not found"), false, None, &self.time));
        }
        let Some(route) = book.find(path).map(Arc::clone) else {
            self.state.unrouted.answered(StatusCode::NOT_ACCEPTABLE);
            let mut answer = Answer::text(StatusCode::NOT_ACCEPTABLE, told(StatusCode::NOT_ACCEPTABLE, path));
            answer.head = crate::content::bare();
            return Ok(sent(answer, head.method == Method::HEAD, None, &self.time));
        };
        drop(book);
        let answered = self.routed(&route, &head, now, link).await;
        drop(visit);
        answered
    }

    async fn routed(
        &self,
        route: &Route,
        head: &http::request::Parts,
        now: Time,
        link: &Link,
    ) -> Result<Response<Body>, Ended> {
        let is_head = head.method == Method::HEAD;
        let path = head.uri.path();
        let with = |status, now| {
            let rendition = route.rendition(now);
            let mut answer = Answer::of(&rendition, status, path, &head.method, &head.headers);
            stamp(&mut answer);
            if rendition.sendable.is_large() {
                *link.sending.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&rendition.sendable));
            }
            answer
        };
        let plan = match route.fate(now) {
            Fate::NotYet => {
                route.counts.answered(StatusCode::NOT_ACCEPTABLE);
                return Ok(sent(with(StatusCode::NOT_ACCEPTABLE, now), is_head, None, &self.time));
            }
            Fate::Rejected => {
                route.counts.rejected();
                route.counts.answered(StatusCode::SERVICE_UNAVAILABLE);
                return Ok(sent(with(StatusCode::SERVICE_UNAVAILABLE, now), is_head, None, &self.time));
            }
            Fate::Planned { plan: plan @ Plan { fault: Some(Fault::Refuse), .. }, .. } => plan,
            Fate::Planned { plan, due } => {
                if due > now {
                    let patience = Patience(&route.counts);
                    self.time.sleep_until(due).await;
                    std::mem::forget(patience);
                }
                plan
            }
        };
        // What is true is what was true when it was asked for, as in a database.
        let answer = with(plan.status, now);
        let Some(fault) = plan.fault else {
            route.counts.answered(answer.status);
            return Ok(sent(answer, is_head, plan.byte_rate, &self.time));
        };
        route.counts.failed(fault);
        if fault == Fault::Silent {
            std::future::pending::<Infallible>().await;
        }
        if head.version == Version::HTTP_2 {
            return broken(fault, answer, is_head);
        }
        *link.breaks.lock().unwrap_or_else(PoisonError::into_inner) = Some(Break { fault, answer, is_head });
        // The connection ends, and this with it.
        match std::future::pending::<Infallible>().await {}
    }
}

/// Counts whoever gives up while they wait.
struct Patience<'a>(&'a Counts);

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.0.abandoned();
    }
}

/// Reads a body to its end, and keeps nothing.
async fn drained(mut body: Incoming) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}

/// Says when an answer that has a version was made.
fn stamp(answer: &mut Answer) {
    if !answer.head.contains_key(&VERSION) {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "caches and audits compare it with their own wall clocks")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let Ok(value) = HeaderValue::try_from(format!("{}.{:06}", since.as_secs(), since.subsec_micros())) {
        answer.head.insert(&TIME, value);
    }
}

/// An answer on its way.
pub(crate) fn sent(answer: Answer, is_head: bool, byte_rate: Option<u64>, time: &Precise) -> Response<Body> {
    let Answer { status, mut head, body } = answer;
    let body = if is_head {
        head.insert(CONTENT_LENGTH, body.len().into());
        Body::whole(bytes::Bytes::new())
    } else {
        match byte_rate {
            Some(rate) => Body::paced(body, rate, time),
            None => Body::whole(body),
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = head;
    response
}

/// The same faults where a connection carries many requests: it lives on, the stream does not.
fn broken(fault: Fault, answer: Answer, is_head: bool) -> Result<Response<Body>, Ended> {
    match fault {
        Fault::Refuse => return Err(h2::Reason::REFUSED_STREAM.into()),
        Fault::Malformed | Fault::Silent => return Err(h2::Reason::PROTOCOL_ERROR.into()),
        Fault::Reset | Fault::Cut => {}
    }
    let Answer { status, mut head, body } = answer;
    head.insert(CONTENT_LENGTH, body.len().into());
    let part = if is_head { 0 } else { body.len() / 2 };
    let part = Some(body.slice(..part)).filter(|part| !part.is_empty());
    let mut response = Response::new(Body::Broken { part, is_reset: fault == Fault::Reset });
    *response.status_mut() = status;
    *response.headers_mut() = head;
    Ok(response)
}
