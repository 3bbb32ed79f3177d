//! The given number of hits or of misses, and nothing else. `make instructions` counts what each
//! of them executes. Under a policy, by entries or by bytes.

use std::{future::Future, hint::black_box, time::Duration};

use stockade_cache::{Cache, Limit, Policy, Strategy, heap_bytes, policy::POLICIES};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time},
};

const ENTRIES: u64 = 10_000;

/// Time stands still, so that no clock is counted.
#[derive(Clone)]
struct Still;

impl Runtime for Still {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn sleep_until(&self, _deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(task);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["policies"] {
        POLICIES.iter().for_each(|policy| println!("{}", policy.name));
        return Ok(());
    }
    let [what, times, policy, by] = arguments.as_slice() else {
        return Err(
            "usage: instructions policies, or instructions hit|miss TIMES POLICY entries|bytes".into()
        );
    };
    let times: u64 = times.parse()?;

    let limit = if by == "bytes" { Limit::bytes(1 << 20) } else { Limit::entries(10_000) };
    let strategy = Strategy {
        limit: Some(Limit { policy: Policy::named(policy)?, ..limit }),
        ttl: Some(Duration::from_secs(60 * 60)),
        ..Strategy::preset("stampede")?
    };
    let cache: Cache<u64, u64, Still> =
        Cache::builder(strategy).weigh(heap_bytes).build_on(Still, Seed(1))?;
    for key in 0..2 * ENTRIES {
        cache.insert(key, key);
    }
    // Shards are not filled evenly; the newest thousand are there whatever happens.
    let there = 2 * ENTRIES - 1_000;
    match what.as_str() {
        "hit" => (0..times).for_each(|time| {
            black_box(cache.get(&(there + time % 1_000)));
        }),
        "miss" => (2 * ENTRIES..2 * ENTRIES + times).for_each(|key| {
            if cache.get(&key).is_none() {
                cache.insert(key, key);
            }
        }),
        _ => return Err(format!("`{what}`: write hit or miss").into()),
    }
    Ok(())
}
