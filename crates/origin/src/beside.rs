//! Work that takes its time, beside the requests that are served meanwhile.

use tokio::task::spawn_blocking;

/// What comes of some work on a thread that may be blocked. It goes on if nobody waits for it any more.
///
/// # Panics
/// Outside a tokio runtime, and where the work does.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime ends, and whoever waits with it.
        Err(Err(_)) => std::future::pending().await,
    }
}
