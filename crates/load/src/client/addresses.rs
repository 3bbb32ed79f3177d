//! The addresses of a name: each new connection begins at the next one, and tries the others within a bound (RFC 8305).

use std::{future::poll_fn, net::SocketAddr, pin::Pin, task::Poll, time::Duration};

use stockade_model::time::{Runtime, Time, before};

use crate::sample::{FailureClass, RequestFailure};

/// Addresses are looked up again after this time: new connections follow a name that moves.
pub(super) const LOOKUP_EVERY: Duration = Duration::from_secs(30);

/// The least time between two lookups, also if connections fail.
const LOOKUPS_APART: Duration = Duration::from_secs(1);

/// The next address is tried after this time, while the attempts before it go on (RFC 8305, 5: Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The addresses of an endpoint, and which of them the next connection tries first.
#[derive(Debug)]
pub(super) struct ResolvedAddresses {
    /// The families take turns.
    addresses: Vec<ResolvedAddress>,
    looked_up_at: Time,
    /// The number of connections so far.
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct ResolvedAddress {
    address: SocketAddr,
    /// It did not accept a connection since the last lookup, so the others are tried before it.
    has_failed: bool,
}

impl ResolvedAddresses {
    /// The result of a lookup, in its order of preference.
    pub fn new(addresses: Vec<SocketAddr>, now: Time) -> Self {
        let addresses = interleaved(addresses);
        let addresses = addresses.into_iter().map(|address| ResolvedAddress { address, has_failed: false });
        Self { addresses: addresses.collect(), looked_up_at: now, turn: 0 }
    }

    /// The result of another lookup. Its connections begin where those before it ended.
    pub fn renew(&mut self, addresses: Vec<SocketAddr>, now: Time) {
        *self = Self { turn: self.turn, ..Self::new(addresses, now) };
    }

    /// The lookup failed: the addresses stay until the next one.
    pub fn keep(&mut self, now: Time) {
        self.looked_up_at = now;
    }

    /// True if the name is to be looked up again.
    pub fn is_due(&self, now: Time) -> bool {
        let age = now - self.looked_up_at;
        let has_failed = self.addresses.iter().any(|address| address.has_failed);
        age >= LOOKUP_EVERY || has_failed && age >= LOOKUPS_APART
    }

    /// The addresses for the next connection, in the order in which it tries them.
    pub fn for_next_connection(&mut self) -> Vec<SocketAddr> {
        let mut order = self.addresses.clone();
        order.rotate_left(self.turn % self.addresses.len().max(1));
        order.sort_by_key(|address| address.has_failed);
        self.turn = self.turn.wrapping_add(1);
        order.into_iter().map(|address| address.address).collect()
    }

    /// Notes the addresses that did not accept a connection.
    pub fn note_failed(&mut self, failed: &[SocketAddr]) {
        for address in &mut self.addresses {
            address.has_failed |= failed.contains(&address.address);
        }
    }
}

/// The families in turns, beginning with that of the first address (RFC 8305, 4).
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (of_first, others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_ipv6);
    let mut others = others.into_iter();
    let mut turns: Vec<_> =
        of_first.into_iter().flat_map(|one| [Some(one), others.next()]).flatten().collect();
    turns.extend(others);
    turns
}

