//! The memory of the process, kept below the bound that operators plan for.
//!
//! The limit of the cache counts what entries need. An allocator holds more: after a day of small bodies their freed pieces do not
//! make room for large ones, and bodies in the [file](stockade_http::body_file) leave pages behind. What is resident beyond the
//! entries and an allowance is [set aside](stockade_cache::Cache::set_aside) from the limit, so that entries make room for it
//! until the allocator has returned it. An allocator needs a moment for that, in which large bodies could arrive: they are not stored while
//! the file has [no room](stockade_http::body_file::BodyFile::has_room).

use std::time::Duration;

/// From one reading to the next.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// The same while nothing is stored.
pub const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// Memory beyond the limit that is allowed, in percent of the limit. The documented bound has 15 % here and 50 MiB in [`PROGRAM_BYTES`]: the
/// difference is room for bytes that arrive between two readings.
const SLACK_PERCENT: u64 = 10;
/// Buffers of a connection and its requests.
const CLIENT_CONNECTION_BYTES: u64 = 128 << 10;
const ORIGIN_CONNECTION_BYTES: u64 = 256 << 10;
/// The program without connections.
const PROGRAM_BYTES: u64 = 45 << 20;

/// The memory of the process at one time, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryReading {
    /// What is resident apart from the file of large bodies: the heap, stacks, and the program.
    pub process: u64,
    /// The file of large bodies.
    pub body_file: u64,
    /// Entries and loads in flight, as the cache counts them.
    pub counted: u64,
    pub client_connections: u64,
    pub origin_connections: u64,
}

impl MemoryReading {
    /// Memory that entries do not use.
    fn allowance(&self, limit_bytes: u64) -> u64 {
        PROGRAM_BYTES
            + self.client_connections * CLIENT_CONNECTION_BYTES
            + self.origin_connections * ORIGIN_CONNECTION_BYTES
            + limit_bytes / 100 * SLACK_PERCENT
    }

    /// The bytes of the cache's limit that are to be set aside. Large bodies of `refused` bytes had no room since the last
    /// reading: entries make room for the next ones.
    #[must_use]
    pub fn surplus(&self, limit_bytes: u64, refused: u64) -> u64 {
        refused + (self.process + self.body_file).saturating_sub(self.counted + self.allowance(limit_bytes))
    }

    /// The bytes that large bodies may take until the next reading.
    #[must_use]
    pub fn body_file_max(&self, limit_bytes: u64) -> u64 {
        (limit_bytes + self.allowance(limit_bytes)).saturating_sub(self.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn reading(process: u64, body_file: u64, counted: u64) -> MemoryReading {
        MemoryReading {
            process: process * MIB,
            body_file: body_file * MIB,
            counted: counted * MIB,
            client_connections: 80,
            origin_connections: 40,
        }
    }

    // The program may have 45 MiB, connections 10 and 10, and 10 are a part of the limit.
    #[test]
    fn only_what_exceeds_entries_connections_and_a_part_of_the_limit_is_set_aside() {
        for (process, body_file, counted, expected) in
            [(20, 0, 0, 0), (175, 0, 100, 0), (100, 100, 100, 25), (90, 10, 100, 0), (300, 0, 0, 225)]
        {
            let surplus = reading(process, body_file, counted).surplus(100 * MIB, 0);
            assert_eq!(surplus / MIB, expected, "{process} and {body_file} of {counted}");
        }
        assert_eq!(reading(20, 0, 0).surplus(100 * MIB, 7), 7, "large bodies had no room");
    }

    #[test]
    fn large_bodies_have_what_the_heap_leaves() {
        for (process, expected) in [(75, 100), (175, 0), (500, 0), (5, 170)] {
            let body_file_max = reading(process, 50, 100).body_file_max(100 * MIB);
            assert_eq!(body_file_max / MIB, expected, "{process}");
        }
    }
}
