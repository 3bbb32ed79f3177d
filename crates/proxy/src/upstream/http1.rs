//! A connection of HTTP/1: one request after the other.

use std::{pin::pin, sync::Arc};

use http::{Response, StatusCode, Version};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use stockade_model::time::{Runtime, Time, before};
use tokio::task::AbortHandle;

use super::{
    Again, Broken, Desk,
    ask::{Ask, Outgoing},
    body::Body,
    core::Kept,
    error::UpstreamError,
    pool::{Connecting, Lease, Seat},
    wire::{Activity, Wire},
};

/// What uses a connection. Dropped, the connection is closed.
pub(super) struct Http1 {
    requests: SendRequest<Outgoing>,
    /// It reads and writes, on the runtime of whoever connected.
    task: AbortHandle,
    seat: Option<Arc<Seat>>,
    activity: Arc<Activity>,
}

/// Makes a connection ready for requests.
pub(super) async fn open(
    wire: Wire,
    connecting: Connecting,
    desk: &Desk,
) -> Result<Lease, (UpstreamError, Connecting)> {
    let activity = wire.activity();
    let mut builder = Builder::new();
    builder
        .max_headers(desk.settings.headers_max)
        .max_header_size(desk.settings.head_bytes_max)
        .max_buf_size(desk.settings.head_bytes_max);
    let handshake = builder.handshake(TokioIo::new(wire)).await;
    let (requests, connection) = match handshake {
        Ok(open) => open,
        Err(error) => return Err((UpstreamError::of_http1(&error, false), connecting)),
    };
    let id = connecting.id();
    let member = connecting.member(id);
    let seat = connecting.seat();
    let clock = desk.clock.clone();
    let first_look =
        if desk.settings.keep_alive.is_zero() { Time::NEVER } else { clock.now() + desk.settings.keep_alive };
    let task = desk.clock.start(async move {
        // Dropped last: the socket is closed before the seat is free.
        let member = member;
        let mut connection = pin!(connection);
        let mut look = first_look;
        while before(&clock, look, connection.as_mut()).await.is_none() {
            match member.retire() {
                Ok(retired) => return drop(retired),
                Err(next) => look = next,
            }
        }
    });
    Ok(connecting.lease(id, Http1 { requests, task, seat, activity }))
}

impl Http1 {
    /// Whether it can be sent a request now.
    pub(super) fn is_ready(&self) -> bool {
        self.requests.is_ready()
    }

    /// When it can. False: never.
    pub(super) async fn ready(&mut self) -> bool {
        self.requests.ready().await.is_ok()
    }

    /// Closes it; its seat is for another.
    pub(super) fn into_seat(mut self) -> Option<Arc<Seat>> {
        self.seat.take()
    }
}

impl Kept for Http1 {
    fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends a request, and awaits the head of its answer.
pub(super) async fn exchange(mut lease: Lease, ask: &Ask, desk: &Desk) -> Result<Response<Body>, Broken> {
    let url = &desk.connectors[lease.place].url;
    let request = ask.request(url, desk.settings.host_header, Version::HTTP_11).map_err(Broken::finally)?;
    let Some(connection) = lease.connection() else { return Err(Broken::finally(UpstreamError::closed())) };
    let activity = Arc::clone(&connection.activity);
    let read_before = activity.read_bytes();
    let answer = connection.requests.try_send_request(request);
    let answer = match desk.await_head(ask, || activity.written_at(), answer).await {
        Ok(answer) => answer,
        Err(late) => return Err(Broken::finally(late)),
    };
    let mut failed = match answer {
        Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            return Err(Broken::finally(UpstreamError::not_http("it switches protocols, unasked")));
        }
        Ok(answer) => {
            let patience = desk.settings.idle_timeout;
            return Ok(answer.map(|incoming| Body::http1(incoming, lease, &desk.clock, patience)));
        }
        Err(failed) => failed,
    };
    if let Some(clients) = ask.failure() {
        return Err(Broken::finally(clients));
    }
    let is_answered = activity.read_bytes() > read_before;
    let error = UpstreamError::of_http1(failed.error(), is_answered);
    let is_unsent = failed.take_message().is_some();
    if failed.error().is_user() && !is_unsent {
        return Err(Broken::finally(UpstreamError::Unsendable { reason: failed.error().to_string().into() }));
    }
    // A server may close a connection that rests at any time: this came too late.
    let is_late = lease.is_used
        && !is_answered
        && ask.may_be_repeated()
        && matches!(error, UpstreamError::Closed { .. } | UpstreamError::Reset { .. });
    let again = (is_unsent || is_late).then(|| lease.connect_again()).flatten().map(Again::With);
    Err(Broken { error, again })
}
