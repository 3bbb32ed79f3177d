//! A connection to a server of HTTP, and how it is made.
//!
//! Nothing runs beside whoever asks: a connection works while its answer is awaited, rests otherwise, and is closed
//! when it is dropped. So there are never more than there are turns.

use std::{
    error::Error,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    http::response,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

use super::{Server, tls::Tls};

/// How much a body may have.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes to and from a server, encrypted or not.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Reads answers and writes requests.
type Work = http1::Connection<TokioIo<Box<dyn Wire>>, Full<Bytes>>;

/// Makes connections.
pub(super) struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<Tls>,
}

/// One of them.
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// None: it is closed.
    work: Option<Work>,
    exchanges: usize,
}

/// There was no answer, or not all of it.
pub(super) struct Broken {
    /// Not even its beginning.
    pub(super) is_unanswered: bool,
    pub(super) reason: String,
}

impl Connector {
    pub(super) async fn new(server: &Server) -> Result<Self, String> {
        let tls = match &server.trust {
            Some(trust) => Some(Tls::new(trust).await?),
            None => None,
        };
        Ok(Self { host: server.host.as_str().into(), port: server.port, tls })
    }

    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let host = &self.host;
        let addresses = lookup_host((&**host, self.port)).await;
        let addresses: Vec<_> = addresses
            .map_err(|error| format!("no address for host `{host}`: {error}; check its name"))?
            .collect();
        let tcp = TcpStream::connect(&addresses[..]).await.map_err(|error| unconnected(&error))?;
        tcp.set_nodelay(true).map_err(|error| unconnected(&error))?;
        let wire: Box<dyn Wire> = match &self.tls {
            Some(tls) => Box::new(tls.connect(tcp).await?),
            None => Box::new(tcp),
        };
        let (requests, work) = http1::handshake(TokioIo::new(wire)).await.map_err(|error| explain(&error))?;
        Ok(Connection { requests, work: Some(work), exchanges: 0 })
    }
}

impl Connection {
    /// Sends a request, and awaits all of the answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(response::Parts, Bytes), Broken> {
        let Self { requests, work, .. } = self;
        let mut answer = pin!(async {
            let unanswered = |error| Broken { is_unanswered: true, reason: explain(&error) };
            let (head, body) = requests.send_request(request).await.map_err(unanswered)?.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
            let body = body.map_err(|error| Broken { is_unanswered: false, reason: explain(&*error) })?;
            Ok((head, body.to_bytes()))
        });
        let answer = poll_fn(|cx| {
            go_on(work, cx);
            answer.as_mut().poll(cx)
        });
        let answer = answer.await?;
        self.exchanges += 1;
        Ok(answer)
    }

    /// Whether it was of use to somebody before.
    pub(super) fn is_used(&self) -> bool {
        self.exchanges > 0
    }

    /// Whether it is still open, as far as one can know, and nothing goes on there.
    pub(super) async fn is_at_rest(&mut self) -> bool {
        poll_fn(|cx| {
            go_on(&mut self.work, cx);
            Poll::Ready(self.work.is_some() && self.requests.is_ready())
        })
        .await
    }
}

/// Reads and writes what can be. Work that is done is dropped, or a request that comes too late would wait for it.
fn go_on(work: &mut Option<Work>, cx: &mut Context<'_>) {
    if work.as_mut().is_some_and(|work| Pin::new(work).poll(cx).is_ready()) {
        *work = None;
    }
}

/// Why nobody could be reached, and what to do about it.
fn unconnected(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: start the server, or check host and port".to_owned()
        }
        _ => format!("cannot connect: {error}; check host and port"),
    }
}

/// What went wrong with an answer.
fn explain(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |&error| error.source());
    let io = causes().find_map(|cause| cause.downcast_ref::<io::Error>());
    let hyper = error.downcast_ref::<hyper::Error>();
    if error.is::<LengthLimitError>() {
        return format!("its answer has more than {} MiB", BODY_BYTES_MAX >> 20);
    }
    if hyper.is_some_and(hyper::Error::is_incomplete_message)
        || io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof)
    {
        return "it closed the connection before its answer was whole".to_owned();
    }
    if hyper.is_some_and(hyper::Error::is_parse) {
        return "it does not answer in HTTP: check host, port and scheme".to_owned();
    }
    format!("the connection broke: {}", causes().last().unwrap_or(error))
}
