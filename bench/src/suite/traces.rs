//! Hit ratios on traces of real systems.

use std::{env, fs, path::Path};

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::{command::report::grouped, contenders::entrants};

/// Bytes of a record: time, key, size, next access, little-endian.
const RECORD_BYTES: usize = 24;
/// The most traces of a folder, in the order of their names.
const TRACES_MAX: usize = 12;
/// Room for this share of the different keys.
const SHARES: [(&str, f64); 2] = [("1 %", 0.01), ("10 %", 0.1)];

pub(super) const BENCH: Bench = Bench {
    name: "traces",
    shows: "hit ratios on real traces; the environment variable TRACES names a folder of them",
    method: "Each cache gets every key of a trace in order and inserts the missing ones, on one thread, with room for 1 % and 10 % of the \
             different keys. Traces are files in libCacheSim's format oracleGeneral, here those of Caffeine's simulator. The policies \
             are the defaults, of foyer its sieve. A map would hit all repeated keys: it takes no part.",
    seconds: 60,
    needs: &[],
    peers: &["quick_cache", "moka", "foyer-memory"],
    metrics: &[Metric { name: "hit ratio", unit: "%", digits: 2, better: Better::Higher, aim: Some(1.0) }],
    limits: &[],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let entrants: Vec<_> =
        entrants::<u64>().into_iter().filter(|one| !one.name.starts_with("papaya")).collect();
    let names: Vec<_> = entrants.iter().map(|entrant| entrant.name).collect();
    let mut figures = Vec::new();
    for (name, keys) in traces(sitting)? {
        let different = keys.iter().max().map_or(1, |key| *key as usize + 1);
        for (share, factor) in SHARES {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
            let capacity = ((different as f64 * factor) as usize).max(10);
            let case = format!("{name}, {share} of {} keys", grouped(different as f64, 0));
            figures.extend(sitting.interleave(&case, ["hit ratio"], &names, 1, |at| {
                let hits = (entrants[at].build)(capacity).serve(&keys);
                Ok([hits as f64 / keys.len() as f64 * 100.0])
            })?);
        }
    }
    Ok(figures)
}

/// Names and keys, which are numbered in the order of their first requests.
fn traces(sitting: &Sitting) -> Result<Vec<(String, Vec<u32>)>> {
    let Some(folder) = env::var_os("TRACES") else {
        if sitting.is_smoke {
            return Ok(vec![("a loop".to_owned(), (0..10_000).map(|at| at % 500).collect())]);
        }
        return Err("TRACES names no folder of traces: bench/README.md says how to make one".into());
    };
    let folder = Path::new(&folder);
    let entries = fs::read_dir(folder).map_err(|error| format!("TRACES, {}: {error}", folder.display()))?;
    let mut files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "oracleGeneral"));
    files.sort();
    if files.is_empty() {
        return Err(format!("{} has no file *.oracleGeneral", folder.display()).into());
    }
    let trace = |file: &std::path::PathBuf| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        Ok((
            stem.trim_end_matches("_gz").trim_end_matches("_xz").replace("_trace", ""),
            numbered(&fs::read(file)?),
        ))
    };
    files.iter().take(TRACES_MAX).map(trace).collect()
}

fn numbered(records: &[u8]) -> Vec<u32> {
    let mut numbers = std::collections::HashMap::new();
    let (records, _) = records.as_chunks::<RECORD_BYTES>();
    let key = |record: &[u8; RECORD_BYTES]| record[4..12].try_into().map_or(0, u64::from_le_bytes);
    let mut number = |key| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(key).or_insert(next)
    };
    records.iter().map(|record| number(key(record))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_by_their_first_request() {
        let record = |key: u64| {
            let mut record = [0; RECORD_BYTES];
            record[4..12].copy_from_slice(&key.to_le_bytes());
            record
        };
        let records: Vec<u8> = [77, 5, 77, u64::MAX].into_iter().flat_map(record).collect();
        assert_eq!(numbered(&records), [0, 1, 0, 2]);
    }
}
