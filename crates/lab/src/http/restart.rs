//! Caches that an event stops and starts again.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use stockade_record::{
    clock::instant,
    record::Role,
    server::{ProcessReading, ServerError, ServerMachine, ServerOrder, StartedServer},
};

use stockade_services::CommandServer;

use super::{HttpError, child::pause};

/// The limit for the last reader of a page of a server that has ended.
const READER_TIMEOUT: Duration = Duration::from_secs(5);

/// A cache that the measurement started.
#[derive(Clone, Debug)]
pub(super) enum CacheServer {
    Proxy(Arc<RestartableServer>),
    /// The server of `command`.
    Command(Arc<CommandServer>),
}

impl CacheServer {
    /// `None`: an event has stopped it.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Self::Proxy(server) => server.process(),
            Self::Command(server) => server.process(),
        }
    }

    /// Ends it by a signal, and starts it again if `is_due` returns true, which may wait. After an error it has ended.
    pub(super) fn restart(&self, signal: Signal, is_due: impl FnOnce() -> bool) -> Result<(), HttpError> {
        match self {
            Self::Proxy(server) => Ok(server.restart(signal, is_due)?),
            Self::Command(server) => Ok(server.restart(signal, is_due)?),
        }
    }
}

/// A server that can be stopped and started again at the same address.
#[derive(Debug)]
pub(super) struct RestartableServer {
    machine: Arc<dyn ServerMachine>,
    /// With the address of its first start.
    order: ServerOrder,
    folder: Box<Path>,
    url: String,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
enum State {
    Running(Arc<dyn StartedServer>),
    /// An event has stopped it.
    Stopped,
    /// It could not be started again.
    Lost(ServerError),
}

impl RestartableServer {
    pub(super) fn start(
        machine: Arc<dyn ServerMachine>,
        mut order: ServerOrder,
        folder: &Path,
    ) -> Result<Self, ServerError> {
        let server: Arc<dyn StartedServer> = machine.start(&order, folder)?.into();
        let url = server.url().to_owned();
        order.listen =
            url.split_once("://").and_then(|(_, address)| address.trim_end_matches('/').parse().ok());
        Ok(Self { machine, order, folder: folder.into(), url, state: Mutex::new(State::Running(server)) })
    }

    fn restart(&self, signal: Signal, is_due: impl FnOnce() -> bool) -> Result<(), ServerError> {
        let State::Running(server) = self.set(State::Stopped) else {
            let message = "another event has stopped it".to_owned();
            return Err(ServerError { message, is_usage: false });
        };
        if let Some(id) = server.process().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            // It has ended already: its drop finds out.
            let _ = kill_process(id, signal);
        }
        let until = instant() + READER_TIMEOUT;
        while Arc::strong_count(&server) > 1 && instant() < until {
            pause();
        }
        drop(server);
        if !is_due() {
            return Ok(());
        }
        let started = self.machine.start(&self.order, &self.folder);
        let (state, result) = match started {
            Ok(server) => (State::Running(server.into()), Ok(())),
            Err(error) => (State::Lost(error.clone()), Err(error)),
        };
        self.set(state);
        result
    }

    fn set(&self, state: State) -> State {
        std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), state)
    }

    fn current(&self) -> Option<Arc<dyn StartedServer>> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Running(server) => Some(Arc::clone(server)),
            State::Stopped | State::Lost(_) => None,
        }
    }
}

impl StartedServer for RestartableServer {
    fn url(&self) -> &str {
        &self.url
    }

    fn process(&self) -> Option<u32> {
        self.current()?.process()
    }

    fn page(&self, path: &str) -> Result<String, String> {
        self.current().ok_or("an event has stopped it")?.page(path)
    }

    fn reading(&self) -> Option<ProcessReading> {
        self.current()?.reading()
    }

    fn check(&self) -> Result<(), ServerError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match state {
            State::Running(server) => server.check(),
            State::Stopped => Ok(()),
            State::Lost(error) => Err(error),
        }
    }

    fn unresponsive(&self, error: &str) -> ServerError {
        match self.current() {
            Some(server) => server.unresponsive(error),
            None => ServerError { message: format!("the {} {error}", Role::Proxy.name()), is_usage: false },
        }
    }

    fn when_lost(&self, then: Box<dyn FnOnce() + Send>) {
        if let Some(server) = self.current() {
            server.when_lost(then);
        }
    }
}