/// Connects to the first address that accepts: after 250 ms, or when an attempt fails, the next one is tried as well. Adds the
/// addresses to `failed` that refused, or that were slower than a later one.
pub(super) async fn connect_first<R: Runtime, S, F>(
    runtime: &R,
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
    failed: &mut Vec<SocketAddr>,
) -> Result<S, RequestFailure>
where
    F: Future<Output = Result<S, RequestFailure>>,
{
    let mut failure = RequestFailure::from(FailureClass::Unreachable);
    let mut attempts: Vec<(SocketAddr, Pin<Box<F>>)> = Vec::new();
    let mut untried = addresses.iter();
    loop {
        match untried.next() {
            Some(address) => attempts.push((*address, Box::pin(connect(*address)))),
            None if attempts.is_empty() => return Err(failure),
            None => {}
        }
        let ended = poll_fn(|cx| {
            let ready = |(_, attempt): &mut (_, Pin<Box<F>>)| match attempt.as_mut().poll(cx) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            };
            let found =
                attempts.iter_mut().map(ready).enumerate().find_map(|(at, result)| Some((at, result?)));
            found.map_or(Poll::Pending, Poll::Ready)
        });
        let ended = match untried.len() {
            0 => Some(ended.await),
            _ => before(runtime, runtime.now() + ATTEMPT_DELAY, ended).await,
        };
        let Some((at, result)) = ended else { continue };
        let (address, _) = attempts.remove(at);
        match result {
            Ok(stream) => {
                failed.extend(attempts.iter().take(at).map(|(slower, _)| *slower));
                return Ok(stream);
            }
            Err(error) => {
                // A machine without ports or files says nothing about the server.
                if !matches!(error.class, FailureClass::NoPorts | FailureClass::NoFiles) {
                    failed.push(address);
                }
                failure = error;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stockade_model::time::Virtual;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn families_take_turns() {
        let looked_up = addresses(&["[::1]:80", "[::2]:80", "[::3]:80", "1.0.0.1:80"]);
        assert_eq!(interleaved(looked_up), addresses(&["[::1]:80", "1.0.0.1:80", "[::2]:80", "[::3]:80"]));
        let looked_up = addresses(&["1.0.0.1:80", "1.0.0.2:80", "[::1]:80"]);
        assert_eq!(interleaved(looked_up), addresses(&["1.0.0.1:80", "[::1]:80", "1.0.0.2:80"]));
    }

    #[test]
    fn connections_begin_at_each_address_in_turn() {
        let [a, b, c] = ["1.0.0.1:80", "1.0.0.2:80", "1.0.0.3:80"].map(|text| text.parse().unwrap());
        let mut resolved = ResolvedAddresses::new(vec![a, b, c], at(0));
        let orders: Vec<_> = (0..4).map(|_| resolved.for_next_connection()).collect();
        assert_eq!(orders, [[a, b, c], [b, c, a], [c, a, b], [a, b, c]]);
        // One that has failed is the last resort until the next lookup.
        resolved.note_failed(&[b]);
        let orders: Vec<_> = (0..3).map(|_| resolved.for_next_connection()).collect();
        assert_eq!(orders, [[c, a, b], [c, a, b], [a, c, b]]);
        resolved.renew(vec![a, b], at(5));
        assert_eq!(resolved.for_next_connection(), [b, a]);
    }

    #[test]
    fn name_is_looked_up_after_its_ttl_and_soon_after_failures() {
        let address = "1.0.0.1:80".parse().unwrap();
        let mut resolved = ResolvedAddresses::new(vec![address], at(0));
        assert_eq!([0, 29_999, 30_000].map(|now| resolved.is_due(at(now))), [false, false, true]);
        resolved.note_failed(&[address]);
        assert_eq!([999, 1_000].map(|now| resolved.is_due(at(now))), [false, true]);
        resolved.keep(at(1_000));
        assert_eq!([1_999, 2_000].map(|now| resolved.is_due(at(now))), [false, true]);
    }

    /// Connects to servers that answer after these milliseconds: true accepts, false refuses.
    fn connected(servers: &[(u64, bool)]) -> (Result<usize, FailureClass>, Vec<usize>, Duration) {
        let runtime = Virtual::new();
        let all: Vec<SocketAddr> =
            (0..servers.len()).map(|port| ([127, 0, 0, 1], u16::try_from(port).unwrap()).into()).collect();
        let mut failed = Vec::new();
        let result = runtime.run(connect_first(
            &runtime,
            &all,
            async |address: SocketAddr| {
                let (millis, accepts) = servers[usize::from(address.port())];
                runtime.sleep_until(runtime.now() + Duration::from_millis(millis)).await;
                if accepts { Ok(usize::from(address.port())) } else { Err(FailureClass::Refused.into()) }
            },
            &mut failed,
        ));
        let result = result.expect("it does not hang");
        let failed = failed.iter().map(|address| usize::from(address.port())).collect();
        (result.map_err(|failure| failure.class), failed, runtime.now() - Time::ZERO)
    }

    #[test]
    fn next_address_is_tried_within_a_quarter_of_a_second() {
        const NEVER: u64 = 1_000_000;
        let ms = Duration::from_millis;
        for (servers, result, failed, elapsed) in [
            (&[(20, true), (1, true)][..], Ok(0), vec![], 20),
            // It refuses at once.
            (&[(3, false), (1, true)], Ok(1), vec![0], 4),
            // It never accepts, and neither does the second one.
            (&[(NEVER, true), (5, true)], Ok(1), vec![0], 255),
            (&[(NEVER, true), (NEVER, true), (5, true)], Ok(2), vec![0, 1], 505),
            // A slow one is not given up.
            (&[(300, true), (NEVER, true)], Ok(0), vec![], 300),
            (&[(3, false), (4, false)], Err(FailureClass::Refused), vec![0, 1], 7),
            (&[(7_000, true)], Ok(0), vec![], 7_000),
            (&[], Err(FailureClass::Unreachable), vec![], 0),
        ] {
            assert_eq!(connected(servers), (result, failed, ms(elapsed)), "{servers:?}");
        }
    }
}
