//! The cost of the access log to a serving thread: nanoseconds a record, in each format.
//!
//! `cargo run --release -p stockade-proxy --example log_cost [RECORDS]`. Run it under `valgrind` with two numbers of
//! records: the difference of "total heap usage" is what a record allocates.

use std::{
    hint::black_box,
    net::SocketAddr,
    path::PathBuf,
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use http::Version;
use stockade_model::outcome::Outcome;
use stockade_proxy::{
    config::{self, LogFormat},
    log::{AccessLogError, AccessLogWriter, AccessRecord},
};

/// Records between two pauses that let the writer catch up: fewer than a buffer holds.
const BATCH: u64 = 1_000;

fn main() -> Result<(), AccessLogError> {
    let records: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    for format in [LogFormat::Json, LogFormat::Combined] {
        let log = AccessLogWriter::start(&config::LogConfig {
            format,
            path: Some(PathBuf::from("/dev/null")),
            ..config::LogConfig::default()
        })?;
        let logger = log.logger();
        let record = AccessRecord {
            time: UNIX_EPOCH + Duration::from_secs(1_795_293_042),
            peer: SocketAddr::from(([192, 0, 2, 7], 4_711)),
            method: "GET",
            host: b"www.example.org",
            target: "/sounds/of/the/sea?quality=high&page=7",
            version: Version::HTTP_11,
            status: 200,
            sent_bytes: 102_400,
            took: Duration::from_micros(321),
            outcome: Outcome::Hit,
            cache_status: b"stockade; hit; ttl=27; detail=hit",
            route: "/sounds/*",
            origin: None,
            error: None,
            user_agent: Some(b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
            referer: Some(b"https://www.example.org/sounds/"),
            is_truncated: false,
        };
        let mut took = Duration::ZERO;
        for batch in 0..records.div_ceil(BATCH) {
            let time = record.time + Duration::from_millis(batch);
            #[expect(clippy::disallowed_methods, reason = "the cost is real time")]
            let start = Instant::now();
            for _ in 0..BATCH {
                logger.record(black_box(&AccessRecord { time, ..record }));
            }
            took += start.elapsed();
            // Twice as long as the writer lets lines gather.
            thread::park_timeout(Duration::from_millis(if records > 100_000 { 1 } else { 40 }));
        }
        let recorded = records.div_ceil(BATCH) * BATCH;
        println!(
            "{format:?}: {} ns a record, {} dropped",
            took.as_nanos() / u128::from(recorded),
            log.dropped()
        );
    }
    Ok(())
}
