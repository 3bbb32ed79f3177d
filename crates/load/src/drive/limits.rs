//! What this machine lets one process have: asked before a load begins, not found out within.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{client::Options, plan::Plan};

/// What a process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files open at once; each connection is one.
    pub files: u64,
    /// Local ports: so many connections there can be to one address.
    pub ports: u64,
}

/// More than this machine can have open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// More connections than files.
    #[error(
        "{connections} connections need as many open files, and this process may have {files}: raise `ulimit -n`, \
         or ask for at most {}", .files.saturating_sub(Limits::FILES_KEPT)
    )]
    Files {
        /// What was asked for.
        connections: u64,
        /// What there are.
        files: u64,
    },
    /// More connections than ports.
    #[error(
        "{connections} connections to one address need as many local ports, and there are {ports}: ask for fewer, \
         or widen net.ipv4.ip_local_port_range"
    )]
    Ports {
        /// What was asked for.
        connections: u64,
        /// What there are.
        ports: u64,
    },
}

impl Limits {
    /// Files for everything that is no connection.
    const FILES_KEPT: u64 = 64;
    /// More are seldom of use.
    const IN_FLIGHT: usize = 10_000;

    /// Of this process, its limit on files raised as far as the system lets it.
    #[must_use]
    pub fn raised() -> Self {
        let limit = getrlimit(Resource::Nofile);
        // What cannot be raised stays, and is what there is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
        let ports = match (ends.next(), ends.next()) {
            (Some(first), Some(last)) => last.saturating_sub(first) + 1,
            _ => 28_232,
        };
        Self { files: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), ports }
    }

    /// How many connections there can be at once.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.files.saturating_sub(Self::FILES_KEPT).min(self.ports).max(1)
    }

    /// How many requests of an open load may be under way where nobody says: 10,000, or what there is room for, and
    /// whatever is due at once.
    #[must_use]
    pub fn in_flight(&self, plan: &Plan, http2: bool) -> usize {
        let most = usize::try_from(self.connections()).unwrap_or(usize::MAX);
        // In HTTP/2 what is due at once shares connections; a task each is enough.
        let at_once = if http2 { 0 } else { usize::try_from(plan.at_once_max()).unwrap_or(usize::MAX) };
        Self::IN_FLIGHT.min(most).max(at_once)
    }

    /// Whether all can be had that is asked for.
    pub(super) fn check(&self, plan: &Plan, max_in_flight: usize, options: &Options) -> Result<(), TooMany> {
        let users = plan.connections_max() as u64;
        // What is due at once shares connections in HTTP/2.
        let burst = if options.http2 { 0 } else { plan.at_once_max().min(max_in_flight as u64) };
        let connections = users.max(burst);
        if connections > self.files.saturating_sub(Self::FILES_KEPT) {
            return Err(TooMany::Files { connections, files: self.files });
        }
        if connections > self.ports && options.unix.is_none() {
            return Err(TooMany::Ports { connections, ports: self.ports });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Closed, Until};

    #[test]
    fn what_cannot_be_had_is_refused_beforehand() {
        let limits = Limits { files: 1_024, ports: 500 };
        assert_eq!(limits.connections(), 500);
        let users = |users| Plan::closed(Closed::new(users, Until::Requests(1))).unwrap();
        let (plain, unix) =
            (Options::default(), Options { unix: Some("socket".into()), ..Options::default() });
        let refused = |plan: Plan, options: &Options| limits.check(&plan, 10_000, options).err();
        assert_eq!(refused(users(500), &plain), None);
        assert_eq!(refused(users(501), &plain), Some(TooMany::Ports { connections: 501, ports: 500 }));
        assert_eq!(refused(users(960), &unix), None);
        assert_eq!(refused(users(961), &unix), Some(TooMany::Files { connections: 961, files: 1_024 }));
        let burst = Plan::burst(2_000).unwrap();
        let many = refused(burst, &unix).unwrap();
        assert_eq!(
            many.to_string(),
            "2000 connections need as many open files, and this process may have 1024: raise `ulimit -n`, or ask \
             for at most 960"
        );
    }
}
