//! The most frequent names of a stream, in bounded memory.
//!
//! Misra and Gries, "Finding repeated elements", 1982, in batches (Anderson et al., "A high-performance algorithm for
//! identifying frequent items in data streams", IMC 2017): with more names than the bound, the median count is taken from
//! each, and names without a count leave. A count is too low by the sum of these medians at most, which is below two
//! requests for each name of the bound: one request in 2,048. With fewer names all counts are exact.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table};

/// The names that are counted at once.
const NAMES_MAX: usize = 4_096;
/// A longer name is cut.
const NAME_BYTES_MAX: usize = 100;

/// Requests and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    name: Box<str>,
    count: Count,
}

/// Counts of names.
#[derive(Debug, Default)]
pub(super) struct Top {
    entries: HashTable<Entry>,
    too_low_by: u64,
}

impl Top {
    /// Counts requests for a name.
    pub fn add(&mut self, name: &[u8], count: Count) {
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let hash = hash_of(name);
        match self.entries.entry(hash, |entry| entry.hash == hash, |entry| entry.hash) {
            hash_table::Entry::Occupied(mut entry) => entry.get_mut().count.add(count),
            hash_table::Entry::Vacant(vacant) => {
                let name = String::from_utf8_lossy(name).into();
                vacant.insert(Entry { hash, name, count });
                if self.entries.len() > NAMES_MAX {
                    self.shrink();
                }
            }
        }
    }

    fn shrink(&mut self) {
        let mut counts: Vec<u64> = self.entries.iter().map(|entry| entry.count.requests).collect();
        let middle = counts.len() / 2;
        let median = *counts.select_nth_unstable(middle).1;
        self.too_low_by += median;
        self.entries.retain(|entry| {
            entry.count.requests = entry.count.requests.saturating_sub(median);
            entry.count.requests > 0
        });
    }

    /// The names, the most frequent first, and by how many requests a count may be too low.
    pub fn finish(self) -> (Vec<(String, Count)>, u64) {
        let mut names: Vec<(String, Count)> =
            self.entries.into_iter().map(|entry| (entry.name.into(), entry.count)).collect();
        names.sort_unstable_by(|one, other| (other.1.requests, &one.0).cmp(&(one.1.requests, &other.0)));
        (names, self.too_low_by)
    }
}

/// The hash of a name, the same in each run.
pub(super) fn hash_of(name: &[u8]) -> u64 {
    const HASHER: FixedState = FixedState::with_seed(0);
    HASHER.hash_one(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: u64) -> Count {
        Count { requests: 1, bytes }
    }

    #[test]
    fn few_names_are_counted_exactly() {
        let mut top = Top::default();
        for n in 0..9_000_u64 {
            top.add(format!("/{}", n % 3_000).as_bytes(), one(n % 3_000));
        }
        top.add(b"/7", one(5));
        let (names, too_low_by) = top.finish();
        assert_eq!((names.len(), too_low_by), (3_000, 0));
        assert_eq!(names[0], ("/7".to_owned(), Count { requests: 4, bytes: 26 }));
        assert_eq!(names[1], ("/0".to_owned(), Count { requests: 3, bytes: 0 }));
    }

    /// A name of one in a hundred requests among 500,000 names that come once.
    #[test]
    fn frequent_name_among_many_is_found_within_the_error() {
        let mut top = Top::default();
        for n in 0..500_000_u64 {
            top.add(format!("once {n}").as_bytes(), one(1));
            if n % 100 == 0 {
                top.add(b"often", one(1));
            }
            assert!(top.entries.len() <= NAMES_MAX);
        }
        let (names, too_low_by) = top.finish();
        assert_eq!(names[0].0, "often");
        assert!(names[0].1.requests <= 5_000 && names[0].1.requests + too_low_by >= 5_000, "{:?}", names[0]);
        assert!(too_low_by <= 505_000 / 2_048, "{too_low_by}");
    }
}
