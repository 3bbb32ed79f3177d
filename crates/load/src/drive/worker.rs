//! One thread of a load: it sends what is due and counts what becomes of it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::SyncSender,
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use stockade_model::{
    histogram::Histogram,
    seed::Seed,
    time::{Precise, Runtime, Time, before},
};
use tokio::{
    sync::{Barrier, Notify, watch},
    task::{JoinSet, yield_now},
};

use crate::{
    client::{Client, Started},
    plan::{Closed, Part, Plan},
    sample::{Answer, Class, Failure, Sample},
    schedule::Schedule,
    summary::Second,
    tally::Tally,
};

/// What the threads of a load share.
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) seed: Seed,
    pub(super) threads: usize,
    pub(super) max_in_flight: usize,
    pub(super) drain: Duration,
    pub(super) tells_samples: bool,
    /// Where they wait for each other.
    pub(super) barrier: Barrier,
    /// When the present phase begins, in nanoseconds.
    pub(super) begins: AtomicU64,
    /// The number of the next request.
    pub(super) next: AtomicU64,
    pub(super) stop: watch::Receiver<bool>,
}

/// What a thread tells.
pub(super) enum Event {
    /// All threads begin at this time; nothing was told before.
    Begins(Time),
    /// What one second came to in this thread.
    Tick(Box<Tick>),
    /// Requests that ended.
    Samples(Vec<Sample>),
    /// It has sent all that it had to; what is left is answers.
    Sent(Sent),
}

/// What one second came to in one thread.
#[derive(Default)]
pub(super) struct Tick {
    /// Which thread.
    pub(super) thread: usize,
    /// Which second since the load began, the warm-up's included.
    pub(super) second: u64,
    pub(super) measured: Tally,
    pub(super) warmup: Tally,
    pub(super) seconds: BTreeMap<u64, Second>,
    /// How late it came to what it had to send, when there was room for it.
    pub(super) lateness: Histogram,
    /// Its processor time.
    pub(super) cpu: Duration,
    pub(super) dropped: u64,
    pub(super) in_flight_max: u64,
    pub(super) opened: u64,
}

/// The end of a thread's sending.
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) in_flight: u64,
}

/// So many samples are told at once.
const SAMPLES: usize = 512;
/// From when all threads are ready until the first request is due.
const BEGINS_AFTER: Duration = Duration::from_millis(10);
/// So many late requests are sent before anything else has its turn.
const IN_A_ROW: u32 = 32;
/// So many connections are made at once before a load begins.
const CONNECTS: usize = 64;
/// A user whose connection fails waits so long before the next.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

pub(super) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    client: Client,
    clock: Precise,
    events: SyncSender<Event>,
    tick: RefCell<Tick>,
    samples: RefCell<Vec<Sample>>,
    measured_from: Cell<Time>,
    began: Cell<Time>,
    in_flight: Cell<usize>,
    /// Somebody may be waiting for one request fewer to be under way.
    freed: Notify,
    cpu: Cell<Duration>,
}

/// A request that is under way: counted as cut off if nobody says how it ended.
struct Underway {
    worker: Rc<Worker>,
    number: u64,
    scheduled: Time,
    started: Started,
    bytes_out: u64,
    has_ended: bool,
}

/// A request that has ended.
struct Ended {
    at: Time,
    /// It came as far as a connection.
    was_sent: bool,
}

impl Worker {
    pub(super) fn new(
        index: usize,
        shared: Arc<Shared>,
        client: Client,
        events: SyncSender<Event>,
    ) -> Rc<Self> {
        let clock = client.clock().clone();
        Rc::new(Self {
            index,
            shared,
            client,
            clock,
            events,
            tick: RefCell::default(),
            samples: RefCell::default(),
            measured_from: Cell::new(Time::NEVER),
            began: Cell::new(Time::ZERO),
            in_flight: Cell::new(0),
            freed: Notify::new(),
            cpu: Cell::new(Duration::ZERO),
        })
    }

