//! Real time with precise sleeps.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::AbortHandle,
};

use super::{Live, Runtime, Time};

/// [`Live`] with sleeps that end within about 50 us of their deadline, never early. Tokio's sleeps end up to 1 ms late,
/// which is too late for load generators and simulated origins.
///
/// A timer of the kernel (timerfd) wakes one task, which wakes all sleeps that are due. A sleep costs
/// two walks down a tree under a lock, and a system call if no other sleep ends before it.
#[derive(Clone, Debug)]
pub struct Precise {
    live: Live,
    timers: Arc<TimerQueue>,
    _task: Arc<TimerTask>,
}

/// The wakers of all sleeps.
#[derive(Debug)]
struct TimerQueue {
    timer: AsyncFd<OwnedFd>,
    state: Mutex<TimerState>,
}

#[derive(Debug)]
struct TimerState {
    /// By deadline. The number distinguishes sleeps with the same deadline.
    wakers: BTreeMap<(Time, u64), Waker>,
    last: u64,
    /// The deadline of the kernel's timer.
    set: Time,
}

/// The task that waits for the kernel's timer. It ends with the last clone of its runtime and the last sleep.
#[derive(Debug)]
struct TimerTask(AbortHandle);

struct PreciseSleep {
    precise: Precise,
    deadline: Time,
    /// Set while the waker is registered.
    number: Option<u64>,
}

impl Precise {
    /// Uses the tokio runtime of the caller, which needs enabled I/O.
    ///
    /// Fails if there are no more file descriptors.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Self::of(Live::new())
    }

    /// The same clock, with comparable moments, on the tokio runtime of the caller.
    ///
    /// Fails if there are no more file descriptors.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn on_current_runtime(&self) -> io::Result<Self> {
        Self::of(self.live.on_current_runtime())
    }

    fn of(live: Live) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let state = TimerState { wakers: BTreeMap::new(), last: 0, set: Time::NEVER };
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types whose descriptor may change; this one's does not"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        let timers = Arc::new(TimerQueue { timer, state: Mutex::new(state) });
        let task = tokio::runtime::Handle::current().spawn(run_timer(live.clone(), Arc::clone(&timers)));
        Ok(Self { live, timers, _task: Arc::new(TimerTask(task.abort_handle())) })
    }
}

async fn run_timer(live: Live, timers: Arc<TimerQueue>) {
    // An error means that the runtime shuts down, so no sleeps are left.
    while let Ok(mut rings) = timers.timer.readable().await {
        // The read resets the timer; the number of expirations is irrelevant.
        let _ = rustix::io::read(rings.get_inner(), &mut [0_u8; 8]);
        rings.clear_ready();
        for waker in timers.take_due(live.now()) {
            waker.wake();
        }
    }
}

impl TimerQueue {
    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the wakers that are due and sets the timer to the next one.
    fn take_due(&self, now: Time) -> Vec<Waker> {
        let mut state = self.lock();
        let later = state.wakers.split_off(&(now + Duration::from_nanos(1), 0));
        let woken = std::mem::replace(&mut state.wakers, later);
        state.set = state.wakers.keys().next().map_or(Time::NEVER, |(deadline, _)| *deadline);
        self.set(state.set, now);
        woken.into_values().collect()
    }

    /// Sets the kernel's timer to `deadline`.
    fn set(&self, deadline: Time, now: Time) {
        let lasts = if deadline == Time::NEVER {
            Duration::ZERO
        } else {
            (deadline - now).max(Duration::from_nanos(1))
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec {
            tv_sec: i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(lasts.subsec_nanos()),
        };
        let value = Itimerspec { it_interval: never, it_value };
        // Fails only for another kind of file, or for a fraction of more than a second.
        let _ = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &value);
    }
}

impl Future for PreciseSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.precise.live.now();
        let (deadline, number) = (self.deadline, self.number);
        if now >= deadline {
            return Poll::Ready(());
        }
        // Clone and drop of a waker may run foreign code, so they happen outside the lock.
        let waker = cx.waker().clone();
        let mut state = self.precise.timers.lock();
        let number = number.unwrap_or_else(|| {
            state.last += 1;
            state.last
        });
        let replaced = state.wakers.insert((deadline, number), waker);
        if deadline < state.set {
            state.set = deadline;
            self.precise.timers.set(deadline, now);
        }
        drop(state);
        drop(replaced);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for PreciseSleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // Dropped outside the lock, like above.
            let waker = self.precise.timers.lock().wakers.remove(&(self.deadline, number));
            drop(waker);
        }
    }
}

impl Drop for TimerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Runtime for Precise {
    fn now(&self) -> Time {
        self.live.now()
    }

    fn coarse_now(&self) -> Time {
        self.live.coarse_now()
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        PreciseSleep { precise: self.clone(), deadline, number: None }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.live.spawn(task);
    }
}
