use super::*;
use crate::{
    policy::Policy,
    trace::{NewRequest, TraceBuilder},
};

const MS: u64 = 1_000_000;

/// Requests for one key at these milliseconds.
fn at(times_ms: &[u64]) -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for time_ms in times_ms {
        // A nanosecond more, so that no time is a whole second.
        builder.push(&NewRequest { bytes: Some(10), ..NewRequest::read(time_ms * MS + 1, b"a") });
    }
    builder.finish()
}

fn run(trace: &Trace, setup: CacheSetup) -> Replay {
    Policy::named("lru").expect("it is registered").replay(trace, &setup)
}

fn setup(ttl_ms: u64, swr_ms: u64, latency_ms: u64) -> CacheSetup {
    CacheSetup {
        ttl: Ttl::Fixed(ttl_ms * MS),
        swr_ns: swr_ms * MS,
        latency_ns: latency_ms * MS,
        ..CacheSetup::of(Capacity::Entries(10))
    }
}

fn outcomes(replay: &Replay) -> [u64; 5] {
    [replay.hits, replay.stale, replay.coalesced, replay.misses, replay.loads]
}

#[test]
fn expired_entries_are_misses() {
    // Loaded at 0 and 100: fresh before 100 and before 200.
    let replay = run(&at(&[0, 50, 99, 100, 150]), setup(100, 0, 0));
    assert_eq!(outcomes(&replay), [3, 0, 0, 2, 2]);
    assert_eq!(replay.age_max_ns, 99 * MS);
}

/// In the proxy a URL whose object is too large leaves a marker, also if nothing expires and no load takes time.
#[test]
fn markers_of_large_objects_take_room() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for key in 0..40_u8 {
        builder.push(&NewRequest { bytes: Some(500), ..NewRequest::read(u64::from(key) + 1, &[key]) });
    }
    let trace = builder.finish();
    let without = CacheSetup { entry_max: Some(100), ..CacheSetup::of(Capacity::Bytes(1_000)) };
    for (marker_bytes, evictions) in [(0, 0), (60, 40 - 1_000 / 60)] {
        let replay = run(&trace, CacheSetup { marker_bytes, ..without });
        assert_eq!((outcomes(&replay), replay.evictions), ([0, 0, 0, 40, 40], evictions), "{marker_bytes}");
    }
}

#[test]
fn requests_during_a_load_share_it() {
    // The load lasts from 0 to 30; the value is fresh for 100 from then on.
    let replay = run(&at(&[0, 10, 29, 30, 129, 130, 140]), setup(100, 0, 30));
    assert_eq!(outcomes(&replay), [2, 0, 3, 2, 2]);
}

#[test]
fn stale_entries_are_served_while_one_load_is_under_way() {
    // Loaded at 0, ends at 20; expires at 120. At 130 a refresh starts and ends at 150: what comes before is stale.
    let replay = run(&at(&[0, 30, 130, 140, 149, 150, 200]), setup(100, 50, 20));
    assert_eq!(outcomes(&replay), [3, 3, 0, 1, 2]);
    // The oldest answer is that at 149, of the value of 20.
    assert_eq!(replay.age_max_ns, 129 * MS);
    // Past swr nothing is served.
    let replay = run(&at(&[0, 30, 170]), setup(100, 50, 20));
    assert_eq!(outcomes(&replay), [1, 0, 0, 2, 2]);
}

#[test]
fn ttl_of_zero_stores_nothing() {
    let replay = run(&at(&[0, 5, 20, 40]), setup(0, 0, 10));
    assert_eq!(outcomes(&replay), [0, 0, 0, 4, 4]);
}

#[test]
fn logged_ttls_count_response_by_response() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (time_ms, ttl_ms) in [(0, Some(10)), (9, None), (10, None), (60, None), (111, Some(500)), (600, None)]
    {
        let ttl_ns = ttl_ms.map(|ttl_ms: u64| ttl_ms * MS);
        builder.push(&NewRequest { bytes: Some(10), ttl_ns, ..NewRequest::read(time_ms * MS + 1, b"a") });
    }
    let ttl = Ttl::Logged { default_ns: 100 * MS };
    let replay = run(&builder.finish(), CacheSetup { ttl, ..setup(0, 0, 0) });
    // 0: miss for 10 ms; 9: hit; 10: miss for 100; 60: hit; 111: miss for 500; 600: hit.
    assert_eq!(outcomes(&replay), [3, 0, 0, 3, 3]);
}

