//! CouchDB, as PouchDB's server in memory: the same protocol, and no Erlang.

use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    ServiceError,
    process::{Folder, Process, free_port},
};

/// The server's program, which `make deps` installs what it needs beside.
const PROGRAM: &str = "couchdb/server.js";

/// Who may do everything.
const USER: &str = "stockade";

/// What it takes to be that, as a URL has it.
const PASSWORD: &str = "open%20sesame";

/// A CouchDB server with nothing in it.
#[derive(Debug)]
pub struct CouchDb {
    /// None: it was killed.
    process: Option<Process>,
    folder: Folder,
    port: u16,
}

impl CouchDb {
    /// Starts one.
    pub fn start() -> Result<Self, ServiceError> {
        let mut couchdb = Self { process: None, folder: Folder::new("couchdb")?, port: free_port()? };
        couchdb.restart()?;
        Ok(couchdb)
    }

    /// Starts it again, empty, on the port that it had. One that runs is killed first.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        self.kill();
        let program: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
        let port = self.port;
        let command: [OsString; 5] = [
            "node".into(),
            program.into(),
            port.to_string().into(),
            USER.into(),
            PASSWORD.replace("%20", " ").into(),
        ];
        self.process = Some(Process::start(&self.folder, "KILL", &command, || welcome(port))?);
        Ok(())
    }

    /// Where a database of it is: `couchdb://USER:PASSWORD@127.0.0.1:PORT/DATABASE`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("couchdb://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it: its connections are reset, and what it had is lost.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// The process, unless it was killed.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }
}

impl Drop for CouchDb {
    fn drop(&mut self) {
        // Its folder goes after it.
        self.kill();
    }
}

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
