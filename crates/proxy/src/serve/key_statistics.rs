//! The hottest and the most missed keys, and the slowest loads, for `/keys` of the admin listener.
//!
//! Memory is bounded by `COUNTERS`, `LOADS` and `KEY_BYTES_MAX`, whatever clients ask for: less than
//! 0.5 MiB. A hit pays for a `Sampler`, where most of them end.

mod sampler;
mod slowest_loads;
mod top_keys;

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use stockade_model::{outcome::Outcome, time::Time};

use self::{
    sampler::Sampler,
    slowest_loads::{EndedLoad, SlowestLoads},
    top_keys::{HALF_LIFE, TopKeys},
};
use crate::{
    admin::{KeyShare, KeyStats, SlowLoad},
    config::NamePattern,
    log::mask_query,
    policy::key::CacheKey,
};

/// Longer keys are cut, with `...` at their end. They are counted as a whole.
const KEY_BYTES_MAX: usize = 512;

/// The keys of each list in `/keys`.
const SHOWN: usize = 20;

thread_local! {
    static REQUESTS: Cell<Sampler> = const { Cell::new(Sampler::NEW) };
    /// Of their own, because misses may be rare among the requests.
    static MISSES: Cell<Sampler> = const { Cell::new(Sampler::NEW) };
}

#[derive(Debug, Default)]
pub struct KeyStatistics {
    hottest: Mutex<TopKeys>,
    most_missed: Mutex<TopKeys>,
    slowest_loads: Mutex<SlowestLoads>,
    /// Seeded, so that clients cannot choose keys that are counted as one.
    hasher: RandomState,
}

impl KeyStatistics {
    /// Counts a request that has ended now, or the requests that it stands for.
    pub fn note_request(&self, key: &CacheKey, outcome: Outcome, now: Time) {
        if outcome == Outcome::Bypass {
            return;
        }
        if let Some(weight) = chosen(&REQUESTS, now) {
            self.count(&self.hottest, key, weight, now);
        }
        let is_miss = matches!(outcome, Outcome::Miss | Outcome::Coalesced | Outcome::Error);
        if is_miss && let Some(weight) = chosen(&MISSES, now) {
            self.count(&self.most_missed, key, weight, now);
        }
    }

    #[cold]
    fn count(&self, keys: &Mutex<TopKeys>, key: &CacheKey, weight: u32, now: Time) {
        let id = self.hasher.hash_one(key);
        lock(keys).count(id, || cut(key), weight, now);
    }

    /// `status` is `None` if the origin did not respond.
    pub fn note_load(&self, key: &CacheKey, took: Duration, status: Option<u16>, ended_at: SystemTime) {
        lock(&self.slowest_loads).note(took, ended_at, || EndedLoad {
            key: cut(key),
            took,
            ended_at,
            status,
        });
    }

    #[must_use]
    pub fn stats(&self, now: Time, system_now: SystemTime, masked: &[NamePattern]) -> KeyStats {
        let shown = |key: &str| String::from_utf8_lossy(&mask_query(key.as_bytes(), masked)).into_owned();
        let shares = |keys: &Mutex<TopKeys>| {
            let top = lock(keys).top(SHOWN, now);
            top.into_iter().map(|share| KeyShare { key: shown(&share.key), ..share }).collect()
        };
        let slow_load = |load: EndedLoad| SlowLoad {
            key: shown(&load.key),
            seconds: load.took.as_secs_f64(),
            ended_at: load.ended_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            status: load.status,
        };
        KeyStats {
            half_life_seconds: HALF_LIFE.as_secs_f64(),
            hottest: shares(&self.hottest),
            most_missed: shares(&self.most_missed),
            slowest_loads: lock(&self.slowest_loads).slowest(system_now).into_iter().map(slow_load).collect(),
        }
    }
}

/// The weight of this request, if it is in the sample.
fn chosen(sampler: &'static std::thread::LocalKey<Cell<Sampler>>, now: Time) -> Option<u32> {
    sampler.with(|cell| {
        let mut sampler = cell.get();
        let weight = sampler.choose(now);
        cell.set(sampler);
        weight
    })
}

fn cut(key: &CacheKey) -> Box<str> {
    let key = key.as_str();
    match key.floor_char_boundary(KEY_BYTES_MAX) {
        end if end < key.len() => [&key[..end], "..."].concat().into(),
        _ => key.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;

    fn key(path: &str) -> CacheKey {
        CacheKey::new("http", "a", path)
    }

    /// Of the last request or load.
    const NOW: Time = Time::from_nanos(1_000_000_000);

    #[test]
    fn requests_of_a_quiet_proxy_are_all_counted() {
        let statistics = KeyStatistics::default();
        // All within one second, so that no count has decayed.
        let mut now = Time::ZERO;
        for (path, outcome, times) in [
            ("/a", Outcome::Hit, 6),
            ("/b", Outcome::Stale, 3),
            ("/c", Outcome::Miss, 1),
            ("/d", Outcome::Bypass, 4),
        ] {
            for _ in 0..times {
                now = now + Duration::from_millis(50);
                statistics.note_request(&key(path), outcome, now);
            }
        }
        let stats = statistics.stats(now, SystemTime::UNIX_EPOCH, &[]);
        let shares: Vec<_> = stats.hottest.iter().map(|share| (share.key.as_str(), share.share)).collect();
        assert_eq!(shares, [("http://a/a", 0.6), ("http://a/b", 0.3), ("http://a/c", 0.1)]);
        let missed: Vec<_> = stats.most_missed.iter().map(|share| share.key.as_str()).collect();
        assert_eq!(missed, ["http://a/c"]);
    }

    #[test]
    fn secrets_are_masked_and_long_keys_cut() {
        let statistics = KeyStatistics::default();
        let long = format!("/{}?token=sesame", "x".repeat(8_192));
        for path in ["/?token=sesame", &long, &format!("/?token={}", "sesame".repeat(1_000))] {
            statistics.note_request(&key(path), Outcome::Miss, NOW);
            let (took, status) = (Duration::from_millis(1), Some(200));
            statistics.note_load(&key(path), took, status, SystemTime::UNIX_EPOCH);
        }
        let stats = statistics.stats(NOW, SystemTime::UNIX_EPOCH, &LogConfig::default().mask_query);
        let text = serde_json::to_string(&stats).expect("text");
        assert!(
            !text.contains("sesame") && text.contains("http://a/?token=***") && text.contains("xxx..."),
            "{text}"
        );
    }

    #[test]
    fn hostile_keys_do_not_fill_the_memory() {
        let statistics = KeyStatistics::default();
        for number in 0..10_000_u64 {
            let (key, now) =
                (key(&format!("/{number}{}", "x".repeat(8_192))), Time::from_nanos(number << 23));
            statistics.note_request(&key, Outcome::Miss, now);
            let ended_at = SystemTime::UNIX_EPOCH + now.elapsed();
            statistics.note_load(&key, Duration::from_nanos(number), None, ended_at);
        }
        let bytes = lock(&statistics.hottest).key_bytes()
            + lock(&statistics.most_missed).key_bytes()
            + lock(&statistics.slowest_loads).key_bytes();
        assert!((100_000..400_000).contains(&bytes), "{bytes} bytes of keys");
        let stats = statistics.stats(Time::from_nanos(10_000 << 23), SystemTime::UNIX_EPOCH, &[]);
        assert!(serde_json::to_string(&stats).expect("text").len() < 60 * 700);
    }
}
