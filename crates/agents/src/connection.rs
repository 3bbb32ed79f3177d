//! The connection to NATS, and its credentials.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use rustls::RootCertStore;
use stockade_http::tls::{Trust, TrustError, with_authorities};
use stockade_model::units::format_duration;

use crate::wait::within;

/// The address of a NATS server. Displayed without its password.
///
/// ```
/// use stockade_agents::NatsUrl;
///
/// let url: NatsUrl = "tls://ann:secret@nats.example:4222".parse()?;
/// assert_eq!(url.to_string(), "tls://nats.example:4222");
/// # Ok::<(), stockade_agents::NatsUrlError>(())
/// ```
#[derive(Clone)]
pub struct NatsUrl(ServerAddr);

impl fmt::Debug for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not a [`NatsUrl`]. The text is not repeated: it may have a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not an address of a NATS server ({0}): write one such as nats://127.0.0.1:4222 or tls://nats.example:4222"
)]
pub struct NatsUrlError(String);

/// How to reach NATS.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The server.
    pub url: NatsUrl,
    /// Unless the URL has them.
    pub credentials: Option<Credentials>,
    /// The certificate authorities to trust with `tls://` (PEM). `None`: those of the system.
    pub authorities: Option<PathBuf>,
}

/// Credentials of NATS: a file with a JWT and a seed (`.creds`), the seed of an nkey, or a line `user:password`. Not shown.
#[derive(Clone)]
pub enum Credentials {
    /// The text of a `.creds` file.
    Jwt(String),
    /// The seed of an nkey: `SU...`.
    NkeySeed(String),
    /// A user and a password.
    Password(String, String),
}

/// There are no credentials of NATS.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read the credentials {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The text, which is not repeated, has none.
    #[error(
        "the credentials of NATS are neither a .creds file with a JWT and a seed, nor the seed of an nkey (SU...), nor a line user:password"
    )]
    Malformed,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads a file of credentials.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let text = fs::read_to_string(path);
        text.map_err(|error| CredentialsError::File { path: path.to_owned(), error })?.parse()
    }
}

impl FromStr for Credentials {
    type Err = CredentialsError;

    fn from_str(text: &str) -> Result<Self, CredentialsError> {
        if text.contains("-----BEGIN NATS USER JWT-----") {
            return Ok(Self::Jwt(text.to_owned()));
        }
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = lines.next().ok_or(CredentialsError::Malformed)?;
        match line.split_once(':') {
            None if line.starts_with("SU") => Ok(Self::NkeySeed(line.to_owned())),
            Some((user, password)) if !user.is_empty() => {
                Ok(Self::Password(user.to_owned(), password.to_owned()))
            }
            _ => Err(CredentialsError::Malformed),
        }
    }
}

/// NATS cannot be reached or used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The credentials are invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The certificate authorities cannot be read.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The server refused the credentials.
    #[error("{url} refuses the credentials: {reason}; {}", if *had_any { "other ones are needed" } else { "name a file of them with --nats-credentials" })]
    Refused {
        /// The server.
        url: String,
        /// The answer of the server.
        reason: String,
        /// False: none were given.
        had_any: bool,
    },
    /// The server does not answer.
    #[error("cannot reach NATS at {url}: {reason}{}", remedy(reason))]
    Unreachable {
        /// The server.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The server has no JetStream, or no room for a stream.
    #[error(
        "NATS at {url} cannot store records: {reason}; it needs JetStream (nats-server --jetstream) and 256 MiB for them"
    )]
    Store {
        /// The server.
        url: String,
        /// The answer of the server.
        reason: String,
    },
    /// The system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// The remedy for a failed connection with this reason.
fn remedy(reason: &str) -> &'static str {
    if reason.contains("certificate") {
        "; name the file of its authority with --nats-ca, and a host that its certificate has"
    } else if reason.contains("corrupt message") {
        "; it has no TLS: write nats://"
    } else if reason.contains("refused") {
        "; start a server: nats-server --jetstream"
    } else {
        "; is a NATS server there?"
    }
}

