//! The contenders store, evict and coalesce.

use stockade_bench::{
    contenders::entrants,
    stampede::{STAMPEDERS, runtime},
};

#[test]
fn contenders_keep_inserted_values_and_their_limit() {
    const CAPACITY: usize = 10_000;
    for entrant in entrants::<u64>() {
        let cache = (entrant.build)(CAPACITY);
        for key in 0..4 * CAPACITY as u64 {
            assert_eq!(cache.get(key), None, "{}", entrant.name);
            cache.insert(key, !key);
        }
        let found: Vec<_> = (0..4 * CAPACITY as u64).filter_map(|key| Some((key, cache.get(key)?))).collect();
        assert!(found.iter().all(|&(key, value)| value == !key), "{}", entrant.name);
        let is_bounded = !entrant.name.starts_with("papaya");
        let entries = cache.entries();
        assert_eq!(found.len(), entries, "{}", entrant.name);
        assert!(entries >= CAPACITY * 9 / 10, "{} holds {entries}", entrant.name);
        assert_eq!(entries <= CAPACITY, is_bounded, "{} holds {entries}", entrant.name);
    }
}

#[test]
fn contenders_answer_a_herd_with_one_load() {
    let runtime = runtime().expect("a runtime");
    let _context = runtime.enter();
    for stampeder in STAMPEDERS {
        assert_eq!(runtime.block_on((stampeder.prepare)(1000)).loads, 1, "{}", stampeder.name);
    }
}
