//! The servers that an agent runs: origins and proxies of a coordinator's measurements.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::IpAddr,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use async_nats::Subscriber;
use futures_util::StreamExt;
use stockade_record::server::{MEMORY_SHARE_MAX, ServerError, ServerMachine, ServerOrder, StartedServer};
use tempfile::TempDir;
use tokio::{
    sync::Mutex,
    task::{spawn_blocking, spawn_local},
};

use super::{Agent, order::checked_order};
use crate::{
    clock::Nanos,
    wait::Ticks,
    wire::{
        ALIVE_INTERVAL, AgentReply, AgentStatus, ControlMessage, RunId, ServerId, lease_from,
        silent_coordinator_fault,
    },
};

/// A machine that runs servers, and its address.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The machine, which starts the processes of servers.
    pub machine: Arc<dyn ServerMachine>,
    /// The address at which they listen, and by which other machines reach them.
    pub address: IpAddr,
}

/// The admin pages that a coordinator may read.
const PAGES: [&str; 3] = ["/current_count", "/start", "/stats"];
/// The most servers of a run at a time.
const SERVERS_MAX: usize = 4;

/// The servers of one coordinator.
struct Session {
    run: RunId,
    /// Runs may have several, one after the other.
    number: u64,
    running: BTreeMap<ServerId, RunningServer>,
    /// Servers that are being started.
    starting: BTreeSet<ServerId>,
    folder: TempDir,
}

struct RunningServer {
    server: Arc<dyn StartedServer>,
    /// Held while a page is read: one at a time, and none beyond the end.
    page: Rc<Mutex<()>>,
}

/// The servers of an agent.
pub(super) struct AgentServers {
    options: ServerOptions,
    memory_mib: u64,
    session: RefCell<Option<Session>>,
    /// The number of the next session.
    next: Cell<u64>,
}

impl AgentServers {
    pub(super) fn new(options: ServerOptions) -> Self {
        let memory_mib = options.machine.memory_mib();
        Self { options, memory_mib, session: RefCell::new(None), next: Cell::new(0) }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.session.borrow().is_some()
    }

    pub(super) fn address(&self) -> IpAddr {
        self.options.address
    }

    pub(super) fn memory_mib(&self) -> u64 {
        self.memory_mib
    }

    /// The run whose servers it has.
    pub(super) fn run(&self) -> Option<RunId> {
        self.session.borrow().as_ref().map(|session| session.run.clone())
    }

    /// A value of a server that runs.
    fn with<T>(
        &self,
        run: &RunId,
        server: ServerId,
        value: impl FnOnce(&RunningServer) -> T,
    ) -> Result<T, AgentReply> {
        let session = self.session.borrow();
        let of_run = session.as_ref().filter(|session| session.run == *run);
        let running = of_run.and_then(|session| session.running.get(&server));
        running.map(value).ok_or_else(|| AgentReply::Refused("it has no such server".to_owned()))
    }

    /// An admin page of a server.
    pub(super) async fn page(&self, run: &RunId, server: ServerId, path: String) -> AgentReply {
        if !PAGES.contains(&path.as_str()) {
            return AgentReply::Refused("it shows no such page".to_owned());
        }
        let found = self.with(run, server, |running| (Arc::clone(&running.server), Rc::clone(&running.page)));
        let (server, page) = match found {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        let Ok(_reading) = page.try_lock() else {
            return AgentReply::Refused("a page of it is being read".to_owned());
        };
        match spawn_blocking(move || server.page(&path)).await {
            Ok(Ok(page)) => AgentReply::Page(page),
            Ok(Err(reason)) => AgentReply::Refused(reason),
            Err(error) => AgentReply::Refused(error.to_string()),
        }
    }

    pub(super) fn reading(&self, run: &RunId, server: ServerId) -> AgentReply {
        match self.with(run, server, |running| running.server.reading()) {
            Ok(Some(reading)) => AgentReply::Reading(reading),
            Ok(None) => AgentReply::Refused("the process has ended".to_owned()),
            Err(refused) => refused,
        }
    }

    /// Ends a server, and returns once it has ended.
    pub(super) async fn end(&self, run: &RunId, server: ServerId) -> AgentReply {
        let removed = {
            let mut session = self.session.borrow_mut();
            let of_run = session.as_mut().filter(|session| session.run == *run);
            of_run.and_then(|session| session.running.remove(&server))
        };
        if let Some(RunningServer { server, page }) = removed {
            let _last = page.lock().await;
            let _ = spawn_blocking(move || drop(server)).await;
        }
        AgentReply::Accepted
    }

    /// Ends all servers, and returns once they have ended.
    pub(super) async fn end_all(&self) {
        let Some(Session { running, folder, .. }) = self.session.borrow_mut().take() else { return };
        let servers: Vec<_> = running.into_values().map(|running| running.server).collect();
        let _ = spawn_blocking(move || {
            drop(servers);
            drop(folder);
        })
        .await;
    }

    /// The fault of a server that has ended, or of servers that take too much memory.
    fn fault(&self) -> Option<String> {
        let session = self.session.borrow();
        let servers =
            || session.iter().flat_map(|session| session.running.values()).map(|running| &running.server);
        if let Some(ended) = servers().find_map(|server| server.check().err()) {
            return Some(ended.to_string());
        }
        let taken_mib: u64 =
            servers().filter_map(|server| server.reading()).map(|reading| reading.rss_bytes >> 20).sum();
        let memory_mib = self.memory_mib;
        (memory_mib > 0 && taken_mib as f64 > memory_mib as f64 * MEMORY_SHARE_MAX).then(|| {
            format!("its servers took {taken_mib} MiB, more than 60 % of the machine's {memory_mib} MiB")
        })
    }

    /// Begins a session, unless it exists. Returns its number if it is new.
    fn begin(&self, run: &RunId) -> io::Result<Option<u64>> {
        let mut session = self.session.borrow_mut();
        if session.is_some() {
            return Ok(None);
        }
        let (number, folder) = (self.next.replace(self.next.get() + 1), TempDir::new()?);
        let (running, starting) = (BTreeMap::new(), BTreeSet::new());
        *session = Some(Session { run: run.clone(), number, running, starting, folder });
        Ok(Some(number))
    }

    /// A place for a server: the number of the session, and a folder. The error is the reason.
    fn place(&self, run: &RunId, server: ServerId) -> Result<(u64, PathBuf), &'static str> {
        let mut session = self.session.borrow_mut();
        let session =
            session.as_mut().filter(|session| session.run == *run).ok_or("it is busy with another run")?;
        if session.running.len() + session.starting.len() >= SERVERS_MAX {
            return Err("it runs no more servers at a time");
        }
        if session.running.contains_key(&server) || !session.starting.insert(server) {
            return Err("it has this server");
        }
        Ok((session.number, session.folder.path().join(server.to_string())))
    }
}

