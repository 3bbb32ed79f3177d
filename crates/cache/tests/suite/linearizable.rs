//! What threads observe of one key is what a single thread could have observed: linearizability (Herlihy, Wing, 1990), checked by a search
//! for an order of the operations that explains all results (Wing, Gong, 1993).

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use stockade_cache::{Insertion, Invalidation, Strategy, Update, sync::Cache};

const THREADS: u64 = 4;
const KEYS: u64 = 2;
/// Of each thread with each key in one round.
const OPERATIONS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Get,
    Insert(u64),
    Update(u64),
    /// If nothing is stored, this value is loaded.
    Load(u64),
    Invalidate,
    InvalidateTag,
    InvalidateIf,
    InvalidateAll,
    /// Other keys.
    InvalidateNothing,
}

/// An operation, the moments of its call and its return, and the value that it returned or saw.
#[derive(Clone, Copy, Debug)]
struct Event {
    called: u64,
    returned: u64,
    operation: Operation,
    value: Option<u64>,
}

impl Event {
    fn overlaps(&self, other: &Self) -> bool {
        self.called < other.returned && other.called < self.returned
    }
}

fn apply(cache: &Cache<u64, u64>, key: u64, operation: Operation) -> Option<u64> {
    match operation {
        Operation::Get => cache.get(&key),
        Operation::Insert(value) => {
            assert_eq!(cache.insert(key, value), Insertion::Stored);
            None
        }
        Operation::Update(value) => {
            let mut seen = None;
            let stored = cache.update(&key, |stored| {
                seen = stored.map(|stored| stored.value);
                Update::Store(value)
            });
            assert_eq!(stored, Some(value));
            seen
        }
        Operation::Load(value) => {
            let load = move || Ok::<_, Infallible>(value);
            Some(cache.get_with(key, load).expect("no load fails").value)
        }
        Operation::Invalidate => {
            cache.invalidate(&key, Invalidation::Hard);
            None
        }
        Operation::InvalidateTag => {
            cache.as_async().invalidate_tag(&key.to_string(), Invalidation::Hard);
            None
        }
        Operation::InvalidateIf => {
            cache.as_async().invalidate_if(|one, _| *one == key, Invalidation::Hard);
            None
        }
        Operation::InvalidateAll => {
            cache.as_async().invalidate_all(Invalidation::Hard);
            None
        }
        Operation::InvalidateNothing => {
            cache.as_async().invalidate_if(|_, _| false, Invalidation::Hard);
            None
        }
    }
}

/// The states after an event; none: it cannot have happened in this state.
fn successors(state: Option<u64>, event: &Event, history: &[Event]) -> Vec<Option<u64>> {
    let is_of_load_beside = |loaded: u64| {
        let is_it = |other: &Event| other.operation == Operation::Load(loaded) && other.overlaps(event);
        history.iter().any(is_it)
    };
    let unchanged_if = |is_possible: bool| if is_possible { vec![state] } else { vec![] };
    match event.operation {
        Operation::Get => unchanged_if(event.value == state),
        Operation::Insert(value) => vec![Some(value)],
        Operation::Update(value) if event.value == state => vec![Some(value)],
        Operation::Update(_) => vec![],
        // If the key was written or invalidated meanwhile, it answers its callers only.
        Operation::Load(own) if event.value == Some(own) => match state {
            None => vec![Some(own), None],
            // After an invalidation, even of nothing, a second load begins before the first ends.
            Some(value) if is_of_load_beside(value) => vec![Some(own), state],
            Some(_) => vec![state],
        },
        Operation::Load(_) => {
            unchanged_if(event.value == state || event.value.is_some_and(is_of_load_beside))
        }
        Operation::InvalidateNothing => vec![state],
        _ => vec![None],
    }
}

/// True if some order of the events explains them, in which no event that had returned comes after one that was called later.
fn is_linearizable(history: &[Event]) -> bool {
    let all = (1_u64 << history.len()) - 1;
    let mut visited = HashSet::new();
    let mut open = vec![(0_u64, None)];
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        if !visited.insert((done, state)) {
            continue;
        }
        let pending = || history.iter().enumerate().filter(|(nth, _)| done & 1 << nth == 0);
        let first_return = pending().map(|(_, event)| event.returned).min().unwrap_or(u64::MAX);
        for (nth, event) in pending().filter(|(_, event)| event.called < first_return) {
            open.extend(successors(state, event, history).into_iter().map(|next| (done | 1 << nth, next)));
        }
    }
    false
}

