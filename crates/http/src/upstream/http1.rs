//! A connection of HTTP/1.

use std::{pin::pin, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use hyper::{body::Incoming, client::conn::http1::Builder};
use hyper_util::rt::TokioIo;
use stockade_model::time::{Runtime, Time, before};

use super::{
    body::{ReuseCondition, UpstreamBody},
    error::UpstreamError,
    framing::{check_codings, normalize_length},
    pool::{Connecting, Http1Lease},
    request::RetryableRequest,
    sender::Http1Sender,
    shared::{ExchangeFailure, Retry, UpstreamShared},
    socket::OriginSocket,
};

pub(super) async fn open(
    socket: OriginSocket,
    connecting: Connecting,
    shared: &UpstreamShared,
) -> Result<Http1Lease, (UpstreamError, Connecting)> {
    let activity = socket.activity();
    let mut builder = Builder::new();
    builder
        .max_headers(shared.settings.headers_max)
        .max_header_size(shared.settings.head_bytes_max)
        .max_buf_size(shared.settings.head_bytes_max);
    let handshake = builder.handshake(TokioIo::new(socket)).await;
    let (requests, connection) = match handshake {
        Ok(open) => open,
        Err(error) => return Err((UpstreamError::from_http1(&error, false), connecting)),
    };
    let id = connecting.new_connection_id();
    let membership = connecting.membership(id);
    let clock = shared.clock.clone();
    let first_check = if shared.settings.keep_alive.is_zero() {
        Time::NEVER
    } else {
        clock.now() + shared.settings.keep_alive.min(shared.settings.max_age)
    };
    let task = shared.clock.spawn_abortable(async move {
        // Dropped last: the socket closes before the permit is free.
        let membership = membership;
        let mut connection = pin!(connection);
        let mut next_check = first_check;
        while before(&clock, next_check, connection.as_mut()).await.is_none() {
            match membership.retire() {
                Ok(retired) => return drop(retired),
                Err(next) => next_check = next,
            }
        }
    });
    let opened_at = shared.clock.now();
    Ok(connecting.lease(id, Http1Sender { requests, task, opened_at, activity }))
}

/// Sends a request and waits for the response head.
pub(super) async fn exchange(
    mut lease: Http1Lease,
    pending: &RetryableRequest,
    shared: &UpstreamShared,
) -> Result<Response<UpstreamBody>, ExchangeFailure> {
    let url = &shared.connectors[lease.endpoint].url;
    let mut request = pending
        .request(url, shared.settings.host_header, Version::HTTP_11)
        .map_err(ExchangeFailure::fatal)?;
    // Gunicorn sends Django's content for a HEAD, too, after the head: it would be taken for the next response.
    let is_last = pending.has_ignored_content() || pending.is_head();
    if is_last {
        // The connection ends with the response; hyper closes it.
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let is_used = lease.is_used;
    let Some(connection) = lease.connection() else {
        return Err(ExchangeFailure::fatal(UpstreamError::closed()));
    };
    let activity = Arc::clone(&connection.activity);
    let read_before = activity.read_bytes();
    if is_used {
        activity.begin_request();
    }
    let answer = connection.requests.try_send_request(request);
    let answer = match shared.await_head(pending, || activity.written_at(), answer).await {
        Ok(answer) => answer,
        Err(late) => return Err(ExchangeFailure::fatal(late)),
    };
    let mut failed = match answer {
        Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            return Err(ExchangeFailure::fatal(UpstreamError::not_http(
                "it switches protocols without a request to do so",
            )));
        }
        Ok(mut answer) => {
            let is_last = is_last || has_unexpected_body(&answer);
            if let Some(idle_max) = stated_idle_max(answer.headers()) {
                activity.set_idle_max(idle_max);
            }
            let status = answer.status();
            check_codings(answer.headers())
                .and_then(|()| normalize_length(status, answer.headers_mut()))
                .map_err(|reason| ExchangeFailure::fatal(UpstreamError::not_http(reason)))?;
            let reuse = ReuseCondition { is_last, upload: pending.upload().cloned(), activity };
            let idle_timeout = shared.settings.idle_timeout;
            return Ok(answer
                .map(|incoming| UpstreamBody::http1(incoming, lease, reuse, &shared.clock, idle_timeout)));
        }
        Err(failed) => failed,
    };
    if let Some(body_error) = pending.failure() {
        return Err(ExchangeFailure::fatal(body_error));
    }
    let is_answered = activity.read_bytes() > read_before;
    let error = UpstreamError::from_http1(failed.error(), is_answered);
    let is_unsent = failed.take_message().is_some() || activity.is_unusable();
    if failed.error().is_user() && !is_unsent {
        return Err(ExchangeFailure::fatal(UpstreamError::Unsendable {
            reason: failed.error().to_string().into(),
        }));
    }
    // A server may close an idle connection at any time.
    let is_stale_connection = lease.is_used
        && !is_answered
        && pending.is_repeatable()
        && matches!(error, UpstreamError::Closed { .. } | UpstreamError::Reset { .. });
    let may_be_resent = is_unsent && pending.is_whole() || is_stale_connection;
    let retry = may_be_resent.then(|| lease.reconnect()).flatten().map(Retry::Connect);
    Err(ExchangeFailure { error, retry })
}

/// How long an idle connection takes requests: its `Keep-Alive: timeout`, less the smaller of a quarter of it and one second, so that the
/// origin does not close it while a request is on its way.
fn stated_idle_max(headers: &HeaderMap) -> Option<Duration> {
    let stated = headers.get("keep-alive")?.to_str().ok()?;
    let seconds: u32 = stated.split(',').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())?
    })?;
    let timeout = Duration::from_secs(seconds.into());
    Some(timeout.saturating_sub(Duration::from_secs(1)).max(timeout / 4 * 3))
}

