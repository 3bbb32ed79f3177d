//! The state machine under random operations, one at a time.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
};

use proptest::prelude::*;

use super::*;

type Answer = Result<u32, &'static str>;

/// A deadline that no test reaches.
const FAR: Time = Time::from_nanos(u64::MAX);

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waiting caller, and the result that it received.
struct Caller {
    waiter: Waiter<u8, Answer>,
    wakes: Arc<Wakes>,
    wakes_seen: usize,
    polled: bool,
}

impl Caller {
    fn new(waiter: Waiter<u8, Answer>) -> Self {
        Self { waiter, wakes: Arc::default(), wakes_seen: 0, polled: false }
    }

    fn poll(&mut self) -> Poll<WaitOutcome<u8, Answer>> {
        self.polled = true;
        self.wakes_seen = self.wakes.0.load(Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.wakes));
        Pin::new(&mut self.waiter).poll(&mut Context::from_waker(&waker))
    }

    /// A runtime would poll it now: it has never been, or it was woken since.
    fn is_ready(&self) -> bool {
        !self.polled || self.wakes.0.load(Ordering::Relaxed) > self.wakes_seen
    }
}

#[derive(Clone, Debug)]
enum Op {
    Join,
    Expire,
    Watch,
    Complete(bool),
    Fail(usize),
    LoseLeader,
    PollReady(usize),
    PollAny(usize),
    Leave(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(Op::Join),
        1 => Just(Op::Expire),
        1 => Just(Op::Watch),
        1 => any::<bool>().prop_map(Op::Complete),
        1 => any::<usize>().prop_map(Op::Fail),
        2 => Just(Op::LoseLeader),
        4 => any::<usize>().prop_map(Op::PollReady),
        1 => any::<usize>().prop_map(Op::PollAny),
        2 => any::<usize>().prop_map(Op::Leave),
    ];
    prop::collection::vec(op, 0..60)
}

