//! One connection, from its first byte to its last.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use http::{Request, StatusCode, Version};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use stockade_model::time::{Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    client::ClientNetwork,
    counts::CloseReason,
    handler::{Handler, RefusedRequest},
    http2::StreamExecutor,
    proxy_protocol::{self, ProxiedConnection},
    response::respond,
    scan::FramingScanner,
    sendfile::SendfileStream,
    state::{CloseRequest, ConnectionContext, ConnectionInfo, ConnectionState, Http2Stream},
    stream::{ClientStream, InspectedStream},
    table::ConnectionSlot,
    tls::TlsConfig,
};

/// The start of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The buffer for the bytes that show the protocol.
const PREFIX_BYTES: usize = 2_048;
/// hyper parses this many fields without an allocation.
const HEADERS_FREE: usize = 100;
/// The most bytes of a response that wait for the client before its body is polled again.
const WRITE_BUFFER_BYTES_MAX: usize = 64 * 1_024;
/// Bytes that an HTTP/2 client may send before they are read: over all streams, and on one.
const CONNECTION_WINDOW_BYTES: u32 = 512 * 1_024;
const STREAM_WINDOW_BYTES: u32 = 256 * 1_024;
/// How long a lingering close reads input that is discarded, and how much of it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1_024 * 1_024;
/// How long an orderly close (TLS `close_notify`, GOAWAY) may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The response to a head that did not arrive in time.
const HEAD_TIMEOUT_RESPONSE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// How [`run_guarded`] ended.
enum ServeOutcome<T> {
    Completed(T),
    Expired(CloseReason),
    /// [`CloseRequest::Immediate`].
    Aborted,
}

/// Serves a connection that begins with a header of the PROXY protocol.
pub(super) async fn serve_proxied<H: Handler>(
    tcp: TcpStream,
    tls: Option<Arc<TlsConfig>>,
    mut connection: ConnectionContext<H>,
    slot: &ConnectionSlot,
) {
    let state = Arc::clone(&connection.state);
    let settings = &state.thread.settings;
    let received =
        run_guarded(&state, &mut pin!(proxy_protocol::receive(&tcp)), |_| close_if_silent(&tcp, &state))
            .await;
    let ServeOutcome::Completed(received) = received else { return };
    let is_refused = match received {
        Err(error) => {
            // Others have closed the connection, as health checks over TCP do.
            if error.kind() == io::ErrorKind::InvalidData {
                state.thread.counters.proxy_protocol_refused.increment();
            }
            return;
        }
        Ok(None) => false,
        Ok(Some(ProxiedConnection { client, local, is_tls })) => {
            let is_tls = is_tls || connection.info.is_tls;
            connection.info = ConnectionInfo { remote: client, local, is_tls };
            !settings.trusted_proxies.contains(client.ip())
                && !slot.admit_client(ClientNetwork::of(client.ip(), settings.client_prefix), settings)
        }
    };
    if is_refused {
        state.thread.counters.connections_refused.increment();
        return;
    }
    serve(tcp, tls, connection).await;
}

pub(super) async fn serve<H: Handler>(
    tcp: TcpStream,
    tls: Option<Arc<TlsConfig>>,
    connection: ConnectionContext<H>,
) {
    let connection = Arc::new(connection);
    let state = Arc::clone(&connection.state);
    let Some(tls) = tls else {
        let detected =
            run_guarded(&state, &mut pin!(detect_protocol(&tcp)), |_| close_if_silent(&tcp, &state)).await;
        return match detected {
            ServeOutcome::Completed(Ok((prefix, true))) => serve_http2(tcp, prefix, connection).await,
            ServeOutcome::Completed(Ok((prefix, false))) => match &state.thread.settings.body_file {
                Some(file) => {
                    let stream = SendfileStream::new(tcp, Arc::clone(file), Arc::clone(&state.thread));
                    serve_http1(stream, prefix, connection).await;
                }
                None => serve_http1(tcp, prefix, connection).await,
            },
            ServeOutcome::Completed(Err(_)) | ServeOutcome::Expired(_) | ServeOutcome::Aborted => {}
        };
    };
    // Until its first byte a connection is idle, and may be evicted.
    let mut first = [0; 1];
    let peeked =
        run_guarded(&state, &mut pin!(tcp.peek(&mut first)), |_| close_if_silent(&tcp, &state)).await;
    let ServeOutcome::Completed(Ok(_)) = peeked else { return };
    // A method in place of a TLS record.
    if first[0].is_ascii_alphabetic() {
        return refuse_plain_text(tcp, &connection).await;
    }
    state.set_handshaking(true);
    let mut handshake = TlsAcceptor::from(tls.current()).accept(tcp);
    match run_guarded(&state, &mut handshake, |_| state.request_close(CloseRequest::Immediate)).await {
        ServeOutcome::Completed(Ok(stream)) => {
            state.set_handshaking(false);
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                serve_http2(stream, Vec::new(), connection).await;
            } else {
                serve_http1(stream, Vec::new(), connection).await;
            }
        }
        ServeOutcome::Completed(Err(_)) | ServeOutcome::Expired(_) => {
            state.thread.counters.tls_failures.increment();
        }
        ServeOutcome::Aborted => {}
    }
}

