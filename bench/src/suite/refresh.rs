//! The cost of refreshing strategies on hits, and their benefit at expiry.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use stockade_cache::{Cache, Strategy};
use tokio::runtime::Runtime;

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::workload::draws;

const ROUNDS: usize = 5;
const THREADS: usize = 2;
const KEYS: u64 = 100;
const LOAD: Duration = Duration::from_millis(5);
/// A preset and its name in rows. The others are compared with the first.
const STRATEGIES: [(&str, &str); 5] = [
    ("simple", "`simple`"),
    ("stampede", "stockade, `stampede`"),
    ("early", "stockade, `early`"),
    ("xfetch", "stockade, `xfetch`"),
    ("swr", "stockade, `swr`"),
];

pub(super) const BENCH: Bench = Bench {
    name: "refresh",
    shows: "requests a second for hot keys under four strategies, compared with `simple`",
    method: "Two threads request a hundred hot keys of a warm cache through `get_with`; a load takes 5 ms. With a ttl of an hour every request \
             is a hit far from its expiry; with one of a second keys expire all the time.",
    seconds: 35,
    needs: &[],
    peers: &[],
    metrics: &[Metric { name: "requests", unit: "M/s", digits: 2, better: Better::Higher, aim: Some(1.0) }],
    limits: &[],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_time().build()?;
    let draws: Vec<Arc<[u64]>> = draws(THREADS, 1, super::hits::SEED)
        .into_iter()
        .map(|draws| draws.into_iter().map(|key| u64::from(key) % KEYS).collect())
        .collect();
    let turn = sitting.scaled(Duration::from_millis(500), Duration::from_millis(50));
    let names = STRATEGIES.map(|(_, name)| name);
    let mut figures = Vec::new();
    for (case, ttl) in [("ttl 1 h", Duration::from_hours(1)), ("ttl 1 s", Duration::from_secs(1))] {
        let caches = {
            let _context = runtime.enter();
            let cache = |(preset, _): (&str, &str)| {
                let strategy = Strategy { ttl: Some(ttl), ..Strategy::preset(preset)? };
                Ok(Cache::<u64, u64>::new(strategy)?)
            };
            STRATEGIES.into_iter().map(cache).collect::<Result<Vec<_>>>()?
        };
        // The warm-up.
        for cache in &caches {
            served(&runtime, cache, &draws, turn)?;
        }
        figures.extend(sitting.interleave(case, ["requests"], &names, ROUNDS, |at| {
            Ok([served(&runtime, &caches[at], &draws, turn)?])
        })?);
    }
    Ok(figures)
}

/// One measurement of all threads: millions of requests per second.
fn served(runtime: &Runtime, cache: &Cache<u64, u64>, draws: &[Arc<[u64]>], turn: Duration) -> Result<f64> {
    let began = Instant::now();
    let clients: Vec<_> = draws
        .iter()
        .map(|draws| {
            let (cache, draws) = (cache.clone(), Arc::clone(draws));
            runtime.spawn(async move {
                let mut served = 0_u64;
                for keys in draws.chunks(1_000).cycle() {
                    if began.elapsed() >= turn {
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
    let mut served = 0;
    for client in clients {
        served += runtime.block_on(client)?;
    }
    Ok(served as f64 / began.elapsed().as_secs_f64() / 1e6)
}
