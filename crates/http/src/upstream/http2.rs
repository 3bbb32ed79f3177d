//! A connection of HTTP/2.
//!
//! It uses h2 directly: hyper does not report how many streams the origin allows, nor which requests a closing connection
//! has not processed.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, Reason, RecvStream, SendStream,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header::CONTENT_LENGTH};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use stockade_model::time::{Runtime, Time, before};
use tokio::sync::Notify;

use super::{
    body::{Http2Body, UploadTask, UpstreamBody},
    clock::UpstreamClock,
    error::UpstreamError,
    framing::normalize_length,
    pool::{Connecting, Http2Lease, PoolMembership},
    request::{OutgoingBody, RetryableRequest},
    sender::Http2Sender,
    settings::UpstreamSettings,
    shared::{ExchangeFailure, Retry, UpstreamShared},
    socket::OriginSocket,
};

/// Flow-control window of a stream: bytes in flight before the reader takes them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The limit of HTTP/2.
const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// Returns once the origin has sent its stream limit.
pub(super) async fn open(
    socket: OriginSocket,
    connecting: Connecting,
    deadline: Time,
    shared: &UpstreamShared,
) -> Result<Http2Lease, (UpstreamError, Connecting)> {
    let late = shared.connectors[connecting.endpoint].timeout_error();
    let (requests, mut connection, streams_max) =
        match before(&shared.clock, deadline, handshake(socket, shared)).await {
            Some(Ok(open)) => open,
            Some(Err(error)) => return Err((error, connecting)),
            None => return Err((late, connecting)),
        };
    let Some(pings) = connection.ping_pong() else { return Err((UpstreamError::closed(), connecting)) };
    let id = connecting.new_connection_id();
    let (check_liveness, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let watch = ConnectionTask {
        membership: connecting.membership(id),
        streams_max,
        requests: Some(requests.clone()),
        pings,
        check_liveness: Arc::clone(&check_liveness),
        released: Arc::clone(&released),
        idle_timeout: shared.settings.connect_timeout,
        clock: shared.clock.clone(),
    };
    let stream = connecting.stream(id, Http2Sender::new(requests, check_liveness, released), streams_max);
    let first_check = shared.settings.keep_alive.min(shared.settings.max_age);
    shared.clock.spawn(watch.run(connection, shared.clock.now() + first_check));
    Ok(stream)
}

type Handshake = (SendRequest<Bytes>, Connection<OriginSocket>, usize);

async fn handshake(socket: OriginSocket, shared: &UpstreamShared) -> Result<Handshake, UpstreamError> {
    let streams = u32::try_from(shared.settings.streams_max).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        // No stream opens before the origin has sent its limit.
        .initial_max_send_streams(0)
        // Heads up to twice the limit are received, so that the error can say so.
        .max_header_list_size(u32::try_from(shared.settings.head_bytes_max * 2).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW_BYTES)
        // Unread bodies leave capacity for the other streams.
        .initial_connection_window_size(streams.saturating_mul(STREAM_WINDOW_BYTES).min(WINDOW_BYTES_MAX));
    let activity = socket.activity();
    let handshake = builder.handshake::<_, Bytes>(socket).await;
    let (requests, mut connection) = handshake.map_err(|error| UpstreamError::from_http2(&error, false))?;
    let ended = poll_fn(|cx| {
        let ended = Pin::new(&mut connection).poll(cx);
        if requests.current_max_send_streams() > 0 { Poll::Ready(None) } else { ended.map(Some) }
    });
    match ended.await {
        Some(Err(error)) => Err(UpstreamError::from_http2(&error, activity.read_bytes() > 0)),
        Some(Ok(())) => Err(UpstreamError::closed()),
        None => {
            let streams_max = requests.current_max_send_streams();
            Ok((requests, connection, streams_max))
        }
    }
}

/// Drives the connection and checks that it is alive and in use.
struct ConnectionTask {
    membership: PoolMembership,
    streams_max: usize,
    /// `None`: it takes no more requests. Each open stream keeps the connection open.
    requests: Option<SendRequest<Bytes>>,
    pings: PingPong,
    check_liveness: Arc<Notify>,
    released: Arc<Notify>,
    /// Deadline for a pong, and for the peer to close.
    idle_timeout: Duration,
    clock: UpstreamClock,
}

impl ConnectionTask {
    async fn run(self, connection: Connection<OriginSocket>, first_check: Time) {
        let Self {
            membership,
            mut streams_max,
            mut requests,
            mut pings,
            check_liveness,
            released,
            idle_timeout,
            clock,
        } = self;
        // Dropped before the membership: the socket closes before the permit is free.
        let mut connection = pin!(connection);
        let (mut next_check, mut pong_until, mut is_closing) = (first_check, Time::NEVER, false);
        loop {
            tokio::select! {
                () = poll_fn(|cx| serve(connection.as_mut(), &mut requests, &mut streams_max, &membership, cx)) => return,
                () = check_liveness.notified(), if pong_until == Time::NEVER => {
                    if pings.send_ping(Ping::opaque()).is_ok() {
                        pong_until = clock.now() + idle_timeout;
                    }
                }
                pong = poll_fn(|cx| pings.poll_pong(cx)), if pong_until != Time::NEVER => {
                    if pong.is_err() {
                        return;
                    }
                    pong_until = Time::NEVER;
                }
                () = clock.sleep_until(next_check.min(pong_until)) => {
                    let now = clock.now();
                    if pong_until <= now || is_closing && next_check <= now {
                        return;
                    }
                    if next_check <= now {
                        // Dropping the retired handle triggers `released`.
                        next_check = membership.retire_shared().map_or_else(|next| next, |_retired| Time::NEVER);
                    }
                }
                () = released.notified(), if !is_closing => {
                    // Close gracefully, if the peer still reads.
                    requests = None;
                    (is_closing, next_check) = (true, clock.now() + idle_timeout);
                }
            }
        }
    }
}

/// Drives the connection and reports changes to the pool. Ready: the connection has ended.
fn serve(
    connection: Pin<&mut Connection<OriginSocket>>,
    requests: &mut Option<SendRequest<Bytes>>,
    streams_max: &mut usize,
    membership: &PoolMembership,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if connection.poll(cx).is_ready() {
        return Poll::Ready(());
    }
    let Some(alive) = requests else { return Poll::Pending };
    if matches!(alive.poll_ready(cx), Poll::Ready(Err(_))) {
        // The origin takes no more requests; open streams continue.
        *requests = None;
        membership.remove();
        // Without senders the connection may have ended.
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    let new_max = alive.current_max_send_streams();
    if new_max != *streams_max {
        *streams_max = new_max;
        membership.set_streams_max(new_max);
    }
    Poll::Pending
}

/// Sends a request and waits for the response head.
pub(super) async fn exchange(
    stream: Http2Lease,
    pending: &RetryableRequest,
    shared: &UpstreamShared,
) -> Result<Response<UpstreamBody>, ExchangeFailure> {
    let url = &shared.connectors[stream.endpoint].url;
    let request =
        pending.request(url, shared.settings.host_header, Version::HTTP_2).map_err(ExchangeFailure::fatal)?;
    let (mut head, outgoing) = request.into_parts();
    let length = outgoing.size_hint().exact().filter(|length| *length > 0);
    if let Some(length) = length
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let has_ended = outgoing.is_end_stream();
    let mut requests = stream.connection.requests();
    let sent = match requests.send_request(http::Request::from_parts(head, ()), has_ended) {
        Ok(sent) => sent,
        Err(error) => {
            stream.remove();
            let is_ours = !(error.is_io() || error.is_reset() || error.is_go_away() || error.is_library());
            let retry = (!is_ours).then_some(Retry::Checkout);
            return Err(ExchangeFailure { error: UpstreamError::from_http2(&error, false), retry });
        }
    };
    drop(requests);
    let (response, upstream): (ResponseFuture, SendStream<Bytes>) = sent;
    let upload = (!has_ended).then(|| UploadTask(shared.clock.spawn_abortable(send(outgoing, upstream))));
    let answer = match shared.await_head(pending, || Time::ZERO, response).await {
        Ok(answer) => answer,
        Err(late) => {
            stream.connection.check_liveness();
            return Err(ExchangeFailure::fatal(late));
        }
    };
    match answer {
        Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => Err(ExchangeFailure::fatal(
            UpstreamError::not_http("it switches protocols without a request to do so"),
        )),
        Ok(answer) if is_too_large(answer.headers(), &shared.settings) => {
            Err(ExchangeFailure::fatal(UpstreamError::HeadTooLarge))
        }
        Ok(mut answer) => {
            let status = answer.status();
            normalize_length(status, answer.headers_mut())
                .map_err(|reason| ExchangeFailure::fatal(UpstreamError::not_http(reason)))?;
            Ok(into_response(answer, stream, upload, pending, shared))
        }
        Err(error) => Err(stream_failure(&error, &stream, pending)),
    }
}

/// Counts bytes as RFC 9113, 6.5.2.
fn is_too_large(headers: &HeaderMap, settings: &UpstreamSettings) -> bool {
    let bytes = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 32;
    headers.len() > settings.headers_max || headers.iter().map(bytes).sum::<usize>() > settings.head_bytes_max
}

fn into_response(
    answer: Response<RecvStream>,
    stream_lease: Http2Lease,
    upload: Option<UploadTask>,
    pending: &RetryableRequest,
    shared: &UpstreamShared,
) -> Response<UpstreamBody> {
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_bodiless =
        pending.is_head() || matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let left = if is_bodiless { Some(0) } else { length };
    answer.map(|incoming| {
        let stream = Http2Body { incoming, left, has_data: true, is_bodiless, _upload: upload, stream_lease };
        UpstreamBody::http2(stream, &shared.clock, shared.settings.idle_timeout)
    })
}

/// For a stream that ended before its response head.
fn stream_failure(error: &h2::Error, stream: &Http2Lease, pending: &RetryableRequest) -> ExchangeFailure {
    if let Some(body_error) = pending.failure() {
        return ExchangeFailure::fatal(body_error);
    }
    if error.is_library() && error.is_reset() && error.reason() == Some(Reason::PROTOCOL_ERROR) {
        // h2 does not distinguish the two.
        return ExchangeFailure::fatal(UpstreamError::not_http(
            "its head is malformed, or more than twice as large as it may be",
        ));
    }
    // The origin reports that it has not processed the request (RFC 9113, 8.7).
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    let is_unseen = error.is_remote() && (is_refused || error.is_go_away());
    if !is_refused && !error.is_reset() {
        stream.remove();
    }
    // A server may close a connection at any time; other streams may have been answered on it.
    let is_stale_connection = stream.is_used && error.is_io() && pending.is_repeatable();
    let is_ended = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    let kind = if is_ended { Retry::Ended } else { Retry::Checkout };
    let retry = (is_stale_connection || is_unseen && pending.is_whole()).then_some(kind);
    ExchangeFailure { error: UpstreamError::from_http2(error, false), retry }
}

/// Sends a body at the pace of the peer.
async fn send(mut outgoing: OutgoingBody, mut upstream: SendStream<Bytes>) {
    loop {
        // The response contains the reason of a reset.
        let frame = tokio::select! {
            frame = outgoing.frame() => frame,
            _ = poll_fn(|cx| upstream.poll_reset(cx)) => return,
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) if data.is_empty() => {}
            Some(Ok(Ok(data))) => {
                if !send_all(data, &mut outgoing, &mut upstream).await {
                    return;
                }
            }
            Some(Ok(Err(frame))) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return drop(upstream.send_trailers(trailers));
                }
            }
            None => return drop(upstream.send_data(Bytes::new(), true)),
            Some(Err(_)) => return upstream.send_reset(Reason::CANCEL),
        }
    }
}

/// Sends a part of a body; with the last one the stream ends: Tomcat takes a small frame that is not the last for an attack. False: the
/// stream has ended.
async fn send_all(mut data: Bytes, outgoing: &mut OutgoingBody, upstream: &mut SendStream<Bytes>) -> bool {
    while !data.is_empty() {
        upstream.reserve_capacity(data.len());
        let Some(Ok(capacity)) = poll_fn(|cx| upstream.poll_capacity(cx)).await else { return false };
        let chunk = data.split_to(capacity.min(data.len()));
        let is_last = data.is_empty() && outgoing.is_end_stream();
        if upstream.send_data(chunk, is_last).is_err() || is_last {
            return false;
        }
        outgoing.record_progress();
    }
    true
}
