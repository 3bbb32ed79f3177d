//! The coordinator: it finds agents, and hands loads to them.

mod load;
mod servers;

use std::{collections::BTreeMap, fmt, net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

use async_nats::{
    Client, RequestErrorKind,
    jetstream::{self, Context as JetStream, object_store, stream},
};
use futures_util::{StreamExt, future::join_all};
use http::Uri;
use stockade_load::generator::{CancellationToken, LoadRunner, LoadTest, LoadTestError, ReadyLoad, Share};
use stockade_model::{
    message::{shown, shown_to},
    units::{format_duration, greatest_common_divisor},
};
use stockade_record::record::Role;
use tokio::runtime::{Builder, Runtime};

use self::{
    load::AgentsLoad,
    servers::{AgentMachine, ServerSession},
};
use crate::{
    agent::machine,
    clock::AgentClock,
    connection::{ConnectionError, ConnectionOptions, reason},
    wait::{Ticks, within},
    wire::{
        ALIVE_INTERVAL, AgentInfo, AgentReply, AgentRequest, ControlMessage, RunId, SubjectPrefix, VERSION,
        encoded, is_name,
    },
};

/// The choice of agents, and how they are reached.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// How to reach NATS.
    pub connection: ConnectionOptions,
    /// The first part of all subjects, which agents name as well.
    pub subject: SubjectPrefix,
    /// Number of agents; `None`: those that are there.
    pub agents: Option<usize>,
    /// Only agents with all of these labels.
    pub labels: Vec<String>,
    /// The roles of servers that agents run, and the label of each agent.
    pub server_labels: BTreeMap<Role, String>,
    /// How long agents are awaited.
    pub agents_wait: Duration,
    /// Moves a part of the share of an agent that is late to the others.
    pub moves_late_shares: bool,
}

/// The agents that are awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Agents that are free.
    pub found: usize,
    /// `None`: at least one.
    pub wanted: Option<usize>,
    /// Servers that no agent is free for.
    pub servers: Vec<Role>,
}

/// Loads cannot be run on agents.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// NATS cannot be reached or used.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Not enough agents are free.
    #[error("{found} of {wanted} agents are free after {} s{others}; start more: stockade agent --nats {url}{labels}", waited.as_secs())]
    TooFew {
        /// Agents that are free.
        found: usize,
        /// Agents that are needed.
        wanted: usize,
        /// How long they were awaited.
        waited: Duration,
        /// The agents that cannot be used, and why.
        others: String,
        /// The server, and the first part of the subjects.
        url: String,
        /// Their labels, as arguments.
        labels: String,
    },
    /// No agent is free for a server.
    #[error("no agent with --serve and the label {label} is free for the {} after {} s{others}; \
     start one: stockade agent --nats {url} --serve ADDRESS --label {label}", role.name(), waited.as_secs())]
    NoServerAgent {
        /// The role of the server.
        role: Role,
        /// The label of its agent.
        label: String,
        /// How long it was awaited.
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
/// An agent that has missed more calls than this is gone.
const CALLS_MISSED_MAX: u64 = 2;
/// The largest weight of an agent.
const WEIGHT_MAX: u32 = 1_000;
/// For the answer to the request to prepare a load. Names of servers are looked up meanwhile.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the answer to a start, a move or a reading of the clock, and for a removal from the stores.
const SHORT_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The most characters of an agent's reason.
const REASON_CHARS_MAX: usize = 500;
/// Between two looks at the agents of a load.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A longer time between two passes does not count as silence of the agents.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Records are kept for so long, if the coordinator does not remove them.
const RECORDS_MAX_AGE: Duration = Duration::from_hours(1);
/// The most bytes of all records that are kept.
const RECORDS_MAX_BYTES: i64 = 256 << 20;

/// Runs loads on agents.
pub struct Coordinator {
    runtime: Runtime,
    client: Client,
    jetstream: JetStream,
    subject: SubjectPrefix,
    clock: AgentClock,
    agents: Vec<AgentInfo>,
    /// The agents that run servers.
    servers: Vec<(Role, AgentMachine)>,
    moves_late_shares: bool,
}

/// The agents of a coordinator.
struct FoundAgents {
    /// The agents that send the load, by name.
    load: Vec<AgentInfo>,
    /// The agent of each server.
    servers: Vec<(Role, AgentInfo)>,
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
        let (client, jetstream, agents, servers) = runtime.block_on(async {
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
            let FoundAgents { load, servers } = agents?;
            let servers = if servers.is_empty() {
                Vec::new()
            } else {
                let session = ServerSession::start(&client, &options.subject, runtime.handle().clone()).await;
                let session = session.map_err(|error| disconnected(options, &error))?;
                let session = Arc::new(session);
                servers.into_iter().map(|(role, agent)| (role, AgentMachine::new(&session, agent))).collect()
            };
            Ok::<_, CoordinatorError>((client, jetstream, load, servers))
        })?;
        let subject = options.subject.clone();
        let (clock, moves_late_shares) = (AgentClock::new(), options.moves_late_shares);
        Ok(Self { runtime, client, jetstream, subject, clock, agents, servers, moves_late_shares })
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
        let urls = || load.traffic.templates().iter().map(|template| &template.url);
        let host = match &load.options.unix_socket {
            Some(path) => path.display().to_string(),
            None => urls().filter_map(Uri::host).find(|host| is_loopback(host))?.to_owned(),
        };
        Some(format!(
            "agent {} is on another machine, and {host} is a server of its own there: name the server by an address that all agents reach",
            other.name
        ))
    }
}

