//! An agent: it waits for loads, and sends its share of each.

mod fault;
mod observer;
mod order;
mod run;
mod servers;

use std::{
    cell::RefCell,
    fs::{self, File},
    num::NonZeroU32,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::{Client, jetstream, jetstream::Context as JetStream};
use futures_util::StreamExt;
use rand::random;
use stockade_load::{
    AllowedTargets,
    generator::{CancellationToken, LoadTest, Share, ShareMove},
};
use tokio::{
    io::AsyncReadExt,
    sync::{oneshot, watch},
    task::{LocalSet, spawn_local},
};

pub use self::servers::ServerOptions;
use self::{
    observer::SampleFile,
    run::ActiveRun,
    servers::{AgentServers, no_servers},
};
use crate::{
    clock::{AgentClock, Nanos},
    connection::{ConnectionError, ConnectionOptions, reason},
    wait::{pause, within},
    wire::{
        AgentInfo, AgentReply, AgentRequest, AgentStatus, RunId, SubjectPrefix, VERSION, encoded, is_name,
    },
};

/// An agent's name, its part of loads, and what it may reach.
#[derive(Debug)]
pub struct AgentOptions {
    /// How to reach NATS.
    pub connection: ConnectionOptions,
    /// The first part of all subjects, which coordinators name as well.
    pub subject: SubjectPrefix,
    /// The name in reports.
    pub name: String,
    /// Its part of a load, relative to the weights of the others.
    pub weight: NonZeroU32,
    /// Words by which a coordinator chooses agents.
    pub labels: Vec<String>,
    /// The servers that it may reach.
    pub allowed: AllowedTargets,
    /// The machine and the address of its servers. An agent with them sends no loads.
    pub servers: Option<ServerOptions>,
    /// A folder for the samples of its loads, a file each.
    pub samples: Option<PathBuf>,
    /// Its clock; one with an error is for tests.
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
    /// The name is invalid.
    #[error("`{0}` is not a name of an agent: write letters, digits, `.`, `-` and `_`, at most 64")]
    Name(String),
    /// The connection was closed for good.
    #[error("NATS closed the connection")]
    Closed,
}

/// The most bytes of a load.
const LOAD_BYTES_MAX: u64 = 1 << 30;
/// For one attempt to publish a record.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two attempts to reach NATS, or to publish a record.
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
    /// The servers that it runs.
    servers: Option<AgentServers>,
}

/// A load of an agent, as its messages see it.
struct AgentRun {
    id: RunId,
    starts: watch::Sender<Option<(usize, Nanos)>>,
    /// The start by the coordinator's clock.
    started: Arc<Mutex<Nanos>>,
    moves: Arc<Mutex<Moves>>,
}

/// The moves of an agent's share.
#[derive(Debug, Default)]
struct Moves {
    list: Vec<ShareMove>,
    /// Places of the schedule below it may have been taken.
    taken: u64,
}

impl Moves {
    /// True if the move is accepted, also for a repeat of an accepted move. False: the place was taken by the old share.
    fn accept(&mut self, number: usize, next: ShareMove) -> bool {
        let is_next = number == self.list.len() && next.from >= self.taken;
        if is_next {
            self.list.push(next);
            return true;
        }
        self.list.get(number) == Some(&next)
    }
}

