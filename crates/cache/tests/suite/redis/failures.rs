//! Loads that fail, hang, take long or lose their callers, and the results for waiting nodes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use super::nodes::{self, BUSY, MINUTE, MS, Node, Source, coalescing, command, sleep, until};
use futures_util::future::{join, join_all};
use stockade_cache::{Error, Live, LoadBounds, Outcome, Runtime, Strategy};
use stockade_services::RedisServer;

/// Waits until one node leads and all others wait for it.
async fn all_wait(redis: &RedisServer, key: &str, others: usize) {
    let waiting = format!("SCARD stockade:w:{{:{key}}}");
    until("the others wait", async || command::<usize>(redis, &waiting).await == others).await;
}

async fn is_locked(redis: &RedisServer, key: &str) -> bool {
    command::<usize>(redis, &format!("EXISTS stockade:l:{{:{key}}} stockade:w:{{:{key}}}")).await > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_is_shared_with_waiting_nodes_and_not_stored() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 300 * MS);
    let nodes: [Node; 4] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    source.break_down(true);
    for round in 1..=3 {
        let failures = join_all(nodes.iter().map(|node| node.try_get("key", &source))).await;
        let message = |failure: &Result<_, Error>| failure.as_ref().unwrap_err().to_string();
        let all: Vec<_> = failures.iter().map(message).collect();
        assert!(all.iter().all(|error| error.contains("the source is down")), "{all:?}");
        let from_another = all.iter().filter(|error| error.starts_with("on another node: ")).count();
        assert_eq!((from_another, source.loads()), (3, round), "{all:?}");
    }
    source.break_down(false);
    assert_eq!(nodes[3].get("key", &source).await.outcome, Outcome::Miss, "it was not stored");
    nodes[3].cache.wait_idle().await;
    assert!(!is_locked(&redis, "key").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_that_leaves_does_not_end_the_stream() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 200 * MS);
    let [first, second]: [Node; 2] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    let mut leaving = Box::pin(first.try_get("key", &source));
    until("it loads", async || {
        let _ = futures_util::poll!(&mut leaving);
        source.loads() == 1
    })
    .await;
    drop(leaving);
    let answer = second.get("key", &source).await;
    assert_eq!((answer.outcome, source.loads()), (Outcome::Coalesced, 1));
}

/// A panic in a load frees its lock, so the next node loads at once, not after the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_load_frees_its_lock() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let [first, second]: [Node; 2] =
        nodes::nodes(&format!("{}?lease=30s&timeout=5s", redis.url()), &coalescing(MINUTE), true).await;
    let clock = live.clone();
    let panicking = first.cache.get_with("key".to_owned(), async move || {
        clock.sleep_until(clock.now() + 300 * MS).await;
        let is_lost = true;
        assert!(!is_lost, "on purpose");
        Ok::<_, std::io::Error>(String::new())
    });
    let waiting = async {
        until("it is locked", async || is_locked(&redis, "key").await).await;
        let start = live.now();
        (second.get("key", &source).await, live.now() - start)
    };
    let (lost, (answer, waited)) = join(panicking, waiting).await;
    assert!(matches!(lost, Err(Error::Panicked { .. })), "{lost:?}");
    assert_eq!(answer.outcome, Outcome::Miss);
    assert!(waited < 300 * MS + BUSY, "{waited:?}");
}

