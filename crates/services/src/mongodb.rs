//! MongoDB: FerretDB, which speaks the protocol of MongoDB over SQLite. `make deps` builds it.

use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use crate::{RunningServer, ServiceError, certificate, free_port, server::is_a_server};

/// A package of a release has no path of the machine that built it: there, `STOCKADE_FERRETDB` is the name of the program.
const FERRETDB: &str = match option_env!("STOCKADE_FERRETDB") {
    Some(program) => program,
    None => concat!(env!("CARGO_MANIFEST_DIR"), "/mongodb/bin/ferretdb"),
};

/// The only user. The password contains characters that a URL has to encode.
const USER: &str = "ada";
const PASSWORD: &str = "love:lace/1815";
const PASSWORD_ENCODED: &str = "love%3Alace%2F1815";

/// The database of the user.
const DATABASE: &str = "test";

/// A server with one user and no documents.
#[derive(Debug)]
pub struct MongoDbServer {
    server: RunningServer,
    /// The second port, with TLS.
    tls_port: Option<u16>,
}

impl MongoDbServer {
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(None)
    }

    /// Starts a server with a second port for TLS and a self-signed certificate for the host `localhost`.
    pub fn with_tls() -> Result<Self, ServiceError> {
        Self::with(Some(free_port()?))
    }

    fn with(tls_port: Option<u16>) -> Result<Self, ServiceError> {
        let mut mongodb = Self { server: RunningServer::new("mongodb")?, tls_port };
        if tls_port.is_some() {
            certificate::make(mongodb.folder())?;
        }
        mongodb.restart()?;
        Ok(mongodb)
    }

    /// Restarts the server on the same ports, with its data. Kills it first if it runs.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let command = self.command();
        self.server.start("KILL", &command, greet)
    }

    fn command(&self) -> Vec<OsString> {
        let folder = self.folder().display();
        let mut command = vec![
            FERRETDB.to_owned(),
            "--handler=sqlite".to_owned(),
            format!("--sqlite-url=file:{folder}/"),
            format!("--state-dir={folder}"),
            format!("--listen-addr=127.0.0.1:{}", self.port()),
            "--debug-addr=-".to_owned(),
            "--telemetry=disable".to_owned(),
            "--log-level=WARN".to_owned(),
            "--test-enable-new-auth".to_owned(),
            format!("--setup-database={DATABASE}"),
            format!("--setup-username={USER}"),
            format!("--setup-password={PASSWORD}"),
        ];
        if let Some(port) = self.tls_port {
            command.extend([
                format!("--listen-tls=127.0.0.1:{port}"),
                format!("--listen-tls-cert-file={folder}/{}", certificate::CERTIFICATE),
                format!("--listen-tls-key-file={folder}/{}", certificate::KEY),
            ]);
        }
        command.into_iter().map(OsString::from).collect()
    }

    /// `mongodb://USER:PASSWORD@127.0.0.1:PORT/test`
    #[must_use]
    pub fn url(&self) -> String {
        format!("mongodb://{USER}:{PASSWORD_ENCODED}@127.0.0.1:{}/{DATABASE}", self.port())
    }

    /// The password, which no output may contain.
    #[must_use]
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The port for TLS, if there is one.
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// The file with the self-signed certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder().join(certificate::CERTIFICATE)
    }
}

is_a_server!(MongoDbServer);

/// `{ hello: 1, $db: "admin" }` as a message of the protocol: length, request, response, operation 2013; flags,
/// kind, document.
const HELLO: &[u8] = b"\x34\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
                       \x1f\0\0\0\x10hello\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";

/// Succeeds if the server responds to [`HELLO`], which needs no authentication.
fn greet(port: u16) -> Result<(), String> {
    let probe = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(HELLO)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)
    };
    probe().map_err(|error| error.to_string())
}