impl Agent {
    /// Starts a server, and returns once it listens.
    pub(super) async fn start_server(
        self: Rc<Self>,
        run: RunId,
        server: ServerId,
        order: ServerOrder,
    ) -> AgentReply {
        let Some(servers) = &self.servers else { return no_servers() };
        let order = match checked_order(&order, servers.address(), &self.options.allowed) {
            Ok(order) => order,
            Err(reason) => return AgentReply::NotStarted { reason, is_usage: true },
        };
        let Ok(control) = self.client.subscribe(self.options.subject.control(&run)).await else {
            return AgentReply::Refused("it has no connection".to_owned());
        };
        match servers.begin(&run) {
            Ok(Some(_)) => drop(spawn_local(Rc::clone(&self).watch_servers(run.clone(), control))),
            Ok(None) => {}
            Err(error) => return not_started(&error),
        }
        let (session, folder) = match servers.place(&run, server) {
            Ok(place) => place,
            Err(reason) => return AgentReply::Refused(reason.to_owned()),
        };
        let machine = Arc::clone(&servers.options.machine);
        let start = move || {
            fs::create_dir(&folder)
                .map_err(|error| ServerError { message: error.to_string(), is_usage: false })?;
            machine.start(&order, &folder)
        };
        let started = spawn_blocking(start).await;
        let mut current = servers.session.borrow_mut();
        let current = current.as_mut().filter(|current| current.number == session);
        let Some(current) = current else {
            // Its coordinator is gone.
            drop(spawn_blocking(move || drop(started)));
            return AgentReply::Refused("it has ended".to_owned());
        };
        current.starting.remove(&server);
        match started {
            Ok(Ok(running)) => {
                let url = running.url().to_owned();
                current.running.insert(server, RunningServer { server: running.into(), page: Rc::default() });
                AgentReply::Server(url)
            }
            Ok(Err(ServerError { message, is_usage })) => {
                AgentReply::NotStarted { reason: message, is_usage }
            }
            Err(error) => not_started(&io::Error::other(error)),
        }
    }

    /// Follows the coordinator of the servers, and ends them without it.
    async fn watch_servers(self: Rc<Self>, run: RunId, mut control: Subscriber) {
        let Some(servers) = &self.servers else { return };
        let clock = self.options.clock;
        let mut lease: Nanos = lease_from(clock.now());
        let mut ticks = Ticks::every(ALIVE_INTERVAL);
        let subject = self.options.subject.status(&run, &self.id);
        let fault = loop {
            let is_alive = tokio::select! {
                biased;
                message = control.next() => {
                    match message.map(|message| serde_json::from_slice(&message.payload)) {
                        Some(Ok(ControlMessage::Alive)) => true,
                        Some(Err(_)) => continue,
                        Some(Ok(ControlMessage::Stop)) | None => break None,
                    }
                }
                () = ticks.tick() => false,
            };
            // A sign of life may have waited while this process was suspended.
            if clock.now() >= lease {
                break Some(silent_coordinator_fault());
            }
            if is_alive {
                lease = lease_from(clock.now());
                continue;
            }
            if let Some(fault) = servers.fault() {
                break Some(fault);
            }
            self.publish(&subject, &AgentStatus::Alive { ready: None }).await;
        };
        if let Some(reason) = fault {
            self.publish(&subject, &AgentStatus::Failed { reason }).await;
        }
        servers.end_all().await;
    }
}

pub(super) fn no_servers() -> AgentReply {
    AgentReply::Refused("it runs no servers: start it with --serve".to_owned())
}

fn not_started(error: &io::Error) -> AgentReply {
    AgentReply::NotStarted { reason: error.to_string(), is_usage: false }
}
