//! The limits of this process on connections, checked before a load starts.

use std::fs;

use stockade_net::proc::raise_open_files;

use crate::{client::ClientOptions, plan::Plan};

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
    pub fn in_flight(&self, plan: &Plan, http2: bool) -> usize {
        let connections = usize::try_from(self.connections()).unwrap_or(usize::MAX);
        // HTTP/2 requests share connections.
        let burst = if http2 { 0 } else { usize::try_from(plan.burst_max()).unwrap_or(usize::MAX) };
        Self::IN_FLIGHT_DEFAULT.min(connections).max(burst)
    }

    /// Checks that the plan's connections can be opened.
    pub(super) fn check(
        &self,
        plan: &Plan,
        max_in_flight: usize,
        options: &ClientOptions,
    ) -> Result<(), ConnectionLimitError> {
        let closed = plan.connections_max() as u64;
        // HTTP/2 requests share connections.
        let burst = if options.http2 { 0 } else { plan.burst_max().min(max_in_flight as u64) };
        let connections = closed.max(burst);
        if connections > self.files.saturating_sub(Self::FILES_RESERVED) {
            return Err(ConnectionLimitError::Files { connections, files: self.files });
        }
        if connections > self.ports && options.unix_socket.is_none() {
            return Err(ConnectionLimitError::Ports { connections, ports: self.ports });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ClosedLoop, EndCondition};

    #[test]
    fn plan_with_too_many_connections_is_refused() {
        let limits = ProcessLimits { files: 1_024, ports: 500 };
        assert_eq!(limits.connections(), 500);
        let closed =
            |connections| Plan::closed_loop(ClosedLoop::new(connections, EndCondition::Requests(1))).unwrap();
        let (plain, unix) = (
            ClientOptions::default(),
            ClientOptions { unix_socket: Some("socket".into()), ..ClientOptions::default() },
        );
        let refused = |plan: Plan, options: &ClientOptions| limits.check(&plan, 10_000, options).err();
        assert_eq!(refused(closed(500), &plain), None);
        assert_eq!(
            refused(closed(501), &plain),
            Some(ConnectionLimitError::Ports { connections: 501, ports: 500 })
        );
        assert_eq!(refused(closed(960), &unix), None);
        assert_eq!(
            refused(closed(961), &unix),
            Some(ConnectionLimitError::Files { connections: 961, files: 1_024 })
        );
        let burst = Plan::burst(2_000).unwrap();
        let many = refused(burst, &unix).unwrap();
        assert_eq!(
            many.to_string(),
            "2000 connections need as many open files, and this process may have 1024: raise `ulimit -n`, or ask \
             for at most 960"
        );
    }
}
