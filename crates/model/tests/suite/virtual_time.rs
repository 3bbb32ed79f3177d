//! The virtual runtime: order, panics, hangs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{future::join_all, poll};
use stockade_model::time::{Runtime, Stalled, Time, Virtual, before};

const MS: Duration = Duration::from_millis(1);

#[test]
fn virtual_hour_passes_at_once_with_nanosecond_precision() {
    let runtime = Virtual::new();
    let late = Time::from_nanos(3_600_000_000_001);
    let now = runtime.run(async {
        runtime.sleep_until(late).await;
        runtime.now()
    });
    assert_eq!(now, Ok(late));
}

#[test]
fn ready_tasks_run_in_fifo_order_and_timers_by_deadline_then_registration() {
    let runtime = Virtual::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let sleeper = |name: &'static str, ms: u32| {
        let (runtime, log) = (runtime.clone(), Arc::clone(&log));
        async move {
            runtime.sleep_until(Time::ZERO + ms * MS).await;
            log.lock().unwrap().push(name);
        }
    };
    let done = runtime.run(async {
        for (name, ms) in [("c", 2), ("a", 0), ("d", 2), ("b", 1), ("z", 0)] {
            runtime.spawn(sleeper(name, ms));
        }
        runtime.sleep_until(Time::ZERO + 3 * MS).await;
    });
    assert_eq!(done, Ok(()));
    assert_eq!(*log.lock().unwrap(), ["a", "z", "b", "c", "d"]);
}

#[test]
fn panic_ends_only_its_own_task() {
    let runtime = Virtual::new();
    let survived = runtime.run(async {
        runtime.spawn(async { panic!("on purpose") });
        runtime.sleep_until(Time::ZERO + MS).await;
        true
    });
    assert_eq!(survived, Ok(true));
}

#[test]
fn deadlock_is_an_error_with_its_time() {
    let runtime = Virtual::new();
    let hung = runtime.run(async {
        runtime.sleep_until(Time::ZERO + 7 * MS).await;
        std::future::pending::<()>().await;
    });
    assert_eq!(hung, Err(Stalled { at: Time::ZERO + 7 * MS }));
}

#[test]
fn future_that_is_ready_at_its_deadline_completes() {
    let runtime = Virtual::new();
    let run = runtime.run(async {
        let at = |ms: u32| Time::ZERO + ms * MS;
        let sleep = |until| {
            let runtime = runtime.clone();
            async move { runtime.sleep_until(until).await }
        };
        (
            before(&runtime, at(5), sleep(at(5))).await,
            before(&runtime, at(6), sleep(at(7))).await,
            runtime.now(),
        )
    });
    assert_eq!(run, Ok((Some(()), None, Time::ZERO + 6 * MS)));
}

#[test]
fn dropped_sleep_leaves_no_timer_and_completed_run_no_task() {
    let runtime = Virtual::new();
    let held = Arc::new(());
    let run = runtime.run(async {
        {
            let sleep = std::pin::pin!(runtime.sleep_until(Time::ZERO + 9 * MS));
            assert!(poll!(sleep).is_pending());
        }
        for _ in 0..3 {
            let (held, sleeper) = (Arc::clone(&held), runtime.clone());
            runtime.spawn(async move {
                sleeper.sleep_until(Time::ZERO + MS).await;
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        join_all((0..3).map(|_| runtime.sleep_until(Time::ZERO + 2 * MS))).await;
    });
    assert_eq!(run, Ok(()));
    assert_eq!(runtime.now(), Time::ZERO + 2 * MS);
    assert_eq!(Arc::strong_count(&held), 1, "the pending tasks were dropped with the run");
}
