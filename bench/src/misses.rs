//! The cost of a miss: one caller asks for keys that are not stored, one after the other.

use std::{
    convert::Infallible,
    future::Future,
    hint::black_box,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};

/// Room for entries; the keys are more, so that most misses evict.
pub const CAPACITY: usize = 10_000;

/// How the load of a miss comes to its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The caller is a thread, and the load a function.
    Thread,
    /// The caller is a task, and the load is ready when it is first polled.
    Ready,
    /// The caller is a task, and the load has to be polled twice.
    Yields,
}

/// A contender in the comparison of misses.
#[derive(Clone, Copy)]
pub struct Misser {
    /// Its name in tables.
    pub name: &'static str,
    /// The time of this many misses.
    pub miss: fn(Load, u64) -> Duration,
}

/// The runtime of callers that are tasks.
///
/// # Panics
/// If the process has no file descriptors left.
#[must_use]
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// The load of a task.
pub async fn load(how: Load, key: u64) -> Result<u64, Infallible> {
    if how == Load::Yields {
        tokio::task::yield_now().await;
    }
    Ok(key)
}

/// The time of `count` misses of a thread.
pub fn by_thread<T>(count: u64, miss: impl Fn(u64) -> T) -> Duration {
    let began = Instant::now();
    for key in 0..count {
        black_box(miss(key));
    }
    began.elapsed()
}

/// The time of `count` misses of a task.
pub async fn by_task<T, F: Future<Output = T>>(count: u64, miss: impl Fn(u64) -> F) -> Duration {
    let began = Instant::now();
    for key in 0..count {
        black_box(miss(key).await);
    }
    began.elapsed()
}
