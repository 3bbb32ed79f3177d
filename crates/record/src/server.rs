//! Origins and proxies of measurements, on this machine or on another one.

use std::{fmt, net::SocketAddr, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::record::Role;

/// The share of a machine's memory that the servers of a measurement may take.
pub const MEMORY_SHARE_MAX: f64 = 0.6;

/// A server to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOrder {
    /// An origin or a proxy.
    pub role: Role,
    /// The recipe of an origin, or the settings of a proxy without addresses of its own, in JSON.
    pub settings: String,
    /// Where it listens. `None`: at any free port of its machine's address.
    pub listen: Option<SocketAddr>,
}

/// A machine that runs servers of measurements.
pub trait ServerMachine: fmt::Debug + Send + Sync {
    /// Starts a server, and waits until it listens. Its files and its log are in `folder`, if the machine is this one. The stages of an
    /// origin wait for its page `/start`.
    fn start(&self, order: &ServerOrder, folder: &Path) -> Result<Box<dyn StartedServer>, ServerError>;

    /// The memory of the machine in MiB; 0: unknown.
    fn memory_mib(&self) -> u64;

    /// Its name in reports; `None`: it is this machine.
    fn name(&self) -> Option<&str>;
}

/// A server that runs. It ends on drop.
pub trait StartedServer: fmt::Debug + Send + Sync {
    /// The URL at which it serves.
    fn url(&self) -> &str;

    /// The id of its process; `None`: it is on another machine.
    fn process(&self) -> Option<u32>;

    /// The body of one of its admin pages, such as `/stats`. The error is the reason.
    fn page(&self, path: &str) -> Result<String, String>;

    /// The memory and the processor time of its process; `None`: it has ended, or does not answer.
    fn reading(&self) -> Option<ProcessReading>;

    /// An error if it has ended or is lost.
    fn check(&self) -> Result<(), ServerError>;

    /// Why a page is missing: its end, if it ends within a moment, or `error`.
    fn unresponsive(&self, error: &str) -> ServerError;

    /// Calls `then` as soon as the server is known to be lost. One whose end only [`check`](Self::check) finds calls nothing.
    fn when_lost(&self, then: Box<dyn FnOnce() + Send>) {
        drop(then);
    }
}

/// A process at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReading {
    /// The time of the reading, since any moment that is the same for all readings of a server.
    pub at: Duration,
    /// Processor time since the process started.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
}

/// A server could not be started, has ended, or does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServerError {
    /// With its role, and the last lines of its log.
    pub message: String,
    /// Its settings are wrong, rather than its machine.
    pub is_usage: bool,
}
