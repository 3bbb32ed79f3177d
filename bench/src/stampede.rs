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

/// What everyone wants, and nobody has.
const COLD: u64 = 1;
/// How long the load takes, once everybody has asked.
const LOAD: Duration = Duration::from_millis(5);

/// A cache that lets one load answer all who ask for its key.
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

/// One who can take part in the comparison of stampedes.
#[derive(Clone, Copy)]
pub struct Stampeder {
    /// As tables call it.
    pub name: &'static str,
    /// An empty cache, and a stampede of that many on it, which begins when it is first polled. To be called
    /// inside a runtime.
    pub prepare: fn(usize) -> Pin<Box<dyn Future<Output = Stampede> + Send>>,
}

/// What came of a stampede.
#[derive(Clone, Copy, Debug)]
pub struct Stampede {
    /// From the first spawn to the last answer.
    pub took: Duration,
    /// How many loads were executed.
    pub loads: usize,
}

/// The runtime of every stampede.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_time().build()
}

/// Those who want the cold key.
struct Herd {
    size: usize,
    asked: AtomicUsize,
    all_have_asked: watch::Sender<bool>,
    answered: AtomicUsize,
    all_are_answered: Notify,
    failed: AtomicUsize,
    loads: AtomicUsize,
}

/// `size` tasks ask `cache` for the cold key.
///
/// # Panics
/// If one of them is not answered with a value.
pub async fn stampede<C: Coalesce>(cache: C, size: usize) -> Stampede {
    let cache = Arc::new(cache);
    let herd = Arc::new(Herd {
        size,
        asked: AtomicUsize::default(),
        all_have_asked: watch::Sender::default(),
        answered: AtomicUsize::default(),
        all_are_answered: Notify::new(),
        failed: AtomicUsize::default(),
        loads: AtomicUsize::default(),
    });
    let began = Instant::now();
    for _ in 0..size {
        tokio::spawn(Arc::clone(&herd).ask(Arc::clone(&cache)));
    }
    herd.all_are_answered.notified().await;
    let took = began.elapsed();
    assert_eq!(herd.failed.load(Ordering::Relaxed), 0, "some were not answered");
    Stampede { took, loads: herd.loads.load(Ordering::Relaxed) }
}

impl Herd {
    async fn ask<C: Coalesce>(self: Arc<Self>, cache: Arc<C>) {
        if self.asked.fetch_add(1, Ordering::Relaxed) + 1 == self.size {
            self.all_have_asked.send_replace(true);
        }
        let herd = Arc::clone(&self);
        // Boxed by whoever loads, so that those who wait carry no room for a load.
        let load = || async { Box::pin(herd.load()).await };
        if cache.get_with(&COLD, load).await.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if self.answered.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.all_are_answered.notify_one();
        }
    }

    /// Begins to take its time when the last of the herd is about to ask, so that all the others wait for it.
    async fn load(self: Arc<Self>) -> Result<u64, Infallible> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let mut all_have_asked = self.all_have_asked.subscribe();
        _ = all_have_asked.wait_for(|all| *all).await;
        tokio::time::sleep(LOAD).await;
        Ok(COLD)
    }
}
