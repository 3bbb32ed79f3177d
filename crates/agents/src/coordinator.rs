//! The coordinator: it shares loads out among agents, and merges what they measured.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
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
use http::Uri;
use serde::de::DeserializeOwned;
use stockade_load::generator::{
    CancellationToken, LoadRunner, LoadTest, LoadTestError, LoadTestRun, Observer, ReadyLoad, Share,
    SummaryFold,
};
use stockade_model::{
    message::shown,
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
    agent::machine,
    clock::{AgentClock, ClockEstimate, Nanos, Ping},
    connection::{ConnectionError, ConnectionOptions, reason},
    roster::Roster,
    wait::{Ticks, pause, within},
    wire::{
        ALIVE_INTERVAL, AgentInfo, AgentReply, AgentRequest, AgentStatus, ControlMessage, RunId, Subject,
        VERSION, encoded, is_name,
    },
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
/// An agent that has not answered so many calls is gone.
const CALLS_MISSED_MAX: u64 = 2;
/// The largest weight of an agent.
const WEIGHT_MAX: u32 = 1_000;
/// For the answer to a request. Names of servers are looked up meanwhile.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the answer to other requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long agents may take to open their connections.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// From the message that starts a segment to its start.
const START_DELAY: Duration = Duration::from_millis(200);
/// A longer time between two passes is no silence of the agents.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The most characters of an agent's reason.
const REASON_CHARS_MAX: usize = 500;
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

    /// Why some agent cannot reach the servers of a load.
    fn misplaced(&self, load: &LoadTest) -> Option<String> {
        let own = machine();
        let other = self.agents.iter().find(|agent| agent.machine != own)?;
        let is_here = |host: &str| {
            let host = host.trim_matches(['[', ']']);
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        let urls = || load.traffic.templates().iter().map(|template| &template.url);
        let host = match &load.options.unix_socket {
            Some(path) => path.display().to_string(),
            None => urls().filter_map(Uri::host).find(|host| is_here(host))?.to_owned(),
        };
        Some(format!(
            "agent {} is on another machine, and {host} is a server of its own there: name the server by an address that all agents reach",
            other.name
        ))
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
    // With the call that it answered.
    let mut answered = BTreeMap::new();
    let mut calls = Ticks::every(CALL_INTERVAL);
    let (mut call, mut found, mut waited) = (0_u64, 0, Duration::ZERO);
    on_wait(Waiting { found, wanted: options.agents });
    loop {
        tokio::select! {
            Some(message) = answers.next() => {
                let Ok(agent) = serde_json::from_slice::<AgentInfo>(&message.payload) else { continue };
                if !is_name(&agent.name) || !is_name(&agent.id) || agent.weight.get() > WEIGHT_MAX {
                    continue;
                }
                let reason = unusable(&agent, options);
                answered.insert((agent.name.clone(), agent.id.clone()), (call, agent, reason));
            }
            () = calls.tick() => {
                // One that answered earlier may have ended since.
                answered.retain(|_, (at, ..)| *at + CALLS_MISSED_MAX >= call);
                if waited >= options.patience {
                    let others = answered.values().filter_map(|(_, agent, reason)| {
                        Some(format!("; agent {} {}", agent.name, shown(reason.as_ref()?)))
                    });
                    let (others, wanted) = (others.collect(), options.agents.unwrap_or(1));
                    let url = options.connection.url.to_string();
                    return Err(CoordinatorError::TooFew { found, wanted, waited, others, url });
                }
                (call, waited) = (call + 1, waited + CALL_INTERVAL);
                let call = client.publish_with_reply(options.subject.discover(), inbox.clone(), "".into());
                call.await.map_err(|error| closed(&error))?;
                client.flush().await.map_err(|error| closed(&error))?;
            }
        }
        let free = answered.values().filter(|(_, _, reason)| reason.is_none());
        let free: Vec<_> = free.map(|(_, agent, _)| agent.clone()).collect();
        if free.len() != found {
            found = free.len();
            on_wait(Waiting { found, wanted: options.agents });
        }
        match options.agents {
            Some(wanted) if found >= wanted => return Ok(distinct(free.into_iter().take(wanted))),
            None if found > 0 && waited >= LOOK_FOR => return Ok(distinct(free)),
            Some(_) | None => {}
        }
    }
}

/// Agents with names of their own: those that share one have a part of their id after it.
fn distinct(agents: impl IntoIterator<Item = AgentInfo>) -> Vec<AgentInfo> {
    let mut agents: Vec<AgentInfo> = agents.into_iter().collect();
    let names: Vec<_> = agents.iter().map(|agent| agent.name.clone()).collect();
    for agent in &mut agents {
        if names.iter().filter(|name| **name == agent.name).count() > 1 {
            agent.name = format!("{}-{}", agent.name, agent.id.get(..4).unwrap_or_default());
        }
    }
    agents
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
    request: &AgentRequest,
    wait: Duration,
) -> Result<AgentReply, String> {
    let reply = within(wait, client.request(subject, encoded(request))).await;
    let reply = reply.ok_or_else(|| format!("no answer within {}", format_duration(wait)))?;
    let reply = reply.map_err(|error| reason(&error))?;
    serde_json::from_slice(&reply.payload).map_err(|error| error.to_string())
}

/// A load that all agents have prepared.
struct AgentsLoad<'a> {
    coordinator: &'a Coordinator,
    load: &'a LoadTest,
    run: RunId,
    statuses: Subscriber,
    records: Ordered,
    clocks: Vec<ClockEstimate>,
    pings: mpsc::Receiver<(usize, Ping)>,
    /// Sends signs of life to the agents.
    signs_of_life: JoinSet<()>,
    /// Reads their clocks.
    _readers: JoinSet<()>,
}

/// The start of a load.
struct Start {
    /// By the coordinator's clock.
    at: Nanos,
    /// By the clock of each agent, as it was told.
    told: Vec<Nanos>,
}

impl<'a> AgentsLoad<'a> {
    async fn prepare(coordinator: &'a Coordinator, load: &'a LoadTest) -> Result<Self, CoordinatorError> {
        let Coordinator { client, jetstream, subject, agents, .. } = coordinator;
        if let Some(reason) = coordinator.misplaced(load) {
            return Err(CoordinatorError::Refused(vec![reason]));
        }
        let run = RunId::random();
        let unstored = |error: &dyn std::error::Error| CoordinatorError::Load(reason(error));
        let statuses = client.subscribe(subject.status(&run, "*")).await.map_err(|error| unstored(&error))?;
        let stream =
            jetstream.get_stream(subject.records_stream()).await.map_err(|error| unstored(&error))?;
        let config = OrderedConfig { filter_subject: subject.record(&run, "*"), ..OrderedConfig::default() };
        let consumer = stream.create_consumer(config).await.map_err(|error| unstored(&error))?;
        let records = consumer.messages().await.map_err(|error| unstored(&error))?;
        let mut signs_of_life = JoinSet::new();
        signs_of_life.spawn(send_signs_of_life(client.clone(), subject.control(&run)));
        // The load may have secrets: it is stored only until all agents have it.
        let bundle = numbered_for(load, agents).to_bundle().map_err(|error| unstored(&error))?;
        let store =
            jetstream.get_object_store(subject.loads_store()).await.map_err(|error| unstored(&error))?;
        let stored = store.put(run.as_str(), &mut bundle.as_slice()).await;
        let refused = match stored {
            Ok(_) => coordinator.hand_out(&run).await,
            Err(error) => vec![unstored(&error).to_string()],
        };
        let _ = within(REQUEST_TIMEOUT, store.delete(run.as_str())).await;
        if !refused.is_empty() {
            coordinator.stop(&run).await;
            return Err(CoordinatorError::Refused(refused));
        }
        let (read, pings) = mpsc::channel(1024);
        let mut readers = JoinSet::new();
        for (index, agent) in agents.iter().enumerate() {
            let subject = subject.agent(&agent.id);
            readers.spawn(read_clock(client.clone(), subject, coordinator.clock, index, read.clone()));
        }
        let clocks = vec![ClockEstimate::default(); agents.len()];
        Ok(Self {
            coordinator,
            load,
            run,
            statuses,
            records,
            clocks,
            pings,
            signs_of_life,
            _readers: readers,
        })
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.coordinator.clock.now()).unwrap_or_default())
    }

    /// The index of the agent whose id ends the subject, and its message.
    fn received<M: DeserializeOwned>(&self, message: &Message) -> Option<(usize, M)> {
        let id = message.subject.rsplit('.').next()?;
        let agent = self.coordinator.agents.iter().position(|agent| agent.id == id)?;
        Some((agent, serde_json::from_slice(&message.payload).ok()?))
    }

    async fn run(
        &mut self,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        let names = self.coordinator.agents.iter().map(|agent| agent.name.clone());
        let mut roster = Roster::new(names, self.now());
        let mut fold = None;
        let mut start = None;
        let (mut segment, mut waits_since) = (0, self.now());
        let mut stopped_at = None::<Duration>;
        let mut last_pass = self.now();
        let mut ticks = Ticks::every(CHECK_INTERVAL);
        while !roster.have_ended() {
            tokio::select! {
                Some(message) = self.statuses.next() => {
                    if let Some((agent, status)) = self.received(&message) {
                        roster.status(agent, status, self.now());
                    }
                }
                Some(Ok(message)) = self.records.next() => {
                    if let Some((agent, part)) = self.received(&message) {
                        roster.record(agent, part, self.now());
                    }
                }
                Some((agent, ping)) = self.pings.recv() => self.clocks[agent].add(ping),
                () = cancel.cancelled(), if stopped_at.is_none() => stopped_at = Some(self.now()),
                () = ticks.tick() => {}
            }
            if let Some(fold) = &mut fold {
                std::iter::from_fn(|| roster.next_second())
                    .for_each(|second| SummaryFold::second(fold, &second, observer));
            }
            // An observer may have taken long, or this process was suspended.
            let now = self.now();
            let pause = now.saturating_sub(last_pass);
            last_pass = now;
            if pause > PAUSE_MAX {
                roster.excuse(pause);
                continue;
            }
            roster.note_lost(now);
            if let Some(Start { at, .. }) = start {
                let began = Duration::from_nanos(u64::try_from(at).unwrap_or_default());
                roster.note_behind(now.saturating_sub(began));
            }
            let are_clocks_read = self.clocks.iter().all(|clock| clock.count() >= PINGS);
            let is_awaited = segment == 0 || roster.is_awaited(segment);
            if !is_awaited {
                waits_since = now;
            } else if now.saturating_sub(waits_since) > READY_TIMEOUT {
                roster.note_unready(segment);
                self.note_unread(&mut roster, now);
            }
            if roster.has_fault() {
                stopped_at.get_or_insert(now);
            }
            match stopped_at {
                None if roster.are_ready(segment) && are_clocks_read => {
                    let told = self.start_segment(segment, &mut roster).await;
                    if segment == 0 {
                        let mut summary = SummaryFold::new(self.load, time_of_day(told.at));
                        summary.start(Time::ZERO, observer);
                        (fold, start) = (Some(summary), Some(told));
                    }
                    segment += 1;
                }
                None => {}
                Some(at) if now.saturating_sub(at) > STOP_TIMEOUT => break,
                Some(_) => self.stop().await,
            }
        }
        let is_cancelled = cancel.is_cancelled() && !roster.has_fault();
        if roster.has_fault() || is_cancelled {
            self.stop().await;
        }
        self.last_readings().await;
        roster.note_missing();
        let mut fold =
            fold.unwrap_or_else(|| SummaryFold::new(self.load, time_of_day(self.coordinator.clock.now())));
        std::iter::from_fn(|| roster.next_partial_second()).for_each(|second| fold.second(&second, observer));
        let run = self.finish(&roster, fold, start.as_ref(), is_cancelled);
        self.remove_records().await;
        Ok(run)
    }

    /// Judges the clocks, and completes the summary.
    fn finish(
        &self,
        roster: &Roster,
        mut fold: SummaryFold,
        start: Option<&Start>,
        is_cancelled: bool,
    ) -> LoadTestRun {
        let agents = &self.coordinator.agents;
        let mut end = roster.end(is_cancelled);
        fold.add(&end.rest);
        let clocks: Vec<_> = (0..agents.len()).map(|agent| self.clock_at_start(agent, start?)).collect();
        let p99 = fold.summary().measured.times.response.quantile(0.99);
        for (agent, clock) in agents.iter().zip(&clocks) {
            if let Some(reason) = clock.and_then(|clock| uncertainty_reason(clock, p99)) {
                end.health.invalid_reasons.insert(0, format!("agent {}: {reason}", agent.name));
                end.health.time_reason_count += 1;
            }
        }
        let mut summary = fold.finish(&end);
        let figures =
            agents.iter().zip(roster.totals()).zip(clocks).map(|((agent, totals), clock)| AgentFigures {
                name: agent.name.clone(),
                requests: totals.requests,
                clock,
                cpu: totals.health.as_ref().map(|health| health.cpu_mean),
                steal: totals.health.and_then(|health| health.steal),
                send_lag: totals.send_lag,
            });
        summary.agents = figures.collect();
        LoadTestRun { summary, end }
    }

    /// The clock of an agent at the start. Its uncertainty bounds the error of the start that the agent was told.
    fn clock_at_start(&self, agent: usize, start: &Start) -> Option<AgentClockFigures> {
        let (clock, told) = (&self.clocks[agent], start.told.get(agent)?);
        let figures = clock.figures(start.at)?;
        let shift_ms = clock.to_agent(start.at)?.abs_diff(*told) as f64 / 1e6;
        Some(AgentClockFigures { uncertainty_ms: figures.uncertainty_ms + shift_ms, ..figures })
    }

    /// Tells all agents when the segment starts.
    async fn start_segment(&self, segment: usize, roster: &mut Roster) -> Start {
        let delay = Nanos::try_from(START_DELAY.as_nanos()).unwrap_or_default();
        let at = self.coordinator.clock.now().saturating_add(delay);
        let told: Vec<_> = self.clocks.iter().map(|clock| clock.to_agent(at).unwrap_or(at)).collect();
        let starts = self.coordinator.agents.iter().zip(&told).map(|(agent, told)| async move {
            let request =
                AgentRequest::Start { run: self.run.clone(), segment, at: *told, by_coordinator: at };
            self.coordinator.accepted(agent, &request, REQUEST_TIMEOUT).await.err()
        });
        let now = self.now();
        for (agent, reason) in join_all(starts).await.into_iter().enumerate() {
            if let Some(reason) = reason
                && !roster.has_ended(agent)
            {
                roster.status(agent, AgentStatus::Failed { reason }, now);
            }
        }
        Start { at, told }
    }

    /// Notes agents whose clocks are not known.
    fn note_unread(&self, roster: &mut Roster, now: Duration) {
        for (agent, clock) in self.clocks.iter().enumerate() {
            if clock.count() < PINGS {
                let reason = "its clock does not answer".to_owned();
                roster.status(agent, AgentStatus::Failed { reason }, now);
            }
        }
    }

    /// Ends the load everywhere.
    async fn stop(&mut self) {
        self.signs_of_life.abort_all();
        self.coordinator.stop(&self.run).await;
    }

    /// Reads the clocks once more, with the load over.
    async fn last_readings(&mut self) {
        let (pings, clocks) = (&mut self.pings, &mut self.clocks);
        let reading = async {
            while let Some((agent, ping)) = pings.recv().await {
                clocks[agent].add(ping);
            }
        };
        let _ = within(2 * PING_INTERVAL, reading).await;
    }

    /// The records expire if that fails.
    async fn remove_records(&self) {
        let Coordinator { jetstream, subject, .. } = self.coordinator;
        let removing = async {
            if let Ok(stream) = jetstream.get_stream(subject.records_stream()).await {
                let _ = stream.purge().filter(subject.record(&self.run, "*")).await;
            }
        };
        let _ = within(REQUEST_TIMEOUT, removing).await;
    }
}

