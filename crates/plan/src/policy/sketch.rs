//! A sketch of how often keys were requested lately.

use crate::trace::Key;

const ROWS: usize = 4;
const COUNT_MAX: u8 = 15;
/// After this many additions a counter all counters are halved.
const SAMPLE_FACTOR: u64 = 10;

/// A count-min sketch with counters to 15, which are halved from time to time (`TinyLFU`).
pub(crate) struct FrequencySketch {
    counters: Vec<u8>,
    mask: u64,
    additions: u64,
    additions_max: u64,
}

impl FrequencySketch {
    /// For about this many entries.
    pub(crate) fn new(entries: usize) -> Self {
        let width = entries.clamp(16, 1 << 28).next_power_of_two();
        Self {
            counters: vec![0; width * ROWS],
            mask: width as u64 - 1,
            additions: 0,
            additions_max: SAMPLE_FACTOR * entries.max(16) as u64,
        }
    }

    fn slots(&self, key: Key) -> [usize; ROWS] {
        std::array::from_fn(|row| {
            let hash = (u64::from(key) + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (row as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4e));
            let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            ((hash >> 20) & self.mask) as usize * ROWS + row
        })
    }

    pub(crate) fn add(&mut self, key: Key) {
        let lowest = self.count(key);
        if lowest < COUNT_MAX {
            for slot in self.slots(key) {
                // Conservative update: the other counters are too high already.
                if self.counters[slot] == lowest {
                    self.counters[slot] += 1;
                }
            }
        }
        self.additions += 1;
        if self.additions >= self.additions_max {
            self.counters.iter_mut().for_each(|count| *count /= 2);
            self.additions /= 2;
        }
    }

    /// An upper bound of the recent requests, to 15.
    pub(crate) fn count(&self, key: Key) -> u8 {
        self.slots(key).into_iter().map(|slot| self.counters[slot]).min().unwrap_or(0)
    }
}
