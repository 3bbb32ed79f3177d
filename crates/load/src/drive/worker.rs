//! One thread of a load: it sends what is due and counts what becomes of it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    panic::resume_unwind,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
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
    sync::{Barrier, Notify},
    task::{JoinError, JoinSet},
};

use super::{
    Load, Stop,
    underway::{Ended, Underway},
};
use crate::{
    client::Client,
    plan::{self, Plan},
    sample::Sample,
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
    /// When the present part begins, in nanoseconds, and the number of its first request.
    pub(super) begins: AtomicU64,
    pub(super) first: AtomicU64,
    /// The number of the next request that is measured, and how many there were to warm up.
    pub(super) next: AtomicU64,
    pub(super) warmed: AtomicU64,
    /// The number of the first request of all.
    pub(super) counted_from: u64,
    pub(super) in_flight: AtomicUsize,
    pub(super) in_flight_max: AtomicUsize,
    pub(super) stop: Stop,
}

impl Shared {
    pub(super) fn new(load: &Load, threads: usize, stop: Stop) -> Self {
        Self {
            plan: load.plan.clone(),
            seed: load.seed,
            threads,
            max_in_flight: load.max_in_flight,
            drain: load.drain,
            tells_samples: load.tells_samples,
            barrier: Barrier::new(threads),
            begins: 0.into(),
            first: 0.into(),
            next: load.first.into(),
            warmed: 0.into(),
            counted_from: load.first,
            in_flight: 0.into(),
            in_flight_max: 0.into(),
            stop,
        }
    }
}

/// Requests of the warm-up have numbers from here on: what is measured is the same without them.
pub(super) const WARM_UP: u64 = 1 << 63;

/// What a thread tells.
pub(super) enum Event {
    /// All threads begin at this time; nothing was told before.
    Begins(Time),
    /// What one second came to in this thread.
    Tick(Box<Tick>),
    /// Requests that ended.
    Samples(Vec<Sample>),
    /// It has sent all that it had to; what is left is answers.
    Sent {
        /// When the plan was over.
        at: Time,
        in_flight: usize,
    },
}

/// What one second came to in one thread.
#[derive(Default)]
pub(super) struct Tick {
    /// Which thread.
    pub(super) thread: usize,
    /// Which second since the load began, the warm-up's included.
    pub(super) second: u64,
    /// The thread tells no more of them.
    pub(super) is_last: bool,
    pub(super) measured: Tally,
    pub(super) warmup: Tally,
    pub(super) seconds: BTreeMap<u64, Second>,
    /// How late it came to what it had to send, when there was room for it.
    pub(super) lateness: Histogram,
    /// Its processor time, and in what time, while it was sending.
    pub(super) cpu: Duration,
    pub(super) lasted: Duration,
    pub(super) dropped: u64,
    pub(super) sent_after_end: u64,
    pub(super) opened: u64,
}

/// A part of the plan that is being carried out.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) begins: Time,
    /// For so long it warms up.
    pub(super) warmup: Duration,
    /// The number of its first request.
    pub(super) first: u64,
}

/// So many samples are told at once.
const SAMPLES: usize = 512;
/// From when all threads are ready until the first request is due.
const BEGINS_AFTER: Duration = Duration::from_millis(10);
/// So many connections are made at once before a load begins.
const CONNECTS: usize = 64;

pub(super) struct Worker {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) client: Client,
    pub(super) clock: Precise,
    /// Somebody may be waiting for one request fewer to be under way.
    pub(super) freed: Notify,
    events: SyncSender<Event>,
    tick: RefCell<Tick>,
    samples: RefCell<Vec<Sample>>,
    began: Cell<Time>,
    in_flight: Cell<usize>,
    /// How many parts are over.
    closed: Cell<usize>,
    /// When the last part is over, if anybody knows, and how many requests were under way then.
    ends: Cell<Time>,
    in_flight_at_end: Cell<Option<usize>>,
    /// Its processor time, and the time, when that was last told.
    cpu: Cell<(Duration, Time)>,
    is_sending: Cell<bool>,
}

/// Requests that are under way. A panic of one is one of the thread.
#[derive(Default)]
pub(super) struct Requests(JoinSet<()>);

