//! Serves one connection from its first byte to its last: HTTP/1.1, HTTP/2 and faults.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use http::HeaderValue;
use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::time::{Precise, Runtime, before};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{
    body::RESET_DELAY,
    certificate::ServerTls,
    connection_state::{ListenerContext, OriginConnection},
    fault::{BrokenResponse, Termination},
    service,
    stream::{ClientStream, SendfileStream},
};

/// Bound for a TLS handshake, and for a client to take a broken response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of pings to a silent HTTP/2 client.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
const HTTP2_STREAMS_MAX: u32 = 250;
/// First bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";

pub(crate) async fn serve(tcp: TcpStream, tls: Option<ServerTls>, listener: ListenerContext) {
    // An error only delays small responses.
    let _ = tcp.set_nodelay(true);
    let connection = OriginConnection::new(listener);
    let time = connection.listener.time.clone();
    let Some(tls) = tls else {
        let is_http2 =
            before(&time, connection.idle_deadline(), starts_with_http2_preface(&tcp, &time)).await;
        let stream = SendfileStream::new(tcp, Arc::clone(&connection));
        return match is_http2 {
            Some(Ok(true)) => serve_http2(stream, connection).await,
            Some(Ok(false)) => serve_http1(stream, connection).await,
            None | Some(Err(_)) => {}
        };
    };
    let stream = SendfileStream::new(tcp, Arc::clone(&connection));
    let handshake = TlsAcceptor::from(tls.config).accept(stream);
    let Some(Ok(stream)) = before(&time, time.now() + TIMEOUT, handshake).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(stream, connection).await;
    } else {
        serve_http1(stream, connection).await;
    }
}

/// Peeks at the first bytes, which stay in the socket.
async fn starts_with_http2_preface(tcp: &TcpStream, time: &Precise) -> io::Result<bool> {
    let (mut start, mut pause) = ([0; HTTP2_PREFACE.len()], Duration::from_millis(1));
    loop {
        let bytes = tcp.peek(&mut start).await?;
        if bytes == 0 || start[..bytes] != HTTP2_PREFACE[..bytes] {
            return Ok(false);
        }
        if bytes == HTTP2_PREFACE.len() {
            return Ok(true);
        }
        // The bytes that are there already would make `peek` return at once, so this waits for more by time.
        time.sleep_until(time.now() + pause).await;
        pause *= 2;
    }
}

async fn serve_http2<S: ClientStream>(stream: S, connection: Arc<OriginConnection>) {
    let time = connection.listener.time.clone();
    let mut builder = http2::Builder::new(Http2StreamExecutor(time));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .keep_alive_interval(HTTP2_PING_INTERVAL);
    let state = Arc::clone(&connection);
    let service = service_fn(move |request| service::respond(Arc::clone(&state), request));
    // An error means that the client broke off.
    let _ = with_idle_timeout(&connection, builder.serve_connection(TokioIo::new(stream), service)).await;
}

async fn serve_http1<S: ClientStream>(stream: S, connection: Arc<OriginConnection>) {
    let state = Arc::clone(&connection);
    let service = service_fn(move |request| service::respond(Arc::clone(&state), request));
    let mut http1 = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let served = poll_fn(|cx| {
        if Pin::new(&mut http1).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        connection.take_broken().map_or(Poll::Pending, |broken| Poll::Ready(Some(broken)))
    });
    if let Some(Some(broken)) = with_idle_timeout(&connection, served).await {
        let stream = http1.into_parts().io.into_inner();
        send_broken(stream, broken, &connection.listener.time).await;
    }
}

/// Awaits a future until the connection's idle timeout, which returns `None`.
async fn with_idle_timeout<F: Future>(connection: &OriginConnection, future: F) -> Option<F::Output> {
    let time = &connection.listener.time;
    let mut future = pin!(future);
    loop {
        let deadline = connection.idle_deadline();
        if deadline <= time.now() {
            return None;
        }
        if let Some(output) = before(time, deadline, future.as_mut()).await {
            return Some(output);
        }
    }
}

/// Sends a broken response and ends the connection.
async fn send_broken<S: ClientStream>(mut stream: S, broken: BrokenResponse, time: &Precise) {
    let BrokenResponse { head, body_start, termination } = broken;
    if termination == Termination::Reset {
        // Makes the system reset the connection when it is dropped.
        let _ = stream.tcp().set_zero_linger();
    }
    #[expect(clippy::disallowed_methods, reason = "a response carries the date")]
    let date = httpdate::fmt_http_date(SystemTime::now());
    let head = head.encode(&HeaderValue::try_from(date).unwrap_or(HeaderValue::from_static("")));
    let send = async {
        stream.write_all(&head).await?;
        stream.write_all(&body_start).await?;
        stream.flush().await?;
        match termination {
            Termination::Close => stream.shutdown().await,
            Termination::Reset if head.is_empty() => Ok(()),
            Termination::Reset => {
                time.sleep_until(time.now() + RESET_DELAY).await;
                Ok(())
            }
        }
    };
    // An error or a timeout means that the client does not read.
    let _ = before(time, time.now() + TIMEOUT, send).await;
}

/// Runs each HTTP/2 stream as a task.
#[derive(Clone)]
struct Http2StreamExecutor(Precise);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Http2StreamExecutor {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
