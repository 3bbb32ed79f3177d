//! Tasks of HTTP/2 streams, which run apart from the task of their connection, each with timeouts of its own.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use hyper::rt::Executor;
use stockade_model::time::{Runtime, Time};

use super::{
    settings::FrontendSettings,
    state::{ConnectionState, Http2Stream, ThreadContext},
};

/// Spawns hyper's tasks.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor(pub(super) Arc<ConnectionState>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, task: F) {
        let thread = Arc::clone(&self.0.thread);
        let time = thread.time.clone();
        match self.0.take_newest_stream() {
            Some(stream) => time.spawn(run_bounded(task, stream, thread)),
            None => time.spawn(task),
        }
    }
}

/// Runs a stream's task until it ends or one of its timeouts passes; dropping the task resets the stream.
async fn run_bounded(task: impl Future<Output = ()>, stream: Arc<Http2Stream>, thread: Arc<ThreadContext>) {
    let mut task = pin!(task);
    // Most streams never wait for a client and set no timer.
    let mut timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    let expired = poll_fn(|cx| {
        if task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            if let Some(timer) = &mut timer
                && timer.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            let (deadline, reason) = stream.deadline(&thread.settings);
            let now = thread.time.now();
            if deadline <= now {
                return Poll::Ready(Some(reason));
            }
            if deadline == Time::NEVER {
                timer = None;
                return Poll::Pending;
            }
            // A stall may begin meanwhile, and its timeout may become shorter.
            let check = FrontendSettings::STALL_CHECK.min(thread.settings.write_stall_timeout);
            let check = now + check.max(Duration::from_millis(1));
            timer = Some(Box::pin(thread.time.sleep_until(deadline.min(check))));
        }
    })
    .await;
    if let Some(reason) = expired {
        thread.counters.closed(reason).increment();
    }
}
