//! What goes wrong between the driver and its servers, in words that hold no secret and say what to do.

use std::{collections::HashMap, fmt, io, sync::Arc, time::Duration};

use mongodb::{
    error::{CommandError, Error, ErrorKind},
    event::{EventHandler, sdam::SdamEvent},
    options::{ClientOptions, ServerAddress},
};
use stockade_model::source::SourceError;
use tokio::sync::watch;

use crate::remote::{Remote, within};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// None came in time.
    Silent,
    /// There was one, or there will be none: what it was, and what to do about it.
    Said(String),
}

impl Trouble {
    /// What is told to whoever wanted to open the source.
    pub(super) fn told(self, timeout: Duration) -> String {
        match self {
            Self::Silent => {
                format!(
                    "{}; check the host, the port and whether it speaks TLS, or allow more with timeout=30s",
                    within(timeout)
                )
            }
            Self::Said(said) => said,
        }
    }

    /// What is told to whoever wanted a document.
    pub(super) fn of_source(self, remote: &Remote, timeout: Duration) -> SourceError {
        let source_name = remote.to_string();
        match self {
            Self::Silent => SourceError::TimedOut { source_name, after: timeout },
            Self::Said(reason) => SourceError::Failed { source_name, reason },
        }
    }

    fn said(what: impl fmt::Display) -> Self {
        Self::Said(what.to_string())
    }
}

/// What the driver's monitors last saw of each server.
#[derive(Clone)]
pub(super) struct Pulse {
    seen: watch::Receiver<Seen>,
    /// How many servers the URL names.
    servers: usize,
}

/// None: it answers.
type Seen = HashMap<ServerAddress, Option<Trouble>>;

impl Pulse {
    /// Has the driver tell it.
    pub(super) fn taken_with(options: &mut ClientOptions) -> Self {
        let (tell, seen) = watch::channel(Seen::new());
        let tell = Arc::new(tell);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            let (server, trouble) = match event {
                SdamEvent::ServerHeartbeatSucceeded(event) => (event.server_address, None),
                SdamEvent::ServerHeartbeatFailed(event) => {
                    (event.server_address, Some((&event.failure).into()))
                }
                SdamEvent::ServerClosed(event) => {
                    tell.send_modify(|seen| drop(seen.remove(&event.address)));
                    return;
                }
                _ => return,
            };
            tell.send_modify(|seen| drop(seen.insert(server, trouble)));
        }));
        Self { seen, servers: options.hosts.len() }
    }

    /// Waits until no server is left.
    pub(super) async fn stops(&mut self) -> Trouble {
        let servers = self.servers;
        match self.seen.wait_for(|seen| stopped(seen, servers).is_some()).await {
            Ok(seen) => stopped(&seen, servers).unwrap_or(Trouble::Silent),
            // The driver has gone away, and with it all questions.
            Err(_) => Trouble::Silent,
        }
    }

    /// Why nobody answers.
    pub(super) fn silence(&self) -> Trouble {
        stopped(&self.seen.borrow(), self.servers).unwrap_or(Trouble::Silent)
    }

    /// What an error means. Some only say that there is no server, which the monitors know better.
    pub(super) fn explain(&self, error: &Error) -> Trouble {
        match (&*error.kind, self.silence()) {
            (
                ErrorKind::ServerSelection { .. } | ErrorKind::ConnectionPoolCleared { .. },
                Trouble::Said(said),
            ) => Trouble::Said(said),
            _ => error.into(),
        }
    }
}

/// Why no server answers, if none does.
fn stopped(seen: &Seen, servers: usize) -> Option<Trouble> {
    if seen.len() < servers || seen.values().any(Option::is_none) {
        return None;
    }
    seen.values().flatten().next().cloned()
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Self {
        match &*error.kind {
            ErrorKind::Io(error) => of_io(error),
            ErrorKind::Authentication { .. } => Self::said(USER_REFUSED),
            ErrorKind::Command(error) => of_command(error),
            ErrorKind::InsertMany(error) => {
                match error.write_errors.as_ref().and_then(|errors| errors.first()) {
                    Some(error) => Self::said(format_args!("it does not take a document: {}", error.message)),
                    None => Self::said("it did not write the documents as it should: try again"),
                }
            }
            ErrorKind::DnsResolve { .. } => Self::said(UNKNOWN_HOST),
            ErrorKind::ServerSelection { .. } => Self::Silent,
            ErrorKind::ConnectionPoolCleared { .. } => Self::said(LOST),
            ErrorKind::InvalidTlsConfig { .. } => Self::said(
                "the files for TLS cannot be used; check tlsCAFile and tlsCertificateKeyFile: both are PEM",
            ),
            // These quote what the server sent. Others might quote the URL.
            kind @ (ErrorKind::IncompatibleServer { .. }
            | ErrorKind::InvalidResponse { .. }
            | ErrorKind::Bson(_)) => {
                Self::said(format_args!("{kind}; check that it is MongoDB, 4.2 or later"))
            }
            _ => Self::said("the driver does not go on with it; check the parameters of the URL"),
        }
    }
}

const USER_REFUSED: &str =
    "it refuses the user or the password; check both, and name the user's database with authSource=DATABASE";
const UNKNOWN_HOST: &str = "the host is not found; check its name";
const LOST: &str = "the connection was lost; check that the server runs, and whether it wants TLS (tls=true)";

fn of_command(error: &CommandError) -> Trouble {
    const UNAUTHORIZED: i32 = 13;
    const AUTHENTICATION_FAILED: i32 = 18;
    const TOO_LATE: i32 = 50;
    match error.code {
        AUTHENTICATION_FAILED => Trouble::said(USER_REFUSED),
        UNAUTHORIZED => {
            Trouble::said("it does not let this user read there; name one that may, with USER:PASSWORD@HOST")
        }
        TOO_LATE => Trouble::Silent,
        code => Trouble::said(format_args!("{} (code {code}, {})", error.message, error.code_name)),
    }
}

fn of_io(error: &io::Error) -> Trouble {
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::TimedOut => Trouble::Silent,
        io::ErrorKind::ConnectionRefused => {
            Trouble::said("connection refused; check that the server runs, the host and the port")
        }
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Trouble::said(LOST),
        _ if text.contains("failed to lookup address") => Trouble::said(UNKNOWN_HOST),
        _ if text.contains("invalid peer certificate") => Trouble::said(format_args!(
            "{text}; name its authority with tlsCAFile=FILE.pem, and the host as the certificate does"
        )),
        io::ErrorKind::InvalidData => {
            Trouble::said(format_args!("no TLS: {text}; check that it speaks TLS on that port"))
        }
        _ => Trouble::said(format_args!("{text}; check that the server runs, the host and the port")),
    }
}
