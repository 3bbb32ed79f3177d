//! Runtimes that end, stand still, are full or missing, and the clock of a test.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    spawn,
    task::spawn_blocking,
    time::{advance, sleep},
};

use super::{
    CAFFEINE, FOYER, MOKA, Observed, Scenario,
    contender::{Answer, Capacity, Contender, Settings},
    count,
    executor::{PATIENCE, block_on, run, runtime, within},
    issue,
    loads::{Counter, ms},
    on_tasks,
};

pub static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "paused_clock",
        title: "The clock of tokio is paused, and advanced by the ttl of an hour",
        issues: &[issue(MOKA, 522, "a test cannot set the clock of the cache")],
        expected: "The next call loads anew.",
        why: "moka reads the clock of the machine.",
        runs: on_tasks!(paused_clock, u64),
    },
    Scenario {
        name: "runtimes_in_turn",
        title: "One cache serves a runtime, which ends, and then another one",
        issues: &[issue(FOYER, 1075, "a load is spawned on the runtime of its caller")],
        expected: "Calls on the second runtime find what was stored, and load what was not.",
        why: "",
        runs: on_tasks!(runtimes_in_turn, u64),
    },
    Scenario {
        name: "runtime_undriven",
        title: "A load is on a runtime that no thread drives any more; another runtime asks for its key",
        issues: &[issue(MOKA, 240, "a call waits for ever for one that is not polled any more")],
        expected: "The call ends within 5 s with a value or an error. A cache with bounds has 1 s.",
        why: "A load of moka runs in the future of the caller that starts it; a load of ours is a task.",
        runs: on_tasks!(runtime_undriven, u64),
    },
    Scenario {
        name: "runtime_ends",
        title: "A runtime ends with a load and ten waiters, and ten wait on another runtime",
        issues: &[issue(FOYER, 1345, "a runtime that ends with fetches hangs")],
        expected: "The runtime ends within 5 s, and the ten on the other one get a value.",
        why: "",
        runs: on_tasks!(runtime_ends, u64),
    },
    Scenario {
        name: "runtime_ended",
        title: "A call is made in the context of a runtime that has ended",
        issues: &[issue(FOYER, 1345, "a fetch on a runtime that is shutting down locks itself out")],
        expected: "The call ends within 5 s with a value or an error.",
        why: "",
        runs: on_tasks!(runtime_ended, u64),
    },
    Scenario {
        name: "current_thread",
        title: "A runtime of one thread: 100 callers of one key, and ten tasks with 1,000 inserts each into 100 places",
        issues: &[issue(MOKA, 415, "a busy loop in inserts while maintenance is pending")],
        expected: "All calls get the value of one load, and all inserts return.",
        why: "",
        runs: on_tasks!(current_thread, u64),
    },
    Scenario {
        name: "blocking_pool_full",
        title: "The runtime's one thread for blocking calls is occupied for 4 s",
        issues: &[issue(CAFFEINE, 248, "the work of the cache waits for busy threads of the executor")],
        expected: "A load that takes 50 ms is answered within 2 s.",
        why: "",
        runs: on_tasks!(blocking_pool_full, u64),
    },
    Scenario {
        name: "no_runtime",
        title: "The first call comes from a thread without a runtime",
        issues: &[
            issue(FOYER, 1166, "a fetch needs a runtime, since it is spawned"),
            issue(MOKA, 288, "whether the cache should depend on a runtime"),
        ],
        expected: "The caller gets the value of a load that needs no runtime.",
        why: "",
        runs: on_tasks!(no_runtime, u64),
    },
    Scenario {
        name: "threads_and_runtime",
        title: "Callers on eight threads without a runtime and callers in tasks ask for one key",
        issues: &[issue(MOKA, 288, "whether the cache should depend on a runtime")],
        expected: "All get the value of one load that needs no runtime.",
        why: "",
        runs: on_tasks!(threads_and_runtime, u64),
    },
];

fn one_thread() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    builder
}

fn counted(loads: &Counter) -> impl Future<Output = Answer<u64>> + Send + use<> {
    let loads = loads.clone();
    async move { Ok(loads.add() as u64) }
}

