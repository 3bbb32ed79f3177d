//! Half an hour of four caches, three runtimes and plain threads: `cache_soak SECONDS` (1,800 without an argument).
//!
//! The module `stockade_bench::cache_soak` describes what happens. The exit status is 0 if everything holds.

use std::{env, process::ExitCode, time::Duration};

use stockade_bench::cache_soak;
use tikv_jemallocator::Jemalloc;

// That of the proxy. glibc's heaps, one for each thread, would grow from 220 to 271 MiB in the half hour, where this one stays below 82.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let Ok(seconds) = env::args().nth(1).map_or(Ok(1_800), |seconds| seconds.parse()) else {
        eprintln!("cache_soak: a number of seconds is expected");
        return ExitCode::from(2);
    };
    match cache_soak::run(Duration::from_secs(seconds)) {
        Ok((report, holds)) => {
            println!("{report}");
            if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("cache_soak: {error}");
            ExitCode::FAILURE
        }
    }
}
