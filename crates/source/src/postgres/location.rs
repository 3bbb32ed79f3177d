//! The URL of a PostgreSQL source.

use std::{env, fmt, path::PathBuf, time::Duration};

use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    table::DocumentTable,
    tls::{self, TlsMode},
};
use crate::{
    OpenError,
    remote::{Remote, within},
};

/// Parameters of this source.
const SOURCE_PARAMETERS: [&str; 5] = ["body", "key", "sslmode", "sslrootcert", "table"];

/// Parameters of the driver.
const DRIVER_PARAMETERS: [&str; 6] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "load_balance_hosts",
    "options",
    "target_session_attrs",
];

/// The variable with the password if the URL has none, as in PostgreSQL's own programs.
const PASSWORD: &str = "PGPASSWORD";

/// A database and a table in it, without a connection.
pub(super) struct PostgresLocation {
    pub(super) remote: Remote,
    /// Contains the password.
    pub(super) config: Config,
    pub(super) timeout: Duration,
    pub(super) table: DocumentTable,
    mode: TlsMode,
    /// A file with trusted certificates; none: those of the system.
    roots: Option<PathBuf>,
}

impl PostgresLocation {
    pub(super) fn read(scheme: &str, rest: &str) -> Result<Self, OpenError> {
        // The first call knows all names, for its suggestions; the second one separates the names.
        Remote::parse(scheme, rest, &[&SOURCE_PARAMETERS[..], &DRIVER_PARAMETERS].concat(), false)?;
        let remote = Remote::parse(scheme, rest, &SOURCE_PARAMETERS, true)?;
        let config = config(&remote)?;
        let (mode, roots) = security(&remote)?;
        let setting = |name, otherwise| remote.setting(name).unwrap_or(otherwise);
        let table =
            DocumentTable::new(setting("table", "documents"), setting("key", "id"), setting("body", "body"));
        let table = table.map_err(|reason| remote.invalid(&reason))?;
        let timeout = remote.timeout()?;
        let mut server = Self { remote, config, timeout, table, mode, roots };
        server.config.ssl_mode(mode.into());
        Ok(server)
    }

    pub(super) fn tls(&self) -> Result<MakeRustlsConnect, OpenError> {
        let tls = tls::client_config(self.mode, self.roots.as_deref());
        tls.map(MakeRustlsConnect::new).map_err(|reason| self.remote.unusable(reason))
    }
}

impl fmt::Display for PostgresLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

/// The user and the password are set apart from the URL: an `@` in a password would mislead the driver's parser.
fn config(remote: &Remote) -> Result<Config, OpenError> {
    let url = format!("postgres://{}{}{}", remote.hosts(), remote.path(), remote.their_query());
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        remote.invalid(&format!("{reason}: write postgres://USER:PASSWORD@HOST:PORT/DATABASE"))
    })?;
    let (user, password) = match remote.credentials() {
        None if remote.has_credentials() => return Err(remote.invalid("its user or password is not UTF-8")),
        credentials => credentials.unwrap_or_default(),
    };
    if !user.is_empty() {
        config.user(user);
    }
    if !password.is_empty() {
        config.password(password);
    } else if let Ok(password) = env::var(PASSWORD) {
        config.password(password);
    }
    Ok(config)
}

/// The TLS mode and the file of trusted certificates.
fn security(remote: &Remote) -> Result<(TlsMode, Option<PathBuf>), OpenError> {
    let mode = remote.setting("sslmode").map_or(Ok(TlsMode::Prefer), str::parse);
    let mode: TlsMode = mode.map_err(|reason| remote.invalid(&reason))?;
    let roots = remote.setting("sslrootcert");
    if roots.is_some() && !mode.requires_tls() {
        return Err(remote.invalid("`sslrootcert` is for `sslmode=verify-full`: write both"));
    }
    let is_checked = mode == TlsMode::VerifyFull || roots.is_some();
    let mode = if is_checked { TlsMode::VerifyFull } else { mode };
    Ok((mode, roots.filter(|roots| *roots != "system").map(PathBuf::from)))
}

/// The error of an opening beyond its timeout.
pub(super) fn timed_out(server: &PostgresLocation) -> OpenError {
    server.remote.unusable(format!(
        "{}; check the host, the port and the network, or write a longer `timeout`",
        within(server.timeout)
    ))
}
