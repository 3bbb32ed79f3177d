//! The common part of all servers: a process, a folder, a port.

use std::{ffi::OsStr, path::Path};

use crate::{
    ServiceError,
    process::{Folder, ServerProcess, free_port},
};

/// A server on a port of the loopback interface. A drop kills it and removes its folder.
#[derive(Debug)]
pub struct RunningServer {
    /// None after a kill.
    process: Option<ServerProcess>,
    folder: Folder,
    port: u16,
}

impl RunningServer {
    /// A folder and a free port, without a process.
    pub(crate) fn new(name: &str) -> Result<Self, ServiceError> {
        Self::at(name, free_port()?)
    }

    /// A folder, without a process.
    pub(crate) fn at(name: &str, port: u16) -> Result<Self, ServiceError> {
        Ok(Self { process: None, folder: Folder::new(name)?, port })
    }

    /// Starts the process and waits until `is_ready` succeeds, which receives the port. Kills a running process first.
    /// To stop the server, the guard sends it this signal.
    pub(crate) fn start<S: AsRef<OsStr>>(
        &mut self,
        signal: &str,
        command: &[S],
        is_ready: impl Fn(u16) -> Result<(), String>,
    ) -> Result<(), ServiceError> {
        self.kill();
        self.process = Some(ServerProcess::start(&self.folder, signal, command, || is_ready(self.port))?);
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server and its child processes. Connections are reset, and data in memory is lost.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops the server by its signal, as an operator does, and waits until it has ended.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// The process, if the server was not killed.
    #[must_use]
    pub fn process(&self) -> Option<&ServerProcess> {
        self.process.as_ref()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // Before the folder is removed.
        self.kill();
    }
}

/// Each kind of server dereferences to its `server`.
macro_rules! is_a_server {
    ($kind:ty) => {
        impl std::ops::Deref for $kind {
            type Target = $crate::RunningServer;

            fn deref(&self) -> &Self::Target {
                &self.server
            }
        }

        impl std::ops::DerefMut for $kind {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.server
            }
        }
    };
}

pub(crate) use is_a_server;
