//! One thread of a load: it sends its requests and tallies their samples.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::BTreeMap,
    future::{Future, pending},
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
    seed::Seed,
    time::{Precise, Runtime, Time, before},
};
use stockade_record::histogram::Histogram;
use tokio::{
    sync::{Barrier, Notify},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::{
    Control, LoadTest, Share,
    in_flight::{InFlightRequest, RequestEnd},
    seconds::GeneratorSecond,
};
use crate::{
    client::ThreadClient,
    plan::{self, ClosedLoop, EndCondition, Plan},
    sample::{Response, Sample},
    tally::Tally,
};

/// The state that the workers of a load share.
pub(super) struct LoadContext {
    pub(super) plan: Plan,
    pub(super) seed: Seed,
    pub(super) threads: usize,
    pub(super) share: Share,
    /// Of this generator.
    pub(super) max_in_flight: usize,
    pub(super) drain: Duration,
    pub(super) sends_samples: bool,
    /// Synchronizes the start and the end of segments.
    pub(super) barrier: Barrier,
    /// The start of the current segment, in nanoseconds of the clock.
    pub(super) segment_start_ns: AtomicU64,
    /// The own number of the first request of the current segment.
    pub(super) segment_first_own: AtomicU64,
    /// The own number of the next measured request.
    pub(super) next_own: AtomicU64,
    /// The own number of the next request of a closed warm-up.
    pub(super) next_warmup: AtomicU64,
    /// The own number of the first request of the load.
    pub(super) first_own: u64,
    /// The number of the first request of the load.
    pub(super) first_request: u64,
    pub(super) in_flight: AtomicUsize,
    pub(super) in_flight_max: AtomicUsize,
    pub(super) control: Option<Arc<dyn Control>>,
    pub(super) cancel: CancellationToken,
}

impl LoadContext {
    pub(super) fn new(
        load: &LoadTest,
        threads: usize,
        control: Option<Arc<dyn Control>>,
        cancel: CancellationToken,
    ) -> Self {
        let first_own = load.share.below(load.first_request);
        Self {
            plan: load.plan.clone(),
            seed: load.seed,
            threads,
            share: load.share.clone(),
            max_in_flight: load.own_in_flight_max(),
            drain: load.drain,
            sends_samples: load.observes_samples,
            barrier: Barrier::new(threads),
            segment_start_ns: 0.into(),
            segment_first_own: 0.into(),
            next_own: first_own.into(),
            next_warmup: 0.into(),
            first_own,
            first_request: load.first_request,
            in_flight: 0.into(),
            in_flight_max: 0.into(),
            control,
            cancel,
        }
    }

    /// False: no request may be sent any more.
    pub(super) fn may_send(&self) -> bool {
        self.control.as_ref().is_none_or(|control| control.may_send())
    }

    /// Called before each request. If no request may be sent any more, it cancels the load, and does not return.
    pub(super) async fn may_send_next(&self) {
        if !self.may_send() {
            self.cancel.cancel();
            pending::<()>().await;
        }
    }

    /// The bound on requests for the next segment, after this generator has sent `sent` of a load with a bound of `max`.
    fn requests_left(&self, max: u64, sent: u64) -> u64 {
        let own_left = self.share.below(max).saturating_sub(sent);
        if own_left == 0 { 0 } else { self.share.number(own_left) }
    }
}

/// The numbers of warm-up requests start here: measured requests are the same with and without a warm-up.
pub(super) const WARMUP_NUMBERS: u64 = 1 << 63;

/// A message of a worker to the collector.
pub(super) enum WorkerEvent {
    /// The start of the load in all threads; the first event.
    Start(Time),
    /// A second is complete, with or without requests. In order, without gaps.
    Second(Box<WorkerSecond>),
    /// The rest of a worker's counts, without requests; its last event.
    End(Box<WorkerSecond>),
    Samples(Vec<Sample>),
    /// The worker has sent its last request.
    AllSent {
        /// The end of the plan.
        plan_end: Time,
        in_flight: usize,
    },
}

/// One second of one worker.
#[derive(Default)]
pub(super) struct WorkerSecond {
    /// The index of the worker.
    pub(super) thread: usize,
    pub(super) counts: GeneratorSecond,
    /// How late the worker was with requests that were free to be sent.
    pub(super) lateness: Histogram,
    /// How long it was sending.
    pub(super) sending: Duration,
}

impl WorkerSecond {
    fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.lateness.merge(&other.lateness);
        self.sending += other.sending;
    }
}

