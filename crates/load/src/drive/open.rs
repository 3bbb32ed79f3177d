//! An open part: requests are sent when they are due, however the others fare.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::task::yield_now;

use super::worker::{Part, Requests, WARM_UP, Worker};
use crate::schedule::Schedule;

/// Who is so late gives the others their turn at times.
const LATE: Duration = Duration::from_millis(1);
/// Requests that are so far apart leave the processor time to fall asleep,
const RARELY: Duration = Duration::from_millis(1);
/// from which it takes about so long to wake.
const EARLY: Duration = Duration::from_micros(80);
/// So many late requests are sent before anything else has its turn.
const IN_A_ROW: u32 = 32;

impl Worker {
    /// Sends this thread's requests; tells when the part is over.
    pub(super) async fn open(
        self: &Rc<Self>,
        schedule: &Schedule,
        part: Part,
        requests: &mut Requests,
    ) -> Time {
        let (threads, most) = (self.shared.threads as u64, self.share_of(self.shared.max_in_flight));
        let ends = part.begins + schedule.lasts();
        let gives_up = ends + self.shared.drain;
        let warmup = schedule.warmup_arrivals(self.shared.seed);
        let number = |n: u64| if n < warmup { WARM_UP + n } else { part.first + n - warmup };
        let mut arrivals = schedule.arrivals(self.shared.seed).skip(self.index).step_by(self.shared.threads);
        let (mut n, mut in_a_row, mut last) = (self.index as u64, 0, Sent::default());
        let mut gave_up = false;
        'sending: for due in arrivals.by_ref() {
            let scheduled = part.begins + due;
            self.sleep_until(scheduled, last.due.map_or(due, |last| due.saturating_sub(last))).await;
            let mut now = self.clock.now();
            in_a_row = if now > scheduled + LATE { in_a_row + 1 } else { 0 };
            if in_a_row == IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
                now = self.clock.now();
            }
            // Those of a burst are due together, and sent one after the other.
            let mut ready = if last.due == Some(due) { last.at } else { scheduled };
            let has_waited = self.in_flight() >= most;
            while self.in_flight() >= most {
                let until = if now < ends { ends } else { gives_up };
                let _ = before(&self.clock, until, self.freed.notified()).await;
                now = self.clock.now();
                ready = now;
                if now >= ends {
                    self.note_end();
                }
                if now >= gives_up && self.in_flight() >= most {
                    gave_up = true;
                    break 'sending;
                }
            }
            if has_waited {
                self.note_waited(now);
            }
            if n >= warmup {
                self.note_lateness(now - ready);
            }
            requests.spawn(self.depart(number(n), scheduled));
            last = Sent { due: Some(due), at: now };
            n += threads;
        }
        let sent = (n - self.index as u64) / threads;
        let unsent = u64::from(gave_up) + arrivals.count() as u64;
        self.note_dropped(unsent);
        let all = sent + unsent;
        let of_warmup = warmup.saturating_sub(self.index as u64).div_ceil(threads).min(all);
        self.shared.next.fetch_add(all - of_warmup, Relaxed);
        if schedule.ends_by_chance() {
            return last.due.map_or(part.begins, |due| part.begins + due);
        }
        self.clock.sleep_until(ends).await;
        ends
    }

    /// Until then, to a few microseconds where there is time for it: who has slept for long wakes late, so it wakes
    /// earlier and looks at the clock.
    async fn sleep_until(&self, then: Time, after: Duration) {
        if after < RARELY {
            return self.clock.sleep_until(then).await;
        }
        self.clock.sleep_until(then.back(EARLY)).await;
        while self.clock.now() < then {
            yield_now().await;
        }
    }
}

/// What was sent last.
#[derive(Clone, Copy, Default)]
struct Sent {
    due: Option<Duration>,
    at: Time,
}
