use super::*;
use crate::trace::{NewRequest, SECOND_NS, TraceBuilder, hash_of};

fn counted(per_s: f64) -> Peak {
    Peak { per_s, error: None }
}

fn entries(sizes: &[u64]) -> Vec<Capacity> {
    sizes.iter().map(|size| Capacity::Entries(*size)).collect()
}

/// Sizes with the loads at each, and the number of the best one.
#[test]
fn smallest_size_is_chosen_to_which_more_saves_little() {
    let powers = [1, 2, 4, 8, 16];
    let cases: [(&[u64], &[f64], usize); 16] = [
        (&powers, &[0.9, 0.5, 0.3, 0.29, 0.289], 2),
        // From 98 to 98.8 and to 99.4 % of hits: few points, and half of the loads.
        (&powers, &[0.04, 0.02, 0.012, 0.006, 0.005_9], 3),
        // Room that helps nothing until all of a loop fits.
        (&powers, &[0.5, 0.49, 0.49, 0.2, 0.2], 3),
        // Each doubling saves.
        (&powers, &[0.8, 0.4, 0.2, 0.1, 0.05], 4),
        // No room helps.
        (&powers, &[0.8, 0.8, 0.8, 0.8, 0.8], 0),
        // A twentieth of the loads is enough to go on, and less is not.
        (&powers[..3], &[1.0, 0.95, 0.95], 1),
        (&powers[..3], &[1.0, 0.951, 0.951], 0),
        // So is a tenth by the largest size.
        (&powers[..4], &[1.0, 0.96, 0.93, 0.899], 1),
        (&powers[..4], &[1.0, 0.96, 0.93, 0.91], 0),
        // Twice the room is two sizes further.
        (&[10, 15, 20, 30, 40], &[1.0, 0.97, 0.94, 0.93, 0.92], 1),
        // Twice the room is in no curve: the next larger size, or the largest.
        (&[10, 50], &[1.0, 0.9], 1),
        (&[10, 12, 15], &[1.0, 0.98, 0.94], 1),
        (&[7], &[0.5], 0),
        // Nothing is left to save, or one load in 20,000 requests.
        (&powers, &[0.5, 0.0, 0.0, 0.0, 0.0], 1),
        (&powers, &[0.5, 0.000_12, 0.000_07, 0.000_05, 0.000_04], 1),
        // One in 10,000 counts.
        (&powers, &[0.000_1, 0.0, 0.0, 0.0, 0.0], 1),
    ];
    for (sizes, loads, best) in cases {
        assert_eq!(enough(&entries(sizes), loads), best, "{loads:?}");
    }
}

#[test]
fn saved_loads_are_a_share_of_those_before() {
    for (before, after, expected) in
        [(0.02, 0.012, 0.4), (0.5, 0.25, 0.5), (0.25, 0.5, -1.0), (0.0, 0.1, 0.0)]
    {
        assert!((saved(before, after) - expected).abs() < 1e-12, "{before} {after}");
    }
}

#[test]
fn nearest_size_is_that_with_the_smallest_difference() {
    let sizes = entries(&[10, 20, 40]);
    for (size, number) in [(1, 0), (14, 0), (16, 1), (20, 1), (29, 1), (31, 2), (1_000, 2)] {
        assert_eq!(nearest(&sizes, Capacity::Entries(size)), number, "{size}");
    }
}

const MINUTE: Lifetime = Lifetime { ttl: Ttl::Fixed(60 * SECOND_NS), swr_ns: 10 * SECOND_NS };
const HOUR: Lifetime = Lifetime { ttl: Ttl::Fixed(3_600 * SECOND_NS), swr_ns: 10 * SECOND_NS };
const SIZES: [u64; 4] = [100, 200, 400, 800];

