//! Panics of loads, whose messages reach the callers.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::error::Error;

/// A panic that was caught. The panic hook has printed it.
pub(crate) struct CaughtPanic(Box<dyn Any + Send>);

impl CaughtPanic {
    pub(crate) fn error(&self) -> Error {
        let text = self.0.downcast_ref::<&str>().copied();
        let text = text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str));
        Error::Panicked { message: text.unwrap_or("(no text)").into() }
    }

    pub(crate) fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

/// Runs a future to its end, or to its panic.
pub(crate) fn catch_panic<F: Future>(future: F) -> CatchPanic<F> {
    CatchPanic { future }
}

pin_project! {
    pub(crate) struct CatchPanic<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, CaughtPanic>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => Poll::Ready(Ok(ready!(poll))),
            Err(panic) => Poll::Ready(Err(CaughtPanic(panic))),
        }
    }
}
