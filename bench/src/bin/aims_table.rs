//! Aims for times that no test asserts, since tests have to pass on slow machines.
//!
//! 1. The longest store around a reclaim: 36,000 entries of 1 KiB, `lrw`, reclaim 0.3, one thread. Aim: 1 ms.
//! 2. The last of 10,000 workers under `stampede`, over a source that takes 50 ms. Aim: 20 ms above the source.
//!    `STOCKADE` is the program, built if it is not set.
//!
//! Each line gives the median and the range of seven rounds, in milliseconds.

use std::{
    error::Error,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use stockade_bench::{
    generators::stockade,
    statistics::{median, range},
};
use stockade_cache::{Cache, EvictionOrder, Limit, Policy, Strategy, heap_bytes};

const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _context = runtime.enter();
    println!("| aim | median ms | range ms | aim ms |");
    println!("|---|---|---|---|");
    row("longest store around a reclaim", 1.0, longest_store_ms)?;
    let program = stockade()?;
    row("10,000 workers above the source's 50 ms", 20.0, || stampede_ms(&program))
}

fn row(
    name: &str,
    aim: f64,
    measure: impl Fn() -> Result<f64, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let rounds = (0..ROUNDS).map(|_| measure()).collect::<Result<Vec<_>, _>>()?;
    let (least, greatest) = range(&rounds);
    println!("| {name} | {:.2} | {least:.2} to {greatest:.2} | {aim} |", median(rounds));
    Ok(())
}

fn longest_store_ms() -> Result<f64, Box<dyn Error>> {
    const ENTRIES: u64 = 36_000;
    let limit = Limit {
        policy: Policy::LRW,
        reclaim: 0.3,
        order: EvictionOrder::Global,
        ..Limit::entries(usize::try_from(ENTRIES)?)
    };
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede")? };
    let cache: Cache<u64, Arc<[u8]>> = Cache::builder(strategy).weigh(heap_bytes).build()?;
    for key in 0..ENTRIES {
        cache.insert(key, [7; 1_024].into());
    }
    let mut longest = Duration::ZERO;
    for key in ENTRIES..ENTRIES + 1_000 {
        let value: Arc<[u8]> = [7; 1_024].into();
        let began = Instant::now();
        cache.insert(key, value);
        longest = longest.max(began.elapsed());
    }
    Ok(longest.as_secs_f64() * 1e3)
}

fn stampede_ms(program: &Path) -> Result<f64, Box<dyn Error>> {
    let arguments = ["10000", "--strategy", "stampede", "--source-latency", "50ms", "--format", "json"];
    let output = Command::new(program).arg("stampede").args(arguments).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let finished = report["runs"][0]["finished_ms"].as_f64().ok_or("the report has no finished_ms")?;
    Ok(finished - 50.0)
}
