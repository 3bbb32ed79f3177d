//! The limits of this process on connections, checked before a load starts.

use std::fs;

use stockade_model::proc::raise_open_files;
use stockade_model::units::format_count;

use super::LoadTest;

/// The limits of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files; each connection is one.
    pub files: u64,
    /// Local ports: the most connections to one address.
    pub ports: u64,
}

/// The requests that may be in flight in open phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlightLimit {
    /// The most at once.
    pub(super) most: usize,
    /// This number suffices, however slow the server is: the highest rate, times the timeout.
    pub(super) enough: usize,
    /// True if the limit is that of this process, and no choice.
    pub(super) is_of_process: bool,
}

impl InFlightLimit {
    /// The settings that would make the limit high enough.
    pub(super) fn remedy(&self) -> String {
        let Self { enough, .. } = *self;
        let suffice = format!("{} suffice (rate times timeout)", format_count(enough as u64));
        if self.is_of_process {
            let files = enough as u64 + ProcessLimits::FILES_RESERVED;
            format!(
                "{suffice}: raise `ulimit -n` to {files} and the range of local ports to {enough}, \
                 shorten the timeout, or divide the load among agents"
            )
        } else {
            format!("{suffice}: raise the limit to that, or shorten the timeout")
        }
    }
}

/// More connections than this process can open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionLimitError {
    /// More connections than files.
    #[error(
        "{connections} connections need as many open files, and this process may have {files}: raise `ulimit -n` to {}{}",
        .connections + ProcessLimits::FILES_RESERVED,
        or_at_most(.files.saturating_sub(ProcessLimits::FILES_RESERVED))
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

/// The number of connections that would be allowed; empty if that is 0.
fn or_at_most(connections: u64) -> String {
    if connections == 0 { String::new() } else { format!(", or ask for at most {connections}") }
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

    /// The default bound on requests in flight in open phases: 10,000, or those that are `enough` where they are more, at most
    /// [`connections`](Self::connections), and at least the largest burst.
    #[must_use]
    pub fn in_flight(&self, enough: usize, burst: usize) -> usize {
        let connections = usize::try_from(self.connections()).unwrap_or(usize::MAX);
        Self::IN_FLIGHT_DEFAULT.max(enough).min(connections).max(burst)
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
            "2000 connections need as many open files, and this process may have 1024: raise `ulimit -n` to 2064, or ask \
             for at most 960"
        );
        let few = ProcessLimits { files: 64, ports: 500 };
        assert_eq!(
            few.check_connections(200, false).unwrap_err().to_string(),
            "200 connections need as many open files, and this process may have 64: raise `ulimit -n` to 264"
        );
    }

    #[test]
    fn default_limit_in_flight_is_enough_for_rate_times_timeout_if_the_process_has_so_many() {
        let limits = ProcessLimits { files: 1 << 20, ports: 28_232 };
        assert_eq!(limits.in_flight(300, 1), 10_000);
        assert_eq!(limits.in_flight(12_750, 1), 12_750);
        assert_eq!(limits.in_flight(60_000, 1), 28_232);
        assert_eq!(limits.in_flight(60_000, 40_000), 40_000);
        assert_eq!(ProcessLimits { files: 256, ports: 28_232 }.in_flight(9_000, 1), 192);
    }
}