    /// From the first connection to the last answer.
    pub(super) async fn run(self: Rc<Self>) {
        let mut stop = self.shared.stop.clone();
        let mut requests = JoinSet::new();
        let sending = async {
            self.prepare().await;
            let (mut begins, mut next) = self.begin_together(true).await;
            let began = begins;
            self.began.set(began);
            self.measured_from.set(began + self.shared.plan.warmup());
            self.cpu.set(thread_cpu());
            let ticking = Rc::clone(&self);
            let mut ticks = JoinSet::new();
            ticks.spawn_local(ticking.ticks());
            let plan = &self.shared.plan;
            let mut left = plan.most();
            for index in 0..plan.parts().len() {
                if index > 0 {
                    let before = next;
                    (begins, next) = self.begin_together(false).await;
                    left = left.map(|left| left.saturating_sub(plan.measured_of(index - 1, next - before)));
                }
                let Some(part) = plan.part(index, left) else { break };
                match &*part {
                    Part::Open(schedule) => self.open(schedule, begins, next, &mut requests).await,
                    Part::Closed(closed) => self.closed(closed, begins, next, &mut requests).await,
                }
            }
            ticks
        };
        let ticks = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => None,
            ticks = sending => Some(ticks),
        };
        let at = self.clock.now();
        self.tell(Event::Sent(Sent { at, in_flight: self.in_flight.get() as u64 }));
        let drained = async { while requests.join_next().await.is_some() {} };
        // Who stops does not want to wait.
        let drain = if ticks.is_some() { self.shared.drain } else { Duration::ZERO };
        let _ = before(&self.clock, at + drain, drained).await;
        // Each of those left tells that it was cut off.
        requests.shutdown().await;
        drop(ticks);
        self.flush((self.clock.now() - self.began.get()).as_secs());
    }

    /// Opens what users and bursts will need, so that their first requests are like the others.
    async fn prepare(self: &Rc<Self>) {
        let plan = &self.shared.plan;
        let at_once =
            usize::try_from(plan.at_once_max()).unwrap_or(usize::MAX).min(self.shared.max_in_flight);
        // A user has a connection alone, in HTTP/2 as well.
        self.client.streams_max.set(if plan.connections_max() > 0 { 1 } else { usize::MAX });
        let most = plan.connections_max().max(at_once);
        let numbers: Vec<u64> = (self.index..most).step_by(self.shared.threads).map(|n| n as u64).collect();
        for some in numbers.chunks(CONNECTS) {
            let mut connecting = JoinSet::new();
            for number in some {
                let (worker, number) = (Rc::clone(self), *number);
                connecting.spawn_local(async move { worker.client.open_for(number).await });
            }
            // Where one fails the others will: that is for the requests to tell.
            if connecting.join_all().await.contains(&false) {
                return;
            }
        }
    }

    /// Waits for the other threads; they begin at the same time, and count from the same number.
    async fn begin_together(&self, is_first: bool) -> (Time, u64) {
        let after = if is_first { BEGINS_AFTER } else { Duration::ZERO };
        if self.shared.barrier.wait().await.is_leader() {
            let begins = self.clock.now() + after;
            self.shared.begins.store(begins.as_nanos(), Relaxed);
            if is_first {
                self.tell(Event::Begins(begins));
            }
        }
        // Nobody counts on before all have seen where the count begins.
        let next = self.shared.next.load(Relaxed);
        self.shared.barrier.wait().await;
        (Time::from_nanos(self.shared.begins.load(Relaxed)), next)
    }

    /// Sends every request when it is due, however the others fare.
    async fn open(
        self: &Rc<Self>,
        schedule: &Schedule,
        begins: Time,
        first: u64,
        requests: &mut JoinSet<()>,
    ) {
        let (threads, most) = (self.shared.threads, self.share_of(self.shared.max_in_flight));
        let ends = begins + schedule.lasts();
        let mut number = first + self.index as u64;
        let mut arrivals = schedule.arrivals(self.shared.seed).skip(self.index).step_by(threads);
        let mut in_a_row = 0;
        for due in arrivals.by_ref() {
            let scheduled = begins + due;
            self.clock.sleep_until(scheduled).await;
            let mut now = self.clock.now();
            in_a_row = if now > scheduled + Duration::from_millis(1) { in_a_row + 1 } else { 0 };
            if in_a_row == IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
                now = self.clock.now();
            }
            let mut ready = scheduled;
            while self.in_flight.get() >= most {
                self.freed.notified().await;
                now = self.clock.now();
                ready = now;
            }
            if now >= ends + self.shared.drain {
                self.tick.borrow_mut().dropped += 1;
                number += threads as u64;
                break;
            }
            self.tick.borrow_mut().lateness.record(now - ready);
            let underway = self.depart(number, scheduled);
            requests.spawn_local(async {
                underway.run().await;
            });
            number += threads as u64;
            while requests.try_join_next().is_some() {}
        }
        let unsent = arrivals.count() as u64;
        self.tick.borrow_mut().dropped += unsent;
        self.shared.next.fetch_max(number + unsent * threads as u64, Relaxed);
        if !schedule.ends_by_chance() {
            self.clock.sleep_until(ends).await;
        }
    }

    /// Users who ask, wait for the answer, think, and ask again.
    async fn closed(self: &Rc<Self>, closed: &Closed, begins: Time, first: u64, requests: &mut JoinSet<()>) {
        let users = self.share_of(closed.connections);
        let ends = closed.until.duration().map_or(Time::NEVER, |duration| begins + duration);
        let last = closed.until.requests().map_or(u64::MAX, |requests| first.saturating_add(requests));
        self.clock.sleep_until(begins).await;
        let done = Rc::new(Notify::new());
        let asking = Rc::new(Cell::new(users));
        for user in 0..users {
            let (worker, closed) = (Rc::clone(self), closed.clone());
            let (done, asking) = (Rc::clone(&done), Rc::clone(&asking));
            requests.spawn_local(async move {
                worker.user(user, &closed, begins, ends, last).await;
                asking.set(asking.get() - 1);
                if asking.get() == 0 {
                    done.notify_one();
                }
            });
        }
        // By time: those who are waiting for an answer then are left to the drain.
        let all_done = async {
            while asking.get() > 0 {
                done.notified().await;
            }
        };
        let _ = before(&self.clock, ends, all_done).await;
        // Those who came too late have counted on.
        self.shared.next.fetch_min(last, Relaxed);
    }

    async fn user(self: &Rc<Self>, user: usize, closed: &Closed, begins: Time, ends: Time, last: u64) {
        let mut thoughts =
            self.shared.seed.child("think").nth((user * self.shared.threads + self.index) as u64);
        let thinks = closed.think.constant() != Some(Duration::ZERO);
        let mut scheduled = begins;
        loop {
            if thinks {
                scheduled = scheduled + closed.think.draw(&mut thoughts);
            }
            if scheduled >= ends {
                return;
            }
            if thinks {
                self.clock.sleep_until(scheduled).await;
            }
            let number = self.shared.next.fetch_add(1, Relaxed);
            if number >= last {
                return;
            }
            let underway = self.depart(number, scheduled);
            let ended = underway.run().await;
            scheduled = ended.at;
            if !ended.was_sent {
                scheduled = scheduled + AFTER_FAILURE;
                self.clock.sleep_until(scheduled.min(ends)).await;
            }
        }
    }

    fn depart(self: &Rc<Self>, number: u64, scheduled: Time) -> Underway {
        let in_flight = self.in_flight.get() + 1;
        self.in_flight.set(in_flight);
        let mut tick = self.tick.borrow_mut();
        tick.in_flight_max = tick.in_flight_max.max(in_flight as u64);
        Underway {
            worker: Rc::clone(self),
            number,
            scheduled,
            started: Cell::new(None),
            bytes_out: 0,
            has_ended: false,
        }
    }

    /// This thread's part of what all have together.
    fn share_of(&self, all: usize) -> usize {
        all / self.shared.threads + usize::from(self.index < all % self.shared.threads)
    }

    fn record(&self, sample: Sample) {
        let mut tick = self.tick.borrow_mut();
        if sample.scheduled < self.measured_from.get() {
            tick.warmup.record(&sample);
            return;
        }
        tick.measured.record(&sample);
        tick.seconds.entry(self.second_of(sample.started)).or_default().sent += 1;
        let second = tick.seconds.entry(self.second_of(sample.finished)).or_default();
        second.finished += 1;
        second.failed += u64::from(sample.ended.is_err());
        drop(tick);
        if self.shared.tells_samples {
            let mut samples = self.samples.borrow_mut();
            samples.push(sample);
            if samples.len() >= SAMPLES {
                let told = std::mem::replace(&mut *samples, Vec::with_capacity(SAMPLES));
                self.tell(Event::Samples(told));
            }
        }
    }

    /// Seconds of the measured part.
    fn second_of(&self, time: Time) -> u64 {
        (time - self.measured_from.get()).as_secs()
    }

    /// Tells once a second what that second came to.
    async fn ticks(self: Rc<Self>) {
        for second in 0.. {
            self.clock.sleep_until(self.began.get() + Duration::from_secs(second + 1)).await;
            self.flush(second);
        }
    }

    fn flush(&self, second: u64) {
        let mut tick = self.tick.take();
        let cpu = thread_cpu();
        (tick.thread, tick.second) = (self.index, second);
        tick.cpu = cpu.saturating_sub(self.cpu.replace(cpu));
        tick.opened = self.client.opened.take();
        tick.measured.retries = self.client.retried.take();
        let samples = self.samples.take();
        if !samples.is_empty() {
            self.tell(Event::Samples(samples));
        }
        self.tell(Event::Tick(Box::new(tick)));
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more: then it does not matter.
        let _ = self.events.send(event);
    }
}

impl Underway {
    async fn run(mut self) -> Ended {
        let worker = Rc::clone(&self.worker);
        let asked = worker.client.asked(self.number);
        self.bytes_out = asked.target.body.len() as u64;
        let ended = worker.client.ask(&asked, &self.started).await;
        let at = self.end(ended);
        Ended { at, was_sent: self.started.get().is_some() }
    }

    fn end(&mut self, ended: Result<Answer, Failure>) -> Time {
        let finished = self.worker.clock.now();
        self.has_ended = true;
        let sample = Sample {
            number: self.number,
            scheduled: self.scheduled,
            started: self.started.get().unwrap_or(finished),
            finished,
            bytes_out: self.bytes_out,
            ended,
        };
        self.worker.record(sample);
        self.worker.in_flight.set(self.worker.in_flight.get() - 1);
        self.worker.freed.notify_one();
        finished
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(Class::CutOff.into()));
        }
    }
}

/// What this thread has had of a processor.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
