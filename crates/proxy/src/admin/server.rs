//! The listener, on a thread of its own.

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

use super::{Control, service::Service};

/// How long to wait when there are no file descriptors left.
const BREATH: Duration = Duration::from_millis(10);

/// How much, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    /// Until a head is there, of the first request and of the next.
    pub(super) head: Duration,
    /// Until a body is there.
    pub(super) body: Duration,
    pub(super) body_bytes: usize,
    /// For a connection altogether.
    pub(super) connection: Duration,
}

impl Default for Limits {
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

/// Bytes in a head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Listens until it is told to stop. Says when it does, or why it cannot.
pub(super) fn run<C: Control>(
    listener: StdListener,
    service: &Service<C>,
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
            () = take_all_in(&listener, service, &time) => {}
        }
    });
    runtime.shutdown_background();
}

/// For ever.
async fn take_all_in<C: Control>(listener: &TcpListener, service: &Service<C>, time: &Live) {
    let room = Arc::new(Semaphore::new(service.limits.connections));
    loop {
        // Those that there is no room for wait in the kernel.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((tcp, _)) => {
                let (service, clock) = (service.clone(), time.clone());
                time.spawn(async move {
                    serve(tcp, service, clock).await;
                    drop(place);
                });
            }
            Err(_) => time.sleep_until(time.now() + BREATH).await,
        }
    }
}

async fn serve<C: Control>(tcp: TcpStream, service: Service<C>, time: Live) {
    let limits = service.limits;
    let clock = time.clone();
    let answer = service_fn(move |request| {
        let (service, time) = (service.clone(), clock.clone());
        async move { Ok::<_, std::convert::Infallible>(service.answer(request, &time).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES_MAX);
    let served = pin!(builder.serve_connection(TokioIo::new(tcp), answer));
    // Whoever breaks off has nothing to be told.
    let _ = before(&time, time.now() + limits.connection, served).await;
}

/// An answer.
pub(super) type Answer = Response<Page>;

/// The body of an answer: there at once, or line by line.
pub(super) enum Page {
    Whole(Option<Bytes>),
    Lines(mpsc::Receiver<Bytes>),
}

impl Body for Page {
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

/// Waits for a body, as long and for as much as is let be.
pub(super) async fn whole<B: Body<Data = Bytes>>(
    body: B,
    limits: Limits,
    time: &Live,
) -> Result<Bytes, Unread>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, limits.body_bytes).collect();
    match before(time, time.now() + limits.body, body).await {
        None => Err(Unread::Slow),
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(error)) if error.is::<LengthLimitError>() => Err(Unread::Large),
        Some(Err(_)) => Err(Unread::BrokeOff),
    }
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unread {
    Slow,
    Large,
    BrokeOff,
}
