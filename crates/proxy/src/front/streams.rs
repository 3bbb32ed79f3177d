//! Streams of HTTP/2: tasks beside their connection, each with bounds of its own.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use hyper::rt::Executor;
use stockade_model::time::{Runtime, Time};

use super::{
    counts::Cut,
    session::{Progress, Thread},
};

/// One request of HTTP/2. Its client may let its answer stand while it takes others: no bound of the connection tells.
#[derive(Debug)]
pub(super) struct Stream {
    began: Time,
    /// When a part of its answer was handed over, in ns, and hyper has not come back for more.
    handed: AtomicU64,
}

/// Runs what hyper wants run.
#[derive(Clone, Debug)]
pub(super) struct Tasks(pub(super) Arc<Progress>);

impl Stream {
    pub(super) fn new(thread: &Thread) -> Self {
        Self { began: thread.time.now(), handed: AtomicU64::new(u64::MAX) }
    }

    /// A part of the answer is on its way to the client.
    pub(super) fn hand_over(&self, thread: &Thread) {
        self.handed.store(thread.time.now().as_nanos(), Relaxed);
    }

    /// The client has room for more.
    pub(super) fn wants_more(&self) {
        self.handed.store(u64::MAX, Relaxed);
    }

    fn deadline(&self, thread: &Thread) -> (Time, Cut) {
        let settings = &thread.settings;
        let total = settings.total_timeout.map_or(Time::NEVER, |timeout| self.began + timeout);
        let stall = Time::from_nanos(self.handed.load(Relaxed)) + settings.write_stall_timeout;
        if stall < total { (stall, Cut::Stall) } else { (total, Cut::Total) }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let thread = Arc::clone(&self.0.thread);
        let time = thread.time.clone();
        match self.0.take_newest() {
            Some(stream) => time.spawn(bounded(task, stream, thread)),
            None => time.spawn(task),
        }
    }
}

/// Runs a stream until it ends, or one of its bounds is met: dropped, it is reset.
async fn bounded(task: impl Future<Output = ()>, stream: Arc<Stream>, thread: Arc<Thread>) {
    let mut task = pin!(task);
    // Most never wait for a client and have no timer.
    let mut alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    let cut = poll_fn(|cx| {
        if task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            if let Some(alarm) = &mut alarm
                && alarm.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            let (deadline, cut) = stream.deadline(&thread);
            let now = thread.time.now();
            if deadline <= now {
                return Poll::Ready(Some(cut));
            }
            if deadline == Time::NEVER {
                alarm = None;
                return Poll::Pending;
            }
            // A stall may begin meanwhile, and be over before a whole answer would be too late.
            let stall = thread.settings.write_stall_timeout.max(Duration::from_millis(1));
            alarm = Some(Box::pin(thread.time.sleep_until(deadline.min(now + stall))));
        }
    })
    .await;
    if let Some(cut) = cut {
        thread.tallies.cut(cut);
    }
}
