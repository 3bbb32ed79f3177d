//! CouchDB, as PouchDB's server in memory: the same protocol, and no Erlang.

use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Server, ServiceError, server::is_a_server};

/// The server's program, which `make deps` installs what it needs beside.
const PROGRAM: &str = "couchdb/server.js";

/// Who may do everything.
const USER: &str = "stockade";

/// What it takes to be that, as a URL has it.
const PASSWORD: &str = "open%20sesame";

/// A CouchDB server with nothing in it.
#[derive(Debug)]
pub struct CouchDb {
    server: Server,
}

impl CouchDb {
    /// Starts one.
    pub fn start() -> Result<Self, ServiceError> {
        let mut couchdb = Self { server: Server::new("couchdb")? };
        couchdb.restart()?;
        Ok(couchdb)
    }

    /// Starts it again, empty, on the port that it had. One that runs is killed first.
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

    /// Where a database of it is: `couchdb://USER:PASSWORD@127.0.0.1:PORT/DATABASE`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("couchdb://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port())
    }
}

is_a_server!(CouchDb);

/// Whether it answers, and be it that a password is missing.
fn welcome(port: u16) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.starts_with("HTTP/1.1 401") => Ok(()),
        Ok(answer) => Err(format!("it answers {answer:?}")),
        Err(error) => Err(error.to_string()),
    }
}
