//! A load that is controlled from outside of its generator.

use std::{fmt, future::Future, pin::Pin, time::Duration};

/// Starts the segments of a load at the same time as those of other generators, and ends it.
pub trait Control: fmt::Debug + Send + Sync {
    /// All threads are ready for this segment: the first, or one that starts at no planned time. Completes with the time that is left
    /// until its start.
    fn time_until_start(&self, segment: usize) -> Pin<Box<dyn Future<Output = Duration> + Send + '_>>;

    /// False: no request may be sent any more. Checked before each request, so that a process that was suspended sends none after it.
    fn may_send(&self) -> bool;
}
