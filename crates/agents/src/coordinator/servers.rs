//! Servers on agents, for the measurements of a coordinator.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use async_nats::{Client, Subscriber, connection::State};
use futures_util::StreamExt;
use http::Uri;
use serde_json::Value;
use stockade_model::message::shown_to;
use stockade_record::{
    record::Role,
    server::{ProcessReading, ServerError, ServerMachine, ServerOrder, StartedServer},
};
use tokio::{runtime::Handle, task::JoinSet};

use super::{
    CHECK_INTERVAL, Coordinator, PAUSE_MAX, REASON_CHARS_MAX, is_loopback, request_of, send_signs_of_life,
};
use crate::{
    agent::machine,
    clock::{AgentClock, duration},
    wait::Ticks,
    wire::{
        AgentInfo, AgentReply, AgentRequest, AgentStatus, LOST_AFTER, RunId, ServerId, SubjectPrefix,
        encoded, lost_agent_fault,
    },
};

/// For the start of a server: its process has 20 s to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// For the end of a server: its process has 5 s before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// For a page or a reading.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two looks at an agent that is asked: it may be lost meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// An agent that has been silent for so long is not asked.
const SILENCE_MAX: Duration = Duration::from_millis(600);

/// An agent that runs servers.
#[derive(Clone, Debug)]
pub(super) struct AgentMachine {
    session: Arc<ServerSession>,
    agent: AgentInfo,
}

/// The run that all servers of a coordinator are in, and the state of their agents.
pub(super) struct ServerSession {
    run: RunId,
    client: Client,
    subject: SubjectPrefix,
    runtime: Handle,
    clock: AgentClock,
    states: Arc<Mutex<BTreeMap<String, MachineState>>>,
    next: AtomicU64,
    /// Signs of life, and the watch over the agents. They end with this value.
    _tasks: JoinSet<()>,
}

/// An agent that runs servers.
struct MachineState {
    name: String,
    /// The number of its servers.
    servers: usize,
    /// When it was last heard of.
    heard: Duration,
    /// Why its servers are lost.
    fault: Option<String>,
    when_lost: Vec<(ServerId, Box<dyn FnOnce() + Send>)>,
}

/// A server on an agent.
#[derive(Debug)]
struct RemoteServer {
    machine: AgentMachine,
    role: Role,
    id: ServerId,
    url: String,
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession").field("run", &self.run).finish_non_exhaustive()
    }
}

impl ServerSession {
    /// Starts the signs of life, which agents need from the first server on.
    pub(super) async fn start(
        client: &Client,
        subject: &SubjectPrefix,
        runtime: Handle,
    ) -> Result<Self, async_nats::SubscribeError> {
        let run = RunId::random();
        let statuses = client.subscribe(subject.status(&run, "*")).await?;
        let (clock, states) = (AgentClock::new(), Arc::default());
        let mut tasks = JoinSet::new();
        tasks.spawn_on(send_signs_of_life(client.clone(), subject.control(&run)), &runtime);
        tasks.spawn_on(watch(Arc::clone(&states), statuses, client.clone(), clock), &runtime);
        let (client, subject) = (client.clone(), subject.clone());
        Ok(Self { run, client, subject, runtime, clock, states, next: AtomicU64::new(0), _tasks: tasks })
    }

    /// Asks an agent from a thread that may block. The error is the reason.
    fn ask(&self, agent: &AgentInfo, request: AgentRequest, wait: Duration) -> Result<AgentReply, String> {
        let (answer, answered) = mpsc::channel();
        let (client, subject) = (self.client.clone(), self.subject.agent(&agent.id));
        self.runtime.spawn(async move {
            // The receiver is there until the answer, or until its own timeout.
            let _ = answer.send(request_of(&client, subject, &request, wait).await);
        });
        loop {
            match answered.recv_timeout(LOOK_INTERVAL) {
                Ok(Ok(AgentReply::Refused(reason))) => return Err(shown_lines(&reason)),
                Ok(reply) => return reply,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err("no answer".to_owned()),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Some(fault) = self.fault_of(agent) {
                        return Err(fault);
                    }
                }
            }
        }
    }

    fn fault_of(&self, agent: &AgentInfo) -> Option<String> {
        locked(&self.states).get(&agent.id)?.fault.clone()
    }
}

