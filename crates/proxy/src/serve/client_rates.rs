//! A bound on the request rate of each client.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use stockade_model::{rate::Rate, time::Time};

use crate::frontend::ClientNetwork;

const SHARDS: usize = 16;
/// Clients in one generation of a shard. With two generations all shards take about 2 MiB.
const SHARD_CLIENTS_MAX: usize = 2_048;

/// A rate, and the burst above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRate {
    pub rate: Rate,
    /// Requests that may come at once, after a pause; at least 1.
    pub burst: u32,
}

impl ClientRate {
    /// The default burst is the requests of a second.
    #[must_use]
    pub fn new(rate: Rate, burst: Option<usize>) -> Self {
        let of_a_second = rate.within(Duration::from_secs(1));
        let burst = burst.map_or(of_a_second, |burst| burst as u64).max(1);
        Self { rate, burst: u32::try_from(burst).unwrap_or(u32::MAX) }
    }
}

/// The recent clients.
///
/// A client has one time: that of its next request if all of them came evenly, as in the generic cell rate algorithm
/// (ITU-T I.371). A request may be early by the burst. When there are more clients than fit, those whose last admitted
/// request is the oldest are forgotten.
#[derive(Debug)]
pub struct ClientRates {
    hasher: RandomState,
    shards: [Mutex<RateShard>; SHARDS],
}

/// Two generations: the older one is dropped when the newer one is full.
#[derive(Debug, Default)]
struct RateShard {
    newer: HashMap<ClientNetwork, Time>,
    older: HashMap<ClientNetwork, Time>,
}

impl Default for ClientRates {
    fn default() -> Self {
        Self { hasher: RandomState::new(), shards: Default::default() }
    }
}

impl ClientRates {
    /// Counts a request of `client`. The error is the time until its next request is admitted.
    pub fn admit(&self, client: ClientNetwork, now: Time, bound: ClientRate) -> Result<(), Duration> {
        let [shard, ..] = self.hasher.hash_one(client).to_be_bytes();
        let mut shard =
            self.shards[usize::from(shard) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let next = admit(shard.next(client), now, bound)?;
        shard.set_next(client, next);
        Ok(())
    }
}

impl RateShard {
    fn next(&self, client: ClientNetwork) -> Option<Time> {
        self.newer.get(&client).or_else(|| self.older.get(&client)).copied()
    }

    fn set_next(&mut self, client: ClientNetwork, next: Time) {
        if self.newer.len() >= SHARD_CLIENTS_MAX && !self.newer.contains_key(&client) {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(client, next);
    }
}

/// The time of the request after this one, if this one is admitted.
fn admit(next: Option<Time>, now: Time, bound: ClientRate) -> Result<Time, Duration> {
    let next = next.map_or(now, |next| next.max(now));
    let wait = (next - now).saturating_sub(bound.rate.due(u64::from(bound.burst - 1)));
    if wait.is_zero() { Ok(next + bound.rate.due(1)) } else { Err(wait) }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::frontend::ClientPrefix;

    fn client(number: u32) -> ClientNetwork {
        let prefix = ClientPrefix { ipv4_bits: 32, ..ClientPrefix::default() };
        ClientNetwork::of(IpAddr::from(number.to_be_bytes()), prefix)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn bound(rate: &str, burst: u32) -> ClientRate {
        ClientRate { rate: rate.parse().expect("a rate"), burst }
    }

    #[test]
    fn burst_comes_at_once_and_the_rest_at_the_rate() {
        let rates = ClientRates::default();
        let bound = bound("10/s", 3);
        let admit = |millis| rates.admit(client(1), at(millis), bound);
        assert_eq!([admit(0), admit(0), admit(0)], [Ok(()); 3]);
        assert_eq!(admit(0), Err(Duration::from_millis(100)));
        assert_eq!(admit(30), Err(Duration::from_millis(70)));
        assert_eq!([admit(100), admit(200)], [Ok(()); 2]);
        assert_eq!(admit(250), Err(Duration::from_millis(50)));
        // A pause of 300 ms gives the burst back.
        assert_eq!([admit(600), admit(600), admit(600)], [Ok(()); 3]);
        assert!(admit(600).is_err());
        assert_eq!(rates.admit(client(2), at(600), bound), Ok(()));
    }

    #[test]
    fn rate_is_exact_over_a_long_time() {
        let rates = ClientRates::default();
        let bound = bound("7/s", 1);
        let admitted =
            (0..100_000).filter(|millis| rates.admit(client(1), at(*millis), bound).is_ok()).count();
        assert!((690..=700).contains(&admitted), "{admitted} of 700");
    }

    #[test]
    fn memory_is_bounded_and_silent_clients_are_forgotten_first() {
        let rates = ClientRates::default();
        let bound = bound("1/h", 1);
        let busy = client(0);
        for number in 1..1_000_000 {
            let _ = rates.admit(client(number), at(0), bound);
            if number % 1_000 == 1 {
                let _ = rates.admit(busy, at(u64::from(number) * 4_000), bound);
            }
        }
        for shard in &rates.shards {
            let shard = shard.lock().expect("no thread panicked");
            assert!(shard.newer.len() <= SHARD_CLIENTS_MAX && shard.older.len() <= SHARD_CLIENTS_MAX);
        }
        assert!(rates.admit(busy, at(999_001 * 4_000), bound).is_err());
        assert_eq!(rates.admit(client(1), at(0), bound), Ok(()));
    }
}
