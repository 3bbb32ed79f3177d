//! Whose turn it is, of a tier that says so by a script, in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{
    Answer, Cache, Error, Outcome, Shared, Strategy,
    tier::{Asked, Ended, Kept, Lease, Listener, Note, Plain, Tier, TierError, TierFuture, Turn, Want},
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

const DEADLINE: Duration = Duration::from_millis(400);

/// Another node has the lock when it is first asked, and this one is given it whenever it asks again.
#[derive(Default)]
struct Busy {
    /// What there is by then.
    stale: Option<Kept>,
    asked: AtomicU64,
    ended: Arc<Mutex<Vec<Option<Ended>>>>,
}

/// Tells how it ended: settled, or dropped.
struct Told(Arc<Mutex<Vec<Option<Ended>>>>, Option<Ended>);

impl Tier for Busy {
    fn ask<'a>(&'a self, _: &'a [u8], _: Want) -> TierFuture<'a, Result<Asked, TierError>> {
        let asked = if self.asked.fetch_add(1, Relaxed) == 0 {
            let settled = Box::pin(std::future::pending());
            Asked::Wanting { instead: None, turn: Turn::Theirs { lease_left: DEADLINE * 2, settled } }
        } else {
            let turn = Turn::Ours(Box::new(Told(Arc::clone(&self.ended), None)));
            Asked::Wanting { instead: self.stale.clone(), turn }
        };
        Box::pin(std::future::ready(Ok(asked)))
    }

    fn tell(&self, _: Note) {}

    fn listen(&self, _: Listener) {}
}

impl Lease for Told {
    fn settle(mut self: Box<Self>, ended: Ended) -> TierFuture<'static, ()> {
        self.1 = Some(ended);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(self.1.take());
    }
}

/// Asks twice: who comes first waits for its turn until its deadline, and it comes at that very moment. Nothing is
/// loaded then.
fn ask_twice(strategy: Strategy, tier: Busy) -> [Result<Answer<String>, Error>; 2] {
    let (time, tier) = (Virtual::new(), Arc::new(tier));
    let shared = Shared::under(Arc::clone(&tier) as Arc<dyn Tier>, Plain, Plain);
    let cache: Cache<String, String, Virtual> =
        Cache::builder(strategy).shared(shared).build_on(time.clone(), Seed(1)).unwrap();
    let loads = Arc::new(AtomicU64::new(0));
    let load = || {
        let loads = Arc::clone(&loads);
        move || {
            loads.fetch_add(1, Relaxed);
            std::future::ready(Ok::<_, std::io::Error>("Ada".to_owned()))
        }
    };
    let asked = async {
        let came = time.now();
        let late = cache.get_with("ada".to_owned(), load()).await;
        assert_eq!(time.now() - came, DEADLINE);
        cache.idle().await;
        assert_eq!(loads.load(Relaxed), 0, "it was too late for one");
        assert_eq!(tier.ended.lock().unwrap().len(), 1, "the key is free for who has time left");
        assert!(tier.ended.lock().unwrap()[0].is_none(), "and is not said to have failed");
        let next = cache.get_with("ada".to_owned(), load()).await;
        cache.idle().await;
        assert_eq!(loads.load(Relaxed), 1, "who comes then loads");
        [late, next]
    };
    time.run(asked).expect("nobody hangs")
}

/// The holder fails at its deadline, and the node that waits is at its own a moment later: the key is free, and a
/// load that began now would be one more for a source that hangs.
#[test]
fn a_turn_that_comes_at_the_deadline_is_given_up_and_nothing_is_loaded() {
    let mut strategy = Strategy::preset("stampede").unwrap();
    strategy.load.deadline = DEADLINE;
    let [late, next] = ask_twice(strategy, Busy::default());
    assert!(matches!(late, Err(Error::Deadline { after: DEADLINE })), "{late:?}");
    assert_eq!(next.expect("it is loaded").value, "Ada");
}

/// Who waited is answered with what is stale, which is not refreshed any more.
#[test]
fn a_turn_to_refresh_that_comes_at_the_deadline_is_given_up_too() {
    let sec = Duration::from_secs(1);
    let mut strategy = Strategy { ttl: Some(sec), swr: 9 * sec, ..Strategy::preset("swr").unwrap() };
    strategy.load.deadline = DEADLINE;
    let stale = Kept {
        body: "Countess".into(),
        age: 2 * sec,
        took: Duration::ZERO,
        fresh_for: Some(sec),
        stale_for: 9 * sec,
        is_negative: false,
        tags: Vec::new(),
    };
    let answers = ask_twice(strategy, Busy { stale: Some(stale), ..Busy::default() });
    for answer in answers {
        let answer = answer.expect("there is something stale");
        assert_eq!((answer.value.as_str(), answer.outcome), ("Countess", Outcome::Stale));
    }
}
