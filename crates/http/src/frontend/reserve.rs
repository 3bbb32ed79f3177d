//! File descriptors that are kept for the time when none is left: with one of them a new connection is accepted and answered.

use std::{collections::VecDeque, fs::File};

use tokio::net::TcpStream;

/// How many a thread keeps. More of them let more refused clients read their answer before the next one is refused.
const DESCRIPTORS: usize = 8;
/// Input that a refused client may have sent, which is discarded: unread input resets the connection, and the answer with it.
const DISCARDED_BYTES_MAX: usize = 64 << 10;

/// The descriptors of one thread. Those of refused connections are part of it until they are needed again.
#[derive(Debug, Default)]
pub(super) struct DescriptorReserve(VecDeque<ReservedDescriptor>);

#[derive(Debug)]
enum ReservedDescriptor {
    Unused(#[expect(dead_code, reason = "kept open")] File),
    Refused(TcpStream),
}

impl DescriptorReserve {
    /// Opens what is missing, as far as there are descriptors.
    pub(super) fn fill(&mut self) {
        while self.0.len() < DESCRIPTORS {
            let Ok(file) = File::open("/dev/null") else { return };
            self.0.push_back(ReservedDescriptor::Unused(file));
        }
    }

    /// Closes one that is not in use, or else that of the oldest refused connection. Returns false if none is left.
    pub(super) fn give_up(&mut self) -> bool {
        let unused = self.0.iter().position(|kept| matches!(kept, ReservedDescriptor::Unused(_)));
        match self.0.remove(unused.unwrap_or(0)) {
            Some(ReservedDescriptor::Refused(tcp)) => discard_received(&tcp),
            Some(ReservedDescriptor::Unused(_)) => {}
            None => return false,
        }
        true
    }

    /// Answers a connection, and keeps its descriptor.
    pub(super) fn refuse(&mut self, tcp: TcpStream, response: &[u8]) {
        // A new socket takes as much without blocking.
        let _ = tcp.try_write(response);
        let _ = rustix::net::shutdown(&tcp, rustix::net::Shutdown::Write);
        self.0.push_back(ReservedDescriptor::Refused(tcp));
    }

    /// Closes the connections that have been refused.
    pub(super) fn release_refused(&mut self) {
        self.0.retain(|kept| match kept {
            ReservedDescriptor::Refused(tcp) => {
                discard_received(tcp);
                false
            }
            ReservedDescriptor::Unused(_) => true,
        });
        self.fill();
    }

    /// True if it holds refused connections, until they are released.
    pub(super) fn holds_refused(&self) -> bool {
        self.0.iter().any(|kept| matches!(kept, ReservedDescriptor::Refused(_)))
    }
}

fn discard_received(tcp: &TcpStream) {
    let mut discarded = [0; 4_096];
    for _ in 0..DISCARDED_BYTES_MAX / discarded.len() {
        if !tcp.try_read(&mut discarded).is_ok_and(|read| read > 0) {
            return;
        }
    }
}
