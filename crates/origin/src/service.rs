//! From a request to what becomes of it.

use std::{
    convert::Infallible,
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header::CONTENT_LENGTH,
    request::Parts,
};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use stockade_model::time::{Precise, Runtime, before};

use crate::{
    admin,
    answer::{Answer, has_no_body, text_of},
    body::Body,
    book::{Fate, Route},
    content::{TIME, VERSION, bare},
    counts::Counts,
    fault::{Broken, End, Head},
    session::{Session, Visit},
    stages::Fault,
    state::State,
};

/// How long the next part of a request's body may take.
const PATIENCE: Duration = Duration::from_secs(75);
/// A request's body may be as large; it is read and dropped.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Nobody waits longer for an answer that never comes; then the connection ends.
const SILENCE: Duration = Duration::from_mins(15);

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

/// An answer, or the end of a stream of HTTP/2.
type Answered = Result<Response<Body>, h2::Error>;

/// Answers a request that came on a connection.
pub(crate) async fn answer(session: Arc<Session>, request: Request<Incoming>) -> Answered {
    let service = &session.service;
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_head = head.method == Method::HEAD;
    let is_admin = path == "/_admin" || path.starts_with("/_admin/");
    if service.role == Role::Admin || (service.role == Role::Both && is_admin) {
        let answer = admin::answer(service, &head, body).await;
        return Ok(sent(answer, is_head, Body::whole, None));
    }
    let visit = session.enter();
    let book = service.state.book.load();
    let route = book.find(path).map(Arc::clone);
    drop(book);
    let counts = route.as_ref().map_or(&service.state.unrouted, |route| &*route.counts);
    let told = |answer: Answer, visit| {
        counts.answered(answer.status);
        Ok(sent(answer, is_head, Body::whole, Some(visit)))
    };
    if let Some(instead) = drained(body, &service.time, counts).await {
        return told(instead, visit);
    }
    if ![Method::GET, Method::POST, Method::HEAD].contains(&head.method) {
        return told(Answer::text(StatusCode::NOT_FOUND, "not found"), visit);
    }
    let Some(route) = &route else {
        let status = StatusCode::NOT_ACCEPTABLE;
        return told(Answer { status, head: bare(), body: text_of(status, path) }, visit);
    };
    routed(&session, route, &head, visit).await
}

async fn routed(session: &Arc<Session>, route: &Route, head: &Parts, visit: Visit) -> Answered {
    let time = &session.service.time;
    let is_head = head.method == Method::HEAD;
    let now = time.now();
    // What is true is what was true when it was asked for, as in a database.
    let rendition = patiently(&route.counts, route.rendition(now)).await;
    let made = rendition.head.contains_key(&VERSION).then(stamp);
    let with = |status| {
        let mut answer = Answer::of(&rendition, status, head.uri.path(), &head.method, &head.headers);
        answer.head.extend(made.clone().map(|made| (TIME.clone(), made)));
        answer
    };
    let told = |status, visit| {
        route.counts.answered(status);
        Ok(sent(with(status), is_head, Body::whole, Some(visit)))
    };
    let plan = match route.fate(now) {
        Fate::NotYet => return told(StatusCode::NOT_ACCEPTABLE, visit),
        Fate::Rejected => {
            route.counts.rejected();
            return told(StatusCode::SERVICE_UNAVAILABLE, visit);
        }
        Fate::Planned { plan, due } => {
            if due > now && plan.fault != Some(Fault::Refuse) {
                patiently(&route.counts, time.sleep_until(due)).await;
            }
            plan
        }
    };
    let answer = with(plan.status);
    if let Some(fault) = plan.fault {
        return broken(session, fault, answer, head, visit, &route.counts).await;
    }
    route.counts.answered(answer.status);
    if rendition.filed.is_large() && head.version != Version::HTTP_2 {
        session.send(&rendition.filed);
    }
    Ok(match plan.byte_rate {
        None => sent(answer, is_head, Body::whole, Some(visit)),
        Some(rate) => sent(answer, is_head, |body, visit| Body::paced(body, rate, time, visit), Some(visit)),
    })
}

/// HTTP/1 leaves it to the connection; with HTTP/2 the stream ends, and the connection lives on.
async fn broken(
    session: &Arc<Session>,
    fault: Fault,
    answer: Answer,
    head: &Parts,
    visit: Visit,
    counts: &Counts,
) -> Answered {
    counts.failed(fault);
    let time = &session.service.time;
    if fault == Fault::Silent {
        time.sleep_until(time.now() + SILENCE).await;
    }
    let broken = Broken::new(fault, answer, head.method == Method::HEAD);
    if head.version != Version::HTTP_2 {
        session.break_off(broken);
        // The connection ends, and this with it.
        match pending::<Infallible>().await {}
    }
    match (broken.head, broken.end) {
        (Head::None, End::Reset) => Err(h2::Reason::REFUSED_STREAM.into()),
        (Head::Whole(status, head), end) => {
            let body = Body::broken(broken.part, end == End::Reset, time, Some(visit));
            Ok(response(status, head, body))
        }
        (Head::Cut(..), _) => Err(h2::Reason::INTERNAL_ERROR.into()),
        (Head::None | Head::Malformed, _) => Err(h2::Reason::PROTOCOL_ERROR.into()),
    }
}

/// Awaits, and counts whoever gives up meanwhile.
async fn patiently<F: Future>(counts: &Counts, awaited: F) -> F::Output {
    let patience = Patience(counts);
    let output = awaited.await;
    std::mem::forget(patience);
    output
}

/// Counts if it is dropped.
struct Patience<'a>(&'a Counts);

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.0.abandoned();
    }
}

/// Reads a body to its end, and keeps nothing; what is to be said of one that has none.
async fn drained(mut body: Incoming, time: &Precise, counts: &Counts) -> Option<Answer> {
    if body.is_end_stream() {
        return None;
    }
    let answer = |status, text: &'static str| Some(Answer::text(status, text));
    patiently(counts, async {
        let mut seen = 0;
        while seen <= BODY_BYTES_MAX {
            match before(time, time.now() + PATIENCE, body.frame()).await {
                Some(None) => return None,
                Some(Some(Ok(frame))) => seen += frame.data_ref().map_or(0, |part| part.len() as u64),
                Some(Some(Err(_))) => return answer(StatusCode::BAD_REQUEST, "the body breaks off"),
                None => return answer(StatusCode::REQUEST_TIMEOUT, "the body does not come"),
            }
        }
        answer(StatusCode::PAYLOAD_TOO_LARGE, "a body has 64 MiB at most")
    })
    .await
}

/// The time, as answers that have a version tell it.
fn stamp() -> HeaderValue {
    #[expect(clippy::disallowed_methods, reason = "caches and audits compare it with their own wall clocks")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = format!("{}.{:06}", since.as_secs(), since.subsec_micros());
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0"))
}

/// An answer on its way.
fn sent(
    answer: Answer,
    is_head: bool,
    leave: impl FnOnce(Bytes, Option<Visit>) -> Body,
    visit: Option<Visit>,
) -> Response<Body> {
    let Answer { status, mut head, body } = answer;
    let body = if is_head {
        if !has_no_body(status) {
            head.insert(CONTENT_LENGTH, body.len().into());
        }
        Body::whole(Bytes::new(), visit)
    } else {
        leave(body, visit)
    };
    response(status, head, body)
}

fn response(status: StatusCode, head: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = head;
    response
}
