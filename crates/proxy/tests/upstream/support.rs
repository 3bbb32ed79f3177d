//! Servers that do what a test says, byte by byte, and what clients of them need.

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
use stockade_model::time::{Live, Runtime, before};
use stockade_proxy::upstream::{Body, Settings, Upstream, UpstreamError};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

/// What should happen within milliseconds has happened by then, or never does.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for a loopback, short enough for a test that waits it out.
pub const SHORT: Duration = Duration::from_millis(50);

pub const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server. It ends with the runtime.
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

/// One of its connections, counted.
struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

impl Stub {
    /// `serve` is given each connection and its number, from 0.
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

    /// Connections that it has open.
    pub fn open(&self) -> usize {
        self.counts.open.load(SeqCst)
    }

    /// Connections that it had open at once.
    pub fn peak(&self) -> usize {
        self.counts.peak.load(SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn settings(&self) -> Settings {
        settings(&self.url())
    }

    pub fn upstream(&self) -> Upstream {
        upstream(self.settings())
    }
}

pub fn settings(url: &str) -> Settings {
    let url = url.parse().expect("an URL");
    Settings {
        head_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..Settings::new(url)
    }
}

pub fn upstream(settings: Settings) -> Upstream {
    Upstream::new(settings).expect("an upstream")
}

/// The head of a request, to its empty line. None: there is no other.
pub async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).expect("a head is text"))
}

/// Reads until the other end closes.
pub async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) {
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// Reads a request and answers it.
pub async fn serve_once(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), answer: &[u8]) -> Option<String> {
    let head = read_head(stream).await?;
    stream.write_all(answer).await.ok()?;
    Some(head)
}

pub fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).expect("a request")
}

/// Awaits what has to happen.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    let clock = Live::new();
    before(&clock, clock.now() + PATIENCE, future).await.expect("it should have happened long ago")
}

/// Lets others run until it is so.
pub async fn until(is_so: impl Fn() -> bool) {
    soon(async {
        while !is_so() {
            stockade_model::time::yield_now().await;
        }
    })
    .await;
}

/// All of an answer.
pub async fn whole(answer: Response<Body>) -> Result<Bytes, UpstreamError> {
    soon(answer.into_body().collect()).await.map(http_body_util::Collected::to_bytes)
}

/// Asks, and reads all of the answer.
pub async fn fetch(upstream: &Upstream, path: &str) -> Result<Bytes, UpstreamError> {
    whole(soon(upstream.send(get(path))).await?).await
}
