//! The coordinator: it shares loads out among agents, and merges what they measured.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroU32,
    time::{Duration, SystemTime},
};

use async_nats::{
    Client, Message, Subscriber,
    jetstream::{
        self, Context as JetStream,
        consumer::pull::{Ordered, OrderedConfig},
        object_store, stream,
    },
};
use futures_util::{StreamExt, future::join_all};
use rand::random;
use stockade_load::generator::{
    CancellationToken, LoadRunner, LoadTest, LoadTestError, LoadTestRun, Observer, ReadyLoad, Share,
    SummaryFold,
};
use stockade_model::{
    record::{AgentClockFigures, AgentFigures},
    time::Time,
    units::format_duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    clock::{AgentClock, ClockEstimate, Nanos, Ping},
    connection::{ConnectionError, ConnectionOptions, reason},
    roster::Roster,
    wait::{Ticks, pause, within},
    wire::{ALIVE_INTERVAL, AgentInfo, ControlMessage, Record, Reply, Request, Status, Subject, VERSION},
};

/// Which agents are used.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// How to reach NATS.
    pub connection: ConnectionOptions,
    /// The first part of all subjects, which agents name as well.
    pub subject: Subject,
    /// So many agents; `None`: those that are there.
    pub agents: Option<usize>,
    /// Only agents with all of these labels.
    pub labels: Vec<String>,
    /// How long agents are awaited.
    pub patience: Duration,
}

/// The agents that are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Agents that are free.
    pub found: usize,
    /// `None`: at least one.
    pub wanted: Option<usize>,
}

/// Loads cannot be run on agents.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// NATS cannot be reached or used.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Not enough agents are free.
    #[error("{found} of {wanted} agents are free after {} s{others}; start more: stockade agent --nats {url}", waited.as_secs())]
    TooFew {
        /// Agents that are free.
        found: usize,
        /// Agents that are needed.
        wanted: usize,
        /// How long they were awaited.
        waited: Duration,
        /// The agents that cannot be used, and why.
        others: String,
        /// The server.
        url: String,
    },
    /// The wait for agents was interrupted.
    #[error("interrupted while agents were awaited")]
    Interrupted,
    /// The load cannot be stored for the agents.
    #[error("cannot hand the load to the agents: {0}")]
    Load(String),
    /// Agents refused the load.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
}

/// How long agents are looked for where their number is not given.
const LOOK_FOR: Duration = Duration::from_secs(1);
/// Between two calls for agents.
const CALL_INTERVAL: Duration = Duration::from_millis(200);
/// For the answer to a request. Names of servers are looked up meanwhile.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the answer to other requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long agents may take to open their connections.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// From the message that starts a segment to its start.
const START_DELAY: Duration = Duration::from_millis(200);
/// Between two looks at the agents of a load.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long agents may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The readings of each clock before and after a load, and between two of them during it.
const PINGS: usize = 40;
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// The allowed uncertainty of a clock, and as a share of the response p99.
const UNCERTAINTY_MAX: Duration = Duration::from_millis(1);
const UNCERTAINTY_SHARE: f64 = 0.1;
/// Records are kept for so long, if the coordinator does not remove them.
const RECORDS_MAX_AGE: Duration = Duration::from_hours(1);
/// The most bytes of all records that are kept.
const RECORDS_MAX_BYTES: i64 = 256 << 20;

/// Runs loads on agents.
pub struct Coordinator {
    runtime: Runtime,
    client: Client,
    jetstream: JetStream,
    subject: Subject,
    clock: AgentClock,
    agents: Vec<AgentInfo>,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Connects, and waits for agents. `on_wait` receives their number whenever it changes.
    pub fn connect(
        options: &CoordinatorOptions,
        cancel: &CancellationToken,
        mut on_wait: impl FnMut(Waiting),
    ) -> Result<Self, CoordinatorError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("agents")
            .enable_all()
            .build()
            .map_err(ConnectionError::Thread)?;
        let (client, jetstream, agents) = runtime.block_on(async {
            let client = options.connection.connect("stockade coordinator").await?;
            let jetstream = jetstream::new(client.clone());
            create_stores(&jetstream, &options.subject).await.map_err(|reason| ConnectionError::Store {
                url: options.connection.url.to_string(),
                reason,
            })?;
            let finding = find_agents(&client, options, &mut on_wait);
            let agents = tokio::select! {
                () = cancel.cancelled() => Err(CoordinatorError::Interrupted),
                agents = finding => agents,
            };
            Ok::<_, CoordinatorError>((client, jetstream, agents?))
        })?;
        let subject = options.subject.clone();
        Ok(Self { runtime, client, jetstream, subject, clock: AgentClock::new(), agents })
    }

    /// The agents that it uses.
    #[must_use]
    pub fn agents(&self) -> &[AgentInfo] {
        &self.agents
    }

    async fn request(&self, agent: &AgentInfo, request: &Request, wait: Duration) -> Result<Reply, String> {
        request_of(&self.client, self.subject.agent(&agent.id), request, wait).await
    }

    async fn publish(&self, run: &str, message: ControlMessage) {
        let _ = publish_control(&self.client, self.subject.control(run), message).await;
    }
}

