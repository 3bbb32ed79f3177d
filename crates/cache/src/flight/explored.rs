//! The same machine under every schedule that shuttle finds: real threads, all interleavings of
//! their locks that a few thousand random walks and a bounded depth-first search can reach.

use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::{future::block_on, thread};

use super::*;

type Answer = Result<u32, &'static str>;

/// A deadline that nobody sees.
const FAR: Time = Time::from_nanos(u64::MAX);

struct World {
    flights: Arc<Flights<u8, Answer>>,
    stored: Lock<Option<u32>>,
    loads: AtomicUsize,
    /// The leaders that are lost before they answer.
    fatal: usize,
}

impl World {
    fn new(fatal: usize) -> Arc<Self> {
        let flights = Flights::new(Seed(1), || Err("lost"));
        Arc::new(Self { flights, stored: Lock::new(None), loads: AtomicUsize::new(0), fatal })
    }

    /// A lookup as the cache does it, the load inline.
    fn get(&self) -> Answer {
        match self.flights.board(&0, Time::ZERO, |_| FAR, || *self.stored.lock(), |_| true) {
            Boarding::Answered(value) => Ok(value),
            Boarding::Landed(answer) => answer,
            Boarding::Late => Err("late"),
            Boarding::Lead(leader) => self.load(leader),
            Boarding::Wait(waiter, _) => match block_on(waiter) {
                Turn::Landed(answer, _) => answer,
                Turn::Lead(leader) => self.load(leader),
                Turn::TimedOut => Err("timed out"),
            },
        }
    }

    fn load(&self, leader: Leader<u8, Answer>) -> Answer {
        if self.loads.fetch_add(1, Ordering::SeqCst) < self.fatal {
            drop(leader);
            return Err("mine was lost");
        }
        *self.stored.lock() = Some(7);
        drop(leader.land(Ok(7)));
        Ok(7)
    }
}

/// So many callers, each on a thread of its own.
fn ask(world: &Arc<World>, callers: usize) -> Vec<thread::JoinHandle<Answer>> {
    let caller = |_| {
        let world = Arc::clone(world);
        thread::spawn(move || world.get())
    };
    (0..callers).map(caller).collect()
}

fn answers(callers: Vec<thread::JoinHandle<Answer>>) -> Vec<Answer> {
    callers.into_iter().map(|caller| caller.join().unwrap()).collect()
}

/// Random walks, and a depth-first search as far as it comes in as many steps.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let walk = Arc::clone(&test);
    shuttle::check_random(move || walk(), 5_000);
    let walk = Arc::clone(&test);
    shuttle::check_pct(move || walk(), 5_000, 3);
    shuttle::check_dfs(move || test(), Some(5_000));
}

#[test]
fn however_they_meet_there_is_one_load() {
    explore(|| {
        let world = World::new(0);
        let callers = ask(&world, 3);
        assert_eq!(answers(callers), [Ok(7); 3]);
        assert_eq!(world.loads.load(Ordering::SeqCst), 1);
        assert_eq!(world.flights.under_way(), 0);
    });
}

#[test]
fn a_lost_leader_costs_one_more_load_and_nobody_hangs() {
    explore(|| {
        let world = World::new(1);
        let callers = ask(&world, 3);
        let answers = answers(callers);
        let lost = answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(lost, 1, "only the lost leader's own caller goes without: {answers:?}");
        assert_eq!(world.loads.load(Ordering::SeqCst), 2);
        assert_eq!(world.flights.under_way(), 0);
    });
}

#[test]
fn a_waiter_that_leaves_while_it_is_elected_passes_the_load_on() {
    explore(|| {
        let world = World::new(0);
        let Boarding::Lead(leader) = world.flights.board(&0, Time::ZERO, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        let [leaver, stayer] =
            [(), ()].map(|()| match world.flights.board(&0, Time::ZERO, |_| FAR, || None::<u32>, |_| true) {
                Boarding::Wait(waiter, _) => waiter,
                other => unreachable!("{other:?}"),
            });
        let staying = {
            let world = Arc::clone(&world);
            thread::spawn(move || match block_on(stayer) {
                Turn::Landed(answer, _) => answer,
                Turn::Lead(leader) => world.load(leader),
                Turn::TimedOut => Err("timed out"),
            })
        };
        let losing = thread::spawn(move || drop(leader));
        let leaving = thread::spawn(move || drop(leaver));
        let late = ask(&world, 1);
        assert_eq!(staying.join().unwrap(), Ok(7));
        assert_eq!(answers(late), [Ok(7)]);
        losing.join().unwrap();
        leaving.join().unwrap();
        assert_eq!(world.loads.load(Ordering::SeqCst), 1);
        assert_eq!(world.flights.under_way(), 0);
    });
}

#[test]
fn who_comes_between_the_answer_and_its_store_needs_no_load_of_its_own() {
    explore(|| {
        let world = World::new(0);
        let Boarding::Lead(leader) = world.flights.board(&0, Time::ZERO, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        // As an async store does it: answered, then stored, then the key is free.
        let storing = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let slot = leader.land(Ok(7));
                *world.stored.lock() = Some(7);
                drop(slot);
            })
        };
        let late = ask(&world, 2);
        assert_eq!(answers(late), [Ok(7); 2]);
        storing.join().unwrap();
        assert_eq!(world.loads.load(Ordering::SeqCst), 0);
        assert_eq!(world.flights.under_way(), 0);
    });
}

#[test]
fn an_answer_that_serves_nobody_any_more_makes_way_and_frees_no_key_but_its_own() {
    explore(|| {
        let world = World::new(0);
        let Boarding::Lead(leader) = world.flights.board(&0, Time::ZERO, |_| FAR, || None::<u32>, |_| true)
        else {
            unreachable!()
        };
        let slot = leader.land(Ok(6));
        let freeing = thread::spawn(move || drop(slot));
        let Boarding::Lead(successor) =
            world.flights.board(&0, Time::ZERO, |_| FAR, || None::<u32>, |_| false)
        else {
            unreachable!()
        };
        freeing.join().unwrap();
        assert!(matches!(
            world.flights.board(&0, Time::ZERO, |_| FAR, || None::<u32>, |_| true),
            Boarding::Wait(..)
        ));
        assert_eq!(world.load(successor), Ok(7));
        assert_eq!(world.flights.under_way(), 0);
    });
}
