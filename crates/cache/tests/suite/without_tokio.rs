//! The cache on a runtime of threads, without tokio's.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use stockade_cache::{Cache, Outcome, Runtime, Seed, Strategy, Time};

/// A thread for each task and each timer.
#[derive(Clone, Debug)]
struct Threads(Instant);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

impl Runtime for Threads {
    fn now(&self) -> Time {
        Time::ZERO + self.0.elapsed()
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        let (time, mut last) = (self.clone(), None::<Waker>);
        poll_fn(move |cx| {
            if time.now() >= deadline {
                return Poll::Ready(());
            }
            if last.as_ref().is_none_or(|last| !last.will_wake(cx.waker())) {
                let (waker, time) = (cx.waker().clone(), time.clone());
                last = Some(waker.clone());
                drop(thread::spawn(move || {
                    while time.now() < deadline {
                        thread::park_timeout(deadline - time.now());
                    }
                    waker.wake();
                }));
            }
            Poll::Pending
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(thread::spawn(move || block_on(task)));
    }
}

#[test]
fn callers_on_threads_share_one_load() {
    #[expect(clippy::disallowed_methods, reason = "the clock of this runtime")]
    let time = Threads(Instant::now());
    let cache: Cache<String, u32, Threads> =
        Cache::builder(Strategy::BREAKER).build_on(time.clone(), Seed(1)).expect("a valid strategy");
    let load = async move || {
        time.sleep_until(time.now() + Duration::from_millis(20)).await;
        Ok::<_, Infallible>(7)
    };
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let callers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| block_on(cache.get_with("a".to_owned(), load.clone())))).collect();
        let answers = callers.into_iter().map(|caller| caller.join().expect("no panic"));
        answers.map(|answer| answer.expect("a value").outcome).collect()
    });
    assert_eq!(cache.stats().loads, 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Miss).count(), 1, "{outcomes:?}");
    assert_eq!(cache.get("a"), Some(7));
}
