//! The cost of N tasks that wait for one load of a cold key.
//!
//! All N are spawned at once on a runtime with two workers; the load takes 5 ms, counted from the
//! last request, so that all the others wait. "ms" is the time from the first spawn to the last
//! answer; it includes spawning and the millisecond that tokio's timer rounds up. "bytes a waiter"
//! is the growth of resident memory since before the first spawn, divided by N; it includes the task of a
//! waiter. `OnceCell` is no cache but tokio's own type for this: one value, no key, no timeout.
//!
//! Every stampede runs in its own process, contenders alternate, and the table has medians.

use std::{env, error::Error};

use stockade_bench::{
    process::{measure, peak_resident_bytes, resident_bytes},
    stampede::{STAMPEDERS, Stampeder, runtime},
    statistics::median,
};

const SIZES: [usize; 2] = [10_000, 1_000_000];
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => SIZES.into_iter().try_for_each(table),
        [name, size] => run(name, size.parse()?),
        _ => Err("no arguments are expected".into()),
    }
}

/// The child process: runs one stampede and prints its seconds, its loads and the bytes per waiter.
fn run(name: &str, size: usize) -> Result<(), Box<dyn Error>> {
    let stampeder =
        STAMPEDERS.iter().find(|stampeder| stampeder.name == name).ok_or("no contender has that name")?;
    let runtime = runtime()?;
    let stampede = {
        let _context = runtime.enter();
        (stampeder.prepare)(size)
    };
    let before = resident_bytes()?;
    let stampede = runtime.block_on(runtime.spawn(stampede))?;
    let grown = peak_resident_bytes()?.saturating_sub(before);
    println!("{} {} {}", stampede.took.as_secs_f64(), stampede.loads, grown as f64 / size as f64);
    Ok(())
}

fn table(size: usize) -> Result<(), Box<dyn Error>> {
    println!("\n{size} tasks\n");
    println!("| contender | ms | loads | bytes a waiter |");
    println!("|---|---|---|---|");
    let mut rounds: [Vec<[f64; 3]>; STAMPEDERS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (stampeder, rounds) in STAMPEDERS.iter().zip(&mut rounds) {
            rounds.push(measure([stampeder.name, &size.to_string()])?);
        }
    }
    for (Stampeder { name, .. }, rounds) in STAMPEDERS.iter().zip(&rounds) {
        let median_of = |figure: usize| median(rounds.iter().map(|figures| figures[figure]).collect());
        println!("| {name} | {:.1} | {} | {:.0} |", median_of(0) * 1e3, median_of(1), median_of(2));
    }
    Ok(())
}