/// A segment of the plan, from its start.
#[derive(Clone, Copy)]
pub(super) struct SegmentRun {
    pub(super) index: usize,
    pub(super) start: Time,
    pub(super) warmup: Duration,
    /// The own number of its first request.
    pub(super) first_own: u64,
}

impl SegmentRun {
    /// The end of the segment, if it is the same for all generators: it ends by time alone.
    fn planned_end(&self, segment: &plan::Segment) -> Option<Time> {
        match segment {
            plan::Segment::Open(schedule) => {
                (!schedule.ends_by_chance()).then(|| self.start + schedule.duration())
            }
            plan::Segment::Closed(ClosedLoop { end: EndCondition::Duration(lasts), .. }) => {
                Some(self.start + self.warmup + *lasts)
            }
            plan::Segment::Closed(_) => None,
        }
    }
}

/// Samples per event.
const SAMPLES_PER_EVENT: usize = 512;
/// The time from when all workers are ready until the first request is due.
const START_DELAY: Duration = Duration::from_millis(10);
/// Connections that a worker opens at a time before the load starts.
const CONNECTS_MAX: usize = 64;

pub(super) struct LoadWorker {
    pub(super) index: usize,
    pub(super) context: Arc<LoadContext>,
    pub(super) client: ThreadClient,
    pub(super) clock: Precise,
    /// Notified at the end of each request.
    pub(super) request_ended: Notify,
    events: SyncSender<WorkerEvent>,
    /// The seconds that are not sent yet: a request may end in the next second before the tick of this one is handled.
    pending: RefCell<BTreeMap<u64, WorkerSecond>>,
    /// The first of them.
    next_second: Cell<u64>,
    samples: RefCell<Vec<Sample>>,
    start: Cell<Time>,
    in_flight: Cell<usize>,
    /// The segments that are over.
    stopped_segments: Cell<usize>,
    /// The end of the last segment, once it is known.
    plan_end: Cell<Time>,
    /// The requests in flight at that time.
    in_flight_at_end: Cell<Option<usize>>,
    /// The thread's processor time, and the time, at the last reading.
    cpu_reading: Cell<(Duration, Time)>,
    is_sending: Cell<bool>,
}

/// The tasks of requests in flight. A panic in one continues in the thread.
#[derive(Default)]
pub(super) struct RequestTasks(JoinSet<()>);

impl RequestTasks {
    pub(super) fn spawn(&mut self, request: impl Future<Output = impl Sized> + 'static) {
        while let Some(result) = self.0.try_join_next() {
            propagate_panic(result);
        }
        self.0.spawn_local(async move {
            request.await;
        });
    }

    async fn all_ended(&mut self) {
        while let Some(result) = self.0.join_next().await {
            propagate_panic(result);
        }
    }

    async fn abort(mut self) {
        self.0.abort_all();
        self.all_ended().await;
    }
}

