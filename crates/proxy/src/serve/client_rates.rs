//! A bound on the request rate of each client.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use stockade_http::frontend::ClientNetwork;
use stockade_model::{rate::Rate, time::Time};

const SHARDS: usize = 16;
/// Clients in one generation of a shard. With two generations all shards take about 2 MiB.
const SHARD_CLIENTS_MAX: usize = 2_048;

/// A rate, and the burst above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRateBound {
    pub rate: Rate,
    /// Requests that may come at once, after a pause; at least 1.
    pub burst: u32,
}

impl ClientRateBound {
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
/// (ITU-T I.371). A request may be early by the burst. When there are more clients than fit, those whose last request is the
/// oldest are forgotten.
#[derive(Debug)]
pub struct ClientRateLimiter {
    hasher: RandomState,
    shards: [Mutex<RateShard>; SHARDS],
}

/// Two generations: the older one is dropped when the newer one is full.
#[derive(Debug, Default)]
struct RateShard {
    newer: HashMap<ClientNetwork, Time>,
    older: HashMap<ClientNetwork, Time>,
}

impl Default for ClientRateLimiter {
    fn default() -> Self {
        Self { hasher: RandomState::new(), shards: Default::default() }
    }
}

impl ClientRateLimiter {
    /// Counts a request of `client`. The error is the time until its next request is admitted.
    pub fn admit(&self, client: ClientNetwork, now: Time, bound: ClientRateBound) -> Result<(), Duration> {
        let [shard, ..] = self.hasher.hash_one(client).to_be_bytes();
        let mut shard =
            self.shards[usize::from(shard) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let next = shard.next(client);
        let admitted = admit(next, now, bound);
        // A refused client is remembered, too: otherwise it would have its whole burst again.
        if let Some(next) = admitted.as_ref().ok().copied().or(next) {
            shard.set_next(client, next);
        }
        admitted.map(drop)
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
fn admit(next: Option<Time>, now: Time, bound: ClientRateBound) -> Result<Time, Duration> {
    let next = next.map_or(now, |next| next.max(now));
    let wait = (next - now).saturating_sub(bound.rate.due(u64::from(bound.burst - 1)));
    if wait.is_zero() { Ok(next + bound.rate.due(1)) } else { Err(wait) }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use stockade_http::frontend::ClientPrefix;

    fn client(number: u32) -> ClientNetwork {
        let prefix = ClientPrefix { ipv4_bits: 32, ..ClientPrefix::default() };
        ClientNetwork::of(IpAddr::from(number.to_be_bytes()), prefix)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn bound(rate: &str, burst: u32) -> ClientRateBound {
        ClientRateBound { rate: rate.parse().expect("a rate"), burst }
    }

    #[test]
    fn burst_comes_at_once_and_the_rest_at_the_rate() {
        let rates = ClientRateLimiter::default();
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
        let rates = ClientRateLimiter::default();
        let bound = bound("7/s", 1);
        let admitted =
            (0..100_000).filter(|millis| rates.admit(client(1), at(*millis), bound).is_ok()).count();
        assert!((690..=700).contains(&admitted), "{admitted} of 700");
    }

    #[test]
    fn memory_is_bounded_and_silent_clients_are_forgotten_first() {
        let rates = ClientRateLimiter::default();
        let bound = bound("1/h", 1);
        let (busy, silent) = (client(0), client(1));
        let _ = rates.admit(silent, at(0), bound);
        let mut numbers = 2..;
        let mut admit_others = |count| {
            for number in numbers.by_ref().take(count) {
                let _ = rates.admit(client(number), at(0), bound);
            }
        };
        // A generation keeps as many others at least, and six of them have passed at the end.
        let others = SHARDS * SHARD_CLIENTS_MAX * 3 / 4;
        for hours in 0..8 {
            let now = at(hours * 3_600_000);
            assert_eq!(rates.admit(busy, now, bound), Ok(()), "hour {hours}");
            admit_others(others);
            assert!(rates.admit(busy, now, bound).is_err(), "hour {hours}");
        }
        for shard in &rates.shards {
            let shard = shard.lock().expect("no thread panicked");
            assert!(shard.newer.len() <= SHARD_CLIENTS_MAX && shard.older.len() <= SHARD_CLIENTS_MAX);
        }
        assert_eq!(rates.admit(silent, at(0), bound), Ok(()));
    }

    #[test]
    fn refused_clients_are_not_forgotten_while_they_send() {
        let rates = ClientRateLimiter::default();
        let bound = bound("1/h", 3);
        let refused = client(0);
        assert_eq!([(); 3].map(|()| rates.admit(refused, at(0), bound)), [Ok(()); 3]);
        let wait = rates.admit(refused, at(0), bound).expect_err("its burst is over");
        for number in 1..u32::try_from(8 * SHARDS * SHARD_CLIENTS_MAX).expect("few clients") {
            let _ = rates.admit(client(number), at(0), bound);
            if number % 1_000 == 0 {
                assert_eq!(rates.admit(refused, at(0), bound), Err(wait), "after {number} clients");
            }
        }
    }
}
