//! How fast a million entries are written to a snapshot and restored.

use std::{
    fs::File,
    io::Write,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use stockade_cache::{Cache, Limit, RawCodec, Snapshots, Strategy, heap_bytes};

use super::{AIM, Bench, Better, Figure, Metric, Result, Sitting};

const ENTRIES: u64 = 1_000_000;
const VALUE_BYTES: usize = 1_000;
const ROUNDS: usize = 3;
const DISK: &str = "a copy to a file";

pub(super) const BENCH: Bench = Bench {
    name: "snapshot",
    shows: "GiB a second of a snapshot of a million entries of 1 kB, compared with 1 GiB/s and a copy of the same bytes",
    method: "Keys are strings of 16 bytes, values `Bytes`. \"memory\" writes to and reads from a vector: the time is that of the cache. \"file\" \
             includes `sync_all` for the snapshot and for the copy of its bytes; what is restored comes from the page cache.",
    seconds: 60,
    needs: &[],
    peers: &[],
    metrics: &[Metric { name: "speed", unit: "GiB/s", digits: 2, better: Better::Higher, aim: Some(1.0) }],
    limits: &[],
    measure,
    child: None,
};

type BenchCache = Cache<String, Bytes>;

fn cache() -> Result<BenchCache> {
    let strategy = Strategy { limit: Some(Limit::bytes(4 << 30)), ..Strategy::preset("stampede")? };
    Ok(Cache::builder(strategy).weigh(heap_bytes).build()?)
}

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _context = runtime.enter();
    let snapshots = Snapshots::<String, Bytes>::new("bench 1", RawCodec, RawCodec);
    let full = cache()?;
    let entries = sitting.scaled(ENTRIES, 1_000);
    for key in 0..entries {
        full.insert(format!("{key:016}"), Bytes::from(vec![key.to_le_bytes()[0]; VALUE_BYTES]));
    }
    let mut snapshot = Vec::new();
    snapshots.write(&full, SystemTime::now(), &mut snapshot)?;
    let path = sitting.folder.join("snapshot");
    let speed = |began: Instant| snapshot.len() as f64 / began.elapsed().as_secs_f64() / f64::from(1 << 30);
    let mut into = Vec::with_capacity(snapshot.len());
    let mut figures = sitting.interleave("memory", ["speed"], &["stockade", AIM], ROUNDS, |at| {
        if at == 1 {
            return Ok([1.0]);
        }
        into.clear();
        let began = Instant::now();
        snapshots.write(&full, SystemTime::now(), &mut into)?;
        Ok([speed(began)])
    })?;
    figures.extend(sitting.interleave("restored", ["speed"], &["stockade", AIM], ROUNDS, |at| {
        if at == 1 {
            return Ok([1.0]);
        }
        let restored = cache()?;
        let began = Instant::now();
        let counts = snapshots.read(&restored, SystemTime::now(), &snapshot[..])?;
        assert_eq!(counts.entries, entries);
        Ok([speed(began)])
    })?);
    figures.extend(sitting.interleave("file", ["speed"], &["stockade", DISK], ROUNDS, |at| {
        let mut file = File::create(&path)?;
        let began = Instant::now();
        if at == 0 {
            snapshots.write(&full, SystemTime::now(), &file)?;
        } else {
            file.write_all(&snapshot)?;
        }
        file.sync_all()?;
        Ok([speed(began)])
    })?);
    Ok(figures)
}
