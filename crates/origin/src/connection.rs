//! One connection, from its first byte to its last: HTTP/1.1, HTTP/2, or what a fault makes of it.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, PoisonError},
    task::Poll,
    time::Duration,
};

use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, DATE},
};
use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::time::{Precise, Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    service::{Break, Link, Service},
    stages::Fault,
    tls::Tls,
    wire::{Plain, Wire},
};

/// How long a head may take, or nothing happen between two requests.
const IDLE: Duration = Duration::from_secs(75);
/// How long a handshake may take, or a part of an answer that is to break off.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the beginning of an answer has to arrive before the connection is reset: what is on its way goes with it.
const LINGER: Duration = Duration::from_millis(20);
/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Serves a connection to its end.
pub(crate) async fn serve(tcp: TcpStream, tls: Option<Tls>, service: Service) {
    // It only ever makes answers later.
    let _ = tcp.set_nodelay(true);
    let time = service.time.clone();
    let Some(tls) = tls else {
        match before(&time, time.now() + IDLE, begins_as_http2(&tcp, &time)).await {
            Some(Ok(true)) => serve_http2(tcp, service).await,
            Some(Ok(false)) => {
                let link = Arc::new(Link::default());
                serve_http1(Plain::new(tcp, Arc::clone(&link.sending)), link, service).await;
            }
            None | Some(Err(_)) => {}
        }
        return;
    };
    let handshake = TlsAcceptor::from(tls.config).accept(tcp);
    let Some(Ok(wire)) = before(&time, time.now() + PATIENCE, handshake).await else { return };
    if wire.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(wire, service).await;
    } else {
        serve_http1(wire, Arc::default(), service).await;
    }
}

/// Looks at the first bytes, and leaves them there.
async fn begins_as_http2(tcp: &TcpStream, time: &Precise) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = tcp.peek(&mut first).await?;
        if seen == 0 || first[..seen] != PREFACE[..seen] {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        // More is on its way; the bytes that are there would answer at once.
        time.sleep_until(time.now() + Duration::from_millis(1)).await;
    }
}

async fn serve_http2<W: AsyncRead + AsyncWrite + Unpin + Send + 'static>(wire: W, service: Service) {
    let executor = Tasks(service.time.clone());
    let never = Arc::new(Link::default());
    let service = service_fn(move |request| {
        let (service, never) = (service.clone(), Arc::clone(&never));
        async move { service.answer(request, &never).await }
    });
    let mut builder = http2::Builder::new(executor);
    builder.timer(TokioTimer::new()).max_concurrent_streams(250).keep_alive_interval(IDLE);
    // A client that breaks off is no failure of the origin's.
    let _ = builder.serve_connection(TokioIo::new(wire), service).await;
}

async fn serve_http1<W: Wire>(wire: W, link: Arc<Link>, service: Service) {
    let time = service.time.clone();
    let asked = Arc::clone(&link);
    let service = service_fn(move |request| {
        let (service, asked) = (service.clone(), Arc::clone(&asked));
        async move { service.answer(request, &asked).await }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let mut connection = builder.serve_connection(TokioIo::new(wire), service);
    let broken = poll_fn(|cx| {
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        match link.breaks.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(broken) => Poll::Ready(Some(broken)),
            None => Poll::Pending,
        }
    });
    if let Some(broken) = broken.await {
        let wire = connection.into_parts().io.into_inner();
        let deadline = time.now() + PATIENCE;
        before(&time, deadline, break_off(wire, broken, &time)).await;
    }
}

/// Does to a connection what real origins do.
async fn break_off<W: Wire>(mut wire: W, broken: Break, time: &Precise) {
    let Break { fault, answer, is_head } = broken;
    let bytes = match fault {
        Fault::Refuse | Fault::Silent => Vec::new(),
        Fault::Malformed => b"HTTP/1.1 2x0 maybe\r\nContent-Length: many\r\n: nameless\r\n\r\n".to_vec(),
        Fault::Reset | Fault::Cut => {
            let mut bytes = head_of(answer.status, &answer.head, answer.body.len());
            let half = if is_head { 0 } else { answer.body.len() / 2 };
            bytes.extend_from_slice(&answer.body[..half]);
            bytes
        }
    };
    // Whoever does not read it has broken off before us.
    let _ = wire.write_all(&bytes).await;
    let _ = wire.flush().await;
    match fault {
        Fault::Refuse | Fault::Reset => {
            if !bytes.is_empty() {
                time.sleep_until(time.now() + LINGER).await;
            }
            let _ = wire.tcp().set_zero_linger();
        }
        Fault::Silent | Fault::Malformed | Fault::Cut => {
            let _ = wire.shutdown().await;
        }
    }
}

/// The head of an answer of so many bytes, as it is written on the wire.
fn head_of(status: http::StatusCode, head: &HeaderMap, length: usize) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    let mut add = |name: &str, value: &[u8]| {
        for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
            bytes.extend_from_slice(piece);
        }
    };
    for (name, value) in head {
        add(name.as_str(), value.as_bytes());
    }
    add(CONTENT_LENGTH.as_str(), length.to_string().as_bytes());
    #[expect(clippy::disallowed_methods, reason = "an answer tells the date")]
    let now = std::time::SystemTime::now();
    add(DATE.as_str(), httpdate::fmt_http_date(now).as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Streams of HTTP/2 run beside each other.
#[derive(Clone)]
struct Tasks(Precise);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
