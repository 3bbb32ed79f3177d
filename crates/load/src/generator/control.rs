//! A load that is controlled from outside of its generator.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use super::Share;

/// Starts the segments of a load at the same time as those of other generators, moves its share, and ends it.
pub trait Control: fmt::Debug + Send + Sync {
    /// All threads are ready for this segment: the first, or one that starts at no planned time. Completes with the time that is left
    /// until its start.
    fn time_until_start(&self, segment: usize) -> Pin<Box<dyn Future<Output = Duration> + Send + '_>>;

    /// A thread that has followed `followed` moves is about to take the request at `place` of its schedule, warm-up included. `Some`: a
    /// move that begins at this place or before it, which the thread follows first. `None`: it takes the request.
    fn next_move(&self, followed: usize, place: u64) -> Option<ShareMove>;

    /// False: no request may be sent any more. Checked before each request, so that a process that was suspended sends none after it.
    fn may_send(&self) -> bool;
}

/// Another share from a place of the schedule on, in a plan with one open segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareMove {
    /// The place of the first request that the new shares divide, warm-up included.
    pub from: u64,
    /// The share of this generator.
    pub share: Share,
}
