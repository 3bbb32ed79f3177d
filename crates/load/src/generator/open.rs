//! An open segment: requests are sent at their due times, whatever became of earlier ones.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_model::time::{Runtime, Time, before};
use tokio::task::yield_now;

use super::{
    Control, Share, ShareMove,
    worker::{LoadContext, LoadWorker, RequestTasks, SegmentRun, WARMUP_NUMBERS},
};
use crate::schedule::{DueTimes, Schedule};

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
        // When the last request that waited for others could be sent.
        let mut held_until = Time::ZERO;
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
            // A request that was due while an earlier one waited has waited, too.
            let mut has_waited = scheduled < held_until;
            let mut ready = if has_waited || last.due == Some(due) { last.at } else { scheduled };
            while self.in_flight() >= in_flight_max {
                let until = if now < end { end } else { drain_end };
                let _ = before(&self.clock, until, self.request_ended.notified()).await;
                now = self.clock.now();
                (ready, held_until, has_waited) = (now, now, true);
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
                self.note_held_back(now);
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

    fn requests_of<'a>(&self, schedule: &'a Schedule, segment: SegmentRun) -> OwnRequests<'a> {
        let LoadContext { share, threads, seed, control, first_request, .. } = &*self.context;
        OwnRequests {
            due_times: schedule.due_times(*seed),
            passed: 0,
            warmup: schedule.warmup_arrivals(*seed),
            share: share.clone(),
            control: control.clone(),
            moves: 0,
            first_own: segment.first_own,
            first_request: *first_request,
            index: self.index as u64,
            threads: *threads as u64,
            is_warmup: true,
            own: self.index as u64,
        }
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

/// The requests of one thread of a generator in a schedule, in the order of their due times.
struct OwnRequests<'a> {
    due_times: DueTimes<'a>,
    /// Due times that were passed.
    passed: u64,
    /// The requests of the warm-up, which come first.
    warmup: u64,
    share: Share,
    control: Option<Arc<dyn Control>>,
    /// The moves of the share that were followed.
    moves: usize,
    /// The own number of the first measured request, by the first share.
    first_own: u64,
    /// The number of the first measured request of the load.
    first_request: u64,
    index: u64,
    threads: u64,
    is_warmup: bool,
    /// The own number of the next request, in the warm-up or in the measured part.
    own: u64,
}

impl OwnRequests<'_> {
    /// Takes the next request: its place in the schedule and its number.
    fn take_next(&mut self) -> (u64, u64) {
        loop {
            let before = if self.is_warmup { 0 } else { self.warmup };
            let place = before + self.share.number(self.own);
            // The end of the warm-up is a place of each thread: a move within it may give the thread other requests of it.
            let asked = if self.is_warmup { place.min(self.warmup) } else { place };
            let next_move = self.control.as_ref().and_then(|control| control.next_move(self.moves, asked));
            if let Some(ShareMove { from, share }) = next_move {
                self.moves += 1;
                self.own = share.below(from.saturating_sub(before)) + self.index;
                self.share = share;
            } else if self.is_warmup && place >= self.warmup {
                (self.is_warmup, self.own) = (false, self.index);
            } else {
                let number = match (self.is_warmup, self.moves) {
                    (true, _) => WARMUP_NUMBERS + place,
                    (false, 0) => self.share.number(self.first_own + self.own),
                    (false, _) => self.first_request + place - self.warmup,
                };
                self.own += self.threads;
                return (place, number);
            }
        }
    }
}

impl Iterator for OwnRequests<'_> {
    type Item = ScheduledRequest;

    fn next(&mut self) -> Option<ScheduledRequest> {
        let (place, number) = self.take_next();
        let skipped = usize::try_from(place - self.passed).unwrap_or(usize::MAX);
        self.passed = place + 1;
        Some(ScheduledRequest { number, due: self.due_times.nth(skipped)? })
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
