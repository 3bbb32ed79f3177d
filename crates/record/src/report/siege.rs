//! The final text of siege until version 4.1.6, byte for byte.

use std::{collections::BTreeMap, fmt, time::Duration};

use stockade_model::units::ratio;

/// The texts before and after each figure.
const LINES: [(&str, &str); 12] = [
    ("Transactions:\t\t", " hits"),
    ("Availability:\t\t", " %"),
    ("Elapsed time:\t\t", " secs"),
    ("Data transferred:\t", " MB"),
    ("Response time:\t\t", " secs"),
    ("Transaction rate:\t", " trans/sec"),
    ("Throughput:\t\t", " MB/sec"),
    ("Concurrency:\t\t", ""),
    ("Successful transactions:", ""),
    ("Failed transactions:\t", ""),
    ("Longest transaction:\t", ""),
    ("Shortest transaction:\t", ""),
];

/// The inputs of siege's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct SiegeReport<'a> {
    /// Requests by status; 0 stands for no response.
    pub status_codes: &'a BTreeMap<u16, u64>,
    /// From the first due time to the end of the last request.
    pub elapsed: Duration,
    /// Bytes of bodies as received.
    pub wire_bytes_in: u64,
    /// Requests with a response.
    pub answered: u64,
    /// Their mean response time.
    pub mean: Duration,
    /// Their longest response time.
    pub longest: Duration,
    /// Their shortest response time.
    pub shortest: Duration,
}

/// Twelve figures.
impl fmt::Display for SiegeReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lifting the server siege...\n")?;
        for ((label, unit), figure) in LINES.iter().zip(self.figures()) {
            writeln!(f, "{label}{figure}{unit}")?;
        }
        f.write_str(" \n")
    }
}

impl SiegeReport<'_> {
    /// The figures, computed and formatted as in siege. A transaction is a response other than 408 and 5xx; a success is a
    /// status below 400, 401 or 407. Times are response times of responses; bytes are bytes as received.
    #[must_use]
    pub fn figures(&self) -> [String; 12] {
        let count = |of: fn(u16) -> bool| {
            self.status_codes.iter().filter(|(code, _)| of(**code)).map(|(_, count)| count).sum::<u64>()
        };
        let failed = count(|code| matches!(code, 0 | 408 | 500..=509));
        let successful = count(|code| matches!(code, 1..=399 | 401 | 407));
        let requests = count(|_| true);
        let transactions = requests - failed;
        let elapsed_s = self.elapsed.as_secs_f64();
        let by_time = |figure: f64| if elapsed_s > 0.0 { figure / elapsed_s } else { 0.0 };
        let all_s = self.mean.as_secs_f64() * self.answered as f64;
        let megabytes = self.wire_bytes_in as f64 / 1_048_576.0;
        let whole = |count: u64| format!("{count:12}");
        let broken = |figure: f64| format!("{figure:12.2}");
        [
            whole(transactions),
            broken(100.0 * ratio(transactions, requests).unwrap_or_default()),
            broken(elapsed_s),
            broken(megabytes),
            broken(if transactions > 0 { all_s / transactions as f64 } else { 0.0 }),
            broken(by_time(transactions as f64)),
            broken(by_time(megabytes)),
            broken(by_time(all_s)),
            whole(successful),
            whole(failed),
            broken(self.longest.as_secs_f64()),
            broken(if successful > 0 { self.shortest.as_secs_f64() } else { 0.0 }),
        ]
    }
}