/// The load that hangs has the lock of the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_loads_for_itself_waits_for_no_lock() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let mut strategy =
        Strategy { fetch: stockade_cache::Fetch::coalesce_or_load(200 * MS), ..coalescing(MINUTE) };
    strategy.load.deadline = 60 * MINUTE;
    let [node]: [Node; 1] = nodes::nodes(&nodes::patient(&redis), &strategy, true).await;
    let source = Source::new(&live, MS);
    let hangs = node.cache.get_with("key".to_owned(), async || {
        std::future::pending::<()>().await;
        Ok::<_, std::io::Error>(String::new())
    });
    let waiting = async {
        until("it is locked", async || is_locked(&redis, "key").await).await;
        node.get("key", &source).await.outcome
    };
    tokio::select! {
        answer = hangs => panic!("{answer:?}"),
        outcome = waiting => assert_eq!(outcome, Outcome::Miss),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_load_ends_at_its_deadline_on_all_nodes() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let deadline = 1_500 * MS;
    let strategy = Strategy { load: LoadBounds { deadline, ..LoadBounds::DEFAULT }, ..coalescing(MINUTE) };
    let nodes: [Node; 4] = nodes::nodes(&nodes::patient(&redis), &strategy, true).await;
    let loads = Arc::<AtomicU64>::default();
    let request = async |node: &Node| {
        let loads = Arc::clone(&loads);
        let load = async move || {
            loads.fetch_add(1, SeqCst);
            std::future::pending::<Result<String, std::io::Error>>().await
        };
        let start = live.now();
        (node.cache.get_with("key".to_owned(), load).await, live.now() - start)
    };
    let first = request(&nodes[0]);
    let others = async {
        until("it hangs", async || loads.load(SeqCst) == 1).await;
        join_all(nodes[1..].iter().map(&request)).await
    };
    let ((holder, _), others) = join(first, others).await;
    assert!(matches!(holder, Err(Error::Deadline { .. })), "{holder:?}");
    for (result, waited) in others {
        // The holder's deadline, or the waiter's own, which passes a moment later.
        assert!(matches!(result, Err(Error::OtherNode { .. } | Error::Deadline { .. })), "{result:?}");
        assert!(waited < deadline + BUSY, "{waited:?}");
    }
    assert_eq!(loads.load(SeqCst), 1);
    nodes[0].cache.wait_idle().await;
    assert!(!is_locked(&redis, "key").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_longer_than_the_lease_stays_the_only_one() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 1_500 * MS);
    let url = format!("{}?lease=600ms&timeout=5s", redis.url());
    let nodes: [Node; 4] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    let asking = join_all(nodes.iter().map(|node| node.get("key", &source)));
    let (answers, ()) = join(asking, all_wait(&redis, "key", 3)).await;
    assert!(answers.iter().all(|answer| answer.value == "key 0"));
    assert_eq!(source.loads(), 1);
}

/// A holder that pauses for longer than its lease loses its lock, and does not overwrite its successor's value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_lost_its_lock_stores_nothing() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let [first, second]: [Node; 2] = nodes::nodes(&nodes::patient(&redis), &coalescing(MINUTE), true).await;
    let clock = live.clone();
    let slow = first.cache.get_with("key".to_owned(), async move || {
        clock.sleep_until(clock.now() + 400 * MS).await;
        Ok::<_, std::io::Error>("too late".to_owned())
    });
    let follow = async {
        until("it is locked", async || is_locked(&redis, "key").await).await;
        let _: usize = command(&redis, "DEL stockade:l:{:key}").await;
        second.get("key", &source).await.value
    };
    let (slow, followed) = join(slow, follow).await;
    assert_eq!((slow.unwrap().value.as_str(), followed.as_str()), ("too late", "key 0"));
    first.cache.wait_idle().await;
    let stored: String = command(&redis, "GET stockade:v:{:key}").await;
    assert!(stored.ends_with("key 0"), "{stored}");
    sleep(MS).await;
}

/// A node that waits for another node stops waiting when Redis is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_redis_wakes_waiters() {
    let (mut redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, 2 * BUSY);
    let url = format!("{}?lease=30s&timeout=5s", redis.url());
    let [first, second]: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    let dies = async {
        all_wait(&redis, "key", 1).await;
        until("one loads", async || source.loads() == 1).await;
        redis.kill();
        let killed = live.now();
        until("it loads itself", async || source.loads() == 2).await;
        live.now() - killed
    };
    let ((one, other), took) = join(join(first.get("key", &source), second.get("key", &source)), dies).await;
    assert_eq!((one.outcome, other.outcome), (Outcome::Miss, Outcome::Miss));
    assert!(took < BUSY, "{took:?}");
}
