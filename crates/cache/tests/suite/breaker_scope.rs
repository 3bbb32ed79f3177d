//! The failures of a few keys or clients do not concern the others, while those are answered.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{
    Cache, CacheMode, Error, LoadedValue, RequestOptions, Reservation, Strategy, WithoutSource,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

/// Loads fail for keys from this one on.
const BAD: u64 = 1 << 32;

/// A cache with the default breaker. A load takes 20 ms.
#[derive(Clone)]
struct Fixture {
    time: Virtual,
    cache: Cache<u64, u64, Virtual>,
    loads: Arc<AtomicU64>,
}

/// Requests of one kind: how many ended with a value, with the error of a load, and were refused.
#[derive(Clone, Default)]
struct Counts {
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl Counts {
    fn get(&self) -> (u64, u64, u64) {
        (self.answered.load(Relaxed), self.failed.load(Relaxed), self.refused.load(Relaxed))
    }
}

impl Fixture {
    fn new() -> Self {
        let strategy = Strategy {
            breaker: Strategy::preset("breaker").unwrap().breaker,
            ..Strategy::preset("stampede").unwrap()
        };
        let time = Virtual::new();
        let cache = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
        Self { time, cache, loads: Arc::default() }
    }

    /// Starts a request. A `client` of 0 is unknown.
    fn start(&self, client: u64, key: u64, counts: &Counts) {
        let (fixture, counts) = (self.clone(), counts.clone());
        self.time.spawn(async move {
            let options = RequestOptions { mode: CacheMode::Default, client: NonZeroU64::new(client) };
            let (time, loads) = (fixture.time.clone(), Arc::clone(&fixture.loads));
            let load = async move |_| {
                loads.fetch_add(1, Relaxed);
                time.sleep_until(time.now() + 20 * MS).await;
                if key < BAD { Ok(LoadedValue::complete(key)) } else { Err("on purpose") }
            };
            let answer = fixture.cache.get_streaming(key, options, load).await;
            let count = match answer {
                Ok(_) => &counts.answered,
                Err(Error::BreakerOpen) => &counts.refused,
                Err(_) => &counts.failed,
            };
            count.fetch_add(1, Relaxed);
        });
    }

    /// Calls `each` every millisecond of a minute, then waits for all requests.
    fn run(&self, each: impl Fn(u64)) {
        self.time
            .run(async {
                for ms in 0..60_000 {
                    self.time.sleep_until(Time::ZERO + Duration::from_millis(ms)).await;
                    each(ms);
                }
                self.time.sleep_until(self.time.now() + 1_000 * MS).await;
            })
            .expect("no request hangs");
    }
}

/// One bad key is requested 1,000 times a second by all clients, and ten new keys a second.
#[test]
fn bad_key_does_not_refuse_healthy_ones() {
    for clients in [0, 1, 100] {
        let (fixture, healthy) = (Fixture::new(), Counts::default());
        let client = |ms: u64| if clients == 0 { 0 } else { ms % clients + 1 };
        fixture.run(|ms| {
            fixture.start(client(ms), BAD, &Counts::default());
            if ms % 100 == 0 {
                fixture.start(client(ms / 100), ms, &healthy);
            }
        });
        assert_eq!(healthy.get(), (600, 0, 0), "{clients} clients");
    }
}

/// A client requests 1,000 bad keys a second. Others request 100 new keys a second, many at once.
#[test]
fn bad_client_does_not_refuse_others_after_the_trials() {
    let (fixture, bad, healthy) = (Fixture::new(), Counts::default(), Counts::default());
    fixture.run(|ms| {
        fixture.start(1, BAD + ms, &bad);
        if ms % 200 == 100 {
            (0..20).for_each(|i| fixture.start(2 + i % 3, ms * 100 + i, &healthy));
        }
    });
    let (answered, failed, refused) = healthy.get();
    // Of the first twenty all but four.
    assert_eq!((answered, failed, refused), (6_000 - 16, 0, 16));
}

/// All keys are bad, and requested 1,000 times a second for a minute.
#[test]
fn dead_source_receives_min_calls_four_trials_and_probes() {
    type Of = fn(u64) -> (u64, u64);
    let requests: [(&str, Of); 5] = [
        ("one key", |_| (1, BAD)),
        ("one client", |ms| (1, BAD + ms)),
        ("one client, and ten more later", |ms| (if ms < 1_000 { 1 } else { ms % 10 }, BAD + ms)),
        ("one key, and many more later", |ms| (0, if ms < 1_000 { BAD } else { BAD + ms })),
        ("all different", |ms| (ms + 1, BAD + ms)),
    ];
    for (name, of) in requests {
        let (fixture, counts) = (Fixture::new(), Counts::default());
        fixture.run(|ms| {
            let (client, key) = of(ms);
            fixture.start(client, key, &counts);
        });
        let (min_calls, in_flight, trials, probes) = (20, 20, 4, 3 * 12);
        let loads = fixture.loads.load(Relaxed);
        assert!(loads <= min_calls + in_flight + trials + probes, "{name}: {loads}");
        assert_eq!(counts.get().0, 0);
    }
}

#[test]
fn failures_without_the_source_are_no_evidence() {
    let fixture = Fixture::new();
    let Fixture { time, cache, .. } = fixture.clone();
    time.run(async {
        let load = async |_: Reservation<u64, u64>| {
            Err::<LoadedValue<u64, u64>, _>(WithoutSource("no descriptors".into()))
        };
        for key in 0..1_000 {
            let options = RequestOptions { mode: CacheMode::Default, client: NonZeroU64::new(key + 1) };
            let error = cache.get_streaming(BAD + key, options, load).await.unwrap_err();
            assert_eq!(error.to_string(), "no descriptors");
        }
        assert!(cache.get_with(1, async || Ok::<_, Error>(1)).await.is_ok());
    })
    .unwrap();
}