impl LoadRunner for Coordinator {
    fn prepare<'a>(&'a self, load: &'a LoadTest) -> Result<Box<dyn ReadyLoad + 'a>, LoadTestError> {
        let prepared = self.runtime.block_on(AgentsLoad::prepare(self, load));
        prepared
            .map(|ready| Box::new(ready) as Box<dyn ReadyLoad>)
            .map_err(|error| LoadTestError::Agents(error.into()))
    }
}

/// The stream of records and the store of loads. The error is the reason.
async fn create_stores(jetstream: &JetStream, subject: &Subject) -> Result<(), String> {
    let records = stream::Config {
        name: subject.records_stream(),
        subjects: vec![subject.all_records()],
        max_age: RECORDS_MAX_AGE,
        max_bytes: RECORDS_MAX_BYTES,
        ..stream::Config::default()
    };
    jetstream.get_or_create_stream(records).await.map_err(|error| reason(&error))?;
    let bucket = subject.loads_store();
    if jetstream.get_object_store(&bucket).await.is_ok() {
        return Ok(());
    }
    let config = object_store::Config { bucket, max_age: RECORDS_MAX_AGE, ..object_store::Config::default() };
    jetstream.create_object_store(config).await.map(drop).map_err(|error| reason(&error))
}

/// Calls for agents until there are enough.
async fn find_agents(
    client: &Client,
    options: &CoordinatorOptions,
    on_wait: &mut impl FnMut(Waiting),
) -> Result<Vec<AgentInfo>, CoordinatorError> {
    let closed = |error: &dyn std::error::Error| ConnectionError::Unreachable {
        url: options.connection.url.to_string(),
        reason: reason(error),
    };
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| closed(&error))?;
    let (mut free, mut others) = (BTreeMap::new(), BTreeMap::new());
    let mut calls = Ticks::every(CALL_INTERVAL);
    let mut waited = Duration::ZERO;
    on_wait(Waiting { found: 0, wanted: options.agents });
    loop {
        tokio::select! {
            Some(message) = answers.next() => {
                let Ok(agent) = serde_json::from_slice::<AgentInfo>(&message.payload) else { continue };
                let found = free.len();
                match unusable(&agent, options) {
                    Some(reason) => drop(others.insert(agent.id, format!("agent {} {reason}", agent.name))),
                    None => {
                        others.remove(&agent.id);
                        free.insert((agent.name.clone(), agent.id.clone()), agent);
                    }
                }
                if free.len() != found {
                    on_wait(Waiting { found: free.len(), wanted: options.agents });
                }
                if options.agents == Some(free.len()) {
                    break;
                }
            }
            () = calls.tick() => {
                if options.agents.is_none() && waited >= LOOK_FOR && !free.is_empty() {
                    break;
                }
                if waited >= options.patience {
                    let others = others.values().fold(String::new(), |text, other| text + "; " + other);
                    let (found, wanted) = (free.len(), options.agents.unwrap_or(1));
                    let url = options.connection.url.to_string();
                    return Err(CoordinatorError::TooFew { found, wanted, waited, others, url });
                }
                waited += CALL_INTERVAL;
                let call = client.publish_with_reply(options.subject.discover(), inbox.clone(), "".into());
                call.await.map_err(|error| closed(&error))?;
                client.flush().await.map_err(|error| closed(&error))?;
            }
        }
    }
    Ok(free.into_values().collect())
}

