//! When a connection closes unless something happens: pure.

use std::time::Duration;

use stockade_model::time::Time;

use super::{counts::CloseReason, settings::FrontendSettings};

/// The start of each wait that a timeout bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitStarts {
    /// Set while no request is in flight.
    pub(super) idle: Option<Time>,
    pub(super) has_served: bool,
    /// A head that is incomplete.
    pub(super) head: Option<Time>,
    /// The client takes no bytes.
    pub(super) write: Option<Time>,
    /// The HTTP/1 request in flight.
    pub(super) request: Option<Time>,
}

/// The earliest timeout, and its reason.
pub(super) fn deadline(waits: WaitStarts, settings: &FrontendSettings) -> (Time, CloseReason) {
    let WaitStarts { idle, has_served, head, write, request } = waits;
    let never = (Time::NEVER, CloseReason::Idle);
    let idle = match (idle, head) {
        (None, _) => never,
        // The time of a head that arrived while another request was in flight starts when that request ends.
        (Some(idle), Some(head)) => (head.max(idle) + settings.head_timeout, CloseReason::Head),
        (Some(idle), None) if has_served => (idle + settings.keep_alive_timeout, CloseReason::Idle),
        (Some(idle), None) => (idle + settings.head_timeout, CloseReason::Head),
    };
    let stall = write.map_or(never, |write| (write + settings.stall_timeout(), CloseReason::Stall));
    let total = request.zip(settings.total_timeout);
    let total = total.map_or(never, |(request, timeout)| (request + timeout, CloseReason::Total));
    [idle, stall, total].into_iter().min_by_key(|(deadline, _)| *deadline).unwrap_or(never)
}

/// No deadline that begins now is earlier than this from now: a connection that checks as often misses none.
pub(super) fn shortest_timeout(settings: &FrontendSettings) -> Duration {
    let FrontendSettings { head_timeout, keep_alive_timeout, write_stall_timeout, total_timeout, .. } =
        settings;
    let shortest = (*head_timeout).min(*keep_alive_timeout).min(*write_stall_timeout);
    total_timeout.map_or(shortest, |total| total.min(shortest)).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests;
