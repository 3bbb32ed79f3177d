//! A frontend with a handler that answers by path, and blocking clients.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use stockade_http::frontend::{
    ClientBody, ClientBodyError, ConnectionInfo, Frontend, FrontendSettings, FrontendStats, Handler,
    HandlerResponse, ResponseRecord, SentBody,
};
use tokio::sync::Semaphore;

/// A guard against hanging: nothing here takes a hundredth of it.
pub(crate) const HANG_GUARD: Duration = Duration::from_mins(2);

/// A timeout that a test waits for. Nothing else may have to happen before it.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

/// A timeout that a test waits for, and before which a slow machine manages some round trips.
pub(crate) const LONGER: Duration = Duration::from_millis(500);

/// Answers by path, and records requests.
pub(crate) struct TestHandler {
    shared: Arc<HandlerState>,
}

struct HandlerState {
    requests: Mutex<Vec<String>>,
    sent: Mutex<Vec<SentBody>>,
    /// `/held` waits for a permit.
    gate: Semaphore,
    /// Held, it blocks the frontend's threads at the next connection.
    accepting: Mutex<()>,
}

impl Clone for TestHandler {
    /// The frontend clones the handler for each connection that it accepts.
    fn clone(&self) -> Self {
        drop(lock(&self.shared.accepting));
        Self { shared: Arc::clone(&self.shared) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestHandler {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(HandlerState {
                requests: Mutex::default(),
                sent: Mutex::default(),
                gate: Semaphore::new(0),
                accepting: Mutex::default(),
            }),
        }
    }

    /// Requests so far: method, target, and the length of the body or its error.
    pub(crate) fn requests(&self) -> Vec<String> {
        lock(&self.shared.requests).clone()
    }

    /// The responses that have ended.
    pub(crate) fn sent(&self) -> Vec<SentBody> {
        lock(&self.shared.sent).clone()
    }

    /// Lets the given number of requests to `/held` complete.
    pub(crate) fn release(&self, requests: usize) {
        self.shared.gate.add_permits(requests);
    }

    /// Connections that `act` opens are served only after it returns: however slow the machine is, the frontend finds
    /// what `act` writes before a timeout passes.
    pub(crate) fn hold_accepts<T>(&self, act: impl FnOnce() -> T) -> T {
        let _held = lock(&self.shared.accepting);
        act()
    }
}

type TestBody = UnsyncBoxBody<Bytes, std::io::Error>;

impl Handler for TestHandler {
    type Body = TestBody;
    type Record = TestRecord;

    fn handle(
        &self,
        request: Request<ClientBody>,
        connection: ConnectionInfo,
    ) -> HandlerResponse<TestBody, TestRecord> {
        let shared = Arc::clone(&self.shared);
        HandlerResponse::Pending(Box::pin(async move {
            let response = shared.respond(request, connection).await;
            (response, TestRecord(shared))
        }))
    }
}

pub(crate) struct TestRecord(Arc<HandlerState>);

impl ResponseRecord for TestRecord {
    fn end(&mut self, sent: SentBody) {
        lock(&self.0.sent).push(sent);
    }
}

impl HandlerState {
    fn record(&self, request: &Request<ClientBody>, body: &Result<Bytes, ClientBodyError>) {
        let length = body.as_ref().map_or_else(ToString::to_string, |body| body.len().to_string());
        lock(&self.requests).push(format!("{} {} {length}", request.method(), request.uri()));
    }

    async fn respond(
        &self,
        mut request: Request<ClientBody>,
        connection: ConnectionInfo,
    ) -> Response<TestBody> {
        let path = request.uri().path().to_owned();
        if path == "/ignore-body" {
            self.record(&request, &Ok(Bytes::new()));
            return Response::new(text("ignored"));
        }
        let body =
            std::mem::take(request.body_mut()).collect().await.map(http_body_util::Collected::to_bytes);
        self.record(&request, &body);
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
                self.gate.acquire().await.expect("the semaphore is never closed").forget();
                Response::new(text("held"))
            }
            ("/large", bytes) => {
                let body = Bytes::from(vec![b'x'; bytes.parse().expect("a number of bytes")]);
                Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync())
            }
            ("/endless", _) => Response::new(Endless.boxed_unsync()),
            ("/never", _) => std::future::pending().await,
            ("/panic", _) => panic!("a panic on request"),
            ("/switch", _) => {
                let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response
            }
            ("/unsized", _) => Response::new(Unsized(Some(Bytes::from_static(b"unsized"))).boxed_unsync()),
            ("/connection", _) => Response::new(text(&format!("{} {}", connection.local, connection.is_tls))),
            _ => {
                let text = Full::new(if body.is_empty() { Bytes::from_static(b"hello") } else { body });
                let mut response = Response::new(text.map_err(|never| match never {}).boxed_unsync());
                let length = response.body().size_hint().exact().expect("the length is known");
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
                response
            }
        }
    }
}

fn text(text: &str) -> TestBody {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// Frames of 16 KiB as fast as they are polled.
struct Endless;
/// A body that does not state its length.
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

pub(crate) fn start(settings: FrontendSettings) -> (Frontend, TestHandler) {
    let handler = TestHandler::new();
    (Frontend::start(settings, &handler).expect("a free port of the loopback"), handler)
}

/// For tests with a thousand connections: many systems allow 1,024 descriptors at first.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the soft limit may rise to the hard limit");
}

/// A client whose reads and writes fail after [`HANG_GUARD`].
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(address).expect("the frontend listens");
    tcp.set_read_timeout(Some(HANG_GUARD)).expect("the guard is not zero");
    tcp.set_write_timeout(Some(HANG_GUARD)).expect("the guard is not zero");
    tcp
}

pub(crate) fn send(tcp: &mut impl Write, bytes: &[u8]) {
    tcp.write_all(bytes).expect("the connection is open");
}

/// Reads until the frontend closes the connection.
pub(crate) fn read_to_close(tcp: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tcp.read_to_end(&mut bytes).expect("the frontend closes the connection");
    String::from_utf8(bytes).expect("the response is text")
}

/// Writes on a new connection, and reads until the frontend closes it.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut tcp = connect(address);
    // A rejection may close the connection before all is written.
    let _ = tcp.write_all(bytes);
    read_to_close(&mut tcp)
}

/// Reads a response with a `content-length`: its head, and its body.
pub(crate) fn read_response(tcp: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        tcp.read_exact(&mut byte).expect("the head goes on");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("the head is text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    tcp.read_exact(&mut body).expect("the body goes on");
    (head, String::from_utf8(body).expect("the body is text"))
}

/// The status code of a response.
pub(crate) fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or(response)
}

/// Waits until the statistics of the frontend meet a condition.
pub(crate) fn wait_for_stats(frontend: &Frontend, condition: impl Fn(&FrontendStats) -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a guard against hanging takes real time")]
    let now = std::time::Instant::now;
    let end = now() + HANG_GUARD;
    while !condition(&frontend.stats()) {
        assert!(now() < end, "the condition never held: {:?}", frontend.stats());
        std::thread::yield_now();
    }
}