/// A curve with these loads. Its hit ratios would choose the opposite.
fn curve(policy: &str, lifetime: Lifetime, loads: [f64; 4]) -> Curve {
    let points = SIZES.iter().zip(loads).map(|(size, load_ratio)| Point {
        capacity: Capacity::Entries(*size),
        miss_ratio: 1.0 - load_ratio,
        wait_ratio: load_ratio,
        load_ratio,
        byte_miss_ratio: 1.0 - load_ratio,
        byte_load_ratio: 1.0 - load_ratio,
        is_exact: true,
    });
    Curve {
        policy: Policy::named(policy).expect("it is registered"),
        lifetime,
        points: points.collect(),
        error: None,
    }
}

fn settings(curves: &[Curve]) -> CurveSettings {
    CurveSettings {
        policies: curves.iter().map(|curve| curve.policy).collect(),
        lifetimes: curves.iter().map(|curve| curve.lifetime).collect(),
        sizes: entries(&SIZES),
        latency_ns: 0,
        overhead_bytes: 0,
        max_object: None,
        routes: RouteTtls::NONE,
    }
}

/// Three requests a second for 300 keys, one after another, for 40 minutes.
fn loop_of_300() -> Trace {
    loop_of(300, |key| key.to_le_bytes().to_vec())
}

/// The same for this number of keys with these names.
fn loop_of(keys: u64, name: impl Fn(u64) -> Vec<u8>) -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for n in 0..7_200_u64 {
        let key = name(n % keys);
        builder.push(&NewRequest { bytes: Some(10), ..NewRequest::read(n * SECOND_NS / 3 + 1, &key) });
    }
    builder.finish()
}

fn chosen(
    curves: &[Curve],
    memory: Option<u64>,
    staleness_s: Option<u64>,
) -> Result<Recommendation, NoRecommendation> {
    let bound = staleness_s.map(|seconds| seconds * SECOND_NS);
    recommend(&loop_of_300(), curves, &settings(curves), memory.map(Capacity::Entries), bound, None)
}

/// The names of the chosen policy and lifetime, and the size.
fn choice(curves: &[Curve], memory: Option<u64>, staleness_s: Option<u64>) -> (&'static str, Lifetime, u64) {
    let chosen = chosen(curves, memory, staleness_s).expect("a cache");
    (chosen.policy.name, chosen.lifetime, chosen.capacity.size())
}

#[test]
fn policy_has_the_fewest_loads_and_equal_ones_are_in_the_order_of_the_registry() {
    let flat = |policy, loads: f64| curve(policy, MINUTE, [loads; 4]);
    for (sieve, s3_fifo, lru, name) in [
        (0.5, 0.6, 0.7, "sieve"),
        (0.7, 0.6, 0.5, "lru"),
        (0.6, 0.5, 0.7, "s3-fifo"),
        // A hundredth more loads does not count, and more does.
        (0.504, 0.501, 0.5, "sieve"),
        (0.506, 0.504, 0.5, "s3-fifo"),
        (0.506, 0.506, 0.5, "lru"),
        (0.020_3, 0.020_3, 0.02, "lru"),
    ] {
        let curves = [flat("sieve", sieve), flat("s3-fifo", s3_fifo), flat("lru", lru), flat("belady", 0.01)];
        assert_eq!(choice(&curves, None, None), (name, MINUTE, 100), "{sieve} {s3_fifo} {lru}");
    }
    let no_cache = chosen(&[flat("fifo", 0.1), flat("belady", 0.1)], None, None);
    assert_eq!(no_cache.err(), Some(NoRecommendation::NoShippedPolicy));
}

#[test]
fn policy_is_the_best_one_of_the_chosen_size() {
    // LRU is better with little room, SIEVE with the room that is chosen.
    let curves = [curve("sieve", MINUTE, [0.9, 0.5, 0.3, 0.3]), curve("lru", MINUTE, [0.6, 0.5, 0.4, 0.2])];
    assert_eq!(choice(&curves, Some(100), None).0, "lru");
    assert_eq!(choice(&curves, Some(390), None), ("sieve", MINUTE, 390));
    assert_eq!(choice(&curves, Some(900), None), ("lru", MINUTE, 900));
    assert_eq!(choice(&curves, None, None), ("lru", MINUTE, 800));
}

