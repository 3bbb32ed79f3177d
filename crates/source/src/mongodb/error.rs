//! Errors of the driver and its servers as messages with a remedy and without secrets.

use std::{collections::HashMap, fmt, io, sync::Arc, time::Duration};

use mongodb::{
    error::{CommandError, Error, ErrorKind},
    event::{EventHandler, sdam::SdamEvent},
    options::{ClientOptions, ServerAddress},
};
use stockade_model::source::SourceError;
use tokio::sync::watch;

use crate::remote::{Remote, within};

/// The reason of a missing response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MongoDbError {
    /// No response before the timeout.
    NoResponse,
    /// The cause and the remedy.
    Message(String),
}

impl MongoDbError {
    /// The message of a failed opening.
    pub(super) fn open_message(self, timeout: Duration) -> String {
        match self {
            Self::NoResponse => {
                format!(
                    "{}; check the host, the port and whether it speaks TLS, or allow more with timeout=30s",
                    within(timeout)
                )
            }
            Self::Message(message) => message,
        }
    }

    /// The error of a failed fetch.
    pub(super) fn into_source_error(self, remote: &Remote, timeout: Duration) -> SourceError {
        let source_name = remote.to_string();
        match self {
            Self::NoResponse => SourceError::TimedOut { source_name, after: timeout },
            Self::Message(reason) => SourceError::Failed { source_name, reason },
        }
    }

    fn message(what: impl fmt::Display) -> Self {
        Self::Message(what.to_string())
    }
}

/// The last state of each server, from the driver's monitors.
#[derive(Clone)]
pub(super) struct ServerMonitor {
    seen: watch::Receiver<ServerStates>,
    /// The number of servers in the URL.
    servers: usize,
}

/// None: the server is reachable.
type ServerStates = HashMap<ServerAddress, Option<MongoDbError>>;

impl ServerMonitor {
    pub(super) fn install(options: &mut ClientOptions) -> Self {
        let (states, seen) = watch::channel(ServerStates::new());
        let states = Arc::new(states);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            let (server, error) = match event {
                SdamEvent::ServerHeartbeatSucceeded(event) => (event.server_address, None),
                SdamEvent::ServerHeartbeatFailed(event) => {
                    (event.server_address, Some((&event.failure).into()))
                }
                SdamEvent::ServerClosed(event) => {
                    states.send_modify(|seen| drop(seen.remove(&event.address)));
                    return;
                }
                _ => return,
            };
            states.send_modify(|seen| drop(seen.insert(server, error)));
        }));
        Self { seen, servers: options.hosts.len() }
    }

    /// Waits until no server is reachable.
    pub(super) async fn all_failed(&mut self) -> MongoDbError {
        let servers = self.servers;
        match self.seen.wait_for(|seen| failure_of_all(seen, servers).is_some()).await {
            Ok(seen) => failure_of_all(&seen, servers).unwrap_or(MongoDbError::NoResponse),
            // The driver was dropped, and all its requests with it.
            Err(_) => MongoDbError::NoResponse,
        }
    }

    /// The last known cause.
    pub(super) fn failure(&self) -> MongoDbError {
        failure_of_all(&self.seen.borrow(), self.servers).unwrap_or(MongoDbError::NoResponse)
    }

    /// The cause of an error. Some errors state only that no server is available; the monitors know the cause.
    pub(super) fn explain(&self, error: &Error) -> MongoDbError {
        match (&*error.kind, self.failure()) {
            (
                ErrorKind::ServerSelection { .. } | ErrorKind::ConnectionPoolCleared { .. },
                MongoDbError::Message(message),
            ) => MongoDbError::Message(message),
            _ => error.into(),
        }
    }
}

/// The cause, if no server is reachable.
fn failure_of_all(seen: &ServerStates, servers: usize) -> Option<MongoDbError> {
    if seen.len() < servers || seen.values().any(Option::is_none) {
        return None;
    }
    seen.values().flatten().next().cloned()
}

impl From<&Error> for MongoDbError {
    fn from(error: &Error) -> Self {
        match &*error.kind {
            ErrorKind::Io(error) => io_error(error),
            ErrorKind::Authentication { .. } => Self::message(USER_REFUSED),
            ErrorKind::Command(error) => command_error(error),
            ErrorKind::InsertMany(error) => {
                match error.write_errors.as_ref().and_then(|errors| errors.first()) {
                    Some(error) => {
                        Self::message(format_args!("it does not take a document: {}", error.message))
                    }
                    None => Self::message("it did not write the documents as it should: try again"),
                }
            }
            ErrorKind::DnsResolve { .. } => Self::message(UNKNOWN_HOST),
            ErrorKind::ServerSelection { .. } => Self::NoResponse,
            ErrorKind::ConnectionPoolCleared { .. } => Self::message(CONNECTION_LOST),
            ErrorKind::InvalidTlsConfig { .. } => Self::message(
                "the files for TLS cannot be used; check tlsCAFile and tlsCertificateKeyFile: both are PEM",
            ),
            // These messages quote the server. Other messages may quote the URL.
            kind @ (ErrorKind::IncompatibleServer { .. }
            | ErrorKind::InvalidResponse { .. }
            | ErrorKind::Bson(_)) => {
                Self::message(format_args!("{kind}; check that it is MongoDB, 4.2 or later"))
            }
            _ => Self::message("the driver does not go on with it; check the parameters of the URL"),
        }
    }
}

const USER_REFUSED: &str =
    "it refuses the user or the password; check both, and name the user's database with authSource=DATABASE";
const UNKNOWN_HOST: &str = "the host is not found; check its name";
const CONNECTION_LOST: &str =
    "the connection was lost; check that the server runs, and whether it wants TLS (tls=true)";

fn command_error(error: &CommandError) -> MongoDbError {
    const UNAUTHORIZED: i32 = 13;
    const AUTHENTICATION_FAILED: i32 = 18;
    const MAX_TIME_EXPIRED: i32 = 50;
    match error.code {
        AUTHENTICATION_FAILED => MongoDbError::message(USER_REFUSED),
        UNAUTHORIZED => MongoDbError::message(
            "it does not let this user read there; name one that may, with USER:PASSWORD@HOST",
        ),
        MAX_TIME_EXPIRED => MongoDbError::NoResponse,
        code => MongoDbError::message(format_args!("{} (code {code}, {})", error.message, error.code_name)),
    }
}

fn io_error(error: &io::Error) -> MongoDbError {
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::TimedOut => MongoDbError::NoResponse,
        io::ErrorKind::ConnectionRefused => {
            MongoDbError::message("connection refused; check that the server runs, the host and the port")
        }
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => MongoDbError::message(CONNECTION_LOST),
        _ if text.contains("failed to lookup address") => MongoDbError::message(UNKNOWN_HOST),
        _ if text.contains("invalid peer certificate") => MongoDbError::message(format_args!(
            "{text}; name its authority with tlsCAFile=FILE.pem, and the host as the certificate does"
        )),
        io::ErrorKind::InvalidData => {
            MongoDbError::message(format_args!("no TLS: {text}; check that it speaks TLS on that port"))
        }
        _ => MongoDbError::message(format_args!("{text}; check that the server runs, the host and the port")),
    }
}