fn paused_clock<C: Contender<u64>>() -> Observed {
    let runtime = one_thread().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let hour = Duration::from_hours(1);
        let cache = C::build(Settings { ttl: Some(hour), ..Settings::default() }).expect("a cache");
        let loads = Counter::default();
        let _ = cache.load(1, counted(&loads)).await;
        advance(hour + ms(10)).await;
        let _ = cache.load(1, counted(&loads)).await;
        let loads = loads.get();
        Observed::when(loads == 2, if loads == 2 { "loads anew" } else { "gets the old value" })
    })
}

fn runtimes_in_turn<C: Contender<u64>>() -> Observed {
    let cache = C::build(Settings::default()).expect("a cache");
    let loads = Counter::default();
    for _ in 0..2 {
        let runtime = runtime();
        let is_answered = runtime.block_on(async {
            let first = within(cache.load(1, counted(&loads))).await;
            let second = within(cache.load(2 + loads.get() as u64, counted(&loads))).await;
            matches!((first, second), (Some(Ok(0)), Some(Ok(_))))
        });
        if !is_answered {
            return Observed::when(false, format!("no right answer after {} loads", loads.get()));
        }
    }
    Observed::when(loads.get() == 3, format!("all answered by {} loads", loads.get()))
}

fn runtime_undriven<C: Contender<u64>>() -> Observed {
    let cache = C::build(Settings { bound: Some(ms(1_000)), ..Settings::default() }).expect("a cache");
    let still = one_thread().build().expect("a runtime");
    let loads = Counter::default();
    still.block_on(async {
        let (cache, loads) = (cache.clone(), loads.clone());
        spawn(async move {
            let load = async move {
                loads.add();
                sleep(ms(100)).await;
                Ok(7)
            };
            cache.load(1, load).await
        });
        sleep(ms(20)).await;
    });
    let observed = run(async {
        match within(cache.load(1, async { Ok(8) })).await {
            Some(Ok(_)) => Observed::when(true, "a value"),
            Some(Err(error)) => Observed::when(true, format!("an error: {error}")),
            None => Observed::when(false, "hung"),
        }
    });
    drop(still);
    observed
}

/// Runs a call on a thread, and waits for it until a test may end.
fn on_thread_within<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(call());
    });
    receiver.recv_timeout(PATIENCE).ok()
}

fn runtime_ends<C: Contender<u64>>() -> Observed {
    let cache = C::build(Settings::default()).expect("a cache");
    let (ending, other) = (runtime(), runtime());
    let (loads, started) = (Counter::default(), Counter::default());
    let start = |runtime: &Runtime, number: usize, hangs: bool| {
        let call = |_| {
            let (cache, loads, started) = (cache.clone(), loads.clone(), started.clone());
            runtime.spawn(async move {
                started.add();
                let load = async move {
                    loads.add();
                    if hangs {
                        pending::<()>().await;
                    }
                    Ok(7)
                };
                cache.load(1, load).await
            })
        };
        (0..number).map(call).collect::<Vec<_>>()
    };
    start(&ending, 1, true);
    block_on_counter(&loads, 1);
    start(&ending, 10, true);
    let others = start(&other, 10, false);
    block_on_counter(&started, 21);
    thread::sleep(ms(100));
    if on_thread_within(move || drop(ending)).is_none() {
        return Observed::when(false, "the runtime does not end");
    }
    let answered = other.block_on(async {
        let mut answered = 0;
        for call in others {
            answered += usize::from(matches!(within(call).await, Some(Ok(Ok(7)))));
        }
        answered
    });
    other.shutdown_background();
    Observed::when(answered == 10, format!("the runtime ended; {answered} of 10 got a value"))
}

fn block_on_counter(counter: &Counter, number: usize) {
    while counter.get() < number {
        thread::sleep(ms(1));
    }
}

fn runtime_ended<C: Contender<u64>>() -> Observed {
    let cache = C::build(Settings::default()).expect("a cache");
    let ended = runtime();
    let handle = ended.handle().clone();
    drop(ended);
    let answer = on_thread_within(move || {
        let _context = handle.enter();
        block_on(cache.load(1, async { Ok(7) }))
    });
    match answer {
        Some(Ok(_)) => Observed::when(true, "a value"),
        Some(Err(error)) => Observed::when(true, format!("an error: {error}")),
        None => Observed::when(false, "no answer"),
    }
}

