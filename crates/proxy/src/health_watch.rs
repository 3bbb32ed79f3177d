//! Changes of servers and breakers, as lines for the operator.
//!
//! The states are read once a second, so that a server and a breaker have a line a second at most, and requests pay
//! nothing. A breaker that opens and closes within a second is not seen.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use stockade_http::upstream::EndpointStatus;

use crate::{admin::BreakerStatus, serve::router::Router};

/// From one reading to the next.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Lines of one reading. An origin that fails may change thousands of routes at once.
const LINES_MAX: usize = 20;

/// A change since the last reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthEvent {
    ServerDown {
        origin: String,
        server: String,
        /// Consecutive.
        failures: u32,
    },
    ServerUp {
        origin: String,
        server: String,
    },
    Breaker {
        route: String,
        origin: String,
        state: BreakerStatus,
    },
    /// Further changes of the same reading.
    More(usize),
}

/// The states of all servers and breakers at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReading {
    /// By origin.
    pub servers: Vec<(String, EndpointStatus)>,
    /// By route and origin.
    pub breakers: Vec<(String, String, BreakerStatus)>,
}

/// The last reading.
#[derive(Debug, Default)]
pub struct HealthWatch {
    /// By origin and server.
    down: HashSet<(String, String)>,
    /// By route.
    breakers: HashMap<String, BreakerStatus>,
}

impl HealthReading {
    #[must_use]
    pub fn of(router: &Router) -> Self {
        let servers = router
            .origins
            .iter()
            .flat_map(|origin| origin.servers().into_iter().map(|server| (origin.name.clone(), server)));
        let breakers = router.routes.iter().filter_map(|route| {
            Some((route.config.name.clone(), route.origin.name.clone(), route.breaker()?))
        });
        Self { servers: servers.collect(), breakers: breakers.collect() }
    }
}

impl HealthWatch {
    /// The changes since the last reading. Servers and breakers that are new count as up and closed.
    pub fn read(&mut self, reading: &HealthReading) -> Vec<HealthEvent> {
        let mut events = self.read_servers(&reading.servers);
        events.extend(self.read_breakers(&reading.breakers));
        let more = events.len().saturating_sub(LINES_MAX);
        if more > 0 {
            events.truncate(LINES_MAX);
            events.push(HealthEvent::More(more));
        }
        events
    }

    fn read_servers(&mut self, servers: &[(String, EndpointStatus)]) -> Vec<HealthEvent> {
        let mut down = HashSet::new();
        let mut events = Vec::new();
        for (origin, status) in servers {
            let (origin, server) = (origin.clone(), status.url.to_string());
            let key = (origin.clone(), server.clone());
            let was_down = self.down.contains(&key);
            // After its rest a server gets requests again: it is up once one succeeds.
            let is_down = !status.is_healthy || was_down && status.failures > 0;
            if is_down {
                down.insert(key);
            }
            match (was_down, is_down) {
                (false, true) => {
                    events.push(HealthEvent::ServerDown { origin, server, failures: status.failures });
                }
                (true, false) => events.push(HealthEvent::ServerUp { origin, server }),
                _ => {}
            }
        }
        self.down = down;
        events
    }

    fn read_breakers(&mut self, breakers: &[(String, String, BreakerStatus)]) -> Vec<HealthEvent> {
        let mut states = HashMap::new();
        let mut events = Vec::new();
        for (route, origin, state) in breakers {
            let (route, origin, state) = (route.clone(), origin.clone(), *state);
            if self.breakers.get(&route).copied().unwrap_or(BreakerStatus::Closed) != state {
                events.push(HealthEvent::Breaker { route: route.clone(), origin, state });
            }
            states.insert(route, state);
        }
        self.breakers = states;
        events
    }
}

impl fmt::Display for HealthEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerDown { origin, server, failures } => {
                write!(f, "origin {origin}: {server} is down after {failures} failures in a row")
            }
            Self::ServerUp { origin, server } => write!(f, "origin {origin}: {server} is up"),
            Self::Breaker { route, origin, state } => {
                let state = match state {
                    BreakerStatus::Open => "has opened: no request is forwarded",
                    BreakerStatus::HalfOpen => "is half-open: the next requests are probes",
                    BreakerStatus::Ramp => "is closing: a growing share of requests is forwarded",
                    BreakerStatus::Closed => "has closed",
                };
                write!(f, "route {route}: the breaker of origin {origin} {state}")
            }
            Self::More(count) => write!(f, "{count} more servers and breakers have changed: see /stats"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(is_healthy: bool, failures: u32) -> HealthReading {
        let url = "http://127.0.0.1:1".parse().expect("a URL");
        let status = EndpointStatus { url, is_healthy, failures, requests: 0 };
        HealthReading { servers: vec![("app".to_owned(), status)], ..HealthReading::default() }
    }

    fn lines(watch: &mut HealthWatch, reading: &HealthReading) -> Vec<String> {
        watch.read(reading).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn server_has_one_line_when_it_fails_and_one_when_a_request_succeeds() {
        const DOWN: &str = "origin app: http://127.0.0.1:1 is down after 5 failures in a row";
        const UP: &str = "origin app: http://127.0.0.1:1 is up";
        let mut watch = HealthWatch::default();
        for (is_healthy, failures, expected) in [
            (true, 0, None),
            (true, 4, None),
            (false, 5, Some(DOWN)),
            (false, 6, None),
            // Its rest has ended; nothing has succeeded.
            (true, 6, None),
            (false, 7, None),
            (true, 0, Some(UP)),
            (true, 0, None),
        ] {
            let read = lines(&mut watch, &server(is_healthy, failures));
            assert_eq!(read, Vec::from_iter(expected), "{is_healthy} {failures}");
        }
        assert_eq!(lines(&mut watch, &server(false, 5)), [DOWN]);
        // A reload has removed the origin, and another has added it.
        assert_eq!(watch.read(&HealthReading::default()), []);
        assert_eq!(lines(&mut watch, &server(true, 0)), [""; 0]);
    }

    #[test]
    fn each_change_of_a_breaker_has_a_line_that_names_the_route() {
        use BreakerStatus::{Closed, HalfOpen, Open, Ramp};
        let mut watch = HealthWatch::default();
        for (state, expected) in [
            (Closed, None),
            (Open, Some("has opened: no request is forwarded")),
            (Open, None),
            (HalfOpen, Some("is half-open: the next requests are probes")),
            (Ramp, Some("is closing: a growing share of requests is forwarded")),
            (Closed, Some("has closed")),
        ] {
            let breakers = vec![("/news/*".to_owned(), "app".to_owned(), state)];
            let read = lines(&mut watch, &HealthReading { breakers, ..HealthReading::default() });
            let expected = expected.map(|text| format!("route /news/*: the breaker of origin app {text}"));
            assert_eq!(read, Vec::from_iter(expected), "{state:?}");
        }
    }

    #[test]
    fn lines_of_one_reading_are_bounded() {
        let breaker = |number| (format!("/{number}/*"), "app".to_owned(), BreakerStatus::Open);
        let reading =
            HealthReading { breakers: (0..1_000).map(breaker).collect(), ..HealthReading::default() };
        let read = lines(&mut HealthWatch::default(), &reading);
        assert_eq!(read.len(), LINES_MAX + 1);
        assert_eq!(read[LINES_MAX], "980 more servers and breakers have changed: see /stats");
    }
}