impl Coordinator {
    /// Hands the stored load to all agents. Returns the reasons of those that refuse it.
    async fn hand_out(&self, run: &RunId) -> Vec<String> {
        let prepare = |(agent, share)| async move {
            let request = AgentRequest::Prepare { run: run.clone(), share };
            let accepted = self.accepted(agent, &request, PREPARE_TIMEOUT).await;
            accepted.err().map(|reason| format!("agent {}: {reason}", agent.name))
        };
        join_all(self.agents.iter().zip(shares(&self.agents)).map(prepare))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// The error is the reason.
    async fn accepted(
        &self,
        agent: &AgentInfo,
        request: &AgentRequest,
        wait: Duration,
    ) -> Result<(), String> {
        match request_of(&self.client, self.subject.agent(&agent.id), request, wait).await {
            Ok(AgentReply::Accepted) => Ok(()),
            Ok(AgentReply::Refused(reason)) => Err(reason_of_agent(&reason)),
            Ok(AgentReply::Clock(_)) => Err("it has another version".to_owned()),
            Err(reason) => Err(reason),
        }
    }

    /// Ends a load everywhere. Repeated while agents have not ended: a message may be lost.
    async fn stop(&self, run: &RunId) {
        let stop = async {
            let _ = self.client.publish(self.subject.control(run), encoded(&ControlMessage::Stop)).await;
            let _ = self.client.flush().await;
        };
        let _ = within(CHECK_INTERVAL, stop).await;
    }
}

/// Without control characters, which a terminal would obey.
fn reason_of_agent(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
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

/// Each agent may send for a while after it.
async fn send_signs_of_life(client: Client, subject: String) {
    let mut ticks = Ticks::every(ALIVE_INTERVAL);
    loop {
        ticks.tick().await;
        let _ = client.publish(subject.clone(), encoded(&ControlMessage::Alive)).await;
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
        if let Ok(AgentReply::Clock(shown)) =
            request_of(&client, subject.clone(), &AgentRequest::Clock, REQUEST_TIMEOUT).await
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
