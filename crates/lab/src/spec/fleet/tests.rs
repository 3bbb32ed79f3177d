//! Files with fleets, and what a fleet refuses.

use std::time::Duration;

use super::*;
use crate::spec::tests::{read, target};

const FLEET: &str = r#"title = "t"
[target]
kind = "fleet"
[fleet]
nodes = 5_000
[origin]
latency = "20ms..80ms"
[cache]
strategy = "early"
ttl = "60s"
jitter = 0.1
limit = { entries = 10_000 }
[load]
rate = "1_000_000/s"
duration = "60s"
keys = 1_000_000_000
popularity = { zipf = 0.99 }
[[event]]
at = "10s"
purge = "*"
[[event]]
at = "20s"
flush = "shared-tier"
[[arm]]
name = "memory"
[[arm]]
name = "locks"
fleet.shared_tier = { latency = "1ms" }
[[arm]]
name = "hash"
fleet.route = "consistent-hash"
event = [{ at = "0", restart = "nodes" }]
cache.limit = "none"
cache.refresh = "none"
"#;

#[test]
fn file_has_every_setting() {
    let experiment = read(FLEET).unwrap();
    let [memory, locks, hash] = &experiment.cells[..] else { panic!("three arms") };
    let [memory, locks, hash] = [memory, locks, hash].map(target::<Fleet>);
    assert_eq!((memory.nodes, memory.keys, memory.route), (5_000, 1_000_000_000, Route::Random));
    assert_eq!(memory.schedule.to_string(), "60s at 1000000/s (poisson)");
    assert_eq!(memory.cache.early, Some(0.8));
    assert_eq!((memory.cache.entries, hash.cache.entries), (Some(10_000), None));
    assert!(memory.cache.coalesces && memory.tier.is_none());
    // Without a shared tier there is nothing to flush.
    let event = |seconds, kind| FleetEvent { at: Duration::from_secs(seconds), kind };
    assert_eq!(memory.events, [event(10, FleetEventKind::Purge)]);
    assert_eq!(locks.events, [event(10, FleetEventKind::Purge), event(20, FleetEventKind::FlushSharedTier)]);
    assert!(locks.tier.as_ref().is_some_and(|tier| tier.locks && tier.latency == Duration::from_millis(1)));
    assert_eq!((hash.route, hash.cache.early), (Route::ConsistentHash, None));
    assert_eq!(hash.events, [event(0, FleetEventKind::RestartNodes)]);
    assert_eq!(experiment.scaled, [crate::target::ScaledDimension::LoadDuration]);
}

#[test]
fn scaled_load_has_its_events_at_the_scaled_times() {
    let mut experiment = read(FLEET).unwrap();
    experiment.scale(0.5).unwrap();
    let fleet = target::<Fleet>(&experiment.cells[0]);
    assert_eq!(fleet.schedule.duration(), Duration::from_secs(30));
    assert_eq!(fleet.events[0].at, Duration::from_secs(5));
    let error = experiment.scale(1_000.0).unwrap_err().to_string();
    assert_eq!(error, "--scale 1000 makes the load more than 1,000,000,000 requests");
}

#[test]
fn fleet_refuses_what_it_does_not_simulate() {
    let replaced = |from: &str, to: &str| {
        assert!(FLEET.contains(from), "{from}");
        let (message, at, _) = read(&FLEET.replacen(from, to, 1)).unwrap_err();
        (message, at)
    };
    let refused = |from: &str, to: &str| replaced(from, to).0;
    assert_eq!(
        replaced("limit = { entries = 10_000 }", "limit = { entries = 10_000, policy = \"lrw\" }"),
        (
            "a fleet does not simulate other policies than sieve".to_owned(),
            "{ entries = 10_000, policy = \"lrw\" }".to_owned()
        )
    );
    assert_eq!(
        refused("entries = 10_000 }", "entries = 1_000_001 }"),
        "a fleet does not simulate limits of more than 1,000,000 entries"
    );
    let in_cache = |line: &str| refused("jitter = 0.1", line);
    assert_eq!(in_cache("sie = \"1h\""), "a fleet does not simulate failures, so no `sie` either");
    assert_eq!(in_cache("breaker = {}"), "a fleet does not simulate failures, so no breaker either");
    assert_eq!(in_cache("store = \"async\""), "a fleet does not simulate `store` modes");
    assert_eq!(in_cache("refresh = { xfetch = { beta = 1.0 } }"), "a fleet does not simulate xfetch");
    assert_eq!(in_cache("fetch = \"independent\""), "a fleet does not simulate a refresh by each request");
    assert_eq!(in_cache("shared = \"redis:\""), "a fleet does not simulate a tier with a URL");
    assert_eq!(
        in_cache("fetch = { coalesce = { wait_timeout = \"50ms\" } }"),
        "requests may wait for 80ms, and `wait_timeout` is 50ms: a fleet does not simulate failures"
    );
    assert_eq!(
        refused("20ms..80ms", "exponential(mean=20ms)"),
        "the origin of a fleet has a longest latency: write \"50ms\" or \"20ms..80ms\""
    );
    assert_eq!(
        refused("duration = \"60s\"", "duration = \"60s\"\narrivals = \"constant\""),
        "the requests of a fleet come at random: write arrivals = \"poisson\", or leave it out"
    );
    assert_eq!(
        refused("rate = \"1_000_000/s\"\nduration = \"60s\"", "rate = \"1/s\"\nduration = \"7h\""),
        "longer than 6 hours, the most of a fleet: write a shorter time"
    );
    assert_eq!(refused("at = \"20s\"", "at = \"60s\""), "the load is over after 60s: write an earlier `at`");
    for (from, to) in [("purge = \"*\"", ""), ("purge = \"*\"", "purge = \"*\"\nrestart = \"nodes\"")] {
        assert_eq!(
            refused(from, to),
            "the event of a fleet is one of `purge = \"*\"`, `restart = \"nodes\"` and `flush = \"shared-tier\"`"
        );
    }
    assert_eq!(refused("nodes = 5_000", "nodes = 0"), "a fleet has 1 to 100,000 nodes");
    assert_eq!(
        refused("shared_tier = { latency = \"1ms\" }", "shared_tier = \"redis\""),
        "`redis` is not a valid shared_tier: write a table such as { latency = \"1ms\", locks = true }, or \"none\""
    );
}