impl Requests {
    pub(super) fn spawn(&mut self, request: impl Future<Output = impl Sized> + 'static) {
        while let Some(ended) = self.0.try_join_next() {
            unwind(ended);
        }
        self.0.spawn_local(async move {
            request.await;
        });
    }

    async fn all_done(&mut self) {
        while let Some(ended) = self.0.join_next().await {
            unwind(ended);
        }
    }

    async fn abort(mut self) {
        self.0.abort_all();
        self.all_done().await;
    }
}

fn unwind(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
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
            freed: Notify::new(),
            events,
            tick: RefCell::default(),
            samples: RefCell::default(),
            began: Cell::default(),
            in_flight: Cell::default(),
            closed: Cell::default(),
            ends: Cell::new(Time::NEVER),
            in_flight_at_end: Cell::default(),
            cpu: Cell::default(),
            is_sending: Cell::new(true),
        })
    }

    /// From the first connection to the last answer.
    pub(super) async fn run(self: Rc<Self>) {
        let mut requests = Requests::default();
        let mut ticks = JoinSet::new();
        let ended = tokio::select! {
            biased;
            () = self.shared.stop.requested() => None,
            ended = self.send(&mut requests, &mut ticks) => Some(ended),
        };
        let now = self.clock.now();
        let at = ended.unwrap_or(now);
        let in_flight = self.in_flight_at_end.get().unwrap_or(self.in_flight.get());
        self.tell(Event::Sent { at, in_flight });
        self.note_cpu();
        self.is_sending.set(false);
        if ended.is_some() {
            // Who stops it does not want to wait.
            tokio::select! {
                biased;
                () = self.shared.stop.requested() => {}
                _ = before(&self.clock, at + self.shared.drain, requests.all_done()) => {}
            }
        }
        // Each of those left tells that it was cut off.
        requests.abort().await;
        ticks.shutdown().await;
        self.flush((self.clock.now() - self.began.get()).as_secs(), true);
    }

    /// Carries out the plan; when it was over.
    async fn send(self: &Rc<Self>, requests: &mut Requests, ticks: &mut JoinSet<()>) -> Time {
        self.prepare().await;
        let plan = &self.shared.plan;
        let (mut ended, mut left) = (Time::ZERO, plan.most());
        for index in 0..plan.parts().len() {
            let part = self.begin_together(index).await;
            if index == 0 {
                self.began.set(part.begins);
                self.clock.sleep_until(part.begins).await;
                self.cpu.set((thread_cpu(), self.clock.now()));
                ticks.spawn_local(Rc::clone(self).ticks());
            }
            let Some(next) = plan.part(index, left) else { break };
            // A user has a connection alone, in HTTP/2 as well.
            let streams_max = if matches!(&*next, plan::Part::Closed(_)) { 1 } else { usize::MAX };
            self.client.streams_max.set(streams_max);
            ended = match &*next {
                plan::Part::Open(schedule) => {
                    if index + 1 == plan.parts().len() && !schedule.ends_by_chance() {
                        self.ends.set(part.begins + schedule.lasts());
                    }
                    self.open(schedule, part, requests).await
                }
                plan::Part::Closed(closed) => self.closed(closed, part, requests).await,
            };
            self.close(index);
            if left.is_some() {
                // All have to have counted before any looks how much is left.
                self.shared.barrier.wait().await;
                let counted = self.shared.next.load(Relaxed) - self.shared.counted_from;
                left = plan.most().map(|most| most.saturating_sub(counted));
            }
        }
        ended
    }

    /// Opens what users and bursts will need, so that their first requests are like the others.
    async fn prepare(self: &Rc<Self>) {
        let plan = &self.shared.plan;
        let at_once =
            usize::try_from(plan.at_once_max()).unwrap_or(usize::MAX).min(self.shared.max_in_flight);
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
    async fn begin_together(&self, index: usize) -> Part {
        let shared = &self.shared;
        if shared.barrier.wait().await.is_leader() {
            let after = if index == 0 { BEGINS_AFTER } else { Duration::ZERO };
            let begins = self.clock.now() + after;
            shared.begins.store(begins.as_nanos(), Relaxed);
            shared.first.store(shared.next.load(Relaxed), Relaxed);
            if index == 0 {
                self.tell(Event::Begins(begins));
            }
        }
        shared.barrier.wait().await;
        Part {
            index,
            begins: Time::from_nanos(shared.begins.load(Relaxed)),
            warmup: if index == 0 { shared.plan.warmup() } else { Duration::ZERO },
            first: shared.first.load(Relaxed),
        }
    }

    /// The plan is over, though not all is sent: so many were under way then.
    pub(super) fn note_end(&self) {
        if self.clock.now() >= self.ends.get() && self.in_flight_at_end.get().is_none() {
            self.in_flight_at_end.set(Some(self.in_flight.get()));
        }
    }

    /// One that has waited for others is sent now: perhaps when the plan is over.
    pub(super) fn note_waited(&self, now: Time) {
        self.tick.borrow_mut().sent_after_end += u64::from(now >= self.ends.get());
    }

    /// Nobody of this part asks any more.
    pub(super) fn close(&self, part: usize) {
        self.closed.set(part + 1);
    }

    pub(super) fn is_closed(&self, part: usize) -> bool {
        self.closed.get() > part
    }

    pub(super) fn measured_from(&self) -> Time {
        self.began.get() + self.shared.plan.warmup()
    }

    /// This thread's part of what all have together.
    pub(super) fn share_of(&self, all: usize) -> usize {
        all / self.shared.threads + usize::from(self.index < all % self.shared.threads)
    }

    /// How many of this thread's requests are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub(super) fn note_lateness(&self, lateness: Duration) {
        self.tick.borrow_mut().lateness.record(lateness);
    }

    pub(super) fn note_dropped(&self, dropped: u64) {
        self.tick.borrow_mut().dropped += dropped;
    }

    /// One more request is under way, from now on.
    pub(super) fn depart(
        self: &Rc<Self>,
        number: u64,
        scheduled: Time,
    ) -> impl Future<Output = Ended> + 'static {
        self.in_flight.set(self.in_flight.get() + 1);
        let in_flight = self.shared.in_flight.fetch_add(1, Relaxed) + 1;
        self.shared.in_flight_max.fetch_max(in_flight, Relaxed);
        Underway::new(Rc::clone(self), number, scheduled).run()
    }

    /// One fewer is.
    pub(super) fn arrive(&self, sample: Sample) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.shared.in_flight.fetch_sub(1, Relaxed);
        self.record(sample);
        self.freed.notify_one();
    }

    fn record(&self, sample: Sample) {
        let mut tick = self.tick.borrow_mut();
        if sample.number >= WARM_UP {
            tick.warmup.record(&sample);
            return;
        }
        tick.measured.record(&sample);
        if sample.was_sent() {
            tick.seconds.entry(self.second_of(sample.started)).or_default().sent += 1;
        }
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
        (time - self.measured_from()).as_secs()
    }

    /// Tells once a second what that second came to.
    async fn ticks(self: Rc<Self>) {
        for second in 0.. {
            self.clock.sleep_until(self.began.get() + Duration::from_secs(second + 1)).await;
            self.flush(second, false);
        }
    }

    fn flush(&self, second: u64, is_last: bool) {
        self.note_cpu();
        let mut tick = self.tick.take();
        (tick.thread, tick.second, tick.is_last) = (self.index, second, is_last);
        tick.opened = self.client.opened.take();
        tick.measured.retries = self.client.retried.take();
        tick.measured.resent = self.client.resent.take();
        let samples = self.samples.take();
        if !samples.is_empty() {
            self.tell(Event::Samples(samples));
        }
        self.tell(Event::Tick(Box::new(tick)));
    }

    /// How busy it was since this was last asked, if it was sending.
    fn note_cpu(&self) {
        let now = (thread_cpu(), self.clock.now());
        let then = self.cpu.replace(now);
        if self.is_sending.get() {
            let mut tick = self.tick.borrow_mut();
            tick.cpu += now.0.saturating_sub(then.0);
            tick.lasted += now.1 - then.1;
        }
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more: then it does not matter.
        let _ = self.events.send(event);
    }
}

/// What this thread has had of a processor.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
