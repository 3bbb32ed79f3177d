//! An agent: it waits for loads, and sends its share of each.

use std::{
    cell::RefCell,
    num::NonZeroU32,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use async_nats::{Client, HeaderMap, jetstream, jetstream::Context as JetStream};
use futures_util::StreamExt;
use rand::random;
use stockade_load::{
    AllowedTargets,
    generator::{CancellationToken, Control, GeneratorEnd, LoadTest, LoadTestError, LoadTestRun, Share},
};
use tokio::{
    io::AsyncReadExt,
    sync::{mpsc, oneshot, watch},
    task::{JoinSet, LocalSet, spawn_local},
};

use crate::{
    clock::{AgentClock, Nanos},
    connection::{ConnectionError, ConnectionOptions, reason},
    samples::{RecordObserver, SampleFile},
    wait::{Ticks, pause, within},
    wire::{
        ALIVE_INTERVAL, AgentInfo, ControlMessage, LOST_AFTER, Record, Reply, Request, Status, Subject,
        VERSION,
    },
};

/// An agent.
#[derive(Debug)]
pub struct AgentOptions {
    /// How to reach NATS.
    pub connection: ConnectionOptions,
    /// The first part of all subjects, which coordinators name as well.
    pub subject: Subject,
    /// The name in reports.
    pub name: String,
    /// Its part of a load, relative to the weights of the others.
    pub weight: NonZeroU32,
    /// For placement.
    pub labels: Vec<String>,
    /// The servers that it may reach.
    pub allowed: AllowedTargets,
    /// A folder for the samples of its loads, a file each.
    pub samples: Option<PathBuf>,
    /// Its clock.
    pub clock: AgentClock,
    /// How long it tries to reach NATS at first.
    pub patience: Duration,
}

/// An agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// NATS cannot be reached or used.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The connection was closed for good.
    #[error("NATS closed the connection")]
    Closed,
}

/// The most bytes of a load.
const LOAD_BYTES_MAX: usize = 1 << 30;
/// Records that wait for NATS: one is a second. More are lost, and the run is invalid.
const RECORDS_MAX: usize = 120;
/// For one attempt to publish a record.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the records of an ended load may take to be published.
const LAST_RECORDS_TIMEOUT: Duration = Duration::from_secs(5);
/// Between attempts.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Waits for loads until it is cancelled. Calls `on_ready` once it can receive one. Blocks meanwhile.
pub fn serve(
    options: AgentOptions,
    on_ready: impl FnOnce(&AgentInfo),
    cancel: &CancellationToken,
) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ConnectionError::Thread)?;
    let serving = async {
        tokio::select! {
            () = cancel.cancelled() => Ok(()),
            end = Agent::serve(options, on_ready) => end,
        }
    };
    let end = LocalSet::new().block_on(&runtime, serving);
    // Does not wait for name lookups that hang.
    runtime.shutdown_background();
    end
}

struct Agent {
    options: AgentOptions,
    id: String,
    client: Client,
    jetstream: JetStream,
    /// The load that it prepares or sends.
    run: RefCell<Option<Rc<AgentRun>>>,
}

/// A load of an agent, as its messages see it.
struct AgentRun {
    id: String,
    starts: watch::Sender<Option<(usize, Nanos)>>,
    /// The start by the coordinator's clock.
    started: Arc<Mutex<Nanos>>,
}

impl Agent {
    async fn serve(options: AgentOptions, on_ready: impl FnOnce(&AgentInfo)) -> Result<(), AgentError> {
        let client = connect(&options).await?;
        let agent = Rc::new(Self {
            jetstream: jetstream::new(client.clone()),
            id: format!("{:016x}", random::<u64>()),
            client,
            options,
            run: RefCell::new(None),
        });
        let subscribe =
            async |subject: String| agent.client.subscribe(subject).await.map_err(|_| AgentError::Closed);
        let mut discovered = subscribe(agent.options.subject.discover()).await?;
        let mut requests = subscribe(agent.options.subject.agent(&agent.id)).await?;
        agent.client.flush().await.map_err(|_| AgentError::Closed)?;
        on_ready(&agent.info());
        loop {
            tokio::select! {
                biased;
                message = requests.next() => {
                    let message = message.ok_or(AgentError::Closed)?;
                    let Ok(request) = serde_json::from_slice(&message.payload) else { continue };
                    let Some(to) = message.reply else { continue };
                    match request {
                        // At once: whatever comes between is an error of the reading.
                        Request::Clock => agent.reply(to, &Reply::Clock(agent.options.clock.now())).await,
                        Request::Start { run, segment, at, by_coordinator } => {
                            let reply = agent.start(&run, segment, at, by_coordinator);
                            agent.reply(to, &reply).await;
                        }
                        Request::Prepare { run, share } => {
                            let agent = Rc::clone(&agent);
                            spawn_local(async move {
                                let reply = Rc::clone(&agent).prepare(run, share).await;
                                agent.reply(to, &reply).await;
                            });
                        }
                    }
                }
                message = discovered.next() => {
                    let message = message.ok_or(AgentError::Closed)?;
                    if let Some(to) = message.reply {
                        agent.reply(to, &agent.info()).await;
                    }
                }
            }
        }
    }