proptest! {
    /// One key, any order of events, loads with and without hedges. A key with waiters has a leader or a waiter that was
    /// elected and woken; at the end every caller has a result, and the key is free.
    #[test]
    fn every_caller_receives_a_result(ops in ops(), hedge_after in prop::option::of(1_u64..4)) {
        let hedge_after = hedge_after.map(Duration::from_nanos);
        let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
        let mut leaders: Vec<Leader<u8, Answer>> = Vec::new();
        let mut callers: Vec<Caller> = Vec::new();
        let mut stored = None;
        let mut timers = Vec::new();
        let mut now = 0_u64;

        for op in ops {
            match op {
                Op::Join => match coalescer.join(&0, Time::from_nanos(now), hedge_after, |_| Time::from_nanos(now + 3), || stored, |_| true) {
                    JoinOutcome::Stored(_) => {
                        prop_assert!(hedge_after.is_some() || leaders.is_empty(), "a stored value and a leader at once");
                    }
                    JoinOutcome::Completed(_) => prop_assert!(false, "slots are dropped at once here"),
                    JoinOutcome::DeadlinePassed => prop_assert!(false, "deadlines are in the future here"),
                    JoinOutcome::Wait(waiter, timer) => {
                        callers.push(Caller::new(waiter));
                        timers.extend(timer);
                    }
                    JoinOutcome::Lead(leader) => {
                        prop_assert!(hedge_after.is_some() || leaders.is_empty(), "two leaders of one key");
                        leaders.push(leader);
                    }
                },
                Op::Expire => {
                    now += 1;
                    timers.retain(|timer| timer.expire(Time::from_nanos(now)).is_some());
                }
                Op::Watch => callers.extend(leaders.last().map(|leader| Caller::new(leader.watch(None, RuntimeId::default()).0))),
                Op::Complete(ok) => if let Some(leader) = leaders.pop() {
                    stored = ok.then_some(7);
                    drop(leader.complete(stored.ok_or("failed")));
                    prop_assert!(hedge_after.is_some() || coalescer.in_flight_count() == 0);
                },
                Op::Fail(which) => if !leaders.is_empty() {
                    leaders.swap_remove(which % leaders.len()).fail(Err("failed"));
                    prop_assert!(hedge_after.is_some() || coalescer.in_flight_count() == 0);
                },
                Op::LoseLeader => drop(leaders.pop()),
                Op::PollReady(which) | Op::PollAny(which) => {
                    // A future may be polled for reasons that are not its own.
                    let is_any = matches!(op, Op::PollAny(_));
                    let ready: Vec<usize> = (0..callers.len()).filter(|i| is_any || callers[*i].is_ready()).collect();
                    if !ready.is_empty() {
                        let index = ready[which % ready.len()];
                        match callers[index].poll() {
                            Poll::Pending => {}
                            Poll::Ready(WaitOutcome::Completed(..) | WaitOutcome::TimedOut) => drop(callers.swap_remove(index)),
                            Poll::Ready(WaitOutcome::Lead(leader)) => {
                                drop(callers.swap_remove(index));
                                prop_assert!(hedge_after.is_some() || leaders.is_empty(), "two leaders of one key");
                                leaders.push(leader);
                            }
                        }
                    }
                }
                Op::Leave(which) => if !callers.is_empty() {
                    drop(callers.swap_remove(which % callers.len()));
                },
            }
            let someone_acts = !leaders.is_empty() || callers.iter().any(Caller::is_ready);
            prop_assert!(coalescer.in_flight_count() == 0 || someone_acts, "the key has no leader");
        }

        // Leaders complete, and ready callers are polled.
        loop {
            if let Some(leader) = leaders.pop() {
                drop(leader.complete(Ok(7)));
                continue;
            }
            let Some(index) = callers.iter().position(Caller::is_ready) else { break };
            match callers[index].poll() {
                Poll::Pending => {}
                Poll::Ready(WaitOutcome::Completed(..) | WaitOutcome::TimedOut) => drop(callers.swap_remove(index)),
                Poll::Ready(WaitOutcome::Lead(leader)) => {
                    drop(callers.swap_remove(index));
                    leaders.push(leader);
                }
            }
        }
        prop_assert!(callers.is_empty(), "{} callers wait for ever", callers.len());
        prop_assert_eq!(coalescer.in_flight_count(), 0);
    }
}

#[test]
fn earlier_deadline_gets_its_own_timer() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let leader = coalescer.try_start(&0, Time::ZERO, None, || false).expect("the key is free");
    let at = Time::from_nanos;
    let join =
        |deadline| match coalescer.join(&0, Time::ZERO, None, |_| at(deadline), || None::<()>, |_| true) {
            JoinOutcome::Wait(waiter, timer) => (Caller::new(waiter), timer),
            _ => panic!("one caller leads"),
        };
    let (mut patient, first) = join(20);
    let (mut impatient, second) = join(10);
    let (_other, third) = join(15);
    assert!(first.is_some() && second.is_some() && third.is_none());
    assert!(patient.poll().is_pending() && impatient.poll().is_pending());
    let second = second.expect("seen above");
    assert_eq!(second.expire(at(10)), Some(at(15)), "though the one before has longer");
    assert!(impatient.is_ready() && !patient.is_ready());
    assert!(matches!(impatient.poll(), Poll::Ready(WaitOutcome::TimedOut)));
    assert!(matches!(
        coalescer.join(&0, at(30), None, |_| at(30), || None::<()>, |_| true),
        JoinOutcome::DeadlinePassed
    ));
    drop(leader);
}