/// Why an agent cannot be used.
fn unusable(agent: &AgentInfo, options: &CoordinatorOptions) -> Option<String> {
    if agent.version != VERSION {
        return Some(format!("has version {}, this is {VERSION}", agent.version));
    }
    if let Some(label) = options.labels.iter().find(|label| !agent.labels.contains(label)) {
        return Some(format!("has no label {label}"));
    }
    agent.is_busy.then(|| "is busy".to_owned())
}

/// The error is the reason.
async fn request_of(
    client: &Client,
    subject: String,
    request: &Request,
    wait: Duration,
) -> Result<Reply, String> {
    let bytes = serde_json::to_vec(request).expect("plain values");
    let reply = within(wait, client.request(subject, bytes.into())).await;
    let reply = reply.ok_or_else(|| format!("no answer within {}", format_duration(wait)))?;
    let reply = reply.map_err(|error| reason(&error))?;
    serde_json::from_slice(&reply.payload).map_err(|error| error.to_string())
}

async fn publish_control(
    client: &Client,
    subject: String,
    message: ControlMessage,
) -> Result<(), async_nats::PublishError> {
    let bytes = serde_json::to_vec(&message).expect("plain values");
    client.publish(subject, bytes.into()).await
}

/// A load that all agents have prepared.
struct AgentsLoad<'a> {
    coordinator: &'a Coordinator,
    load: &'a LoadTest,
    run: String,
    statuses: Subscriber,
    records: Ordered,
    clocks: Vec<ClockEstimate>,
    /// Sends signs of life, and reads the clocks.
    _tasks: JoinSet<()>,
    pings: mpsc::Receiver<(usize, Ping)>,
}

