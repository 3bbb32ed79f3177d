//! The cost of refreshing strategies on hits, and their benefit at expiry.
//!
//! Two threads request the hundred hot keys of a warm cache through `get_with`, as fast as they can, some keys
//! more often than others; a load takes 5 ms. First with a ttl of an hour, so that every request is a hit
//! far from its expiry; then with one of a second: hot keys expire all the time, and with xfetch a fifth of
//! all reads draws.
//!
//! Every strategy runs for half a second per round, in a random order, and is compared with `simple` in the same
//! round. Rely on the ratio, whose median and range are printed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use stockade_bench::{
    statistics::{median, range},
    workload::draws,
};
use stockade_cache::{Cache, Strategy};
use tokio::runtime::Runtime;

const SEED: u64 = 1;
const ROUNDS: usize = 15;
const THREADS: usize = 2;
const KEYS: u64 = 100;
const LOAD: Duration = Duration::from_millis(5);
const TURN: Duration = Duration::from_millis(500);
/// The others are compared with the first.
const STRATEGIES: [&str; 5] = ["simple", "stampede", "early", "xfetch", "swr"];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_time().build();
    let runtime = runtime.expect("tokio starts");
    let draws: Vec<Arc<[u64]>> = draws(THREADS, SEED)
        .into_iter()
        .map(|draws| draws.into_iter().map(|key| u64::from(key) % KEYS).collect())
        .collect();
    for ttl in [Duration::from_hours(1), Duration::from_secs(1)] {
        table(&runtime, &draws, ttl);
    }
}

fn table(runtime: &Runtime, draws: &[Arc<[u64]>], ttl: Duration) {
    let inside = runtime.enter();
    let caches = STRATEGIES.map(|name| {
        let strategy = Strategy::preset(name).expect("it is a preset");
        let cache: Cache<u64, u64> =
            Cache::new(Strategy { ttl: Some(ttl), ..strategy }).expect("it has no fault");
        cache
    });
    drop(inside);
    let mut rounds = STRATEGIES.map(|_| Vec::new());
    let mut order: Vec<_> = (0..STRATEGIES.len()).collect();
    let mut rng = Pcg64Mcg::seed_from_u64(SEED);
    for round in 0..=ROUNDS {
        order.shuffle(&mut rng);
        for &number in &order {
            let served = turn(runtime, &caches[number], draws);
            // The first round is the warm-up.
            if round > 0 {
                rounds[number].push(served);
            }
        }
    }
    println!("\nttl: {ttl:?}\n");
    println!("| strategy | times simple | least to greatest | million requests/s | loads |");
    println!("|---|---|---|---|---|");
    for ((name, cache), served) in STRATEGIES.iter().zip(&caches).zip(&rounds) {
        let ratios: Vec<_> = served.iter().zip(&rounds[0]).map(|(own, simple)| own / simple).collect();
        let (least, greatest) = range(&ratios);
        let (ratio, millions, loads) = (median(ratios), median(served.clone()), cache.stats().loads);
        println!("| {name} | {ratio:.3} | {least:.3} to {greatest:.3} | {millions:.2} | {loads} |");
    }
}

/// One measurement of all threads: millions of requests per second.
fn turn(runtime: &Runtime, cache: &Cache<u64, u64>, draws: &[Arc<[u64]>]) -> f64 {
    let began = Instant::now();
    let clients: Vec<_> = draws
        .iter()
        .map(|draws| {
            let (cache, draws) = (cache.clone(), Arc::clone(draws));
            runtime.spawn(async move {
                let mut served = 0_u64;
                for keys in draws.chunks(1_000).cycle() {
                    if began.elapsed() >= TURN {
                        break;
                    }
                    for &key in keys {
                        let answer = cache.get_with(key, async move || {
                            tokio::time::sleep(LOAD).await;
                            Ok::<_, std::io::Error>(key)
                        });
                        assert_eq!(answer.await.expect("loads do not fail").value, key);
                    }
                    served += keys.len() as u64;
                }
                served
            })
        })
        .collect();
    let served: u64 =
        clients.into_iter().map(|client| runtime.block_on(client).expect("no client panics")).sum();
    served as f64 / began.elapsed().as_secs_f64() / 1e6
}
