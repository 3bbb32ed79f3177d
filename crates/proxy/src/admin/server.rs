//! The admin listener and its thread.

use std::{
    io,
    net::TcpListener as StdListener,
    pin::pin,
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{Semaphore, watch},
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
