use stockade_cache::PRESETS;

use super::*;
use crate::{
    curve::{Lifetime, Point},
    policy::Policy,
    recommend::Peak,
    replay::{CacheSetup, Capacity, Replay, Ttl},
    trace::{NewRequest, TraceBuilder},
};

const MS: u64 = 1_000_000;

/// Ten requests a second for ten keys each, for 200 seconds; from 100 to 110 s twice as many.
fn trace() -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for n in 0..2_000_u64 {
        for key in 0..10_u64 {
            let mut add = |at_ms: u64| {
                builder.push(&NewRequest {
                    bytes: Some(1_000),
                    ..NewRequest::read(at_ms * MS + key + 1, &key.to_le_bytes())
                });
            };
            add(n * 100);
            if (1_000..1_100).contains(&n) {
                add(n * 100);
            }
        }
    }
    builder.finish()
}

fn recommendation(trace: &Trace) -> Recommendation {
    let (policy, capacity) = (Policy::named("sieve").expect("it ships"), Capacity::Entries(100));
    Recommendation {
        policy,
        capacity,
        lifetime: Lifetime { ttl: Ttl::Fixed(1_000 * MS), swr_ns: 500 * MS },
        point: Point::of(capacity, &Replay::default(), trace),
        gain_of_double: 0.0,
        loss_of_half: 0.0,
        loads_saved_by_double: 0.0,
        load_ratio_of_half: 0.0,
        loads_per_s_max: Peak::of(0, 1.0, 1.0),
        loads_per_s_in_busiest_minute: Peak::of(0, 60.0, 1.0),
        loads_per_s: 0.0,
        cold_start: None,
        requests_per_s_max: Peak::of(0, 1.0, 1.0),
        age_max_ns: 1_500 * MS,
        max_object: None,
        routes: crate::routes::RouteTtlPlan::default(),
    }
}

fn origin(latency_ms: u64, outage_s: u64) -> OriginModel {
    OriginModel {
        latency: Latency::from(Duration::from_millis(latency_ms)),
        capacity: None,
        outage: Duration::from_secs(outage_s),
    }
}

fn figures(name: &str, origin: &OriginModel) -> StrategyFigures {
    let trace = trace();
    let busiest = BusiestRequests::from_trace(&trace, origin);
    let preset = PRESETS.named(name).expect("a preset");
    let candidates = [Candidate::Preset(preset)];
    let runs =
        run(&busiest, &candidates, &recommendation(&trace), origin, Seed(1)).expect("a sound strategy");
    runs.into_iter().next().expect("one preset has this name")
}

#[test]
fn outage_is_in_the_busiest_time() {
    let trace = trace();
    let busiest = BusiestRequests::from_trace(&trace, &origin(20, 10));
    assert_eq!(busiest.requests(), 21_000);
    let starts_ms = busiest.outage_ns.start / MS;
    assert_eq!((starts_ms, busiest.outage_ns.end - busiest.outage_ns.start), (100_000, 10_000 * MS));
    assert_eq!(BusiestRequests::from_trace(&trace, &origin(20, 0)).outage_ns, 0..0);
}

#[test]
fn engine_and_replay_agree() {
    let trace = trace();
    for (name, swr_ns) in [("early", 0), ("swr", 500 * MS)] {
        let setup = CacheSetup {
            ttl: Ttl::Fixed(1_000 * MS),
            swr_ns,
            latency_ns: 20 * MS,
            ..CacheSetup::of(Capacity::Entries(100))
        };
        let replay = Policy::named("sieve").expect("it ships").replay(&trace, &setup);
        let engine = figures(name, &origin(20, 0));
        assert_eq!(engine.outcomes.requests(), replay.requests, "{name}");
        if name == "swr" {
            assert_eq!(
                (engine.outcomes.hit, engine.outcomes.stale, engine.outcomes.miss, engine.loads),
                (replay.hits, replay.stale, replay.misses, replay.loads),
            );
        } else {
            // Entries that are refreshed early stay fresh after the first load.
            assert!(engine.outcomes.miss < replay.misses, "{:?} {replay:?}", engine.outcomes);
        }
    }
}

#[test]
fn fallback_answers_during_the_outage_and_simple_does_not() {
    let simple = figures("simple", &origin(20, 10));
    let fallback = figures("fallback", &origin(20, 10));
    let breaker = figures("breaker", &origin(20, 10));
    assert!(simple.errors_in_outage > 1_000, "{simple:?}");
    assert_eq!((fallback.outcomes.error, breaker.outcomes.error), (0, 0));
    assert!(breaker.loads < fallback.loads && fallback.loads < simple.loads);
    assert_eq!(simple.errors_elsewhere, 0);
    assert!(fallback.age_max >= Duration::from_secs(10) && simple.age_max <= Duration::from_millis(1_020));
}

#[test]
fn same_seed_gives_the_same_figures() {
    let origin = OriginModel {
        latency: Latency::parse_in("lognormal(median=20ms, p99=200ms)", std::path::Path::new("."))
            .expect("a latency"),
        capacity: Some(OriginCapacity { workers: 2, queue: 5 }),
        outage: Duration::from_secs(5),
    };
    let once = || format!("{:?}", figures("simple", &origin));
    assert_eq!(once(), once());
}
