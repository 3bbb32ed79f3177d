//! Callers that block: their loads run on their own threads.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use super::{Live, Runtime};

pub(super) type Load = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// The loads that the future of a blocking caller has started. `None`: no such future is being polled.
    static STARTED: RefCell<Option<Vec<Load>>> = const { RefCell::new(None) };
    /// True while a load of a blocking caller is being polled.
    static IS_LOADING: Cell<bool> = const { Cell::new(false) };
    /// Loads that are being polled in one another by this thread, each started by the one before.
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// Loads that are started deeper are not run by the thread that starts them, whose stack they would overflow.
const NESTED_MAX: u32 = 16;

/// Blocks until `future` is ready. The loads that it [starts](Runtime::spawn_awaited) run on this thread; those that are not done by then
/// go on as tasks of `live`.
///
/// It needs no runtime, and calls may be nested: a load may wait for another cache.
///
/// # Panics
/// With the panic of a load.
pub fn block_on<T>(live: &Live, future: impl Future<Output = T>) -> T {
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let (mut cx, mut future, mut loads) = (Context::from_waker(&waker), pin!(future), Vec::new());
    let output = loop {
        let (polled, started) = collect_loads(|| future.as_mut().poll(&mut cx));
        loads.extend(started);
        if let Poll::Ready(output) = polled {
            break output;
        }
        let count = loads.len();
        loads.retain_mut(|load: &mut Load| poll_load(load, &mut cx).is_pending());
        if loads.len() == count {
            // A load may have used up the token of this thread while it was polled.
            while !unpark.is_woken.swap(false, Ordering::SeqCst) {
                thread::park();
            }
        }
    };
    loads.into_iter().for_each(|load| live.spawn(load));
    output
}

/// True on the thread of a blocking caller, in its own load: it may block.
#[must_use]
pub fn is_own_load() -> bool {
    IS_LOADING.get()
}

/// Hands a load to the blocking caller on this thread, which runs it.
///
/// # Errors
/// No caller blocks here; the error is the load.
pub(super) fn leave_to_caller<F: Future<Output = ()> + Send + 'static>(load: F) -> Result<(), F> {
    if NESTED.get() >= NESTED_MAX {
        return Err(load);
    }
    STARTED.with_borrow_mut(|started| match started {
        Some(started) => {
            started.push(Box::pin(load));
            Ok(())
        }
        None => Err(load),
    })
}

/// Polls the future of a caller. Returns the loads that it has started, too.
fn collect_loads<T>(poll: impl FnOnce() -> T) -> (T, Vec<Load>) {
    /// Puts the outer caller's list back, also after a panic.
    struct Outer(Option<Vec<Load>>);

    impl Drop for Outer {
        fn drop(&mut self) {
            STARTED.set(self.0.take());
        }
    }

    let _outer = Outer(STARTED.replace(Some(Vec::new())));
    let polled = poll();
    (polled, STARTED.take().unwrap_or_default())
}

fn poll_load(load: &mut Load, cx: &mut Context<'_>) -> Poll<()> {
    // This caller does not run the loads that a load starts, such as the refresh of another cache.
    let (outer, was_loading) = (STARTED.take(), IS_LOADING.replace(true));
    NESTED.set(NESTED.get() + 1);
    let polled = catch_unwind(AssertUnwindSafe(|| load.as_mut().poll(cx)));
    NESTED.set(NESTED.get() - 1);
    IS_LOADING.set(was_loading);
    STARTED.set(outer);
    polled.unwrap_or_else(|panic| {
        // Its waiters learn that it is lost before the panic goes on.
        drop(mem::replace(load, Box::pin(async {})));
        resume_unwind(panic)
    })
}

/// Polls a load once in the task of its caller. `None`: it has ended.
pub(super) fn poll_once(mut load: Load) -> Option<Load> {
    if NESTED.get() >= NESTED_MAX {
        return Some(load);
    }
    // It may be started in a load of a blocking caller.
    let was_loading = IS_LOADING.replace(false);
    NESTED.set(NESTED.get() + 1);
    let polled =
        catch_unwind(AssertUnwindSafe(|| load.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
    NESTED.set(NESTED.get() - 1);
    IS_LOADING.set(was_loading);
    // A panic ends the load alone, as one of a task does. The panic hook has printed it.
    polled.is_ok_and(|polled| polled.is_pending()).then_some(load)
}

struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
