use proptest::prelude::*;
use stockade_cache::policy::POLICIES as SHIPPED;

use super::*;
use crate::{
    Capacity, Ttl,
    replay::CacheSetup,
    trace::{NewRequest, TraceBuilder},
};

/// Requests for these keys with these sizes, one a millisecond.
fn trace(requests: &[(u8, u8)]) -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (n, (key, bytes)) in requests.iter().enumerate() {
        builder.push(&NewRequest {
            bytes: Some(u64::from(*bytes)),
            ..NewRequest::read(n as u64 * 1_000_000 + 1, &[*key])
        });
    }
    builder.finish()
}

fn misses(policy: &str, keys: &[u8], room: u64) -> u64 {
    let requests: Vec<_> = keys.iter().map(|key| (*key, 1)).collect();
    let policy = Policy::named(policy).expect("it is registered");
    policy.replay(&trace(&requests), &CacheSetup::of(Capacity::Entries(room))).misses
}

#[test]
fn names_are_unique_and_every_shipped_policy_is_registered() {
    let names: std::collections::BTreeSet<_> = POLICIES.iter().map(|policy| policy.name).collect();
    assert_eq!(names.len(), POLICIES.len());
    for shipped in &SHIPPED {
        assert_eq!(Policy::named(shipped.name).map(|policy| policy.shipped), Ok(Some(shipped)));
    }
    let error = Policy::named("s4-fifo").expect_err("no policy has this name").to_string();
    assert_eq!(error, "unknown policy `s4-fifo`: did you mean `s3-fifo`?");
}

/// Miss counts by hand, of each policy whose textbook example is known. Three entries fit.
#[test]
fn textbook_sequences_have_their_misses() {
    // Silberschatz, Galvin, Gagne, "Operating System Concepts", chapter 10: 15, 12 and 9 faults.
    let book = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
    assert_eq!(misses("fifo", &book, 3), 15);
    assert_eq!(misses("lru", &book, 3), 12);
    assert_eq!(misses("belady", &book, 3), 9);
    // Belady's anomaly: more room, more misses.
    let anomaly = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    assert_eq!((misses("fifo", &anomaly, 3), misses("fifo", &anomaly, 4)), (9, 10));
}

#[test]
fn policies_against_scans_keep_what_is_requested_again() {
    // Eight keys that are requested again and again, and a scan of 100 others between each two rounds.
    let hot: Vec<u8> = (0..8).collect();
    let mut keys = Vec::new();
    for round in 0..20_u8 {
        keys.extend(hot.iter().chain(&hot));
        keys.extend((0..10).map(|n| 8 + (round * 10 + n) % 200));
    }
    let all = keys.len() as u64;
    // 10 entries: the hot ones and two more.
    for policy in ["sieve", "lfu-no-aging", "arc", "lirs", "w-tinylfu", "clock2q+", "belady"] {
        let misses = misses(policy, &keys, 10);
        assert!(misses < all / 2, "{policy}: {misses} of {all}");
    }
    // LRU and FIFO lose all of them in each round.
    assert!(misses("lru", &keys, 10) >= 20 * (8 + 10), "{}", misses("lru", &keys, 10));
}