impl<'a> AgentsLoad<'a> {
    async fn prepare(coordinator: &'a Coordinator, load: &'a LoadTest) -> Result<Self, CoordinatorError> {
        let Coordinator { client, jetstream, subject, agents, .. } = coordinator;
        let run = format!("{:016x}", random::<u64>());
        let unstored = |error: &dyn std::error::Error| CoordinatorError::Load(reason(error));
        let shares = shares(agents);
        let bundle = numbered_for(load, agents).to_bundle().map_err(|error| unstored(&error))?;
        let store =
            jetstream.get_object_store(subject.loads_store()).await.map_err(|error| unstored(&error))?;
        store.put(run.as_str(), &mut bundle.as_slice()).await.map_err(|error| unstored(&error))?;
        let statuses = client.subscribe(subject.status(&run, "*")).await.map_err(|error| unstored(&error))?;
        let stream =
            jetstream.get_stream(subject.records_stream()).await.map_err(|error| unstored(&error))?;
        let config = OrderedConfig { filter_subject: subject.record(&run, "*"), ..OrderedConfig::default() };
        let consumer = stream.create_consumer(config).await.map_err(|error| unstored(&error))?;
        let records = consumer.messages().await.map_err(|error| unstored(&error))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(send_signs_of_life(client.clone(), subject.control(&run)));
        let prepare = |(agent, share): (&'a AgentInfo, Share)| {
            let request = Request::Prepare { run: run.clone(), share };
            async move {
                match coordinator.request(agent, &request, PREPARE_TIMEOUT).await {
                    Ok(Reply::Accepted) => None,
                    Ok(Reply::Refused(reason)) | Err(reason) => {
                        Some(format!("agent {}: {reason}", agent.name))
                    }
                    Ok(Reply::Clock(_)) => Some(format!("agent {}: it has another version", agent.name)),
                }
            }
        };
        let refused: Vec<_> =
            join_all(agents.iter().zip(shares).map(prepare)).await.into_iter().flatten().collect();
        if !refused.is_empty() {
            coordinator.publish(&run, ControlMessage::Stop).await;
            let _ = client.flush().await;
            let _ = store.delete(&run).await;
            return Err(CoordinatorError::Refused(refused));
        }
        let (read, pings) = mpsc::channel(1024);
        for (index, agent) in agents.iter().enumerate() {
            let subject = subject.agent(&agent.id);
            tasks.spawn(read_clock(client.clone(), subject, coordinator.clock, index, read.clone()));
        }
        let clocks = vec![ClockEstimate::default(); agents.len()];
        Ok(Self { coordinator, load, run, statuses, records, clocks, _tasks: tasks, pings })
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.coordinator.clock.now()).unwrap_or_default())
    }

    /// The index of the agent whose id ends the subject.
    fn sender(&self, message: &Message) -> Option<usize> {
        let id = message.subject.rsplit('.').next()?;
        self.coordinator.agents.iter().position(|agent| agent.id == id)
    }

    async fn run(
        &mut self,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        let names = self.coordinator.agents.iter().map(|agent| agent.name.clone());
        let mut roster = Roster::new(names, self.now());
        let mut fold = SummaryFold::new(self.load);
        let began = self.now();
        // The number of the next segment to start, the start of the first one, and when the agents were told to stop.
        let (mut segment, mut start, mut stopped_at) = (0, None, None::<Duration>);
        let mut ticks = Ticks::every(CHECK_INTERVAL);
        while !roster.have_ended() {
            tokio::select! {
                Some(message) = self.statuses.next() => {
                    if let (Some(agent), Ok(status)) = (self.sender(&message), serde_json::from_slice::<Status>(&message.payload)) {
                        roster.status(agent, status, self.now());
                    }
                }
                Some(Ok(message)) = self.records.next() => {
                    if let (Some(agent), Ok(record)) = (self.sender(&message), serde_json::from_slice::<Record>(&message.payload)) {
                        roster.record(agent, record, self.now());
                        while let Some(second) = roster.next_second() {
                            fold.second(&second, observer);
                        }
                    }
                }
                Some((agent, ping)) = self.pings.recv() => self.clocks[agent].add(ping),
                () = cancel.cancelled(), if stopped_at.is_none() => stopped_at = Some(self.now()),
                () = ticks.tick() => {}
            }
            let now = self.now();
            roster.note_lost(now);
            let are_clocks_read = self.clocks.iter().all(|clock| clock.count() >= PINGS);
            if start.is_none() && now.saturating_sub(began) > READY_TIMEOUT {
                roster.note_unready(segment);
            }
            if roster.has_fault() {
                stopped_at.get_or_insert(now);
            }
            match stopped_at {
                None if roster.are_ready(segment) && are_clocks_read => {
                    let at = self.start_segment(segment, &mut roster).await;
                    if segment == 0 {
                        start = Some(at);
                        fold.start(time_of_day(at), Time::ZERO, observer);
                    }
                    segment += 1;
                }
                None => {}
                Some(at) if now.saturating_sub(at) > STOP_TIMEOUT => break,
                // Repeated: a message may be lost.
                Some(_) => self.coordinator.publish(&self.run, ControlMessage::Stop).await,
            }
        }
        // The last readings, with the load over.
        self.drain_pings().await;
        roster.note_missing();
        while let Some(second) = roster.next_partial_second() {
            fold.second(&second, observer);
        }
        let mut end = roster.end(stopped_at.is_some());
        fold.add(&end.rest);
        let clocks: Vec<_> =
            self.clocks.iter().map(|clock| start.and_then(|start| clock.figures(start))).collect();
        let p99 = fold.summary().measured.times.response.quantile(0.99);
        let uncertain = self.coordinator.agents.iter().zip(&clocks).filter_map(|(agent, clock)| {
            Some(format!("agent {}: {}", agent.name, uncertainty_reason((*clock)?, p99)?))
        });
        for reason in uncertain.collect::<Vec<_>>() {
            end.health.invalid_reasons.insert(0, reason);
            end.health.time_reason_count += 1;
        }
        let mut summary = fold.finish(&end);
        summary.agents = self
            .coordinator
            .agents
            .iter()
            .zip(roster.totals())
            .zip(clocks)
            .map(|((agent, totals), clock)| AgentFigures {
                name: agent.name.clone(),
                requests: totals.requests,
                clock,
                cpu: totals.health.as_ref().map(|health| health.cpu_mean),
                steal: totals.health.and_then(|health| health.steal),
                send_lag: totals.send_lag,
            })
            .collect();
        self.clean_up().await;
        Ok(LoadTestRun { summary, end })
    }

    /// Tells all agents when the segment starts; returns that time.
    async fn start_segment(&self, segment: usize, roster: &mut Roster) -> Nanos {
        let delay = Nanos::try_from(START_DELAY.as_nanos()).unwrap_or_default();
        let at = self.coordinator.clock.now() + delay;
        let starts = self.coordinator.agents.iter().zip(&self.clocks).map(|(agent, clock)| async move {
            let Some(mapped) = clock.to_agent(at) else {
                return Some("no reading of its clock arrived".to_owned());
            };
            let request = Request::Start { run: self.run.clone(), segment, at: mapped, by_coordinator: at };
            match self.coordinator.request(agent, &request, REQUEST_TIMEOUT).await {
                Ok(Reply::Accepted) => None,
                Ok(Reply::Refused(reason)) | Err(reason) => Some(reason),
                Ok(Reply::Clock(_)) => Some("it has another version".to_owned()),
            }
        });
        let now = self.now();
        for (agent, reason) in join_all(starts).await.into_iter().enumerate() {
            if let Some(reason) = reason {
                roster.status(agent, Status::Failed { reason }, now);
            }
        }
        at
    }

    async fn drain_pings(&mut self) {
        let last = async {
            loop {
                if let Some((agent, ping)) = self.pings.recv().await {
                    self.clocks[agent].add(ping);
                }
            }
        };
        let _ = within(2 * PING_INTERVAL, last).await;
    }

    /// Removes the load and the records. They expire if that fails.
    async fn clean_up(&self) {
        let Coordinator { jetstream, subject, .. } = self.coordinator;
        let removing = async {
            if let Ok(store) = jetstream.get_object_store(subject.loads_store()).await {
                let _ = store.delete(&self.run).await;
            }
            if let Ok(stream) = jetstream.get_stream(subject.records_stream()).await {
                let _ = stream.purge().filter(subject.record(&self.run, "*")).await;
            }
        };
        let _ = within(REQUEST_TIMEOUT, removing).await;
    }
}

