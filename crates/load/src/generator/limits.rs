//! The limits of this process on connections, checked before a load starts.

use std::fs;

use stockade_net::proc::raise_open_files;

use super::LoadTest;

/// The limits of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files; each connection is one.
    pub files: u64,
    /// Local ports: the most connections to one address.
    pub ports: u64,
}

/// More connections than this process can open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionLimitError {
    /// More connections than files.
    #[error(
        "{connections} connections need as many open files, and this process may have {files}: raise `ulimit -n`, \
         or ask for at most {}", .files.saturating_sub(ProcessLimits::FILES_RESERVED)
    )]
    Files {
        /// The connections that the plan needs.
        connections: u64,
        /// The limit.
        files: u64,
    },
    /// More connections than ports.
    #[error(
        "{connections} connections to one address need as many local ports, and there are {ports}: ask for fewer, \
         or widen net.ipv4.ip_local_port_range"
    )]
    Ports {
        /// The connections that the plan needs.
        connections: u64,
        /// The limit.
        ports: u64,
    },
}

impl ProcessLimits {
    /// Files that are not available for connections.
    const FILES_RESERVED: u64 = 64;
    const IN_FLIGHT_DEFAULT: usize = 10_000;

    /// Raises the soft limit on open files to the hard limit, and returns the limits.
    #[must_use]
    pub fn raised() -> Self {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
        let ports = match (ends.next(), ends.next()) {
            (Some(first), Some(last)) => last.saturating_sub(first) + 1,
            _ => 28_232,
        };
        Self { files: raise_open_files(), ports }
    }

    /// The most connections to one address.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.files.saturating_sub(Self::FILES_RESERVED).min(self.ports).max(1)
    }

    /// The default bound on requests in flight in open phases: 10,000 or [`connections`](Self::connections), and at least
    /// the largest burst.
    #[must_use]
    pub fn in_flight(&self, burst: usize) -> usize {
        let connections = usize::try_from(self.connections()).unwrap_or(usize::MAX);
        Self::IN_FLIGHT_DEFAULT.min(connections).max(burst)
    }

    /// Checks that a generator's connections can be opened.
    pub(super) fn check(&self, load: &LoadTest) -> Result<(), ConnectionLimitError> {
        let burst = load.own_burst().min(load.own_in_flight_max());
        self.check_connections(load.own_connections().max(burst) as u64, load.options.unix_socket.is_none())
    }

    fn check_connections(&self, connections: u64, needs_ports: bool) -> Result<(), ConnectionLimitError> {
        if connections > self.files.saturating_sub(Self::FILES_RESERVED) {
            return Err(ConnectionLimitError::Files { connections, files: self.files });
        }
        if connections > self.ports && needs_ports {
            return Err(ConnectionLimitError::Ports { connections, ports: self.ports });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_connections_are_refused() {
        let limits = ProcessLimits { files: 1_024, ports: 500 };
        assert_eq!(limits.connections(), 500);
        let refused = |connections, needs_ports| limits.check_connections(connections, needs_ports).err();
        assert_eq!(refused(500, true), None);
        assert_eq!(refused(501, true), Some(ConnectionLimitError::Ports { connections: 501, ports: 500 }));
        assert_eq!(refused(960, false), None);
        assert_eq!(refused(961, false), Some(ConnectionLimitError::Files { connections: 961, files: 1_024 }));
        assert_eq!(
            refused(2_000, false).unwrap().to_string(),
            "2000 connections need as many open files, and this process may have 1024: raise `ulimit -n`, or ask \
             for at most 960"
        );
    }
}
