//! One load of an agent, from its bytes to the end of its record.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use async_nats::{HeaderMap, Subscriber, jetstream::Context as JetStream};
use futures_util::StreamExt;
use stockade_load::generator::{
    CancellationToken, Control, GeneratorEnd, LoadTest, LoadTestError, LoadTestRun, Share, ShareMove,
};
use stockade_model::time::Time;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use tokio_util::sync::DropGuard;

use super::{Agent, AgentRun, Moves, PUBLISH_TIMEOUT, RETRY_DELAY, fault::Fault, observer::RecordObserver};
use crate::{
    clock::{AgentClock, Nanos},
    wait::{Ticks, pause, within},
    wire::{
        ALIVE_INTERVAL, AgentStatus, ControlMessage, RecordPart, encoded, lease_from,
        silent_coordinator_fault,
    },
};

/// Records that wait for NATS: one is a second. More are lost, and the run is invalid.
const RECORDS_MAX: usize = 120;
/// How long the records of an ended load may take to be published.
const LAST_RECORDS_TIMEOUT: Duration = Duration::from_secs(5);
/// For the load to arrive. The coordinator waits for ten seconds.
const FETCH_TIMEOUT: Duration = Duration::from_secs(9);

/// The number of seconds of a load, and its end. The error is the reason.
type LoadResult = Result<(u64, GeneratorEnd), String>;

/// A load that is prepared, sent, or reported.
pub(super) struct ActiveRun<'a> {
    agent: &'a Agent,
    status_subject: String,
    control_messages: Subscriber,
    /// Until when requests may be sent.
    lease: Arc<AtomicI64>,
    fault: Fault,
    stop: CancellationToken,
    /// The load ends with this value, also where the agent is told to end.
    _guard: DropGuard,
    /// Segments for which all threads are ready.
    readiness: mpsc::UnboundedReceiver<usize>,
    ended: oneshot::Receiver<LoadResult>,
    publisher: Publisher,
    /// The task that publishes seconds; aborted with this value.
    publishing: JoinSet<()>,
    ticks: Ticks,
    status: AgentStatus,
    is_told_to_stop: bool,
}

impl<'a> ActiveRun<'a> {
    /// Fetches the load, and starts its thread, which says on `prepared` whether it can be sent.
    pub(super) async fn start(
        agent: &'a Agent,
        current: &AgentRun,
        share: Share,
        starts: watch::Receiver<Option<(usize, Nanos)>>,
        prepared: oneshot::Sender<Result<(), String>>,
    ) -> Option<Self> {
        let subject = &agent.options.subject;
        let fetching = async {
            let control = agent.client.subscribe(subject.control(&current.id)).await;
            let control = control.map_err(|_| "it has no connection".to_owned())?;
            let load = agent.fetch(&current.id, share).await?;
            let samples = agent.create_sample_file(current, &load)?;
            Ok::<_, String>((control, load, samples))
        };
        let fetched = within(FETCH_TIMEOUT, fetching).await;
        let (control_messages, load, samples) =
            match fetched.unwrap_or_else(|| Err("the load does not arrive".to_owned())) {
                Ok(fetched) => fetched,
                Err(reason) => {
                    let _ = prepared.send(Err(reason));
                    return None;
                }
            };
        let clock = agent.options.clock;
        let stop = CancellationToken::new();
        let fault = Fault::none(stop.clone());
        let (ready, readiness) = mpsc::unbounded_channel();
        let lease = Arc::new(AtomicI64::new(lease_from(clock.now())));
        let control = RunControl {
            clock,
            ready,
            starts,
            moves: Arc::clone(&current.moves),
            lease: Arc::clone(&lease),
            fault: fault.clone(),
        };
        let (records, seconds) = mpsc::channel(RECORDS_MAX);
        let observer = RecordObserver {
            records,
            fault: fault.clone(),
            warmup: load.plan.warmup(),
            start: Time::ZERO,
            seconds: 0,
            started: Arc::clone(&current.started),
            samples,
        };
        let (end, ended) = oneshot::channel();
        let cancel = stop.clone();
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            let _ = end.send(run_load(&load, Arc::new(control), observer, prepared, &cancel));
        });
        // Without a thread `prepared` is dropped, which says so.
        thread.ok()?;
        let publisher = Publisher {
            jetstream: agent.jetstream.clone(),
            subject: subject.record(&current.id, &agent.id),
            id: format!("{}/{}", current.id.as_str(), agent.id),
        };
        let mut publishing = JoinSet::new();
        publishing.spawn_local(publisher.clone().publish_seconds(seconds));
        Some(Self {
            agent,
            status_subject: subject.status(&current.id, &agent.id),
            control_messages,
            lease,
            fault,
            _guard: stop.clone().drop_guard(),
            stop,
            readiness,
            ended,
            publisher,
            publishing,
            ticks: Ticks::every(ALIVE_INTERVAL),
            status: AgentStatus::Alive { ready: None },
            is_told_to_stop: false,
        })
    }

    /// Follows the coordinator until the load has ended.
    pub(super) async fn watch(&mut self) -> LoadResult {
        let clock = self.agent.options.clock;
        let ended = loop {
            tokio::select! {
                biased;
                message = self.control_messages.next() => {
                    match message.map(|message| serde_json::from_slice(&message.payload)) {
                        Some(Ok(ControlMessage::Alive)) if clock.now() < self.lease.load(Relaxed) => {
                            self.lease.store(lease_from(clock.now()), Relaxed);
                        }
                        // It waited while this process was suspended.
                        Some(Ok(ControlMessage::Alive)) => self.fault.note(silent_coordinator_fault()),
                        Some(Ok(ControlMessage::Stop)) => {
                            self.is_told_to_stop = true;
                            self.stop.cancel();
                        }
                        Some(Err(_)) => {}
                        None => {
                            self.fault.note("its connection was closed, and it stopped");
                            break (&mut self.ended).await;
                        }
                    }
                }
                ended = &mut self.ended => break ended,
                Some(segment) = self.readiness.recv() => {
                    self.status = AgentStatus::Alive { ready: Some(segment) };
                    self.agent.publish(&self.status_subject, &self.status).await;
                }
                () = self.ticks.tick() => {
                    if clock.now() >= self.lease.load(Relaxed) && !self.is_told_to_stop {
                        self.fault.note(silent_coordinator_fault());
                    }
                    self.agent.publish(&self.status_subject, &self.status).await;
                }
            }
        };
        ended.unwrap_or_else(|_| Err("its load panicked: this is a bug in Stockade".to_owned()))
    }

    /// Publishes the last seconds, and the end or the error.
    pub(super) async fn report(self, result: LoadResult) {
        let Self { agent, status_subject, status, fault, publisher, mut publishing, mut ticks, .. } = self;
        let fault = fault.take().filter(|_| !self.is_told_to_stop);
        let last = async {
            // The channel of seconds closes with the load.
            let _ = publishing.join_next().await;
            match result {
                Ok((seconds, end)) => {
                    publisher.publish(&RecordPart::End { seconds, end: Box::new(end), fault }).await;
                }
                Err(reason) => agent.publish(&status_subject, &AgentStatus::Failed { reason }).await,
            }
        };
        let alive = async {
            loop {
                ticks.tick().await;
                agent.publish(&status_subject, &status).await;
            }
        };
        tokio::select! {
            _ = within(LAST_RECORDS_TIMEOUT, last) => {}
            () = alive => {}
        }
    }
}

