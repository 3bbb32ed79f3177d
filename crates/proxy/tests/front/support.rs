//! A front whose handler tells what it saw, and clients that never wait for ever.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use stockade_proxy::front::{Answering, ClientBody, ClientError, Front, Handler, Peer, Settings};
use tokio::sync::Semaphore;

/// Nothing here takes as long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A bound that is met soon.
#[allow(dead_code, reason = "not every test binary uses all")]
pub(crate) const SOON: Duration = Duration::from_millis(60);

/// Answers by path, and remembers.
#[derive(Clone)]
pub(crate) struct Guide {
    seen: Arc<Mutex<Vec<String>>>,
    /// `/held` waits for one of these.
    pub(crate) gate: Arc<Semaphore>,
    /// How `/held` has been entered.
    pub(crate) held: Arc<Semaphore>,
}

impl Guide {
    pub(crate) fn new() -> Self {
        let semaphore = || Arc::new(Semaphore::new(0));
        Self { seen: Arc::default(), gate: semaphore(), held: semaphore() }
    }

    #[allow(dead_code, reason = "not every test binary uses all")]
    /// What was asked: method, target, and the length of the body.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, request: &Request<ClientBody>, body: &Result<Bytes, ClientError>) {
        let length = body.as_ref().map_or_else(ToString::to_string, |body| body.len().to_string());
        let line = format!("{} {} {length}", request.method(), request.uri());
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

type Told = UnsyncBoxBody<Bytes, std::io::Error>;

impl Handler for Guide {
    type Body = Told;

    fn answer(&self, request: Request<ClientBody>, peer: Peer) -> Answering<Self::Body> {
        let guide = self.clone();
        Answering::Later(Box::pin(async move { guide.tell(request, peer).await }))
    }
}

impl Guide {
    async fn tell(&self, mut request: Request<ClientBody>, peer: Peer) -> Response<Told> {
        let path = request.uri().path().to_owned();
        if path == "/deaf" {
            self.note(&request, &Ok(Bytes::new()));
            return Response::new(text("deaf"));
        }
        let body =
            std::mem::take(request.body_mut()).collect().await.map(http_body_util::Collected::to_bytes);
        self.note(&request, &body);
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                let mut response = Response::new(text(&error.to_string()));
                *response.status_mut() = error.status();
                return response;
            }
        };
        match path.split_once('-').unwrap_or((&path, "")) {
            ("/held", _) => {
                self.held.add_permits(1);
                self.gate.acquire().await.expect("nobody closes it").forget();
                Response::new(text("held"))
            }
            ("/large", bytes) => {
                let body = Bytes::from(vec![b'x'; bytes.parse().expect("a number of bytes")]);
                Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync())
            }
            ("/endless", _) => Response::new(Endless.boxed_unsync()),
            ("/never", _) => std::future::pending().await,
            ("/panic", _) => panic!("as it was asked to"),
            ("/switch", _) => {
                let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response
            }
            ("/unsized", _) => Response::new(Unsized(Some(Bytes::from_static(b"unsized"))).boxed_unsync()),
            ("/peer", _) => Response::new(text(&format!("{} {}", peer.local, peer.is_tls))),
            _ => {
                let text = Full::new(if body.is_empty() { Bytes::from_static(b"hello") } else { body });
                let mut response = Response::new(text.map_err(|never| match never {}).boxed_unsync());
                let length = response.body().size_hint().exact().expect("it is whole");
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
                response
            }
        }
    }
}

fn text(text: &str) -> Told {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// Parts of 16 KiB as fast as they are taken.
struct Endless;
/// Of a length that nobody knows before.
struct Unsized(Option<Bytes>);

impl Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        static PART: [u8; 16_384] = [b'x'; 16_384];
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&PART)))))
    }
}

impl Body for Unsized {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

pub(crate) fn start(settings: Settings) -> (Front, Guide) {
    let guide = Guide::new();
    (Front::start(settings, &guide).expect("a free port of the loopback"), guide)
}

/// A client that waits no longer than [`PATIENCE`] for anything.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(address).expect("somebody listens");
    tcp.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
    tcp.set_write_timeout(Some(PATIENCE)).expect("it is no zero");
    tcp
}

/// Everything until the front closes the connection.
pub(crate) fn rest(tcp: &mut TcpStream) -> String {
    let mut all = Vec::new();
    tcp.read_to_end(&mut all).expect("the front closes the connection");
    String::from_utf8(all).expect("it is text")
}

/// Says something, and hears everything until the front closes the connection.
pub(crate) fn talk(address: SocketAddr, bytes: &[u8]) -> String {
    let mut tcp = connect(address);
    // It may be refused, and the connection closed, before it is said to its end.
    let _ = tcp.write_all(bytes);
    rest(&mut tcp)
}

/// Reads one answer that has a `content-length`: its head, and its body.
pub(crate) fn one(tcp: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        tcp.read_exact(&mut byte).expect("there is more of the head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("it is text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    tcp.read_exact(&mut body).expect("there is more of the body");
    (head, String::from_utf8(body).expect("it is text"))
}

/// The status of an answer.
pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

/// Waits until the front has counted what it is asked about.
pub(crate) fn until(front: &Front, is_so: impl Fn(&stockade_proxy::front::Counts) -> bool) {
    #[expect(clippy::disallowed_methods, reason = "nobody is told of counts")]
    let now = std::time::Instant::now;
    let end = now() + PATIENCE;
    while !is_so(&front.counts()) {
        assert!(now() < end, "it never came to it: {:?}", front.counts());
        std::thread::yield_now();
    }
}
