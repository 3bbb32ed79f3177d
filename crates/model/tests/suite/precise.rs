//! Precise sleeps in real time.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, mpsc},
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use futures_util::future::{join_all, poll_immediate};
use stockade_model::time::{Precise, Runtime, before};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn sleep_ends_within_half_a_millisecond() {
    let time = Precise::new().unwrap();
    let mut late = Vec::new();
    for nanos in (0..101).map(|n| 300_000 + n * 7_919) {
        let deadline = time.now() + Duration::from_nanos(nanos);
        time.sleep_until(deadline).await;
        assert!(time.now() >= deadline, "never early");
        late.push(time.now() - deadline);
    }
    late.sort();
    // Tokio's sleeps end up to 1 ms late. These end about 50 us late, and later while other tests run on two cores.
    assert!(late[50] < MS / 2, "{:?}", late[50]);
}

#[tokio::test]
async fn sleeps_end_in_the_order_of_their_deadlines() {
    let time = Precise::new().unwrap();
    let (began, woken) = (time.now(), Arc::new(Mutex::new(Vec::new())));
    let sleeper = |n: u32| {
        let (time, woken) = (time.clone(), Arc::clone(&woken));
        async move {
            time.sleep_until(began + MS * 5 + MS / 10 * (n * 37 % 100)).await;
            woken.lock().unwrap().push(n * 37 % 100);
        }
    };
    join_all((0..100).map(sleeper)).await;
    assert_eq!(*woken.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn dropped_sleep_does_not_delay_others() {
    let time = Precise::new().unwrap();
    let began = time.now();
    let mut earliest = Box::pin(time.sleep_until(began + MS * 3));
    assert!(poll_immediate(&mut earliest).await.is_none());
    let later = time.sleep_until(began + MS * 6);
    drop(earliest);
    assert!(before(&time, began + MS * 60_000, later).await.is_some(), "the timer was set again");
    assert!(time.now() >= began + MS * 6);
    // A sleep keeps the timer alive after the drop of its runtime.
    let kept = time.sleep_until(began + MS * 9);
    drop(time);
    kept.await;
}

/// A waker that owns a sleep, which is dropped together with it.
struct Sleeper(
    #[expect(dead_code, reason = "it is dropped")] Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn replaced_waker_may_own_a_sleep() {
    let (done, is_done) = mpsc::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let time = Precise::new().unwrap();
            let mut other = Box::pin(time.sleep_until(time.now() + MS * 60_000));
            assert!(poll_immediate(&mut other).await.is_none());
            let mut sleep = Box::pin(time.sleep_until(time.now() + MS * 60_000));
            let waker = Waker::from(Arc::new(Sleeper(Mutex::new(other))));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            // The drop of the last reference to the first waker.
            assert!(poll_immediate(&mut sleep).await.is_none());
        });
        done.send(()).unwrap();
    };
    thread::spawn(run);
    assert!(is_done.recv_timeout(Duration::from_mins(1)).is_ok(), "the sleep deadlocks with its own waker");
}
