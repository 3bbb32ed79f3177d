//! An open segment: requests are sent at their due times, whatever became of earlier ones.

use std::{
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use stockade_model::time::{Runtime, Time, before};
use tokio::task::yield_now;

use super::worker::{LoadWorker, RequestTasks, SegmentRun, WARMUP_NUMBERS};
use crate::schedule::Schedule;

/// A request later than this counts as late; every [`LATE_IN_A_ROW_MAX`] late requests the worker yields.
const LATE: Duration = Duration::from_millis(1);
const LATE_IN_A_ROW_MAX: u32 = 32;
/// A gap between requests after which the processor may have entered a sleep state.
const SLEEP_GAP: Duration = Duration::from_millis(1);
/// The time that a processor takes to leave a sleep state, about.
const WAKE_TIME: Duration = Duration::from_micros(80);

static BUSY_WAIT_NANOS: AtomicU64 = AtomicU64::new(0);

/// Time in which the loads of this process have polled the clock until a request was due, summed over their threads. It contains the
/// time of responses that were handled meanwhile.
pub fn busy_wait() -> Duration {
    Duration::from_nanos(BUSY_WAIT_NANOS.load(Relaxed))
}

impl LoadWorker {
    /// Sends this thread's requests of a schedule; returns when the segment is over.
    pub(super) async fn run_schedule(
        self: &Rc<Self>,
        schedule: &Schedule,
        segment: SegmentRun,
        tasks: &mut RequestTasks,
    ) -> Time {
        let in_flight_max = self.share_of(self.context.max_in_flight);
        let end = segment.start + schedule.duration();
        let drain_end = end + self.context.drain;
        let (mut late_in_a_row, mut last) = (0, LastSent::default());
        let mut requests = self.requests_of(schedule, segment);
        let (mut measured, mut has_given_up) = (0, false);
        'sending: for ScheduledRequest { number, due } in requests.by_ref() {
            let is_measured = number < WARMUP_NUMBERS;
            measured += u64::from(is_measured);
            let scheduled = segment.start + due;
            self.sleep_until(scheduled, last.due.map_or(due, |last| due.saturating_sub(last))).await;
            let mut now = self.clock.now();
            late_in_a_row = if now > scheduled + LATE { late_in_a_row + 1 } else { 0 };
            if late_in_a_row == LATE_IN_A_ROW_MAX {
                late_in_a_row = 0;
                yield_now().await;
                now = self.clock.now();
            }
            // Requests of a burst are due together: each can be sent when the previous one is.
            let mut ready = if last.due == Some(due) { last.at } else { scheduled };
            let has_waited = self.in_flight() >= in_flight_max;
            while self.in_flight() >= in_flight_max {
                let until = if now < end { end } else { drain_end };
                let _ = before(&self.clock, until, self.request_ended.notified()).await;
                now = self.clock.now();
                ready = now;
                if now >= end {
                    self.note_plan_end();
                }
                if now >= drain_end && self.in_flight() >= in_flight_max {
                    has_given_up = true;
                    break 'sending;
                }
            }
            self.context.may_send_next().await;
            if has_waited {
                self.note_waited(now);
            }
            if is_measured {
                self.note_lateness(now, now - ready);
            }
            tasks.spawn(self.start_request(number, scheduled));
            last = LastSent { due: Some(due), at: now };
        }
        let mut unsent = u64::from(has_given_up);
        for ScheduledRequest { number, .. } in requests {
            unsent += 1;
            measured += u64::from(number < WARMUP_NUMBERS);
        }
        self.note_dropped(self.clock.now(), unsent);
        self.context.next_own.fetch_add(measured, Relaxed);
        if schedule.ends_by_chance() {
            return last.due.map_or(segment.start, |due| segment.start + due);
        }
        self.clock.sleep_until(end).await;
        end
    }

    /// This thread's requests of a schedule, in the order of their due times.
    fn requests_of<'a>(
        &self,
        schedule: &'a Schedule,
        segment: SegmentRun,
    ) -> impl Iterator<Item = ScheduledRequest> + use<'a> {
        let (share, threads, seed) = (self.context.share, self.context.threads, self.context.seed);
        let warmup = schedule.warmup_arrivals(seed);
        let index = self.index as u64;
        let own = move || (index..).step_by(threads);
        let mut due_times = schedule.due_times(seed);
        let mut passed = 0;
        let warmup_requests = own().map(move |own| (share.number(own), WARMUP_NUMBERS + share.number(own)));
        let measured =
            own().map(move |own| (warmup + share.number(own), share.number(segment.first_own + own)));
        let requests = warmup_requests.take_while(move |(n, _)| *n < warmup).chain(measured);
        requests.map_while(move |(n, number)| {
            let skipped = usize::try_from(n - passed).unwrap_or(usize::MAX);
            passed = n + 1;
            Some(ScheduledRequest { number, due: due_times.nth(skipped)? })
        })
    }

    /// Sleeps until `then`. After a long `gap` the processor wakes late: the sleep ends early, and the rest is spent
    /// polling the clock, which is exact to a few microseconds.
    async fn sleep_until(&self, then: Time, gap: Duration) {
        if gap < SLEEP_GAP {
            return self.clock.sleep_until(then).await;
        }
        self.clock.sleep_until(then.back(WAKE_TIME)).await;
        let from = self.clock.now();
        let mut now = from;
        while now < then {
            yield_now().await;
            now = self.clock.now();
        }
        BUSY_WAIT_NANOS.fetch_add(u64::try_from((now - from).as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// A request of a schedule, and its due time since the start of the segment.
struct ScheduledRequest {
    number: u64,
    due: Duration,
}

#[derive(Clone, Copy, Default)]
struct LastSent {
    due: Option<Duration>,
    at: Time,
}