#[test]
fn background_load_starts_only_for_a_free_key_that_needs_it() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    assert!(coalescer.try_start(&0, Time::ZERO, None, || true).is_none());
    let leader = coalescer.try_start(&0, Time::ZERO, None, || false).expect("the key is free");
    assert!(coalescer.try_start(&0, Time::ZERO, None, || panic!("it is taken")).is_none());
    // Waiters stay with their load when its key is freed early.
    let JoinOutcome::Wait(mut waiter, _) =
        coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true)
    else {
        panic!("one caller leads");
    };
    coalescer.detach(&0);
    let successor = coalescer.try_start(&0, Time::ZERO, None, || false).expect("it is free again");
    drop(leader.complete(Ok(7)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(
        Pin::new(&mut waiter).poll(&mut context),
        Poll::Ready(WaitOutcome::Completed(Ok(7), 0))
    ));
    assert!(
        coalescer.try_start(&0, Time::ZERO, None, || false).is_none(),
        "the completed load does not free its successor"
    );
    coalescer.detach_all();
    assert_eq!(coalescer.in_flight_count(), 0);
    drop(successor);
}

#[test]
fn caller_between_completion_and_freeing_receives_the_same_result() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let JoinOutcome::Lead(leader) = coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true)
    else {
        panic!("the first leads")
    };
    let slot = leader.complete(Ok(7));
    assert!(matches!(
        coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true),
        JoinOutcome::Completed(Ok(7))
    ));
    let JoinOutcome::Lead(successor) =
        coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| false)
    else {
        panic!("a result that does not serve is replaced")
    };
    drop(slot);
    assert!(
        matches!(
            coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true),
            JoinOutcome::Wait(..)
        ),
        "the successor's key"
    );
    drop(successor);
    assert!(matches!(
        coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true),
        JoinOutcome::Lead(_)
    ));
}

#[test]
fn elected_waiter_that_is_never_polled_blocks_no_caller() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let JoinOutcome::Lead(leader) = coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true)
    else {
        panic!("the first leads")
    };
    let wait = || match coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true) {
        JoinOutcome::Wait(waiter, _) => Caller::new(waiter),
        other => panic!("{other:?}"),
    };
    let (mut parked, mut other) = (wait(), wait());
    assert!(parked.poll().is_pending() && other.poll().is_pending());
    drop(leader);
    assert!(parked.is_ready() && !other.is_ready(), "the first is elected");
    let JoinOutcome::Lead(newcomer) = coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true)
    else {
        panic!("the key is vacant")
    };
    assert!(other.poll().is_pending());
    drop(newcomer.complete(Ok(7)));
    assert!(
        matches!(parked.poll(), Poll::Ready(WaitOutcome::Completed(Ok(7), 1))),
        "the second leader's answer"
    );
    assert!(matches!(other.poll(), Poll::Ready(WaitOutcome::Completed(Ok(7), 1))));
}

#[test]
fn one_timer_wakes_all_expired_waiters() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let JoinOutcome::Lead(leader) = coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true)
    else {
        panic!("the first leads")
    };
    let at = Time::from_nanos;
    let join =
        |deadline| match coalescer.join(&0, Time::ZERO, None, |_| at(deadline), || None::<()>, |_| true) {
            JoinOutcome::Wait(waiter, timer) => (Caller::new(waiter), timer),
            other => panic!("{other:?}"),
        };
    let (mut early, timer) = join(10);
    let (mut late, second) = join(20);
    let timer = timer.expect("the first waiter starts it");
    assert!(second.is_none());
    assert!(early.poll().is_pending() && late.poll().is_pending());
    assert_eq!(timer.expire(at(9)), Some(at(10)));
    assert!(!early.is_ready());
    assert_eq!(timer.expire(at(10)), Some(at(20)));
    assert!(early.is_ready() && !late.is_ready());
    assert!(matches!(early.poll(), Poll::Ready(WaitOutcome::TimedOut)));
    assert_eq!(timer.expire(at(20)), None, "no waiter is left");
    let (mut later, third) = join(30);
    assert!(third.is_some(), "the next waiter starts another timer");
    drop(leader.complete(Ok(7)));
    assert!(
        matches!(late.poll(), Poll::Ready(WaitOutcome::Completed(Ok(7), 0))),
        "a result before the deadline counts"
    );
    assert!(matches!(later.poll(), Poll::Ready(WaitOutcome::Completed(Ok(7), 0))));
}

