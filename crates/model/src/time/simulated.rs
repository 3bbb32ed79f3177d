//! Virtual time: a single-threaded executor whose clock jumps to the next timer.
//!
//! Ready tasks run first, in the order in which they became ready. If no task is ready, the clock moves to the earliest
//! timer, with a resolution of a nanosecond. Timers of the same moment fire in the order of their registration. Nothing
//! else decides the order, so a program whose random choices come from a seed does the
//! same thing every time.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use super::{Runtime, Time};

/// A virtual clock and its tasks. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Virtual {
    executor: Arc<VirtualExecutor>,
}

/// A deadlock: no task is ready and no timer is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is ready and no timer is set, {:?} after the start", at.elapsed())]
pub struct Stalled {
    /// The time of the last event.
    pub at: Time,
}

impl Virtual {
    /// An executor at time zero, without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `main` and its spawned tasks until `main` completes, then drops the other tasks.
    ///
    /// # Errors
    /// [`Stalled`] if a live runtime would hang.
    pub fn run<F: Future>(&self, main: F) -> Result<F::Output, Stalled> {
        let _cleanup = Cleanup(&self.executor);
        let mut main = pin!(main);
        let main_waker = Arc::new(MainWaker {
            executor: Arc::downgrade(&self.executor),
            is_queued: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&main_waker));
        waker.wake_by_ref();
        loop {
            match self.executor.next_ready() {
                Some(ReadyEntry::Main) => {
                    main_waker.is_queued.store(false, Ordering::Relaxed);
                    if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return Ok(output);
                    }
                }
                Some(ReadyEntry::Task(task)) => task.run(),
                None if self.executor.advance() => {}
                None => return Err(Stalled { at: self.now() }),
            }
        }
    }
}

impl Runtime for Virtual {
    fn now(&self) -> Time {
        self.executor.state().now
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        VirtualSleep { executor: Arc::clone(&self.executor), deadline, timer: None }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.executor.spawn(Box::pin(task));
    }
}

/// Drops the remaining tasks of a completed run, so that no task keeps its executor alive.
struct Cleanup<'a>(&'a VirtualExecutor);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        // The drop of a task may wake or spawn others, so this repeats until no task is left.
        loop {
            let (tasks, ready, timers) = {
                let mut state = self.0.state();
                let tasks = std::mem::take(&mut state.tasks);
                (tasks, std::mem::take(&mut state.ready), std::mem::take(&mut state.timers))
            };
            if tasks.is_empty() && ready.is_empty() && timers.is_empty() {
                return;
            }
            for task in tasks.into_values() {
                drop(task.take_future());
            }
        }
    }
}

#[derive(Default)]
struct VirtualExecutor {
    state: Mutex<ExecutorState>,
}

#[derive(Default)]
struct ExecutorState {
    now: Time,
    ready: VecDeque<ReadyEntry>,
    timers: BTreeMap<(Time, u64), Waker>,
    timers_set: u64,
    tasks: BTreeMap<u64, Arc<Task>>,
    tasks_spawned: u64,
}

enum ReadyEntry {
    Main,
    Task(Arc<Task>),
}

impl std::fmt::Debug for VirtualExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("VirtualExecutor")
            .field("now", &state.now)
            .field("tasks", &state.tasks.len())
            .finish_non_exhaustive()
    }
}

impl VirtualExecutor {
    fn state(&self) -> MutexGuard<'_, ExecutorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_ready(&self) -> Option<ReadyEntry> {
        self.state().ready.pop_front()
    }

    /// Moves the clock to the earliest timer and fires it. False: there is no timer.
    fn advance(&self) -> bool {
        let mut state = self.state();
        let Some(((deadline, _), waker)) = state.timers.pop_first() else { return false };
        state.now = state.now.max(deadline);
        drop(state);
        waker.wake();
        true
    }

    fn spawn(self: &Arc<Self>, future: BoxFuture) {
        let mut state = self.state();
        let id = state.tasks_spawned;
        state.tasks_spawned += 1;
        let task = Arc::new(Task {
            id,
            executor: Arc::downgrade(self),
            future: Mutex::new(Some(future)),
            queued: AtomicBool::new(true),
        });
        state.tasks.insert(id, Arc::clone(&task));
        state.ready.push_back(ReadyEntry::Task(task));
    }
}

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    id: u64,
    executor: Weak<VirtualExecutor>,
    future: Mutex<Option<BoxFuture>>,
    queued: AtomicBool,
}

impl Task {
    fn take_future(&self) -> Option<BoxFuture> {
        self.future.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn run(self: Arc<Self>) {
        let Some(mut future) = self.take_future() else { return };
        self.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self));
        let mut cx = Context::from_waker(&waker);
        // As with tokio, a panic ends only its own task.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {
                *self.future.lock().unwrap_or_else(PoisonError::into_inner) = Some(future);
            }
            Ok(Poll::Ready(())) | Err(_) => {
                if let Some(executor) = self.executor.upgrade() {
                    let task = executor.state().tasks.remove(&self.id);
                    drop(task);
                }
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(executor) = self.executor.upgrade() {
            executor.state().ready.push_back(ReadyEntry::Task(self));
        }
    }
}

/// Wakes the main future of a run.
struct MainWaker {
    executor: Weak<VirtualExecutor>,
    is_queued: AtomicBool,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(executor) = self.executor.upgrade() {
            executor.state().ready.push_back(ReadyEntry::Main);
        }
    }
}

struct VirtualSleep {
    executor: Arc<VirtualExecutor>,
    deadline: Time,
    timer: Option<u64>,
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let executor = Arc::clone(&self.executor);
        let mut state = executor.state();
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        let timer = *self.timer.get_or_insert_with(|| {
            state.timers_set += 1;
            state.timers_set
        });
        let old = state.timers.insert((self.deadline, timer), cx.waker().clone());
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = self.executor.state().timers.remove(&(self.deadline, timer));
            drop(waker);
        }
    }
}
