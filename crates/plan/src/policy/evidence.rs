//! The measurements of decision 028: misses of every policy, and of S4-FIFO with many parameters, over traces on disk.
//!
//! `EVIDENCE=DIRECTORY cargo test --release -p stockade-plan --lib evidence -- --ignored --nocapture` prints lines of trace, unit, size, policy,
//! requests and misses. The directory has traces in the formats of `stockade plan`. With `EVIDENCE_POLICY=NAME` it prints one policy.

use std::path::Path;

use stockade_logs::{Input, LogReader};

use super::{POLICIES, Policy, s4_fifo::S4Fifo};
use crate::{
    Capacity,
    curve::entry_max,
    read::{KeyRules, read},
    replay::{CacheSetup, Replay, replay},
    trace::Trace,
};

/// Sizes as shares of the keys, or of the bytes of one response of each.
const SHARES: [f64; 5] = [0.005, 0.01, 0.05, 0.1, 0.4];
type Run = fn(&Trace, &CacheSetup) -> Replay;

macro_rules! s4_fifo {
    ($($small:literal $skip:literal $to_main:literal $ghost_to_main:literal $ghosts:literal,)*) => {
        [$((
            concat!($small, " ", $skip, " ", $to_main, " ", $ghost_to_main, " ", $ghosts),
            |trace, setup| replay::<S4Fifo<$small, $skip, $to_main, $ghost_to_main, $ghosts, false>>(trace, setup, None),
            |trace, setup| replay::<S4Fifo<$small, $skip, $to_main, $ghost_to_main, $ghosts, true>>(trace, setup, None),
        )),*]
    };
}

/// Small queue, skipped, hits and ghost hits to the main queue, ghosts; without and with a main queue that fills first.
static TUNED: [(&str, Run, Run); 33] = s4_fifo![
    // One or two parameters at a time.
    10 0 2 0 90,
    1 0 2 0 90,
    5 0 2 0 90,
    20 0 2 0 90,
    40 0 2 0 90,
    1 0 1 0 90,
    5 0 1 0 90,
    10 0 1 0 90,
    20 0 1 0 90,
    40 0 1 0 90,
    10 0 2 0 0,
    10 0 2 0 300,
    10 0 2 0 600,
    10 0 2 1 90,
    10 0 2 2 90,
    5 0 2 1 90,
    20 0 2 1 90,
    1 0 2 1 90,
    10 25 2 0 90,
    10 50 2 0 90,
    10 25 1 0 90,
    // The classes that the paper's model chooses among, without those above.
    20 0 1 0 300,
    50 0 1 0 90,
    5 0 2 0 600,
    10 0 2 1 300,
    30 0 2 0 300,
    5 0 2 0 300,
    70 0 1 1 90,
    20 0 1 1 90,
    5 0 1 1 90,
    30 0 1 0 600,
    90 0 2 0 300,
    30 0 2 1 300,
];

fn capacities(trace: &Trace, by_bytes: bool) -> Vec<Capacity> {
    let mut bytes = vec![0_u64; trace.keys()];
    trace.requests().iter().for_each(|request| bytes[request.key as usize] = u64::from(request.bytes));
    let whole: u64 = bytes.iter().sum();
    let sizes = SHARES.iter().map(|share| {
        if by_bytes {
            Capacity::Bytes(whole).times(*share)
        } else {
            Capacity::Entries(Capacity::Entries(trace.keys() as u64).times(*share).size().max(10))
        }
    });
    let mut sizes: Vec<_> = sizes.collect();
    sizes.dedup();
    sizes
}

fn measure(path: &Path) {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let reader = LogReader::open(&[Input::from(path.to_path_buf())], None).expect("it is readable");
    let trace = read(reader, &KeyRules::default(), usize::MAX).expect("it is a trace").trace;
    let has_sizes = trace.requests().iter().any(|request| request.bytes > 1);
    let units: &[bool] = if has_sizes { &[false, true] } else { &[false] };
    for &by_bytes in units {
        for capacity in capacities(&trace, by_bytes) {
            let setup = CacheSetup { entry_max: entry_max(capacity), ..CacheSetup::of(capacity) };
            let show = |policy: &str, replay: &Replay| {
                let unit = if by_bytes { "bytes" } else { "entries" };
                let Replay { requests, misses, .. } = replay;
                println!("{name},{unit},{},{policy},{requests},{misses}", capacity.size());
            };
            if let Ok(name) = std::env::var("EVIDENCE_POLICY") {
                let policy = Policy::named(&name).expect("its name");
                show(policy.name, &policy.replay(&trace, &setup));
                continue;
            }
            POLICIES.iter().for_each(|policy| show(policy.name, &policy.replay(&trace, &setup)));
            for (parameters, cold, filled) in &TUNED {
                show(&format!("s4 {parameters}"), &cold(&trace, &setup));
                show(&format!("s4 {parameters} filled"), &filled(&trace, &setup));
            }
        }
    }
}

#[test]
#[ignore = "needs traces on disk, and minutes"]
fn evidence() {
    let directory = std::env::var("EVIDENCE").expect("the directory of the traces");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).expect("it exists").map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    measure(path);
                }
            });
        }
    });
}