proptest! {
    /// The replay is an account: each request is a hit or a miss, and a policy neither evicts what is not there nor keeps too much
    /// (both panic in debug builds, or never end).
    #[test]
    fn counts_add_up_for_every_policy(
        requests in prop::collection::vec((0..40_u8, 1..30_u8), 1..400),
        room in 1..200_u64,
        by_bytes in any::<bool>(),
        ttl in prop::option::of(1..60_u64),
        swr in 0..20_u64,
        latency in 0..10_u64,
    ) {
        let trace = trace(&requests);
        let capacity = if by_bytes { Capacity::Bytes(room) } else { Capacity::Entries(room) };
        let setup = CacheSetup {
            ttl: ttl.map_or(Ttl::Never, |ttl| Ttl::Fixed(ttl * 1_000_000)),
            swr_ns: swr * 1_000_000,
            latency_ns: latency * 1_000_000,
            ..CacheSetup::of(capacity)
        };
        for policy in &POLICIES {
            let replay = policy.replay(&trace, &setup);
            prop_assert_eq!(replay.requests, requests.len() as u64, "{}", policy.name);
            prop_assert_eq!(
                replay.hits + replay.stale + replay.coalesced + replay.misses,
                replay.requests,
                "{}", policy.name
            );
            prop_assert!(replay.loads >= replay.misses && replay.loads <= replay.requests);
            prop_assert!(replay.misses >= 1);
            if let Some(ttl) = ttl {
                prop_assert!(replay.age_max_ns < (ttl + swr) * 1_000_000, "{}", policy.name);
            }
        }
    }

    /// With room for everything all policies are the same: the first request for each key misses.
    #[test]
    fn with_room_for_all_only_first_requests_miss(keys in prop::collection::vec(0..60_u8, 1..300)) {
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        for policy in &POLICIES {
            prop_assert_eq!(misses(policy.name, &keys, 60), distinct.len() as u64, "{}", policy.name);
        }
    }

    /// No policy that stores each miss has fewer misses than Belady's.
    #[test]
    fn none_is_better_than_belady(keys in prop::collection::vec(0..30_u8, 1..300), room in 1..20_u64) {
        let bound = misses("belady", &keys, room);
        for policy in &POLICIES {
            prop_assert!(misses(policy.name, &keys, room) >= bound, "{}", policy.name);
        }
    }

    /// The list of the planner and the heap of the cache are both exact.
    #[test]
    fn lru_is_that_of_the_cache(keys in prop::collection::vec(0..30_u8, 1..300), room in 1..20_u64) {
        let requests: Vec<_> = keys.iter().map(|key| (*key, 1)).collect();
        let setup = CacheSetup::of(Capacity::Entries(room));
        let cache = replay::<shipped::Shipped>(&trace(&requests), &setup, Some(CachePolicy::LRU));
        prop_assert_eq!(cache.misses, misses("lru", &keys, room));
    }

    #[test]
    fn gdsf_equals_its_naive_model(
        requests in prop::collection::vec((0..40_u8, 1..30_u8), 1..400),
        room in 1..400_u64,
    ) {
        let replay = Policy::named("gdsf").expect("it ships").replay(&trace(&requests), &CacheSetup::of(Capacity::Bytes(room)));
        prop_assert_eq!(replay.misses, naive_gdsf(&requests, room));
    }

    /// Against queues and maps as the papers have them, without the planner's lists and heaps.
    #[test]
    fn simple_policies_equal_their_naive_models(keys in prop::collection::vec(0..20_u8, 1..300), room in 1..15_usize) {
        for (policy, model) in [
            ("fifo", naive_fifo as fn(&[u8], usize) -> u64),
            ("lru", naive_lru),
            ("clock", naive_clock),
            ("lfu-no-aging", naive_lfu),
            ("sieve", naive_sieve),
        ] {
            prop_assert_eq!(misses(policy, &keys, room as u64), model(&keys, room), "{}", policy);
        }
    }
}

fn naive_fifo(keys: &[u8], room: usize) -> u64 {
    let (mut queue, mut misses) = (Vec::new(), 0);
    for key in keys {
        if !queue.contains(key) {
            misses += 1;
            if queue.len() == room {
                queue.remove(0);
            }
            queue.push(*key);
        }
    }
    misses
}

fn naive_lru(keys: &[u8], room: usize) -> u64 {
    let (mut used, mut misses) = (Vec::new(), 0);
    for key in keys {
        if let Some(index) = used.iter().position(|used| used == key) {
            used.remove(index);
        } else {
            misses += 1;
            if used.len() == room {
                used.remove(0);
            }
        }
        used.push(*key);
    }
    misses
}