#[test]
fn objects_larger_than_the_room_are_not_stored() {
    let replay = run(&at(&[0, 1, 2]), CacheSetup::of(Capacity::Bytes(9)));
    assert_eq!((replay.misses, replay.miss_bytes, replay.evictions), (3, 30, 0));
    let replay = run(&at(&[0, 1, 2]), CacheSetup::of(Capacity::Bytes(10)));
    assert_eq!((replay.misses, replay.hits), (1, 2));
    let overhead = CacheSetup { overhead_bytes: 1, ..CacheSetup::of(Capacity::Bytes(10)) };
    assert_eq!(run(&at(&[0, 1, 2]), overhead).misses, 3);
}

#[test]
fn loads_are_counted_by_second() {
    let replay = run(&at(&[0, 500, 1_000, 1_500, 2_900]), setup(400, 0, 0));
    assert_eq!((replay.peaks.in_second(), replay.peaks.in_minute()), (2, 5));
    // Without lifetimes and latency they are counted as well.
    let replay = run(&at(&[0, 500]), CacheSetup::of(Capacity::Entries(1)));
    assert_eq!((replay.peaks.in_second(), replay.peaks.in_minute()), (1, 1));
}

#[test]
fn expired_entries_leave_their_room_to_stores() {
    // 100 keys are requested once, then one other key again and again: each of its stores sweeps two entries, often itself.
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for n in 0..100_u64 {
        builder.push(&NewRequest { bytes: Some(1), ..NewRequest::read(n + 1, &n.to_le_bytes()) });
    }
    for n in 0..120_u64 {
        builder.push(&NewRequest { bytes: Some(1), ..NewRequest::read((n + 1) * 10 * MS + 1, b"a") });
    }
    let trace = builder.finish();
    let setup = CacheSetup { capacity: Capacity::Entries(101), ..setup(10, 0, 0) };
    let mut cache = CacheReplay::<crate::policy::lru::Lru>::new(&trace, &setup, None);
    cache.run_timed(&trace);
    assert_eq!((cache.present.len(), cache.used, cache.counts.evictions), (1, 1, 0));
}

#[test]
fn entries_whose_load_has_ended_are_swept() {
    // Each key once, and ten keys are fresh: few stores have to evict, whether a load takes time or not.
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for n in 0..1_000_u64 {
        builder.push(&NewRequest::read(n * 100 * MS + 1, &n.to_le_bytes()));
    }
    let trace = builder.finish();
    for latency_ms in [0, 1, 50] {
        let replay =
            run(&trace, CacheSetup { capacity: Capacity::Entries(30), ..setup(1_000, 0, latency_ms) });
        assert_eq!(replay.misses, 1_000);
        assert!(replay.evictions < 50, "{} with {latency_ms} ms", replay.evictions);
    }
}

/// Requests for one key at these milliseconds, with the ttl of each response in milliseconds.
fn with_ttls(requests: &[(u64, Option<u64>)]) -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (time_ms, ttl_ms) in requests {
        let ttl_ns = ttl_ms.map(|ttl_ms| ttl_ms * MS);
        builder.push(&NewRequest { bytes: Some(10), ttl_ns, ..NewRequest::read(time_ms * MS + 1, b"a") });
    }
    builder.finish()
}

#[test]
fn response_that_may_not_be_stored_removes_the_older_one() {
    // Fresh until 10, stale until 60; the refresh of 20 may not be stored.
    let trace = with_ttls(&[(0, Some(10)), (20, Some(0)), (30, Some(10)), (35, Some(10))]);
    let ttl = Ttl::Logged { default_ns: 0 };
    let replay = run(&trace, CacheSetup { ttl, ..setup(0, 50, 0) });
    assert_eq!(outcomes(&replay), [1, 1, 0, 2, 3]);
    let replay = run(&trace, CacheSetup { ttl, ..setup(0, 50, 5) });
    assert_eq!(outcomes(&replay), [1, 1, 0, 2, 3]);
}