fn propagate_panic(result: Result<(), JoinError>) {
    if let Err(error) = result
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

impl LoadWorker {
    pub(super) fn new(
        index: usize,
        context: Arc<LoadContext>,
        client: ThreadClient,
        events: SyncSender<WorkerEvent>,
    ) -> Rc<Self> {
        let clock = client.clock().clone();
        Rc::new(Self {
            index,
            context,
            client,
            clock,
            request_ended: Notify::new(),
            events,
            pending: RefCell::default(),
            next_second: Cell::default(),
            samples: RefCell::default(),
            start: Cell::default(),
            in_flight: Cell::default(),
            stopped_segments: Cell::default(),
            plan_end: Cell::new(Time::NEVER),
            in_flight_at_end: Cell::default(),
            cpu_reading: Cell::default(),
            is_sending: Cell::new(true),
        })
    }

    /// Runs the plan and the drain.
    pub(super) async fn run(self: Rc<Self>) {
        let mut tasks = RequestTasks::default();
        let mut ticks = JoinSet::new();
        let plan_end = tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => None,
            plan_end = self.run_plan(&mut tasks, &mut ticks) => Some(plan_end),
        };
        let now = self.clock.now();
        let is_complete = plan_end.is_some();
        let plan_end = plan_end.unwrap_or(now);
        let in_flight = self.in_flight_at_end.get().unwrap_or(self.in_flight.get());
        self.send_event(WorkerEvent::AllSent { plan_end, in_flight });
        self.note_cpu();
        self.is_sending.set(false);
        if is_complete {
            // A cancelled load is not drained.
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => {}
                _ = before(&self.clock, plan_end + self.context.drain, tasks.all_ended()) => {}
            }
        }
        // Each aborted request records that it was cut off.
        tasks.abort().await;
        ticks.shutdown().await;
        self.finish();
    }

    /// Runs all segments; returns when the last one was over.
    async fn run_plan(self: &Rc<Self>, tasks: &mut RequestTasks, ticks: &mut JoinSet<()>) -> Time {
        self.preconnect().await;
        let plan = &self.context.plan;
        let (mut plan_end, mut requests_left) = (Time::ZERO, plan.requests_max());
        // Of the next segment, if it is the same for all generators of a load.
        let mut planned_start = None;
        for index in 0..plan.segments().len() {
            let Some(next) = plan.segment_within(index, requests_left) else { break };
            let segment = self.start_segment(index, planned_start).await;
            if index == 0 {
                self.start.set(segment.start);
                self.clock.sleep_until(segment.start).await;
                self.cpu_reading.set((thread_cpu(), self.clock.now()));
                ticks.spawn_local(Rc::clone(self).flush_each_second());
            }
            // In a closed loop a connection sends one request at a time, also over HTTP/2.
            let streams_max = if matches!(&*next, plan::Segment::Closed(_)) { 1 } else { usize::MAX };
            self.client.streams_max.set(streams_max);
            plan_end = match &*next {
                plan::Segment::Open(schedule) => {
                    if index + 1 == plan.segments().len() && !schedule.ends_by_chance() {
                        self.plan_end.set(segment.start + schedule.duration());
                    }
                    self.run_schedule(schedule, segment, tasks).await
                }
                plan::Segment::Closed(closed) => self.run_closed_loop(closed, segment, tasks).await,
            };
            planned_start = segment.planned_end(&next);
            self.stop_segment(index);
            if requests_left.is_some() {
                // All workers count their requests before any reads the sum.
                self.context.barrier.wait().await;
                let sent = self.context.next_own.load(Relaxed) - self.context.first_own;
                requests_left = plan.requests_max().map(|max| self.context.requests_left(max, sent));
            }
        }
        plan_end
    }

    /// Opens the connections of closed loops and bursts, so that their first requests do not wait for one.
    async fn preconnect(self: &Rc<Self>) {
        let LoadContext { plan, share, max_in_flight, threads, .. } = &*self.context;
        let burst = usize::try_from(plan.burst_max()).unwrap_or(usize::MAX);
        let connections = share.part_of(plan.connections_max()).max(share.part_of(burst).min(*max_in_flight));
        let own = (self.index..connections).step_by(*threads);
        let numbers: Vec<u64> = own.map(|own| share.number(own as u64)).collect();
        for chunk in numbers.chunks(CONNECTS_MAX) {
            let mut connecting = JoinSet::new();
            for number in chunk {
                let (worker, number) = (Rc::clone(self), *number);
                connecting.spawn_local(async move { worker.client.preconnect(number).await });
            }
            // Others would fail as well. The requests will report why.
            if connecting.join_all().await.contains(&false) {
                return;
            }
        }
    }

    /// Waits for the other workers, which start at the same time and number.
    async fn start_segment(&self, index: usize, planned: Option<Time>) -> SegmentRun {
        let context = &self.context;
        if context.barrier.wait().await.is_leader() {
            let delay = if index == 0 { START_DELAY } else { Duration::ZERO };
            let start = match &context.control {
                None => self.clock.now() + delay,
                Some(control) => match planned {
                    Some(planned) => planned,
                    None => {
                        let delay = control.time_until_start(index).await;
                        self.clock.now() + delay
                    }
                },
            };
            context.segment_start_ns.store(start.as_nanos(), Relaxed);
            context.segment_first_own.store(context.next_own.load(Relaxed), Relaxed);
            if index == 0 {
                self.send_event(WorkerEvent::Start(start));
            }
        }
        context.barrier.wait().await;
        SegmentRun {
            index,
            start: Time::from_nanos(context.segment_start_ns.load(Relaxed)),
            warmup: if index == 0 { context.plan.warmup() } else { Duration::ZERO },
            first_own: context.segment_first_own.load(Relaxed),
        }
    }

    /// Records the requests in flight at the end of the plan, where requests that were due before are still unsent.
    pub(super) fn note_plan_end(&self) {
        if self.clock.now() >= self.plan_end.get() && self.in_flight_at_end.get().is_none() {
            self.in_flight_at_end.set(Some(self.in_flight.get()));
        }
    }

    /// Counts a request that waited for others in flight.
    pub(super) fn note_held_back(&self, now: Time) {
        let counts = &mut self.second_at(now).counts;
        counts.held_back += 1;
        counts.sent_after_end += u64::from(now >= self.plan_end.get());
    }

    /// From now on no connection of this segment sends requests.
    pub(super) fn stop_segment(&self, index: usize) {
        self.stopped_segments.set(index + 1);
    }

    pub(super) fn is_segment_stopped(&self, index: usize) -> bool {
        self.stopped_segments.get() > index
    }

    pub(super) fn measured_from(&self) -> Time {
        self.start.get() + self.context.plan.warmup()
    }

    /// This worker's share of `total`; the shares of all workers add up to it.
    pub(super) fn share_of(&self, total: usize) -> usize {
        total / self.context.threads + usize::from(self.index < total % self.context.threads)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub(super) fn note_lateness(&self, now: Time, lateness: Duration) {
        self.second_at(now).lateness.record(lateness);
    }

    pub(super) fn note_dropped(&self, now: Time, dropped: u64) {
        self.second_at(now).counts.dropped += dropped;
    }

    /// The second of `time` that is still to be sent.
    fn second_at(&self, time: Time) -> RefMut<'_, WorkerSecond> {
        let second = (time - self.start.get()).as_secs().max(self.next_second.get());
        RefMut::map(self.pending.borrow_mut(), |pending| pending.entry(second).or_default())
    }

    /// Counts a request as in flight at once, also before the future is polled.
    pub(super) fn start_request(
        self: &Rc<Self>,
        number: u64,
        scheduled: Time,
    ) -> impl Future<Output = RequestEnd> + 'static {
        self.in_flight.set(self.in_flight.get() + 1);
        let in_flight = self.context.in_flight.fetch_add(1, Relaxed) + 1;
        self.context.in_flight_max.fetch_max(in_flight, Relaxed);
        InFlightRequest::new(Rc::clone(self), number, scheduled).run()
    }

    pub(super) fn finish_request(&self, sample: Sample) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.context.in_flight.fetch_sub(1, Relaxed);
        self.record(sample);
        self.request_ended.notify_one();
    }

    fn record(&self, sample: Sample) {
        let mut second = self.second_at(sample.timing.finished);
        let current = &mut second.counts;
        if sample.number >= WARMUP_NUMBERS {
            current.warmup.record(&sample);
            return;
        }
        current.measured.record(&sample);
        self.explain_false_answer(&mut current.measured, &sample);
        if sample.was_sent() {
            current.seconds.entry(self.measured_second(sample.timing.started)).or_default().sent += 1;
        }
        let counts = current.seconds.entry(self.measured_second(sample.timing.finished)).or_default();
        counts.finished += 1;
        counts.failed += u64::from(!sample.is_success());
        drop(second);
        if self.context.sends_samples {
            let mut samples = self.samples.borrow_mut();
            samples.push(sample);
            if samples.len() >= SAMPLES_PER_EVENT {
                let full = std::mem::replace(&mut *samples, Vec::with_capacity(SAMPLES_PER_EVENT));
                self.send_event(WorkerEvent::Samples(full));
            }
        }
    }

    /// Keeps the first examples of false answers.
    fn explain_false_answer(&self, tally: &mut Tally, sample: &Sample) {
        if let Ok(Response { status, stated: Some(stated), .. }) = &sample.result {
            tally.answers.explain(stated, *status, sample.timing.service_time(), || {
                let spec = self.client.request(sample.number);
                format!("{} {}", spec.template.method, spec.path)
            });
        }
    }

    /// The second of the measured part.
    fn measured_second(&self, time: Time) -> u64 {
        (time - self.measured_from()).as_secs()
    }

    async fn flush_each_second(self: Rc<Self>) {
        loop {
            let second = self.next_second.get();
            self.clock.sleep_until(self.start.get() + Duration::from_secs(second + 1)).await;
            self.note_cpu();
            self.flush(second);
        }
    }

    /// Sends the rest: the seconds up to that of the last request, and what was counted after it.
    fn finish(&self) {
        self.note_cpu();
        let has_requests =
            |second: &WorkerSecond| second.counts.measured.requests() + second.counts.warmup.requests() > 0;
        let last =
            self.pending.borrow().iter().rev().find(|(_, second)| has_requests(second)).map(|(at, _)| *at);
        while last.is_some_and(|last| self.next_second.get() <= last) {
            self.flush(self.next_second.get());
        }
        let mut rest = WorkerSecond::default();
        self.pending.take().values().for_each(|second| rest.merge(second));
        self.send_samples();
        self.send_event(WorkerEvent::End(Box::new(self.with_connection_counts(rest))));
    }

    fn flush(&self, second: u64) {
        self.send_samples();
        let pending = self.pending.borrow_mut().remove(&second).unwrap_or_default();
        self.next_second.set(second + 1);
        let mut pending = self.with_connection_counts(pending);
        pending.counts.second = second;
        self.send_event(WorkerEvent::Second(Box::new(pending)));
    }

    fn with_connection_counts(&self, mut second: WorkerSecond) -> WorkerSecond {
        second.thread = self.index;
        second.counts.connections = self.client.connections_opened.take();
        second.counts.measured.retries = self.client.retries.take();
        second.counts.measured.resent = self.client.resends.take();
        second
    }

    fn send_samples(&self) {
        let samples = self.samples.take();
        if !samples.is_empty() {
            self.send_event(WorkerEvent::Samples(samples));
        }
    }

    /// Adds the processor time since the last reading, while the worker is sending.
    fn note_cpu(&self) {
        let now = (thread_cpu(), self.clock.now());
        let last = self.cpu_reading.replace(now);
        if self.is_sending.get() {
            let mut current = self.second_at(last.1);
            current.counts.cpu += now.0.saturating_sub(last.0);
            current.sending += now.1 - last.1;
        }
    }

    fn send_event(&self, event: WorkerEvent) {
        // The collector outlives the workers, unless its thread panics.
        let _ = self.events.send(event);
    }
}

fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
