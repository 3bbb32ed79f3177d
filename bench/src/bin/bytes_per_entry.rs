//! Memory per entry beyond key and value.
//!
//! Every contender has a capacity of 1,000,000 entries and receives 1,000,000 different keys, `u64` to `u64`.
//! "bytes an entry" is the growth of resident memory per stored entry, less the 16 bytes of key and
//! value. It includes the time to live, which all contenders store: the 8 bytes that the wrapper of
//! `quick_cache`, foyer and papaya adds are counted as those of moka and stockade are.
//!
//! "kept" is less than a million where shards have a capacity each and keys do not spread evenly. A table
//! doubles when it is full, so with other numbers of entries the same contender has better or worse figures.
//! Each runs in its own process; the table has medians.

use std::{env, error::Error};

use stockade_bench::{
    contenders::{Entrant, Value, entrants},
    process::{measure, resident_bytes},
    statistics::median,
};

const CAPACITY: usize = 1_000_000;
const PAYLOAD: usize = 2 * size_of::<u64>();
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => table(),
        [name, capacity] => fill(name, capacity.parse()?),
        _ => Err("no arguments are expected".into()),
    }
}

/// The child process: fills one cache and prints its number of entries and the overhead per entry in bytes.
fn fill(name: &str, capacity: usize) -> Result<(), Box<dyn Error>> {
    let entrants = entrants::<u64>();
    let entrant = entrants.iter().find(|entrant| entrant.name == name).ok_or("no contender has that name")?;
    let before = resident_bytes()?;
    let cache = (entrant.build)(capacity);
    for key in 0..capacity as u64 {
        cache.insert(key, u64::load(key));
    }
    let entries = cache.entries();
    let grown = resident_bytes()?.saturating_sub(before);
    println!("{entries} {}", grown as f64 / entries as f64 - PAYLOAD as f64);
    Ok(())
}

fn table() -> Result<(), Box<dyn Error>> {
    println!("| contender | kept | bytes an entry |");
    println!("|---|---|---|");
    for Entrant { name, .. } in entrants::<u64>() {
        let rounds: Vec<[f64; 2]> =
            (0..ROUNDS).map(|_| measure([name, &CAPACITY.to_string()])).collect::<Result<_, _>>()?;
        let median_of = |figure: usize| median(rounds.iter().map(|figures| figures[figure]).collect());
        println!("| {name} | {} | {:.0} |", median_of(0), median_of(1));
    }
    Ok(())
}