/// True if each machine has a server of its own with this name or address.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl LoadRunner for Coordinator {
    fn is_this_process(&self) -> bool {
        false
    }

    fn prepare<'a>(&'a self, load: &'a LoadTest) -> Result<Box<dyn ReadyLoad + 'a>, LoadTestError> {
        let prepared = self.runtime.block_on(AgentsLoad::prepare(self, load));
        prepared
            .map(|ready| Box::new(ready) as Box<dyn ReadyLoad>)
            .map_err(|error| LoadTestError::Agents(error.into()))
    }
}

/// The stream of records and the store of loads. The error is the reason.
async fn create_stores(jetstream: &JetStream, subject: &SubjectPrefix) -> Result<(), String> {
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

fn disconnected(options: &CoordinatorOptions, error: &dyn std::error::Error) -> ConnectionError {
    ConnectionError::Unreachable { url: options.connection.url.to_string(), reason: reason(error) }
}

/// Calls for agents until there are enough.
async fn find_agents(
    client: &Client,
    options: &CoordinatorOptions,
    on_wait: &mut impl FnMut(Waiting),
) -> Result<FoundAgents, CoordinatorError> {
    let closed = |error: &dyn std::error::Error| disconnected(options, error);
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| closed(&error))?;
    // With the call that it answered.
    let mut answered = BTreeMap::new();
    let mut calls = Ticks::every(CALL_INTERVAL);
    let (mut call, mut last, mut waited) = (0_u64, None, Duration::ZERO);
    // The choice among more agents than are needed does not depend on the first to answer.
    let has_choice = options.agents.is_none() || !options.server_labels.is_empty();
    let look_for = if has_choice { LOOK_FOR.min(options.agents_wait) } else { Duration::ZERO };
    loop {
        let found = FoundAgents::among(&answered.values().map(|(_, agent)| agent), options);
        let waiting = found.waiting(options);
        let is_enough = waiting.found >= options.agents.unwrap_or(1) && waited >= look_for;
        if is_enough && waiting.servers.is_empty() {
            return Ok(found.distinct(options.agents));
        }
        if last.as_ref() != Some(&waiting) {
            on_wait(waiting.clone());
            last = Some(waiting);
        }
        tokio::select! {
            Some(message) = answers.next() => {
                let Ok(agent) = serde_json::from_slice::<AgentInfo>(&message.payload) else { continue };
                if is_name(&agent.name) && is_name(&agent.id) && agent.weight.get() <= WEIGHT_MAX {
                    answered.insert((agent.name.clone(), agent.id.clone()), (call, agent));
                }
            }
            () = calls.tick() => {
                // One that answered earlier may have ended since.
                answered.retain(|_, (at, _)| *at + CALLS_MISSED_MAX >= call);
                if waited >= options.agents_wait {
                    return Err(too_few(answered.values().map(|(_, agent)| agent), options, waited));
                }
                (call, waited) = (call + 1, waited + CALL_INTERVAL);
                let call = client.publish_with_reply(options.subject.discover(), inbox.clone(), "".into());
                call.await.map_err(|error| closed(&error))?;
                client.flush().await.map_err(|error| closed(&error))?;
            }
        }
    }
}

impl FoundAgents {
    /// The agents that are free, in the order of their names.
    fn among<'a>(
        agents: &(impl Iterator<Item = &'a AgentInfo> + Clone),
        options: &CoordinatorOptions,
    ) -> Self {
        let load = agents.clone().filter(|agent| unusable(agent, None, options).is_none()).cloned().collect();
        let mut servers: Vec<(Role, AgentInfo)> = Vec::new();
        let free_for =
            |role| agents.clone().filter(move |agent| unusable(agent, Some(role), options).is_none());
        let mut roles: Vec<Role> = options.server_labels.keys().copied().collect();
        // The one with the fewest agents has the first choice.
        roles.sort_by_key(|role| free_for(*role).count());
        for role in roles {
            // Rather one that runs no other server.
            let is_other = |agent: &&AgentInfo| servers.iter().all(|(_, of)| of.id != agent.id);
            let free = free_for(role).find(is_other).or_else(|| free_for(role).next());
            servers.extend(free.map(|agent| (role, agent.clone())));
        }
        Self { load, servers }
    }

