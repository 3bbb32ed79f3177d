//! One connection, from its first byte to its last: HTTP/1.1, HTTP/2, or what a fault makes of it.

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
    body::LINGER,
    fault::{Broken, End},
    service::{self, Service},
    session::Session,
    tls::Tls,
    wire::{Wire, Wired},
};

/// How long a handshake may take, or a part of an answer that is to break off.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a client of HTTP/2 that says nothing is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// How many requests of one connection of HTTP/2 are answered at once.
const STREAMS_MAX: u32 = 250;
/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Serves a connection to its end.
pub(crate) async fn serve(tcp: TcpStream, tls: Option<Tls>, service: Service) {
    // It only ever makes answers later.
    let _ = tcp.set_nodelay(true);
    let session = Session::new(service);
    let time = session.service.time.clone();
    let Some(tls) = tls else {
        let is_http2 = before(&time, session.deadline(), begins_as_http2(&tcp, &time)).await;
        let wire = Wire::new(tcp, Arc::clone(&session));
        return match is_http2 {
            Some(Ok(true)) => serve_http2(wire, session).await,
            Some(Ok(false)) => serve_http1(wire, session).await,
            None | Some(Err(_)) => {}
        };
    };
    let handshake = TlsAcceptor::from(tls.config).accept(Wire::new(tcp, Arc::clone(&session)));
    let Some(Ok(wire)) = before(&time, time.now() + PATIENCE, handshake).await else { return };
    if wire.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(wire, session).await;
    } else {
        serve_http1(wire, session).await;
    }
}

/// Looks at the first bytes, and leaves them there.
async fn begins_as_http2(tcp: &TcpStream, time: &Precise) -> io::Result<bool> {
    let (mut first, mut pause) = ([0; PREFACE.len()], Duration::from_millis(1));
    loop {
        let seen = tcp.peek(&mut first).await?;
        if seen == 0 || first[..seen] != PREFACE[..seen] {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        // More is on its way; the bytes that are there would answer at once.
        time.sleep_until(time.now() + pause).await;
        pause *= 2;
    }
}

async fn serve_http2<W: Wired>(wire: W, session: Arc<Session>) {
    let time = session.service.time.clone();
    let mut builder = http2::Builder::new(Tasks(time));
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).keep_alive_interval(PING);
    let asked = Arc::clone(&session);
    let service = service_fn(move |request| service::answer(Arc::clone(&asked), request));
    // A client that breaks off is no failure of the origin's.
    let _ = while_in_use(&session, builder.serve_connection(TokioIo::new(wire), service)).await;
}

async fn serve_http1<W: Wired>(wire: W, session: Arc<Session>) {
    let asked = Arc::clone(&session);
    let service = service_fn(move |request| service::answer(Arc::clone(&asked), request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(wire), service);
    let served = poll_fn(|cx| {
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        session.take_broken().map_or(Poll::Pending, |broken| Poll::Ready(Some(broken)))
    });
    if let Some(Some(broken)) = while_in_use(&session, served).await {
        let wire = connection.into_parts().io.into_inner();
        break_off(wire, broken, &session.service.time).await;
    }
}

/// Serves until nothing has happened for too long: None.
async fn while_in_use<F: Future>(session: &Session, served: F) -> Option<F::Output> {
    let time = &session.service.time;
    let mut served = pin!(served);
    loop {
        let deadline = session.deadline();
        if deadline <= time.now() {
            return None;
        }
        if let Some(output) = before(time, deadline, served.as_mut()).await {
            return Some(output);
        }
    }
}

/// Does to a connection what real origins do.
async fn break_off<W: Wired>(mut wire: W, broken: Broken, time: &Precise) {
    let Broken { head, part, end } = broken;
    if end == End::Reset {
        // From here on it ends so, whenever it is dropped.
        let _ = wire.tcp().set_zero_linger();
    }
    #[expect(clippy::disallowed_methods, reason = "an answer tells the date")]
    let date = httpdate::fmt_http_date(SystemTime::now());
    let head = head.bytes(&HeaderValue::try_from(date).unwrap_or(HeaderValue::from_static("")));
    let ending = async {
        wire.write_all(&head).await?;
        wire.write_all(&part).await?;
        wire.flush().await?;
        match end {
            End::Close => wire.shutdown().await,
            End::Reset if head.is_empty() => Ok(()),
            End::Reset => {
                time.sleep_until(time.now() + LINGER).await;
                Ok(())
            }
        }
    };
    // Whoever does not read it has broken off before us.
    let _ = before(time, time.now() + PATIENCE, ending).await;
}

/// Streams of HTTP/2 run beside each other.
#[derive(Clone)]
struct Tasks(Precise);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