/// True if a response without a body announces one (RFC 9110, 8.6; RFC 9112, 6.1): it may follow, and look like the next response.
fn has_unexpected_body(answer: &Response<Incoming>) -> bool {
    let is_empty = |length: &HeaderValue| length == "0";
    matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        && (answer.headers().contains_key(TRANSFER_ENCODING)
            || answer.headers().get(CONTENT_LENGTH).is_some_and(|length| !is_empty(length)))
}

/// A connection over a pipe whose other end is open, and the task that drives it until its sender is dropped. `closed` is
/// called when the socket has closed, before the permit is free.
#[cfg(test)]
pub(super) fn open_in_memory(
    connecting: Connecting,
    closed: impl FnOnce() + Send + 'static,
) -> (Http1Lease, impl Future<Output = ()> + Send + 'static) {
    use futures_util::FutureExt;

    let (socket, origin) = tokio::io::duplex(64);
    let handshake = Builder::new().handshake(TokioIo::new(socket)).now_or_never();
    let (requests, connection) = handshake.expect("it does not wait").expect("it reads nothing");
    let mut connection = Box::pin(connection);
    // From its first poll on it takes requests.
    assert!((&mut connection).now_or_never().is_none());
    let id = connecting.new_connection_id();
    let membership = connecting.membership(id);
    let driver = async move {
        let (_membership, _origin) = (membership, origin);
        let _ = connection.await;
        closed();
    };
    // Nothing but the sender's drop ends the task.
    let task = tokio::runtime::Handle::current().spawn(async {}).abort_handle();
    let sender = Http1Sender { requests, task, opened_at: Time::ZERO, activity: Arc::default() };
    (connecting.lease(id, sender), driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_idle_for_less_than_its_origin_allows() {
        for (stated, expected_ms) in [
            (Some("timeout=5, max=100"), Some(4_000)),
            (Some("max=100,Timeout = 60"), Some(59_000)),
            (Some("timeout=1"), Some(750)),
            (Some("timeout=0"), Some(0)),
            (Some("timeout=soon"), None),
            (Some("max=3"), None),
            (None, None),
        ] {
            let fields = stated.map(|stated| ("keep-alive", stated));
            let headers = fields
                .into_iter()
                .map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value)));
            let expected = expected_ms.map(Duration::from_millis);
            assert_eq!(stated_idle_max(&headers.collect()), expected, "{stated:?}");
        }
    }
}
