//! Caches the heads of hits.
//!
//! The head of a popular response stays the same for a second: `Age` and the ttl are in seconds. Each thread keeps the
//! recent heads of some responses, and a hit copies its head instead of building it. A head is kept from the second hit
//! on, so that a scan over many URLs costs one comparison each.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use http::HeaderMap;
use stockade_model::outcome::Outcome;

use super::super::stored::StoredResponse;
use crate::policy::cache_status::CacheStatus;

/// Slots per thread; a head takes one or two KiB.
const SLOTS: usize = 128;

thread_local! {
    static HEAD_CACHE: RefCell<HeadCache> = const { RefCell::new(HeadCache(Vec::new())) };
}

/// Slots, indexed by the address of the response.
struct HeadCache(Vec<HeadSlot>);

struct HeadSlot {
    /// The weak reference keeps the address from being reused, but not the body in memory.
    response: Weak<StoredResponse>,
    age_s: u64,
    status: CacheStatus,
    /// From the second hit on.
    head: Option<HeaderMap>,
}

/// The cached head for this age and status, or the one from `build`.
pub(super) fn cached_head(
    stored: &Arc<StoredResponse>,
    age_s: u64,
    status: CacheStatus,
    build: impl FnOnce() -> HeaderMap,
) -> HeaderMap {
    HEAD_CACHE.with_borrow_mut(|cache| cache.get_or_build(stored, age_s, status, build))
}

impl HeadCache {
    fn get_or_build(
        &mut self,
        stored: &Arc<StoredResponse>,
        age_s: u64,
        status: CacheStatus,
        build: impl FnOnce() -> HeaderMap,
    ) -> HeaderMap {
        let slot = self.slot(stored);
        if slot.response.as_ptr() != Arc::as_ptr(stored) {
            *slot = HeadSlot { response: Arc::downgrade(stored), age_s, status, head: None };
            return build();
        }
        if let Some(head) = slot.head.as_ref().filter(|_| slot.age_s == age_s && slot.status == status) {
            return head.clone();
        }
        let head = build();
        (slot.age_s, slot.status, slot.head) = (age_s, status, Some(head.clone()));
        head
    }

    fn slot(&mut self, stored: &Arc<StoredResponse>) -> &mut HeadSlot {
        if self.0.is_empty() {
            let empty = || HeadSlot {
                response: Weak::new(),
                age_s: 0,
                status: CacheStatus::from_store(Outcome::Error, 0),
                head: None,
            };
            self.0.resize_with(SLOTS, empty);
        }
        // Addresses are multiples of 16 and of the allocator's size class; the shifts spread them.
        let address = Arc::as_ptr(stored).addr() >> 4;
        &mut self.0[(address ^ address >> 7 ^ address >> 14) % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderValue, StatusCode, header::AGE};
    use proptest::prelude::*;
    use stockade_cache::Lifespan;
    use stockade_model::outcome::Outcome;

    use super::*;
    use crate::{
        policy::{
            freshness::{Basis, Freshness},
            vary::Vary,
        },
        serve::stored::{BodyUsers, StoredBody},
    };

    fn stored() -> Arc<StoredResponse> {
        Arc::new(StoredResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: StoredBody::new("body".into()),
            freshness: Freshness {
                initial_age: Duration::ZERO,
                lifetime: Duration::from_mins(1),
                basis: Basis::Origin,
                swr: None,
                sie: None,
                may_be_stale: true,
                must_validate: false,
                is_immutable: false,
            },
            received: std::time::UNIX_EPOCH,
            lifespan: Lifespan::NONE,
            is_shared: true,
            vary: Vary::None,
            selecting: None,
            tags: Box::default(),
            users: BodyUsers::default(),
        })
    }

    fn of(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(AGE, HeaderValue::from_str(text).unwrap())])
    }

    #[test]
    fn head_is_built_twice_and_then_once_a_second() {
        let (response, mut heads, mut built) = (stored(), HeadCache(Vec::new()), Vec::new());
        for (age_s, ttl_s) in [(0, 60), (0, 60), (0, 60), (1, 59), (1, 59), (1, 58), (1, 58)] {
            let status = CacheStatus::from_store(Outcome::Hit, ttl_s);
            let head = heads.get_or_build(&response, age_s, status, || {
                built.push((age_s, ttl_s));
                of(&format!("{age_s} {ttl_s}"))
            });
            assert_eq!(head, of(&format!("{age_s} {ttl_s}")));
        }
        assert_eq!(built, [(0, 60), (0, 60), (1, 59), (1, 58)]);
    }

    #[test]
    fn slot_does_not_keep_the_response_alive() {
        let (response, mut heads) = (stored(), HeadCache(Vec::new()));
        let weak = Arc::downgrade(&response);
        for _ in 0..3 {
            heads.get_or_build(&response, 0, CacheStatus::from_store(Outcome::Hit, 60), || of("0"));
        }
        drop(response);
        assert!(weak.upgrade().is_none());
        assert_eq!(heads.0.iter().filter(|slot| slot.head.is_some()).count(), 1);
        assert_eq!(heads.0.len(), SLOTS);
    }

    proptest! {
        /// Also while responses are dropped and replaced, each gets its own head.
        #[test]
        fn each_response_gets_its_own_head(steps in prop::collection::vec((0_usize..300, 0_u64..3, any::<bool>()), 1..400)) {
            let mut heads = HeadCache(Vec::new());
            let mut all: Vec<_> = (0..300).map(|number| (stored(), number)).collect();
            let mut next = 300;
            for (at, age_s, is_replaced) in steps {
                if is_replaced {
                    (all[at], next) = ((stored(), next), next + 1);
                }
                let (stored, number) = &all[at];
                let expected = of(&format!("{number} {age_s}"));
                let head = heads.get_or_build(stored, age_s, CacheStatus::from_store(Outcome::Hit, 1), || expected.clone());
                prop_assert_eq!(head, expected);
            }
        }
    }
}
