//! The runtime of services: tokio and the machine's monotonic clock.
#![expect(clippy::disallowed_methods, reason = "only this file uses the real clock and the real tasks")]

use std::{
    future::{Future, pending},
    io,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Handle};

use super::{Runtime, RuntimeId, Time, blocking, coarse};

/// Real time on tokio runtimes.
///
/// Sleeps have tokio's resolution: they end up to 1 ms late, never early. On a runtime whose clock is
/// paused (`tokio::time::pause`) its time is that of the runtime.
#[derive(Clone, Debug)]
pub struct Live {
    /// Where its time is zero.
    began: Instant,
    /// The same moment on the coarse clock, which may have begun later.
    began_nanos: i64,
    /// `None`: the runtime of each caller.
    tokio: Option<Handle>,
}

impl Live {
    /// Uses the tokio runtime of the caller.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Handle::current())
    }

    /// Uses the tokio runtime of `handle`.
    #[must_use]
    pub fn on(handle: Handle) -> Self {
        Self { tokio: Some(handle), ..Self::of_callers() }
    }

    /// Uses the tokio runtime of each caller, so that it may outlive any of them. Outside of them it uses
    /// [one of its own](background).
    #[must_use]
    pub fn of_callers() -> Self {
        coarse::examine_clock();
        let began = coarse::runtime_now();
        Self { began, began_nanos: nanos(coarse::precise_nanos()), tokio: None }
    }

    fn handle(&self) -> Handle {
        let of_caller = || Handle::try_current().ok().or_else(|| background().ok().cloned());
        match &self.tokio {
            Some(handle) => handle.clone(),
            None => of_caller().expect("a thread can be started"),
        }
    }

    /// The same clock, ten years ahead: moments before its start can be told, such as the load of a value that another
    /// process has stored.
    #[must_use]
    pub fn with_past(self) -> Self {
        const PAST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
        let Some(began) = self.began.checked_sub(PAST) else { return self };
        Self { began, began_nanos: self.began_nanos - i64::try_from(PAST.as_nanos()).unwrap_or(0), ..self }
    }

    /// The same clock on the tokio runtime of the caller.
    #[cfg(feature = "precise")]
    pub(super) fn on_current_runtime(&self) -> Self {
        Self { tokio: Some(Handle::current()), ..self.clone() }
    }
}

/// As signed nanoseconds: 64 bits are 292 years.
#[inline]
fn nanos(nanos: u64) -> i64 {
    nanos.cast_signed()
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for Live {
    fn now(&self) -> Time {
        let now = Time::ZERO + coarse::runtime_now().saturating_duration_since(self.began);
        coarse::examine_clock_if_apart(now.as_nanos().wrapping_add_signed(self.began_nanos));
        now
    }

    /// One to two milliseconds ago, or more if the machine is busy and the ticker thread waits for a processor.
    #[inline]
    fn coarse_now(&self) -> Time {
        Time::from_nanos((nanos(coarse::coarse_nanos()) - self.began_nanos).max(0).cast_unsigned())
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        // tokio's clock may overflow beyond thirty years from now.
        const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
        let deadline = self.began + deadline.elapsed().min(LONGEST);
        let live = self.clone();
        async move {
            let sleep = {
                let tokio = live.handle();
                let _inside = tokio.enter();
                tokio::time::sleep_until(deadline.into())
            };
            sleep.await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle().spawn(task));
    }

    fn spawn_lasting(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.tokio.is_none().then(background) {
            Some(Ok(background)) => drop(background.spawn(task)),
            _ => self.spawn(task),
        }
    }

    fn spawn_awaited(&self, load: impl Future<Output = ()> + Send + 'static) {
        let Err(load) = blocking::leave_to_caller(load) else { return };
        let is_its = |current: &Handle| self.tokio.as_ref().is_none_or(|tokio| tokio.id() == current.id());
        match Handle::try_current().ok().filter(is_its) {
            // A load that need not wait does not cost a task.
            Some(current) => {
                if let Some(load) = blocking::poll_once(Box::pin(load)) {
                    drop(current.spawn(load));
                }
            }
            None => self.spawn(load),
        }
    }

    fn id(&self) -> RuntimeId {
        // A bound one has all its timers on one runtime.
        RuntimeId(self.tokio.is_none().then(|| self.handle().id()))
    }
}

/// A runtime of the process, on one thread that the first call starts: for tasks that outlive the runtimes of callers, and for callers
/// without a runtime.
///
/// # Errors
/// The thread cannot be started.
pub fn background() -> Result<&'static Handle, &'static io::Error> {
    static HANDLE: OnceLock<io::Result<Handle>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(pending::<()>());
        thread::Builder::new().name("stockade-timers".to_owned()).spawn(run)?;
        Ok(handle)
    });
    handle.as_ref()
}
