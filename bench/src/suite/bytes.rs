//! Memory of entries beyond their keys and values.

use std::sync::Arc;

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::{
    contenders::{Value, entrants},
    process::{measure_child, resident_bytes},
};

/// The name of a case, its entries, and those of a smoke run.
const CASES: [(&str, u64, u64); 2] =
    [("1 M entries, u64", 1_000_000, 20_000), ("10 M entries of 100 bytes", 10_000_000, 20_000)];

pub(super) const BENCH: Bench = Bench {
    name: "bytes",
    shows: "resident bytes an entry beyond key and value, for 1 M entries of 8 bytes and 10 M of 100 bytes",
    method: "Growth of resident memory per stored entry, less key and value, in a process per contender that inserts as many different \
             keys as it has room for. Values of 100 bytes are in an `Arc`, whose counters and allocation count for all. The time to \
             live, which all store, is included. A table doubles when it is full, so that other numbers of entries have other figures.",
    seconds: 100,
    needs: &[],
    peers: &["quick_cache", "moka", "foyer-memory", "papaya"],
    metrics: &[Metric {
        name: "bytes an entry",
        unit: "B",
        digits: 0,
        better: Better::Lower,
        aim: Some(1.0),
    }],
    limits: &["papaya"],
    measure,
    child: Some(child),
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let names = entrants::<u64>().map(|entrant| entrant.name);
    let mut figures = Vec::new();
    for (case, entries, tiny) in CASES {
        let entries = sitting.scaled(entries, tiny).to_string();
        figures.extend(sitting.interleave(case, ["bytes an entry"], &names, 1, |at| {
            measure_child(&["child", "bytes", case, names[at], &entries])
        })?);
    }
    Ok(figures)
}

/// Fills one cache and prints its bytes an entry.
fn child(arguments: &[&str]) -> Result<()> {
    let [case, name, entries] = arguments else { return Err("a case, a contender and entries".into()) };
    let entries: usize = entries.parse()?;
    let bytes = if *case == CASES[0].0 {
        overhead::<u64>(name, entries, 8)
    } else {
        overhead::<Arc<[u8; 100]>>(name, entries, 100)
    };
    println!("{}", bytes?);
    Ok(())
}

fn overhead<V: Value>(name: &str, capacity: usize, value_bytes: usize) -> Result<f64> {
    let entrants = entrants::<V>();
    let entrant = entrants.iter().find(|entrant| entrant.name == name).ok_or("no contender has that name")?;
    let before = resident_bytes()?;
    let cache = (entrant.build)(capacity);
    for key in 0..capacity as u64 {
        cache.insert(key, V::load(key));
    }
    let entries = cache.entries();
    let grown = resident_bytes()?.saturating_sub(before);
    Ok(grown as f64 / entries as f64 - (size_of::<u64>() + value_bytes) as f64)
}
