//! CPU-bound work on tokio's blocking threads, so that requests are served meanwhile.

use tokio::task::spawn_blocking;

/// Runs `work` on a blocking thread. If the caller is dropped, the work still runs to its end.
///
/// # Panics
/// Outside a tokio runtime, or if `work` panics.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(output) => output,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only a runtime that shuts down cancels blocking work. It drops this future, too.
        Err(Err(_)) => std::future::pending().await,
    }
}