fn current_thread<C: Contender<u64>>() -> Observed {
    let runtime = one_thread().build().expect("a runtime");
    runtime.block_on(async {
        let settings = Settings { capacity: Capacity::Entries(100), ..Settings::default() };
        let cache = C::build(settings).expect("a cache");
        let loads = Counter::default();
        let call = |_| {
            let (cache, loads) = (cache.clone(), loads.clone());
            spawn(async move {
                let load = async move {
                    loads.add();
                    sleep(ms(100)).await;
                    Ok(7)
                };
                cache.load(1, load).await
            })
        };
        let insert = |task: u64| {
            let cache = cache.clone();
            spawn(async move {
                for key in 0..1_000 {
                    cache.insert(1_000 * (1 + task) + key, key).await;
                }
            })
        };
        let calls: Vec<_> = (0..100).map(call).collect();
        let inserts: Vec<_> = (0..10).map(insert).collect();
        let mut answered = 0;
        for call in calls {
            answered += usize::from(matches!(within(call).await, Some(Ok(Ok(7)))));
        }
        let mut ended = 0;
        for insert in inserts {
            ended += usize::from(matches!(within(insert).await, Some(Ok(()))));
        }
        let loads = loads.get();
        let fact = format!("{answered} answered by {}; {ended} of 10 tasks inserted", count(loads, "load"));
        Observed::when(answered == 100 && loads == 1 && ended == 10, fact)
    })
}

fn blocking_pool_full<C: Contender<u64>>() -> Observed {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let observed = runtime.block_on(async {
        let is_occupied = Arc::new(AtomicBool::new(false));
        spawn_blocking({
            let is_occupied = Arc::clone(&is_occupied);
            move || {
                is_occupied.store(true, SeqCst);
                thread::sleep(ms(4_000));
            }
        });
        while !is_occupied.load(SeqCst) {
            sleep(ms(1)).await;
        }
        let cache = C::build(Settings::default()).expect("a cache");
        let load = async {
            sleep(ms(50)).await;
            Ok(7)
        };
        let answer = tokio::time::timeout(ms(2_000), cache.load(1, load)).await;
        let is_answered = matches!(answer, Ok(Ok(7)));
        Observed::when(is_answered, if is_answered { "answered" } else { "not answered" })
    });
    runtime.shutdown_background();
    observed
}

fn no_runtime<C: Contender<u64>>() -> Observed {
    let answer = on_thread_within(|| {
        let cache = C::build(Settings::default()).expect("a cache");
        block_on(cache.load(1, async { Ok(7) }))
    });
    match answer {
        Some(Ok(_)) => Observed::when(true, "a value"),
        Some(Err(error)) => Observed::when(false, format!("an error: {error}")),
        None => Observed::when(false, "no answer, or a panic"),
    }
}

fn threads_and_runtime<C: Contender<u64>>() -> Observed {
    run(async {
        let cache = C::build(Settings::default()).expect("a cache");
        let (loads, started) = (Counter::default(), Counter::default());
        let call = || {
            let (cache, loads, started) = (cache.clone(), loads.clone(), started.clone());
            async move {
                started.add();
                // Needs no runtime, so it cannot sleep.
                let load = async move {
                    loads.add();
                    block_on_counter(&started, 16);
                    thread::sleep(ms(100));
                    Ok(7)
                };
                cache.load(1, load).await
            }
        };
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let call = call();
                thread::spawn(move || block_on(call))
            })
            .collect();
        let tasks: Vec<_> = (0..8).map(|_| spawn(call())).collect();
        let mut answered = 0;
        for task in tasks {
            answered += usize::from(matches!(within(task).await, Some(Ok(Ok(7)))));
        }
        for thread in threads {
            let joined = on_thread_within(move || thread.join());
            answered += usize::from(matches!(joined, Some(Ok(Ok(7)))));
        }
        let loads = loads.get();
        Observed::when(
            answered == 16 && loads == 1,
            format!("{answered} of 16 answered by {}", count(loads, "load")),
        )
    })
}
