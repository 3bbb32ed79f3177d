//! CouchDB: PouchDB's server in memory, which has the same protocol and needs no Erlang.

use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{RunningServer, ServiceError, server::is_a_server};

/// The server's program. `make deps` installs its packages next to it.
const PROGRAM: &str = "couchdb/server.js";

/// The administrator.
const USER: &str = "stockade";

/// The password of [`USER`], encoded for a URL.
const PASSWORD: &str = "open%20sesame";

/// An empty CouchDB server.
#[derive(Debug)]
pub struct CouchDbServer {
    server: RunningServer,
}

impl CouchDbServer {
    pub fn start() -> Result<Self, ServiceError> {
        let mut couchdb = Self { server: RunningServer::new("couchdb")? };
        couchdb.restart()?;
        Ok(couchdb)
    }

    /// Restarts the server on the same port, without its data. Kills it first if it runs.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let program: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
        let command: [OsString; 5] = [
            "node".into(),
            program.into(),
            self.port().to_string().into(),
            USER.into(),
            PASSWORD.replace("%20", " ").into(),
        ];
        self.server.start("KILL", &command, welcome)
    }

    /// The URL of a database: `couchdb://USER:PASSWORD@127.0.0.1:PORT/DATABASE`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("couchdb://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port())
    }
}

is_a_server!(CouchDbServer);

/// Succeeds if the server responds, also with 401.
fn welcome(port: u16) -> Result<(), String> {
    let probe = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match probe() {
        Ok(answer) if answer.starts_with("HTTP/1.1 401") => Ok(()),
        Ok(answer) => Err(format!("it answers {answer:?}")),
        Err(error) => Err(error.to_string()),
    }
}
