//! A closed part: users who ask, wait for the answer, think, and ask again.

use std::{cell::Cell, rc::Rc, sync::atomic::Ordering::Relaxed, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::Notify;

use super::worker::{Part, Requests, WARM_UP, Worker};
use crate::plan::Closed;

/// A user whose connection fails waits so long before the next.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// What the users of a part share.
struct Users {
    closed: Closed,
    part: Part,
    ends: Time,
    /// No request has this number.
    last: u64,
    asking: Cell<usize>,
    all_done: Notify,
}

/// A user who is asking, until that is dropped.
struct Asking(Rc<Users>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.set(self.0.asking.get() - 1);
        self.0.all_done.notify_one();
    }
}

impl Worker {
    /// Lets this thread's users ask; tells when the part is over. Who is waiting for an answer then is left to wait.
    pub(super) async fn closed(
        self: &Rc<Self>,
        closed: &Closed,
        part: Part,
        requests: &mut Requests,
    ) -> Time {
        let asking = self.share_of(closed.connections);
        let until = closed.until.duration().map(|lasts| part.warmup.saturating_add(lasts));
        let users = Rc::new(Users {
            closed: closed.clone(),
            part,
            ends: until.map_or(Time::NEVER, |lasts| part.begins + lasts),
            last: closed.until.requests().map_or(u64::MAX, |requests| part.first.saturating_add(requests)),
            asking: Cell::new(asking),
            all_done: Notify::new(),
        });
        self.clock.sleep_until(part.begins).await;
        for user in 0..asking {
            let (worker, asking) = (Rc::clone(self), Asking(Rc::clone(&users)));
            requests.spawn(async move { worker.ask_and_ask(user, &asking.0).await });
        }
        let all_done = async {
            while users.asking.get() > 0 {
                users.all_done.notified().await;
            }
        };
        let _ = before(&self.clock, users.ends, all_done).await;
        self.close(users.part.index);
        // Those who came too late have counted on.
        self.shared.next.fetch_min(users.last, Relaxed);
        self.clock.now().min(users.ends)
    }

    async fn ask_and_ask(self: &Rc<Self>, user: usize, users: &Users) {
        let Users { closed, part, ends, last, .. } = users;
        let who = (user * self.shared.threads + self.index) as u64;
        let mut thoughts = self.shared.seed.child("think").nth(who);
        let thinks = closed.think.constant() != Some(Duration::ZERO);
        let mut scheduled = part.begins;
        loop {
            if thinks {
                scheduled = scheduled + closed.think.draw(&mut thoughts);
                if scheduled < *ends {
                    self.clock.sleep_until(scheduled).await;
                    if scheduled >= self.measured_from() {
                        self.note_lateness(self.clock.now() - scheduled);
                    }
                }
            }
            if scheduled >= *ends || self.is_closed(part.index) {
                return;
            }
            let number = if scheduled < self.measured_from() {
                WARM_UP + self.shared.warmed.fetch_add(1, Relaxed)
            } else {
                self.shared.next.fetch_add(1, Relaxed)
            };
            if (*last..WARM_UP).contains(&number) {
                return;
            }
            let ended = self.depart(number, scheduled).await;
            scheduled = ended.at;
            if !ended.was_sent {
                scheduled = scheduled + AFTER_FAILURE;
                self.clock.sleep_until(scheduled.min(*ends)).await;
            }
        }
    }
}
