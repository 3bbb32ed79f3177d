//! The control of a cache besides requests of users: purges, and the process of a server that the audit started.

use std::{
    fmt::Debug,
    net::SocketAddr,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::Method;
use stockade_http::client::HttpUrl;
use stockade_model::proc::{process_tree, resident_bytes};
use stockade_services::{
    CommandEnvironment, CommandServer, ProgramServer, ServerPlace, ServiceError, ShellError, Signal,
};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::users::{UserRequest, Users};

/// The place of the page's URL in a purge.
const URL: &str = "{url}";
/// The place of the page's path and query in a purge.
const PATH: &str = "{path}";

/// The request that removes a page, such as `PURGE {url}`, or `POST /_admin/purge?path={path}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    method: Method,
    /// With `{url}` or `{path}` in it.
    target: String,
}

/// A server that the audit can restart and measure.
pub trait Server: Debug + Send + Sync {
    /// Starts it again with the same configuration, and awaits that it accepts connections.
    fn restart(&self) -> Result<(), String>;

    /// True if it has a way to reload its configuration.
    fn can_reload(&self) -> bool {
        false
    }

    /// It begins to reload its configuration, if it can.
    fn reload(&self) {}

    /// Its resident memory, with that of its children. `None`: it is not known.
    fn resident_bytes(&self) -> Option<u64>;
}

/// The control of a cache.
#[derive(Debug, Default)]
pub struct Control {
    pub purge: Option<Purge>,
    /// `None`: it was running before the audit.
    pub server: Option<Arc<dyn Server>>,
    /// A shell command that empties the cache. It runs before each group of questions.
    pub reset: Option<String>,
    /// A shell command with which the cache reads its configuration again, in place of the server's own way.
    pub reload: Option<String>,
}

/// The server of a user's command, with the folder of its output.
#[derive(Debug)]
pub struct StartedCommand {
    server: CommandServer,
    _folder: TempDir,
}

/// A cache that the audit started: its process, and the signal with which it reloads its configuration.
#[derive(Debug)]
pub struct PresetServer {
    process: Mutex<ProgramServer>,
    port: u16,
    reload: Option<Signal>,
}

impl FromStr for Purge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let remedy =
            || format!("`{text}` is not a purge: write a method and a target, such as `PURGE {URL}`");
        let (method, target) = text.trim().split_once(' ').ok_or_else(remedy)?;
        let target = target.trim();
        let has_place = [URL, PATH].iter().any(|place| target.contains(place));
        let method = method.parse().map_err(|_| remedy())?;
        if !has_place || target.contains(' ') {
            return Err(remedy());
        }
        Ok(Self { method, target: target.to_owned() })
    }
}

impl Purge {
    /// Removes the page of a path, and returns the answer of the cache.
    pub(crate) async fn send(&self, users: &Users, path: &str) -> UserRequest {
        // A request has the path of its URL, and the host in a field.
        let target = match self.target.as_str() {
            URL => path.to_owned(),
            target => target.replace(URL, &format!("{}{path}", users.origin())).replace(PATH, path),
        };
        users.ask(&target).method(self.method.clone()).send().await
    }
}

impl PresetServer {
    #[must_use]
    pub fn new(process: ProgramServer, reload: Option<Signal>) -> Self {
        let port = process.port();
        Self { process: process.into(), port, reload }
    }

    /// Its port on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn process(&self) -> MutexGuard<'_, ProgramServer> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server for PresetServer {
    fn restart(&self) -> Result<(), String> {
        self.process().restart().map_err(|error| error.to_string())
    }

    fn can_reload(&self) -> bool {
        self.reload.is_some()
    }

    fn reload(&self) {
        if let (Some(process), Some(signal)) = (self.process().process(), self.reload) {
            process.signal(signal);
        }
    }

    fn resident_bytes(&self) -> Option<u64> {
        Some(self.process().process()?.ids().filter_map(resident_bytes).sum())
    }
}

impl StartedCommand {
    /// Starts a command, which has to stay in the foreground, and waits until it accepts connections at the host and port of `url`.
    /// `STOCKADE_ORIGIN` in its environment is the URL of the origin.
    ///
    /// # Errors
    /// It does not start, or something listens there already.
    pub fn start(command: &str, url: &HttpUrl, origin: SocketAddr) -> Result<Self, ServiceError> {
        let folder = folder()?;
        let environment =
            CommandEnvironment { origin: Some(format!("http://{origin}")), ..commands_in(&folder) };
        let place = ServerPlace { url: url.origin(), host: url.host.clone(), port: url.port };
        Ok(Self { server: CommandServer::start(command, place, environment)?, _folder: folder })
    }
}

impl Server for StartedCommand {
    fn restart(&self) -> Result<(), String> {
        self.server.restart(Signal::TERM, || true).map_err(|error| error.to_string())
    }

    fn resident_bytes(&self) -> Option<u64> {
        Some(process_tree(self.server.process()?).into_iter().filter_map(resident_bytes).sum())
    }
}

/// A folder for the output of commands.
fn folder() -> Result<TempDir, ShellError> {
    TempDir::with_prefix("stockade-audit-")
        .map_err(|error| ShellError(format!("no folder for commands: {error}")))
}

fn commands_in(folder: &TempDir) -> CommandEnvironment {
    CommandEnvironment { folder: folder.path().to_owned(), ..CommandEnvironment::default() }
}

/// Runs a shell command that ends by itself; `flag` names it in messages.
async fn run(flag: &'static str, command: String) -> Result<(), String> {
    let run = move || commands_in(&folder()?).run(flag, &command);
    spawn_blocking(run).await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

impl Control {
    /// Empties the cache, if there is a command for it.
    pub(crate) async fn reset(&self) -> Result<(), String> {
        let Some(command) = self.reset.clone() else { return Ok(()) };
        run("--reset", command).await
    }

    /// Restarts the server, and awaits that it accepts connections.
    pub(crate) async fn restart(&self) -> Result<(), String> {
        let server = self.server.clone().ok_or("the audit did not start it")?;
        spawn_blocking(move || server.restart()).await.map_err(|error| error.to_string())?
    }

    pub(crate) fn can_reload(&self) -> bool {
        self.reload.is_some() || self.server.as_ref().is_some_and(|server| server.can_reload())
    }

    /// The cache begins to read its configuration again.
    pub(crate) async fn reload(&self) -> Result<(), String> {
        if let Some(command) = self.reload.clone() {
            return run("--reload", command).await;
        }
        self.server.iter().for_each(|server| server.reload());
        Ok(())
    }

    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.server.as_ref()?.resident_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purge_is_a_method_and_a_target_with_a_place() {
        let purge: Purge = " PURGE  {url} ".parse().unwrap();
        assert_eq!((purge.method.as_str(), purge.target.as_str()), ("PURGE", "{url}"));
        assert!("POST /_admin/purge?path={path}".parse::<Purge>().is_ok());
        for text in ["PURGE", "PURGE /all", "{url}", "PURGE {url} now", "P(GE {url}"] {
            assert!(text.parse::<Purge>().unwrap_err().contains("`PURGE {url}`"), "{text}");
        }
    }
}
