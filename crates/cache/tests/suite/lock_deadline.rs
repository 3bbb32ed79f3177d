//! A node gets the lock of a key at its load's deadline, from a scripted tier in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{
    Answer, Cache, Error, Outcome, RawCodec, SharedTier, Strategy,
    tier::{
        EventListener, Lease, LoadRight, Tier, TierError, TierEvent, TierFuture, TierQuery, TierReply,
        TierValue,
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
struct ScriptedTier {
    /// The stored value at that time.
    stale: Option<TierValue>,
    lookups: AtomicU64,
    ends: Arc<Mutex<Vec<LeaseEnd>>>,
}

/// Reports the end of a lease: completed or dropped.
struct ScriptedLease(Arc<Mutex<Vec<LeaseEnd>>>, LeaseEnd);

impl Tier for ScriptedTier {
    fn lookup<'a>(&'a self, _: &'a [u8], _: TierQuery) -> TierFuture<'a, Result<TierReply, TierError>> {
        let reply = if self.lookups.fetch_add(1, Relaxed) == 0 {
            let outcome = Box::pin(std::future::pending());
            TierReply::NotFound {
                stale: None,
                right: LoadRight::HeldElsewhere { lease_remaining: DEADLINE * 2, outcome },
            }
        } else {
            let right = LoadRight::Granted(Box::new(ScriptedLease(Arc::clone(&self.ends), None)));
            TierReply::NotFound { stale: self.stale.clone(), right }
        };
        Box::pin(std::future::ready(Ok(reply)))
    }

    fn publish(&self, _: TierEvent) {}

    fn subscribe(&self, _: EventListener) {}
}

impl Lease for ScriptedLease {
    fn complete(mut self: Box<Self>, result: Result<TierValue, String>) -> TierFuture<'static, ()> {
        self.1 = Some(result);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for ScriptedLease {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(self.1.take());
    }
}

/// Two requests. The first one waits for the lock until its deadline and gets it at that moment, so it must not
/// load.
fn request_twice(strategy: Strategy, tier: ScriptedTier) -> [Result<Answer<String>, Error>; 2] {
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
    let requests = async {
        let start = time.now();
        let late = cache.get_with("ada".to_owned(), load()).await;
        assert_eq!(time.now() - start, DEADLINE);
        cache.wait_idle().await;
        assert_eq!(loads.load(Relaxed), 0, "no load starts at the deadline");
        assert_eq!(tier.ends.lock().unwrap().len(), 1, "the lease has ended");
        assert!(tier.ends.lock().unwrap()[0].is_none(), "and its load is not reported as failed");
        let next = cache.get_with("ada".to_owned(), load()).await;
        cache.wait_idle().await;
        assert_eq!(loads.load(Relaxed), 1, "the next request loads");
        [late, next]
    };
    time.run(requests).expect("no request hangs")
}

/// The holder fails at its deadline, and the waiting node's deadline passes a moment later: the key is free, and a
/// new load would be one more for a source that hangs.
#[test]
fn lock_granted_at_the_deadline_starts_no_load() {
    let mut strategy = Strategy::preset("stampede").unwrap();
    strategy.load.deadline = DEADLINE;
    let [late, next] = request_twice(strategy, ScriptedTier::default());
    assert!(matches!(late, Err(Error::Deadline { after: DEADLINE })), "{late:?}");
    assert_eq!(next.expect("the second request loads").value, "Ada");
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
    let answers = request_twice(strategy, ScriptedTier { stale: Some(stale), ..ScriptedTier::default() });
    for answer in answers {
        let answer = answer.expect("there is a stale value");
        assert_eq!((answer.value.as_str(), answer.outcome), ("Countess", Outcome::Stale));
    }
}
