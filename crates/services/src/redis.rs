//! Redis, without persistence.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use crate::{RunningServer, ServiceError, server::is_a_server};

/// An empty Redis server.
#[derive(Debug)]
pub struct RedisServer {
    server: RunningServer,
    settings: Vec<String>,
}

impl RedisServer {
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(&[])
    }

    /// Starts a server with more settings, in the form of its command line: `["--requirepass", "secret"]`.
    pub fn with(settings: &[&str]) -> Result<Self, ServiceError> {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut redis = Self { server: RunningServer::new("redis")?, settings };
        redis.restart()?;
        Ok(redis)
    }

    /// Restarts the server on the same port, without its data. Kills it first if it runs.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let port = self.port();
        let command = format!("redis-server --port {port} --bind 127.0.0.1 --save  --appendonly no --dir");
        let mut command: Vec<_> = command.split(' ').map(OsString::from).collect();
        command.push(self.folder().into());
        command.extend(self.settings.iter().map(OsString::from));
        self.server.start("KILL", &command, ping)
    }

    /// `redis://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}

is_a_server!(RedisServer);

/// Succeeds if the server responds, also with a request for a password.
fn ping(port: u16) -> Result<(), String> {
    match send_command(port, "PING") {
        Ok(reply) if reply.starts_with("+PONG") || reply.starts_with("-NOAUTH") => Ok(()),
        Ok(reply) => Err(format!("it answers {reply:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends a command and returns the reply: a line or a bulk string.
pub(crate) fn send_command(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let (mut reply, mut reader) = (String::new(), BufReader::new(stream));
    reader.read_line(&mut reply)?;
    if let Some(length) = reply.strip_prefix('$').and_then(|length| length.trim().parse().ok()) {
        let mut text = vec![0; length];
        reader.read_exact(&mut text)?;
        reply = String::from_utf8_lossy(&text).into_owned();
    }
    Ok(reply.trim_end().to_owned())
}