impl ReadyLoad for AgentsLoad<'_> {
    fn run(
        mut self: Box<Self>,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        let coordinator = self.coordinator;
        let ran = coordinator.runtime.block_on(AgentsLoad::run(&mut self, observer, cancel));
        // The tasks end within the runtime.
        let _guard = coordinator.runtime.enter();
        drop(self);
        ran
    }
}

fn time_of_day(nanos: Nanos) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

/// The weights of the agents, divided by their greatest common divisor.
fn weights(agents: &[AgentInfo]) -> Vec<NonZeroU32> {
    let gcd = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let common = agents.iter().map(|agent| agent.weight.get()).fold(0, gcd).max(1);
    agents.iter().filter_map(|agent| NonZeroU32::new(agent.weight.get() / common)).collect()
}

fn shares(agents: &[AgentInfo]) -> Vec<Share> {
    Share::by_weight(&weights(agents))
}

/// The load with a number of its first request that is the first of a round over all agents.
fn numbered_for(load: &LoadTest, agents: &[AgentInfo]) -> LoadTest {
    let round = weights(agents).iter().map(|weight| u64::from(weight.get())).sum();
    LoadTest { first_request: load.first_request.next_multiple_of(round), ..load.clone() }
}

/// Why a clock is not known well enough for times with this p99.
fn uncertainty_reason(clock: AgentClockFigures, p99: Option<Duration>) -> Option<String> {
    let uncertainty = Duration::from_secs_f64(clock.uncertainty_ms / 1e3);
    let allowed = p99.map_or(UNCERTAINTY_MAX, |p99| p99.mul_f64(UNCERTAINTY_SHARE).min(UNCERTAINTY_MAX));
    (uncertainty > allowed).then(|| {
        format!(
            "its clock is known to {}, and {} would be enough{}: use a NATS server that is nearer",
            format_duration(uncertainty),
            format_duration(allowed),
            p99.map(|p99| format!(" for a response p99 of {}", format_duration(p99))).unwrap_or_default()
        )
    })
}

async fn send_signs_of_life(client: Client, subject: String) {
    let mut ticks = Ticks::every(ALIVE_INTERVAL);
    loop {
        ticks.tick().await;
        let _ = publish_control(&client, subject.clone(), ControlMessage::Alive).await;
    }
}

/// Reads the clock of an agent, often at first.
async fn read_clock(
    client: Client,
    subject: String,
    clock: AgentClock,
    agent: usize,
    to: mpsc::Sender<(usize, Ping)>,
) {
    for count in 0_usize.. {
        let sent = clock.now();
        if let Ok(Reply::Clock(shown)) =
            request_of(&client, subject.clone(), &Request::Clock, REQUEST_TIMEOUT).await
        {
            let ping = Ping { sent, agent: shown, received: clock.now() };
            if to.send((agent, ping)).await.is_err() {
                return;
            }
        }
        if count >= PINGS {
            pause(PING_INTERVAL).await;
        }
    }
}
