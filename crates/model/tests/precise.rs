//! Sleeps that end when they should, in real time.
#![cfg(feature = "precise")]

use std::{sync::Arc, time::Duration};

use futures_util::future::{join_all, poll_immediate};
use stockade_model::time::{Precise, Runtime, before};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_sleep_ends_within_a_fraction_of_a_millisecond() {
    let time = Precise::new().unwrap();
    let mut late = Vec::new();
    for nanos in (0..101).map(|n| 300_000 + n * 7_919) {
        let deadline = time.now() + Duration::from_nanos(nanos);
        time.sleep_until(deadline).await;
        assert!(time.now() >= deadline, "never early");
        late.push(time.now() - deadline);
    }
    late.sort();
    // Tokio's own end 0.5 ms late in the middle.
    assert!(late[50] < MS / 5, "{:?}", late[50]);
}

#[tokio::test]
async fn sleepers_wake_in_the_order_of_their_deadlines() {
    let time = Precise::new().unwrap();
    let (began, woken) = (time.now(), Arc::new(std::sync::Mutex::new(Vec::new())));
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
async fn one_that_gives_up_does_not_keep_the_others() {
    let time = Precise::new().unwrap();
    let began = time.now();
    let mut earliest = Box::pin(time.sleep_until(began + MS * 3));
    assert!(poll_immediate(&mut earliest).await.is_none());
    let later = time.sleep_until(began + MS * 6);
    drop(earliest);
    assert!(before(&time, began + MS * 2_000, later).await.is_some(), "the timer was set anew");
    assert!(time.now() >= began + MS * 6);
    // Who sleeps keeps the timer, whoever made it.
    let kept = time.sleep_until(began + MS * 9);
    drop(time);
    kept.await;
}
