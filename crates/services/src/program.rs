//! A server that the caller configures.

use std::{fs, path::Path};

use crate::{RunningServer, ServiceError, process::accepts, server::is_a_server};

/// Any server that accepts connections when it is ready, and stops on SIGTERM.
#[derive(Debug)]
pub struct ProgramServer {
    server: RunningServer,
    command: Vec<String>,
}

impl ProgramServer {
    /// `configure` receives the server's folder and port, writes the files that the server needs, and returns its command.
    pub fn start(
        name: &str,
        configure: impl FnOnce(&Path, u16) -> std::io::Result<Vec<String>>,
    ) -> Result<Self, ServiceError> {
        let mut server = RunningServer::new(name)?;
        let command = configure(server.folder(), server.port())?;
        server.start("TERM", &command, accepts)?;
        Ok(Self { server, command })
    }

    /// Stops the server if it runs, and starts it with the same command.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        self.server.stop();
        self.server.start("TERM", &self.command, accepts)
    }

    /// The text that the server has written to its standard output and error.
    pub fn log(&self) -> Result<String, ServiceError> {
        Ok(fs::read_to_string(self.folder().join("log"))?)
    }
}

is_a_server!(ProgramServer);