impl Agent {
    async fn connect(options: AgentOptions) -> Result<Self, AgentError> {
        let client = connect(&options).await?;
        Ok(Self {
            jetstream: jetstream::new(client.clone()),
            id: format!("{:016x}", random::<u64>()),
            client,
            run: RefCell::new(None),
            servers: options.servers.clone().map(AgentServers::new),
            options,
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
                        AgentRequest::Move { run, number, from, share } => {
                            let reply = agent.move_share(&run, number, ShareMove { from, share });
                            agent.reply(to, &reply).await;
                        }
                        request => {
                            let agent = Rc::clone(&agent);
                            spawn_local(async move {
                                let reply = Rc::clone(&agent).slow_reply(request).await;
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

    /// The reply to a request that takes a while.
    async fn slow_reply(self: Rc<Self>, request: AgentRequest) -> AgentReply {
        match (request, &self.servers) {
            (AgentRequest::Prepare { .. }, Some(_)) => {
                AgentReply::Refused("it runs servers, and sends no loads".to_owned())
            }
            (AgentRequest::Prepare { run, share }, None) => self.prepare(run, share).await,
            (AgentRequest::StartServer { run, server, order }, _) => {
                self.start_server(run, server, order).await
            }
            (AgentRequest::Page { run, server, path }, Some(servers)) => {
                servers.page(&run, server, path).await
            }
            (AgentRequest::Reading { run, server }, Some(servers)) => servers.reading(&run, server),
            (AgentRequest::EndServer { run, server }, Some(servers)) => servers.end(&run, server).await,
            _ => no_servers(),
        }
    }

    /// Tells the coordinator that its load and its servers will not go on.
    async fn leave(&self) {
        let of_load = self.run.borrow().as_ref().map(|current| current.id.clone());
        let of_servers = self.servers.as_ref().and_then(AgentServers::run);
        for run in of_load.into_iter().chain(of_servers) {
            let reason = "it was told to end".to_owned();
            self.publish(&self.options.subject.status(&run, &self.id), &AgentStatus::Failed { reason }).await;
            let _ = within(PUBLISH_TIMEOUT, self.client.flush()).await;
        }
        if let Some(servers) = &self.servers {
            servers.end_all().await;
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
            serves: self.servers.as_ref().map(AgentServers::address),
            memory_mib: self.servers.as_ref().map(AgentServers::memory_mib).unwrap_or_default(),
            is_busy: self.run.borrow().is_some() || self.servers.as_ref().is_some_and(AgentServers::is_busy),
        }
    }

    async fn reply(&self, to: async_nats::Subject, reply: &impl serde::Serialize) {
        let mut bytes = encoded(reply);
        if bytes.len() > self.client.server_info().max_payload {
            bytes = encoded(&AgentReply::Refused("its answer is larger than a message of NATS".to_owned()));
        }
        // Without a connection the coordinator does not wait for the reply.
        let _ = self.client.publish(to, bytes).await;
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

    fn move_share(&self, run: &RunId, number: usize, next: ShareMove) -> AgentReply {
        let current = self.run.borrow();
        let Some(current) = current.as_ref().filter(|current| current.id == *run) else {
            return AgentReply::Refused("it has ended".to_owned());
        };
        if current.moves.lock().unwrap_or_else(PoisonError::into_inner).accept(number, next) {
            AgentReply::Accepted
        } else {
            AgentReply::Refused("its new share reached it too late".to_owned())
        }
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
        let current = Rc::new(AgentRun { id: run, starts, started: Arc::default(), moves: Arc::default() });
        *self.run.borrow_mut() = Some(Rc::clone(&current));
        let (prepared, is_prepared) = oneshot::channel();
        let agent = Rc::clone(&self);
        spawn_local(async move {
            if let Some(mut run) = ActiveRun::start(&agent, &current, share, starts_received, prepared).await
            {
                let result = run.watch().await;
                run.report(result).await;
            }
            *agent.run.borrow_mut() = None;
        });
        match is_prepared.await {
            Ok(Ok(())) => AgentReply::Accepted,
            Ok(Err(reason)) => AgentReply::Refused(reason),
            Err(_) => AgentReply::Refused("it ended".to_owned()),
        }
    }

    async fn publish(&self, subject: &str, message: &impl serde::Serialize) {
        // Without a connection the coordinator finds out by itself.
        let _ = self.client.publish(subject.to_owned(), encoded(message)).await;
    }

    /// Creates the file of `--out`; `None`: the agent was started without it. The error is the reason.
    fn create_sample_file(&self, current: &AgentRun, load: &LoadTest) -> Result<Option<SampleFile>, String> {
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

/// The machine, until it restarts; empty: unknown.
pub(crate) fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
