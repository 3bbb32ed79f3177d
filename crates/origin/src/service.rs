//! Answers one request: finds its route, waits for the route's latency and builds the response.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header::CONTENT_LENGTH,
    request::Parts,
};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use stockade_model::time::{Precise, Runtime, before};
use stockade_record::{clock::since_1970, statement::DELAY_MIN};

use crate::{
    admin,
    body::OriginBody,
    connection_state::{OpenRequestGuard, OriginConnection},
    content::{
        DELAY_HEADER, OWNER_HEADER, STATEMENT_HEADER, TIME_HEADER, VARIANT_HEADER, default_headers,
        field_statement,
    },
    counters::RouteCounters,
    fault::{BrokenHead, BrokenResponse, Termination},
    response::{BufferedResponse, is_without_body, status_text},
    routes::{Disposition, OriginRoute},
    script::{ResponseEnding, Script},
    stages::Fault,
    state::OriginState,
};

/// Bound for the next part of a request's body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(75);
/// Bound for a request's body, which is read and discarded.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// A silent request ends its connection after this time.
const SILENCE_MAX: Duration = Duration::from_mins(15);

/// An error ends the stream (HTTP/2).
type ServiceResult = Result<Response<OriginBody>, h2::Error>;

pub(crate) async fn respond(connection: Arc<OriginConnection>, request: Request<Incoming>) -> ServiceResult {
    let listener = &connection.listener;
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_head_request = head.method == Method::HEAD;
    let is_admin_path = path == "/_admin" || path.starts_with("/_admin/");
    if listener.has_admin_pages && is_admin_path {
        return Ok(respond_with_admin_page(&listener.state, &listener.time, head, body).await);
    }
    let guard = connection.open_request();
    let routes = listener.state.routes.load();
    let route = routes.find(path).map(Arc::clone);
    drop(routes);
    let counters = route.as_ref().map_or(&listener.state.unrouted, |route| &*route.counters);
    let finish = |response: BufferedResponse, guard| {
        counters.record_status(response.status);
        Ok(to_http(response, is_head_request, OriginBody::whole, Some(guard)))
    };
    if let Some(rejection) = discard_body(body, &listener.time, counters).await {
        return finish(rejection, guard);
    }
    if let Some(script) = &listener.state.script {
        return respond_from_script(&connection, &**script, &head, guard).await;
    }
    if ![Method::GET, Method::POST, Method::HEAD].contains(&head.method) {
        return finish(BufferedResponse::text(StatusCode::NOT_FOUND, "not found"), guard);
    }
    let Some(route) = &route else {
        let status = StatusCode::NOT_ACCEPTABLE;
        let body = status_text(status, path);
        return finish(BufferedResponse { status, headers: default_headers(), body }, guard);
    };
    respond_from_route(&connection, route, &head, guard).await
}

/// Answers a request for an admin page.
pub(crate) async fn respond_with_admin_page(
    state: &OriginState,
    time: &Precise,
    head: Parts,
    body: Incoming,
) -> Response<OriginBody> {
    let response = admin::respond(state, time, &head, body).await;
    to_http(response, head.method == Method::HEAD, OriginBody::whole, None)
}

async fn respond_from_route(
    connection: &Arc<OriginConnection>,
    route: &OriginRoute,
    head: &Parts,
    guard: OpenRequestGuard,
) -> ServiceResult {
    let time = &connection.listener.time;
    let is_head_request = head.method == Method::HEAD;
    let now = time.now();
    // The version at the arrival of the request counts, as in a database.
    let representation = count_if_abandoned(&route.counters, route.representation(now)).await;
    let timestamp = current_timestamp();
    let with_status = |status| {
        let path = head.uri.path();
        let mut response =
            BufferedResponse::for_request(&representation, status, path, &head.method, &head.headers);
        response.headers.insert(&TIME_HEADER, timestamp.clone());
        if let Some(statement) = representation.statement(response.status) {
            response.headers.insert(&STATEMENT_HEADER, statement);
            for (name, field) in
                [(&OWNER_HEADER, &route.recipe.owner), (&VARIANT_HEADER, &route.recipe.variant)]
            {
                let stated = field.as_ref().map(|field| field_statement(field, &head.headers));
                stated.map(|stated| response.headers.insert(name, stated));
            }
        }
        let delay = time.now() - now;
        if delay >= DELAY_MIN {
            response.headers.insert(&DELAY_HEADER, seconds(delay));
        }
        response
    };
    let finish_early = |status, guard| {
        route.counters.record_status(status);
        Ok(to_http(with_status(status), is_head_request, OriginBody::whole, Some(guard)))
    };
    let behavior = match route.admit(now) {
        Disposition::NotStarted => return finish_early(StatusCode::NOT_ACCEPTABLE, guard),
        Disposition::QueueFull => {
            route.counters.record_rejected();
            return finish_early(StatusCode::SERVICE_UNAVAILABLE, guard);
        }
        Disposition::Respond { behavior, due } => {
            if due > now && behavior.fault != Some(Fault::Refuse) {
                count_if_abandoned(&route.counters, time.sleep_until(due)).await;
            }
            behavior
        }
    };
    let response = with_status(behavior.status);
    if let Some(fault) = behavior.fault {
        return respond_with_fault(connection, fault, response, head, guard, &route.counters).await;
    }
    route.counters.record_status(response.status);
    if representation.memfd.is_large() && head.version != Version::HTTP_2 {
        connection.set_sending(&representation.memfd);
    }
    Ok(match behavior.byte_rate {
        None => to_http(response, is_head_request, OriginBody::whole, Some(guard)),
        Some(rate) => {
            let paced = |body, guard| OriginBody::paced(body, rate, time, guard);
            to_http(response, is_head_request, paced, Some(guard))
        }
    })
}