/// Prepares and runs the load, on a thread of its own. Returns the number of its seconds, and its end. The error is the reason.
fn run_load(
    load: &LoadTest,
    control: Arc<RunControl>,
    mut observer: RecordObserver,
    prepared: oneshot::Sender<Result<(), String>>,
    cancel: &CancellationToken,
) -> Result<(u64, GeneratorEnd), String> {
    let ready = match load.prepare() {
        Ok(ready) => ready.with_control(control),
        Err(error) => {
            let reason = match error {
                LoadTestError::NotAllowed(failure) => format!(
                    "it may not reach {}; allow more with --allow-target when it starts",
                    failure.detail
                ),
                error => error.to_string(),
            };
            let _ = prepared.send(Err(reason.clone()));
            return Err(reason);
        }
    };
    let _ = prepared.send(Ok(()));
    let LoadTestRun { end, .. } = ready.run(&mut observer, cancel).map_err(|error| error.to_string())?;
    let (start, seconds) = (observer.start, observer.seconds);
    observer.finish().map_err(|error| LoadTestError::Samples(error).to_string())?;
    Ok((seconds, end.since(start)))
}

/// Starts the segments of a load when the coordinator says so, and ends it without a sign of life.
#[derive(Debug)]
struct RunControl {
    clock: AgentClock,
    ready: mpsc::UnboundedSender<usize>,
    starts: watch::Receiver<Option<(usize, Nanos)>>,
    moves: Arc<Mutex<Moves>>,
    /// Until when requests may be sent.
    lease: Arc<AtomicI64>,
    fault: Fault,
}

impl Control for RunControl {
    fn time_until_start(&self, segment: usize) -> Pin<Box<dyn Future<Output = Duration> + Send + '_>> {
        let mut starts = self.starts.clone();
        Box::pin(async move {
            let _ = self.ready.send(segment);
            let is_this = |start: &Option<(usize, Nanos)>| start.is_some_and(|(at, _)| at == segment);
            let start = starts.wait_for(is_this).await.ok().and_then(|start| *start);
            match start {
                Some((_, at)) => {
                    let now = self.clock.now();
                    if now > at {
                        let late_ms = now.saturating_sub(at) as f64 / 1e6;
                        self.fault.note(format!("it was {late_ms:.1} ms late for the start"));
                    }
                    self.clock.until(at)
                }
                // The run has ended, and its load is about to be cancelled.
                None => std::future::pending().await,
            }
        })
    }

    fn next_move(&self, followed: usize, place: u64) -> Option<ShareMove> {
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let next = moves.list.get(followed).filter(|next| next.from <= place).cloned();
        if next.is_none() {
            moves.taken = moves.taken.max(place.saturating_add(1));
        }
        next
    }

    fn may_send(&self) -> bool {
        let may_send = self.clock.now() < self.lease.load(Relaxed);
        if !may_send {
            self.fault.note(silent_coordinator_fault());
        }
        may_send
    }
}

/// Publishes the records of one load.
#[derive(Clone)]
struct Publisher {
    jetstream: JetStream,
    subject: String,
    /// Of the run and the agent.
    id: String,
}

impl Publisher {
    /// Publishes the seconds in order.
    async fn publish_seconds(self, mut records: mpsc::Receiver<RecordPart>) {
        while let Some(record) = records.recv().await {
            self.publish(&record).await;
        }
    }

    /// Publishes a record until it is stored. A record that was stored twice counts once, by its message id.
    async fn publish(&self, record: &RecordPart) {
        let bytes = encoded(record);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{}/{}", self.id, record.number()));
        loop {
            let publishing = async {
                let sent =
                    self.jetstream.publish_with_headers(self.subject.clone(), headers.clone(), bytes.clone());
                sent.await?.await
            };
            match within(PUBLISH_TIMEOUT, publishing).await {
                Some(Ok(_)) => return,
                Some(Err(_)) | None => pause(RETRY_DELAY).await,
            }
        }
    }
}
