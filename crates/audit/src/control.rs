//! The control of a cache besides requests of users: purges, and the process of a server that the audit started.

use std::{
    process::Command,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::Method;
use stockade_model::proc::resident_bytes;
use stockade_services::{ProgramServer, ServiceError, Signal};
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

/// The control of a cache.
#[derive(Debug, Default)]
pub struct Control {
    pub purge: Option<Purge>,
    /// `None`: it was running before the audit.
    pub server: Option<Arc<Mutex<ProgramServer>>>,
    /// With this signal the server reads its configuration anew.
    pub reload: Option<Signal>,
    /// A shell command that empties the cache. It runs before each group of questions.
    pub reset: Option<String>,
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

impl Control {
    /// Starts the server of a command, which is one program with its arguments, stays in the foreground and listens on this port.
    ///
    /// # Errors
    /// It does not start.
    pub fn of_command(command: &str, port: u16) -> Result<Self, ServiceError> {
        let server = ProgramServer::from_command("cache", command, port)?;
        Ok(Self { server: Some(Arc::new(server.into())), ..Self::default() })
    }

    /// The port of the server that the audit started, on the loopback interface.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        Some(lock(self.server.as_ref()?).port())
    }

    /// Empties the cache, if there is a command for it.
    pub(crate) async fn reset(&self) -> Result<(), String> {
        let Some(command) = self.reset.clone() else { return Ok(()) };
        let output = spawn_blocking(move || Command::new("sh").args(["-c", &command]).output());
        let output = output.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(if text.is_empty() { output.status.to_string() } else { text })
    }

    /// Starts the server anew with the same configuration, and awaits that it accepts connections.
    pub(crate) async fn restart(&self) -> Result<(), String> {
        let server = self.server.clone().ok_or("the audit did not start it")?;
        let restart = spawn_blocking(move || lock(&server).restart());
        restart.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// The server begins to read its configuration anew. False: it has no signal for that, or the audit did not start it.
    pub(crate) fn reload(&self) -> bool {
        let (Some(server), Some(signal)) = (&self.server, self.reload) else { return false };
        lock(server).process().inspect(|process| process.signal(signal)).is_some()
    }

    /// The resident memory of the server and of its children. `None`: the audit did not start it.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        Some(lock(self.server.as_ref()?).process()?.ids().filter_map(resident_bytes).sum())
    }
}

fn lock(server: &Mutex<ProgramServer>) -> MutexGuard<'_, ProgramServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
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
