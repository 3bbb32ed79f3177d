//! A tier whose replies follow a script, in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{
    Answer, Cache, Error, Outcome, SharedTier, Strategy,
    tier::{
        EventListener, Lease, LoadRight, RawCodec, Tier, TierError, TierEvent, TierFuture, TierQuery,
        TierReply, TierValue,
    },
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

const DEADLINE: Duration = Duration::from_millis(400);

/// The result that a lease was completed with; `None` if it was dropped.
type LeaseEnd = Option<Result<TierValue, String>>;

/// Another node has the lock at the first attempt; later attempts get it.
#[derive(Default)]
struct Busy {
    /// The stored value at that time.
    stale: Option<TierValue>,
    asked: AtomicU64,
    ended: Arc<Mutex<Vec<LeaseEnd>>>,
}

/// Reports the end of a lease: completed or dropped.
struct Told(Arc<Mutex<Vec<LeaseEnd>>>, LeaseEnd);

impl Tier for Busy {
    fn lookup<'a>(&'a self, _: &'a [u8], _: TierQuery) -> TierFuture<'a, Result<TierReply, TierError>> {
        let asked = if self.asked.fetch_add(1, Relaxed) == 0 {
            let outcome = Box::pin(std::future::pending());
            TierReply::NotFound {
                stale: None,
                right: LoadRight::HeldElsewhere { lease_remaining: DEADLINE * 2, outcome },
            }
        } else {
            let right = LoadRight::Granted(Box::new(Told(Arc::clone(&self.ended), None)));
            TierReply::NotFound { stale: self.stale.clone(), right }
        };
        Box::pin(std::future::ready(Ok(asked)))
    }

    fn publish(&self, _: TierEvent) {}

    fn subscribe(&self, _: EventListener) {}
}

impl Lease for Told {
    fn complete(mut self: Box<Self>, result: Result<TierValue, String>) -> TierFuture<'static, ()> {
        self.1 = Some(result);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(self.1.take());
    }
}

/// Two requests. The first one waits for the lock until its deadline and gets it at that moment, so it must not
/// load.
fn ask_twice(strategy: Strategy, tier: Busy) -> [Result<Answer<String>, Error>; 2] {
    let (time, tier) = (Virtual::new(), Arc::new(tier));
    let shared = SharedTier::with_memory(Arc::clone(&tier) as Arc<dyn Tier>, RawCodec, RawCodec);
    let cache: Cache<String, String, Virtual> =
        Cache::builder(strategy).shared_tier(shared).build_on(time.clone(), Seed(1)).unwrap();
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
        cache.wait_idle().await;
        assert_eq!(loads.load(Relaxed), 0, "it was too late for one");
        assert_eq!(tier.ended.lock().unwrap().len(), 1, "the key is free for who has time left");
        assert!(tier.ended.lock().unwrap()[0].is_none(), "and is not said to have failed");
        let next = cache.get_with("ada".to_owned(), load()).await;
        cache.wait_idle().await;
        assert_eq!(loads.load(Relaxed), 1, "who comes then loads");
        [late, next]
    };
    time.run(asked).expect("no request hangs")
}

/// The holder fails at its deadline, and the waiting node's deadline passes a moment later: the key is free, and a
/// new load would be one more for a source that hangs.
#[test]
fn lock_granted_at_the_deadline_starts_no_load() {
    let mut strategy = Strategy::preset("stampede").unwrap();
    strategy.load.deadline = DEADLINE;
    let [late, next] = ask_twice(strategy, Busy::default());
    assert!(matches!(late, Err(Error::Deadline { after: DEADLINE })), "{late:?}");
    assert_eq!(next.expect("it is loaded").value, "Ada");
}

/// The waiter gets the stale value, which is not refreshed any more.
#[test]
fn refresh_granted_at_the_deadline_starts_no_load() {
    let sec = Duration::from_secs(1);
    let mut strategy = Strategy { ttl: Some(sec), swr: 9 * sec, ..Strategy::preset("swr").unwrap() };
    strategy.load.deadline = DEADLINE;
    let stale = TierValue {
        body: "Countess".into(),
        age: 2 * sec,
        load_duration: Duration::ZERO,
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