fn locked(states: &Mutex<BTreeMap<String, MachineState>>) -> MutexGuard<'_, BTreeMap<String, MachineState>> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the agents that fail, and those that are silent for too long.
async fn watch(
    states: Arc<Mutex<BTreeMap<String, MachineState>>>,
    mut statuses: Subscriber,
    client: Client,
    clock: AgentClock,
) {
    let mut ticks = Ticks::every(CHECK_INTERVAL);
    let mut last_pass = duration(clock.now());
    loop {
        let message = tokio::select! {
            message = statuses.next() => message,
            () = ticks.tick() => None,
        };
        let now = duration(clock.now());
        let pause = now.saturating_sub(last_pass);
        last_pass = now;
        let mut states = locked(&states);
        if pause > PAUSE_MAX {
            // This process was suspended: the agents were not silent.
            states.values_mut().for_each(|state| state.heard += pause);
        }
        if let Some(message) = message
            && let Some(state) = message.subject.rsplit('.').next().and_then(|id| states.get_mut(id))
            && let Ok(status) = serde_json::from_slice(&message.payload)
        {
            state.heard = now;
            if let AgentStatus::Failed { reason } = status {
                state.fail(&shown_lines(&reason));
            }
        }
        for state in states.values_mut().filter(|state| now.saturating_sub(state.heard) > LOST_AFTER) {
            state.fail(&lost_agent_fault(client.connection_state() == State::Connected));
        }
    }
}

impl MachineState {
    fn fail(&mut self, reason: &str) {
        self.fault.get_or_insert_with(|| format!("agent {}: {reason}", self.name));
        self.when_lost.drain(..).for_each(|(_, then)| then());
    }
}

/// A text of an agent, with its lines.
fn shown_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| shown_to(line, REASON_CHARS_MAX)).collect();
    lines.join("\n")
}

impl AgentMachine {
    pub(super) fn new(session: &Arc<ServerSession>, agent: AgentInfo) -> Self {
        Self { session: Arc::clone(session), agent }
    }

    fn error(&self, role: Role, reason: &str, is_usage: bool) -> ServerError {
        let (role, agent) = (role.name(), &self.agent.name);
        ServerError { message: format!("the {role} on agent {agent}: {reason}"), is_usage }
    }
}

/// Why a proxy on another machine cannot reach its origins.
fn misplaced(order: &ServerOrder) -> Option<String> {
    if order.role != Role::Proxy {
        return None;
    }
    let settings: Value = serde_json::from_str(&order.settings).ok()?;
    let urls = settings.get("origin")?.as_array()?.iter().filter_map(|origin| origin.get("url")?.as_str());
    let mut hosts = urls.filter_map(|url| Some(url.parse::<Uri>().ok()?.host()?.to_owned()));
    let host = hosts.find(|host| is_loopback(host))?;
    Some(format!(
        "its machine does not reach the origin, which is at {host}: place that with --origin-label on an agent whose --serve has an address \
         that others reach"
    ))
}

impl ServerMachine for AgentMachine {
    fn start(&self, order: &ServerOrder, _: &Path) -> Result<Box<dyn StartedServer>, ServerError> {
        let Self { session, agent } = self;
        let error = |reason: &str, is_usage| self.error(order.role, reason, is_usage);
        if agent.machine != machine()
            && let Some(reason) = misplaced(order)
        {
            return Err(error(&reason, true));
        }
        let id = session.next.fetch_add(1, Relaxed);
        let request =
            AgentRequest::StartServer { run: session.run.clone(), server: id, order: order.clone() };
        let bytes_max = session.client.server_info().max_payload;
        if encoded(&request).len() > bytes_max {
            return Err(error(
                &format!("its settings have more than the {bytes_max} bytes of a NATS message"),
                true,
            ));
        }
        let url = match session.ask(agent, request, START_TIMEOUT) {
            Ok(AgentReply::Server(url)) => url,
            Ok(AgentReply::NotStarted { reason, is_usage }) => {
                return Err(error(&shown_lines(&reason), is_usage));
            }
            Ok(_) => return Err(error("it has another version", false)),
            Err(reason) => return Err(error(&reason, false)),
        };
        let heard = duration(session.clock.now());
        let name = agent.name.clone();
        let new = MachineState { name, servers: 0, heard, fault: None, when_lost: Vec::new() };
        locked(&session.states).entry(agent.id.clone()).or_insert(new).servers += 1;
        Ok(Box::new(RemoteServer { machine: self.clone(), role: order.role, id, url }))
    }

