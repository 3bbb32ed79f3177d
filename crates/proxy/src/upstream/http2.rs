//! A connection of HTTP/2: many requests at once.
//!
//! By h2 itself, not by hyper's layer on it: the pool has to know how many streams the origin allows before it
//! sends, and which requests a closing connection has not looked at.

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
    Again, Broken, Desk,
    ask::{Ask, Outgoing},
    body::{Body, Http2Body, Sending},
    clock::Clock,
    error::UpstreamError,
    pool::{Connecting, Member, Stream},
    settings::Settings,
    wire::{Activity, Wire},
};

/// What of a body is on its way before somebody reads it.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// What HTTP/2 allows.
const WINDOW_BYTES_MOST: u32 = (1 << 31) - 1;

/// What uses a connection. Clones share it.
#[derive(Clone)]
pub(super) struct Http2(Arc<Handle>);

struct Handle {
    requests: SendRequest<Bytes>,
    activity: Arc<Activity>,
    doubt: Arc<Notify>,
    left: Arc<Notify>,
}

impl Drop for Handle {
    /// Nobody has a stream, and nobody will.
    fn drop(&mut self) {
        self.left.notify_one();
    }
}

impl Http2 {
    /// Somebody waited in vain: is there anybody at the other end?
    pub(super) fn doubt(&self) {
        self.0.doubt.notify_one();
    }
}

