//! The store under every schedule that shuttle finds: threads that store, look up and reserve at a
//! ceiling that has room for two.

use std::time::Duration;

use shuttle::thread;

use super::*;
use crate::{invalidation::Invalidation, locks::Lock, policy::POLICIES};

const LIMIT: usize = 2_000;

fn store(policy: &'static crate::Policy, reclaim: f64) -> Arc<Store<u8, u8>> {
    let limit = Limit { policy, reclaim, max_object: Some(1_000), ..Limit::bytes(LIMIT) };
    // With its overhead an entry weighs its value times ten bytes.
    let costs = Shard::<u8, u8>::ENTRY_BYTES + policy.entry_bytes;
    let weigh = move |_: &u8, value: &u8| usize::from(*value) * 10 - costs;
    let config = StoreConfig { weigh: Some(Box::new(weigh)), ..StoreConfig::default() };
    Arc::new(Store::new(Seed(1), Some(&limit), config))
}

fn held(store: &Store<u8, u8>) -> usize {
    let held = store.budget().map_or(0, |budget| budget.used());
    assert!(held <= LIMIT, "{held} are held");
    held
}

fn stored(store: &Store<u8, u8>) -> usize {
    (0..4).map(|key| fresh(store, key).map_or(0, |value| usize::from(value) * 10)).sum()
}

fn fresh(store: &Store<u8, u8>, key: u8) -> Option<u8> {
    store.look_up::<true, _>(&key, Time::ZERO).ok().map(|(value, _)| value)
}

fn insert(store: &Arc<Store<u8, u8>>, key: u8, value: u8, reserved: Option<ReservedBytes>) {
    match store.reserve_for_store(&key, &value, reserved) {
        Ok(reserve_for_store) => {
            let (life, since) = (Lifetime::until(Time::NEVER, Duration::ZERO), store.invalidation_seq());
            let new = NewValue { key, value, since, took: Duration::ZERO };
            store.insert(new, &life, store.begin_load(&key), reserve_for_store, Time::ZERO);
        }
        Err(_) => {
            let since = store.invalidation_seq();
            let new = NewValue { key, value, since, took: Duration::ZERO };
            store.remove_older(&new, store.begin_load(&key), Time::ZERO);
        }
    }
}

fn together(work: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = work.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
}

/// 5,000 random walks, and 5,000 schedules that prefer one thread over the others.
fn explore(scene: impl Fn() + Copy + Send + Sync + 'static) {
    shuttle::check_random(scene, 5_000);
    shuttle::check_pct(scene, 5_000, 3);
}

#[test]
fn a_ceiling_holds_under_threads_that_store_at_once() {
    for policy in &POLICIES {
        explore(move || {
            let store = store(policy, 0.0);
            let storing = |keys: [u8; 2]| -> Box<dyn FnOnce() + Send> {
                let store = Arc::clone(&store);
                Box::new(move || {
                    for key in keys {
                        insert(&store, key, 100 - key, None);
                        held(&store);
                        assert!(fresh(&store, key).is_none_or(|value| value == 100 - key));
                    }
                })
            };
            together(vec![storing([0, 1]), storing([1, 2]), storing([3, 0])]);
            assert_eq!(held(&store), stored(&store), "the bytes in use are those of the stored entries");
        });
    }
}

#[test]
fn loads_and_stores_share_one_ceiling() {
    explore(|| {
        let store = store(crate::Policy::SIEVE, 0.5);
        let load = |key: u8| -> Box<dyn FnOnce() + Send> {
            let store = Arc::clone(&store);
            Box::new(move || {
                // Its value is smaller than it might have been.
                let mut room = ReservedBytes::none(store.budget().expect("bytes are limited"));
                if store.reserve_for_load(&key, &mut room) == EvictionProgress::Done {
                    held(&store);
                    insert(&store, key, 40, Some(room));
                }
            })
        };
        let storing: Box<dyn FnOnce() + Send> = {
            let store = Arc::clone(&store);
            Box::new(move || {
                insert(&store, 2, 90, None);
                insert(&store, 2, 50, None);
                held(&store);
            })
        };
        together(vec![load(0), load(1), storing]);
        assert_eq!(held(&store), stored(&store));
    });
}

/// Two loads and one invalidation: a value read before it is never found after it.
#[test]
fn value_loaded_before_an_invalidation_is_not_found_after_it() {
    const BEFORE: u8 = 90;
    const AFTER: u8 = 50;
    for everything in [false, true] {
        explore(move || {
            let store = store(crate::Policy::SIEVE, 0.0);
            let source = Arc::new(Lock::new(BEFORE));
            let load = || -> Box<dyn FnOnce() + Send> {
                let (store, source) = (Arc::clone(&store), Arc::clone(&source));
                Box::new(move || {
                    let (since, mark) = (store.invalidation_seq(), store.begin_load(&0));
                    let value = *source.lock();
                    let reserve_for_store = store.reserve_for_store(&0, &value, None).expect("there is room");
                    let life = Lifetime::until(Time::NEVER, Duration::ZERO);
                    let new = NewValue { key: 0, value, since, took: Duration::ZERO };
                    store.insert(new, &life, mark, reserve_for_store, Time::ZERO);
                })
            };
            let invalidate: Box<dyn FnOnce() + Send> = {
                let (store, source) = (Arc::clone(&store), Arc::clone(&source));
                Box::new(move || {
                    *source.lock() = AFTER;
                    if everything {
                        store.invalidate_all(Invalidation::Hard, Time::ZERO);
                        assert_ne!(fresh(&store, 0), Some(BEFORE));
                        store.carry_out(usize::MAX);
                    } else {
                        store.invalidate(&0, Invalidation::Hard, Time::ZERO);
                    }
                    assert_ne!(fresh(&store, 0), Some(BEFORE));
                })
            };
            together(vec![load(), invalidate, load()]);
            assert_ne!(fresh(&store, 0), Some(BEFORE));
            assert_eq!(held(&store), stored(&store));
        });
    }
}