#[test]
fn lifetime_has_the_fewest_loads_within_the_bound() {
    let curves = [
        curve("lru", MINUTE, [0.5, 0.45, 0.44, 0.44]),
        curve("lru", HOUR, [0.6, 0.4, 0.2, 0.2]),
        curve("belady", MINUTE, [0.1; 4]),
    ];
    // Without a size the largest room decides.
    assert_eq!(choice(&curves, None, None), ("lru", HOUR, 400));
    assert_eq!(choice(&curves, Some(90), None), ("lru", MINUTE, 90));
    // An answer is as old as ttl and swr together.
    for (staleness_s, lifetime) in [(3_610, HOUR), (3_609, MINUTE), (70, MINUTE)] {
        assert_eq!(choice(&curves, None, Some(staleness_s)).1, lifetime, "{staleness_s} s");
    }
    assert_eq!(chosen(&curves, None, Some(69)).err(), Some(NoRecommendation::Staleness));
    let chosen = chosen(&curves, None, None).expect("a cache");
    assert_eq!(chosen.age_max_ns, 3_610 * SECOND_NS);
}

/// The figures against replays of the alternatives.
#[test]
fn figures_are_those_of_independent_replays() {
    let trace = loop_of_300().with_warmup(crate::Warmup::Share(0.25));
    let policy = Policy::named("lru").expect("it ships");
    let never = Lifetime { ttl: Ttl::Never, swr_ns: 0 };
    let settings = CurveSettings {
        policies: vec![policy],
        lifetimes: vec![never],
        sizes: entries(&[75, 150, 300, 600]),
        latency_ns: 0,
        overhead_bytes: 0,
        max_object: None,
        routes: RouteTtls::NONE,
    };
    let curves = curves(&trace, None, &settings, &|_, _| {});
    let recommended = |memory: Option<u64>| {
        recommend(&trace, &curves, &settings, memory.map(Capacity::Entries), None, None).expect("a cache")
    };
    // A loop has only misses until all of it fits.
    let best = recommended(None);
    assert_eq!(best.capacity, Capacity::Entries(300));
    assert_eq!((best.point.load_ratio, best.loads_saved_by_double, best.load_ratio_of_half), (0.0, 0.0, 1.0));
    assert_eq!((best.gain_of_double, best.loss_of_half), (0.0, 1.0));
    assert_eq!((best.loads_per_s_max, best.loads_per_s_in_busiest_minute), (counted(0.0), counted(0.0)));
    let cold = best.cold_start.expect("a warm-up");
    assert_eq!((cold.loads_per_s_max, cold.loads_per_s_in_busiest_minute), (counted(3.0), counted(3.0)));
    assert_eq!((cold.span_ns / SECOND_NS, best.requests_per_s_max), (600, counted(3.0)));
    let half = recommended(Some(150));
    // From the first counted request to the last, three loads a second.
    assert!((half.loads_per_s - 3.0).abs() < 0.01, "{}", half.loads_per_s);
    assert_eq!((half.loads_saved_by_double, half.load_ratio_of_half, half.gain_of_double), (1.0, 1.0, 1.0));
    assert_eq!((half.loads_per_s_max, half.loads_per_s_in_busiest_minute), (counted(3.0), counted(3.0)));
    // Requests at random for the same keys: each size finds a part of them.
    let key = |n: u64| (hash_of(&n.to_le_bytes()) % 300).to_le_bytes().to_vec();
    let trace = loop_of(7_200, key).with_warmup(crate::Warmup::Share(0.25));
    let sieve = Policy::named("sieve").expect("it ships");
    let loads = |size: u64| {
        let replay = sieve.replay(&trace, &settings.setup(Capacity::Entries(size), never));
        (replay.loads as f64, replay.requests as f64)
    };
    let settings = CurveSettings { policies: vec![sieve], ..settings.clone() };
    let curves = crate::curve::curves(&trace, None, &settings, &|_, _| {});
    for size in [100, 140, 160, 290] {
        let given = recommend(&trace, &curves, &settings, Some(Capacity::Entries(size)), None, None)
            .expect("a cache");
        let ((double, _), (own, requests), (half, _)) = (loads(2 * size), loads(size), loads(size / 2));
        assert!(half > own && own > double && own < requests, "{size}: {half} {own} {double}");
        let expected = [own / requests, 1.0 - double / own, half / requests];
        let told = [given.point.load_ratio, given.loads_saved_by_double, given.load_ratio_of_half];
        let ratios = |size: u64| {
            Point::of(
                Capacity::Entries(size),
                &sieve.replay(&trace, &settings.setup(Capacity::Entries(size), never)),
                &trace,
            )
            .miss_ratio
        };
        assert!((given.loss_of_half - (ratios(size / 2) - ratios(size))).abs() < 1e-9, "{size}");
        assert!((given.gain_of_double - (ratios(size) - ratios(2 * size))).abs() < 1e-9, "{size}");
        // Three quarters of 40 minutes count.
        assert!((given.loads_per_s - own / 1_800.0).abs() < 0.01, "{size}: {}", given.loads_per_s);
        for (expected, told) in expected.into_iter().zip(told) {
            assert!((expected - told).abs() < 1e-9, "{size}: {expected} {told}");
        }
    }
}