fn naive_clock(keys: &[u8], room: usize) -> u64 {
    let (mut queue, mut misses): (Vec<(u8, bool)>, _) = (Vec::new(), 0);
    for key in keys {
        if let Some(entry) = queue.iter_mut().find(|(there, _)| there == key) {
            entry.1 = true;
            continue;
        }
        misses += 1;
        while queue.len() == room {
            let (oldest, is_requested) = queue.remove(0);
            if is_requested {
                queue.push((oldest, false));
            }
        }
        queue.push((*key, false));
    }
    misses
}

fn naive_lfu(keys: &[u8], room: usize) -> u64 {
    let (mut entries, mut misses): (Vec<(u8, u32, usize)>, _) = (Vec::new(), 0);
    for (n, key) in keys.iter().enumerate() {
        if let Some(entry) = entries.iter_mut().find(|(there, ..)| there == key) {
            *entry = (*key, entry.1 + 1, n);
            continue;
        }
        misses += 1;
        if entries.len() == room {
            let least = entries.iter().min_by_key(|(_, requests, last)| (*requests, *last)).copied();
            entries.retain(|entry| Some(*entry) != least);
        }
        entries.push((*key, 1, n));
    }
    misses
}

struct GdsfEntry {
    key: u8,
    size: u8,
    requests: u32,
    priority: f64,
    /// The number of the last request.
    used: usize,
}

/// An entry has the size of the request that missed.
fn naive_gdsf(requests: &[(u8, u8)], room: u64) -> u64 {
    let (mut entries, mut age, mut misses) = (Vec::<GdsfEntry>::new(), 0.0, 0);
    for (used, (key, size)) in requests.iter().copied().enumerate() {
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.requests += 1;
            entry.priority = age + f64::from(entry.requests) / f64::from(entry.size);
            entry.used = used;
            continue;
        }
        misses += 1;
        if u64::from(size) > room {
            continue;
        }
        while entries.iter().map(|entry| u64::from(entry.size)).sum::<u64>() + u64::from(size) > room {
            let order =
                |a: &&GdsfEntry, b: &&GdsfEntry| a.priority.total_cmp(&b.priority).then(a.used.cmp(&b.used));
            let lowest = entries.iter().min_by(order).expect("it is full");
            let (key, priority) = (lowest.key, lowest.priority);
            entries.retain(|entry| entry.key != key);
            age = priority;
        }
        entries.push(GdsfEntry { key, size, requests: 1, priority: age + 1.0 / f64::from(size), used });
    }
    misses
}

/// The newest first. The hand is the index of the next entry to examine, and moves towards the newest.
fn naive_sieve(keys: &[u8], room: usize) -> u64 {
    let (mut queue, mut hand, mut misses): (Vec<(u8, bool)>, Option<usize>, _) = (Vec::new(), None, 0);
    for key in keys {
        if let Some(entry) = queue.iter_mut().find(|(there, _)| there == key) {
            entry.1 = true;
            continue;
        }
        misses += 1;
        if queue.len() == room {
            let mut at = hand.unwrap_or(room - 1);
            while queue[at].1 {
                queue[at].1 = false;
                at = at.checked_sub(1).unwrap_or(room - 1);
            }
            queue.remove(at);
            hand = at.checked_sub(1);
        }
        queue.insert(0, (*key, false));
        hand = hand.map(|hand| hand + 1);
    }
    misses
}

#[test]
fn bytes_that_the_cache_stores_for_a_policy_count_with_its_overhead() {
    let of = |name: &str, overhead_bytes| {
        let setup = CacheSetup { overhead_bytes, ..CacheSetup::of(Capacity::Bytes(1_000)) };
        Policy::named(name).expect("it is registered").setup(&setup).overhead_bytes
    };
    let lru = u32::try_from(CachePolicy::LRU.entry_bytes).expect("few");
    assert!(lru > 0);
    assert_eq!([of("lru", 100), of("sieve", 100), of("fifo", 100)], [100 + lru, 100, 100]);
    // Published curves have none.
    assert_eq!(of("lru", 0), 0);
}
