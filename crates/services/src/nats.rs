//! NATS with JetStream.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use crate::{RunningServer, ServiceError, process::path_or_name, server::is_a_server};

const PROGRAM: &str = "/usr/sbin/nats-server";

/// A NATS server without streams.
#[derive(Debug)]
pub struct NatsServer {
    server: RunningServer,
    settings: Vec<String>,
}

impl NatsServer {
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(&[])
    }

    /// Starts a server with more arguments: `["--user", "ann", "--pass", "secret"]`.
    pub fn with(settings: &[&str]) -> Result<Self, ServiceError> {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut nats = Self { server: RunningServer::new("nats")?, settings };
        nats.restart()?;
        Ok(nats)
    }

    /// Restarts the server on the same port, with its streams. Kills it first if it runs.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let mut command: Vec<OsString> =
            vec![path_or_name(PROGRAM).into(), "--jetstream".into(), "--addr".into()];
        command.extend(["127.0.0.1", "--port", &self.port().to_string(), "--store_dir"].map(OsString::from));
        command.push(self.folder().join("streams").into());
        command.extend(self.settings.iter().map(OsString::from));
        self.server.start("KILL", &command, is_ready)
    }

    /// `nats://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }
}

is_a_server!(NatsServer);

/// Succeeds if the server introduces itself.
fn is_ready(port: u16) -> Result<(), String> {
    let greeting = || -> std::io::Result<String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    match greeting() {
        Ok(line) if line.starts_with("INFO ") && line.contains("\"jetstream\":true") => Ok(()),
        Ok(line) => Err(line),
        Err(error) => Err(error.to_string()),
    }
}