/// Points of a sample do not choose the size: the replays of all requests do.
#[test]
fn size_is_chosen_from_all_requests() {
    let mut sampled = curve("lru", Lifetime { ttl: Ttl::Never, swr_ns: 0 }, [0.9, 0.5, 0.1, 0.01]);
    sampled.points.iter_mut().for_each(|point| point.is_exact = false);
    // The curve says 800; 400 entries have room for all 300 keys.
    let best = chosen(&[sampled], None, None).expect("a cache");
    assert_eq!((best.capacity, best.policy.name), (Capacity::Entries(400), "lru"));
}

/// The replays are those of the chosen policy and lifetime, wherever their curve is in the list.
#[test]
fn size_is_chosen_from_replays_of_the_chosen_curve() {
    let never = Lifetime { ttl: Ttl::Never, swr_ns: 0 };
    let sampled = |policy, lifetime, loads| {
        let mut curve = curve(policy, lifetime, loads);
        curve.points.iter_mut().for_each(|point| point.is_exact = false);
        curve
    };
    // Each key is requested each 100 s: within a minute nothing is found, and no size is better than another.
    let lifetimes = [sampled("lru", MINUTE, [0.9; 4]), sampled("lru", never, [0.9, 0.5, 0.1, 0.01])];
    assert_eq!(choice(&lifetimes, None, None), ("lru", never, 400));
    // A loop of 3,000 keys: Belady's policy, which does not ship, finds more with each size, LRU finds nothing.
    let trace = loop_of(3_000, |key| key.to_le_bytes().to_vec());
    let policies = [sampled("belady", never, [0.1; 4]), sampled("lru", never, [0.9, 0.5, 0.1, 0.01])];
    let best = recommend(&trace, &policies, &settings(&policies), None, None, None).expect("a cache");
    assert_eq!((best.policy.name, best.capacity), ("lru", Capacity::Entries(100)));
}

