//! Small servers: pages for the operator and figures for collectors, over HTTP/1.1, on a thread apart from the requests that count. All
//! that a client can take is bounded.

use std::{
    collections::VecDeque,
    convert::Infallible,
    error::Error,
    future::Future,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Notify, Semaphore, watch},
};

const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

type BodyError = Box<dyn Error + Send + Sync>;

/// The bounds of a server. A request head has at most 16 KiB.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    pub connections_max: u32,
    pub connection_time_max: Duration,
    /// For a request head, which bounds the time without a request as well.
    pub head_time_max: Duration,
    /// A connection has more than one request.
    pub is_keep_alive: bool,
    pub when_full: WhenFull,
}

/// How a new connection is treated while `connections_max` are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits for another one to end.
    Wait,
    /// The oldest one that waits for its client is closed, so that silent clients cannot keep others out.
    CloseOldest,
}

/// The open connections of a server.
#[derive(Clone, Debug)]
pub struct Connections {
    limits: ServerLimits,
    free: Arc<Semaphore>,
}

/// A thread of a server, with a runtime of its own. A drop stops it and waits for its end.
#[derive(Debug)]
pub struct ServerThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The state of a connection, in the order in which connections are closed to make room for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// No request head has arrived, or the last request has been answered.
    Silent,
    /// A request with a body, which may arrive slowly.
    Body,
    /// A request without a body. It ends by itself.
    Responding,
}

/// A connection, shared by the accept loop and the connection's task.
struct OpenConnection {
    phase: AtomicU8,
    close: Notify,
}

impl Connections {
    #[must_use]
    pub fn within(limits: ServerLimits) -> Self {
        Self { limits, free: Arc::new(Semaphore::new(limits.connections_max as usize)) }
    }

    /// Waits until all have ended.
    pub async fn ended(&self) {
        // It is never closed.
        let _ = self.free.acquire_many(self.limits.connections_max).await;
    }
}

impl OpenConnection {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

/// Binds an address.
pub fn bind(address: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The runtime of a server's thread.
pub fn runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_io().enable_time().thread_name("blocking").build()
}

impl ServerThread {
    /// Starts a thread that awaits the future of `start`, which is called within the runtime of that thread. Its argument becomes true
    /// when this is dropped.
    pub fn run<F, E>(
        name: &str,
        start: impl FnOnce(watch::Receiver<bool>) -> Result<F, E> + Send + 'static,
    ) -> Result<Self, E>
    where
        F: Future<Output = ()>,
        E: From<io::Error> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let (started, is_started) = mpsc::channel();
        let run = move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error.into()))),
            };
            runtime.block_on(async {
                match start(stopped) {
                    Ok(serving) => {
                        drop(started.send(Ok(())));
                        serving.await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
            // Does not wait for name lookups that hang.
            runtime.shutdown_background();
        };
        let thread = Some(thread::Builder::new().name(name.to_owned()).spawn(run)?);
        // A thread that panicked has sent nothing. Its message is on standard error.
        is_started.recv().unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Other).into()))?;
        Ok(Self { stop, thread })
    }

    /// Serves a bound socket. `respond` is called within the runtime, and returns the function that answers requests.
    pub fn serve<S, F, B>(
        name: &str,
        listener: StdListener,
        limits: ServerLimits,
        respond: impl FnOnce(&Live) -> io::Result<S> + Send + 'static,
    ) -> io::Result<Self>
    where
        S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BodyError>,
    {
        Self::run(name, move |mut stopped| {
            let (listener, time) = (TcpListener::from_std(listener)?, Live::new());
            let (connections, respond) = (Connections::within(limits), respond(&time)?);
            Ok::<_, io::Error>(async move {
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = serve(&listener, &connections, &time, respond) => {}
                }
            })
        })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Serves connections and never returns.
pub async fn serve<S, F, B>(listener: &TcpListener, connections: &Connections, time: &Live, respond: S)
where
    S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BodyError>,
{
    let Connections { limits, free } = connections;
    let mut open: VecDeque<Arc<OpenConnection>> = VecDeque::new();
    loop {
        let tcp = accept(listener, time).await;
        // The task of a connection that has ended has dropped its reference.
        open.retain(|connection| Arc::strong_count(connection) > 1);
        if limits.when_full == WhenFull::CloseOldest && free.available_permits() == 0 {
            close_oldest(&mut open);
        }
        // An idle server has all of them free.
        let Ok(permit) = Arc::clone(free).acquire_owned().await else { return };
        let phase = AtomicU8::new(Phase::Silent as u8);
        let connection = Arc::new(OpenConnection { phase, close: Notify::new() });
        open.push_back(Arc::clone(&connection));
        let (limits, clock, respond) = (*limits, time.clone(), respond.clone());
        time.spawn(async move {
            serve_connection(tcp, limits, &clock, &connection, respond).await;
            drop(permit);
        });
    }
}

/// The next connection of a server that never ends.
pub async fn accept(listener: &TcpListener, time: &impl Runtime) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => return tcp,
            // Without a free file descriptor connections wait in the kernel until others are closed.
            Err(_) => time.sleep_until(time.now() + ACCEPT_PAUSE).await,
        }
    }
}

fn close_oldest(open: &mut VecDeque<Arc<OpenConnection>>) {
    let oldest = |phase| open.iter().position(|connection| connection.phase.load(Relaxed) == phase as u8);
    if let Some(connection) =
        oldest(Phase::Silent).or_else(|| oldest(Phase::Body)).and_then(|at| open.remove(at))
    {
        connection.close.notify_one();
    }
}

async fn serve_connection<S, F, B>(
    tcp: TcpStream,
    limits: ServerLimits,
    time: &Live,
    connection: &OpenConnection,
    respond: S,
) where
    S: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<BodyError>,
{
    let service = service_fn(|request: Request<Incoming>| {
        connection.enter(if request.body().is_end_stream() { Phase::Responding } else { Phase::Body });
        let response = respond(request);
        async move {
            let response = response.await;
            connection.enter(Phase::Silent);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time_max).max_buf_size(HEAD_BYTES_MAX);
    let served = pin!(builder.keep_alive(limits.is_keep_alive).serve_connection(TokioIo::new(tcp), service));
    tokio::select! {
        // A connection error cannot be reported to the client.
        _ = before(time, time.now() + limits.connection_time_max, served) => {}
        () = connection.close.notified() => {}
    }
}

/// A response of a few words.
pub fn text<B: From<Bytes>>(status: StatusCode, text: impl Into<Bytes>) -> Response<B> {
    let mut response = Response::new(B::from(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The refusal of a method that a page does not have. A page with `GET` has `HEAD` as well.
#[must_use]
pub fn refused_method<B: From<Bytes>>(method: &Method, allowed: &Method) -> Option<Response<B>> {
    let is_read = allowed == Method::GET;
    if method == allowed || (is_read && method == Method::HEAD) {
        return None;
    }
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {allowed}\n"));
    let methods = if is_read { Ok(HeaderValue::from_static("GET, HEAD")) } else { allowed.as_str().parse() };
    response.headers_mut().extend(methods.ok().map(|methods| (ALLOW, methods)));
    Some(response)
}
