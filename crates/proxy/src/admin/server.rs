//! The admin listener and its thread.

use std::{
    io,
    net::TcpListener as StdListener,
    pin::{Pin, pin},
    sync::{Arc, mpsc::Sender},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Semaphore, mpsc, watch},
};

use super::{Control, service::AdminService};

/// Pause after a failed accept, such as one without a free file descriptor.
const BREATH: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(super) struct AdminLimits {
    pub(super) connections: usize,
    /// Timeout for a request head, which bounds idle time as well.
    pub(super) head: Duration,
    /// Timeout for a request body.
    pub(super) body: Duration,
    pub(super) body_bytes: usize,
    /// Maximum age of a connection.
    pub(super) connection: Duration,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            body_bytes: 1 << 20,
            connection: Duration::from_mins(15),
        }
    }
}

const HEAD_BYTES_MAX: usize = 16 << 10;

/// Serves until `stopped` is true. Sends one message on `ready`: started, or the error.
pub(super) fn run<C: Control>(
    listener: StdListener,
    service: &AdminService<C>,
    mut stopped: watch::Receiver<bool>,
    ready: &Sender<io::Result<()>>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return drop(ready.send(Err(error))),
        };
        drop(ready.send(Ok(())));
        let time = Live::new();
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = accept_all(&listener, service, &time) => {}
        }
    });
    runtime.shutdown_background();
}

/// Accepts connections and never returns.
async fn accept_all<C: Control>(listener: &TcpListener, service: &AdminService<C>, time: &Live) {
    let permits = Arc::new(Semaphore::new(service.limits.connections));
    loop {
        // Connections above the limit wait in the kernel's backlog.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((tcp, _)) => {
                let (service, clock) = (service.clone(), time.clone());
                time.spawn(async move {
                    serve(tcp, service, clock).await;
                    drop(permit);
                });
            }
            Err(_) => time.sleep_until(time.now() + BREATH).await,
        }
    }
}

async fn serve<C: Control>(tcp: TcpStream, service: AdminService<C>, time: Live) {
    let limits = service.limits;
    let clock = time.clone();
    let handler = service_fn(move |request| {
        let (service, time) = (service.clone(), clock.clone());
        async move { Ok::<_, std::convert::Infallible>(service.respond(request, &time).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES_MAX);
    let served = pin!(builder.serve_connection(TokioIo::new(tcp), handler));
    // A connection error cannot be reported to the client.
    let _ = before(&time, time.now() + limits.connection, served).await;
}

pub(super) type AdminResponse = Response<AdminBody>;

/// A response body: complete, or streamed by line.
pub(super) enum AdminBody {
    Whole(Option<Bytes>),
    Lines(mpsc::Receiver<Bytes>),
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => lines.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}

/// Collects a request body within the limits of size and time.
pub(super) async fn read_body<B: Body<Data = Bytes>>(
    body: B,
    limits: AdminLimits,
    time: &Live,
) -> Result<Bytes, BodyError>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, limits.body_bytes).collect();
    match before(time, time.now() + limits.body, body).await {
        None => Err(BodyError::TimedOut),
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Some(Err(_)) => Err(BodyError::Incomplete),
    }
}

/// Why a request body was not read.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyError {
    TimedOut,
    TooLarge,
    Incomplete,
}