#[test]
fn size_and_figures_are_those_with_the_ttls_of_routes() {
    // A file each 100 s, whose size never changes: nothing is found within a minute, and all of it within an hour.
    let trace = loop_of(300, |key| format!("/static/{key}.css").into_bytes());
    let minute = Lifetime { ttl: Ttl::Fixed(60 * SECOND_NS), swr_ns: 0 };
    let settings = CurveSettings {
        policies: vec![Policy::named("lru").expect("it ships")],
        lifetimes: vec![minute],
        sizes: entries(&[75, 150]),
        latency_ns: 0,
        overhead_bytes: 0,
        max_object: None,
        routes: RouteTtls::NONE,
    };
    let curves = curves(&trace, None, &settings, &|_, _| {});
    let recommended = |memory: Option<u64>, route_ttl_s: u64| {
        let (memory, ttl_max_ns) = (memory.map(Capacity::Entries), Some(route_ttl_s * SECOND_NS));
        let best = recommend(&trace, &curves, &settings, memory, None, ttl_max_ns).expect("a cache");
        let routes: Vec<_> =
            best.routes.routes.iter().map(|route| (route.name.clone(), route.ttl_ns / SECOND_NS)).collect();
        (best.capacity.size(), best.point.load_ratio, routes)
    };
    // Room for all files is beyond the curves: their largest size is doubled.
    let files = vec![("/static/*".to_owned(), 3_600)];
    assert_eq!(recommended(None, 86_400), (300, 300.0 / 7_200.0, files.clone()));
    assert_eq!(recommended(Some(350), 86_400), (350, 300.0 / 7_200.0, files));
    // Without a longer ttl no size helps: the smallest, or the given one.
    assert_eq!(recommended(None, 60), (75, 1.0, vec![]));
    assert_eq!(recommended(Some(90), 60), (90, 1.0, vec![]));
}

#[test]
fn peak_of_a_sample_is_scaled_and_has_an_error() {
    assert_eq!(Peak::of(100, 4.0, 1.0), counted(25.0));
    // A quarter of the keys: four times the requests, and twice the root of the count as the error.
    assert_eq!(Peak::of(100, 4.0, 0.25), Peak { per_s: 100.0, error: Some(0.2) });
    assert_eq!(Peak::of(0, 1.0, 0.5), Peak { per_s: 0.0, error: Some(2.0) });
    assert_eq!(Peak::in_minute(120, 3_600.0, 1.0), counted(2.0));
    assert_eq!(Peak::in_minute(120, 30.0, 1.0), counted(4.0));
}

#[test]
fn cold_start_needs_a_warmup_and_requests_of_a_sample_are_those_of_the_log() {
    let never = Lifetime { ttl: Ttl::Never, swr_ns: 0 };
    let curves = [curve("lru", never, [0.9, 0.5, 0.1, 0.01])];
    let whole = loop_of_300();
    let sample = whole.sample(4);
    let of =
        |trace: &Trace| recommend(trace, &curves, &settings(&curves), None, None, None).expect("a cache");
    assert_eq!((of(&whole).cold_start, of(&whole).requests_per_s_max), (None, counted(3.0)));
    assert_eq!((of(&sample).cold_start, of(&sample).requests_per_s_max), (None, counted(3.0)));
    assert!(of(&sample).loads_per_s_max.error.is_some(), "loads are those of the sample");
}

#[test]
fn age_is_that_of_the_longest_ttl() {
    let age_s = |ttl_s: Option<u64>| {
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        let ttl_ns = ttl_s.map(|seconds| seconds * SECOND_NS);
        builder.push(&NewRequest { ttl_ns, ..NewRequest::read(1, b"a") });
        // A shorter one decides nothing.
        builder.push(&NewRequest { ttl_ns: ttl_ns.map(|_| SECOND_NS), ..NewRequest::read(2, b"b") });
        let lifetime = Lifetime { ttl: Ttl::Logged { default_ns: 60 * SECOND_NS }, swr_ns: 10 * SECOND_NS };
        age_max_ns(lifetime, &builder.finish()) / SECOND_NS
    };
    assert_eq!([None, Some(5), Some(60), Some(100)].map(age_s), [70, 70, 70, 110]);
    assert_eq!(age_max_ns(Lifetime { ttl: Ttl::Never, swr_ns: 0 }, &loop_of_300()), u64::MAX);
}