#[test]
fn stale_value_keeps_its_own_ttl_during_a_refresh() {
    // Loaded at 20 for 10; the refresh from 30 to 50 brings a value that is fresh for 1,000.
    let trace = with_ttls(&[(0, Some(10)), (20, None), (30, Some(1_000)), (41, None), (900, None)]);
    let ttl = Ttl::Logged { default_ns: 0 };
    let replay = run(&trace, CacheSetup { ttl, ..setup(0, 50, 20) });
    assert_eq!(outcomes(&replay), [2, 2, 0, 1, 2]);
}

#[test]
fn requests_share_the_load_of_an_object_that_is_not_stored() {
    let setup = CacheSetup { latency_ns: 10 * MS, ..CacheSetup::of(Capacity::Bytes(9)) };
    assert_eq!(outcomes(&run(&at(&[0, 5, 9, 10, 12]), setup)), [0, 0, 3, 2, 2]);
}

/// Requests at these milliseconds, each with its key and its effect.
fn exchanges(requests: &[(u64, u8, Exchange)]) -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (time_ms, key, exchange) in requests {
        let request = NewRequest::read(time_ms * MS + 1, std::slice::from_ref(key));
        builder.push(&NewRequest { bytes: Some(10), exchange: *exchange, ..request });
    }
    builder.finish()
}

#[test]
fn load_takes_no_room_until_it_ends() {
    use Exchange::Planned;
    // One entry. The load of 1 lasts from 22 to 42, and 0 is there until then.
    let requests = [(0, 0), (21, 0), (22, 1), (30, 0), (42, 1), (44, 0)];
    let trace = exchanges(&requests.map(|(time_ms, key)| (time_ms, key, Planned)));
    let replay = run(&trace, CacheSetup { capacity: Capacity::Entries(1), ..setup(1_000, 0, 20) });
    assert_eq!((outcomes(&replay), replay.evictions), ([3, 0, 0, 3, 3], 1));
}

#[test]
fn replaced_value_needs_room_beside_the_old_one() {
    use Exchange::Planned;
    // Three entries of 10 bytes fit. The refresh of 0 at 150 evicts 1, which was used before 2 and before 0 was asked for again.
    let requests = [(0, 0), (1, 1), (2, 2), (150, 0), (151, 1), (152, 2)];
    let trace = exchanges(&requests.map(|(time_ms, key)| (time_ms, key, Planned)));
    let replay = run(&trace, CacheSetup { capacity: Capacity::Bytes(30), ..setup(100, 1_000, 0) });
    assert_eq!((outcomes(&replay), replay.evictions), ([0, 2, 0, 4, 6], 2));
}

#[test]
fn head_freshens_a_stale_value_and_stores_none() {
    use Exchange::{Head, HeadOther, NotFound, Planned};
    let replay = |requests: &[(u64, u8, Exchange)]| run(&exchanges(requests), setup(100, 50, 0));
    // Absent: it stores nothing. Fresh: it is a hit.
    let counts = replay(&[(0, 0, Head), (1, 0, Planned), (2, 0, Head), (3, 0, HeadOther)]);
    assert_eq!((outcomes(&counts), counts.forwarded), ([2, 0, 0, 2, 2], 1));
    // Stale from 100 to 150: the HEAD goes to the origin, and the value is fresh until 220.
    let counts = replay(&[(0, 0, Planned), (120, 0, Head), (219, 0, Planned), (221, 0, Planned)]);
    assert_eq!((outcomes(&counts), counts.forwarded), ([1, 1, 0, 2, 3], 1));
    // Neither another response nor another stored one, and nothing after swr.
    for (stored, at_ms, head) in [(Planned, 120, HeadOther), (NotFound, 120, Head), (Planned, 151, Head)] {
        let counts = replay(&[(0, 0, stored), (at_ms, 0, head), (200, 0, Planned)]);
        assert_eq!((counts.hits, counts.forwarded), (0, 1), "{stored:?} {at_ms} {head:?}");
    }
}

