//! The cost of many tasks that wait for one load of a cold key.

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::{
    process::{measure_child, peak_resident_bytes, resident_bytes},
    stampede::{STAMPEDERS, runtime},
};

/// The name of a case, its tasks, and those of a smoke run.
const CASES: [(&str, usize, usize); 2] =
    [("10,000 tasks", 10_000, 1_000), ("1,000,000 tasks", 1_000_000, 2_000)];

pub(super) const BENCH: Bench = Bench {
    name: "stampede",
    shows: "time and memory of 10,000 and 1,000,000 tasks that wait for one load of a cold key",
    method: "All tasks are spawned at once on a runtime with two workers; the load takes 5 ms from the last request on, and one runs. Each \
             stampede has its own process. The time is from the first spawn to the last answer. `OnceCell` is tokio's type for one value, \
             without key, eviction or timeout: it has no aim.",
    seconds: 40,
    needs: &[],
    peers: &["quick_cache", "moka", "tokio"],
    metrics: &[
        Metric { name: "time", unit: "ms", digits: 1, better: Better::Lower, aim: Some(1.0) },
        Metric { name: "bytes a waiter", unit: "B", digits: 0, better: Better::Lower, aim: Some(1.0) },
    ],
    limits: &["OnceCell"],
    measure,
    child: Some(child),
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let names = STAMPEDERS.map(|stampeder| stampeder.name);
    let mut figures = Vec::new();
    for (case, size, tiny) in CASES {
        let size = sitting.scaled(size, tiny).to_string();
        figures.extend(sitting.interleave(case, ["time", "bytes a waiter"], &names, 3, |at| {
            measure_child(&["child", "stampede", names[at], &size])
        })?);
    }
    Ok(figures)
}

/// Runs one stampede and prints its milliseconds and its bytes a waiter.
fn child(arguments: &[&str]) -> Result<()> {
    let [name, size] = arguments else { return Err("a contender and a size".into()) };
    let size: usize = size.parse()?;
    let stampeder =
        STAMPEDERS.iter().find(|stampeder| stampeder.name == *name).ok_or("no contender has that name")?;
    let runtime = runtime()?;
    let stampede = {
        let _context = runtime.enter();
        (stampeder.prepare)(size)
    };
    let before = resident_bytes()?;
    let stampede = runtime.block_on(runtime.spawn(stampede))?;
    if stampede.loads != 1 {
        return Err(format!("{name} loaded {} times", stampede.loads).into());
    }
    let grown = peak_resident_bytes()?.saturating_sub(before);
    println!("{} {}", stampede.took.as_secs_f64() * 1e3, grown as f64 / size as f64);
    Ok(())
}
