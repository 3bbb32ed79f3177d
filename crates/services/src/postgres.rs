//! PostgreSQL, with a password and optional TLS.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::geteuid;

use crate::{RunningServer, ServiceError, certificate, process::run, server::is_a_server};

/// The superuser.
const USER: &str = "stockade";

/// The password of [`USER`].
const PASSWORD: &str = "open sesame";

/// The folder of the server's programs on Debian, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// Fast settings for tests. Committed data survives a kill.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "logging_collector=off",
];

/// A PostgreSQL server with only the database `postgres`, which is empty.
#[derive(Debug)]
pub struct PostgresServer {
    server: RunningServer,
    programs: PathBuf,
    settings: Vec<String>,
}

impl PostgresServer {
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(&[])
    }

    /// Starts a server with more settings, in the form of its configuration: `["max_connections=10"]`.
    pub fn with(settings: &[&str]) -> Result<Self, ServiceError> {
        Self::new(settings.iter().map(|&setting| setting.to_owned()).collect(), false)
    }

    /// Starts a server that also accepts TLS, with a self-signed certificate for the host `localhost`.
    pub fn with_tls() -> Result<Self, ServiceError> {
        Self::new(vec!["ssl=on".to_owned()], true)
    }

    fn new(mut settings: Vec<String>, has_certificate: bool) -> Result<Self, ServiceError> {
        let server = RunningServer::new("postgres")?;
        if has_certificate {
            certificate::make(server.folder())?;
            for (setting, file) in
                [("ssl_cert_file", certificate::CERTIFICATE), ("ssl_key_file", certificate::KEY)]
            {
                settings.push(format!("{setting}={}", server.folder().join(file).display()));
            }
        }
        let mut postgres = Self { server, programs: programs(), settings };
        postgres.initialise()?;
        postgres.restart()?;
        Ok(postgres)
    }

    /// Creates the data folder.
    fn initialise(&self) -> Result<(), ServiceError> {
        let password = self.folder().join("password");
        fs::write(&password, PASSWORD)?;
        if geteuid().is_root() {
            run(Command::new("chown").arg("-R").arg("postgres:").arg(self.folder()))?;
        }
        let mut command = as_unprivileged_user(self.programs.join("initdb"));
        command.extend(
            ["--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"].map(Into::into),
        );
        command.push(format!("--username={USER}").into());
        command.push(format!("--pwfile={}", password.display()).into());
        command.push(self.data().into());
        run(Command::new(&command[0]).args(&command[1..]))?;
        Ok(())
    }

    /// Restarts the server on the same port, with its data. Kills it first if it runs.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let mut command = as_unprivileged_user(self.programs.join("postgres"));
        command.extend(["-D".into(), self.data().into(), "-p".into(), self.port().to_string().into()]);
        let sockets = format!("unix_socket_directories={}", self.folder().display());
        for setting in
            SETTINGS.into_iter().chain([sockets.as_str()]).chain(self.settings.iter().map(String::as_str))
        {
            command.extend(["-c".into(), setting.into()]);
        }
        // QUIT ends all sessions at once, without a checkpoint.
        self.server.start("QUIT", &command, |port| {
            let mut probe = Command::new(self.programs.join("pg_isready"));
            probe.args(["--host", "127.0.0.1", "--port"]).arg(port.to_string());
            run(&mut probe).map(drop).map_err(|error| error.to_string())
        })
    }

    /// `postgres://USER:PASSWORD@127.0.0.1:PORT/postgres`
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/postgres", PASSWORD.replace(' ', "%20"), self.port())
    }

    /// The file with the certificate, if there is one.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder().join(certificate::CERTIFICATE)
    }

    /// Runs SQL in `psql`. The result has one line for each row and `|` between columns.
    pub fn query(&self, sql: &str) -> Result<String, ServiceError> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet", "--set=ON_ERROR_STOP=1"]);
        psql.args(["--host=127.0.0.1", "--dbname=postgres", "--username", USER, "--port"]);
        psql.arg(self.port().to_string()).args(["--command", sql]).env("PGPASSWORD", PASSWORD);
        run(&mut psql)
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }
}

is_a_server!(PostgresServer);

/// The newest version that Debian has installed. An empty path means the programs in `PATH`.
fn programs() -> PathBuf {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path());
    installed.max_by_key(|path| version(path)).map(|path| path.join("bin")).unwrap_or_default()
}

/// The server refuses to run as root, so root runs it as another user.
fn as_unprivileged_user(program: PathBuf) -> Vec<OsString> {
    let mut command: Vec<OsString> = Vec::new();
    if geteuid().is_root() {
        let become_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
        command.extend(become_postgres.map(Into::into));
    }
    command.push(program.into());
    command
}
