//! The same machine under every schedule that shuttle finds: real threads, all interleavings of
//! their locks that a few thousand random walks and a bounded depth-first search can reach.

use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::{future::block_on, thread};

use super::*;

type Answer = Result<u32, &'static str>;

/// A deadline that no test reaches.
const FAR: Time = Time::from_nanos(u64::MAX);

struct Scenario {
    coalescer: Arc<Coalescer<u8, Answer>>,
    stored: Lock<Option<u32>>,
    loads: AtomicUsize,
    /// The leaders that panic before they answer.
    fatal: usize,
}

impl Scenario {
    fn new(fatal: usize) -> Arc<Self> {
        let coalescer = Coalescer::new(Seed(1), || Err("lost"));
        Arc::new(Self { coalescer, stored: Lock::new(None), loads: AtomicUsize::new(0), fatal })
    }

    /// A lookup as the cache does it, the load inline.
    fn get(&self) -> Answer {
        match self.coalescer.join(&0, Time::ZERO, None, |_| FAR, || *self.stored.lock(), |_| true) {
            JoinOutcome::Stored(value) => Ok(value),
            JoinOutcome::Completed(answer) => answer,
            JoinOutcome::DeadlinePassed => Err("late"),
            JoinOutcome::Lead(leader) => self.load(leader),
            JoinOutcome::Wait(waiter, _) => match block_on(waiter) {
                WaitOutcome::Completed(answer, _) => answer,
                WaitOutcome::Lead(leader) => self.load(leader),
                WaitOutcome::TimedOut => Err("timed out"),
            },
        }
    }

    fn load(&self, leader: Leader<u8, Answer>) -> Answer {
        if self.loads.fetch_add(1, Ordering::SeqCst) < self.fatal {
            drop(leader);
            return Err("mine was lost");
        }
        *self.stored.lock() = Some(7);
        drop(leader.complete(Ok(7)));
        Ok(7)
    }
}

/// Starts callers, each on its own thread.
fn ask(scenario: &Arc<Scenario>, callers: usize) -> Vec<thread::JoinHandle<Answer>> {
    let caller = |_| {
        let scenario = Arc::clone(scenario);
        thread::spawn(move || scenario.get())
    };
    (0..callers).map(caller).collect()
}

fn answers(callers: Vec<thread::JoinHandle<Answer>>) -> Vec<Answer> {
    callers.into_iter().map(|caller| caller.join().unwrap()).collect()
}

/// Random walks, and a depth-first search of as many steps.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let walk = Arc::clone(&test);
    shuttle::check_random(move || walk(), 5_000);
    let walk = Arc::clone(&test);
    shuttle::check_pct(move || walk(), 5_000, 3);
    shuttle::check_dfs(move || test(), Some(5_000));
}

#[test]
fn every_schedule_has_one_load() {
    explore(|| {
        let scenario = Scenario::new(0);
        let callers = ask(&scenario, 3);
        assert_eq!(answers(callers), [Ok(7); 3]);
        assert_eq!(scenario.loads.load(Ordering::SeqCst), 1);
        assert_eq!(scenario.coalescer.in_flight_count(), 0);
    });
}

#[test]
fn lost_leader_costs_one_more_load() {
    explore(|| {
        let scenario = Scenario::new(1);
        let callers = ask(&scenario, 3);
        let answers = answers(callers);
        let lost_result = answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(lost_result, 1, "only the lost leader's own caller goes without: {answers:?}");
        assert_eq!(scenario.loads.load(Ordering::SeqCst), 2);
        assert_eq!(scenario.coalescer.in_flight_count(), 0);
    });
}

#[test]
fn elected_waiter_that_leaves_passes_the_load_on() {
    explore(|| {
        let scenario = Scenario::new(0);
        let JoinOutcome::Lead(leader) =
            scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        let [leaver, stayer] = [(), ()].map(|()| {
            match scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| true) {
                JoinOutcome::Wait(waiter, _) => waiter,
                other => unreachable!("{other:?}"),
            }
        });
        let staying = {
            let scenario = Arc::clone(&scenario);
            thread::spawn(move || match block_on(stayer) {
                WaitOutcome::Completed(answer, _) => answer,
                WaitOutcome::Lead(leader) => scenario.load(leader),
                WaitOutcome::TimedOut => Err("timed out"),
            })
        };
        let losing = thread::spawn(move || drop(leader));
        let leaving = thread::spawn(move || drop(leaver));
        let late = ask(&scenario, 1);
        assert_eq!(staying.join().unwrap(), Ok(7));
        assert_eq!(answers(late), [Ok(7)]);
        losing.join().unwrap();
        leaving.join().unwrap();
        assert_eq!(scenario.loads.load(Ordering::SeqCst), 1);
        assert_eq!(scenario.coalescer.in_flight_count(), 0);
    });
}

#[test]
fn caller_between_result_and_store_needs_no_load() {
    explore(|| {
        let scenario = Scenario::new(0);
        let JoinOutcome::Lead(leader) =
            scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        // As an async store does it: the answer first, then the store, then the key is free.
        let storing = {
            let scenario = Arc::clone(&scenario);
            thread::spawn(move || {
                let slot = leader.complete(Ok(7));
                *scenario.stored.lock() = Some(7);
                drop(slot);
            })
        };
        let late = ask(&scenario, 2);
        assert_eq!(answers(late), [Ok(7); 2]);
        storing.join().unwrap();
        assert_eq!(scenario.loads.load(Ordering::SeqCst), 0);
        assert_eq!(scenario.coalescer.in_flight_count(), 0);
    });
}

#[test]
fn outdated_result_makes_way_and_frees_only_its_own_key() {
    explore(|| {
        let scenario = Scenario::new(0);
        let JoinOutcome::Lead(leader) =
            scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        let slot = leader.complete(Ok(6));
        let freeing = thread::spawn(move || drop(slot));
        let JoinOutcome::Lead(successor) =
            scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| false)
        else {
            unreachable!()
        };
        freeing.join().unwrap();
        assert!(matches!(
            scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| true),
            JoinOutcome::Wait(..)
        ));
        assert_eq!(scenario.load(successor), Ok(7));
        assert_eq!(scenario.coalescer.in_flight_count(), 0);
    });
}

#[test]
fn hedge_and_leader_end_one_load() {
    explore(|| {
        let scenario = Scenario::new(0);
        let hedge_after = Some(Duration::from_nanos(1));
        let JoinOutcome::Lead(leader) =
            scenario.coalescer.join(&0, Time::ZERO, hedge_after, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        let JoinOutcome::Wait(waiter, Some(timer)) =
            scenario.coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        let waiting = {
            let scenario = Arc::clone(&scenario);
            thread::spawn(move || match block_on(waiter) {
                WaitOutcome::Completed(answer, _) => answer,
                WaitOutcome::Lead(leader) => scenario.load(leader),
                WaitOutcome::TimedOut => Err("timed out"),
            })
        };
        let electing = thread::spawn(move || timer.expire(Time::from_nanos(1)));
        let failing = thread::spawn(move || leader.fail(Err("failed")));
        let late = ask(&scenario, 1);
        let waited = waiting.join().unwrap();
        assert!(matches!(waited, Ok(7) | Err("failed")), "{waited:?}");
        let late = answers(late);
        assert!(matches!(late[0], Ok(7) | Err("failed")), "{late:?}");
        electing.join().unwrap();
        failing.join().unwrap();
        assert_eq!(scenario.coalescer.in_flight_count(), 0);
    });
}