/// Makes a connection ready for requests: the origin has said how many it takes at once.
pub(super) async fn open(
    wire: Wire,
    connecting: Connecting,
    deadline: Time,
    desk: &Desk,
) -> Result<Stream, (UpstreamError, Connecting)> {
    let activity = wire.activity();
    let late = desk.connectors[connecting.place].late();
    let (requests, mut connection, room) = match before(&desk.clock, deadline, shake_hands(wire, desk)).await
    {
        Some(Ok(open)) => open,
        Some(Err(error)) => return Err((error, connecting)),
        None => return Err((late, connecting)),
    };
    let Some(pings) = connection.ping_pong() else { return Err((UpstreamError::closed(), connecting)) };
    let id = connecting.id();
    let (doubt, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let watch = Watch {
        member: connecting.member(id),
        room,
        requests: Some(requests.clone()),
        pings,
        doubt: Arc::clone(&doubt),
        left: Arc::clone(&left),
        patience: desk.settings.connect_timeout,
        clock: desk.clock.clone(),
    };
    let stream = connecting.stream(id, Http2(Arc::new(Handle { requests, activity, doubt, left })), room);
    desk.clock.spawn(watch.run(connection, desk.clock.now() + desk.settings.keep_alive));
    Ok(stream)
}

type Open = (SendRequest<Bytes>, Connection<Wire>, usize);

async fn shake_hands(wire: Wire, desk: &Desk) -> Result<Open, UpstreamError> {
    let streams = u32::try_from(desk.settings.streams_max).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        // Nothing is sent before the origin has said what it takes.
        .initial_max_send_streams(0)
        // What is larger than it may be is still seen, so that it can be told: up to twice that.
        .max_header_list_size(u32::try_from(desk.settings.head_bytes_max * 2).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW_BYTES)
        // Answers that nobody reads leave room for the others.
        .initial_connection_window_size(streams.saturating_mul(STREAM_WINDOW_BYTES).min(WINDOW_BYTES_MOST));
    let activity = wire.activity();
    let handshake = builder.handshake::<_, Bytes>(wire).await;
    let (requests, mut connection) = handshake.map_err(|error| UpstreamError::of_http2(&error, false))?;
    let ended = poll_fn(|cx| {
        let ended = Pin::new(&mut connection).poll(cx);
        if requests.current_max_send_streams() > 0 { Poll::Ready(None) } else { ended.map(Some) }
    });
    match ended.await {
        Some(Err(error)) => Err(UpstreamError::of_http2(&error, activity.read_bytes() > 0)),
        Some(Ok(())) => Err(UpstreamError::closed()),
        None => {
            let room = requests.current_max_send_streams();
            Ok((requests, connection, room))
        }
    }
}

/// What a connection's own task does: reads and writes, and looks whether it is of use.
struct Watch {
    member: Member,
    room: usize,
    /// None: it takes no more requests. Whoever has one keeps the connection open.
    requests: Option<SendRequest<Bytes>>,
    pings: PingPong,
    doubt: Arc<Notify>,
    left: Arc<Notify>,
    /// How long a peer may take to show that it is there.
    patience: Duration,
    clock: Clock,
}

impl Watch {
    async fn run(self, connection: Connection<Wire>, first_look: Time) {
        let Self { member, mut room, mut requests, mut pings, doubt, left, patience, clock } = self;
        // Dropped before its membership: the socket is closed before the seat is free.
        let mut connection = pin!(connection);
        let (mut look, mut pong_until, mut is_leaving) = (first_look, Time::NEVER, false);
        loop {
            tokio::select! {
                () = poll_fn(|cx| serve(connection.as_mut(), &mut requests, &mut room, &member, cx)) => return,
                () = doubt.notified(), if pong_until == Time::NEVER => {
                    if pings.send_ping(Ping::opaque()).is_ok() {
                        pong_until = clock.now() + patience;
                    }
                }
                pong = poll_fn(|cx| pings.poll_pong(cx)), if pong_until != Time::NEVER => {
                    if pong.is_err() {
                        return;
                    }
                    pong_until = Time::NEVER;
                }
                () = clock.sleep_until(look.min(pong_until)) => {
                    let now = clock.now();
                    if pong_until <= now || is_leaving && look <= now {
                        return;
                    }
                    if look <= now {
                        // Nobody holds what has rested for too long: that it has been left is told next.
                        look = member.retire_shared().map_or_else(|next| next, |_retired| Time::NEVER);
                    }
                }
                () = left.notified(), if !is_leaving => {
                    // It says goodbye, if the other end still listens.
                    requests = None;
                    (is_leaving, look) = (true, clock.now() + patience);
                }
            }
        }
    }
}

/// Reads and writes what can be, and tells the pool what has changed. Ready: the connection has ended.
fn serve(
    connection: Pin<&mut Connection<Wire>>,
    requests: &mut Option<SendRequest<Bytes>>,
    room: &mut usize,
    member: &Member,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if connection.poll(cx).is_ready() {
        return Poll::Ready(());
    }
    let Some(alive) = requests else { return Poll::Pending };
    if matches!(alive.poll_ready(cx), Poll::Ready(Err(_))) {
        // The origin has said that it takes no more; those under way go on.
        *requests = None;
        member.forget();
        // Without those who could send, it may be over.
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    let has_room = alive.current_max_send_streams();
    if has_room != *room {
        *room = has_room;
        member.set_room(has_room);
    }
    Poll::Pending
}

/// Sends a request, and awaits the head of its answer.
pub(super) async fn exchange(stream: Stream, ask: &Ask, desk: &Desk) -> Result<Response<Body>, Broken> {
    let url = &desk.connectors[stream.place].url;
    let request = ask.request(url, desk.settings.host_header, Version::HTTP_2).map_err(Broken::finally)?;
    let (mut head, outgoing) = request.into_parts();
    let length = outgoing.size_hint().exact().filter(|length| *length > 0);
    if let Some(length) = length
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let has_ended = outgoing.is_end_stream();
    let activity = Arc::clone(&stream.connection.0.activity);
    let read_before = activity.read_bytes();
    let mut requests = stream.connection.0.requests.clone();
    let sent = match requests.send_request(http::Request::from_parts(head, ()), has_ended) {
        Ok(sent) => sent,
        Err(error) => {
            stream.forget();
            let is_ours = !(error.is_io() || error.is_reset() || error.is_go_away() || error.is_library());
            let again = (!is_ours).then_some(Again::Anew);
            return Err(Broken { error: UpstreamError::of_http2(&error, false), again });
        }
    };
    drop(requests);
    let (response, upstream): (ResponseFuture, SendStream<Bytes>) = sent;
    let sending = (!has_ended).then(|| Sending(desk.clock.start(send(outgoing, upstream))));
    let answer = match desk.await_head(ask, || Time::ZERO, response).await {
        Ok(answer) => answer,
        Err(late) => {
            stream.connection.doubt();
            return Err(Broken::finally(late));
        }
    };
    match answer {
        Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Err(Broken::finally(UpstreamError::not_http("it switches protocols, unasked")))
        }
        Ok(answer) if is_too_large(answer.headers(), &desk.settings) => {
            Err(Broken::finally(UpstreamError::HeadTooLarge))
        }
        Ok(answer) => Ok(answered(answer, stream, sending, ask, desk)),
        Err(error) => {
            let is_silent = activity.read_bytes() == read_before;
            Err(broken(&error, &stream, is_silent, ask))
        }
    }
}

/// Whether a head has more headers, or more bytes as RFC 9113 counts them (section 6.5.2), than it may.
fn is_too_large(headers: &HeaderMap, settings: &Settings) -> bool {
    let bytes = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 32;
    headers.len() > settings.headers_max || headers.iter().map(bytes).sum::<usize>() > settings.head_bytes_max
}

fn answered(
    answer: Response<RecvStream>,
    turn: Stream,
    sending: Option<Sending>,
    ask: &Ask,
    desk: &Desk,
) -> Response<Body> {
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_bodiless =
        ask.is_head() || matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let left = if is_bodiless { Some(0) } else { length };
    answer.map(|incoming| {
        let stream = Http2Body { incoming, left, has_data: true, is_bodiless, _sending: sending, turn };
        Body::http2(stream, &desk.clock, desk.settings.idle_timeout)
    })
}

/// What to do about a stream that ended before its answer.
fn broken(error: &h2::Error, stream: &Stream, is_silent: bool, ask: &Ask) -> Broken {
    if let Some(clients) = ask.failure() {
        return Broken::finally(clients);
    }
    if error.is_library() && error.is_reset() && error.reason() == Some(Reason::PROTOCOL_ERROR) {
        // h2 tells neither apart.
        return Broken::finally(UpstreamError::not_http(
            "its head is malformed, or more than twice as large as it may be",
        ));
    }
    // It says itself that it has not looked at the request (RFC 9113, section 8.7).
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    let is_unseen = error.is_remote() && (is_refused || error.is_go_away());
    if !is_refused && !error.is_reset() {
        stream.forget();
    }
    // A server may close a connection that rests at any time: this came too late.
    let is_late = stream.is_used && is_silent && error.is_io() && ask.may_be_repeated();
    let again = (is_late || is_unseen && ask.is_whole()).then_some(Again::Anew);
    Broken { error: UpstreamError::of_http2(error, false), again }
}

/// Sends a body, as fast as the other end takes it.
async fn send(mut outgoing: Outgoing, mut upstream: SendStream<Bytes>) {
    loop {
        let frame = tokio::select! {
            frame = outgoing.frame() => frame,
            // Nobody reads it any more: the answer tells why.
            _ = poll_fn(|cx| upstream.poll_reset(cx)) => return,
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
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

/// False: nobody reads it any more.
async fn send_all(mut data: Bytes, outgoing: &mut Outgoing, upstream: &mut SendStream<Bytes>) -> bool {
    while !data.is_empty() {
        upstream.reserve_capacity(data.len());
        let Some(Ok(room)) = poll_fn(|cx| upstream.poll_capacity(cx)).await else { return false };
        let piece = data.split_to(room.min(data.len()));
        if upstream.send_data(piece, false).is_err() {
            return false;
        }
        outgoing.moved();
    }
    true
}