/// Closes a connection whose client has sent no byte. It checks the kernel's buffer, because tokio may not know of bytes
/// that have just arrived.
fn close_if_silent(tcp: &TcpStream, state: &ConnectionState) {
    let peeked = rustix::net::recv(tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    if !peeked.is_ok_and(|(_, length)| length > 0) {
        state.request_close(CloseRequest::Immediate);
    }
}

/// Responds to HTTP at a listener of TLS, in nginx's words.
async fn refuse_plain_text<H: Handler>(tcp: TcpStream, context: &ConnectionContext<H>) {
    let status = StatusCode::BAD_REQUEST;
    let reason = "The plain HTTP request was sent to HTTPS port";
    context.state.thread.counters.tls_failures.increment();
    note_unparsed(context, status, reason);
    let text = format!("{status}: {reason}\n");
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let mut stream = InspectedStream::new(tcp, Vec::new(), Arc::clone(&context.state), None);
    linger(&mut stream, &context.state, response.as_bytes()).await;
}

/// Reads until the protocol is known. Returns the bytes read, and whether it is HTTP/2.
async fn detect_protocol(tcp: &TcpStream) -> io::Result<(Vec<u8>, bool)> {
    let mut prefix = Vec::with_capacity(PREFIX_BYTES);
    loop {
        tcp.readable().await?;
        let read = match tcp.try_read_buf(&mut prefix) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            read => read?,
        };
        let compared = prefix.len().min(HTTP2_PREFACE.len());
        let is_equal = prefix[..compared] == HTTP2_PREFACE[..compared];
        if read == 0 || !is_equal || compared == HTTP2_PREFACE.len() {
            return Ok((prefix, is_equal && compared == HTTP2_PREFACE.len()));
        }
    }
}

async fn serve_http1<H: Handler, S: ClientStream>(
    stream: S,
    prefix: Vec<u8>,
    context: Arc<ConnectionContext<H>>,
) {
    let state = &context.state;
    let settings = &state.thread.settings;
    let scanner = FramingScanner::new(settings.head_bytes_max);
    let stream = InspectedStream::new(stream, prefix, Arc::clone(state), Some(scanner));
    let mut builder = http1::Builder::new();
    builder
        // A client that closes its side has disconnected: its request is dropped.
        .half_close(false)
        // The deadlines of `ConnectionState` bound the head.
        .header_read_timeout(None)
        .max_header_size(settings.head_bytes_max)
        .max_buf_size(settings.head_bytes_max.max(WRITE_BUFFER_BYTES_MAX));
    if settings.headers_max > HEADERS_FREE {
        builder.max_headers(settings.headers_max);
    }
    // A body of unknown length ends with the connection.
    let is_http_1_0 = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        is_http_1_0.store(request.version() == Version::HTTP_10, Relaxed);
        let (number, guard) = state.begin_request(None);
        respond(&context, request, number, guard)
    });
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let outcome = run_guarded(state, &mut connection, http1::Connection::graceful_shutdown).await;
    let is_cut = match &outcome {
        ServeOutcome::Completed(result) => result.as_ref().is_err_and(hyper::Error::is_user),
        ServeOutcome::Expired(_) | ServeOutcome::Aborted => state.has_requests_in_flight(),
    };
    let mut stream = connection.into_parts().io.into_inner();
    if is_cut && is_http_1_0.load(Relaxed) {
        return stream.inner().reset_on_close();
    }
    match outcome {
        ServeOutcome::Completed(result) => {
            let malformed = result.err().filter(hyper::Error::is_parse);
            if let Some(error) = &malformed {
                state.thread.counters.requests_malformed.increment();
                note_malformed(&context, error);
            }
            if malformed.is_some() || stream.may_have_unread_input() {
                linger(&mut stream, state, b"").await;
            }
        }
        ServeOutcome::Expired(CloseReason::Head) if stream.may_have_unread_input() => {
            let reason = "the head has not arrived in time";
            note_unparsed(&context, StatusCode::REQUEST_TIMEOUT, reason);
            linger(&mut stream, state, HEAD_TIMEOUT_RESPONSE).await;
        }
        ServeOutcome::Expired(CloseReason::Idle | CloseReason::Head) | ServeOutcome::Aborted => {
            shut_down(&mut stream, state).await;
        }
        ServeOutcome::Expired(_) => {}
    }
}

/// Notes a head that hyper has refused, with the status that hyper has sent.
fn note_malformed<H: Handler>(context: &ConnectionContext<H>, error: &hyper::Error) {
    let reason = error.to_string();
    let status = match () {
        // hyper tells the two apart in its text only.
        () if error.is_parse_too_large() && reason.contains("URI") => StatusCode::URI_TOO_LONG,
        () if error.is_parse_too_large() => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        () => StatusCode::BAD_REQUEST,
    };
    note_unparsed(context, status, &reason);
}

fn note_unparsed<H: Handler>(context: &ConnectionContext<H>, status: StatusCode, reason: &str) {
    context.handler.note_refusal(&RefusedRequest { head: None, status, reason }, context.info);
}

