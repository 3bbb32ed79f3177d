//! A small HTTP/1.1 cache with switches that break one rule each. It shares no code with the cache and the proxy of the workspace.
//!
//! - `fault`: the switches.
//! - `rules`: storage, lifetimes, conditions, ranges, fields.
//! - `store`: the pages. `upstream`: connections to the origin.
//! - `cache`: the way of a request. `fetch`: responses of the origin.

mod cache;
mod fault;
mod fetch;
mod rules;
mod store;
mod upstream;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

use self::cache::Cache;
pub use self::fault::Fault;
use self::fault::Faults;

/// A running cache. It ends when it is dropped.
pub struct FaultyCache {
    pub address: SocketAddr,
    cache: Arc<Cache>,
    /// Closes when this is dropped, and ends the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl FaultyCache {
    /// Starts a cache on a free port of the loopback, with a runtime on a thread of its own.
    pub fn start(origin: SocketAddr, faults: &[Fault]) -> Self {
        let cache = Arc::new(Cache::new(origin, Faults::new(faults)));
        let (end, ended) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        let served = cache.clone();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
                _ = bound.send(listener.local_addr().expect("the address of a listener"));
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = ended => {}
                }
            });
        });
        let address = address.recv().expect("the thread binds a port");
        Self { address, cache, end: Some(end), thread: Some(thread) }
    }

    /// Reads its settings again, which have not changed.
    pub fn reload(&self) {
        self.cache.reload();
    }

    /// Moves the clock of the cache forward. Timeouts and connections keep real time.
    pub fn advance(&self, time: Duration) {
        self.cache.advance(time);
    }

    /// The bytes that the cache keeps without need.
    pub fn leaked_bytes(&self) -> usize {
        self.cache.leaked_bytes()
    }
}

impl Drop for FaultyCache {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread of the cache does not panic");
        }
    }
}

async fn serve(listener: TcpListener, cache: Arc<Cache>) {
    loop {
        // Without descriptors the next attempt may succeed.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        _ = stream.set_nodelay(true);
        let cache = cache.clone();
        let service = service_fn(move |request| {
            let cache = cache.clone();
            async move { Ok::<_, Infallible>(cache.respond(request).await) }
        });
        tokio::spawn(
            http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service),
        );
    }
}

impl std::fmt::Debug for FaultyCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyCache").field("address", &self.address).finish_non_exhaustive()
    }
}
