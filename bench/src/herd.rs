//! A server that delays responses until a number of requests has arrived: the lower bound of a herd's cost.

use std::{
    convert::Infallible,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime, sync::watch};

use crate::origin::ORIGIN;

/// Holds this many requests at a time and answers with a body of `kib` KiB, with two threads, until it is killed.
pub fn hold(requests: usize, kib: usize) -> Result<(), Box<dyn Error>> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(ORIGIN).await?;
        let (arrived, released) = (Arc::new(AtomicUsize::new(0)), Arc::new(watch::Sender::new(0_usize)));
        let body = Bytes::from(vec![b'x'; kib * 1_024]);
        loop {
            let (tcp, _) = listener.accept().await?;
            tcp.set_nodelay(true)?;
            let (arrived, released, body) = (Arc::clone(&arrived), Arc::clone(&released), body.clone());
            let service = service_fn(move |_: Request<Incoming>| {
                let number = arrived.fetch_add(1, Relaxed);
                let (herd, is_last) = (number / requests, (number + 1).is_multiple_of(requests));
                let (released, mut receiver, body) =
                    (Arc::clone(&released), released.subscribe(), body.clone());
                async move {
                    if is_last {
                        released.send_replace(herd + 1);
                    }
                    // The sender lives as long as the server.
                    let _ = receiver.wait_for(|herds| *herds > herd).await;
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
        }
    })
}