    fn info(&self) -> AgentInfo {
        AgentInfo {
            id: self.id.clone(),
            name: self.options.name.clone(),
            version: VERSION.to_owned(),
            weight: self.options.weight,
            labels: self.options.labels.clone(),
            allowed: self.options.allowed.to_string(),
            is_busy: self.run.borrow().is_some(),
        }
    }

    async fn reply(&self, to: async_nats::Subject, reply: &impl serde::Serialize) {
        let bytes = serde_json::to_vec(reply).expect("plain values");
        // Without a connection nobody waits for the reply.
        let _ = self.client.publish(to, bytes.into()).await;
        let _ = self.client.flush().await;
    }

    fn start(&self, run: &str, segment: usize, at: Nanos, by_coordinator: Nanos) -> Reply {
        let current = self.run.borrow();
        let Some(current) = current.as_ref().filter(|current| current.id == run) else {
            return Reply::Refused("it has ended".to_owned());
        };
        if *current.starts.borrow() == Some((segment, at)) {
            return Reply::Accepted;
        }
        let now = self.options.clock.now();
        if at <= now {
            return Reply::Refused(format!("the start reached it {} ms late", (now - at) / 1_000_000));
        }
        if segment == 0 {
            *current.started.lock().unwrap_or_else(PoisonError::into_inner) = by_coordinator;
        }
        current.starts.send_replace(Some((segment, at)));
        Reply::Accepted
    }

    /// Fetches a load, starts its thread, and returns once that is ready to connect.
    async fn prepare(self: Rc<Self>, run: String, share: Share) -> Reply {
        if self.run.borrow().as_ref().is_some_and(|current| current.id != run) {
            return Reply::Refused("it is busy with another load".to_owned());
        }
        if self.run.borrow().is_some() {
            return Reply::Accepted;
        }
        let (starts, starts_received) = watch::channel(None);
        let current = Rc::new(AgentRun { id: run, starts, started: Arc::default() });
        *self.run.borrow_mut() = Some(Rc::clone(&current));
        let (prepared, is_prepared) = oneshot::channel();
        let agent = Rc::clone(&self);
        spawn_local(async move {
            agent.run(&current, share, starts_received, prepared).await;
            *agent.run.borrow_mut() = None;
        });
        match is_prepared.await {
            Ok(Ok(())) => Reply::Accepted,
            Ok(Err(reason)) => Reply::Refused(reason),
            Err(_) => Reply::Refused("it ended".to_owned()),
        }
    }

    /// One load, from its bytes to its last record.
    async fn run(
        &self,
        current: &AgentRun,
        share: Share,
        starts: watch::Receiver<Option<(usize, Nanos)>>,
        prepared: oneshot::Sender<Result<(), String>>,
    ) {
        let subject = &self.options.subject;
        let Ok(mut control_messages) = self.client.subscribe(subject.control(&current.id)).await else {
            let _ = prepared.send(Err("it has no connection".to_owned()));
            return;
        };
        let load = match Box::pin(self.fetch(&current.id, share)).await {
            Ok(load) => load,
            Err(reason) => {
                let _ = prepared.send(Err(reason));
                return;
            }
        };
        let clock = self.options.clock;
        let (ready, mut readiness) = mpsc::unbounded_channel();
        let lease = Arc::new(AtomicI64::new(lease_from(clock.now())));
        let control = Arc::new(RunControl { clock, ready, starts, lease: Arc::clone(&lease) });
        let (records, records_received) = mpsc::channel(RECORDS_MAX);
        let stop = CancellationToken::new();
        let samples = self.options.samples.as_ref().map(|folder| SampleFile {
            path: folder.join(format!("{}-{}.json", current.id, self.options.name)),
            id: current.id.clone(),
            traffic: Arc::clone(&load.traffic),
            writer: None,
        });
        let observer =
            RecordObserver::new(records, load.plan.warmup(), Arc::clone(&current.started), samples);
        let (ended, mut has_ended) = oneshot::channel();
        let cancel = stop.clone();
        let thread = thread::Builder::new().name("load".to_owned());
        let thread = thread.spawn(move || {
            let _ = ended.send(run_load(&load, control, observer, prepared, &cancel));
        });
        if thread.is_err() {
            return;
        }
        let publisher = Publisher {
            jetstream: self.jetstream.clone(),
            subject: subject.record(&current.id, &self.id),
            id: format!("{}/{}", current.id, self.id),
        };
        // Aborted with this function.
        let mut publishing = JoinSet::new();
        publishing.spawn_local(publisher.clone().publish_seconds(records_received));
        let status_subject = subject.status(&current.id, &self.id);
        let mut status = Status::Alive { ready: None };
        let mut ticks = Ticks::every(ALIVE_INTERVAL);
        let mut fault = None;
        let result = loop {
            tokio::select! {
                biased;
                message = control_messages.next() => match message.and_then(|message| serde_json::from_slice(&message.payload).ok()) {
                    Some(ControlMessage::Alive) => lease.store(lease_from(clock.now()), Relaxed),
                    Some(ControlMessage::Stop) => stop.cancel(),
                    None => {
                        stop.cancel();
                        break (&mut has_ended).await;
                    }
                },
                result = &mut has_ended => break result,
                Some(segment) = readiness.recv() => {
                    status = Status::Alive { ready: Some(segment) };
                    self.publish(&status_subject, &status).await;
                }
                () = ticks.tick() => {
                    if clock.now() >= lease.load(Relaxed) && !stop.is_cancelled() {
                        fault = Some(format!(
                            "it heard nothing of the coordinator for {} s, and stopped", LOST_AFTER.as_secs_f64()
                        ));
                        stop.cancel();
                    }
                    self.publish(&status_subject, &status).await;
                }
            }
        };
        let last = async {
            // The channel of seconds closes with the load.
            let _ = publishing.join_next().await;
            match result {
                Ok(Ok((seconds, end))) => {
                    publisher.publish(&Record::End { seconds, end: Box::new(end), fault }).await;
                }
                Ok(Err(reason)) => self.publish(&status_subject, &Status::Failed { reason }).await,
                Err(_) => {}
            }
        };
        let alive = async {
            loop {
                ticks.tick().await;
                self.publish(&status_subject, &status).await;
            }
        };
        tokio::select! {
            _ = within(LAST_RECORDS_TIMEOUT, last) => {}
            () = alive => {}
        }
    }

