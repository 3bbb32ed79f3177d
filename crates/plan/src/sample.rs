//! A sample of the keys of a trace that is in memory.
//!
//! A random sample of some thousand keys misses or doubles some of the popular ones, and miss ratios are off by one or
//! two points. Where all keys are known, every nth of them is taken in the order of their number of requests and of the
//! mean time between these: each kind of key has its share (systematic sampling from an ordered list, Cochran, "Sampling
//! Techniques", 1977, chapter 8).

use crate::trace::{Key, Trace};

impl Trace {
    /// The requests of every `nth` key; a trace of `1 / nth` of this one's rate.
    #[must_use]
    pub fn sample(&self, nth: usize) -> Self {
        let nth = nth.max(1);
        let mut usage = vec![Usage::default(); self.key_count()];
        for (position, request) in self.requests().iter().enumerate() {
            usage[request.key() as usize].add(position as u64);
        }
        let mut order: Vec<Key> = (0..Key::try_from(self.key_count()).unwrap_or(Key::MAX)).collect();
        order.sort_unstable_by_key(|key| (usage[*key as usize].rank(), *key));
        // The middle of each group stands for it.
        let mut numbers = vec![None; self.key_count()];
        for (number, key) in order.into_iter().skip(nth / 2).step_by(nth).enumerate() {
            numbers[key as usize] = Key::try_from(number).ok();
        }
        let keys = numbers.iter().flatten().count();
        let mut ttls_ns = Vec::new();
        let mut requests = Vec::new();
        for (index, request) in self.requests().iter().enumerate() {
            if let Some(key) = numbers[request.key() as usize] {
                requests.push(request.renumbered(key));
                if self.has_ttls() {
                    ttls_ns.push(self.ttl_ns(index));
                }
            }
        }
        self.part(requests, ttls_ns, keys, nth)
    }
}

/// The requests for a key.
#[derive(Clone, Copy, Default)]
struct Usage {
    requests: u32,
    first: u64,
    last: u64,
}

impl Usage {
    fn add(&mut self, position: u64) {
        if self.requests == 0 {
            self.first = position;
        }
        self.last = position;
        self.requests = self.requests.saturating_add(1);
    }

    /// Requests, and the mean number of requests for any key between two of them.
    fn rank(&self) -> (u32, u64) {
        (self.requests, (self.last - self.first) / u64::from(self.requests.max(2) - 1))
    }
}
