//! Many tasks request one cold key at the same time.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, watch},
};

pub use crate::contenders::STAMPEDERS;

/// The requested key, which is not cached.
const COLD: u64 = 1;
/// The duration of the load after the last request.
const LOAD: Duration = Duration::from_millis(5);

/// A cache that answers all concurrent requests for a key with one load.
pub trait Coalesce: Send + Sync + 'static {
    /// The value of `key`: stored, or from `load`, or from the load of another caller.
    fn get_with<F>(
        &self,
        key: &'static u64,
        load: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<impl Send, impl Send>> + Send
    where
        F: Future<Output = Result<u64, Infallible>> + Send + 'static;
}

/// A contender in the comparison of stampedes.
#[derive(Clone, Copy)]
pub struct Stampeder {
    /// Its name in tables.
    pub name: &'static str,
    /// A stampede of this size on an empty cache, which begins when it is first polled. Must be called inside a
    /// runtime.
    pub prepare: fn(usize) -> Pin<Box<dyn Future<Output = Stampede> + Send>>,
}

/// The result of a stampede.
#[derive(Clone, Copy, Debug)]
pub struct Stampede {
    /// From the first spawn to the last response.
    pub took: Duration,
    /// The number of loads.
    pub loads: usize,
}

/// The runtime of every stampede.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_time().build()
}

/// The tasks that request the cold key.
struct Herd {
    size: usize,
    requested: AtomicUsize,
    all_have_requested: watch::Sender<bool>,
    answered: AtomicUsize,
    all_are_answered: Notify,
    failed: AtomicUsize,
    loads: AtomicUsize,
}

/// `size` tasks request the cold key from `cache`.
///
/// # Panics
/// If one of them receives no value.
pub async fn stampede<C: Coalesce>(cache: C, size: usize) -> Stampede {
    let cache = Arc::new(cache);
    let herd = Arc::new(Herd {
        size,
        requested: AtomicUsize::default(),
        all_have_requested: watch::Sender::default(),
        answered: AtomicUsize::default(),
        all_are_answered: Notify::new(),
        failed: AtomicUsize::default(),
        loads: AtomicUsize::default(),
    });
    let began = Instant::now();
    for _ in 0..size {
        tokio::spawn(Arc::clone(&herd).request(Arc::clone(&cache)));
    }
    herd.all_are_answered.notified().await;
    let took = began.elapsed();
    assert_eq!(herd.failed.load(Ordering::Relaxed), 0, "some were not answered");
    Stampede { took, loads: herd.loads.load(Ordering::Relaxed) }
}

impl Herd {
    async fn request<C: Coalesce>(self: Arc<Self>, cache: Arc<C>) {
        if self.requested.fetch_add(1, Ordering::Relaxed) + 1 == self.size {
            self.all_have_requested.send_replace(true);
        }
        let herd = Arc::clone(&self);
        // The leader boxes the load, so that waiters need no memory for it.
        let load = || async { Box::pin(herd.load()).await };
        if cache.get_with(&COLD, load).await.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if self.answered.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.all_are_answered.notify_one();
        }
    }

    /// Its duration begins with the last request of the herd, so that all the others wait for it.
    async fn load(self: Arc<Self>) -> Result<u64, Infallible> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let mut all_have_requested = self.all_have_requested.subscribe();
        _ = all_have_requested.wait_for(|all| *all).await;
        tokio::time::sleep(LOAD).await;
        Ok(COLD)
    }
}
