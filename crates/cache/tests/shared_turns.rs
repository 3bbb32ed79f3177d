//! Whose turn it is, of a tier that says so by a script, in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{
    Cache, Error, Shared, Strategy,
    tier::{Asked, Ended, Lease, Listener, Note, Plain, Tier, TierError, TierFuture, Turn, Want},
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

const DEADLINE: Duration = Duration::from_millis(400);

/// Another node has the lock when it is first asked, and this one is given it whenever it asks again.
#[derive(Default)]
struct Busy {
    asked: AtomicU64,
    ended: Arc<Mutex<Vec<Option<Ended>>>>,
}

/// Tells how it ended: settled, or dropped.
struct Told(Arc<Mutex<Vec<Option<Ended>>>>, Option<Ended>);

impl Tier for Busy {
    fn ask<'a>(&'a self, _: &'a [u8], _: Want) -> TierFuture<'a, Result<Asked, TierError>> {
        let turn = if self.asked.fetch_add(1, Relaxed) == 0 {
            Turn::Theirs { lease_left: DEADLINE * 2, settled: Box::pin(std::future::pending()) }
        } else {
            Turn::Ours(Box::new(Told(Arc::clone(&self.ended), None)))
        };
        Box::pin(std::future::ready(Ok(Asked::Wanting { instead: None, turn })))
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

/// The holder fails at its deadline, and the node that waits is at its own a moment later: the key is free, and a
/// load that began now would be one more for a source that hangs.
#[test]
fn a_turn_that_comes_at_the_deadline_is_given_up_and_nothing_is_loaded() {
    let (time, tier) = (Virtual::new(), Arc::new(Busy::default()));
    let mut strategy = Strategy::preset("stampede").unwrap();
    strategy.load.deadline = DEADLINE;
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
    let (late, waited, next) = time
        .run(async {
            let came = time.now();
            let late = cache.get_with("ada".to_owned(), load()).await;
            let waited = time.now() - came;
            cache.idle().await;
            assert_eq!(loads.load(Relaxed), 0, "it was too late for one");
            assert_eq!(tier.ended.lock().unwrap().len(), 1, "the key is free for who has time left");
            assert!(tier.ended.lock().unwrap()[0].is_none(), "and is not said to have failed");
            (late, waited, cache.get_with("ada".to_owned(), load()).await)
        })
        .expect("nobody hangs");
    assert!(matches!(late, Err(Error::Deadline { after: DEADLINE })), "{late:?}");
    assert_eq!(waited, DEADLINE);
    assert_eq!(next.expect("it is loaded").value, "Ada");
}