    async fn publish(&self, subject: &str, message: &impl serde::Serialize) {
        let bytes = serde_json::to_vec(message).expect("plain values");
        // Without a connection the coordinator finds out by itself.
        let _ = self.client.publish(subject.to_owned(), bytes.into()).await;
    }

    /// The load of a run. The error is the reason.
    async fn fetch(&self, run: &str, share: Share) -> Result<LoadTest, String> {
        let store = self.jetstream.get_object_store(self.options.subject.loads_store()).await;
        let store = store.map_err(|error| reason(&error))?;
        let mut object = store.get(run).await.map_err(|error| reason(&error))?;
        if object.info().size > LOAD_BYTES_MAX {
            return Err(format!("the load has {} bytes, more than {LOAD_BYTES_MAX}", object.info().size));
        }
        let mut bytes = Vec::new();
        object.read_to_end(&mut bytes).await.map_err(|error| error.to_string())?;
        let mut load = LoadTest::from_bundle(&bytes, share).map_err(|error| error.to_string())?;
        load.options.allowed = Some(self.options.allowed.clone());
        load.observes_samples = self.options.samples.is_some();
        Ok(load)
    }
}

/// Connects, and tries again while the server may come.
async fn connect(options: &AgentOptions) -> Result<Client, AgentError> {
    let name = format!("stockade agent {}", options.name);
    let mut last = None;
    let attempts = async {
        loop {
            match Box::pin(options.connection.connect(&name)).await {
                Ok(client) => return Ok(client),
                Err(error) if error.may_pass() => last = Some(error),
                Err(error) => return Err(error),
            }
            pause(RETRY_DELAY).await;
        }
    };
    match within(options.patience, attempts).await {
        Some(connected) => Ok(connected?),
        None => Err(last.unwrap_or_else(|| options.connection.no_answer(options.patience)).into()),
    }
}

/// The time until which the sign of life that arrived at `now` is good.
fn lease_from(now: Nanos) -> Nanos {
    now.saturating_add(Nanos::try_from(LOST_AFTER.as_nanos()).unwrap_or(Nanos::MAX))
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
    let (start, seconds) = (observer.start(), observer.seconds());
    observer.finish().map_err(|error| LoadTestError::Samples(error).to_string())?;
    Ok((seconds, end.since(start)))
}

/// Starts the segments of a load when the coordinator says so, and ends it without a sign of life.
#[derive(Debug)]
struct RunControl {
    clock: AgentClock,
    ready: mpsc::UnboundedSender<usize>,
    starts: watch::Receiver<Option<(usize, Nanos)>>,
    /// Until when requests may be sent.
    lease: Arc<AtomicI64>,
}

impl Control for RunControl {
    fn time_until_start(&self, segment: usize) -> Pin<Box<dyn Future<Output = Duration> + Send + '_>> {
        let mut starts = self.starts.clone();
        Box::pin(async move {
            let _ = self.ready.send(segment);
            let is_this = |start: &Option<(usize, Nanos)>| start.is_some_and(|(at, _)| at == segment);
            let start = starts.wait_for(is_this).await.ok().and_then(|start| *start);
            match start {
                Some((_, at)) => self.clock.until(at),
                // The run has ended, and its load is about to be cancelled.
                None => std::future::pending().await,
            }
        })
    }

    fn may_send(&self) -> bool {
        self.clock.now() < self.lease.load(Relaxed)
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
    async fn publish_seconds(self, mut records: mpsc::Receiver<Record>) {
        while let Some(record) = records.recv().await {
            self.publish(&record).await;
        }
    }

    /// Publishes a record until it is stored. A record that was stored twice counts once, by its message id.
    async fn publish(&self, record: &Record) {
        let bytes: bytes::Bytes = serde_json::to_vec(record).expect("plain values").into();
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