#[test]
fn second_lost_leader_ends_the_load() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let JoinOutcome::Lead(leader) = coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true)
    else {
        panic!("the first leads")
    };
    let mut callers: Vec<Caller> = (0..3)
        .map(|_| match coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true) {
            JoinOutcome::Wait(waiter, _) => Caller::new(waiter),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(callers.iter_mut().all(|caller| caller.poll().is_pending()));
    drop(leader);
    let ready: Vec<usize> = (0..3).filter(|i| callers[*i].is_ready()).collect();
    assert_eq!(ready, [0], "exactly one is elected");
    let Poll::Ready(WaitOutcome::Lead(second)) = callers[0].poll() else { panic!("elected, so it leads") };
    drop(second);
    for caller in &mut callers[1..] {
        assert!(matches!(caller.poll(), Poll::Ready(WaitOutcome::Completed(Err("lost"), _))));
    }
    assert_eq!(coalescer.in_flight_count(), 0);
}

#[test]
fn load_is_awaited_while_a_caller_waits() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let join = || coalescer.join(&1, Time::ZERO, None, |_| FAR, || None::<()>, |_| true);
    assert!(!coalescer.is_awaited(&1));
    let JoinOutcome::Lead(leader) = join() else { panic!("the key is free") };
    assert!(!coalescer.is_awaited(&1), "as a refresh, which has no waiters");
    let (watch, _) = leader.watch(None, RuntimeId::default());
    assert!(coalescer.is_awaited(&1));
    let JoinOutcome::Wait(waiter, Some(timer)) = join() else { panic!("another one leads") };
    drop(watch);
    assert!(coalescer.is_awaited(&1));
    drop(waiter);
    assert!(!coalescer.is_awaited(&1), "a timer does not count");
    drop((timer, leader));
    assert_eq!(coalescer.in_flight_count(), 0);
}

/// A load that starts at 0 and is hedged every 10 ns, and a caller that waits.
struct Hedged {
    coalescer: Arc<Coalescer<u8, Answer>>,
    leader: Leader<u8, Answer>,
    first: Caller,
    timer: WaitTimer<u8, Answer>,
}

impl Hedged {
    fn start() -> Self {
        let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
        let hedge_after = Some(Duration::from_nanos(10));
        let leader = coalescer.try_start(&0, Time::ZERO, hedge_after, || false).expect("the key is free");
        let (first, timer) = Self::join(&coalescer);
        Self { coalescer, leader, first, timer: timer.expect("the first waiter gets a timer") }
    }

    fn join(coalescer: &Arc<Coalescer<u8, Answer>>) -> (Caller, Option<WaitTimer<u8, Answer>>) {
        let joined = coalescer.join(&0, Time::ZERO, None, |_| FAR, || None::<()>, |_| true);
        let JoinOutcome::Wait(waiter, timer) = joined else { panic!("{joined:?}") };
        let mut caller = Caller::new(waiter);
        assert!(caller.poll().is_pending());
        (caller, timer)
    }
}

fn hedge_of(caller: &mut Caller) -> Leader<u8, Answer> {
    assert!(caller.is_ready(), "the timer has elected it");
    let Poll::Ready(WaitOutcome::Lead(hedge)) = caller.poll() else { panic!("the caller leads") };
    hedge
}

