//! Awaits many futures at once.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use crate::locks::{AtomicBool, Lock, Ordering};

/// Wakes the task that joins, and names the future that has to be polled.
struct JoinWaker {
    is_woken: AtomicBool,
    task: Arc<Lock<Waker>>,
}

impl Wake for JoinWaker {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.task.lock().wake_by_ref();
    }
}

/// The outputs in the order of the futures. Polls those that were woken, so that a thousand loads cost a thousand polls.
pub(crate) async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let task = Arc::new(Lock::new(Waker::noop().clone()));
    let mut left = futures.len();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut pending: Vec<(Pin<Box<F>>, Arc<JoinWaker>)> = futures
        .into_iter()
        .map(|future| {
            let waker = JoinWaker { is_woken: AtomicBool::new(true), task: Arc::clone(&task) };
            (Box::pin(future), Arc::new(waker))
        })
        .collect();
    poll_fn(|cx| {
        // Before the flags are read: a later wake reaches this task.
        task.lock().clone_from(cx.waker());
        for ((future, waker), output) in pending.iter_mut().zip(&mut outputs) {
            if output.is_none() && waker.is_woken.swap(false, Ordering::SeqCst) {
                let waker = Waker::from(Arc::clone(waker));
                if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    *output = Some(ready);
                    left -= 1;
                }
            }
        }
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