#[test]
fn head_that_hits_is_no_use_for_the_policy() {
    use Exchange::{Head, Planned};
    for (exchange, hits) in [(Planned, 2), (Head, 1)] {
        let requests = [(0, 0, Planned), (1, 1, Planned), (2, 0, exchange), (3, 2, Planned), (4, 0, Planned)];
        let replay =
            run(&exchanges(&requests), CacheSetup { capacity: Capacity::Entries(2), ..setup(1_000, 0, 0) });
        assert_eq!(replay.hits, hits, "{exchange:?}");
    }
}

#[test]
fn response_that_is_not_shared_leaves_a_marker_in_the_room() {
    use Exchange::{NoLifetime, NotShareable, Planned};
    // Two entries fit. A marker takes the place of 0, which takes that of 2; a redirect leaves no marker. No request hits a marker.
    for (exchange, hits) in [(NotShareable, 0), (NoLifetime, 2)] {
        let trace = exchanges(&[
            (0, 0, Planned),
            (1, 2, Planned),
            (2, 1, exchange),
            (3, 1, exchange),
            (4, 0, Planned),
            (5, 2, Planned),
        ]);
        let with_markers = CacheSetup { marker_bytes: 5, ..setup(1_000, 0, 0) };
        let replay = run(&trace, CacheSetup { capacity: Capacity::Entries(2), ..with_markers });
        assert_eq!((replay.hits, replay.loads), (hits, 6 - hits), "{exchange:?}");
        // In bytes it is small: two of 10 fit with a marker, and its successor.
        let replay = run(&trace, CacheSetup { capacity: Capacity::Bytes(30), ..with_markers });
        assert_eq!(replay.hits, 2, "{exchange:?}");
    }
}

#[test]
fn entry_needs_its_reserved_bytes_until_it_is_stored() {
    use Exchange::Planned;
    // Two of 10 fit into 25, and not the second with 8 more together with the first.
    let trace = exchanges(&[(0, 0, Planned), (1, 1, Planned), (2, 0, Planned)]);
    for (reserved_bytes, hits) in [(5, 1), (8, 0)] {
        let in_bytes = CacheSetup { capacity: Capacity::Bytes(25), ..setup(1_000, 0, 0) };
        assert_eq!(run(&trace, CacheSetup { reserved_bytes, ..in_bytes }).hits, hits, "{reserved_bytes}");
    }
}

