//! An agent: it waits for loads, and sends its share of each.

use std::{
    cell::RefCell,
    fs::{self, File},
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
use stockade_model::time::Time;
use tokio::{
    io::AsyncReadExt,
    sync::{mpsc, oneshot, watch},
    task::{JoinSet, LocalSet, spawn_local},
};

use crate::{
    clock::{AgentClock, Nanos},
    connection::{ConnectionError, ConnectionOptions, reason},
    samples::{Fault, RecordObserver, SampleFile},
    wait::{Ticks, pause, within},
    wire::{
        ALIVE_INTERVAL, AgentInfo, AgentReply, AgentRequest, AgentStatus, ControlMessage, LOST_AFTER,
        RecordPart, RunId, Subject, VERSION, encoded, is_name,
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
    /// The name is none.
    #[error("`{0}` is no name of an agent: write letters, digits, `.`, `-` and `_`, at most 64")]
    Name(String),
    /// The connection was closed for good.
    #[error("NATS closed the connection")]
    Closed,
}

/// The most bytes of a load.
const LOAD_BYTES_MAX: u64 = 1 << 30;
/// For the load to arrive. The coordinator waits for ten seconds.
const FETCH_TIMEOUT: Duration = Duration::from_secs(9);
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
    if !is_name(&options.name) {
        return Err(AgentError::Name(options.name));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ConnectionError::Thread)?;
    let serving = async {
        let agent = tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            agent = Agent::connect(options) => Rc::new(agent?),
        };
        tokio::select! {
            () = cancel.cancelled() => {
                agent.leave().await;
                Ok(())
            }
            end = Rc::clone(&agent).serve(on_ready) => end,
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
    id: RunId,
    starts: watch::Sender<Option<(usize, Nanos)>>,
    /// The start by the coordinator's clock.
    started: Arc<Mutex<Nanos>>,
}

impl Agent {
    async fn connect(options: AgentOptions) -> Result<Self, AgentError> {
        let client = connect(&options).await?;
        Ok(Self {
            jetstream: jetstream::new(client.clone()),
            id: format!("{:016x}", random::<u64>()),
            client,
            options,
            run: RefCell::new(None),
        })
    }

    async fn serve(self: Rc<Self>, on_ready: impl FnOnce(&AgentInfo)) -> Result<(), AgentError> {
        let agent = self;
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
                        AgentRequest::Clock => agent.reply(to, &AgentReply::Clock(agent.options.clock.now())).await,
                        AgentRequest::Start { run, segment, at, by_coordinator } => {
                            let reply = agent.start(&run, segment, at, by_coordinator);
                            agent.reply(to, &reply).await;
                        }
                        AgentRequest::Prepare { run, share } => {
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

    /// Tells the coordinator that its load will not end.
    async fn leave(&self) {
        let run = self.run.borrow().as_ref().map(|current| current.id.clone());
        if let Some(run) = run {
            let reason = "it was told to end".to_owned();
            self.publish(&self.options.subject.status(&run, &self.id), &AgentStatus::Failed { reason }).await;
            let _ = within(PUBLISH_TIMEOUT, self.client.flush()).await;
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
            machine: machine(),
            is_busy: self.run.borrow().is_some(),
        }
    }

    async fn reply(&self, to: async_nats::Subject, reply: &impl serde::Serialize) {
        // Without a connection nobody waits for the reply.
        let _ = self.client.publish(to, encoded(reply)).await;
        let _ = self.client.flush().await;
    }

    fn start(&self, run: &RunId, segment: usize, at: Nanos, by_coordinator: Nanos) -> AgentReply {
        let current = self.run.borrow();
        let Some(current) = current.as_ref().filter(|current| current.id == *run) else {
            return AgentReply::Refused("it has ended".to_owned());
        };
        if *current.starts.borrow() == Some((segment, at)) {
            return AgentReply::Accepted;
        }
        let now = self.options.clock.now();
        if at <= now {
            return AgentReply::Refused(format!(
                "the start reached it {} ms late",
                now.saturating_sub(at) / 1_000_000
            ));
        }
        if segment == 0 {
            *current.started.lock().unwrap_or_else(PoisonError::into_inner) = by_coordinator;
        }
        current.starts.send_replace(Some((segment, at)));
        AgentReply::Accepted
    }

    /// Fetches a load, starts its thread, and returns once that is ready to connect.
    async fn prepare(self: Rc<Self>, run: RunId, share: Share) -> AgentReply {
        if self.run.borrow().as_ref().is_some_and(|current| current.id != run) {
            return AgentReply::Refused("it is busy with another load".to_owned());
        }
        if self.run.borrow().is_some() {
            return AgentReply::Accepted;
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
            Ok(Ok(())) => AgentReply::Accepted,
            Ok(Err(reason)) => AgentReply::Refused(reason),
            Err(_) => AgentReply::Refused("it ended".to_owned()),
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
        let fetched = within(FETCH_TIMEOUT, self.fetch(&current.id, share)).await;
        let load = match fetched.unwrap_or_else(|| Err("the load does not arrive".to_owned())) {
            Ok(load) => load,
            Err(reason) => {
                let _ = prepared.send(Err(reason));
                return;
            }
        };
        let clock = self.options.clock;
        let (ready, mut readiness) = mpsc::unbounded_channel();
        let lease = Arc::new(AtomicI64::new(lease_from(clock.now())));
        let stop = CancellationToken::new();
        // The load ends with this function, also where the agent is told to end.
        let _guard = stop.clone().drop_guard();
        let fault = Fault::none(stop.clone());
        let control =
            Arc::new(RunControl { clock, ready, starts, lease: Arc::clone(&lease), fault: fault.clone() });
        let (records, records_received) = mpsc::channel(RECORDS_MAX);
        let samples = match self.sample_file(current, &load) {
            Ok(samples) => samples,
            Err(reason) => {
                let _ = prepared.send(Err(reason));
                return;
            }
        };
        let observer = RecordObserver {
            records,
            fault: fault.clone(),
            warmup: load.plan.warmup(),
            start: Time::ZERO,
            seconds: 0,
            started: Arc::clone(&current.started),
            samples,
        };
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
            id: format!("{}/{}", current.id.as_str(), self.id),
        };
        // Aborted with this function.
        let mut publishing = JoinSet::new();
        publishing.spawn_local(publisher.clone().publish_seconds(records_received));
        let status_subject = subject.status(&current.id, &self.id);
        let mut status = AgentStatus::Alive { ready: None };
        let mut ticks = Ticks::every(ALIVE_INTERVAL);
        let mut is_told_to_stop = false;
        let result = loop {
            tokio::select! {
                biased;
                message = control_messages.next() => {
                    match message.map(|message| serde_json::from_slice(&message.payload)) {
                        Some(Ok(ControlMessage::Alive)) if clock.now() < lease.load(Relaxed) => {
                            lease.store(lease_from(clock.now()), Relaxed);
                        }
                        // It waited while this process was suspended.
                        Some(Ok(ControlMessage::Alive)) => fault.note(silence()),
                        Some(Ok(ControlMessage::Stop)) => {
                            is_told_to_stop = true;
                            stop.cancel();
                        }
                        Some(Err(_)) => {}
                        None => {
                            fault.note("its connection was closed, and it stopped");
                            break (&mut has_ended).await;
                        }
                    }
                }
                result = &mut has_ended => break result,
                Some(segment) = readiness.recv() => {
                    status = AgentStatus::Alive { ready: Some(segment) };
                    self.publish(&status_subject, &status).await;
                }
                () = ticks.tick() => {
                    if clock.now() >= lease.load(Relaxed) && !is_told_to_stop {
                        fault.note(silence());
                    }
                    self.publish(&status_subject, &status).await;
                }
            }
        };
        let fault = fault.take().filter(|_| !is_told_to_stop);
        let last = async {
            // The channel of seconds closes with the load.
            let _ = publishing.join_next().await;
            match result {
                Ok(Ok((seconds, end))) => {
                    publisher.publish(&RecordPart::End { seconds, end: Box::new(end), fault }).await;
                }
                Ok(Err(reason)) => self.publish(&status_subject, &AgentStatus::Failed { reason }).await,
                Err(_) => {
                    let reason = "its load panicked: this is a bug in Stockade".to_owned();
                    self.publish(&status_subject, &AgentStatus::Failed { reason }).await;
                }
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
        // Without a connection the coordinator finds out by itself.
        let _ = self.client.publish(subject.to_owned(), encoded(message)).await;
    }

    /// The file of `--out`. The error is the reason.
    fn sample_file(&self, current: &AgentRun, load: &LoadTest) -> Result<Option<SampleFile>, String> {
        let Some(folder) = &self.options.samples else { return Ok(None) };
        let run = current.id.as_str();
        let path = folder.join(format!("{run}-{}-{}.json", self.options.name, self.id));
        let file =
            File::create(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        let traffic = Arc::clone(&load.traffic);
        Ok(Some(SampleFile { id: run.to_owned(), traffic, file: Some(file), writer: None }))
    }

    /// The load of a run. The error is the reason.
    async fn fetch(&self, run: &RunId, share: Share) -> Result<LoadTest, String> {
        let store = self.jetstream.get_object_store(self.options.subject.loads_store()).await;
        let store = store.map_err(|error| reason(&error))?;
        let mut object = store.get(run.as_str()).await.map_err(|error| reason(&error))?;
        let mut bytes = Vec::new();
        let read = (&mut object).take(LOAD_BYTES_MAX + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| error.to_string())?;
        if bytes.len() as u64 > LOAD_BYTES_MAX {
            return Err("the load has more than 1 GiB".to_owned());
        }
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

/// The fault of an agent that stops by itself.
fn silence() -> String {
    format!("it heard nothing of the coordinator for {} s, and stopped", LOST_AFTER.as_secs_f64())
}

/// The machine, until it restarts; empty: unknown.
pub(crate) fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
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

    fn may_send(&self) -> bool {
        let may_send = self.clock.now() < self.lease.load(Relaxed);
        if !may_send {
            self.fault.note(silence());
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
