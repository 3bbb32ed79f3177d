//! PostgreSQL, with a password, and with TLS where it is asked for.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::geteuid;

use crate::{Server, ServiceError, certificate, process::run, server::is_a_server};

/// Who may do everything.
const USER: &str = "stockade";

/// What it takes to be that.
const PASSWORD: &str = "open sesame";

/// Where Debian has the server's programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// Quick, and as safe as something that lives for a test has to be: what was committed survives a kill.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "logging_collector=off",
];

/// A PostgreSQL server with nothing in it but the database `postgres`.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    programs: PathBuf,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts one.
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(&[])
    }

    /// Starts one with more settings, as in its configuration: `["max_connections=10"]`.
    pub fn with(settings: &[&str]) -> Result<Self, ServiceError> {
        Self::new(settings.iter().map(|&setting| setting.to_owned()).collect(), false)
    }

    /// Starts one that speaks TLS to whoever wants it, with a certificate of its own for the host `localhost`.
    pub fn with_tls() -> Result<Self, ServiceError> {
        Self::new(vec!["ssl=on".to_owned()], true)
    }

    fn new(mut settings: Vec<String>, has_certificate: bool) -> Result<Self, ServiceError> {
        let server = Server::new("postgres")?;
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

    /// Makes the folder that its data live in.
    fn initialise(&self) -> Result<(), ServiceError> {
        let password = self.folder().join("password");
        fs::write(&password, PASSWORD)?;
        if geteuid().is_root() {
            run(Command::new("chown").arg("-R").arg("postgres:").arg(self.folder()))?;
        }
        let mut command = as_nobody_special(self.programs.join("initdb"));
        command.extend(
            ["--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"].map(Into::into),
        );
        command.push(format!("--username={USER}").into());
        command.push(format!("--pwfile={}", password.display()).into());
        command.push(self.data().into());
        run(Command::new(&command[0]).args(&command[1..]))?;
        Ok(())
    }

    /// Starts it again, with the data that it had, on the port that it had. One that runs is killed first.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let mut command = as_nobody_special(self.programs.join("postgres"));
        command.extend(["-D".into(), self.data().into(), "-p".into(), self.port().to_string().into()]);
        let sockets = format!("unix_socket_directories={}", self.folder().display());
        for setting in
            SETTINGS.into_iter().chain([sockets.as_str()]).chain(self.settings.iter().map(String::as_str))
        {
            command.extend(["-c".into(), setting.into()]);
        }
        // Without ado: to every client at once, and no more is written.
        self.server.start("QUIT", &command, |port| {
            let mut ask = Command::new(self.programs.join("pg_isready"));
            ask.args(["--host", "127.0.0.1", "--port"]).arg(port.to_string());
            run(&mut ask).map(drop).map_err(|error| error.to_string())
        })
    }

    /// Where it listens: `postgres://USER:PASSWORD@127.0.0.1:PORT/postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/postgres", PASSWORD.replace(' ', "%20"), self.port())
    }

    /// The file with its certificate, if it has one.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder().join(certificate::CERTIFICATE)
    }

    /// What it answers to some SQL, a line a row, with `|` between columns.
    pub fn ask(&self, sql: &str) -> Result<String, ServiceError> {
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

is_a_server!(Postgres);

/// Where its programs are: the newest that Debian has installed, or else wherever the path leads.
fn programs() -> PathBuf {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path());
    installed.max_by_key(|path| version(path)).map(|path| path.join("bin")).unwrap_or_default()
}

/// A command that PostgreSQL lets run: it refuses to be root.
fn as_nobody_special(program: PathBuf) -> Vec<OsString> {
    let mut command: Vec<OsString> = Vec::new();
    if geteuid().is_root() {
        let become_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
        command.extend(become_postgres.map(Into::into));
    }
    command.push(program.into());
    command
}
