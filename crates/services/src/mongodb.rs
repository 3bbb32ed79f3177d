//! MongoDB: FerretDB, which speaks its protocol over SQLite. `make deps` builds it.

use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use crate::{Server, ServiceError, certificate, free_port, server::is_a_server};

/// The program.
const FERRETDB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mongodb/bin/ferretdb");

/// The one user. The password has what has to be encoded in a URL.
const USER: &str = "ada";
const PASSWORD: &str = "love:lace/1815";
const PASSWORD_ENCODED: &str = "love%3Alace%2F1815";

/// The database that the user is one of.
const DATABASE: &str = "test";

/// A server with one user and no documents.
#[derive(Debug)]
pub struct MongoDb {
    server: Server,
    /// A second port, where it speaks TLS.
    tls_port: Option<u16>,
}

impl MongoDb {
    /// Starts one.
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(None)
    }

    /// Starts one that speaks TLS on a second port, with a certificate of its own for the host `localhost`.
    pub fn with_tls() -> Result<Self, ServiceError> {
        Self::with(Some(free_port()?))
    }

    fn with(tls_port: Option<u16>) -> Result<Self, ServiceError> {
        let mut mongodb = Self { server: Server::new("mongodb")?, tls_port };
        if tls_port.is_some() {
            certificate::make(mongodb.folder())?;
        }
        mongodb.restart()?;
        Ok(mongodb)
    }

    /// Starts it again, with all that it held, on the ports that it had. One that runs is killed first.
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

    /// Where it listens, and who may ask: `mongodb://USER:PASSWORD@127.0.0.1:PORT/test`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mongodb://{USER}:{PASSWORD_ENCODED}@127.0.0.1:{}/{DATABASE}", self.port())
    }

    /// The password, which nobody may ever show.
    #[must_use]
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Its port for TLS, if it has one.
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// The certificate that it shows to whoever speaks TLS, and that vouches for itself.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder().join(certificate::CERTIFICATE)
    }
}

is_a_server!(MongoDb);

/// `{ hello: 1, $db: "admin" }` as a message of the protocol: length, request, response, operation 2013; flags,
/// kind, document.
const HELLO: &[u8] = b"\x34\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
                       \x1f\0\0\0\x10hello\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";

/// Whether it answers, which it does before anybody has said who they are.
fn greet(port: u16) -> Result<(), String> {
    let ask = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(HELLO)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)
    };
    ask().map_err(|error| error.to_string())
}
