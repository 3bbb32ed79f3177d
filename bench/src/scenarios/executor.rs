//! Where the code of a scenario runs: on a runtime, on a thread of its own, or on a thread without a runtime.

use std::{
    cell::Cell,
    future::Future,
    panic::resume_unwind,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::spawn_blocking,
    time::timeout,
};

use super::Observed;

/// How long a scenario waits for an answer that may never come. Less than the limit of a child process, so that
/// the child can say how many were answered.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A runtime with two workers.
///
/// # Panics
/// If no thread can be started.
#[must_use]
pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Runs a scenario on a runtime with two workers, and leaves threads that hang behind.
pub fn run(scenario: impl Future<Output = Observed>) -> Observed {
    let runtime = runtime();
    let observed = runtime.block_on(scenario);
    runtime.shutdown_background();
    observed
}

/// The result, unless it takes longer than [`PATIENCE`].
pub async fn within<T>(future: impl Future<Output = T>) -> Option<T> {
    timeout(PATIENCE, future).await.ok()
}

/// Polls a future once.
pub fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until the future is ready. Unlike tokio's, it may run within itself, and needs no runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

thread_local! {
    /// This thread runs a call of a cache for threads.
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// Ends the call, also if it panics.
struct CallGuard;

impl Drop for CallGuard {
    fn drop(&mut self) {
        IS_CALLER.set(false);
    }
}

/// Runs a call that blocks on a thread of its own; a call within a call, on the thread of that one.
pub async fn on_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    if IS_CALLER.get() {
        return call();
    }
    let call = move || {
        IS_CALLER.set(true);
        let _guard = CallGuard;
        call()
    };
    match spawn_blocking(call).await {
        Ok(value) => value,
        Err(error) => resume_unwind(error.into_panic()),
    }
}