#[test]
fn one_waiter_hedges_each_interval() {
    let Hedged { coalescer, leader, mut first, timer } = Hedged::start();
    let mut waiting: Vec<_> = (0..3).map(|_| Hedged::join(&coalescer).0).collect();
    assert_eq!(timer.expire(Time::from_nanos(9)), Some(Time::from_nanos(10)));
    assert!(!first.is_ready());
    assert_eq!(timer.expire(Time::from_nanos(10)), Some(Time::from_nanos(20)));
    let hedge = hedge_of(&mut first);
    assert_eq!((leader.ordinal(), hedge.ordinal()), (0, 1));
    assert!(waiting.iter().all(|caller| !caller.is_ready()));
    assert_eq!(timer.expire(Time::from_nanos(20)), Some(Time::from_nanos(30)));
    let second = hedge_of(&mut waiting[0]);
    // The first result answers all waiters; later ones change nothing.
    drop(hedge.complete(Ok(2)));
    assert_eq!(coalescer.in_flight_count(), 0);
    drop((leader.complete(Ok(1)), second.complete(Err("failed"))));
    for caller in &mut waiting[1..] {
        assert!(matches!(caller.poll(), Poll::Ready(WaitOutcome::Completed(Ok(2), 1))));
    }
}

#[test]
fn error_of_one_leader_leaves_the_load_to_the_other() {
    for hedge_fails in [true, false] {
        let Hedged { coalescer, leader, mut first, timer } = Hedged::start();
        let (mut waiting, _) = Hedged::join(&coalescer);
        timer.expire(Time::from_nanos(10));
        let hedge = hedge_of(&mut first);
        let (fails, answers) = if hedge_fails { (hedge, leader) } else { (leader, hedge) };
        fails.fail(Err("failed"));
        assert!(waiting.poll().is_pending());
        assert_eq!(timer.expire(Time::from_nanos(20)), Some(FAR), "after an error there are no more hedges");
        let by = answers.ordinal();
        drop(answers.complete(Ok(7)));
        assert!(
            matches!(waiting.poll(), Poll::Ready(WaitOutcome::Completed(Ok(7), answered)) if answered == by)
        );
    }
}

#[test]
fn load_fails_with_the_error_of_its_last_leader() {
    let Hedged { coalescer, leader, mut first, timer } = Hedged::start();
    timer.expire(Time::from_nanos(10));
    let hedge = hedge_of(&mut first);
    let mut watch = Caller::new(leader.watch(None, RuntimeId::default()).0);
    leader.fail(Err("first"));
    assert!(watch.poll().is_pending());
    hedge.fail(Err("last"));
    assert!(matches!(watch.poll(), Poll::Ready(WaitOutcome::Completed(Err("last"), 1))));
    assert_eq!(coalescer.in_flight_count(), 0);
}

#[test]
fn waiter_that_leaves_before_it_leads_passes_the_hedge_on() {
    let Hedged { coalescer, leader, first, timer } = Hedged::start();
    let (mut second, _) = Hedged::join(&coalescer);
    timer.expire(Time::from_nanos(10));
    drop(first);
    let hedge = hedge_of(&mut second);
    drop(leader);
    assert_eq!(coalescer.in_flight_count(), 1, "a lost leader leaves the load to its hedge");
    drop(hedge);
    assert_eq!(coalescer.in_flight_count(), 0);
}

#[test]
fn caller_that_arrives_when_a_hedge_is_due_leads_it() {
    let Hedged { coalescer, leader: _leader, first, timer } = Hedged::start();
    drop((first, timer));
    let join = |at| coalescer.join(&0, Time::from_nanos(at), None, |_| FAR, || None::<()>, |_| true);
    assert!(matches!(join(9), JoinOutcome::Wait(..)));
    assert!(matches!(join(10), JoinOutcome::Lead(_)));
    assert!(matches!(join(19), JoinOutcome::Wait(..)));
}

/// A load at time 0 that is hedged after a nanosecond, with a caller that could lead, its timer and a waiter that could not.
fn hedged_load() -> (Leader<u8, Answer>, Caller, WaitTimer<u8, Answer>, Caller) {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let hedge_after = Some(Duration::from_nanos(1));
    let leader = coalescer.try_start(&0, Time::ZERO, hedge_after, || false).expect("the key is free");
    let JoinOutcome::Wait(waiter, Some(timer)) =
        coalescer.join(&0, Time::ZERO, hedge_after, |_| Time::from_nanos(10), || None::<()>, |_| true)
    else {
        panic!("one caller leads");
    };
    let watcher = Caller::new(leader.watch(None, RuntimeId::default()).0);
    (leader, Caller::new(waiter), timer, watcher)
}

