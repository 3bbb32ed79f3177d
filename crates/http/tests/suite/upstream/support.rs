//! Scripted TCP servers and client helpers.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use stockade_http::upstream::{Upstream, UpstreamBody, UpstreamError, UpstreamSettings};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

/// Bound for events that take milliseconds, so that a failed test ends.
pub const HANG_GUARD: Duration = Duration::from_secs(10);
/// A timeout that tests wait out.
pub const SHORT: Duration = Duration::from_millis(50);

pub const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server on the current runtime, with counted connections.
pub struct Stub {
    pub address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
    peak: AtomicUsize,
}

/// Decrements the open connections on drop.
struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

impl Stub {
    /// `serve` receives each connection and its number from 0.
    pub async fn start<F>(serve: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self::on(listener, serve)
    }

    pub fn on<F>(listener: TcpListener, serve: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().expect("an address");
        let counts = Arc::<Counts>::default();
        let own = Arc::clone(&counts);
        drop(Handle::current().spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let number = own.accepted.fetch_add(1, SeqCst);
                own.peak.fetch_max(own.open.fetch_add(1, SeqCst) + 1, SeqCst);
                let (open, served) = (Open(Arc::clone(&own)), serve(number, tcp));
                drop(Handle::current().spawn(async move {
                    served.await;
                    drop(open);
                }));
            }
        }));
        Self { address, counts }
    }

    /// Answers each request of each connection with these bytes.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::start(move |_, mut tcp| {
            let answer = Arc::clone(&answer);
            async move { while read_head(&mut tcp).await.is_some() && tcp.write_all(&answer).await.is_ok() {} }
        })
        .await
    }

    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(SeqCst)
    }

    pub fn open(&self) -> usize {
        self.counts.open.load(SeqCst)
    }

    /// Maximum of concurrent connections.
    pub fn peak(&self) -> usize {
        self.counts.peak.load(SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn settings(&self) -> UpstreamSettings {
        settings(&self.url())
    }

    pub fn upstream(&self) -> Upstream {
        upstream(self.settings())
    }
}

pub fn settings(url: &str) -> UpstreamSettings {
    let url = url.parse().expect("an URL");
    UpstreamSettings {
        head_timeout: HANG_GUARD,
        idle_timeout: HANG_GUARD,
        connect_timeout: HANG_GUARD,
        ..UpstreamSettings::new(url)
    }
}

pub fn upstream(settings: UpstreamSettings) -> Upstream {
    Upstream::new(settings).expect("an upstream")
}

/// The head of a request, including the empty line; `None` at the end of the stream.
pub async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).expect("a head is text"))
}

/// Reads until the peer closes.
pub async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) {
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// Reads a request head and writes the response.
pub async fn serve_once(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), answer: &[u8]) -> Option<String> {
    let head = read_head(stream).await?;
    stream.write_all(answer).await.ok()?;
    Some(head)
}

pub fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).expect("a request")
}

/// Panics if the future takes longer than the hang guard.
pub async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    let clock = Live::new();
    before(&clock, clock.now() + HANG_GUARD, future).await.expect("no event within the hang guard")
}

/// Yields until the condition holds.
pub async fn until(is_so: impl Fn() -> bool) {
    with_timeout(async {
        while !is_so() {
            stockade_model::time::yield_now().await;
        }
    })
    .await;
}

pub async fn whole(answer: Response<UpstreamBody>) -> Result<Bytes, UpstreamError> {
    with_timeout(answer.into_body().collect()).await.map(http_body_util::Collected::to_bytes)
}

/// Sends a GET and collects the response body.
pub async fn fetch(upstream: &Upstream, path: &str) -> Result<Bytes, UpstreamError> {
    whole(with_timeout(upstream.send(get(path))).await?).await
}

/// Yields until this much time has passed.
pub async fn elapse(time: Duration) {
    let clock = Live::new();
    let end = clock.now() + time;
    until(|| clock.now() >= end).await;
}