    fn waiting(&self, options: &CoordinatorOptions) -> Waiting {
        let has_agent = |role: &Role| self.servers.iter().any(|(of, _)| of == role);
        let servers = options.server_labels.keys().copied().filter(|role| !has_agent(role)).collect();
        Waiting { found: self.load.len(), wanted: options.agents, servers }
    }

    /// Keeps the wanted number of agents for the load. Agents that share a name have a part of their id after it.
    fn distinct(mut self, wanted: Option<usize>) -> Self {
        self.load.truncate(wanted.unwrap_or(usize::MAX));
        let of_servers = self.servers.iter_mut().map(|(_, agent)| agent);
        let agents: Vec<&mut AgentInfo> = self.load.iter_mut().chain(of_servers).collect();
        let known: Vec<_> = agents.iter().map(|agent| (agent.name.clone(), agent.id.clone())).collect();
        for agent in agents {
            // One agent may run both servers.
            if known.iter().any(|(name, id)| *name == agent.name && *id != agent.id) {
                agent.name = format!("{}-{}", agent.name, agent.id.get(..4).unwrap_or_default());
            }
        }
        self
    }
}

/// The error that names the missing agents, and the reason why each other one cannot be used.
fn too_few<'a>(
    agents: impl Iterator<Item = &'a AgentInfo> + Clone,
    options: &CoordinatorOptions,
    waited: Duration,
) -> CoordinatorError {
    let Waiting { found, wanted, servers } = FoundAgents::among(&agents, options).waiting(options);
    let wanted = wanted.unwrap_or(1);
    let role = servers.first().copied().filter(|_| found >= wanted);
    let reasons = agents.filter_map(|agent| {
        Some(format!("; agent {} {}", agent.name, shown(&unusable(agent, role, options)?)))
    });
    let (others, url) =
        (reasons.collect(), format!("{}{}", options.connection.url, options.subject.suffix()));
    match role.and_then(|role| options.server_labels.get_key_value(&role)) {
        Some((role, label)) => {
            CoordinatorError::NoServerAgent { role: *role, label: label.clone(), waited, others, url }
        }
        None => {
            let labels = options.labels.iter().flat_map(|label| [" --label ", label]).collect();
            CoordinatorError::TooFew { found, wanted, waited, others, url, labels }
        }
    }
}

/// Why an agent cannot be used for a server with this role, or for a load.
fn unusable(agent: &AgentInfo, role: Option<Role>, options: &CoordinatorOptions) -> Option<String> {
    if agent.version != VERSION {
        return Some(format!("has version {}, this is {VERSION}", agent.version));
    }
    let labels = match (role, agent.serves) {
        (None, Some(address)) => return Some(format!("runs servers, at {address}")),
        (Some(_), None) => return Some("sends loads, and runs no servers: it has no --serve".to_owned()),
        (Some(_), Some(address)) if address.is_loopback() && agent.machine != machine() => {
            return Some(format!("serves at {address} of another machine, which others do not reach"));
        }
        (Some(role), Some(_)) => {
            options.server_labels.get(&role).map(std::slice::from_ref).unwrap_or_default()
        }
        (None, None) => &options.labels,
    };
    if let Some(label) = labels.iter().find(|label| !agent.labels.contains(label)) {
        return Some(format!("has no label {label}"));
    }
    agent.is_busy.then(|| "is busy".to_owned())
}

/// Each agent may send, and run servers, for a while after it.
async fn send_signs_of_life(client: Client, subject: String) {
    let mut ticks = Ticks::every(ALIVE_INTERVAL);
    loop {
        ticks.tick().await;
        let _ = client.publish(subject.clone(), encoded(&ControlMessage::Alive)).await;
    }
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
    let reply = reply.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => "it has ended, or lost its connection: start it again".to_owned(),
        _ => reason(&error),
    })?;
    serde_json::from_slice(&reply.payload).map_err(|error| error.to_string())
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
            Ok(AgentReply::Refused(reason)) => Err(shown_to(&reason, REASON_CHARS_MAX)),
            Ok(_) => Err("it has another version".to_owned()),
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

/// The weights of the agents, divided by their greatest common divisor.
fn weights(agents: &[AgentInfo]) -> Vec<NonZeroU32> {
    let common = agents.iter().map(|agent| u64::from(agent.weight.get())).fold(0, greatest_common_divisor);
    let common = u32::try_from(common).unwrap_or(1).max(1);
    agents.iter().filter_map(|agent| NonZeroU32::new(agent.weight.get() / common)).collect()
}

fn shares(agents: &[AgentInfo]) -> Vec<Share> {
    Share::by_weight(&weights(agents))
}