    fn memory_mib(&self) -> u64 {
        self.agent.memory_mib
    }

    fn name(&self) -> Option<&str> {
        Some(&self.agent.name)
    }
}

impl RemoteServer {
    fn ask(&self, request: AgentRequest) -> Result<AgentReply, String> {
        let AgentMachine { session, agent } = &self.machine;
        let now = duration(session.clock.now());
        let heard = locked(&session.states).get(&agent.id).map(|state| state.heard);
        if heard.is_none_or(|heard| now.saturating_sub(heard) > SILENCE_MAX) {
            return Err("does not answer".to_owned());
        }
        session.ask(agent, request, READ_TIMEOUT)
    }

    fn run(&self) -> RunId {
        self.machine.session.run.clone()
    }
}

impl StartedServer for RemoteServer {
    fn url(&self) -> &str {
        &self.url
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn page(&self, path: &str) -> Result<String, String> {
        match self.ask(AgentRequest::Page { run: self.run(), server: self.id, path: path.to_owned() })? {
            AgentReply::Page(page) => Ok(page),
            _ => Err("has another version".to_owned()),
        }
    }

    fn reading(&self) -> Option<ProcessReading> {
        match self.ask(AgentRequest::Reading { run: self.run(), server: self.id }) {
            Ok(AgentReply::Reading(reading)) => Some(reading),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), ServerError> {
        match self.machine.session.fault_of(&self.machine.agent) {
            Some(message) => Err(ServerError { message, is_usage: false }),
            None => Ok(()),
        }
    }

    fn unresponsive(&self, error: &str) -> ServerError {
        self.check().err().unwrap_or_else(|| self.machine.error(self.role, error, false))
    }

    fn when_lost(&self, then: Box<dyn FnOnce() + Send>) {
        let mut states = locked(&self.machine.session.states);
        match states.get_mut(&self.machine.agent.id).filter(|state| state.fault.is_none()) {
            Some(state) => state.when_lost.push((self.id, then)),
            None => then(),
        }
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        let AgentMachine { session, agent } = &self.machine;
        if self.check().is_ok() {
            let request = AgentRequest::EndServer { run: self.run(), server: self.id };
            // Without an answer the agent ends it without signs of life.
            let _ = session.ask(agent, request, END_TIMEOUT);
        }
        let mut states = locked(&session.states);
        if let Some(state) = states.get_mut(&agent.id) {
            state.when_lost.retain(|(id, _)| *id != self.id);
            state.servers -= 1;
            if state.servers == 0 {
                states.remove(&agent.id);
            }
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // The agents of its servers are free at once.
        if let Some((_, machine)) = self.servers.first() {
            self.runtime.block_on(self.stop(&machine.session.run));
        }
    }
}

impl Coordinator {
    /// The agents that run servers, by the role of those.
    #[must_use]
    pub fn machines(&self) -> BTreeMap<Role, Arc<dyn ServerMachine>> {
        let machine = |(role, machine): &(Role, AgentMachine)| {
            (*role, Arc::new(machine.clone()) as Arc<dyn ServerMachine>)
        };
        self.servers.iter().map(machine).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn proxy_elsewhere_needs_an_origin_that_it_reaches() {
        let reason = |role: Role, url: &str| {
            let settings = json!({"origin": [{"name": "origin", "url": url}]}).to_string();
            misplaced(&ServerOrder { role, settings, listen: None })
        };
        for url in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"] {
            let reason = reason(Role::Proxy, url).expect(url);
            assert!(reason.contains("--origin-label"), "{reason}");
        }
        assert_eq!(reason(Role::Proxy, "http://10.2.0.5:9000"), None);
        assert_eq!(reason(Role::Origin, "http://127.0.0.1:9000"), None);
    }
}
