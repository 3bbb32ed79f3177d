//! Snapshots: how fast a million entries of a kilobyte are written and restored.
//!
//! "memory" has no file; "file" is written with `sync_all` and read again, from the page cache. A copy of the same
//! bytes into a file, with `sync_all`, shows what the disk does. Values are `Bytes`, keys `u64` in a string.

use std::{
    error::Error,
    fs::File,
    io::Write,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use stockade_bench::statistics::median;
use stockade_cache::{Cache, Limit, RawCodec, Snapshots, Strategy, heap_bytes};

const ENTRIES: u64 = 1_000_000;
const VALUE_BYTES: usize = 1_000;
const ROUNDS: usize = 5;

type BenchCache = Cache<String, Bytes>;

fn cache() -> Result<BenchCache, Box<dyn Error>> {
    let strategy = Strategy { limit: Some(Limit::bytes(4 << 30)), ..Strategy::preset("stampede")? };
    Ok(Cache::builder(strategy).weigh(heap_bytes).build()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let snapshots = Snapshots::<String, Bytes>::new("bench 1", RawCodec, RawCodec);
    let full = cache()?;
    for key in 0..ENTRIES {
        full.insert(format!("{key:016}"), Bytes::from(vec![key.to_le_bytes()[0]; VALUE_BYTES]));
    }
    let path = std::env::temp_dir().join(format!("snapshot-table-{}", std::process::id()));
    let mut speeds: [Vec<f64>; 5] = Default::default();
    let mut bytes = Vec::with_capacity(1_200 << 20);
    for _ in 0..ROUNDS {
        bytes.clear();
        let begin = Instant::now();
        snapshots.write(&full, SystemTime::now(), &mut bytes)?;
        let mut record = |row: usize, begin: Instant, size: usize| {
            speeds[row].push(size as f64 / begin.elapsed().as_secs_f64() / f64::from(1 << 30));
        };
        let size = bytes.len();
        record(0, begin, size);
        let (begin, restored) = (Instant::now(), cache()?);
        let counts = snapshots.read(&restored, SystemTime::now(), &bytes[..])?;
        record(1, begin, size);
        assert_eq!((counts.entries, restored.len() as u64), (ENTRIES, ENTRIES));
        drop(restored);
        let begin = Instant::now();
        let file = File::create(&path)?;
        snapshots.write(&full, SystemTime::now(), &file)?;
        file.sync_all()?;
        record(2, begin, size);
        let (begin, restored) = (Instant::now(), cache()?);
        snapshots.read(&restored, SystemTime::now(), File::open(&path)?)?;
        record(3, begin, size);
        drop(restored);
        let begin = Instant::now();
        let mut copy = File::create(&path)?;
        copy.write_all(&bytes)?;
        copy.sync_all()?;
        record(4, begin, size);
    }
    std::fs::remove_file(&path)?;
    println!("| {ENTRIES} entries, {} MiB | GiB/s |\n|---|---|", bytes.len() >> 20);
    let rows = [
        "written to memory",
        "restored from memory",
        "written to a file",
        "restored from a file",
        "the same bytes copied to a file",
    ];
    for (row, speeds) in rows.into_iter().zip(speeds) {
        println!("| {row} | {:.2} |", median(speeds));
    }
    Ok(())
}
