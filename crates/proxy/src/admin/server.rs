//! The admin listener and its thread.

use std::{
    collections::VecDeque,
    io,
    net::TcpListener as StdListener,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::Duration,
};

use http_body::Body;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Notify, Semaphore, watch},
};

use super::{Control, service::AdminService};

/// Pause after a failed accept, such as one without a free file descriptor.
const BREATH: Duration = Duration::from_millis(10);

const HEAD_BYTES_MAX: usize = 16 << 10;

/// Serves until `stopped` is true. Sends one message on `ready`: started, or the error.
pub(super) fn run<C: Control>(
    listener: StdListener,
    service: &AdminService<C>,
    mut stopped: watch::Receiver<bool>,
    ready: &Sender<io::Result<()>>,
) {
    let runtime = match runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("blocking")
        .build()
    {
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

/// The state of a connection, in the order in which connections are closed to make room for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ConnectionPhase {
    /// No request head has arrived, or the last request has been answered.
    Silent,
    /// A request with a body, which may arrive slowly.
    Body,
    /// A request without a body. It ends by itself.
    Responding,
}

/// A connection, shared by the accept loop and the connection's task.
struct AdminConnection {
    phase: AtomicU8,
    close: Notify,
}

impl AdminConnection {
    fn is_in(&self, phase: ConnectionPhase) -> bool {
        self.phase.load(Relaxed) == phase as u8
    }

    fn enter(&self, phase: ConnectionPhase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

/// Accepts connections and never returns. Above the limit, the oldest connection that waits for its client is closed: silent
/// clients cannot keep others out.
async fn accept_all<C: Control>(listener: &TcpListener, service: &AdminService<C>, time: &Live) {
    let permits = Arc::new(Semaphore::new(service.limits.connections));
    let mut open: VecDeque<Arc<AdminConnection>> = VecDeque::new();
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            time.sleep_until(time.now() + BREATH).await;
            continue;
        };
        // The task of a connection that has ended has dropped its reference.
        open.retain(|connection| Arc::strong_count(connection) > 1);
        if permits.available_permits() == 0 {
            let oldest = |phase| open.iter().position(|connection| connection.is_in(phase));
            if let Some(at) = oldest(ConnectionPhase::Silent).or_else(|| oldest(ConnectionPhase::Body)) {
                open.remove(at).expect("it is in the queue").close.notify_one();
            }
        }
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let phase = AtomicU8::new(ConnectionPhase::Silent as u8);
        let connection = Arc::new(AdminConnection { phase, close: Notify::new() });
        open.push_back(Arc::clone(&connection));
        let (service, clock) = (service.clone(), time.clone());
        time.spawn(async move {
            serve(tcp, service, clock, connection).await;
            drop(permit);
        });
    }
}

async fn serve<C: Control>(
    tcp: TcpStream,
    service: AdminService<C>,
    time: Live,
    connection: Arc<AdminConnection>,
) {
    let limits = service.limits;
    let handler = service_fn(|request: Request<Incoming>| {
        let (service, time, connection) = (service.clone(), time.clone(), Arc::clone(&connection));
        async move {
            let has_body = !request.body().is_end_stream();
            connection.enter(if has_body { ConnectionPhase::Body } else { ConnectionPhase::Responding });
            let response = service.respond(request, &time).await;
            connection.enter(ConnectionPhase::Silent);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES_MAX);
    let served = pin!(builder.serve_connection(TokioIo::new(tcp), handler));
    tokio::select! {
        // A connection error cannot be reported to the client.
        _ = before(&time, time.now() + limits.connection, served) => {}
        () = connection.close.notified() => {}
    }
}
