//! What all servers have: a process, or none when it was killed, a folder, a port.

use std::{ffi::OsStr, path::Path};

use crate::{
    ServiceError,
    process::{Folder, Process, free_port},
};

/// A server on a port of the loopback. Dropped, it is killed, and its folder goes after it.
#[derive(Debug)]
pub struct Server {
    /// None: it was killed.
    process: Option<Process>,
    folder: Folder,
    port: u16,
}

impl Server {
    /// One that has not been started, with a folder and a port of its own.
    pub(crate) fn new(name: &str) -> Result<Self, ServiceError> {
        Ok(Self { process: None, folder: Folder::new(name)?, port: free_port()? })
    }

    /// Starts it, and waits until `is_ready`, which is given its port, has no more to complain about. One that
    /// runs is killed first. In the end it is sent this signal.
    pub(crate) fn start<S: AsRef<OsStr>>(
        &mut self,
        signal: &str,
        command: &[S],
        is_ready: impl Fn(u16) -> Result<(), String>,
    ) -> Result<(), ServiceError> {
        self.kill();
        self.process = Some(Process::start(&self.folder, signal, command, || is_ready(self.port))?);
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it, and whoever serves a client of its: connections are reset, and what it had only in memory is
    /// lost.
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

impl Drop for Server {
    fn drop(&mut self) {
        // Its folder goes after it.
        self.kill();
    }
}

/// A kind of server has all that its `server` has.
macro_rules! is_a_server {
    ($kind:ty) => {
        impl std::ops::Deref for $kind {
            type Target = $crate::Server;

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
