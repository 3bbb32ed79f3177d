//! A closed segment: each connection sends a request, waits for the response, pauses, and repeats.

use std::{cell::Cell, rc::Rc, sync::atomic::Ordering::Relaxed, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::Notify;

use super::worker::{LoadWorker, RequestTasks, SegmentRun, WARMUP_NUMBERS};
use crate::plan::ClosedLoop;

/// The pause after a connection that could not be opened.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// The state that this thread's connections share.
struct ConnectionGroup {
    closed: ClosedLoop,
    segment: SegmentRun,
    end: Time,
    /// The first own number beyond the limit on requests.
    own_end: u64,
    active: Cell<usize>,
    /// A connection has stopped.
    stopped: Notify,
}

/// Counts one active connection until it is dropped.
struct ActiveConnection(Rc<ConnectionGroup>);

impl Drop for ActiveConnection {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
        self.0.stopped.notify_one();
    }
}

impl LoadWorker {
    /// Runs this thread's connections; returns when the segment is over. Requests in flight then stay in flight.
    pub(super) async fn run_closed_loop(
        self: &Rc<Self>,
        closed: &ClosedLoop,
        segment: SegmentRun,
        tasks: &mut RequestTasks,
    ) -> Time {
        let share = &self.context.share;
        let connections = self.share_of(share.part_of(closed.connections));
        let duration = closed.end.duration().map(|duration| segment.warmup.saturating_add(duration));
        let requests = closed.end.requests();
        let group = Rc::new(ConnectionGroup {
            closed: closed.clone(),
            segment,
            end: duration.map_or(Time::NEVER, |duration| segment.start + duration),
            own_end: requests
                .map_or(u64::MAX, |requests| segment.first_own.saturating_add(share.below(requests))),
            active: Cell::new(connections),
            stopped: Notify::new(),
        });
        self.clock.sleep_until(segment.start).await;
        for index in 0..connections {
            let (worker, active) = (Rc::clone(self), ActiveConnection(Rc::clone(&group)));
            tasks.spawn(async move { worker.run_connection(index, &active.0).await });
        }
        let all_stopped = async {
            while group.active.get() > 0 {
                group.stopped.notified().await;
            }
        };
        let _ = before(&self.clock, group.end, all_stopped).await;
        self.stop_segment(group.segment.index);
        // Connections that found the limit reached have counted beyond it.
        self.context.next_own.fetch_min(group.own_end, Relaxed);
        self.clock.now().min(group.end)
    }

    async fn run_connection(self: &Rc<Self>, index: usize, group: &ConnectionGroup) {
        let ConnectionGroup { closed, segment, end, own_end, .. } = group;
        let share = &self.context.share;
        let connection = share.number((index * self.context.threads + self.index) as u64);
        let mut think_rng = self.context.seed.child("think").nth(connection);
        let thinks = closed.think_time.constant() != Some(Duration::ZERO);
        let mut scheduled = segment.start;
        loop {
            if thinks {
                scheduled = scheduled + closed.think_time.draw(&mut think_rng);
                if scheduled < *end {
                    self.clock.sleep_until(scheduled).await;
                    if scheduled >= self.measured_from() {
                        let now = self.clock.now();
                        self.note_lateness(now, now - scheduled);
                    }
                }
            }
            if scheduled >= *end || self.is_segment_stopped(segment.index) {
                return;
            }
            self.context.may_send_next().await;
            let number = if scheduled < self.measured_from() {
                WARMUP_NUMBERS + share.number(self.context.next_warmup.fetch_add(1, Relaxed))
            } else {
                let own = self.context.next_own.fetch_add(1, Relaxed);
                if own >= *own_end {
                    return;
                }
                share.number(own)
            };
            let request = self.start_request(number, scheduled).await;
            scheduled = request.at;
            if !request.was_sent {
                scheduled = scheduled + RECONNECT_PAUSE;
                self.clock.sleep_until(scheduled.min(*end)).await;
            }
        }
    }
}