async fn serve_http2<H, S>(stream: S, prefix: Vec<u8>, context: Arc<ConnectionContext<H>>)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let state = &context.state;
    let settings = &state.thread.settings;
    let stream = InspectedStream::new(stream, prefix, Arc::clone(state), None);
    let mut builder = http2::Builder::new(StreamExecutor(Arc::clone(state)));
    builder
        .max_concurrent_streams(settings.streams_max)
        .max_header_list_size(u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(WRITE_BUFFER_BYTES_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES);
    let service_context = Arc::clone(&context);
    let service = service_fn(move |request| {
        let state = &service_context.state;
        let stream = Arc::new(Http2Stream::new(&state.thread));
        state.set_newest_stream(Arc::clone(&stream));
        let (number, guard) = state.begin_request(Some(stream));
        respond(&service_context, request, number, guard)
    });
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let outcome = run_guarded(state, &mut connection, http2::Connection::graceful_shutdown).await;
    if let ServeOutcome::Expired(CloseReason::Idle | CloseReason::Head) | ServeOutcome::Aborted = outcome {
        // GOAWAY names the requests that were served, if the client still reads.
        Pin::new(&mut connection).graceful_shutdown();
        let time = &state.thread.time;
        let _ = before(time, time.now() + CLOSE_TIMEOUT, connection).await;
    }
}

/// Polls `task` until it completes, a deadline of the connection passes, or a close is requested. Calls
/// `start_graceful` once, when a graceful close is requested.
async fn run_guarded<F: Future + Unpin>(
    state: &ConnectionState,
    task: &mut F,
    mut start_graceful: impl FnMut(Pin<&mut F>),
) -> ServeOutcome<F::Output> {
    let time = &state.thread.time;
    let mut graceful_since = None;
    let mut check_at = state.next_check(state.deadline().0);
    let mut timer = pin!(time.sleep_until(check_at));
    poll_fn(|cx| {
        state.register_waker(cx.waker());
        loop {
            let must_start_graceful =
                state.close_request() == CloseRequest::Graceful && graceful_since.is_none();
            // With requests in flight their responses have to announce the close: it starts before the poll. Without
            // any, the poll comes first, for a request that may have just arrived.
            if !(must_start_graceful && state.has_requests_in_flight())
                && let Poll::Ready(output) = Pin::new(&mut *task).poll(cx)
            {
                return Poll::Ready(ServeOutcome::Completed(output));
            }
            if state.close_request() == CloseRequest::Immediate {
                return Poll::Ready(ServeOutcome::Aborted);
            }
            if !must_start_graceful {
                break;
            }
            let now = time.now();
            graceful_since = Some(now);
            timer.set(time.sleep_until(now + CLOSE_TIMEOUT));
            start_graceful(Pin::new(&mut *task));
        }
        // A client has stopped reading since the timer was set.
        if graceful_since.is_none() && state.is_waiting_for_client() {
            let sooner = state.next_check(check_at);
            if sooner < check_at {
                check_at = sooner;
                timer.set(time.sleep_until(check_at));
            }
        }
        while timer.as_mut().poll(cx).is_ready() {
            let (deadline, reason) = state.deadline();
            let now = time.now();
            if deadline <= now {
                state.thread.counters.closed(reason).increment();
                return Poll::Ready(ServeOutcome::Expired(reason));
            }
            // An HTTP/2 client has to acknowledge the GOAWAY; a disconnected one never does.
            if let (Some(since), Some(idle_since)) = (graceful_since, state.idle_since()) {
                if since.max(idle_since) + CLOSE_TIMEOUT <= now {
                    return Poll::Ready(ServeOutcome::Aborted);
                }
                timer.set(time.sleep_until(now + CLOSE_TIMEOUT));
                continue;
            }
            check_at = state.next_check(deadline);
            timer.set(time.sleep_until(check_at));
        }
        Poll::Pending
    })
    .await
}

/// Writes `last`, then discards input until the client closes. Without that, unread input resets the connection and
/// destroys a response that the client has not read yet.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut InspectedStream<S>,
    state: &ConnectionState,
    last: &[u8],
) {
    let time = &state.thread.time;
    let closed_by_client = async {
        let inner = stream.inner();
        inner.write_all(last).await?;
        inner.shutdown().await?;
        discard_input(inner).await
    };
    let _ = before(time, time.now() + LINGER, closed_by_client).await;
}

/// Reads to the end of the input, or [`LINGER_BYTES_MAX`] of it.
pub(super) async fn discard_input<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let (mut discarded, mut bytes_left) = ([0; 4_096], LINGER_BYTES_MAX);
    while bytes_left > 0 {
        match stream.read(&mut discarded).await? {
            0 => break,
            read => bytes_left = bytes_left.saturating_sub(read),
        }
    }
    Ok(())
}

/// Ends the output; for TLS that is a `close_notify`.
async fn shut_down<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut InspectedStream<S>,
    state: &ConnectionState,
) {
    let time = &state.thread.time;
    let _ = before(time, time.now() + CLOSE_TIMEOUT, stream.inner().shutdown()).await;
}
