//! Heads of hits, ready to be given again.
//!
//! What is asked for often has the same head for a second: its age and its ttl are told in seconds. Each thread keeps
//! the last heads of some answers; a hit that finds its own copies that, instead of putting a new one together.
//! It is kept for those that have been asked for before, so that a scan of many costs nothing but a look.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use http::HeaderMap;

use super::super::stored::Stored;
use crate::policy::cache_status::CacheStatus;

/// How many answers a thread remembers; a head is a kilobyte or two.
const ANSWERS: usize = 128;

thread_local! {
    static HEADS: RefCell<Heads> = const { RefCell::new(Heads(Vec::new())) };
}

/// Answers that were given, each at the place that its address has.
struct Heads(Vec<Last>);

/// An answer that was given.
struct Last {
    /// Nobody else has its address while this is there; its body may go.
    of: Weak<Stored>,
    age_s: u64,
    status: CacheStatus,
    /// Set when it was given for the second time.
    head: Option<HeaderMap>,
}

/// The head of an answer of this age, `made` if it was not given a moment ago.
pub(super) fn head(
    stored: &Arc<Stored>,
    age_s: u64,
    status: CacheStatus,
    made: impl FnOnce() -> HeaderMap,
) -> HeaderMap {
    HEADS.with_borrow_mut(|heads| heads.find(stored, age_s, status, made))
}

impl Heads {
    fn find(
        &mut self,
        stored: &Arc<Stored>,
        age_s: u64,
        status: CacheStatus,
        made: impl FnOnce() -> HeaderMap,
    ) -> HeaderMap {
        let last = self.place(stored);
        if last.of.as_ptr() != Arc::as_ptr(stored) {
            *last = Last { of: Arc::downgrade(stored), age_s, status, head: None };
            return made();
        }
        if let Some(head) = last.head.as_ref().filter(|_| last.age_s == age_s && last.status == status) {
            return head.clone();
        }
        let head = made();
        (last.age_s, last.status, last.head) = (age_s, status, Some(head.clone()));
        head
    }

    fn place(&mut self, stored: &Arc<Stored>) -> &mut Last {
        if self.0.is_empty() {
            let none = || Last { of: Weak::new(), age_s: 0, status: NOTHING, head: None };
            self.0.resize_with(ANSWERS, none);
        }
        // Allocations begin at multiples of 16, and of their size's class.
        let address = Arc::as_ptr(stored).addr() >> 4;
        &mut self.0[(address ^ address >> 7 ^ address >> 14) % ANSWERS]
    }
}

/// What nobody is told.
const NOTHING: CacheStatus = CacheStatus {
    outcome: stockade_model::outcome::Outcome::Error,
    forward: None,
    forward_status: None,
    ttl_s: None,
    stored: false,
};

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
        serve::stored::Content,
    };

    fn stored() -> Arc<Stored> {
        Arc::new(Stored {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            content: Content::of("body".into()),
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
            vary: Vary::None,
            selecting: None,
            tags: Box::default(),
        })
    }

    fn of(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(AGE, HeaderValue::from_str(text).unwrap())])
    }

    #[test]
    fn it_is_made_twice_and_then_once_a_second() {
        let (one, mut heads, mut made) = (stored(), Heads(Vec::new()), Vec::new());
        for (age_s, ttl_s) in [(0, 60), (0, 60), (0, 60), (1, 59), (1, 59), (1, 58), (1, 58)] {
            let status = CacheStatus::stored(Outcome::Hit, ttl_s);
            let head = heads.find(&one, age_s, status, || {
                made.push((age_s, ttl_s));
                of(&format!("{age_s} {ttl_s}"))
            });
            assert_eq!(head, of(&format!("{age_s} {ttl_s}")));
        }
        assert_eq!(made, [(0, 60), (0, 60), (1, 59), (1, 58)]);
    }

    #[test]
    fn it_keeps_no_answer_alive() {
        let (one, mut heads) = (stored(), Heads(Vec::new()));
        let gone = Arc::downgrade(&one);
        for _ in 0..3 {
            heads.find(&one, 0, CacheStatus::stored(Outcome::Hit, 60), || of("0"));
        }
        drop(one);
        assert!(gone.upgrade().is_none());
        assert_eq!(heads.0.iter().filter(|last| last.head.is_some()).count(), 1);
        assert_eq!(heads.0.len(), ANSWERS);
    }

    proptest! {
        /// Whatever is dropped and made anew in between, each is given its own.
        #[test]
        fn everybody_is_given_their_own(steps in prop::collection::vec((0_usize..300, 0_u64..3, any::<bool>()), 1..400)) {
            let mut heads = Heads(Vec::new());
            let mut all: Vec<_> = (0..300).map(|number| (stored(), number)).collect();
            let mut next = 300;
            for (at, age_s, is_replaced) in steps {
                if is_replaced {
                    (all[at], next) = ((stored(), next), next + 1);
                }
                let (stored, number) = &all[at];
                let expected = of(&format!("{number} {age_s}"));
                let head = heads.find(stored, age_s, CacheStatus::stored(Outcome::Hit, 1), || expected.clone());
                prop_assert_eq!(head, expected);
            }
        }
    }
}