#[test]
fn operations_of_threads_are_linearizable() {
    let operations = std::env::var("STOCKADE_OPERATIONS").ok().and_then(|count| count.parse().ok());
    let rounds = operations.unwrap_or(100_000) / (THREADS * KEYS * OPERATIONS);
    let cache: Cache<u64, u64> = stockade_cache::Cache::builder(Strategy::preset("stampede").unwrap())
        .tags(|key: &u64, _: &u64, tag| tag(&key.to_string()))
        .build_sync()
        .unwrap();
    let (clock, barrier) = (AtomicU64::new(0), Barrier::new(usize::try_from(THREADS).unwrap()));
    let run = |number: u64| {
        let mut random = SmallRng::seed_from_u64(number);
        let mut histories: Vec<(u64, Event)> = Vec::new();
        for round in 0..rounds {
            barrier.wait();
            for nth in 0..KEYS * OPERATIONS {
                let key = round * KEYS + nth % KEYS;
                let value = ((round * KEYS * OPERATIONS + nth) * THREADS + number) + 1;
                let operation = match random.random_range(0..16_u32) {
                    0..4 => Operation::Get,
                    4..7 => Operation::Insert(value),
                    7..9 => Operation::Update(value),
                    9..12 => Operation::Load(value),
                    12 => Operation::Invalidate,
                    13 => Operation::InvalidateTag,
                    14 => match random.random_range(0..8_u32) {
                        0 => Operation::InvalidateAll,
                        _ => Operation::InvalidateIf,
                    },
                    _ => Operation::InvalidateNothing,
                };
                let called = clock.fetch_add(1, SeqCst);
                let value = apply(&cache, key, operation);
                let event = Event { called, returned: clock.fetch_add(1, SeqCst), operation, value };
                let keys = match operation {
                    Operation::InvalidateAll => round * KEYS..(round + 1) * KEYS,
                    _ => key..key + 1,
                };
                histories.extend(keys.map(|key| (key, event)));
            }
        }
        histories
    };
    let mut histories: Vec<(u64, Event)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    histories.sort_by_key(|(key, event)| (*key, event.called));
    let violations = histories.chunk_by(|(one, _), (other, _)| one == other).filter(|history| {
        let events: Vec<Event> = history.iter().map(|(_, event)| *event).collect();
        !is_linearizable(&events)
    });
    let violations: Vec<String> = violations.map(shown).collect();
    assert!(
        violations.is_empty(),
        "{} of {} keys:\n{}",
        violations.len(),
        rounds * KEYS,
        violations.join("\n")
    );
}

fn shown(history: &[(u64, Event)]) -> String {
    let line = |(key, event): &(u64, Event)| {
        let Event { called, returned, operation, value } = event;
        format!("{key}: {called} to {returned} {operation:?} {value:?}\n")
    };
    history.iter().map(line).collect()
}

/// The checker finds what it is for.
#[test]
fn lost_writes_and_old_values_are_violations() {
    let event = |called, returned, operation, value| Event { called, returned, operation, value };
    let is_possible = |events: &[Event]| is_linearizable(events);
    let insert = event(0, 1, Operation::Insert(7), None);
    assert!(is_possible(&[insert, event(2, 3, Operation::Get, Some(7))]));
    assert!(!is_possible(&[insert, event(2, 3, Operation::Get, None)]), "the write is lost");
    let nothing = event(0, 9, Operation::InvalidateNothing, None);
    assert!(!is_possible(&[insert, nothing, event(2, 3, Operation::Get, None)]));
    let all = event(0, 9, Operation::InvalidateAll, None);
    assert!(is_possible(&[insert, all, event(2, 3, Operation::Get, None)]));
    // A load that began before an insert is stored over it.
    let load = event(0, 5, Operation::Load(1), Some(1));
    let insert = event(1, 2, Operation::Insert(7), None);
    assert!(is_possible(&[load, insert, event(6, 7, Operation::Get, Some(7))]));
    assert!(!is_possible(&[
        insert,
        event(3, 5, Operation::Load(1), Some(1)),
        event(6, 7, Operation::Get, Some(1))
    ]));
    // Two updates that saw the same value.
    let updates =
        [(1, Some(7)), (2, Some(7))].map(|(value, seen)| event(3, 9, Operation::Update(value), seen));
    assert!(!is_possible(&[insert, updates[0], updates[1]]));
}