#[test]
fn elected_hedge_that_leaves_does_not_end_the_load_of_the_leader() {
    let (leader, mut waiter, timer, mut watcher) = hedged_load();
    assert!(waiter.poll().is_pending() && watcher.poll().is_pending());
    timer.expire(Time::from_nanos(1));
    assert!(waiter.is_ready(), "elected as a second leader");
    drop(waiter);
    assert!(watcher.poll().is_pending());
    drop(leader.complete(Ok(7)));
    assert!(matches!(watcher.poll(), Poll::Ready(WaitOutcome::Completed(Ok(7), _))));
}

#[test]
fn caller_whose_deadline_has_passed_leads_a_load_without_a_leader() {
    let (leader, mut waiter, timer, _watcher) = hedged_load();
    assert!(waiter.poll().is_pending());
    drop(leader);
    assert!(waiter.is_ready(), "elected in place of the lost leader");
    timer.expire(Time::from_nanos(10));
    assert!(matches!(waiter.poll(), Poll::Ready(WaitOutcome::Lead(_))));
}

#[test]
fn load_has_a_bounded_number_of_leaders() {
    let coalescer: Arc<Coalescer<u8, Answer>> = Coalescer::new(Seed(1), || Err("lost"));
    let hedge_after = Some(Duration::from_nanos(1));
    // The budget permits ten hedges.
    for _ in 0..1_000 {
        let leader = coalescer.join(&1, Time::ZERO, hedge_after, |_| FAR, || None::<()>, |_| true);
        assert!(matches!(leader, JoinOutcome::Lead(_)));
    }
    let mut leaders = Vec::new();
    let mut waiters = Vec::new();
    for now in 0..8 {
        match coalescer.join(&0, Time::from_nanos(now), hedge_after, |_| FAR, || None::<()>, |_| true) {
            JoinOutcome::Lead(leader) => leaders.push(leader),
            JoinOutcome::Wait(waiter, _) => waiters.push(waiter),
            _ => panic!("the load is not completed"),
        }
    }
    assert_eq!((leaders.len(), waiters.len()), (4, 4));
}

#[test]
fn timer_ends_with_its_load() {
    let (leader, _waiter, mut timer, _watcher) = hedged_load();
    let mut context = Context::from_waker(Waker::noop());
    assert!(std::pin::pin!(timer.completed()).poll(&mut context).is_pending());
    drop(leader.complete(Ok(7)));
    assert!(std::pin::pin!(timer.completed()).poll(&mut context).is_ready());
}

#[test]
fn budget_has_one_hedge_for_100_loads_and_ten_at_most() {
    let budget = HedgeBudget::default();
    let taken = || std::iter::from_fn(|| budget.try_take().then_some(())).count();
    assert_eq!(taken(), 3, "before the first load");
    for (loads, hedges) in [(99, 0), (1, 1), (250, 2), (50, 1), (100_000, 10)] {
        (0..loads).for_each(|_| budget.count_load());
        assert_eq!(taken(), hedges, "{loads}");
    }
}

#[test]
fn position_of_a_waiter_is_never_reused() {
    let waiter =
        || QueuedWaiter { waker: None, can_lead: true, deadline: None, is_timed_out: false, is_caller: true };
    let mut queue = WaitQueue::default();
    assert_eq!([queue.push(waiter()), queue.push(waiter()), queue.push(waiter())], [0, 1, 2]);
    queue.remove(0);
    queue.drain();
    assert!((0..3).all(|position| queue.get_mut(position).is_none()));
    assert_eq!(queue.push(waiter()), 3);
    assert!(queue.get_mut(2).is_none() && queue.get_mut(3).is_some());
}
