//! Where a database is, as its URL has it.

use std::{env, fmt, path::PathBuf, time::Duration};

use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    table::Table,
    tls::{self, Mode},
};
use crate::{
    OpenError,
    remote::{Remote, within},
};

/// Parameters of a URL that are ours to understand.
const OURS: [&str; 5] = ["body", "key", "sslmode", "sslrootcert", "table"];

/// Those that the driver understands.
const THEIRS: [&str; 6] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "load_balance_hosts",
    "options",
    "target_session_attrs",
];

/// Where the password comes from where the URL has none, as with PostgreSQL's own programs.
const PASSWORD: &str = "PGPASSWORD";

/// A database and a table in it; nobody has been asked yet.
pub(super) struct Server {
    pub(super) remote: Remote,
    /// Holds the password; never shown.
    pub(super) config: Config,
    pub(super) timeout: Duration,
    pub(super) table: Table,
    mode: Mode,
    /// The certificates of those who vouch for servers; none: those that this machine trusts.
    roots: Option<PathBuf>,
}

impl Server {
    pub(super) fn read(scheme: &str, rest: &str) -> Result<Self, OpenError> {
        // Once for a remedy that knows every name, once for what is whose.
        Remote::read(scheme, rest, &[&OURS[..], &THEIRS].concat(), false)?;
        let remote = Remote::read(scheme, rest, &OURS, true)?;
        let config = config(&remote)?;
        let (mode, roots) = security(&remote)?;
        let setting = |name, otherwise| remote.setting(name).unwrap_or(otherwise);
        let table = Table::new(setting("table", "documents"), setting("key", "id"), setting("body", "body"));
        let table = table.map_err(|what| remote.wrong(&what))?;
        let timeout = remote.timeout()?;
        let mut server = Self { remote, config, timeout, table, mode, roots };
        server.config.ssl_mode(mode.into());
        Ok(server)
    }

    /// How TLS is spoken with it.
    pub(super) fn tls(&self) -> Result<MakeRustlsConnect, OpenError> {
        let tls = tls::client(self.mode, self.roots.as_deref());
        tls.map(MakeRustlsConnect::new).map_err(|reason| self.remote.unusable(reason))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

/// What the driver is to know. It reads the hosts; an `@` in a password would mislead it.
fn config(remote: &Remote) -> Result<Config, OpenError> {
    let url = format!("postgres://{}{}{}", remote.hosts(), remote.path(), remote.their_query());
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let what = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        remote.wrong(&format!("{what}: write postgres://USER:PASSWORD@HOST:PORT/DATABASE"))
    })?;
    let (user, password) = match remote.credentials() {
        None if remote.has_credentials() => return Err(remote.wrong("its user or password is no UTF-8")),
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

/// Whether TLS is spoken, and who vouches for the server.
fn security(remote: &Remote) -> Result<(Mode, Option<PathBuf>), OpenError> {
    let mode = remote.setting("sslmode").map_or(Ok(Mode::Prefer), str::parse);
    let mode: Mode = mode.map_err(|what| remote.wrong(&what))?;
    let roots = remote.setting("sslrootcert");
    if roots.is_some() && !mode.is_sure_of_tls() {
        return Err(remote.wrong("`sslrootcert` is for `sslmode=verify-full`: write both"));
    }
    let is_checked = mode == Mode::VerifyFull || roots.is_some();
    let mode = if is_checked { Mode::VerifyFull } else { mode };
    Ok((mode, roots.filter(|roots| *roots != "system").map(PathBuf::from)))
}

/// It took too long to open.
pub(super) fn timed_out(server: &Server) -> OpenError {
    server.remote.unusable(format!(
        "{}; check the host, the port and the network, or write a longer `timeout`",
        within(server.timeout)
    ))
}
