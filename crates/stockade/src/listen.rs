//! Small HTTP servers of a command: bounded, on a thread of low priority, so that no client takes anything from the run.

use std::{
    convert::Infallible,
    error::Error,
    future::Future,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header::ALLOW};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::setpriority_process;
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::Semaphore,
};

/// Of the thread: the default is 0, the lowest priority 19.
const NICENESS: i32 = 10;
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed accept, such as one without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

type BodyError = Box<dyn Error + Send + Sync>;

/// The bounds of a server. Above the limit a connection waits for another one to end. Each has one request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub connections_max: u32,
    pub connection_time_max: Duration,
}

/// The open connections of a server.
#[derive(Clone, Debug)]
pub struct Connections {
    bounds: Bounds,
    free: Arc<Semaphore>,
}

impl Connections {
    pub fn within(bounds: Bounds) -> Self {
        Self { bounds, free: Arc::new(Semaphore::new(bounds.connections_max as usize)) }
    }

    /// Waits until none is open.
    pub async fn ended(&self) {
        // It is never closed.
        let _ = self.free.acquire_many(self.bounds.connections_max).await;
    }
}

/// Binds an address.
pub fn bind(address: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The runtime of a thread that gives way to the threads of the load.
pub fn low_priority_runtime() -> io::Result<runtime::Runtime> {
    // The priority of a thread is its own on Linux.
    let _ = setpriority_process(None, NICENESS);
    runtime::Builder::new_current_thread().enable_io().enable_time().thread_name("blocking").build()
}

/// Serves connections and never returns.
pub async fn serve<S, F, B>(listener: &TcpListener, connections: &Connections, time: &Live, respond: S)
where
    S: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BodyError>,
{
    let Connections { bounds, free } = connections;
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            time.sleep_until(time.now() + ACCEPT_PAUSE).await;
            continue;
        };
        // An idle server has all of them free.
        let Ok(permit) = Arc::clone(free).acquire_owned().await else { return };
        let (respond, clock) = (respond.clone(), time.clone());
        let deadline = clock.now() + bounds.connection_time_max;
        time.spawn(async move {
            // A connection error cannot be reported to the client.
            let _ = before(&clock, deadline, connection(tcp, respond)).await;
            drop(permit);
        });
    }
}

async fn connection<S, F, B>(tcp: TcpStream, respond: S)
where
    S: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<BodyError>,
{
    let service = service_fn(move |request| {
        let response = respond(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX).max_buf_size(HEAD_BYTES_MAX);
    let _ = builder.keep_alive(false).serve_connection(TokioIo::new(tcp), service).await;
}

/// A response of a few words to a request that was not meant for this server.
pub fn refusal<B: From<&'static str>>(status: StatusCode, text: &'static str) -> Response<B> {
    let mut response = Response::new(B::from(text));
    *response.status_mut() = status;
    response
}

/// The response to a method other than `GET` and `HEAD`.
pub fn refused_method<B: From<&'static str>>(method: &Method) -> Option<Response<B>> {
    if [Method::GET, Method::HEAD].contains(method) {
        return None;
    }
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(response)
}
