//! The most frequent keys of a stream, with a fixed number of counters.

use std::{cmp::Ordering, time::Duration};

use stockade_model::time::Time;

use crate::admin::KeyShare;

/// The counters of a list.
pub const COUNTERS: usize = 256;

/// After which a count is half of what it was.
pub const HALF_LIFE: Duration = Duration::from_mins(1);

/// How often counts decay.
const DECAY_INTERVAL: Duration = Duration::from_secs(1);

/// Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) with weights and with counts that decay. A key without a counter
/// takes the counter with the lowest count, and inherits it as its possible error. With `total` as the sum of all weights:
///
/// - the counts sum to `total`, so the lowest is at most `total / COUNTERS`;
/// - a count is at least the weight of its key, and at most its error, hence `total / COUNTERS`, more;
/// - each key with more than `total / COUNTERS` has a counter.
///
/// All of it holds after a decay, since every figure decays by the same factor.
#[derive(Debug, Default)]
pub struct TopKeys {
    counters: Vec<Counter>,
    total: f64,
    started_at: Option<Time>,
    decayed_at: Time,
}

#[derive(Debug)]
struct Counter {
    id: u64,
    key: Box<str>,
    count: f64,
    error: f64,
}

impl TopKeys {
    /// `id` stands for the whole key, `key` is the text to show.
    pub fn count(&mut self, id: u64, key: impl FnOnce() -> Box<str>, weight: u32, now: Time) {
        self.decay(now);
        let weight = f64::from(weight);
        self.total += weight;
        if let Some(counter) = self.counters.iter_mut().find(|counter| counter.id == id) {
            counter.count += weight;
        } else if self.counters.len() < COUNTERS {
            self.counters.push(Counter { id, key: key(), count: weight, error: 0.0 });
        } else if let Some(least) = self.counters.iter_mut().min_by(|a, b| a.count.total_cmp(&b.count)) {
            *least = Counter { id, key: key(), count: least.count + weight, error: least.count };
        }
    }

    /// The most frequent keys, the first one most.
    pub fn top(&mut self, keys: usize, now: Time) -> Vec<KeyShare> {
        self.decay(now);
        let started_at = self.started_at.unwrap_or(now);
        // The sum of one request a second since the start.
        let half_lives = (now - started_at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let seconds = HALF_LIFE.as_secs_f64() / std::f64::consts::LN_2 * (1.0 - (-half_lives).exp2());
        // The least certain come last among equals.
        let order = |a: &&Counter, b: &&Counter| -> Ordering {
            b.count.total_cmp(&a.count).then(a.error.total_cmp(&b.error))
        };
        let mut counters: Vec<_> = self.counters.iter().collect();
        counters.sort_by(order);
        let share = |counter: &Counter| KeyShare {
            key: counter.key.to_string(),
            share: counter.count / self.total,
            error: counter.error / self.total,
            rate: counter.count / seconds.max(1.0),
        };
        counters.into_iter().take(keys).map(share).collect()
    }

    fn decay(&mut self, now: Time) {
        self.started_at.get_or_insert(now);
        let elapsed = now - self.decayed_at;
        if elapsed < DECAY_INTERVAL {
            return;
        }
        self.decayed_at = now;
        let factor = (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        self.total *= factor;
        if self.total < 0.5 {
            // Less than a request: the last request was long ago.
            self.counters.clear();
            self.total = 0.0;
        }
        for counter in &mut self.counters {
            counter.count *= factor;
            counter.error *= factor;
        }
    }

    #[cfg(test)]
    pub fn key_bytes(&self) -> usize {
        self.counters.iter().map(|counter| counter.key.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn count(keys: &mut TopKeys, id: u64, weight: u32, now: Time) {
        keys.count(id, || id.to_string().into(), weight, now);
    }

    proptest! {
        /// Against exact counts: no key is below its share, none is above it by more than its error, and none with more than
        /// `1 / COUNTERS` is missing.
        #[test]
        fn shares_keep_the_bounds_of_space_saving(stream in prop::collection::vec((0..30_u64, 0..900_u64, 1..64_u32, 0..40_u64), 1..3_000)) {
            let (mut keys, mut exact) = (TopKeys::default(), BTreeMap::<u64, f64>::new());
            let mut now = Time::ZERO;
            let mut decayed_at = now;
            for (hot, cold, weight, millis) in stream {
                now = now + Duration::from_millis(millis);
                if now - decayed_at >= DECAY_INTERVAL {
                    let factor = (-(now - decayed_at).as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
                    exact.values_mut().for_each(|count| *count *= factor);
                    decayed_at = now;
                }
                let id = if cold % 3 == 0 { hot } else { 100 + cold };
                count(&mut keys, id, weight, now);
                *exact.entry(id).or_default() += f64::from(weight);
            }
            let total: f64 = exact.values().sum();
            let shown = keys.top(COUNTERS, now);
            let sum: f64 = shown.iter().map(|share| share.share).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
            for share in &shown {
                let true_share = exact[&share.key.parse().expect("a number")] / total;
                prop_assert!(share.share >= true_share - 1e-9 && share.share - share.error <= true_share + 1e-9);
                prop_assert!(share.error <= 1.0 / COUNTERS as f64 + 1e-9);
            }
            for (id, count) in exact {
                let is_shown = shown.iter().any(|share| share.key == id.to_string());
                prop_assert!(is_shown || count / total <= 1.0 / COUNTERS as f64 + 1e-9);
            }
        }
    }

    #[test]
    fn rate_is_that_of_a_steady_load_from_the_start() {
        let mut keys = TopKeys::default();
        for second in 0..600_u64 {
            let now = Time::from_nanos(second * 1_000_000_000);
            count(&mut keys, 1, 30, now);
            count(&mut keys, 2, 10, now);
            if [10, 60, 599].contains(&second) {
                let rates: Vec<_> = keys.top(2, now).iter().map(|share| share.rate.round()).collect();
                assert!((29.0..=34.0).contains(&rates[0]) && (9.0..=12.0).contains(&rates[1]), "{rates:?}");
            }
        }
    }

    #[test]
    fn keys_that_are_not_asked_for_any_more_are_forgotten() {
        let mut keys = TopKeys::default();
        count(&mut keys, 1, 1_000, Time::ZERO);
        let minutes = |minutes: u64| Time::ZERO + Duration::from_mins(minutes);
        assert_eq!(keys.top(5, minutes(5)).len(), 1);
        assert_eq!(keys.top(5, minutes(12)), []);
        count(&mut keys, 2, 1, minutes(12));
        assert!((keys.top(5, minutes(12))[0].share - 1.0).abs() < 1e-9);
    }
}
