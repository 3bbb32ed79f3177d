//! Virtual time: a single-threaded executor whose clock jumps to the next timer.
//!
//! What is ready runs first, in the order in which it became ready. When nothing is, the clock moves
//! to the earliest timer, to the nanosecond; timers of one moment fire in the order in which they
//! were set. Nothing else decides the order, so a program that draws its chance from a seed does the
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

/// A virtual clock and the tasks that live by it. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Virtual {
    world: Arc<World>,
}

/// Everyone waits for someone else: nothing is ready and no timer is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is ready and no timer is set, {:?} after the start", at.elapsed())]
pub struct Stalled {
    /// When the last thing happened.
    pub at: Time,
}

impl Virtual {
    /// A new world, at time zero, with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `main` and everything that it spawns until `main` is done; the rest is dropped then.
    ///
    /// # Errors
    /// [`Stalled`] where a live runtime would hang for ever.
    pub fn run<F: Future>(&self, main: F) -> Result<F::Output, Stalled> {
        let _cleanup = Cleanup(&self.world);
        let mut main = pin!(main);
        let bell = Arc::new(Bell { world: Arc::downgrade(&self.world), rung: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&bell));
        waker.wake_by_ref();
        loop {
            match self.world.next_ready() {
                Some(Ready::Main) => {
                    bell.rung.store(false, Ordering::Relaxed);
                    if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return Ok(output);
                    }
                }
                Some(Ready::Task(task)) => task.run(),
                None if self.world.advance() => {}
                None => return Err(Stalled { at: self.now() }),
            }
        }
    }
}

impl Runtime for Virtual {
    fn now(&self) -> Time {
        self.world.state().now
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        Sleep { world: Arc::clone(&self.world), deadline, timer: None }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.world.spawn(Box::pin(task));
    }
}

/// Drops what a finished run leaves behind, so that no task keeps its world alive.
struct Cleanup<'a>(&'a World);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        // A dropped task may wake or spawn others: go on until nothing is left.
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
struct World {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Time,
    ready: VecDeque<Ready>,
    timers: BTreeMap<(Time, u64), Waker>,
    timers_set: u64,
    tasks: BTreeMap<u64, Arc<Task>>,
    tasks_spawned: u64,
}

enum Ready {
    Main,
    Task(Arc<Task>),
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("World")
            .field("now", &state.now)
            .field("tasks", &state.tasks.len())
            .finish_non_exhaustive()
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_ready(&self) -> Option<Ready> {
        self.state().ready.pop_front()
    }

    /// Moves the clock to the earliest timer and fires it; false if there is none.
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
            world: Arc::downgrade(self),
            future: Mutex::new(Some(future)),
            queued: AtomicBool::new(true),
        });
        state.tasks.insert(id, Arc::clone(&task));
        state.ready.push_back(Ready::Task(task));
    }
}

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    id: u64,
    world: Weak<World>,
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
        // As under tokio, a task that panics ends alone.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {
                *self.future.lock().unwrap_or_else(PoisonError::into_inner) = Some(future);
            }
            Ok(Poll::Ready(())) | Err(_) => {
                if let Some(world) = self.world.upgrade() {
                    let task = world.state().tasks.remove(&self.id);
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
        if let Some(world) = self.world.upgrade() {
            world.state().ready.push_back(Ready::Task(self));
        }
    }
}

/// Wakes the main future of a run.
struct Bell {
    world: Weak<World>,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(world) = self.world.upgrade() {
            world.state().ready.push_back(Ready::Main);
        }
    }
}

struct Sleep {
    world: Arc<World>,
    deadline: Time,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.state();
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

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = self.world.state().timers.remove(&(self.deadline, timer));
            drop(waker);
        }
    }
}