/// The script counts requests itself.
async fn respond_from_script(
    connection: &Arc<OriginConnection>,
    script: &dyn Script,
    head: &Parts,
    guard: OpenRequestGuard,
) -> ServiceResult {
    let time = &connection.listener.time;
    let began = time.now();
    let response = script.respond(head);
    let latency = if response.ending == ResponseEnding::Silent { SILENCE_MAX } else { response.latency };
    time.sleep_until(began + latency).await;
    let is_head_request = head.method == Method::HEAD;
    match response.sent(is_head_request) {
        Ok(response) => Ok(to_http(response, is_head_request, OriginBody::whole, Some(guard))),
        Err(broken) => send_broken(connection, *broken, head, guard).await,
    }
}

/// Carries out the fault of a stage.
async fn respond_with_fault(
    connection: &Arc<OriginConnection>,
    fault: Fault,
    response: BufferedResponse,
    head: &Parts,
    guard: OpenRequestGuard,
    counters: &RouteCounters,
) -> ServiceResult {
    counters.record_fault(fault);
    let time = &connection.listener.time;
    if fault == Fault::Silent {
        time.sleep_until(time.now() + SILENCE_MAX).await;
    }
    let broken = BrokenResponse::new(fault, response, head.method == Method::HEAD);
    send_broken(connection, broken, head, guard).await
}

/// Over HTTP/1.1 the connection sends it in place of hyper. Over HTTP/2 the stream ends, and the connection stays open.
async fn send_broken(
    connection: &Arc<OriginConnection>,
    broken: BrokenResponse,
    head: &Parts,
    guard: OpenRequestGuard,
) -> ServiceResult {
    let time = &connection.listener.time;
    if head.version != Version::HTTP_2 {
        connection.set_broken(broken);
        // The connection drops this future when it has carried out the fault.
        match pending::<Infallible>().await {}
    }
    match (broken.head, broken.termination) {
        (BrokenHead::None, Termination::Reset) => Err(h2::Reason::REFUSED_STREAM.into()),
        (BrokenHead::Complete(status, headers), termination) => {
            let is_reset = termination == Termination::Reset;
            let body = OriginBody::broken(broken.body_start, is_reset, time, Some(guard));
            Ok(assemble(status, headers, body))
        }
        (BrokenHead::Truncated(..), _) => Err(h2::Reason::INTERNAL_ERROR.into()),
        (BrokenHead::None | BrokenHead::Malformed, _) => Err(h2::Reason::PROTOCOL_ERROR.into()),
    }
}

/// Awaits a future. If the client disconnects meanwhile, which drops the request, the request counts as abandoned.
async fn count_if_abandoned<F: Future>(counters: &RouteCounters, future: F) -> F::Output {
    let guard = AbandonmentGuard(counters);
    let output = future.await;
    std::mem::forget(guard);
    output
}

struct AbandonmentGuard<'a>(&'a RouteCounters);

impl Drop for AbandonmentGuard<'_> {
    fn drop(&mut self) {
        self.0.record_abandoned();
    }
}

/// Reads a request's body to its end and discards it. Returns the response to an unusable body.
async fn discard_body(
    mut body: Incoming,
    time: &Precise,
    counters: &RouteCounters,
) -> Option<BufferedResponse> {
    if body.is_end_stream() {
        return None;
    }
    let reject = |status, text: &'static str| Some(BufferedResponse::text(status, text));
    count_if_abandoned(counters, async {
        let mut bytes = 0;
        while bytes <= BODY_BYTES_MAX {
            match before(time, time.now() + BODY_TIMEOUT, body.frame()).await {
                Some(None) => return None,
                Some(Some(Ok(frame))) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                Some(Some(Err(_))) => {
                    return reject(StatusCode::BAD_REQUEST, "the request body is incomplete");
                }
                None => {
                    return reject(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time");
                }
            }
        }
        reject(StatusCode::PAYLOAD_TOO_LARGE, "a request body has at most 64 MiB")
    })
    .await
}

/// The wall clock's time as seconds since 1970.
fn current_timestamp() -> HeaderValue {
    seconds(since_1970())
}

/// With six decimals.
fn seconds(time: Duration) -> HeaderValue {
    let text = format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0"))
}

/// Turns a response into one for hyper. `to_body` is not called for a HEAD request.
fn to_http(
    response: BufferedResponse,
    is_head_request: bool,
    to_body: impl FnOnce(Bytes, Option<OpenRequestGuard>) -> OriginBody,
    guard: Option<OpenRequestGuard>,
) -> Response<OriginBody> {
    let BufferedResponse { status, mut headers, body } = response;
    let body = if is_head_request {
        if !is_without_body(status) {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        OriginBody::whole(Bytes::new(), guard)
    } else {
        to_body(body, guard)
    };
    assemble(status, headers, body)
}

fn assemble(status: StatusCode, headers: HeaderMap, body: OriginBody) -> Response<OriginBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