/// Notes what a policy is shown. It evicts nothing.
struct Shown<const FUTURE: bool>(Vec<(&'static str, Access)>);

impl<const FUTURE: bool> EvictionPolicy for Shown<FUTURE> {
    const KNOWS_FUTURE: bool = FUTURE;

    fn new(_: &PolicySetup) -> Self {
        Self(Vec::new())
    }

    fn on_hit(&mut self, access: &Access) {
        self.0.push(("hit", *access));
    }

    fn evict(&mut self, _: &Access) -> Option<Key> {
        None
    }

    fn on_insert(&mut self, access: &Access) {
        self.0.push(("insert", *access));
    }

    fn on_update(&mut self, access: &Access) {
        self.0.push(("update", *access));
    }

    fn on_remove(&mut self, _: Key) {}
}

fn shown<const FUTURE: bool, T>(
    trace: &Trace,
    setup: &CacheSetup,
    of: impl Fn(&Access) -> T,
) -> Vec<(&'static str, T)> {
    let mut cache = CacheReplay::<Shown<FUTURE>>::new(trace, setup, None);
    cache.run_timed(trace);
    cache.policy.0.iter().map(|(event, access)| (*event, of(access))).collect()
}

/// A policy that prefers short ttls sees that of the value that it has, and of the one that replaces it.
#[test]
fn policy_is_shown_the_ttl_of_the_found_value() {
    // Loaded at 100 for 300, and served stale until 800; loaded at 500 for 700.
    let trace = with_ttls(&[(100, Some(300)), (200, None), (500, Some(700)), (900, None)]);
    let ttl_ms = |access: &Access| access.ttl_ns / MS;
    let logged = CacheSetup { ttl: Ttl::Logged { default_ns: 0 }, ..setup(0, 400, 0) };
    assert_eq!(
        shown::<false, _>(&trace, &logged, ttl_ms),
        [("insert", 300), ("hit", 300), ("hit", 300), ("update", 700), ("hit", 700)]
    );
    // A value that never expires.
    let for_ever = CacheSetup { latency_ns: MS, ..CacheSetup::of(Capacity::Entries(10)) };
    let shown = shown::<false, _>(&at(&[0, 10]), &for_ever, |access| access.ttl_ns);
    assert_eq!(shown, [("insert", u64::MAX), ("hit", u64::MAX)]);
}

/// A load ends after other requests for its key: the next one is the first that has not come yet.
#[test]
fn policy_that_knows_the_future_is_shown_requests_after_the_end_of_the_load() {
    use Exchange::Planned;
    // The load of 0 lasts until 30, with the request of 10; the requests 4 and 6 come later. That of 1 lasts from 20 to 50.
    let requests = [(0, 0), (10, 0), (20, 1), (40, 0), (60, 1), (70, 0), (80, 1)];
    let trace = exchanges(&requests.map(|(time_ms, key)| (time_ms, key, Planned)));
    let next = |access: &Access| (access.position, access.next);
    assert_eq!(
        shown::<true, _>(&trace, &setup(1_000, 0, 30), next),
        [
            ("insert", (1, 4)),
            ("hit", (4, 6)),
            ("insert", (3, 5)),
            ("hit", (5, 7)),
            ("hit", (6, NEVER)),
            ("hit", (7, NEVER)),
        ]
    );
    // No request comes after the end of the load.
    let trace = exchanges(&[(0, 0, Planned), (10, 0, Planned), (40, 1, Planned)]);
    assert_eq!(shown::<true, _>(&trace, &setup(1_000, 0, 30), next), [("insert", (1, NEVER))]);
}

/// The answer to a HEAD is about the value that was stored when it was sent.
#[test]
fn head_does_not_freshen_a_value_that_was_loaded_meanwhile() {
    use Exchange::{Head, Planned};
    // Loaded at 30, stale from 130. The load of 140 ends at 170, and the HEAD of 150 at 180: the value of 170 is stale from 270.
    let trace = exchanges(&[(0, 0, Planned), (140, 0, Planned), (150, 0, Head), (275, 0, Planned)]);
    let replay = run(&trace, setup(100, 50, 30));
    assert_eq!((replay.hits, replay.stale, replay.forwarded, replay.loads), (0, 2, 1, 4));
    assert_eq!(replay.age_max_ns, 110 * MS);
}

/// Nothing says when a value that never expires was loaded.
#[test]
fn greatest_age_is_0_without_lifetimes_and_latency() {
    let never = CacheSetup::of(Capacity::Bytes(1_000));
    // Small objects leave no marker, and a large one leaves none if the proxy has no markers.
    for (entry_max, marker_bytes) in [(None, 0), (Some(100), 60)] {
        let replay = run(&at(&[0, 50, 100]), CacheSetup { marker_bytes, entry_max, ..never });
        assert_eq!((replay.hits, replay.age_max_ns), (2, 0), "{marker_bytes}");
    }
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (time_ms, key, bytes) in [(0, b"a", 10), (1, b"b", 500), (50, b"a", 10)] {
        builder.push(&NewRequest { bytes: Some(bytes), ..NewRequest::read(time_ms * MS + 1, key) });
    }
    let replay = run(&builder.finish(), CacheSetup { entry_max: Some(100), ..never });
    assert_eq!((replay.hits, replay.age_max_ns), (1, 0));
    // With a clock it is that of the oldest answer.
    let replay = run(&at(&[0, 50, 100]), CacheSetup { latency_ns: 20 * MS, ..never });
    assert_eq!((replay.hits, replay.age_max_ns), (2, 80 * MS));
}

/// A sixteenth of the room, and 1 MiB at most, unless the proxy has another limit.
#[test]
fn largest_entry_of_a_room_in_bytes() {
    for (capacity, max_object, expected) in [
        (Capacity::Bytes(16_000), None, Some(1_000)),
        (Capacity::Bytes(1 << 30), None, Some(1 << 20)),
        (Capacity::Bytes(16_000), Some(2_000), Some(2_000)),
        (Capacity::Bytes(16_000), Some(20_000), Some(16_000)),
        (Capacity::Entries(16_000), None, None),
        (Capacity::Entries(16_000), Some(2_000), None),
    ] {
        assert_eq!(capacity.entry_max(max_object), expected, "{capacity:?} {max_object:?}");
    }
}