impl ConnectionError {
    /// True if the server may answer later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

impl FromStr for NatsUrl {
    type Err = NatsUrlError;

    fn from_str(text: &str) -> Result<Self, NatsUrlError> {
        let address: ServerAddr = text.parse().map_err(|error: io::Error| NatsUrlError(error.to_string()))?;
        match address.scheme() {
            _ if address.host().is_empty() => Err(NatsUrlError("it has no host".to_owned())),
            "nats" | "tls" => Ok(Self(address)),
            scheme => Err(NatsUrlError(format!("the scheme {scheme} is not supported"))),
        }
    }
}

impl fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        write!(f, "{}://{host}:{}", self.0.scheme(), self.0.port())
    }
}

/// For one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For one attempt with its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between attempts to connect again.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// Between two pings of the server. A connection without answers to two of them is opened again: a server that lost its power, or that
/// is behind a network that failed, closes none.
const PING_INTERVAL: Duration = Duration::from_secs(1);

impl ConnectionOptions {
    /// Connects, as the program `name`. A connection that breaks later is opened again.
    pub(crate) async fn connect(&self, name: &str) -> Result<Client, ConnectionError> {
        let is_encrypted = self.url.0.tls_required();
        let trust = self.authorities.clone().map_or(Trust::System, Trust::File);
        // A server may ask for TLS also without `tls://`; then its certificate has to be of a named authority.
        let has_trust = is_encrypted || self.authorities.is_some();
        let tls = if has_trust { trust.client_config()? } else { with_authorities(RootCertStore::empty())? };
        let options = ConnectOptions::new()
            .name(name)
            .connection_timeout(CONNECT_TIMEOUT)
            .reconnect_delay_callback(|_| RECONNECT_DELAY)
            .ping_interval(PING_INTERVAL)
            // Each request has its own.
            .request_timeout(None)
            .require_tls(is_encrypted)
            .tls_client_config(tls);
        let options = self.with_credentials(options)?;
        let connected = within(HANDSHAKE_TIMEOUT, options.connect(self.url.0.clone())).await;
        let connected = connected.ok_or_else(|| self.no_answer(HANDSHAKE_TIMEOUT))?;
        connected.map_err(|error| {
            let (url, reason) = (self.url.to_string(), reason(&error));
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    ConnectionError::Refused { url, reason, had_any: self.has_credentials() }
                }
                _ => ConnectionError::Unreachable { url, reason },
            }
        })
    }

    /// The server has not answered for so long.
    pub(crate) fn no_answer(&self, waited: Duration) -> ConnectionError {
        let reason = format!("no answer within {}", format_duration(waited));
        ConnectionError::Unreachable { url: self.url.to_string(), reason }
    }

    fn has_credentials(&self) -> bool {
        self.credentials.is_some() || self.url.0.username().is_some()
    }

    fn with_credentials(&self, options: ConnectOptions) -> Result<ConnectOptions, CredentialsError> {
        Ok(match self.credentials.clone() {
            None => match (self.url.0.username(), self.url.0.password()) {
                (Some(user), password) => {
                    options.user_and_password(user.to_owned(), password.unwrap_or_default().to_owned())
                }
                (None, _) => options,
            },
            Some(Credentials::Jwt(text)) => {
                options.credentials(&text).map_err(|_| CredentialsError::Malformed)?
            }
            Some(Credentials::NkeySeed(seed)) => options.nkey(seed),
            Some(Credentials::Password(user, password)) => options.user_and_password(user, password),
        })
    }
}

/// An error with its causes, each once.
pub(crate) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (text, shown) in [
            ("nats://ann:secret@127.0.0.1:4333", "nats://127.0.0.1:4333"),
            ("127.0.0.1", "nats://127.0.0.1:4222"),
            ("tls://[::1]:4333", "tls://[::1]:4333"),
        ] {
            let url = text.parse::<NatsUrl>().unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
        }
        for text in ["http://ann:secret@a:1", "nats://ann:secret@", "", "nats://a:port"] {
            let message = text.parse::<NatsUrl>().unwrap_err().to_string();
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
