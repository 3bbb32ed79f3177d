//! Real time whose sleeps end when they should.

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

/// [`Live`], with sleeps that end within some 50 us of their deadline, never early, where tokio's
/// own end up to 1 ms late: for whoever times others, or is timed by them.
///
/// A timer of the kernel (timerfd) wakes one task, which wakes all whose time has come. A sleep costs
/// two walks down a tree under a lock, and a system call if none ends before it.
#[derive(Clone, Debug)]
pub struct Precise {
    live: Live,
    alarms: Arc<Alarms>,
    _watch: Arc<Watch>,
}

/// Who is to be woken when.
#[derive(Debug)]
struct Alarms {
    timer: AsyncFd<OwnedFd>,
    due: Mutex<Due>,
}

#[derive(Debug)]
struct Due {
    /// By deadline; the number tells those of the same deadline apart.
    wakers: BTreeMap<(Time, u64), Waker>,
    last: u64,
    /// What the kernel's timer is set to.
    set: Time,
}

/// The task that waits for the kernel's timer; it ends with the last who could sleep.
#[derive(Debug)]
struct Watch(AbortHandle);

struct Sleep {
    precise: Precise,
    deadline: Time,
    /// Set while its waker is among those that are due.
    number: Option<u64>,
}

impl Precise {
    /// Real time on the tokio runtime of the caller, whose I/O has to be enabled.
    ///
    /// Fails where there can be no more file descriptors.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Self::of(Live::new())
    }

    /// The same clock, whose moments can be compared with this one's, on the tokio runtime of the caller.
    ///
    /// Fails where there can be no more file descriptors.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn beside(&self) -> io::Result<Self> {
        Self::of(self.live.beside())
    }

    fn of(live: Live) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let due = Due { wakers: BTreeMap::new(), last: 0, set: Time::NEVER };
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types whose descriptor may change; this one's does not"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        let alarms = Arc::new(Alarms { timer, due: Mutex::new(due) });
        let watch = tokio::runtime::Handle::current().spawn(watch(live.clone(), Arc::clone(&alarms)));
        Ok(Self { live, alarms, _watch: Arc::new(Watch(watch.abort_handle())) })
    }
}

async fn watch(live: Live, alarms: Arc<Alarms>) {
    // It fails when the runtime shuts down: nobody sleeps any more.
    while let Ok(mut rings) = alarms.timer.readable().await {
        // How often it rang does not matter; that it is read does: only then it is quiet again.
        let _ = rustix::io::read(rings.get_inner(), &mut [0_u8; 8]);
        rings.clear_ready();
        for waker in alarms.take_due(live.now()) {
            waker.wake();
        }
    }
}

impl Alarms {
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those whose time has come; the timer is set to the next one.
    fn take_due(&self, now: Time) -> Vec<Waker> {
        let mut due = self.due();
        let later = due.wakers.split_off(&(now + Duration::from_nanos(1), 0));
        let woken = std::mem::replace(&mut due.wakers, later);
        due.set = due.wakers.keys().next().map_or(Time::NEVER, |(deadline, _)| *deadline);
        self.set(due.set, now);
        woken.into_values().collect()
    }

    /// Lets the kernel's timer ring at `deadline`.
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
        // It can only refuse another kind of file, or a fraction of more than a second.
        let _ = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &value);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.precise.live.now();
        let (deadline, number) = (self.deadline, self.number);
        if now >= deadline {
            return Poll::Ready(());
        }
        // A waker may run code of others when it is cloned or dropped: not under the lock.
        let waker = cx.waker().clone();
        let mut due = self.precise.alarms.due();
        let number = number.unwrap_or_else(|| {
            due.last += 1;
            due.last
        });
        let replaced = due.wakers.insert((deadline, number), waker);
        if deadline < due.set {
            due.set = deadline;
            self.precise.alarms.set(deadline, now);
        }
        drop(due);
        drop(replaced);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // As above: not under the lock.
            let waker = self.precise.alarms.due().wakers.remove(&(self.deadline, number));
            drop(waker);
        }
    }
}

impl Drop for Watch {
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
        Sleep { precise: self.clone(), deadline, number: None }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.live.spawn(task);
    }
}
